"""Claim C4's rule on tables that were made to hold, to fail and to say nothing, and on planted collections."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.errors import UserError
from anisotropy.report.published import table3
from anisotropy.report.rules.updates import (
    RANDOM_BASIS,
    SHUFFLED_LABELS,
    UNTRAINED_BASIS,
    frequent_updates_most_tangent,
    printed_verdicts,
)
from anisotropy.report.scorecard import Outcome, Verdict
from anisotropy.studies import updates
from anisotropy.studies.results import Collection

CONTROLS = {"model": "shuffled"}


def row(model="model", estimate=0.4, half_width=0.05, normal=1.0, normal_width=0.02, **more):
    labels = {"seed": 0, "matrix": "input", "stage": "early", "basis": "start", "update": "measured"}
    labels |= {"reading": "corrected", "rank": 16}
    numbers = {"estimate": estimate, "low": estimate - half_width, "high": estimate + half_width, "normal": normal}
    numbers |= {"normal_low": normal - normal_width, "normal_high": normal + normal_width}
    return {"model": model, **labels, **numbers, **more}


def judge(*rows, stage="early", matrix="input", controls=CONTROLS) -> Verdict:
    verdicts = frequent_updates_most_tangent(pd.DataFrame(rows), controls, 16, stage)
    return next(verdict for verdict in verdicts if verdict.reading == f"{matrix} matrix, {stage}")


def test_holds_above_threshold_and_controls_with_normal_at_chance():
    verdict = judge(
        row(), row("shuffled", 0.1), row(estimate=0.0, basis="untrained"), row(estimate=0.01, basis="random")
    )
    assert verdict.outcome is Outcome.HOLDS
    names = [name for name, _ in verdict.controls]
    assert names == [SHUFFLED_LABELS, UNTRAINED_BASIS, RANDOM_BASIS, "mean normal"]
    assert (verdict.estimate, verdict.seeds) == (0.4, 1)


@pytest.mark.parametrize(
    ("estimate", "outcome"),
    [(-0.4, Outcome.FAILS), (0.0, Outcome.FAILS), (0.12, Outcome.INCONCLUSIVE), (0.2, Outcome.HOLDS)],
)
def test_the_interval_decides(estimate, outcome):
    assert judge(row(estimate=estimate), row("shuffled", 0.0)).outcome is outcome


@pytest.mark.parametrize(
    ("normal", "outcome"),
    [(0.5, Outcome.FAILS), (0.89, Outcome.INCONCLUSIVE), (1.05, Outcome.HOLDS), (1.7, Outcome.FAILS)],
)
def test_normal_directions_must_be_at_chance(normal, outcome):
    verdict = judge(row(normal=normal), row("shuffled", 0.0))
    assert verdict.outcome is outcome
    assert ("normal" in verdict.reason) or outcome is Outcome.HOLDS


@pytest.mark.parametrize(
    ("control", "name"),
    [
        ({"model": "shuffled"}, SHUFFLED_LABELS),
        ({"basis": "untrained"}, UNTRAINED_BASIS),
        ({"basis": "random"}, RANDOM_BASIS),
    ],
)
def test_a_control_that_shows_it_too(control, name):
    others = [row("shuffled", 0.0)] if "model" not in control else []
    as_high = judge(row(), row(estimate=0.5, **control), *others)
    near = judge(row(), row(estimate=0.37, **control), *others)
    assert (as_high.outcome, near.outcome) == (Outcome.FAILS, Outcome.INCONCLUSIVE)
    assert name in as_high.reason
    assert name in near.reason


def test_what_fails_outweighs_what_is_open_and_every_finding_is_named():
    verdict = judge(row(estimate=0.1, normal=4.0), row("shuffled", 0.5))
    assert verdict.outcome is Outcome.FAILS
    assert verdict.reason.index("normal enrichment lies outside") < verdict.reason.index("holds +0.1")
    assert f"not at chance; besides, a control has as high a correlation ({SHUFFLED_LABELS})" in verdict.reason
    assert verdict.reason.count("besides") == 1
    open_ = judge(row(estimate=0.1), row("shuffled", 0.0))
    assert open_.outcome is Outcome.INCONCLUSIVE


def test_without_the_shuffled_run_it_never_holds():
    for controls in (CONTROLS, {}):
        verdict = judge(row(), controls=controls)
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "the control was not run" in verdict.reason
    assert judge(row(estimate=-0.5)).outcome is Outcome.FAILS


def test_every_seed_counts():
    controls = [row("shuffled", 0.0, seed=seed) for seed in range(3)]
    good = [row(estimate=estimate, seed=seed) for seed, estimate in enumerate((0.5, 0.4, 0.3))]
    verdict = judge(*good, *controls)
    assert (verdict.outcome, verdict.seeds) == (Outcome.HOLDS, 3)
    assert (verdict.low, verdict.high) == (pytest.approx(0.25), pytest.approx(0.55))
    assert judge(*good[:2], row(estimate=-0.3, seed=2), *controls).outcome is Outcome.FAILS
    # A seed without its own control is held against the highest.
    assert judge(*good, row("shuffled", 0.35, seed=0)).outcome is Outcome.FAILS


def test_only_the_corrected_reading_of_measured_updates_counts():
    distractors = [
        row(estimate=-0.9, reading="naive"),
        row(estimate=-0.9, update="decay"),
        row(estimate=-0.9, rank=4),
        row(estimate=-0.9, stage="late"),
        row(estimate=-0.9, matrix="output"),
    ]
    assert judge(row(), row("shuffled", 0.0), *distractors).outcome is Outcome.HOLDS
    assert judge(row(), row("shuffled", 0.0), *distractors, stage="late").outcome is Outcome.FAILS
    assert judge(row(), row("shuffled", 0.0), *distractors, matrix="output").outcome is Outcome.FAILS


def test_what_has_no_rows_or_no_variation_is_not_applicable():
    tied = judge(row(), matrix="output")
    assert (tied.outcome, tied.reason.split(":")[0]) == (Outcome.NOT_APPLICABLE, "the matrices are tied")
    late = judge(row(), stage="late")
    assert (late.outcome, late.reason) == (Outcome.NOT_APPLICABLE, "it needs a pair of checkpoints in the stage")
    assert judge(row(estimate=np.nan)).outcome is Outcome.NOT_APPLICABLE


def test_a_table_without_its_columns_is_refused():
    with pytest.raises(UserError, match="normal_low"):
        frequent_updates_most_tangent(pd.DataFrame([row()]).drop(columns="normal_low"), {}, 16)


def test_five_printed_tokens_are_too_few():
    verdicts = printed_verdicts(table3())
    assert [verdict.outcome for verdict in verdicts] == [Outcome.INCONCLUSIVE] * 2
    # 33.27, 7.40, 2.79, 3.26, 3.63 from the most to the least frequent: ρ = 1 − 6·8/(5·24).
    assert verdicts[0].estimate == pytest.approx(0.6)
    assert verdicts[1].estimate == pytest.approx(0.9)
    assert dict(verdicts[0].controls)["mean normal"] == pytest.approx((0.99 + 4) / 5)


# The rule from end to end, on collections: what must be rejected is, and what was planted holds.

V, D, RANK = 800, 32, 4
COUNTS = (1e6 / np.arange(1, V + 1)).astype(np.int64)


def collections(move, *, counts=COUNTS, steps=(0, 1, 2, 4, 100), seed=0):
    """Checkpoints whose rows move by ``move(random)`` between each; the first axes are the principal directions."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(V, D))
    rows[:, :RANK] *= [4, 3.5, 3, 2.5]
    found = []
    for step in steps:
        stored = rows.astype(np.float32).astype(np.float64)
        centred = stored - stored.mean(0)
        arrays = {"token_ids": np.arange(V), "counts": counts, "tokens_counted": np.array([counts.sum()])}
        arrays |= {"input_rows": rows.astype(np.float32), "input_count": np.array([V])}
        arrays |= {"input_mean": stored.mean(0), "input_scatter": centred.T @ centred}
        found.append(Collection("synthetic", step, f"hash{step}", arrays))
        rows = rows + move(random, rows)
    return found


