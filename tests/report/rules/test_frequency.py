"""Claim C1's rule on tables that were made to hold, to fail, and to say nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.errors import UserError
from anisotropy.report.rules.frequency import READINGS, frequent_tokens_confined, reading_name
from anisotropy.report.scorecard import Outcome, Verdict, verdict_table
from anisotropy.studies.frequency import correlations

CONTROLS = {"model": "shuffled"}


def row(
    model="model", estimate=-0.5, half_width=0.05, stage="trained", seed=0, reading=("trajectory", "input"), **more
):
    return {
        "model": model,
        "seed": seed,
        "centroid": reading[0],
        "matrix": reading[1],
        "stage": stage,
        "value": "distance",
        "kind": "pearson",
        "estimate": estimate,
        "low": estimate - half_width,
        "high": estimate + half_width,
        **more,
    }


def judge(*rows, reading=("trajectory", "input")) -> Verdict:
    verdicts = frequent_tokens_confined(pd.DataFrame(rows), CONTROLS, decoders={"model"})
    return next(verdict for verdict in verdicts if verdict.reading == reading_name(*reading))


def test_holds_below_threshold_and_control():
    verdict = judge(row(), row("shuffled", 0.0))
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.controls == (("shuffled labels", 0.0),)
    assert verdict.near_paper
    assert verdict.seeds == 1


@pytest.mark.parametrize(
    ("estimate", "outcome"),
    [(0.4, Outcome.FAILS), (0.0, Outcome.FAILS), (-0.12, Outcome.INCONCLUSIVE), (-0.3, Outcome.HOLDS)],
)
def test_the_interval_decides(estimate, outcome):
    assert judge(row(estimate=estimate), row("shuffled", 0.0)).outcome is outcome


def test_fails_where_the_control_is_as_low():
    verdict = judge(row(estimate=-0.5), row("shuffled", -0.6))
    assert verdict.outcome is Outcome.FAILS
    assert "shuffled labels" in verdict.reason


def test_inconclusive_where_the_interval_reaches_the_control():
    assert judge(row(estimate=-0.5), row("shuffled", -0.47)).outcome is Outcome.INCONCLUSIVE


def test_inconclusive_without_the_control():
    verdict = judge(row(estimate=-0.5))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "was not run" in verdict.reason


def test_a_positive_correlation_fails_even_without_the_control():
    assert judge(row(estimate=0.5)).outcome is Outcome.FAILS


@pytest.mark.parametrize("reading", [("vocabulary", "input"), ("occurrences", "contextual")])
def test_the_untrained_model_is_a_control_where_it_has_a_value(reading):
    rows = [row(reading=reading), row("shuffled", 0.0, reading=reading)]
    low = row(estimate=-0.6, stage="untrained", reading=reading)
    flat = row(estimate=0.0, stage="untrained", reading=reading)
    assert judge(*rows, reading=reading).outcome is Outcome.INCONCLUSIVE
    assert judge(*rows, low, reading=reading).outcome is Outcome.FAILS
    assert judge(*rows, flat, reading=reading).outcome is Outcome.HOLDS


def test_every_seed_counts():
    controls = [row("shuffled", 0.0, seed=seed) for seed in range(3)]
    good = [row(estimate=estimate, seed=seed) for seed, estimate in enumerate((-0.5, -0.4, -0.3))]
    verdict = judge(*good, *controls)
    assert (verdict.outcome, verdict.seeds) == (Outcome.HOLDS, 3)
    assert verdict.estimate == pytest.approx(-0.4)
    assert (verdict.low, verdict.high) == (pytest.approx(-0.55), pytest.approx(-0.25))
    bad = [*good[:2], row(estimate=0.1, seed=2)]
    assert judge(*bad, *controls).outcome is Outcome.FAILS


def test_a_seed_without_its_own_control_is_held_against_the_lowest():
    rows = [row(estimate=-0.5, seed=0), row(estimate=-0.5, seed=1)]
    assert judge(*rows, row("shuffled", 0.0, seed=0)).outcome is Outcome.HOLDS
    assert judge(*rows, row("shuffled", -0.55, seed=0)).outcome is Outcome.FAILS


def test_a_reading_without_rows_is_not_applicable():
    verdict = judge(row(reading=("vocabulary", "input")), reading=("trajectory", "input"))
    assert verdict.outcome is Outcome.NOT_APPLICABLE
    assert verdict.estimate is None


def test_distances_that_do_not_vary_are_not_applicable():
    assert judge(row(estimate=np.nan)).outcome is Outcome.NOT_APPLICABLE


def test_one_verdict_per_model_and_reading_without_the_controls():
    verdicts = frequent_tokens_confined(pd.DataFrame([row(), row("other"), row("shuffled")]), CONTROLS)
    assert [verdict.model for verdict in verdicts] == ["model"] * len(READINGS) + ["other"] * len(READINGS)


def test_only_distances_of_the_asked_kind_count():
    rows = [row(estimate=-0.5), row(estimate=0.9, kind="spearman"), row(estimate=0.9, value="relative")]
    assert judge(*rows, row("shuffled", 0.0)).outcome is Outcome.HOLDS


def test_missing_columns_are_named():
    with pytest.raises(UserError, match="stage"):
        frequent_tokens_confined(pd.DataFrame([row()]).drop(columns="stage"), {})


def tokens(slope, n=800, seed=0, stage="trained"):
    """A token table whose distance falls with log frequency by ``slope`` standard deviations."""
    random = np.random.default_rng(seed)
    log_frequency = random.uniform(-6, -1, size=n)
    standard = (log_frequency - log_frequency.mean()) / log_frequency.std()
    distance = 10 + slope * standard + random.normal(size=n)
    parts = [
        pd.DataFrame(
            {
                "centroid": centroid,
                "matrix": matrix,
                "stage": stage,
                "count": 10,
                "log10_frequency": log_frequency,
                "distance": distance,
                "relative": distance,
            }
        )
        for centroid, matrix in READINGS
    ]
    return pd.concat(parts)


def rule_on(trained, untrained=None, shuffled=None):
    tables = [correlations(pd.concat([trained, *([untrained] if untrained is not None else [])]), draws=19)]
    tables[0]["model"] = "model"
    if shuffled is not None:
        tables.append(correlations(shuffled, draws=19).assign(model="shuffled"))
    return frequent_tokens_confined(pd.concat(tables).assign(seed=0), CONTROLS)


def test_the_rule_accepts_what_was_planted():
    verdicts = rule_on(tokens(-0.6), tokens(0, seed=1, stage="untrained"), tokens(0, seed=2))
    assert {verdict.outcome for verdict in verdicts} == {Outcome.HOLDS}


def test_the_rule_rejects_shuffled_frequencies_and_an_untrained_model():
    shuffled = tokens(-0.6)
    shuffled["log10_frequency"] = np.random.default_rng(3).permutation(shuffled["log10_frequency"])
    untrained = tokens(0, seed=4)
    for nothing in (shuffled, untrained):
        verdicts = rule_on(nothing, tokens(0, seed=5, stage="untrained"), tokens(0, seed=6))
        assert Outcome.HOLDS not in {verdict.outcome for verdict in verdicts}


def test_the_rule_never_holds_by_chance():
    """At n = 800 the null's SD is 0.035: an interval below −0.1 is about five of them away."""
    for seed in range(20):
        verdicts = rule_on(
            tokens(0, seed=seed), tokens(0, seed=seed + 100, stage="untrained"), tokens(0, seed=seed + 200)
        )
        assert Outcome.HOLDS not in {verdict.outcome for verdict in verdicts}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [row(estimate=-0.5), row("shuffled", 0.0)],
            ["C1, Mini, trajectory (input): holds", "−0.50", "near the"],
        ),
        ([row(estimate=0.5), row("shuffled", 0.0)], ["fails", "ρ = +0.50", "not confined."]),
        ([row(estimate=-0.3), row("shuffled", 0.0)], ["holds", "ρ = −0.30", "not near the paper's −0.5"]),
        (
            [row(estimate=-0.5), row("shuffled", -0.6)],
            ["fails", "shuffled labels", "frequency and optimisation suffice"],
        ),
        ([row(estimate=-0.5)], ["inconclusive", "was not run", "one run"]),
        ([row(reading=("occurrences", "contextual"))], ["not applicable, because", "two checkpoints"]),
    ],
)
def test_sentences_follow_the_outcome(rows, expected):
    sentence = judge(*rows).sentence("Mini")
    for part in expected:
        assert part in sentence.replace("**", "")
    assert sentence.endswith(".")


