"""The two simulations say what the chapter uses them for."""

from __future__ import annotations

import numpy as np

from anisotropy.studies.identifiability import dominated_layer, planted_concepts, pooled_points, surrogate_agreement


def test_low_error_is_not_recovery():
    table = planted_concepts(rows=800, seeds=2)
    # With noise the best fit beats the truth, and still is not it.
    assert (table["relative_loss"] <= table["true_loss"]).all()
    assert (table["recovered"] < 0.9).all()
    assert (table["agreement"] < 0.9).all()


def test_without_room_there_is_nothing_to_confuse():
    table = planted_concepts(rows=400, coordinates=20, concepts=1, noise=0.0, seeds=2)
    assert np.allclose(table["recovered"], 1)
    assert np.allclose(table["true_loss"], 0, atol=1e-9)


def test_pooled_copies_look_low_dimensional():
    table = pooled_points(repetitions=3).set_index("points")
    assert 2 <= table.loc["pooled copies", "id_twonn"] <= 7
    assert 20 <= table.loc["independent", "id_twonn"] <= 30
    assert table.loc["pooled copies", "number"] == table.loc["independent", "number"] == 288
    # The drift's size does not matter: TwoNN is blind to scale.
    small = pooled_points(repetitions=3, drift=0.01).set_index("points")
    assert abs(small.loc["pooled copies", "id_twonn"] - table.loc["pooled copies", "id_twonn"]) < 0.5


def test_noise_with_the_same_covariance_is_a_floor_for_agreement():
    random = np.random.default_rng(3)
    # Two far clusters on each side: directions any start finds. Noise of the same covariance has no clusters.
    centres = np.eye(3, 12) * 10
    data = centres[random.integers(3, size=600)] + 0.01 * random.standard_normal((600, 12))
    agreement = surrogate_agreement(data, concepts=3, number=600, tol=1e-4)
    assert 0 < agreement <= 1
    assert surrogate_agreement(data, concepts=3, number=600, tol=1e-4) == agreement
    one = surrogate_agreement(np.outer(random.standard_normal(300) + 5, np.ones(12)), concepts=1, number=300, tol=1e-4)
    assert one > 0.99


def test_unit_directions_do_not_see_a_dominant_one_and_activations_do():
    table = dominated_layer().set_index("reading")
    for reading in ("codes times concepts", "activations"):
        assert table.loc[reading, "dominated_pca_70"] == 1
        assert table.loc[reading, "dominated_rank"] < 0.6 * table.loc[reading, "plain_rank"]
    assert table.loc["concepts", "dominated_rank"] > 0.8 * table.loc["concepts", "plain_rank"]
    assert table.loc["concepts", "dominated_pca_70"] > 5
    # Without the length there is nothing to see.
    same = dominated_layer(length=0.0).set_index("reading")
    assert (same["dominated_rank"] == same["plain_rank"]).all()