def growing(random, rows):
    move = 0.01 * random.normal(size=rows.shape)
    move[:, :RANK] *= 1 + 3 * np.linspace(1, 0, V)[:, None]
    return move


def isotropic(random, rows):
    return 0.01 * random.normal(size=rows.shape)


def decay(random, rows):
    return -0.003 * rows


def still(random, rows):
    return 0 * rows


def verdict_of(of_model, shuffled=None, bases=("start",)):
    labels = {"model": of_model} | ({"shuffled": shuffled} if shuffled else {})
    tokens = {
        label: updates.stage_averages(updates.pair_enrichments(found, ranks=[RANK], bases=bases))
        for label, found in labels.items()
    }
    table = updates.summarise(tokens, draws=20)
    return frequent_updates_most_tangent(table, CONTROLS, RANK)[0] if len(table) else None


def test_a_planted_effect_holds():
    verdict = verdict_of(collections(growing), collections(isotropic, seed=1), ("start", "random"))
    assert verdict.outcome is Outcome.HOLDS
    assert [name for name, _ in verdict.controls] == [SHUFFLED_LABELS, RANDOM_BASIS, "mean normal"]


@pytest.mark.parametrize("untrained", [isotropic, still, decay], ids=["random updates", "no updates", "weight decay"])
def test_what_knows_no_language_is_rejected(untrained):
    verdict = verdict_of(collections(untrained), collections(isotropic, seed=1))
    expected = Outcome.FAILS if untrained is isotropic else Outcome.NOT_APPLICABLE
    assert verdict.outcome is expected


