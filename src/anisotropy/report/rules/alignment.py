"""Claims C5 and C6: concepts of gradients and of weights line up with concepts of the data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from anisotropy.errors import UserError
from anisotropy.models.labels import names_of_controls
from anisotropy.report.scorecard import Outcome, Verdict, on_each_seed
from anisotropy.report.tables import signed
from anisotropy.studies.replicates import Interval, mean_interval

C5_BETTER = ("pca", "semi_nmf")
C6_THRESHOLD = -0.24  # the one-sided 5 % point of Spearman's ρ for the 51 ranks of Figure 7
METHOD_NAMES = {"pca": "PCA", "semi_nmf": "Semi-NMF", "ica": "ICA"}
METRIC_NAMES = {"mean": "all concepts", "top": "ten best", "above_gap": "above the gap"}
MATRIX_NAMES = {"first": "first MLP map", "second": "second MLP map", "embedding": "embedding"}
SHUFFLED_RUN = "run on shuffled labels"
_UNTRAINED, _SHUFFLED = "untrained", "gradients of shuffled labels"


@on_each_seed
def better_than_ica(table: pd.DataFrame, controls: Mapping[str, str]) -> list[Verdict]:
    """Claim C5: PCA's and Semi-NMF's gradient concepts align better with the data's than ICA's do.

    The number is a method's excess over its own rotated baseline minus ICA's, per group of blocks, at the last
    checkpoint [ours]. Its interval is Student's t over groups. In this order: it *fails* where the interval of a
    training seed lies wholly at or below 0; is *inconclusive* where it holds 0, or the untrained model was not
    measured; it *fails* where a control's number is as large, is *inconclusive* where the interval of the difference to
    a control, taken group by group, holds 0, and else *holds*. Controls are the untrained model and gradients of
    shuffled labels [ours]: what labels without meaning show too is not learned from labels.

    Args:
        table: what :func:`anisotropy.studies.alignment_tables.summarise` returned.
        controls: label of the run trained on shuffled labels, by model; its rows get no verdict, its number is shown.

    Returns:
        A verdict per model, method and metric, models in the order of the table.

    Raises:
        UserError: a column is missing.
    """
    _require(table, {"model", "seed", "step", "source", "method", "metric", "group", "excess"})
    controls = names_of_controls(controls)
    models = [model for model in dict.fromkeys(table["model"]) if model not in set(controls.values())]
    return [
        _judge_c5(table[table["metric"] == metric], model, controls.get(model), method, metric)
        for model in models
        for metric in METRIC_NAMES
        for method in C5_BETTER
    ]


def _require(table: pd.DataFrame, needed: set[str]) -> None:
    if missing := needed - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")


def _advantage(rows: pd.DataFrame, method: str, source: str, step: int) -> pd.Series:
    """Excess of a method minus ICA's, by group."""
    here = rows[(rows["source"] == source) & (rows["step"] == step)]
    excess = here.pivot(index="group", columns="method", values="excess")
    return excess[method] - excess["ica"] if {method, "ica"} <= set(excess.columns) else pd.Series(dtype=float)


def _judge_c5(table: pd.DataFrame, model: str, run: str | None, method: str, metric: str) -> Verdict:
    reading = f"{METHOD_NAMES[method]} − ICA, {METRIC_NAMES[metric]}"
    found: list[tuple[Interval, list[tuple[str, pd.Series, pd.Series]]]] = []
    for _, rows in table[table["model"] == model].groupby("seed"):
        last = int(rows["step"].max())
        if last == 0:
            return Verdict("C5", model, reading, Outcome.NOT_APPLICABLE, "there is no checkpoint after step 0")
        own = _advantage(rows, method, "gradient", last)
        others = [
            (_UNTRAINED, _advantage(rows, method, "gradient", 0)),
            (_SHUFFLED, _advantage(rows, method, "shuffled", last)),
        ]
        found.append((mean_interval(own), [(name, own, other) for name, other in others if len(other)]))
    values = {
        name: float(np.mean([other.mean() for _, others in found for n, _, other in others if n == name]))
        for name in dict.fromkeys(n for _, others in found for n, _, _ in others)
    }
    trained = [rows for _, rows in table[table["model"] == run].groupby("seed") if rows["step"].max() > 0]
    if trained:
        numbers = [_advantage(rows, method, "gradient", int(rows["step"].max())).mean() for rows in trained]
        values[SHUFFLED_RUN] = float(np.mean(numbers))
    outcome, reason = _decide_c5(found, METHOD_NAMES[method])
    estimate = float(np.mean([interval.mean for interval, _ in found]))
    low, high = min(i.low for i, _ in found), max(i.high for i, _ in found)
    shown = tuple(values.items())
    return Verdict(
        "C5", model, reading, outcome, reason, estimate, low, high, shown, len(found), quantity="difference", digits=3
    )


def _decide_c5(found: list[tuple[Interval, list[tuple[str, pd.Series, pd.Series]]]], name: str) -> tuple[Outcome, str]:
    if any(interval.high <= 0 for interval, _ in found):
        return Outcome.FAILS, f"ICA's concepts exceed their baseline by more than {name}'s do"
    if not all(interval.low > 0 for interval, _ in found):
        return Outcome.INCONCLUSIVE, "the interval holds 0"
    for _, others in found:
        if _UNTRAINED not in {control for control, _, _ in others}:
            return Outcome.INCONCLUSIVE, f"{name} is ahead of ICA, but the untrained model was not measured"
    reached = [(control, mean_interval(own - other)) for _, others in found for control, own, other in others]
    for control, difference in reached:
        if difference.mean <= 0:
            return Outcome.FAILS, f"the control ({control}) is ahead by as much"
    for control, difference in reached:
        if difference.low <= 0:
            return Outcome.INCONCLUSIVE, f"the lead over the control ({control}) is within its error"
    return Outcome.HOLDS, f"{name} is ahead of ICA, and by more than the controls are"


