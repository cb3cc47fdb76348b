"""Windows and the geometry of concepts, against planted dictionaries and closed forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conceptcase import COORDINATES, SEEDS, collection, random_directions, unit
from scipy import stats

from anisotropy.errors import UserError
from anisotropy.studies import concept_collapse, concept_windows


def value(table, metric, reading="per_checkpoint", layer="middle", window=None):
    rows = table[(table["metric"] == metric) & (table["reading"] == reading) & (table["layer"] == layer)]
    rows = rows if window is None else rows[rows["window"] == window]
    assert len(rows) == 1
    return rows["value"].iloc[0]


def test_windows_hold_equal_numbers_after_step_zero():
    found = concept_windows.make_windows([0, 1, 2, 4, 8, 16, 32, 64, 128], 4)
    assert [window.steps for window in found] == [(1, 2), (4, 8), (16, 32), (64, 128)]
    assert found[0].label == "1–2"


def test_what_does_not_divide_is_left_out_at_the_start():
    found = concept_windows.make_windows([0, 1, 2, 4, 8, 16, 32, 64], 3)
    assert [window.steps for window in found] == [(2, 4), (8, 16), (32, 64)]


def test_fewer_checkpoints_than_windows():
    assert [window.label for window in concept_windows.make_windows([0, 5, 1000], 4)] == ["5", "1,000"]
    assert concept_windows.make_windows([0], 4) == []
    with pytest.raises(UserError, match="windows is 0"):
        concept_windows.make_windows([0, 1], 0)


def test_orthonormal_dictionary_has_the_geometry_of_a_simplex():
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((COORDINATES, 20)))[0].T
    table = concept_windows.window_table([collection(1, lambda layer: np.stack([basis] * SEEDS))], similarity_rank=4)
    # Centred, k orthonormal rows have k − 1 equal singular values.
    assert value(table, "effective_rank") == pytest.approx(19, rel=1e-6)
    assert value(table, "pca_70") == np.ceil(0.7 * 19)


def test_a_dictionary_on_a_sphere_has_its_dimension():
    random = np.random.default_rng(1)
    frame = np.linalg.qr(random.standard_normal((60, 3)))[0].T
    on_sphere = np.stack([random_directions(random, 400, 3) @ frame for _ in range(SEEDS)])
    table = concept_windows.window_table([collection(1, lambda layer: on_sphere)], similarity_rank=2)
    assert value(table, "id_twonn") == pytest.approx(2, abs=0.3)
    # Uniform on a 2-sphere: three equal variances.
    assert value(table, "effective_rank") == pytest.approx(3, abs=0.05)
    assert value(table, "pca_70") == 3


def test_scaled_directions_have_the_spectrum_of_their_codes():
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((COORDINATES, 20)))[0].T
    one = collection(1, lambda layer: np.stack([basis] * SEEDS))
    one.arrays["middle_mean_code"][:] = 1e-6
    one.arrays["middle_mean_code"][:, :2] = 1.0
    table = concept_windows.window_table([one], similarity_rank=4)
    assert value(table, "pca_70", "scaled") == 2
    assert value(table, "effective_rank", "scaled") < 3 < value(table, "effective_rank")


def test_equal_windows_are_similar_and_random_ones_as_chance_says():
    random = np.random.default_rng(2)
    # Fifty directions in a subspace of dimension 6: its principal directions are well determined from any seed.
    frame = np.linalg.qr(random.standard_normal((COORDINATES, 6)))[0].T
    planted = np.stack([unit(random.standard_normal((50, 6))) @ frame for _ in range(SEEDS)])
    same = concept_windows.window_table(
        [collection(step, lambda layer: planted) for step in (1, 2)], windows=2, similarity_rank=6
    )
    for reading in ("per_checkpoint", "pooled"):
        assert value(same, "pca_similarity", reading, window="2") == pytest.approx(1, abs=1e-6)
    chance = [
        value(
            concept_windows.window_table([collection(s, seed=seed) for s in (1, 2)], windows=2, similarity_rank=8),
            "pca_similarity",
            window="2",
        )
        for seed in range(12)
    ]
    assert np.mean(chance) == pytest.approx(8 / COORDINATES, abs=0.03)


def test_the_first_window_and_the_untrained_model_have_nothing_to_be_similar_to():
    table = concept_windows.window_table([collection(step) for step in (0, 1, 2)], windows=2, similarity_rank=4)
    assert set(table[table["metric"] == "pca_similarity"]["window"]) == {"2"}
    assert list(dict.fromkeys(table["window"])) == ["untrained", "1", "2"]


def test_similarity_inside_a_window_and_none_in_a_window_of_one():
    wide = concept_windows.window_table([collection(step) for step in (1, 2)], windows=1, similarity_rank=4)
    narrow = concept_windows.window_table([collection(step) for step in (1, 2)], windows=2, similarity_rank=4)
    assert "pca_similarity_within" in set(wide["metric"])
    assert "pca_similarity_within" not in set(narrow["metric"])


def test_averages_weight_checkpoints_by_their_steps_and_leave_missing_values_out():
    ranks = {1: 2.0, 2: 4.0, 10: 8.0}
    members = [
        collection(step, raw_rank=dict.fromkeys(("first", "middle", "last"), rank)) for step, rank in ranks.items()
    ]
    table = concept_windows.window_table(members, windows=1, similarity_rank=4)
    # Trapezoid weights of 1, 2, 10: 0.5, 4.5 and 4 of 9.
    assert value(table, "effective_rank", "activations") == pytest.approx((0.5 * 2 + 4.5 * 4 + 4 * 8) / 9)
    missing = table[(table["metric"] == "id_graph") & (table["reading"] == "activations")]
    assert missing["value"].isna().all()
    assert (missing["estimates"] == 0).all()
    np.testing.assert_allclose(
        concept_windows.weighted_average(np.array([[1.0, np.nan], [3.0, 5.0]]), np.array([0.25, 0.75])), [2.5, 5.0]
    )


def test_c_w_stands_beside_its_baseline_and_the_last_layer_has_none():
    table = concept_windows.window_table([collection(1)], similarity_rank=4)
    rows = table[table["metric"] == "c_w"]
    assert set(rows["layer"]) == {"first", "middle"}
    assert value(table, "c_w") == 0.5
    assert value(table, "c_w", "baseline") == 0.25


def test_pooled_copies_look_low_dimensional_and_per_checkpoint_does_not():
    random = np.random.default_rng(3)
    base = random_directions(random, SEEDS, 40, COORDINATES)
    steps = 0.01 * random.standard_normal((6, SEEDS, 40, COORDINATES)).cumsum(axis=0)
    members = [collection(step, lambda layer, step=step: unit(base + steps[step - 1])) for step in range(1, 7)]
    table = concept_windows.window_table(members, windows=1, similarity_rank=4)
    assert value(table, "id_twonn", "pooled") < 8
    assert value(table, "id_twonn") > 12


def test_an_impossible_rank_is_named():
    with pytest.raises(UserError, match="similarity_rank is 20"):
        concept_windows.window_table([collection(1)], similarity_rank=20)


def test_summary_names_the_model():
    table = concept_windows.summarise({"a": [collection(1)], "b": [collection(1)]}, similarity_rank=4)
    assert list(dict.fromkeys(table["model"])) == ["a", "b"]


def test_agreement_sees_through_order_and_sign_and_knows_chance():
    random = np.random.default_rng(4)
    one = random_directions(random, 20, COORDINATES)
    turned = -one[random.permutation(20)]
    table = concept_windows.agreement([collection(step, lambda layer: np.stack([one, turned])) for step in (1, 2)])
    found = table[table["step"] == 2].groupby("comparison")["value"].mean()
    for name in ("seeds", "next, other seed", "next, same seed"):
        assert found[name] == pytest.approx(1)
    # Matching 20 of 20 random directions: the floor that an independent simulation gives.
    from scipy.optimize import linear_sum_assignment

    floors = []
    for _ in range(20):
        cosines = np.abs(random_directions(random, 20, COORDINATES) @ random_directions(random, 20, COORDINATES).T)
        floors.append(cosines[linear_sum_assignment(cosines, maximize=True)].mean())
    assert found["random"] == pytest.approx(np.mean(floors), abs=0.04)
    strangers = concept_windows.agreement([collection(1)])
    assert strangers[strangers["comparison"] == "seeds"]["value"].mean() == pytest.approx(np.mean(floors), abs=0.04)


def test_methods_stand_beside_each_other():
    table = concept_windows.methods_compared([collection(1)]).set_index("method")
    assert table.loc["PCA", "effective_rank"] == pytest.approx(19)
    assert np.isnan(table.loc["PCA", "id_twonn"])
    assert table.loc["ICA", "agreement"] == pytest.approx(1)
    assert table.loc["Semi-NMF", "agreement"] < 0.8


def test_fits_count_what_did_not_settle():
    broken = collection(1)
    broken.arrays["first_converged"][0] = False
    broken.arrays["first_loss"][:] = [0.1, 0.3]
    table = concept_windows.fits({"m": [broken, collection(2)]}).set_index("layer")
    assert table["not_converged"].tolist() == [1, 0, 0]
    assert table.loc["first", "loss_spread"] == pytest.approx(1)
    assert table.loc["last", "fits"] == 2 * SEEDS


def test_random_directions_do_not_depend_on_anything_but_their_number():
    table = concept_windows.random_directions(20, 200, draws=10).set_index("metric")
    assert 18 < table.loc["effective_rank", "value"] < 19
    assert table.loc["effective_rank", "spread"] < 0.3


def narrow(layer):
    """Twenty directions: spread out at the first layer, all but equal to two opposite ones at the last."""
    random = np.random.default_rng(5)
    if layer != "last":
        return random_directions(random, SEEDS, 20, COORDINATES)
    axis = np.where(np.arange(20) % 2, 1.0, -1.0)[:, None] * np.eye(1, COORDINATES)
    return unit(np.stack([axis + 1e-4 * random.standard_normal((20, COORDINATES)) for _ in range(SEEDS)]))


def test_a_planted_collapse_shows_in_the_ratio():
    late = [collection(step, narrow) for step in (80, 100)]
    table = concept_collapse.collapse({"m@3": [collection(0), collection(10), *late]})
    assert set(table["model"]) == {"m"}
    assert set(table["seed"]) == {3}
    found = table.set_index(["reading", "stage"])["ratio"]
    for reading in ("per_checkpoint", "pooled", "scaled"):
        assert found[reading, "late"] < 0.1
        assert found[reading, "untrained"] == pytest.approx(1, abs=0.1)
    course = concept_collapse.ratio_courses([collection(0), *late])
    assert course[course["reading"] == "per_checkpoint"]["ratio"].iloc[-1] < 0.1


def test_only_early_checkpoints_have_no_late_rows():
    table = concept_collapse.collapse({"m": [collection(0)]})
    assert set(table["stage"]) == {"untrained"}


def test_jackknife_of_activations_equals_the_textbook_one():
    one = collection(1, raw_rank={"first": 20.0, "last": 4.0})
    random = np.random.default_rng(6)
    # A mean of log block values has leave-one-out values whose jackknife error is s/√n exactly.
    values = random.normal(size=8)
    without = (values.sum() - values) / 7
    one.arrays["first_rank_without_block"] = np.full(8, 20.0)
    one.arrays["last_rank_without_block"] = 4.0 * np.exp(without)
    row = concept_collapse.collapse({"m": [one]})
    row = row[row["reading"] == "activations"].iloc[0]
    half = stats.t.ppf(0.975, 7) * values.std(ddof=1) / np.sqrt(8)
    assert row["ratio"] == pytest.approx(0.2)
    assert row["low"] == pytest.approx(0.2 * np.exp(-half))
    assert row["high"] == pytest.approx(0.2 * np.exp(half))
    assert isinstance(row, pd.Series)
