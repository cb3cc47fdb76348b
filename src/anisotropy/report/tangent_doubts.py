"""What could fool a reader of the tangent alignment chapter: each doubt's measured outcome as a computed sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from anisotropy.report.rules.tangents import PRIMARY
from anisotropy.report.scorecard import Verdict
from anisotropy.report.tables import signed
from anisotropy.report.tangent_words import between
from anisotropy.studies.tangent_tables import CONTROLS


def readings_sentences(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str], basis: str = "own") -> str:
    """How much of the weight reading's E_r the unpaired control gives, an item per model (Markdown)."""
    lines = []
    for model, table in courses.items():
        rows = table[
            (table["gradient"] == "weight") & (table["basis"] == basis) & (table["step"] == table["step"].max())
        ]
        if rows.empty:
            lines.append(f"- **{titles[model]}**: no weight reading, the first maps behind its probes are not known.")
            continue
        share = rows["energy_ratio_unpaired"] / rows["energy_ratio"]
        text = (
            f"- **{titles[model]}**, last checkpoint: E_r of weight gradients is {between(rows['energy_ratio'])}; with "
            f"upstream gradients dealt out at random {between(rows['energy_ratio_unpaired'])}, which is "
            f"{_percent(share)} of it"
        )
        if share.min() >= 0.5:
            text += ". Most of it is there without any match of inputs with gradients: it is built in."
        elif share.max() < 0.5:
            text += ". Most of it needs the match of inputs with gradients: it is not merely built in."
        else:
            text += ". At some probes most of it is built in, at others not."
        lines.append(text)
    return "\n".join(lines)