def test_shuffled_frequencies_are_rejected():
    shuffled = np.random.default_rng(2).permutation(COUNTS)
    assert verdict_of(collections(growing, counts=shuffled), collections(isotropic)).outcome is Outcome.FAILS


def test_shuffled_labels_that_show_it_reject_it():
    verdict = verdict_of(collections(growing), collections(growing, seed=1))
    assert verdict.outcome in (Outcome.FAILS, Outcome.INCONCLUSIVE)
    assert SHUFFLED_LABELS in verdict.reason


def test_random_bases_are_rejected():
    table = updates.pair_enrichments(collections(growing), ranks=[RANK], bases=["random"], seed=3)
    rows = updates.summarise({"model": updates.stage_averages(table.assign(basis="start"))}, draws=20)
    shuffled = pd.DataFrame([row("shuffled", 0.0, rank=RANK)])
    verdict = frequent_updates_most_tangent(pd.concat([rows, shuffled]), CONTROLS, RANK)[0]
    assert verdict.outcome is not Outcome.HOLDS


def test_one_checkpoint_is_not_applicable():
    single = updates.stage_averages(updates.pair_enrichments(collections(growing, steps=(512,)), ranks=[RANK]))
    both = updates.stage_averages(updates.pair_enrichments(collections(growing), ranks=[RANK]))
    table = updates.summarise({"single": single, "model": both}, draws=20)
    verdicts = frequent_updates_most_tangent(table, CONTROLS, RANK, models=["single", "model"])
    assert [verdict.model for verdict in verdicts] == ["single"] * 2 + ["model"] * 2
    assert [verdict.outcome for verdict in verdicts[:2]] == [Outcome.NOT_APPLICABLE] * 2


def test_controls_are_matched_by_label_over_training_seeds():
    rows = [row("mini", 0.4, seed=1), row("mini", 0.6, seed=2)]
    rows += [row("mini-shuffled", 0.1, seed=1), row("mini-shuffled", 0.7, seed=2)]
    labels = {"mini@1": "mini-shuffled@1", "mini@2": "mini-shuffled@2"}
    first, *_ = frequent_updates_most_tangent(pd.DataFrame(rows), labels, 16, models=["mini@1", "mini@2", "other@1"])
    assert (first.model, first.outcome, first.seeds) == ("mini", Outcome.FAILS, 2)
    assert (first.estimate, first.low, first.high) == pytest.approx((0.5, 0.35, 0.65))
    assert [(seed, one.outcome) for seed, one in first.by_seed] == [(1, "holds"), (2, "fails")]
    *_, last = frequent_updates_most_tangent(pd.DataFrame(rows), labels, 16, models=["mini@1", "mini@2", "other@1"])
    assert (last.model, last.outcome, last.by_seed) == ("other", Outcome.NOT_APPLICABLE, ())


def test_verdicts_on_printed_numbers_are_marked():
    assert all(verdict.of_printed for verdict in printed_verdicts(table3()))
    assert not judge(row()).of_printed
