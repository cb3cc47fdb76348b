"""Rules C5 and C6 on tables made to hold, to fail and to say nothing, and their rates where there is nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from anisotropy.concepts.matching import absolute_correlations
from anisotropy.errors import UserError
from anisotropy.report.rules import alignment as rules
from anisotropy.report.scorecard import Outcome
from anisotropy.statistics import correlation
from anisotropy.studies.alignment_tables import by_rank

CONTROLS = {"model": "run"}


def excess_table(trained, untrained=(0, 0, 0), shuffled=(0, 0, 0), noise=0.01, seed=0, model="model", training_seed=0):
    """Excess of (PCA, Semi-NMF, ICA) in five groups; ``None`` leaves a part out."""
    random = np.random.default_rng(seed)
    parts = [("gradient", 448, trained), ("gradient", 0, untrained), ("shuffled", 448, shuffled)]
    return pd.DataFrame(
        [
            {
                "model": model,
                "seed": training_seed,
                "step": step,
                "source": source,
                "method": method,
                "metric": metric,
                "group": group,
                "excess": mean + noise * random.normal(),
            }
            for source, step, means in parts
            if means is not None
            for method, mean in zip(rules.METHOD_NAMES, means, strict=True)
            for metric in rules.METRIC_NAMES
            for group in range(5)
        ]
    )


def c5(*tables, method="PCA", metric="all concepts"):
    verdicts = rules.better_than_ica(pd.concat(tables), CONTROLS)
    return next(verdict for verdict in verdicts if verdict.reading == f"{method} − ICA, {metric}")


@pytest.mark.parametrize(
    ("table", "outcome", "reason"),
    [
        (excess_table((0.3, 0.3, 0.1)), Outcome.HOLDS, "by more than the controls"),
        (excess_table((0.1, 0.1, 0.3)), Outcome.FAILS, "ICA's concepts exceed their baseline by more"),
        (excess_table((0.2, 0.2, 0.2)), Outcome.INCONCLUSIVE, "holds 0"),
        (excess_table((0.3, 0.3, 0.1), untrained=(0.5, 0.5, 0.1)), Outcome.FAILS, "control (untrained)"),
        (excess_table((0.3, 0.3, 0.1), shuffled=(0.4, 0.4, 0.1)), Outcome.FAILS, "(gradients of shuffled labels)"),
        (excess_table((0.3, 0.3, 0.1), shuffled=(0.299, 0.299, 0.1)), Outcome.INCONCLUSIVE, "within its error"),
        (excess_table((0.3, 0.3, 0.1), untrained=None), Outcome.INCONCLUSIVE, "was not measured"),
    ],
)
def test_c5_on_every_outcome(table, outcome, reason):
    for method in ("PCA", "Semi-NMF"):
        verdict = c5(table, method=method)
        assert verdict.outcome is outcome, verdict
        assert reason in verdict.reason


def test_c5_judges_each_method_and_metric_by_itself():
    table = excess_table((0.3, 0.1, 0.2))
    assert c5(table, method="PCA").outcome is Outcome.HOLDS
    assert c5(table, method="Semi-NMF").outcome is Outcome.FAILS
    table.loc[table["metric"] == "top", "excess"] *= -1
    assert c5(table, method="PCA", metric="ten best").outcome is Outcome.FAILS
    assert len(rules.better_than_ica(table, CONTROLS)) == 6


def test_c5_numbers_are_student_t_of_paired_differences():
    table = excess_table((0.3, 0.3, 0.1), noise=0.05)
    verdict = c5(table)
    here = table[(table["source"] == "gradient") & (table["step"] == 448) & (table["metric"] == "mean")]
    wide = here.pivot(index="group", columns="method", values="excess")
    difference = wide["pca"] - wide["ica"]
    low, high = stats.t.interval(0.95, 4, difference.mean(), stats.sem(difference))
    assert (verdict.estimate, verdict.low, verdict.high) == pytest.approx((difference.mean(), low, high))


def test_c5_shows_the_run_on_shuffled_labels_and_gives_it_no_verdict():
    verdicts = rules.better_than_ica(
        pd.concat([excess_table((0.3, 0.3, 0.1)), excess_table((0.2, 0.2, 0.1), model="run")]), CONTROLS
    )
    assert {verdict.model for verdict in verdicts} == {"model"}
    assert dict(verdicts[0].controls)[rules.SHUFFLED_RUN] == pytest.approx(0.1, abs=0.03)


def test_c5_every_training_seed_counts():
    good = excess_table((0.3, 0.3, 0.1))
    assert c5(good, excess_table((0.3, 0.3, 0.1), training_seed=1, seed=5)).seeds == 2
    assert c5(good, excess_table((0.1, 0.1, 0.3), training_seed=1)).outcome is Outcome.FAILS


def test_an_untrained_model_alone_is_not_applicable():
    table = excess_table(None, untrained=(0.3, 0.3, 0.1), shuffled=None)
    assert c5(table).outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize("means", [(0, 0, 0), (0.3, 0.3, 0.3), (0.3, 0.3, 0.1)])
def test_c5_rejects_a_model_no_better_than_its_controls_at_its_rate(means):
    """Random concepts have no excess, untrained and shuffled models their own twice: at most 2.5 % may hold.

    The three metrics are independent here, so 40 tables give 120 tries: 3 are expected, with SD 1.7.
    """
    held = sum(
        verdict.outcome is Outcome.HOLDS
        for seed in range(40)
        for verdict in rules.better_than_ica(excess_table(means, means, means, noise=0.05, seed=seed), CONTROLS)
        if verdict.reading.startswith("PCA")
    )
    assert held <= 3 + 3 * 1.7


def trend(rho, step, model="model", matrix="first", method="pca", ranks=51, seed=0):
    half = 1.96 * np.sqrt((1 + rho**2 / 2) / (ranks - 3))
    return {
        "model": model,
        "seed": seed,
        "step": step,
        "matrix": matrix,
        "method": method,
        "rho": rho,
        "low": np.tanh(np.arctanh(rho) - half),
        "high": np.tanh(np.arctanh(rho) + half),
        "ranks": ranks,
    }


def c6(*rows, reading="first MLP map, PCA"):
    verdicts = rules.stronger_concepts_align(pd.DataFrame(rows), CONTROLS)
    return next(verdict for verdict in verdicts if verdict.reading == reading)


@pytest.mark.parametrize(
    ("rows", "outcome", "reason"),
    [
        ([trend(-0.7, 448), trend(0.0, 0)], Outcome.HOLDS, "more than in the untrained model"),
        ([trend(0.3, 448), trend(0.0, 0)], Outcome.FAILS, "stronger concepts do not align better"),
        ([trend(-0.1, 448), trend(0.0, 0)], Outcome.INCONCLUSIVE, "within its interval"),
        ([trend(-0.7, 448), trend(-0.8, 0)], Outcome.FAILS, "the untrained model's falls with rank as much"),
        ([trend(-0.7, 448), trend(-0.65, 0)], Outcome.INCONCLUSIVE, "the difference to the untrained model is small"),
        ([trend(-0.7, 448)], Outcome.INCONCLUSIVE, "was not measured"),
        ([trend(-0.7, 0)], Outcome.NOT_APPLICABLE, "no checkpoint after step 0"),
        ([trend(np.nan, 448), trend(0.0, 0)], Outcome.NOT_APPLICABLE, "do not vary"),
        ([trend(-0.7, 448), trend(0.0, 0), trend(0.5, 448, seed=1), trend(0.0, 0, seed=1)], Outcome.FAILS, "above"),
    ],
)
def test_c6_on_every_outcome(rows, outcome, reason):
    verdict = c6(*rows)
    assert verdict.outcome is outcome
    assert reason in verdict.reason


def test_c6_reads_the_last_checkpoint_and_shows_the_controls():
    verdict = c6(trend(0.5, 16), trend(-0.7, 448), trend(0.1, 0), trend(-0.6, 448, "run"), trend(0.2, 1, "run"))
    assert verdict.estimate == -0.7
    assert dict(verdict.controls) == {"untrained": 0.1, rules.SHUFFLED_RUN: -0.6}


def test_c6_gives_no_number_where_a_family_lacks_the_matrix():
    verdict = c6(trend(-0.7, 448), trend(0.0, 0), reading="second MLP map, ICA")
    assert (verdict.outcome, verdict.estimate) == (Outcome.NOT_APPLICABLE, None)
    assert len(rules.stronger_concepts_align(pd.DataFrame([trend(-0.7, 448)]), {})) == 9


def random_orders(count, ranks):
    random = np.random.default_rng(7)
    order = np.arange(ranks)
    return np.array([np.corrcoef(order, random.permutation(ranks))[0, 1] for _ in range(count)])


@pytest.mark.parametrize("ranks", [8, 16, 51])
def test_the_threshold_is_passed_by_chance_in_five_per_cent(ranks):
    # For 8 ranks ρ takes few values, so the rate may jump by 1 %.
    rate = (random_orders(20_000, ranks) <= rules.c6_threshold(ranks)).mean()
    assert 0.035 < rate < 0.062
    assert rules.c6_threshold(60) == rules.c6_threshold(51) == -0.24


def noisy_trend(random, slope, step, ranks=51):
    order = np.arange(ranks)
    found = correlation(order, slope * order / order.std() + random.normal(size=ranks), "spearman")
    return trend(found.estimate, step)


@pytest.mark.parametrize("slope", [0.0, -0.6, -2.0])
def test_c6_rejects_an_untrained_model_at_its_rate(slope):
    """The same law for the last and the untrained checkpoint: 5 % may hold; 120 tries have mean 6 and SD 2.4."""
    random = np.random.default_rng(8)
    held = sum(
        c6(noisy_trend(random, slope, 448), noisy_trend(random, slope, 0)).outcome is Outcome.HOLDS for _ in range(120)
    )
    assert held <= 6 + 3 * 2.4


def test_c6_rejects_random_concepts_through_the_whole_matching():
    """Random directions on both sides, ranked and matched as the study does: at most 5 % of 40 tries."""
    random = np.random.default_rng(9)

    def rho():
        a, b = (np.linalg.qr(random.standard_normal((128, 51)))[0].T for _ in range(2))
        return correlation(np.arange(51), by_rank(absolute_correlations(a, b)), "spearman").estimate

    held = sum(c6(trend(rho(), 448), trend(rho(), 0)).outcome is Outcome.HOLDS for _ in range(40))
    assert held <= 2 + 3 * np.sqrt(2)


def test_c6_accepts_what_was_planted():
    random = np.random.default_rng(10)
    verdict = c6(noisy_trend(random, -2.0, 448), noisy_trend(random, 0.0, 0))
    assert verdict.outcome is Outcome.HOLDS


def test_missing_columns_are_named():
    with pytest.raises(UserError, match="excess"):
        rules.better_than_ica(excess_table((0, 0, 0)).drop(columns="excess"), {})
    with pytest.raises(UserError, match="rho"):
        rules.stronger_concepts_align(pd.DataFrame([trend(0, 1)]).drop(columns="rho"), {})


def test_runs_on_shuffled_labels_of_several_seeds_are_averaged():
    tables = [excess_table((0.3, 0.3, 0.1), model="mini", training_seed=seed, seed=seed) for seed in (0, 1)]
    tables += [
        excess_table((0.2 + seed, 0.2, 0.1), model="mini-shuffled", training_seed=seed, seed=seed) for seed in (0, 1)
    ]
    labels = {"mini": "mini-shuffled", "mini@1": "mini-shuffled@1"}
    first, *others = rules.better_than_ica(pd.concat(tables), labels)
    assert {verdict.model for verdict in (first, *others)} == {"mini"}
    assert dict(first.controls)[rules.SHUFFLED_RUN] == pytest.approx(0.6, abs=0.03)
    assert [seed for seed, _ in first.by_seed] == [0, 1]
    rows = [trend(-0.7, 448, "mini", seed=seed) for seed in (0, 1)] + [trend(0, 0, "mini", seed=s) for s in (0, 1)]
    rows += [trend(rho, 448, "mini-shuffled", seed=seed) for seed, rho in enumerate((-0.2, 0.4))]
    first, *others = rules.stronger_concepts_align(pd.DataFrame(rows), labels)
    assert {verdict.model for verdict in (first, *others)} == {"mini"}
    assert dict(first.controls)[rules.SHUFFLED_RUN] == pytest.approx(0.1)
    assert (first.seeds, [one.outcome for _, one in first.by_seed]) == (2, ["holds", "holds"])
