"""Sentences of the concept chapter, computed from its tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from anisotropy.models.labels import names_of
from anisotropy.report.scorecard import Outcome, Verdict


def convergence_note(fits: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Whether the factorisations stopped by themselves, in one sentence a model."""
    sentences = []
    for model in dict.fromkeys(fits["model"]):
        own = fits[fits["model"] == model]
        missed, total = int(own["not_converged"].sum()), int(own["fits"].sum())
        if missed:
            sentences.append(
                f"**Note.** For {titles[model]}, {missed} of {total} factorisations were stopped before their loss "
                "settled; raise `max_iter` or `tol`."
            )
        else:
            sentences.append(
                f"For {titles[model]} all {total} factorisations settled, after at most {own['iterations'].max()} "
                "iterations."
            )
    return _listed(sentences)


def graph_note(table: pd.DataFrame) -> str:
    """How often the graph estimator has an answer for concept directions, and for random ones."""
    own = table[(table["metric"] == "id_graph") & (table["reading"] == "per_checkpoint")]
    with_answer, possible = int(own["estimates"].sum()), int(own["possible"].sum())
    return (
        f"`id_graph` has an estimate in {with_answer} of {possible} cases of a window, layer and seed. Elsewhere its "
        "graph of three neighbours falls into pieces, or the histogram of paths has no rising side to fit. Brackets "
        "mark cells in which some seeds gave none."
    )


