"""Claim C7: concentration attenuates the curvature bias."""

from __future__ import annotations

import numpy as np
import pandas as pd

from anisotropy.errors import UserError
from anisotropy.geometry.curvature import attenuation_slope
from anisotropy.report.scorecard import Outcome, Verdict

C7_SLOPE = 2.0
C7_WITHIN = 0.05
C7_ERRORS = 3.0
#: Largest κσ by density; the slope is fitted over the decade below it.
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
