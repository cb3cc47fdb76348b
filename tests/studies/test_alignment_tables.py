"""Tables of the alignment study on collections whose numbers are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from anisotropy.concepts.decompositions import METHODS
from anisotropy.studies import alignment_tables as tables
from anisotropy.studies.alignment import SOURCES
from anisotropy.studies.replicates import mean_interval
from anisotropy.studies.results import Collection

GROUPS, ROTATIONS, RANKS = 4, 3, 12


def collection(step, matched=0.5, rotated=0.2, falls=True, matrices=tables.MATRICES, seeds=2):
    random = np.random.default_rng(step)
    arrays = {}
    for part in ("data", *SOURCES):
        for method in METHODS:
            arrays[f"{part}_{method}_converged"] = np.array([True] * (GROUPS - 1) + [method != "ica"])
            arrays[f"{part}_{method}_loss"] = np.full(GROUPS, 0.1)
    for source in SOURCES:
        for method in METHODS:
            name = f"{source}_{method}"
            arrays[f"{name}_correlations"] = np.full((GROUPS, RANKS), matched)
            arrays[f"{name}_matched"] = matched + 0.01 * random.normal(size=(GROUPS, 3))
            arrays[f"{name}_rotated"] = rotated + 0.01 * random.normal(size=(GROUPS, ROTATIONS, 3))
            arrays[f"{name}_gap"] = np.arange(1, GROUPS + 1)
    for matrix in matrices:
        for method in METHODS:
            diagonal = np.linspace(0.9, 0.3, RANKS) if falls else np.linspace(0.3, 0.9, RANKS)
            arrays[f"weight_{matrix}_{method}"] = np.stack([np.diag(diagonal)[:, random.permutation(RANKS)]] * seeds)
            arrays[f"floor_{matrix}_{method}"] = np.full((seeds, 5), 0.2)
    return Collection("model", step, f"hash{step}", arrays)


def test_excess_is_matched_minus_the_mean_of_its_own_groups_rotations():
    one = collection(8)
    table = tables.alignment_table([one])
    assert len(table) == len(SOURCES) * len(METHODS) * 3 * GROUPS
    row = table[(table["source"] == "gradient") & (table["method"] == "ica") & (table["metric"] == "top")].iloc[2]
    rotated = one.arrays["gradient_ica_rotated"][2, :, 1]
    assert row["excess"] == pytest.approx(one.arrays["gradient_ica_matched"][2, 1] - rotated.mean())
    assert (row["baseline_low"], row["baseline_high"]) == (rotated.min(), rotated.max())
    assert row["pairs"] == 10
    assert table[table["metric"] == "above_gap"]["pairs"].tolist() == [1, 2, 3, 4] * 6


def test_curves_are_means_with_intervals_over_groups():
    table = tables.summarise({"model": [collection(0), collection(8)], "model@2": [collection(8)]})
    assert set(zip(table["model"], table["seed"], strict=True)) == {("model", 0), ("model", 2)}
    curves = tables.curves(table)
    row = curves[(curves["seed"] == 2) & (curves["source"] == "gradient") & (curves["metric"] == "mean")].iloc[0]
    own = table[(table["seed"] == 2) & (table["source"] == "gradient") & (table["metric"] == "mean")]
    excess = own[own["method"] == row["method"]]["excess"]
    assert (row["excess"], row["excess_low"], row["excess_high"]) == mean_interval(excess)
    assert len(curves) == 3 * len(SOURCES) * len(METHODS) * 3


def test_by_rank_finds_planted_partners():
    random = np.random.default_rng(0)
    planted = np.linspace(0.9, 0.5, 20)
    noise = random.uniform(0, 0.1, size=(20, 20))
    order = random.permutation(20)
    noise[np.arange(20), order] = planted
    np.testing.assert_allclose(tables.by_rank(noise), planted)
    np.testing.assert_allclose(tables.by_rank(noise, "best"), planted)
    # One data concept that is near to all: each rank's best, but only one rank's match.
    noise[:, order[0]] = 0.95
    assert (tables.by_rank(noise, "best") == 0.95).all()
    assert (tables.by_rank(noise) == 0.95).sum() == 1


def test_a_rank_without_partner_has_nothing():
    found = tables.by_rank(np.array([[0.5, 0.1], [0.4, 0.3], [0.9, 0.8]]))
    assert sorted(found) == [0, 0.5, 0.8]


def test_an_unknown_pairing_is_named():
    with pytest.raises(ValueError, match="unknown pairing 'nearest'"):
        tables.by_rank(np.eye(3), "nearest")


def test_trends_equal_scipys():
    falling, rising = collection(8), collection(16, falls=False)
    trends = tables.rank_trends({"model": [falling, rising]})
    assert trends["rho"].tolist() == pytest.approx([-1] * 9 + [1] * 9)
    noisy = collection(8)
    noisy.arrays["weight_first_pca"][:] = np.random.default_rng(1).uniform(size=(2, RANKS, RANKS))
    found = tables.rank_trends({"model": [noisy]}).query("matrix == 'first' and method == 'pca'").iloc[0]
    values = tables.rank_table([noisy]).query("matrix == 'first' and method == 'pca'")
    assert found["rho"] == pytest.approx(stats.spearmanr(values["rank"], values["correlation"]).statistic)
    assert (found["ranks"], found["floor"]) == (RANKS, pytest.approx(0.2))


def test_matrices_that_are_missing_stay_missing():
    trends = tables.rank_trends({"model": [collection(0, matrices=("embedding",))]})
    assert set(trends["matrix"]) == {"embedding"}
    assert tables.rank_trends({"model": [collection(0, matrices=())]}).empty


def test_one_seed_has_no_spread():
    assert tables.rank_table([collection(0, seeds=1)])["spread"].isna().all()
    assert (tables.rank_table([collection(0)])["spread"] == 0).all()


def test_token_table_keeps_ranks_and_steps():
    found = []
    for step in (0, 8):
        one = collection(step)
        for part in ("data", "gradient"):
            for method in METHODS:
                one.arrays[f"{part}_{method}_token"] = np.array([5, 3, 5])
                one.arrays[f"{part}_{method}_likeness"] = np.array([0.9, 0.2, 0.4]) * (step == 8)
        one.arrays["chance_likeness"] = np.array([0.3])
        found.append(one)
    table = tables.token_table(found)
    assert len(table) == 2 * 2 * 3 * 3
    row = table[(table["step"] == 8) & (table["part"] == "gradient") & (table["method"] == "ica")].iloc[1]
    assert row.drop("method").tolist() == [8, "gradient", 1, 3, 0.2, 0.3]


def test_token_pairs_follow_the_matching():
    random = np.random.default_rng(2)
    concepts = np.linalg.qr(random.standard_normal((32, 6)))[0].T
    order = random.permutation(6)
    one = collection(8)
    one.arrays.update(
        data_ica=concepts,
        gradient_ica=-concepts[order] + 0.01 * np.arange(6)[:, None] * random.standard_normal((6, 32)),
        data_ica_token=np.arange(6),
        gradient_ica_token=order,
        data_ica_likeness=np.arange(6) / 10,
    )
    pairs = tables.token_pairs(one, "ica")
    assert (pairs["data_token"] == pairs["gradient_token"]).all()
    assert (pairs["data_likeness"] == pairs["data_token"] / 10).all()
    assert pairs["correlation"].is_monotonic_decreasing


def test_convergence_counts_fits():
    table = tables.convergence({"model": [collection(0), collection(8)]})
    assert set(table[table["method"] == "ica"]["converged"]) == {6}
    assert set(table[table["method"] == "pca"]["converged"]) == {8}
    assert (table["fits"] == 8).all()