def against_random(table: pd.DataFrame, random: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """Where the effective rank of concepts in the last window lies below that of random directions, per model."""
    sentences = []
    for model, null_table in random.items():
        own = table[table["model"] == model]
        last = list(dict.fromkeys(own["window"]))[-1]
        rows = own[(own["window"] == last) & (own["reading"] == "per_checkpoint") & (own["metric"] == "effective_rank")]
        ranks = dict(zip(rows["layer"], rows["value"], strict=True))
        null = null_table[null_table["metric"] == "effective_rank"].iloc[0]
        below = [layer for layer, value in ranks.items() if value < null["value"] - 2 * null["spread"]]
        where = {0: "at no layer", len(ranks): "at every layer"}.get(len(below), f"at: {', '.join(below)}")
        values = ", ".join(f"{layer} {value:.1f}" for layer, value in ranks.items())
        sentences.append(
            f"{titles[model]}, last window: effective rank {values}; as many random directions have "
            f"{null['value']:.1f} ± {null['spread']:.1f}. Below it by more than two standard deviations {where}."
        )
    return _listed(sentences)


def agreement_words(tables: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """What two starts agree on, and what equal starts pretend, in two sentences a model."""
    sentences = []
    for model, table in tables.items():
        last = table[table["step"] == table["step"].max()]
        found: dict[str, dict[str, float]] = {
            str(name): dict(zip(rows["layer"], rows["value"], strict=True)) for name, rows in last.groupby("comparison")
        }
        seeds, floor = found["seeds"], float(np.mean(list(found["random"].values())))
        lowest, highest = min(seeds, key=seeds.__getitem__), max(seeds, key=seeds.__getitem__)
        sentences.append(
            f"{titles[model]}: two starts agree with a mean matched |cosine| of {seeds[lowest]:.2f} ({lowest} layer) "
            f"to {seeds[highest]:.2f} ({highest} layer) at the last checkpoint; random directions reach {floor:.2f}."
        )
        if "next, same seed" in found:
            same, other = found["next, same seed"], found["next, other seed"]
            layer = max(same, key=lambda name: same[name] - other[name])
            if same[layer] > other[layer] + 0.05:
                sentences[-1] += (
                    f" Against the checkpoint before, equal starts give {same[layer]:.2f} and different ones "
                    f"{other[layer]:.2f} ({layer} layer): the difference is memory of the start, not stability of "
                    "concepts."
                )
            else:
                sentences[-1] += (
                    f" Against the checkpoint before, equal starts agree no better than others ({same[layer]:.2f})."
                )
    return _listed(sentences)


def surrogate_words(
    found: Mapping[str, float],
    surrogate: Mapping[str, float],
    untrained: Mapping[str, float],
    titles: Mapping[str, str],
) -> str:
    """Whether two starts agree more on activations than on noise of the same covariance, one sentence a model.

    Args:
        found: agreement at the last checkpoint, by model.
        surrogate: on Gaussian noise with its mean and covariance.
        untrained: agreement at step 0, where there is one.
        titles: of the models.
    """
    sentences = []
    for model, value in found.items():
        noise = surrogate[model]
        if value > noise + 0.05:
            reading = "more than its covariance alone explains"
        elif value < noise - 0.05:
            reading = "less than on noise: the covariance alone would explain more"
        else:
            reading = "no more than its covariance alone explains"
        before = f", and {untrained[model]:.2f} on the untrained model" if model in untrained else ""
        sentences.append(
            f"{titles[model]}: two starts agree to {value:.2f} at the last checkpoint, to {noise:.2f} on Gaussian "
            f"noise of the same mean and covariance{before}; that is {reading}."
        )
    return _listed(sentences)


def planted_words(table: pd.DataFrame) -> str:
    """Whether a low loss came with recovery of the planted concepts."""
    loss, true = table["relative_loss"].mean(), table["true_loss"].iloc[0]
    lower = "below" if loss < true else "above"
    return (
        f"The fits leave {loss:.2%} of the squared length unexplained, {lower} the {true:.2%} that the planted "
        f"directions leave. They match the planted ones with a mean |cosine| of {table['recovered'].mean():.2f}, and "
        f"each other with {table['agreement'].mean():.2f}."
    ).replace("%", " %")


def pooling_words(table: pd.DataFrame, dimension: int) -> str:
    """What pooling does to an estimate of a known dimension."""
    found = dict(zip(table["points"], table["id_twonn"], strict=True))
    pooled, free, single = (found[name] for name in ("pooled copies", "independent", "one checkpoint"))
    verdict = (
        "Pooling, not the number of points, makes the estimate small"
        if pooled < 0.5 * free
        else ("Here pooling makes no such difference")
    )
    return (
        f"Of points in {dimension} dimensions, TwoNN reports {single:.1f} from one set, {pooled:.1f} from its pooled "
        f"copies and {free:.1f} from as many independent points. {verdict}."
    )


def most_rank_if_one_component_holds(share: float, dimensions: int) -> float:
    """Largest exp(entropy) of variance shares of which the first is at least ``share``: the rest spread evenly."""
    rest = 1 - share
    return float(np.exp(-share * np.log(share) - rest * np.log(rest / (dimensions - 1))))


def least_rank_if_components_needed(components: int, share: float, dimensions: int) -> float:
    """Smallest exp(entropy) of variance shares of which the ``components`` − 1 largest hold less than ``share``.

    Entropy is concave, so its least value on this polytope is at a vertex: a mixture of two flat spectra, of m <
    (components − 1)/share and of m' ≥ that many equal shares, on which the constraint is met exactly.
    """
    from scipy.special import xlogy

    head = components - 1
    first = int(np.ceil(head / share))
    short, long = np.meshgrid(np.arange(1, first), np.arange(first, dimensions + 1))
    held_short, held_long = np.minimum(1.0, head / short), head / long
    weight = (share - held_long) / (held_short - held_long)
    low = (1 - weight).clip(0) / long
    top = weight / short + low
    entropy = -short * xlogy(top, top) - (long - short) * xlogy(low, low)
    return float(min(first, np.exp(entropy).min()))


def printed_remarks(printed: pd.DataFrame, hidden_sizes: Mapping[str, int], share: float = 0.7) -> pd.DataFrame:
    """Cells of the printed table that only some definitions of its two ranks can give, with the arithmetic.

    Args:
        printed: what :func:`anisotropy.report.published.table2` returned.
        hidden_sizes: coordinates by printed model name.

    Returns:
        One row per cell: ``model``, ``window``, ``layer``, ``pca_70``, ``effective_rank``, ``bound`` and ``remark``.
    """
    wide = printed.pivot(index=["model", "checkpoints", "layer"], columns="metric", values="value").reset_index()
    rows = []
    for cell in wide.to_dict("records"):
        d = hidden_sizes[cell["model"]]
        needed, rank = int(cell["pca_70"]), cell["effective_rank"]
        if needed == 1 and rank > (most := most_rank_if_one_component_holds(share, d)):
            remark = f"not of squared singular values: these give at most {most:.1f}"
            bound = most
        elif 1 < needed <= 100 and rank < (least := least_rank_if_components_needed(needed, share, d)):
            remark = f"not of one matrix: its squared singular values give at least {least:.1f}, plain ones more"
            bound = least
        else:
            continue
        rows.append(
            {"model": cell["model"], "window": cell["checkpoints"], "layer": cell["layer"], "pca_70": needed}
            | {"effective_rank": rank, "bound": bound, "remark": remark}
        )
    names = ["model", "window", "layer", "pca_70", "effective_rank", "bound", "remark"]
    return pd.DataFrame(rows, columns=names)


def remark_lines(remarks: pd.DataFrame) -> list[str]:
    """The remarks as a Markdown list, a line a cell."""
    if remarks.empty:
        return ["No printed cell excludes a definition of its two ranks."]
    return [
        f"- {row['model']}, {row['window']}, {row['layer']} layer ({_components(row['pca_70'])}, rank "
        f"{row['effective_rank']}): {row['remark']}."
        for row in remarks.to_dict("records")
    ]


def _components(number: int) -> str:
    return "1 component" if number == 1 else f"{number} components"


def rows_needed(printed: pd.DataFrame) -> str:
    """How many rows the largest printed effective rank asks for."""
    ranks = printed[printed["metric"] == "effective_rank"]
    row = ranks.sort_values("value").iloc[-1]
    return (
        f"The largest printed effective rank is {row['value']} ({row['model']}, {row['layer']} layer). Centred rows of "
        f"a number n have at most n − 1, so that table rests on at least {int(np.ceil(row['value'])) + 1} directions "
        "a cell: many concepts, or those of several checkpoints together."
    )


def dominated_words(table: pd.DataFrame) -> str:
    """Which readings one dominant direction brings down to a single component, in one sentence."""
    collapsed = dict(zip(table["reading"], table["dominated_pca_70"] == 1, strict=True))
    see, miss = ([reading for reading, seen in collapsed.items() if seen is wanted] for wanted in (True, False))
    if not see:
        return "No reading falls to one component here."
    if not miss:
        return "Every reading falls to one component here, so the printed 1 does not tell them apart."
    return (
        f"One component is enough for: {', '.join(see)}. It is not for: {', '.join(miss)}. So a printed `pca_70` of 1 "
        "speaks for a measure that keeps lengths, not for directions of length 1."
    )


def course_words(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """When the ratio of effective ranks is lowest, and whether it stays there, one sentence a model."""
    sentences = []
    for model, table in courses.items():
        own = table[table["reading"] == "activations"].sort_values("step")
        ratios, steps = own["ratio"].to_numpy(), own["step"].to_numpy()
        if len(steps) == 1:
            sentences.append(f"{titles[model]}: the ratio of the activations is {ratios[0]:.2f} at its one checkpoint.")
            continue
        place = int(ratios.argmin())
        start = (
            f"{titles[model]}: the ratio of the activations begins at {ratios[0]:.2f}, is lowest at step "
            f"{steps[place]:,} ({ratios[place]:.2f}) and ends at {ratios[-1]:.2f}"
        )
        if place == 0:
            sentences.append(f"{start}: it does not fall.")
        elif ratios[-1] > 1.5 * ratios[place]:
            sentences.append(f"{start}: the last layer narrows during training and widens again.")
        else:
            sentences.append(f"{start}: it narrows and stays narrow.")
    return _listed(sentences)


def printed_collapse_words(table: pd.DataFrame) -> str:
    """The rule's first half on the printed numbers, one clause a model."""
    clauses = [
        f"{row['model']} ({row['kind']}) {row['ratio']:.3f}, {'at most' if row['at_most_a_tenth'] else 'above'} a tenth"
        for row in table.to_dict("records")
    ]
    decoders, encoders = (table[table["kind"] == kind]["at_most_a_tenth"] for kind in ("decoder", "encoder"))
    agree = len(decoders) and decoders.all() and not encoders.any()
    end = (
        "The printed numbers meet the first half of the rule in every decoder and in no encoder"
        if agree
        else "The printed numbers do not divide into decoders and encoders"
    )
    return f"Printed late ratios: {'; '.join(clauses)}. {end}; no untrained model is printed, so the rest stays open."


def collapse_words(verdicts: list[Verdict], titles: Mapping[str, str]) -> str:
    """Whether the readings of claim C8 agree, one sentence a model."""
    sentences = []
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.model == model]
        outcomes = {verdict.outcome for verdict in own}
        if outcomes == {Outcome.NOT_APPLICABLE}:
            sentences.append(f"{titles[model]} is no decoder, so the claim says nothing about it.")
        elif len(outcomes) == 1:
            sentences.append(f"For {titles[model]} every reading says: {own[0].outcome.value}.")
        else:
            parts = "; ".join(f"{verdict.reading} {verdict.outcome.value}" for verdict in own)
            sentences.append(f"For {titles[model]} the reading decides: {parts}.")
    return _listed(sentences)


def contrast_words(ratios: pd.DataFrame, decoders: Collection[str]) -> str:
    """Whether the paper's contrast between decoders and encoders is there, on the activations, in one sentence.

    Args:
        ratios: what :func:`anisotropy.studies.concept_collapse.collapse` returned.
        decoders: labels of the causal models.
    """
    late = ratios[(ratios["stage"] == "late") & (ratios["reading"] == "activations")]
    causal = late["model"].isin(names_of(decoders))
    if not causal.any() or causal.all():
        return "This page has no decoder beside an encoder, so the paper's contrast cannot be looked at."
    own, other = float(late[causal]["ratio"].mean()), float(late[~causal]["ratio"].mean())
    numbers = f"late ratio of the activations {own:.2f} in decoders, {other:.2f} in encoders"
    if own < 0.5 * other:
        return f"The contrast has the paper's direction: {numbers}."
    if other < 0.5 * own:
        return f"The contrast is the reverse of the paper's: {numbers}."
    return f"There is no clear contrast: {numbers}."


def repeated_words(repeated: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]) -> str:
    """How many of the 2,000 activations behind the intrinsic dimensions repeat another, one sentence a model.

    Args:
        repeated: by model and layer.
        titles: of the models.
    """
    return _listed(
        [
            f"{titles[model]}: {', '.join(f'{number:,} at the {layer} layer' for layer, number in layers.items())} "
            "equal another and are left out of the intrinsic dimensions."
            for model, layers in repeated.items()
        ]
    )


def _listed(sentences: Sequence[str]) -> str:
    """Sentences as a Markdown list; one alone as it is."""
    return "\n".join(f"- {sentence}" for sentence in sentences) if len(sentences) > 1 else "".join(sentences)
