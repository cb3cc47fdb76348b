"""Claim C7's rule on tables that were made to hold, to fail, and to say nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.errors import UserError
from anisotropy.geometry.curvature import beta, exponential, half_normal
from anisotropy.report.rules.curvature import C7_RANGES, concentration_attenuates
from anisotropy.report.scorecard import Outcome
from anisotropy.studies.curvature import bias_table


def rows(slope=2.0, kappa=1.0, density="half-normal", error=1e-3, gap=0.0, scales=8):
    """A table whose bias is a power law of the scale, off the exact bias by the factor 1 + gap."""
    scale = np.geomspace(0.1, 1, scales) * C7_RANGES.get(density, 1.0) / (kappa or 1.0)
    exact = scale**slope / 12
    return pd.DataFrame(
        {
            "manifold": "circle",
            "density": density,
            "curvature": kappa,
            "scale": scale,
            "exact": exact,
            "estimate": exact * (1 + gap),
            "standard_error": error * exact,
        }
    )


def judge(*tables):
    (verdict,) = concentration_attenuates(pd.concat(tables))
    return verdict


@pytest.mark.parametrize(
    ("table", "outcome", "reason"),
    [
        (rows(), Outcome.HOLDS, "slope is 2 within 0.05"),
        (rows(slope=2.04), Outcome.HOLDS, "Monte Carlo agrees"),
        (rows(slope=1.26), Outcome.FAILS, "outside 1.95 … 2.05"),
        (rows(slope=2.2), Outcome.FAILS, "outside"),
        (rows(slope=1.95, error=0.02), Outcome.INCONCLUSIVE, "reaches an end"),
        (rows(gap=0.01), Outcome.FAILS, "standard errors from the exact arcs"),
        (rows(gap=0.01, error=0.02), Outcome.HOLDS, "agrees"),
        (rows(kappa=0.0), Outcome.NOT_APPLICABLE, "straight"),
        (rows(density="uniform"), Outcome.NOT_APPLICABLE, "names no range"),
        (rows(scales=2), Outcome.NOT_RUN, "three scales"),
    ],
)
def test_the_rule(table, outcome, reason):
    verdict = judge(table)
    assert verdict.outcome is outcome
    assert reason in verdict.reason
    assert verdict.claim == "C7"


def test_only_the_range_counts():
    beyond = rows(slope=3).assign(scale=lambda table: 50 * table["scale"])
    assert judge(rows(), beyond).outcome is Outcome.HOLDS


def test_exact_agreement_without_errors():
    assert judge(rows(error=0)).outcome is Outcome.HOLDS
    assert judge(rows(error=0, gap=1e-6)).outcome is Outcome.FAILS


def test_a_verdict_per_density_and_curvature_in_order():
    verdicts = concentration_attenuates(pd.concat([rows(kappa=2.0), rows(kappa=1.0), rows(density="exponential")]))
    assert [verdict.reading for verdict in verdicts] == [
        "half-normal, κ = 2",
        "half-normal, κ = 1",
        "exponential, κ = 1",
    ]


def test_sentences():
    sentence = judge(rows()).sentence("the circle").replace("**", "")
    assert sentence.startswith("C7, the circle, half-normal, κ = 1: holds (slope = +2.000 [+1.999, +2.001]), because")
    assert "run" not in sentence
    assert "paper" not in sentence


def test_missing_columns_are_named():
    with pytest.raises(UserError, match="exact"):
        concentration_attenuates(rows().drop(columns="exact"))


def test_measured_biases_hold_and_a_fixed_cut_fails():
    shapes = {
        "half-normal": lambda scale: half_normal(scale, 8 * scale),
        "Beta(2, 5)": lambda scale: beta(scale, 2, 5),
        "exponential": lambda scale: exponential(scale, 5 * scale),
    }
    table = bias_table(shapes, [0.5, 1, 2], C7_RANGES, draws=20_000, seed=0)
    verdicts = concentration_attenuates(table)
    assert len(verdicts) == 9
    assert {verdict.outcome for verdict in verdicts} == {Outcome.HOLDS}
    # A cut at half of the largest scale is no part of the shape: within the same range it spoils the law.
    spoilt = bias_table({"exponential": lambda scale: exponential(scale, 0.05)}, [1.0], C7_RANGES, draws=20_000, seed=0)
    assert judge(spoilt).outcome is Outcome.FAILS