def _percent(shares: Sequence[float] | pd.Series) -> str:
    low, high = (f"{100 * value:.0f}" for value in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def base_point(
    stages: pd.DataFrame, other: pd.DataFrame, verdicts: Sequence[Verdict], again: Sequence[Verdict], centred: bool
) -> str:
    """How far E_r moves when energy is measured about the other base point, and whether a verdict does.

    Args:
        stages, other: stage tables with one base point and with the other.
        verdicts, again: C2 on each.
        centred: whether ``stages`` is the centred one.
    """
    keys = ["model", "seed", "gradient", "basis", "stage", "probe"]
    both = stages[stages["quantity"] == "energy_ratio"].merge(
        other[other["quantity"] == "energy_ratio"], on=keys, suffixes=("", "_other")
    )
    if both.empty:
        return "No reading was measured about both base points."
    factor = both["estimate_other"] / both["estimate"]
    names = ("the mean", "zero") if centred else ("zero", "the mean")
    outcomes = {(one.model, one.reading): one.outcome for one in verdicts}
    changed = [one for one in again if outcomes.get((one.model, one.reading), one.outcome) != one.outcome]
    end = "no verdict on C2 changes" if not changed else f"{len(changed)} of {len(again)} verdicts on C2 change"
    return (
        f"Measured about {names[1]} instead of {names[0]}, E_r is {factor.min():.2f} to {factor.max():.2f} times as "
        f"large over {len(both)} cases; {end}."
    )


def centred_weights(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """What the means do to the weight reading, a sentence per model."""
    lines = []
    for model, table in courses.items():
        rows = table[(table["gradient"] == "weight") & (table["step"] == table["step"].max())]
        if rows.empty:
            continue
        factor = rows["energy_ratio_centred"] / rows["energy_ratio"]
        lines.append(
            f"{titles[model]}: without the means of inputs and upstream gradients, E_r of the weight reading is "
            f"{between(factor)} times as large."
        )
    return " ".join(lines) or "No weight reading was measured."


def early_basis(stages: pd.DataFrame) -> str:
    """Whether E_r under the shared early basis exceeds what the untrained model has under it."""
    rows = stages[
        (stages["gradient"] == PRIMARY[0])
        & (stages["basis"] == PRIMARY[1])
        & (stages["quantity"] == "advantage over untrained")
    ]
    if rows.empty:
        return "There is no shared early basis or no untrained model here."
    times = np.exp(rows["estimate"])
    clear = int((rows["low"] > 0).sum())
    return (
        f"E_r in training is {between(times)} times that of the untrained model under the same "
        f"basis, clearly above it in {clear} of {len(rows)} cases. That ratio, not E_r alone, is what training added."
    )


def removal(courses: Mapping[str, pd.DataFrame], rank: int, zeta: float) -> str:
    """Whether ΔN is what removing random directions gives, and whether the null is where theory puts it."""
    rows = pd.concat(courses.values())
    rows = rows[rows["gradient"] == "activation"]
    within = rows["delta_normal"].between(rows["delta_null_low"], rows["delta_null_high"])
    below = rows["delta_normal"] < rows["delta_null_low"]
    text = (
        f"Over all checkpoints, bases and probes, ΔN lies within the 95 % of random directions in {within.sum()} of "
        f"{len(rows)} cases, below in {below.sum()}, above in {len(rows) - within.sum() - below.sum()}."
    )
    if zeta:
        return text
    ratio = 1 + rows["base_isoscore_star"] * (rows["d"] - 1)
    predicted = -100 * rank * ratio / rows["d"] ** 2
    return (
        f"{text} The null's median is {signed(rows['delta_null'].median())} %, that of −100·k·PR/d² "
        f"{signed(predicted.median())} %."
    )


def floor(rates: pd.DataFrame, bases: int) -> str:
    """How often each p-value is at its floor for bases that are random, with two standard errors."""
    parts = []
    for row in rates.to_dict("records"):
        error = 2 * np.sqrt(row["expected"] * (1 - row["expected"]) / bases)
        text = {
            name: f"{row[name]:.3f} ({_against(row[name], row['expected'], error)})"
            for name in ("complement", "ambient")
        }
        parts.append(
            f"at k/d = {row['share']:.3g} the paper's p is there for {text['complement']}, the calibrated one for "
            f"{text['ambient']}"
        )
    return (
        f"Of {bases:,} random bases, which are nothing but chance, a valid p-value is at its floor for "
        f"{rates['expected'].iloc[0]:.3f}: {'; '.join(parts)}."
    )


def _against(found: float, expected: float, error: float) -> str:
    if abs(found - expected) <= error:
        return "within two standard errors"
    return "too often" if found > expected else "too rarely"


def p_values(courses: Mapping[str, pd.DataFrame], null_draws: int) -> str:
    """How often this page's own p-values are at their floors."""
    rows = pd.concat(courses.values())
    paper = int((rows["p_energy_null"] <= 1.001 / 21).sum())
    calibrated = int((rows["p_energy_calibrated"] <= 1.001 / (null_draws + 1)).sum())
    return (
        f"On this page the paper's p is at its floor of 1/21 in {paper} of {len(rows)} cases, the calibrated one at "
        f"its floor of 1/{null_draws + 1} in {calibrated}. A floor says that no draw was as large, not by how much it "
        "was missed; E_r does."
    )


def testing(stages: pd.DataFrame, verdicts: Sequence[Verdict]) -> str:
    """Multiple testing: what asking for every comparison, or for some comparison, comes to."""
    rows = stages[stages["quantity"].isin([f"advantage over {control}" for control in CONTROLS])]
    if rows.empty:
        return "No control was run, so nothing was tested."
    sizes = rows.groupby(["model", "gradient", "basis", "stage"]).size()
    some = (rows["low"] > 0).groupby([rows[name] for name in ("model", "gradient", "basis", "stage")]).any()
    holds = sum(verdict.outcome.value == "holds" for verdict in verdicts)
    chance = 1 - 0.975 ** sizes.max()
    return (
        f"One verdict on C2 looks at up to {sizes.max()} comparisons. If it asked for *some* probe and control, it "
        f"would hold in {some.sum()} of {len(some)} readings, and in {chance:.0%} of readings with nothing to find, "
        f"were the comparisons independent. Asking for *all* of them, it holds in {holds} of {len(verdicts)}."
    ).replace("%", " %")


def intervals(courses: Mapping[str, pd.DataFrame]) -> str:
    """How many bootstrap intervals miss their own estimate, by reading."""
    rows = pd.concat(courses.values())
    parts, missed = [], 0
    for gradient, here in rows.groupby("gradient", sort=False):
        names = ("energy_ratio", "delta_tangent", "delta_normal")
        outside = {name: ~here[name].between(here[f"{name}_low"], here[f"{name}_high"]) for name in names}
        energy = int(outside["energy_ratio"].sum())
        delta = int(outside["delta_tangent"].sum() + outside["delta_normal"].sum())
        missed += energy + delta
        parts.append(f"{gradient} reading {energy} of {len(here)} for E_r and {delta} of {2 * len(here)} for Δ")
    text = f"Intervals that do not hold their own estimate: {'; '.join(parts)}."
    if missed:
        text += " Such an interval is biased, and a verdict that rests on it should be read with that in mind."
    return text


def wrong_control(stages: pd.DataFrame) -> pd.DataFrame:
    """A stage table in which every control of C2 is replaced by random bases: log E_r itself is the advantage."""
    asked = stages["quantity"].isin([f"advantage over {control}" for control in CONTROLS])
    keys = ["model", "seed", "gradient", "basis", "stage", "probe"]
    numbers = ["estimate", "low", "high"]
    ratios = stages.loc[stages["quantity"] == "energy_ratio", [*keys, *numbers]]
    replaced = stages[asked].drop(columns=numbers).merge(ratios, on=keys)
    replaced[numbers] = np.log(replaced[numbers])
    return pd.concat([stages[~asked], replaced], ignore_index=True)
