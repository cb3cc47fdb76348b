"""Alignment tables of collections with planted covariances: every number has a closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planted_gradients import BLOCKS, PROBES, D, K, axes, collection, role, run
from scipy import stats

from anisotropy.errors import UserError
from anisotropy.geometry.subspaces import subspace_similarity
from anisotropy.studies.results import Collection
from anisotropy.studies.tangent_bases import Course
from anisotropy.studies.tangent_cells import Choices, cells
from anisotropy.studies.tangent_tables import course_table, rank_table, spectrum_table, stage_table, summarise

CHOICES = Choices(rank=K, draws=200, null_draws=39)


def tables(collections, **choices):
    chosen = CHOICES.model_copy(update=choices)
    course = Course(collections, chosen.weighting, chosen.seed)
    found = cells(course, chosen)
    return course_table(found, chosen.draws), stage_table(course, found, chosen)


def quantity(stages, name, **where):
    where = {"gradient": "activation", "basis": "early", "stage": "early", "probe": "Tm"} | where
    for column, value in where.items():
        stages = stages[stages[column] == value]
    (row,) = stages[stages["quantity"] == name].to_dict("records")
    return row


def spectrum_score(variances):
    return (np.sum(variances) ** 2 / np.sum(np.square(variances)) - 1) / (D - 1)


@pytest.mark.parametrize("basis", ["early", "own"])
def test_planted_alignment_gives_the_planted_ratio(basis):
    course, stages = tables(run(8.0, untrained=1.0))
    at = course[(course["basis"] == basis) & (course["probe"] == "Tm")].set_index("step")
    assert at.loc[100, "energy_ratio"] == pytest.approx(8.0, rel=0.02)
    assert at.loc[0, "energy_ratio"] == pytest.approx(1.0, rel=0.02)
    assert at.loc[100, "energy_ratio_low"] < at.loc[100, "energy_ratio"] < at.loc[100, "energy_ratio_high"]
    row = quantity(stages, "energy_ratio", basis=basis)
    assert row["estimate"] == pytest.approx(8.0, rel=0.02)
    assert row["low"] < row["estimate"] < row["high"]


def test_semi_nmf_spans_the_same_directions_when_variance_is_where_the_proxy_is():
    course = Course(run(8.0))
    concepts = course.proxy("semi_nmf", "activation", 100, "Tm", K).tangent
    principal = course.proxy("early", "activation", 100, "Tm", K).tangent
    torch.testing.assert_close(concepts.T @ concepts, torch.eye(K, dtype=torch.float64))
    assert float(subspace_similarity(concepts, principal)) > 0.9


def test_controls_are_what_was_planted():
    course, stages = tables(run(8.0, shuffled=3.0, untrained=2.0))
    at = course[(course["basis"] == "early") & (course["probe"] == "Tm") & (course["step"] == 100)].iloc[0]
    assert at["energy_ratio_shuffled_labels"] == pytest.approx(3.0, rel=0.02)
    # The proxies of the two probes are different axes; of k directions outside a proxy each has its share of 1 − e.
    e = 8 * K / (8 * K + D - K)
    beside = ((1 - e) * K / (D - K)) / (1 - (1 - e) * K / (D - K)) * (D - K) / K
    assert at["energy_ratio_other_probe"] == pytest.approx(beside, rel=0.02)
    assert at["energy_ratio_next_variance"] == pytest.approx(beside, rel=0.02)
    for control, value in (("shuffled labels", 3.0), ("untrained", 2.0), ("other probe", beside)):
        row = quantity(stages, f"advantage over {control}")
        assert row["estimate"] == pytest.approx(np.log(8.0 / value), abs=0.03)
        assert row["low"] <= row["estimate"] <= row["high"]


def test_removing_the_planted_subspace_raises_isoscore_by_the_closed_form():
    _, stages = tables(run(8.0))
    before, after = spectrum_score([8.0] * K + [1.0] * (D - K)), spectrum_score([1.0] * (D - K))
    expected = 100 * (after / before - 1)
    assert quantity(stages, "delta_isoscore_star_tangent_percent")["estimate"] == pytest.approx(expected, rel=0.02)
    normal = spectrum_score([8.0] * K + [1.0] * (D - 2 * K))
    found = quantity(stages, "delta_isoscore_star_normal_percent")["estimate"]
    assert found == pytest.approx(100 * (normal / before - 1), rel=0.05)
    assert quantity(stages, "base_isoscore_star")["estimate"] == pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("zeta", [0.0, 0.2])
def test_on_isotropic_gradients_removing_anything_costs_the_trivial_baseline(zeta):
    flat = [Collection("flat", found.step, found.weight_hash, dict(found.arrays)) for found in run(1.0)]
    for found in flat:
        for probe in PROBES:
            found.arrays.update(role(f"{probe}.activation.gradient", [axes()] * BLOCKS))
    _, stages = tables(flat, zeta=zeta)
    a = (1 - zeta) ** 2
    trivial = -100 * D * K * a / ((D - 1) * (D - K * (1 - a)))
    for name in ("delta_null", "delta_isoscore_star_tangent_percent", "delta_isoscore_star_normal_percent"):
        assert quantity(stages, name)["estimate"] == pytest.approx(trivial, rel=1e-5), name
    assert quantity(stages, "excess")["estimate"] == pytest.approx(0, abs=1e-4)
    assert quantity(stages, "energy_ratio")["estimate"] == pytest.approx(1, rel=1e-5)


def test_the_sign_test_counts_blocks():
    _, stages = tables(run(8.0))
    expected = stats.binomtest(BLOCKS, BLOCKS, 0.5, alternative="greater").pvalue
    assert quantity(stages, "p_isoscore_sign")["estimate"] == pytest.approx(expected)
    assert quantity(stages, "p_energy_null")["estimate"] == pytest.approx(1 / 21)
    assert quantity(stages, "p_energy_calibrated")["estimate"] == pytest.approx(1 / 40)


def test_the_mean_gradient_counts_unless_energy_is_centred():
    """A mean along the proxy: uncentred energy sees it, centred energy does not."""
    shifted = run(1.0)
    for found in shifted:
        for probe, at in (("T1_in", 0), ("Tm", 12)):
            mean = np.zeros(D)
            mean[at] = 10.0
            found.arrays.update(role(f"{probe}.activation.gradient", [axes()] * BLOCKS, mean))
    _, uncentred = tables(shifted)
    _, centred = tables(shifted, centre=True)
    e = (K + 100) / (D + 100)
    expected = e / (1 - e) * (D - K) / K
    assert quantity(uncentred, "energy_ratio")["estimate"] == pytest.approx(expected, rel=1e-4)
    assert quantity(centred, "energy_ratio")["estimate"] == pytest.approx(1, rel=1e-4)


def test_stages_weigh_checkpoints_by_the_steps_they_stand_for():
    ratios = {0: 1.0, 10: 2.0, 20: 4.0, 30: 8.0, 70: 16.0, 100: 32.0}
    found = [collection(step, ratio) for step, ratio in ratios.items()]
    _, by_step = tables(found)
    _, equal = tables(found, weighting="equal")
    logs = np.log([2, 4, 8])
    weighted = quantity(by_step, "energy_ratio", basis="own")["estimate"]
    assert weighted == pytest.approx(np.exp([0.25, 0.5, 0.25] @ logs), rel=0.02)
    assert quantity(equal, "energy_ratio", basis="own")["estimate"] == pytest.approx(np.exp(logs.mean()), rel=0.02)
    late = quantity(by_step, "energy_ratio", basis="own", stage="late")["estimate"]
    assert late == pytest.approx(np.sqrt(16 * 32), rel=0.02)


def test_the_weight_reading_stands_beside_with_its_own_controls():
    course, stages = tables(run(8.0, shuffled=3.0, weight=True))
    weight = course[(course["gradient"] == "weight") & (course["step"] == 100)].iloc[0]
    assert weight["energy_ratio_unpaired"] == pytest.approx(3.0, rel=1e-4)
    variances = np.r_[100.0 + np.arange(2 * K)[::-1][:K] * 3, 20.0 + np.arange(K)[::-1] * 3, [1.0] * (D - 2 * K)]
    e = variances[:K].sum() / variances.sum()
    assert weight["energy_ratio_noise"] == pytest.approx(e / (1 - e) * (D - K) / K, rel=1e-4)
    assert set(stages["gradient"]) == {"activation", "weight"}


def test_a_model_with_one_checkpoint_has_its_own_basis_and_no_untrained_control():
    _, stages = tables([collection(512, 8.0)])
    assert set(stages["basis"]) == {"own"}
    assert set(stages["stage"]) == {"only"}
    assert not stages["quantity"].str.contains("untrained").any()
    course = Course([collection(512, 8.0)])
    assert course.bases() == ["own"]
    with pytest.raises(UserError, match="'early' needs a checkpoint in the first 3/10"):
        course.proxy("early", "activation", 512, "Tm", K)


@pytest.mark.parametrize("rank", [D // 2, D, 100])
def test_a_rank_without_room_for_its_control_is_refused(rank):
    with pytest.raises(UserError, match=rf"rank {rank} does not fit planted.*2·rank < d = {D}"):
        cells(Course(run()), CHOICES.model_copy(update={"rank": rank}))


def test_ranks_up_to_the_planted_one_raise_energy_beyond_it_they_dilute():
    table = rank_table(Course(run(8.0)), CHOICES, [1, 2, K, 2 * K, 11, 12, 400], "early", "late")
    at = table[table["probe"] == "Tm"].set_index("rank")
    assert list(at.index) == [1, 2, K, 2 * K, 11]
    e = lambda k: (8 * min(k, K) + max(0, k - K)) / (8 * K + D - K)  # noqa: E731
    for rank in at.index:
        expected = e(rank) / (1 - e(rank)) * (D - rank) / rank
        assert at.loc[rank, "energy_ratio"] == pytest.approx(expected, rel=0.03)
    assert rank_table(Course([collection(1, 2.0)]), CHOICES, [2], "own", "late").empty


def test_spectra_are_shares():
    table = spectrum_table(Course(run(8.0)), 100)
    at = table[table["probe"] == "Tm"].set_index("direction")
    assert at["gradient_energy"].sum() == pytest.approx(1)
    assert at["activation_variance"].sum() == pytest.approx(1)
    np.testing.assert_allclose(at.loc[1:K, "gradient_energy"], 8 / (8 * K + D - K), rtol=0.02)
    assert at["activation_variance"].is_monotonic_decreasing


def test_models_are_summarised_side_by_side_with_their_training_seed():
    courses, stages = summarise(
        {"planted": run(8.0), "planted@1": run(4.0, model="planted@1")}, CHOICES.model_copy(update={"draws": 100})
    )
    assert list(courses) == ["planted", "planted@1"]
    assert set(zip(stages["model"], stages["seed"], strict=True)) == {("planted", 0), ("planted", 1)}


def test_the_same_seed_gives_the_same_tables():
    _, first = tables(run(8.0))
    _, again = tables(run(8.0))
    _, other = tables(run(8.0), seed=1)
    np.testing.assert_array_equal(first["low"], again["low"])
    assert (first["low"].dropna() != other["low"].dropna()).any()
