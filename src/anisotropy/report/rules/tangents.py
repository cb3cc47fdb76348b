"""Claims C2 and C3: gradients concentrate in the tangent proxy, and it carries their anisotropy."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.report.scorecard import Outcome, Verdict, on_each_seed
from anisotropy.studies.tangent_tables import CONTROLS

#: What the paper's table reads, gradients of the loss at the probe, one basis fitted early, its early block.
PRIMARY = ("activation", "early", "early")
_BASES = {"early": "early basis", "own": "own basis", "semi_nmf": "Semi-NMF basis"}
_C2_COMPARISONS = {f"advantage over {control}": control for control in CONTROLS}
_C3_COMPARISONS = {
    "excess": "random bases",
    "tangent over normal": "next variance",
    "excess over untrained": "untrained",
}
_COLUMNS = {"model", "seed", "gradient", "basis", "stage", "probe", "quantity", "estimate", "low", "high"}


def reading_name(gradient: str, basis: str, stage: str) -> str:
    """A reading in words, the same on every page."""
    return f"{gradient} gradient, {_BASES[basis]}, {stage}"


@on_each_seed
def gradients_concentrate(table: pd.DataFrame) -> list[Verdict]:
    """Claim C2: gradients concentrate in the tangent proxy.

    The rule, per reading and in this order, over all probes and training seeds. It *fails* where an E_r lies wholly
    below 1, or a control's log E_r is as high as the model's; it is *inconclusive* where a control was not run, or the
    95 % interval of log E_r, or of its difference from a control, holds 0; else it *holds*. Controls are the untrained
    model, gradients of shuffled labels, the basis of another probe and the next-variance basis. Asking this of every
    probe and control needs no correction for multiple testing: each can only take the claim away.

    Args:
        table: what :func:`anisotropy.studies.tangent_tables.stage_table` returned, of any number of models.

    Returns:
        One verdict per model and reading, the primary one (see :data:`PRIMARY`) first. ``estimate`` is the smallest
        log advantage over all probes and controls (averaged over training seeds), ``controls`` the smallest over each.

    Raises:
        UserError: a column is missing.
    """
    return [
        _judge("C2", model, reading, rows, _C2_COMPARISONS, "smallest log advantage", 2)
        for model, reading, rows in _readings(table)
    ]


@on_each_seed
def proxy_carries_anisotropy(table: pd.DataFrame) -> list[Verdict]:
    """Claim C3: the tangent proxy carries the gradient's anisotropy.

    The rule compares ΔT, what removing the proxy does to the gradient's IsoScore*, with three others at every probe and
    in every training seed: what removing random directions does, what removing the next-variance basis does, and ΔT −
    null in the untrained model. It fails, stays open and holds as C2 does, with differences in percent of IsoScore*.

    Args:
        table: as for :func:`gradients_concentrate`.

    Returns:
        One verdict per model and reading, the primary one first; ``estimate`` is the smallest of the differences.

    Raises:
        UserError: a column is missing.
    """
    return [
        _judge("C3", model, reading, rows, _C3_COMPARISONS, "smallest difference in %", 1)
        for model, reading, rows in _readings(table)
    ]


def _readings(table: pd.DataFrame) -> list[tuple[str, tuple[str, str, str], pd.DataFrame]]:
    if missing := _COLUMNS - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")
    groups = table.groupby(["model", "gradient", "basis", "stage"], sort=False)
    found = [
        (str(model), (str(gradient), str(basis), str(stage)), rows) for (model, gradient, basis, stage), rows in groups
    ]
    models = list(dict.fromkeys(table["model"]))
    return sorted(found, key=lambda one: (models.index(one[0]), one[1] != PRIMARY))


def _judge(
    claim: str,
    model: str,
    reading: tuple[str, str, str],
    rows: pd.DataFrame,
    comparisons: Mapping[str, str],
    quantity: str,
    digits: int,
) -> Verdict:
    compared = rows[rows["quantity"].isin(list(comparisons))].dropna(subset=["estimate"])
    compared = compared.assign(control=compared["quantity"].map(dict(comparisons)))
    ratios = rows[rows["quantity"] == "energy_ratio"]
    everywhere = rows[["seed", "probe"]].drop_duplicates()
    missing = [control for control in comparisons.values() if (compared["control"] == control).sum() < len(everywhere)]
    outcome, reason = _decide(ratios if claim == "C2" else ratios[:0], compared, missing)
    values = tuple(
        (control, float(compared.loc[compared["control"] == control, "estimate"].min()))
        for control in comparisons.values()
        if (compared["control"] == control).any()
    )
    worst = compared.sort_values("estimate").groupby("seed").head(1)
    estimate, low, high = (
        (None, None, None)
        if worst.empty
        else (float(worst["estimate"].mean()), float(worst["low"].min()), float(worst["high"].max()))
    )
    return Verdict(
        claim,
        model,
        reading_name(*reading),
        outcome,
        reason,
        estimate,
        low,
        high,
        values,
        int(rows["seed"].nunique()),
        quantity=quantity,
        digits=digits,
    )


def _decide(ratios: pd.DataFrame, compared: pd.DataFrame, missing: list[str]) -> tuple[Outcome, str]:
    if (below := ratios[ratios["high"] < 1]).size:
        return Outcome.FAILS, f"the proxy holds less gradient energy than random directions at {_probes(below)}"
    if (reached := compared[compared["estimate"] <= 0]).size:
        return Outcome.FAILS, f"a control is as high: {_pairs(reached)}"
    if missing:
        return Outcome.INCONCLUSIVE, f"a control was not run: {', '.join(missing)}"
    if (unclear := ratios[ratios["low"] <= 1]).size:
        return Outcome.INCONCLUSIVE, f"the interval of E_r holds 1 at {_probes(unclear)}"
    if (unclear := compared[compared["low"] <= 0]).size:
        return Outcome.INCONCLUSIVE, f"an interval reaches a control: {_pairs(unclear)}"
    return Outcome.HOLDS, "every control stays below at every probe"


def _probes(rows: pd.DataFrame) -> str:
    return ", ".join(dict.fromkeys(rows["probe"]))


def _pairs(rows: pd.DataFrame) -> str:
    groups = rows.groupby("control", sort=False)
    return "; ".join(f"{control} at {_probes(here)}" for control, here in groups)


def printed_concentration(table1: pd.DataFrame) -> list[Verdict]:
    """Claim C2 on the numbers printed in Table 1: E_r is printed, the controls are not.

    Args:
        table1: what :func:`anisotropy.report.published.table1` returned.

    Returns:
        One verdict per model; it can fail, if an E_r is not above 1, but without controls it cannot hold.
    """
    verdicts = []
    for model, rows in table1[table1["metric"] == "energy_ratio"].groupby("model", sort=False):
        least = float(rows["value"].min())
        outcome, reason = Outcome.INCONCLUSIVE, "E_r is above 1 at every probe, but no control is printed"
        if least <= 1:
            outcome, reason = Outcome.FAILS, "an E_r is not above 1"
        verdicts.append(
            Verdict("C2", str(model), "as printed, early", outcome, reason, quantity="smallest E_r", of_printed=True)
        )
    return verdicts


def printed_anisotropy(table1: pd.DataFrame) -> list[Verdict]:
    """Claim C3 on the numbers printed in Table 1: ΔT and ΔN are printed, intervals and the untrained model are not.

    Args:
        table1: as for :func:`printed_concentration`.

    Returns:
        One verdict per model; it fails where a ΔT is not above its ΔN, else it stays open.
    """
    verdicts = []
    cells = table1.pivot_table(index=["model", "probe"], columns="metric", values="value", sort=False)
    gap = cells["delta_isoscore_star_tangent_percent"] - cells["delta_isoscore_star_normal_percent"]
    for model, gaps in gap.groupby("model", sort=False):
        outcome, reason = (
            Outcome.INCONCLUSIVE,
            "ΔT is above ΔN at every probe, but no interval and no control is printed",
        )
        if gaps.min() <= 0:
            outcome, reason = Outcome.FAILS, "a ΔT is not above its ΔN"
        verdicts.append(
            Verdict(
                "C3", str(model), "as printed, early", outcome, reason, quantity="smallest ΔT − ΔN", of_printed=True
            )
        )
    return verdicts
