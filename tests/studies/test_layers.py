"""Isotropy by layer: planted clouds with known answers, and small real models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import FAMILIES, small_model

from anisotropy.errors import UserError
from anisotropy.geometry.isotropy import isoscore, mean_cosine
from anisotropy.models.corpus import StudyText
from anisotropy.models.loaded import Checkpoint
from anisotropy.studies import layers
from anisotropy.studies.layers import MEASURES, REPLICATED, Parameters, collect, gaussian_isoscore, summarise
from anisotropy.studies.results import Collection

SMALL = Parameters(rows=256, text_tokens=512, groups=4, angles=50)


@pytest.fixture(scope="module")
def text():
    random = np.random.default_rng(0)
    blocks = tuple(random.integers(3, 50, size=(4, 16)) for _ in range(8))
    return StudyText(blocks, np.ones(50, dtype=np.int64), "digest")


def checkpoint(family="llama", **more):
    return Checkpoint(small_model(family, **more), "tiny", 5, FAMILIES[family][3], None, "hash")


def planted(monkeypatch, *clouds):
    """`collect` as if the model's hidden states were these clouds, shape (512, d) each."""
    monkeypatch.setattr(
        layers, "_hidden_states", lambda _, __, chosen: [cloud[torch.from_numpy(chosen)] for cloud in clouds]
    )


def round_cloud(d=24, seed=0):
    return torch.randn(512, d, generator=torch.Generator().manual_seed(seed))


class TestCollect:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_layers_are_the_hidden_states_of_a_direct_run(self, family, text):
        model = checkpoint(family)
        everything = Parameters(rows=512, text_tokens=512, groups=4, angles=50)
        arrays = collect(model, text, everything)
        with torch.no_grad():
            ids = torch.from_numpy(np.concatenate(text.blocks))
            states = model.model(input_ids=ids, output_hidden_states=True).hidden_states
        assert len(arrays["cosine"]) == len(states) == 5
        covariances = [torch.cov(state.reshape(-1, 16).double().T) for state in states]
        assert arrays["isoscore"] == pytest.approx([float(isoscore(each)) for each in covariances], rel=1e-4)
        flat = [state.reshape(-1, 16) for state in states]
        assert arrays["length"] == pytest.approx([float(rows.norm(dim=1).mean()) for rows in flat], rel=1e-5)
        assert arrays["contributions"].sum(axis=1) == pytest.approx(arrays["cosine"], abs=1e-5)

    def test_shapes_and_names(self, text):
        arrays = collect(checkpoint(), text, SMALL)
        assert {name: arrays[name].shape for name in MEASURES} == dict.fromkeys(MEASURES, (5,))
        assert {name: arrays[f"without_{name}"].shape for name in REPLICATED} == dict.fromkeys(REPLICATED, (4, 5))
        assert arrays["contributions"].shape == (5, 16)
        assert arrays["angles"].shape == (5, 50)
        assert (arrays["rows"], arrays["dimensions"]) == (256, 16)

    def test_a_shifted_ball_is_a_cone_that_is_not_flat(self, monkeypatch, text):
        shift = 6 * torch.nn.functional.normalize(torch.ones(24), dim=0)
        planted(monkeypatch, round_cloud(), round_cloud() + shift)
        arrays = collect(checkpoint(), text, SMALL)
        # E cos ≈ m²/(m² + d) for x = m + ε: the share of the mean in the squared length.
        assert arrays["mean_share"][1] == pytest.approx(36 / (36 + 24), abs=0.03)
        assert arrays["cosine"] == pytest.approx([0, 36 / 60], abs=0.03)
        assert arrays["cosine_centred"] == pytest.approx([0, 0], abs=0.02)
        assert arrays["isoscore"][0] == pytest.approx(arrays["isoscore"][1], rel=1e-6)
        assert arrays["isoscore"][0] > 0.85
        # The shift is spread over all coordinates, so leaving three out changes nothing.
        assert arrays["cosine_without"][1] == pytest.approx(arrays["cosine"][1], abs=0.02)
        assert np.median(arrays["angles"][0]) == pytest.approx(np.pi / 2, abs=0.1)
        assert np.median(arrays["angles"][1]) < 0.9

    def test_three_large_coordinates_make_a_cone_and_go_when_left_out(self, monkeypatch, text):
        cloud = round_cloud()
        cloud[:, [3, 7, 11]] += 20
        planted(monkeypatch, cloud)
        arrays = collect(checkpoint(), text, SMALL)
        assert arrays["cosine"][0] > 0.95
        assert arrays["cosine_without"][0] == pytest.approx(0, abs=0.02)
        assert arrays["coordinate_share"][0] == pytest.approx(1, abs=0.01)
        assert set(np.argsort(arrays["contributions"][0])[-3:]) == {3, 7, 11}

    def test_a_coordinate_of_large_variance_makes_flatness_without_a_cone(self, monkeypatch, text):
        cloud = round_cloud()
        cloud[:, 5] *= 30
        planted(monkeypatch, cloud)
        arrays = collect(checkpoint(), text, SMALL)
        assert abs(arrays["cosine"][0]) < 0.05
        assert arrays["isoscore"][0] < 0.01

    def test_repeated_tokens_do_not_count_as_a_cone(self, monkeypatch, text):
        tokens = torch.from_numpy(np.concatenate([block.ravel() for block in text.blocks]))
        planted(monkeypatch, round_cloud(24)[tokens])
        arrays = collect(checkpoint(), text, SMALL)
        rows = round_cloud(24)[tokens]
        assert float(mean_cosine(rows)) > 0.01
        assert abs(arrays["cosine"][0]) < 0.012

    def test_same_seed_same_numbers_another_seed_others(self, text):
        first, again = collect(checkpoint(), text, SMALL), collect(checkpoint(), text, SMALL)
        other = collect(checkpoint(), text, SMALL.model_copy(update={"seed": 1}))
        assert all(np.array_equal(first[name], again[name]) for name in first)
        assert not np.array_equal(first["cosine"], other["cosine"])

    def test_a_batch_holds_what_its_tokens_need(self, monkeypatch, text):
        whole = collect(checkpoint(), text, SMALL)
        monkeypatch.setattr(layers, "_SEQUENCES_A_BATCH", 3)
        parts = collect(checkpoint(), text, SMALL)
        assert parts["cosine"] == pytest.approx(whole["cosine"], abs=1e-5)


