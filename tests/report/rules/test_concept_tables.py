"""Claim C8: every outcome, and what has to be rejected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conceptcase import collection, random_directions

from anisotropy.errors import UserError
from anisotropy.report import published
from anisotropy.report.rules.concept_tables import (
    READING_NAMES,
    last_layer_collapses,
    printed_collapse,
    printed_verdicts,
    window_ends,
)
from anisotropy.report.scorecard import Outcome
from anisotropy.studies.concept_collapse import collapse


def table(late, untrained=(0.9, 0.88, 0.92), seed=0, reading="per_checkpoint"):
    rows = []
    for stage, values in (("late", late), ("untrained", untrained)):
        if values is not None:
            ratio, low, high = values
            rows.append(
                {
                    "model": "m",
                    "seed": seed,
                    "reading": reading,
                    "stage": stage,
                    "ratio": ratio,
                    "low": low,
                    "high": high,
                }
            )
    return pd.DataFrame(rows)


def judge(rows, decoders=("m",), reading="per_checkpoint"):
    name = READING_NAMES[reading]
    return next(verdict for verdict in last_layer_collapses(rows, decoders) if verdict.reading == name)


@pytest.mark.parametrize(
    ("late", "untrained", "outcome", "reason"),
    [
        ((0.02, 0.01, 0.03), (0.9, 0.88, 0.92), Outcome.HOLDS, "training made it so"),
        ((0.5, 0.4, 0.6), (0.9, 0.88, 0.92), Outcome.FAILS, "keeps more than 0.1"),
        ((0.09, 0.05, 0.13), (0.9, 0.88, 0.92), Outcome.INCONCLUSIVE, "the interval holds 0.1"),
        ((0.05, 0.04, 0.06), (0.04, 0.03, 0.05), Outcome.FAILS, "the untrained model's ratio is as low"),
        ((0.05, 0.04, 0.06), (0.055, 0.05, 0.06), Outcome.INCONCLUSIVE, "reaches the untrained"),
        ((0.05, 0.04, 0.06), None, Outcome.INCONCLUSIVE, "the untrained model was not measured"),
        (None, (0.9, 0.88, 0.92), Outcome.INCONCLUSIVE, "no checkpoint is late"),
        ((np.nan, np.nan, np.nan), (0.9, 0.88, 0.92), Outcome.NOT_APPLICABLE, "not defined"),
    ],
)
def test_every_outcome(late, untrained, outcome, reason):
    verdict = judge(table(late, untrained))
    assert verdict.outcome is outcome
    assert reason in verdict.reason


def test_the_claim_is_about_decoders():
    verdict = judge(table((0.02, 0.01, 0.03)), decoders=())
    assert verdict.outcome is Outcome.NOT_APPLICABLE
    assert "0.02" in verdict.reason


def test_one_seed_of_training_that_does_not_collapse_is_enough_to_fail():
    rows = pd.concat([table((0.02, 0.01, 0.03)), table((0.5, 0.4, 0.6), seed=1)])
    verdict = judge(rows)
    assert verdict.outcome is Outcome.FAILS
    assert verdict.seeds == 2
    assert (verdict.low, verdict.high) == (0.01, 0.6)


def test_each_seed_is_held_against_its_own_untrained_model():
    rows = pd.concat([table((0.05, 0.04, 0.06)), table((0.05, 0.04, 0.06), (0.03, 0.02, 0.04), seed=1)])
    assert judge(rows).outcome is Outcome.FAILS


def test_random_draws_and_the_untrained_model_never_hold():
    for seed in range(6):
        raw = dict(zip(("first", "middle", "last"), np.random.default_rng(seed).uniform(20, 60, 3), strict=True))
        steps = [collection(step, raw_rank=raw, seed=seed) for step in (0, 80, 100)]
        for verdict in last_layer_collapses(collapse({"m": steps}), ["m"]):
            assert verdict.outcome is Outcome.FAILS


def test_weights_that_never_move_do_not_hold_however_narrow_they_are():
    narrow = np.stack([np.eye(1, 40) + 1e-3 * np.eye(20, 40)] * 2)
    narrow /= np.linalg.norm(narrow, axis=2, keepdims=True)
    wide = random_directions(np.random.default_rng(0), 2, 20, 40)
    ranks = {"first": 30.0, "last": 2.0}
    same = [collection(step, lambda layer: narrow if layer == "last" else wide, ranks) for step in (0, 80, 100)]
    found = collapse({"m": same})
    assert judge(found, reading="activations").outcome is Outcome.FAILS
    trained = [collection(0), *same[1:]]
    assert judge(collapse({"m": trained}), reading="activations").outcome is Outcome.HOLDS


def test_a_table_of_something_else_is_refused():
    with pytest.raises(UserError, match="lacks the columns high, low, ratio"):
        last_layer_collapses(pd.DataFrame({"model": [], "seed": [], "reading": [], "stage": []}), [])


def test_printed_numbers():
    found = printed_collapse(published.table2(), ["Pythia-410M", "SmolLM2-360M"]).set_index("model")
    assert found.loc["Pythia-410M", "ratio"] == pytest.approx(0.017, abs=0.001)
    assert found.loc["SmolLM2-360M", "ratio"] == pytest.approx(0.022, abs=0.001)
    assert found.loc["EuroBERT-210M", "ratio"] == pytest.approx((99.8 + 119.3) / (195.0 + 196.9))
    assert found["at_most_a_tenth"].tolist() == [False, True, True]
    assert found["kind"].tolist() == ["encoder", "decoder", "decoder"]


def test_printed_windows_are_read():
    assert window_ends("800k-1.28M") == (800_000, 1_280_000)


def test_decoders_are_named_by_label_and_seeds_are_averaged():
    rows = pd.concat([table((0.02, 0.01, 0.03), seed=1), table((0.04, 0.03, 0.05), seed=2)])
    verdict = judge(rows, decoders=["m@1", "m@2"])
    assert (verdict.outcome, verdict.estimate, verdict.low, verdict.high) == (
        Outcome.HOLDS,
        pytest.approx(0.03),
        0.01,
        0.05,
    )
    assert [(seed, one.estimate) for seed, one in verdict.by_seed] == [(1, 0.02), (2, 0.04)]


def test_the_rule_on_printed_numbers_can_fail_but_not_hold():
    on_paper = printed_collapse(published.table2(), ["Pythia-410M", "SmolLM2-360M"])
    verdicts = {verdict.model: verdict for verdict in printed_verdicts(on_paper)}
    assert all(verdict.of_printed for verdict in verdicts.values())
    for row in on_paper.to_dict("records"):
        verdict = verdicts[row["model"]]
        assert (verdict.estimate, verdict.low, verdict.high) == (row["ratio"], row["lowest"], row["highest"])
        expected = Outcome.NOT_APPLICABLE if row["kind"] == "encoder" else Outcome.INCONCLUSIVE
        assert verdict.outcome is expected
    kept = on_paper.assign(kind="decoder", at_most_a_tenth=False)
    assert {verdict.outcome for verdict in printed_verdicts(kept)} == {Outcome.FAILS}