def c6_threshold(ranks: int) -> float:
    """The largest ρ that counts as "falls with rank": −0.24 for 51 ranks or more, else the one-sided 5 % point.

    The point follows from t = ρ √((n − 2)/(1 − ρ²)), as for 51 ranks, where it gives −0.233.
    """
    if ranks >= 51:
        return C6_THRESHOLD
    from scipy import stats

    t = float(stats.t.ppf(0.05, ranks - 2))
    return t / float(np.sqrt(ranks - 2 + t**2))


@on_each_seed
def stronger_concepts_align(trends: pd.DataFrame, controls: Mapping[str, str]) -> list[Verdict]:
    """Claim C6: weight concepts of higher rank (rank 0 the strongest) align better with the data's.

    Per matrix and method, at the last checkpoint: Spearman's ρ of rank with correlation. In this order: it *fails*
    where the interval of a training seed lies wholly above the threshold (−0.24 for 51 ranks), is *inconclusive* where
    ρ is above it, or the untrained model was not measured; it *fails* where the untrained model's ρ is as low, is
    *inconclusive* where it is higher by less than sampling of ranks gives in 5 % of cases (Fisher's z, one-sided;
    [ours]: "below the untrained model's" would otherwise be a coin toss between equals), and else *holds*.

    Weights have no replicates but training seeds, so the interval is over ranks and descriptive.

    Args:
        trends: what :func:`anisotropy.studies.alignment_tables.rank_trends` returned.
        controls: label of the run trained on shuffled labels, by model; its rows get no verdict, its number is shown.

    Returns:
        A verdict per model, matrix and method.

    Raises:
        UserError: a column is missing.
    """
    _require(trends, {"model", "seed", "step", "matrix", "method", "rho", "low", "high", "ranks"})
    controls = names_of_controls(controls)
    models = [model for model in dict.fromkeys(trends["model"]) if model not in set(controls.values())]
    return [
        _judge_c6(
            trends[(trends["matrix"] == matrix) & (trends["method"] == method)],
            model,
            controls.get(model),
            matrix,
            method,
        )
        for model in models
        for matrix in MATRIX_NAMES
        for method in METHOD_NAMES
    ]


def _judge_c6(table: pd.DataFrame, model: str, run: str | None, matrix: str, method: str) -> Verdict:
    reading = f"{MATRIX_NAMES[matrix]}, {METHOD_NAMES[method]}"
    own = table[table["model"] == model]
    if own.empty:
        return Verdict("C6", model, reading, Outcome.NOT_APPLICABLE, "the matrix was not found in this family")
    last = own.sort_values("step").groupby("seed").tail(1).set_index("seed")
    untrained = own[own["step"] == 0].set_index("seed")
    if (last["step"] == 0).any():
        return Verdict("C6", model, reading, Outcome.NOT_APPLICABLE, "there is no checkpoint after step 0")
    if last["rho"].isna().any():
        return Verdict("C6", model, reading, Outcome.NOT_APPLICABLE, "the correlations do not vary")
    values = [(_UNTRAINED, float(untrained["rho"].mean()))] if len(untrained) else []
    other = table[table["model"] == run]
    if len(other) and other["step"].max() > 0:
        values.append((SHUFFLED_RUN, float(other.sort_values("step").groupby("seed")["rho"].last().mean())))
    outcome, reason = _decide_c6(last, untrained)
    return Verdict(
        "C6",
        model,
        reading,
        outcome,
        reason,
        float(last["rho"].mean()),
        float(last["low"].min()),
        float(last["high"].max()),
        tuple(values),
        len(last),
    )


def _decide_c6(last: pd.DataFrame, untrained: pd.DataFrame) -> tuple[Outcome, str]:
    thresholds = last["ranks"].map(c6_threshold)
    named = signed(float(thresholds.iloc[0]))
    if (last["low"] > thresholds).any():
        return Outcome.FAILS, f"ρ lies above {named}: stronger concepts do not align better"
    if (last["rho"] > thresholds).any():
        return Outcome.INCONCLUSIVE, f"ρ is above {named}, within its interval"
    reference = untrained["rho"].reindex(last.index)
    if reference.isna().any():
        return Outcome.INCONCLUSIVE, "correlation falls with rank, but the untrained model was not measured"
    if (reference <= last["rho"]).any():
        return Outcome.FAILS, "the untrained model's falls with rank as much"
    if not (_fisher(last["rho"]) - _fisher(reference) < -1.645 * _difference_error(last["rho"], reference, last)).all():
        return Outcome.INCONCLUSIVE, "correlation falls with rank, but the difference to the untrained model is small"
    return Outcome.HOLDS, "correlation falls with rank, and more than in the untrained model"


def _fisher(rho: pd.Series) -> pd.Series:
    return pd.Series(np.arctanh(rho.clip(-0.9999, 0.9999).to_numpy()), rho.index)


def _difference_error(a: pd.Series, b: pd.Series, table: pd.DataFrame) -> pd.Series:
    """Standard error of the difference of two Fisher z of Spearman's ρ (Bonett & Wright 2000)."""
    return ((2 + (a**2 + b**2) / 2) / (table["ranks"] - 3)) ** 0.5
