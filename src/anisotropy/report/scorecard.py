"""Verdicts: the paper's claims, judged by rules that were fixed before looking.

A rule reads a table of numbers and returns :class:`Verdict` objects. It never measures, and it knows the claim's
controls: a claim holds only if its interval lies wholly on the claimed side *and* every control stays off it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from anisotropy.errors import UserError
from anisotropy.geometry.curvature import attenuation_slope
from anisotropy.report.tables import signed


class Outcome(StrEnum):
    """What a rule can say."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Verdict:
    """One claim on one model under one reading.

    Attributes:
        claim: its id, ``C1`` … ``C8``.
        model: the model's label.
        reading: which definition of the quantity.
        outcome: what the rule says.
        estimate: the number it rests on, averaged over training seeds; missing where there is none.
        low, high: the interval: the lowest and highest end over seeds.
        controls: value of each control, by name.
        seeds: training seeds behind it.
        reason: why the rule says so, a clause that follows "because".
        near_paper: whether the estimate is near the printed value, where the claim has one.
        quantity: what the estimate is, in a word or a symbol.
        digits: decimals it is shown with.
    """

    claim: str
    model: str
    reading: str
    outcome: Outcome
    reason: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    controls: tuple[tuple[str, float], ...] = ()
    seeds: int = 0
    near_paper: bool | None = None
    quantity: str = "ρ"
    digits: int = 2

    @property
    def interval(self) -> str:
        """Estimate and interval as text; ``–`` where there is none."""
        if self.estimate is None or self.low is None or self.high is None:
            return "–"
        estimate, low, high = (signed(value, self.digits) for value in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"

    def sentence(self, title: str) -> str:
        """The verdict in words, for a page; ``title`` is the model's name."""
        head = f"**{self.claim}, {title}, {self.reading}: {self.outcome.value}**"
        if self.estimate is None:
            return f"{head}, because {self.reason}."
        runs = {0: "", 1: ", one run"}.get(self.seeds, f", {self.seeds} training seeds")
        interval = f"{self.quantity} = {self.interval}{runs}"
        paper = ""
        if self.near_paper is not None:
            paper = f"; this is {'near' if self.near_paper else 'not near'} the paper's {signed(C1_PRINTED, 1)}"
        return f"{head} ({interval}), because {self.reason}{paper}."


C1_THRESHOLD = -0.1
C1_PRINTED = -0.5
C1_NEAR = 0.15
READINGS = (
    ("trajectory", "input"),
    ("trajectory", "output"),
    ("vocabulary", "input"),
    ("vocabulary", "output"),
    ("occurrences", "contextual"),
)
_SHUFFLED, _UNTRAINED = "shuffled labels", "untrained"
_SUFFICIENT = {
    _SHUFFLED: "frequent tokens are closer, but frequency and optimisation suffice for it, without anything to learn",
    _UNTRAINED: "the initial weights show it too",
}


def reading_name(centroid: str, matrix: str) -> str:
    """A reading in words, the same on every page."""
    return centroid if centroid == "occurrences" else f"{centroid} ({matrix})"


def frequent_tokens_confined(
    table: pd.DataFrame, controls: Mapping[str, str], decoders: Collection[str] = (), kind: str = "pearson"
) -> list[Verdict]:
    """Claim C1: frequent tokens are confined, so distance falls with log frequency.

    The rule, per reading, in this order: it *fails* where the interval of a training seed lies wholly above −0.1; it
    is *inconclusive* where an interval holds −0.1, or a control was not run; it *fails* where a control is as low as
    the model, is *inconclusive* where the interval reaches a control, and else *holds*. Controls are the run trained on
    shuffled labels and, for ``vocabulary`` and ``occurrences``, the untrained model (a trajectory has no untrained
    value).

    Args:
        table: what :func:`anisotropy.studies.frequency.summarise` returned, controls' rows included.
        controls: name of the shuffled-label run by model, as in the table's ``model`` column.
        decoders: models the printed value speaks of (causal ones); only for them an estimate can be near it.
        kind: ``"pearson"`` as the paper, or ``"spearman"``.

    Returns:
        One verdict per model and reading, models in the order of the table, controls left out.

    Raises:
        UserError: a column is missing.
    """
    needed = {"model", "seed", "centroid", "matrix", "stage", "value", "kind", "estimate", "low", "high"}
    if missing := needed - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")
    rows = table[(table["value"] == "distance") & (table["kind"] == kind)]
    models = [model for model in dict.fromkeys(table["model"]) if model not in set(controls.values())]
    return [
        _judge(rows, model, controls.get(model), centroid, matrix, model in decoders)
        for model in models
        for centroid, matrix in READINGS
    ]


def _judge(
    rows: pd.DataFrame, model: str, control: str | None, centroid: str, matrix: str, is_decoder: bool
) -> Verdict:
    reading = reading_name(centroid, matrix)
    of_reading = rows[(rows["centroid"] == centroid) & (rows["matrix"] == matrix)]
    own = of_reading[(of_reading["model"] == model) & (of_reading["stage"] == "trained")].set_index("seed")
    if own.empty:
        why = {
            "trajectory": "it needs two checkpoints after step 0 and a matrix of its own (tied matrices are one)",
            "vocabulary": "the model has no such matrix of its own (tied matrices are one)",
            "occurrences": "no token occurs often enough in the text",
        }
        return Verdict("C1", model, reading, Outcome.NOT_APPLICABLE, why[centroid])
    estimate, low, high = float(own["estimate"].mean()), float(own["low"].min()), float(own["high"].max())
    shuffled = of_reading[(of_reading["model"] == control) & (of_reading["stage"] == "trained")].set_index("seed")
    untrained = of_reading[(of_reading["model"] == model) & (of_reading["stage"] == "untrained")].set_index("seed")
    found = [(_SHUFFLED, shuffled), (_UNTRAINED, untrained)]
    values = tuple((name, float(rows_["estimate"].mean())) for name, rows_ in found if not rows_.empty)
    expected = [_SHUFFLED] if centroid == "trajectory" else [_SHUFFLED, _UNTRAINED]
    outcome, reason = _decide(own, dict(found), expected)
    near = abs(estimate - C1_PRINTED) <= C1_NEAR if is_decoder and estimate < 0 else None
    return Verdict("C1", model, reading, outcome, reason, estimate, low, high, values, len(own), near)


def _decide(own: pd.DataFrame, controls: Mapping[str, pd.DataFrame], expected: Sequence[str]) -> tuple[Outcome, str]:
    """Outcome and reason from the correlations of every seed and its controls."""
    if own["estimate"].isna().any():
        return Outcome.NOT_APPLICABLE, "the distances do not vary"
    if (own["low"] > C1_THRESHOLD).any():
        return Outcome.FAILS, f"the correlation lies above {signed(C1_THRESHOLD, 1)}: frequent tokens are not confined"
    if not (own["high"] <= C1_THRESHOLD).all():
        return Outcome.INCONCLUSIVE, f"the interval holds {signed(C1_THRESHOLD, 1)}"
    for name in expected:
        control = controls[name]
        if control.empty:
            return Outcome.INCONCLUSIVE, f"frequent tokens are closer, but the control ({name}) was not run"
        reference = control["estimate"].reindex(own.index).fillna(control["estimate"].min())
        if (reference <= own["estimate"]).any():
            return Outcome.FAILS, f"the control ({name}) is as low: {_SUFFICIENT[name]}"
        if (reference <= own["high"]).any():
            return Outcome.INCONCLUSIVE, f"the interval reaches the control ({name})"
    return Outcome.HOLDS, "frequent tokens are closer to their centroid than rare ones, and the controls do not show it"


C7_SLOPE = 2.0
C7_WITHIN = 0.05
C7_ERRORS = 3.0
# Largest κσ of section 1 of the methods, by density: the slope is fitted over the decade below it.
C7_RANGES = {"half-normal": 0.2, "Beta(2, 5)": 0.5, "exponential": 0.1}


def concentration_attenuates(table: pd.DataFrame) -> list[Verdict]:
    """Claim C7: concentration attenuates the curvature bias as σ². It is an identity about a geodesic; no model.

    The rule, per manifold, density and curvature: over scales with κσ up to :data:`C7_RANGES`, the slope of log bias
    against log σ lies within 0.05 of 2, with its whole 95 % interval from Monte Carlo, and Monte Carlo agrees with the
    bias from exact arcs within 3 standard errors, taken over all scales together. It fails if the interval lies wholly
    outside 2 ± 0.05 or Monte Carlo disagrees. A density is judged in its range only.

    Args:
        table: what :func:`anisotropy.studies.curvature.bias_table` returned: columns ``manifold``, ``density``,
            ``curvature`` (1/length), ``scale`` (length), ``exact``, ``estimate``, ``standard_error`` (ratios).

    Returns:
        One verdict per manifold, density and curvature, in the order of the table; ``model`` is the manifold's name.

    Raises:
        UserError: a column is missing.
    """
    needed = {"manifold", "density", "curvature", "scale", "exact", "estimate", "standard_error"}
    if missing := needed - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")
    groups = table.groupby(["manifold", "density", "curvature"], sort=False)
    return [_attenuation(rows) for _, rows in groups]


def _attenuation(rows: pd.DataFrame) -> Verdict:
    manifold, density, curvature = rows[["manifold", "density", "curvature"]].iloc[0]
    reading = f"{density}, κ = {curvature:g}"
    if not curvature:
        return Verdict("C7", manifold, reading, Outcome.NOT_APPLICABLE, "a straight direction has no bias to attenuate")
    top = C7_RANGES.get(density)
    if top is None:
        return Verdict("C7", manifold, reading, Outcome.NOT_APPLICABLE, "the rule names no range for this density")
    inside = rows[rows["scale"] * curvature <= top * (1 + 1e-9)]
    if inside["scale"].nunique() < 3 or not (inside["estimate"] > 0).all():
        return Verdict("C7", manifold, reading, Outcome.NOT_RUN, "three scales with a positive bias are needed")
    slope = attenuation_slope(inside["scale"], inside["estimate"], inside["standard_error"])
    # One comparison for all scales: with one for each, some would be 3 errors off by chance.
    gap = float((inside["estimate"] / inside["exact"] - 1).mean())
    error = float(np.sqrt(((inside["standard_error"] / inside["exact"]) ** 2).sum())) / len(inside)
    errors = abs(gap) / error if error else (0.0 if gap == 0 else np.inf)
    low, high = C7_SLOPE - C7_WITHIN, C7_SLOPE + C7_WITHIN
    if errors > C7_ERRORS:
        outcome, reason = Outcome.FAILS, f"Monte Carlo is {errors:.1f} standard errors from the exact arcs"
    elif slope.high < low or slope.low > high:
        outcome, reason = Outcome.FAILS, f"the slope lies outside {low:g} … {high:g}"
    elif low <= slope.low and slope.high <= high:
        outcome = Outcome.HOLDS
        reason = f"the slope is 2 within {C7_WITHIN:g} and Monte Carlo agrees ({errors:.1f} standard errors)"
    else:
        outcome, reason = Outcome.INCONCLUSIVE, f"the interval reaches an end of {low:g} … {high:g}"
    return Verdict(
        "C7", manifold, reading, outcome, reason, slope.estimate, slope.low, slope.high, quantity="slope", digits=3
    )


def verdict_table(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> pd.DataFrame:
    """Verdicts as a table for a page: one row each, numbers as text with their intervals."""
    return pd.DataFrame(
        [
            {
                "model": titles[verdict.model],
                "reading": verdict.reading,
                "verdict": verdict.outcome.value,
                "ρ [95 % over tokens]": verdict.interval,
                "controls": "; ".join(f"{name} {signed(value)}" for name, value in verdict.controls) or "–",
                "seeds": verdict.seeds,
                "near −0.5": "–" if verdict.near_paper is None else ("yes" if verdict.near_paper else "no"),
            }
            for verdict in verdicts
        ]
    )