def test_the_table_shows_each_verdict_once():
    verdicts = frequent_tokens_confined(pd.DataFrame([row(), row("shuffled", 0.1)]), CONTROLS)
    table = verdict_table(verdicts, {"model": "Mini"}, "ρ [95 % over tokens]")
    assert len(table) == len(READINGS)
    first = table.iloc[0]
    assert first["verdict"] == "holds"
    assert first["ρ [95 % over tokens]"] == "−0.50 [−0.55, −0.45]"
    assert first["controls"] == "shuffled labels +0.10"
    assert (table["verdict"].iloc[1:] == "not applicable").all()


def test_only_decoders_are_held_against_the_printed_value():
    rows = pd.DataFrame([row(), row("shuffled", 0.0)])
    assert frequent_tokens_confined(rows, CONTROLS)[0].near_paper is None
    assert frequent_tokens_confined(rows, CONTROLS, decoders={"model"})[0].near_paper is True
    above = pd.DataFrame([row(estimate=0.4), row("shuffled", 0.0)])
    assert frequent_tokens_confined(above, CONTROLS, decoders={"model"})[0].near_paper is None


def test_controls_are_matched_by_label_over_training_seeds():
    rows = [
        row("mini", -0.5, seed=1),
        row("mini", -0.3, seed=2),
        row("mini-shuffled", 0.1, seed=1),
        row("mini-shuffled", 0.0, seed=2),
    ]
    labels = {"mini@1": "mini-shuffled@1", "mini@2": "mini-shuffled@2"}
    verdicts = frequent_tokens_confined(pd.DataFrame(rows), labels, decoders=["mini@1", "mini@2"])
    assert {verdict.model for verdict in verdicts} == {"mini"}
    first = verdicts[0]
    assert first.outcome is Outcome.HOLDS
    assert (first.estimate, first.low, first.high, first.seeds) == pytest.approx((-0.4, -0.55, -0.25, 2))
    assert dict(first.controls) == {"shuffled labels": pytest.approx(0.05)}
    assert first.printed == -0.5
    assert [(seed, one.outcome, one.estimate) for seed, one in first.by_seed] == [
        (1, "holds", -0.5),
        (2, "holds", -0.3),
    ]
    # Each seed has the control of its own: one that is as low takes the claim away, in that seed and in all.
    worse = pd.DataFrame([*rows[:3], row("mini-shuffled", -0.4, seed=2)])
    first = frequent_tokens_confined(worse, labels)[0]
    assert first.outcome is Outcome.FAILS
    assert [one.outcome for _, one in first.by_seed] == ["holds", "fails"]


@pytest.mark.parametrize(
    ("found", "missing", "reason"),
    [
        ([("trajectory", "input"), ("vocabulary", "input")], ("trajectory", "output"), "the matrices are tied"),
        ([("vocabulary", "input")], ("vocabulary", "output"), "the matrices are tied"),
        ([("vocabulary", "input")], ("trajectory", "input"), "two checkpoints after step 0"),
        ([("vocabulary", "input"), ("vocabulary", "output")], ("trajectory", "output"), "two checkpoints after step 0"),
        ([("vocabulary", "input")], ("occurrences", "contextual"), "no token occurs often enough"),
    ],
)
def test_a_reading_that_a_model_lacks_is_not_applicable_and_says_why(found, missing, reason):
    verdict = judge(*(row(reading=reading) for reading in found), reading=missing)
    assert verdict.outcome is Outcome.NOT_APPLICABLE
    assert reason in verdict.reason
