"""Tables and sentences of the first chapter, computed from its measures."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from anisotropy.report.layers import middle
from anisotropy.report.tables import signed

CLOSE = 0.1  # [ours] cosines and shares closer than this are called alike
NARROW = 0.05  # [ours] below this mean cosine there is no cone to explain


def layer_table(table: pd.DataFrame, titles: Mapping[str, str], references: Mapping[str, float]) -> pd.DataFrame:
    """First, middle and last layer of every model at its last checkpoint, every measure a column."""
    rows = []
    for model, own in table.groupby("model", sort=False):
        last = own[own["step"] == own["step"].max()]
        layers = int(last["layer"].max()) + 1
        for layer in dict.fromkeys((0, middle(layers), layers - 2, layers - 1)):
            at = last[last["layer"] == layer].set_index("measure")["value"]
            rows.append(
                {
                    "model": titles[str(model)],
                    "layer": _layer_name(layer, layers),
                    "mean cosine": at["cosine"],
                    "share of the mean": at["mean_share"],
                    "IsoScore": at["isoscore"],
                    "IsoScore, round": references[str(model)],
                    "participation ratio (directions)": at["participation_ratio"],
                    "effective rank (directions)": at["effective_rank"],
                }
            )
    return pd.DataFrame(rows)


def _layer_name(layer: int, layers: int) -> str:
    if layer == 0:
        return "0 (input)"
    return f"{layer} (after the final norm)" if layer == layers - 1 else str(layer)


def _middle_cosine(of_model: pd.DataFrame) -> pd.DataFrame:
    """The rows of one model that say the middle layer's mean cosine, by step."""
    return of_model[(of_model["measure"] == "cosine") & (of_model["layer"] == middle(of_model["layer"].max() + 1))]


def middle_cosines(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of all models that say the middle layer's mean cosine."""
    return pd.concat([_middle_cosine(own).sort_values("step") for _, own in table.groupby("model", sort=False)])


def telling_steps(table: pd.DataFrame) -> dict[str, list[int]]:
    """By model its first checkpoint, the one where the middle layer's mean cosine is largest, and its last."""
    steps = {}
    for model, own in table.groupby("model", sort=False):
        cosine = _middle_cosine(own)
        peak = cosine["step"].iloc[cosine["value"].argmax()]
        steps[str(model)] = sorted({int(step) for step in (cosine["step"].min(), peak, cosine["step"].max())})
    return steps


def course_sentence(table: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """What the middle layer did over training, a sentence a model with more than one checkpoint."""
    sentences = []
    for model, own in table.groupby("model", sort=False):
        cosine = _middle_cosine(own)
        if len(cosine) < 2:
            continue
        peak, last, first = cosine.iloc[int(cosine["value"].argmax())], cosine.iloc[-1], cosine.iloc[0]
        head = f"**{titles[str(model)]}**: the mean cosine of the middle layer starts at {signed(first['value'])}"
        if peak["step"] == first["step"]:
            sentences.append(f"{head}, its largest value, and ends at {signed(last['value'])}.")
        elif peak["step"] == last["step"]:
            sentences.append(f"{head} and is largest at the end, {signed(last['value'])}.")
        else:
            sentences.append(
                f"{head}, rises to {signed(peak['value'])} at step {int(peak['step']):,} of {int(last['step']):,} "
                f"and ends at {signed(last['value'])}."
            )
    return " ".join(sentences) or "None of these models has a second checkpoint, so there is no course to show."


def make_up_sentence(table: pd.DataFrame, titles: Mapping[str, str], coordinates: int) -> str:
    """Whether the mean, or a few coordinates, account for the cosine, a sentence a model."""
    sentences = []
    for model, own in table.groupby("model", sort=False):
        last = own[(own["step"] == own["step"].max()) & (own["layer"] > 0)]
        wide = last.pivot(index="layer", columns="measure", values="value")
        wide = wide[wide["cosine"] > NARROW]
        title = titles[str(model)]
        if wide.empty:
            sentences.append(
                f"**{title}** has no layer with a mean cosine above {NARROW}: there is no cone to explain."
            )
            continue
        of_mean = int(((wide["cosine"] - wide["mean_share"]).abs() < CLOSE).sum())
        half = int((wide["cosine_without"] < 0.5 * wide["cosine"]).sum())
        count = len(wide)
        sentences.append(
            f"**{title}**: in {of_mean} of {count} layers with a cone the mean cosine is within {CLOSE} of the share "
            f"of the mean, so the common mean accounts for it. Leaving out the {coordinates} coordinates that add most "
            f"takes away more than half of the cosine in {half} of {count}."
        )
    return " ".join(sentences)


def disagreement_sentence(table: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Where over training, and in which layer, cosine and IsoScore say opposite things about two checkpoints."""
    sentences = []
    for model, own in table.groupby("model", sort=False):
        layer = middle(own["layer"].max() + 1)
        wide = own[own["layer"] == layer].pivot(index="step", columns="measure", values="value")
        if len(wide) < 2:
            continue
        cosine, score = wide["cosine"].diff().dropna(), wide["isoscore"].diff().dropna()
        # More cosine and a lower score both mean "more anisotropic".
        opposite = int((cosine * score > 0).sum())
        sentences.append(
            f"In {titles[str(model)]} the two disagree on whether anisotropy grew or shrank in {opposite} of "
            f"{len(cosine)} steps from one checkpoint to the next."
        )
    return " ".join(sentences)