class TestRefuses:
    def test_more_groups_than_blocks(self, text):
        with pytest.raises(UserError, match="groups is 9, but the text has 8 blocks"):
            collect(checkpoint(), text, SMALL.model_copy(update={"groups": 9}))

    def test_more_coordinates_than_there_are(self, text):
        with pytest.raises(UserError, match="coordinates is 16, but the vectors of tiny have only 16"):
            collect(checkpoint(), text, SMALL.model_copy(update={"coordinates": 16}))

    @pytest.mark.parametrize(("value", "message"), [(float("nan"), "finite"), (0.0, "zero")])
    def test_vectors_without_a_direction(self, monkeypatch, text, value, message):
        planted(monkeypatch, round_cloud(), torch.full((512, 24), value))
        with pytest.raises(UserError, match=f"tiny, step 5, layer 1: .*{message}"):
            collect(checkpoint(), text, SMALL)


class TestSummary:
    def test_rows_and_intervals(self, text):
        arrays = collect(checkpoint(), text, SMALL)
        table = summarise({"tiny": [Collection("tiny", 5, "hash", arrays)]})
        assert len(table) == 5 * len(MEASURES)
        replicated = table[table["measure"].isin(REPLICATED)]
        assert (replicated["low"] <= replicated["value"]).all()
        assert table.loc[table["measure"] == "effective_rank", "low"].isna().all()
        assert table["depth"].max() == 1
        assert set(table.loc[table["normed"], "layer"]) == {4}

    def test_the_jackknife_of_a_mean_is_its_t_interval(self):
        values = np.random.default_rng(0).normal(size=6)
        left_out = np.array([np.delete(values, i).mean() for i in range(6)])
        from anisotropy.studies.replicates import mean_interval

        interval = mean_interval(values)
        assert layers._half_width(left_out) == pytest.approx((interval.high - interval.low) / 2)


@pytest.mark.parametrize(("n", "d"), [(200, 20), (100, 50), (64, 100)])
def test_round_gaussian_rows_score_what_is_said(n, d):
    random = np.random.default_rng(0)
    scores = [float(isoscore(torch.from_numpy(np.cov(random.standard_normal((n, d)).T)))) for _ in range(20)]
    assert np.mean(scores) == pytest.approx(gaussian_isoscore(n, d), abs=4 * np.std(scores) / 20**0.5 + 0.002)
