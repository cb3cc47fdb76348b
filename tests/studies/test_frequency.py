"""The frequency study on synthetic collections with known distances, and on real tiny models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig

from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.models.corpus import StudyText
from anisotropy.studies import frequency
from anisotropy.studies.results import Collection

SEED = 3
VOCABULARY, TOKENS = 60, 50


def collections(steps=(0, 1, 2, 4), move=None, tied=False):
    """Rows that move from their start by ``move(token, step)`` along a fixed unit direction each."""
    random = np.random.default_rng(SEED)
    start = random.normal(size=(TOKENS, 8))
    direction = random.normal(size=(TOKENS, 8))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    counts = np.arange(TOKENS, 0, -1) ** 2
    found = []
    for step in steps:
        shift = np.array([move(token, step) if move else 0.0 for token in range(TOKENS)])
        rows = (start + shift[:, None] * direction).astype(np.float32)
        arrays = {"token_ids": np.arange(TOKENS), "counts": counts}
        for matrix in ("input",) if tied else ("input", "output"):
            arrays[f"{matrix}_rows"] = rows
            arrays[f"{matrix}_norm"] = np.linalg.norm(rows.astype(float), axis=1)
            arrays[f"{matrix}_vocabulary"] = np.linalg.norm(rows - rows.mean(0, dtype=float), axis=1)
        arrays["occurrence_ids"] = np.arange(20)
        arrays["occurrence_distance"] = random.uniform(1, 2, size=20)
        found.append(Collection("synthetic", step, f"hash{step}", arrays))
    return found


def reading(table, centroid, matrix="input", stage="trained"):
    return table[(table["centroid"] == centroid) & (table["matrix"] == matrix) & (table["stage"] == stage)]


def test_trajectory_distance_in_closed_form():
    # Two checkpoints weigh 1/2 each; a row that moves by m between them is m/2 from its mean at both.
    table = frequency.token_distances(collections((0, 1, 2), move=lambda token, step: 0.1 * token * step))
    rows = reading(table, "trajectory")
    np.testing.assert_allclose(rows["distance"], 0.05 * rows["token_id"], atol=1e-6)


def test_step_zero_takes_no_part_in_trajectories():
    table = frequency.token_distances(collections((0, 1, 2), move=lambda token, step: 100.0 if step == 0 else 1.0))
    np.testing.assert_allclose(reading(table, "trajectory")["distance"], 0, atol=1e-5)


def test_weights_change_the_trajectory():
    moved = collections((1, 2, 100), move=lambda token, step: float(step == 100))
    by_step, equal = (reading(frequency.token_distances(moved, w), "trajectory")["distance"] for w in ("step", "equal"))
    # A row at 0 with weight p and at 1 with weight 1 - p is 2 p (1 - p) from its mean on average.
    p = 1 - 98 / 2 / 99
    np.testing.assert_allclose(by_step, 2 * p * (1 - p), rtol=1e-5)
    np.testing.assert_allclose(equal, 2 * (2 / 3) * (1 / 3), rtol=1e-5)


def test_relative_displacement_divides_by_the_norm():
    rows = reading(frequency.token_distances(collections(move=lambda token, step: 0.5 * step)), "vocabulary")
    norms = collections(move=lambda token, step: 0.5 * step)[-1].arrays["input_norm"]
    np.testing.assert_allclose(rows["relative"], rows["distance"] / norms)


def test_one_checkpoint_has_no_trajectory():
    table = frequency.token_distances(collections((512,)))
    assert set(table["centroid"]) == {"vocabulary", "occurrences"}
    assert set(table["stage"]) == {"trained"}
    assert frequency.distance_courses(collections((512,))).empty


def test_only_an_untrained_checkpoint_is_not_called_trained_twice():
    table = frequency.token_distances(collections((0,)))
    assert set(table["stage"]) == {"trained"}


def test_tied_matrices_give_one_reading():
    table = frequency.token_distances(collections(tied=True))
    assert set(table["matrix"]) == {"input", "contextual"}
    assert frequency.distance_courses(collections(tied=True), "output").empty


def test_correlations_equal_scipys_and_their_null_is_centred():
    tokens = frequency.token_distances(collections(move=lambda token, step: 0.02 * token * step))
    table = frequency.correlations(tokens, draws=400, seed=1)
    table = table.set_index(["centroid", "matrix", "stage", "value", "kind"]).sort_index()
    rows = reading(tokens, "vocabulary")
    x, y = rows["log10_frequency"], rows["distance"]
    found = table.loc[("vocabulary", "input", "trained", "distance")]
    assert found.loc["pearson", "estimate"] == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.loc["spearman", "estimate"] == pytest.approx(stats.spearmanr(x, y).statistic)
    # The null's standard deviation is exactly 1 / √(n − 1) for Pearson; 95 % is about ± 1.96 of it.
    half_width = (found.loc["pearson", "null_high"] - found.loc["pearson", "null_low"]) / 2
    assert half_width == pytest.approx(1.96 / np.sqrt(TOKENS - 1), rel=0.15)


def test_rare_tokens_that_travel_give_a_negative_correlation_and_shuffled_frequencies_none():
    tokens = frequency.token_distances(collections(move=lambda token, step: 0.05 * token * step))
    table = frequency.correlations(tokens, draws=200)
    found = table[(table["centroid"] == "trajectory") & (table["value"] == "distance") & (table["matrix"] == "input")]
    assert (found["estimate"] < -0.8).all()
    assert (found["p_value"] == 2 / 201).all()
    shuffled = tokens.assign(
        log10_frequency=tokens.groupby(["centroid", "matrix", "stage"])["log10_frequency"].transform(
            lambda column: np.random.default_rng(0).permutation(column)
        )
    )
    table = frequency.correlations(shuffled, draws=200)
    found = table[(table["centroid"] == "trajectory") & (table["value"] == "distance") & (table["matrix"] == "input")]
    assert (found["estimate"].abs() < 0.35).all()


def test_minimum_count_leaves_rare_tokens_out():
    table = frequency.correlations(frequency.token_distances(collections(), minimum_count=100), draws=10)
    assert table[table["centroid"] == "vocabulary"]["n"].max() == (np.arange(TOKENS, 0, -1) ** 2 >= 100).sum()


def test_summary_names_model_and_training_seed():
    table = frequency.summarise({"mini-pythia": collections(), "mini-pythia@2": collections()}, draws=10)
    assert set(zip(table["model"], table["seed"], strict=True)) == {("mini-pythia", 0), ("mini-pythia", 2)}


def test_courses_follow_the_most_and_least_frequent():
    table = frequency.distance_courses(collections(move=lambda token, step: 0.1 * step), tokens=5)
    groups = {group: set(rows["token_id"]) for group, rows in table.groupby("group")}
    assert groups == {"most frequent": set(range(5)), "least frequent": set(range(45, 50))}
    assert sorted(table["step"].unique()) == [1, 2, 4]


def test_study_tokens_from_most_to_least_frequent_without_the_unseen():
    counts = np.array([0, 5, 9, 0, 5, 1])
    assert frequency.study_tokens(counts, 100).tolist() == [2, 1, 4, 5]


def test_too_many_tokens_are_sampled_over_all_ranks():
    counts = np.random.default_rng(0).integers(1, 1000, size=5000)
    chosen = frequency.study_tokens(counts, 300)
    assert 250 < len(chosen) <= 300
    everything = frequency.study_tokens(counts, 5000)
    assert chosen[:5].tolist() == everything[:5].tolist()
    assert chosen[-5:].tolist() == everything[-5:].tolist()
    gaps = np.diff([everything.tolist().index(token) for token in chosen])
    assert gaps.max() < 2 * 5000 / 280


def test_occurrences_are_the_same_number_for_each_token():
    ids = np.random.default_rng(0).zipf(1.5, size=3000).clip(max=200)
    parameters = frequency.Parameters(occurrences=6, seed=4)
    chosen = frequency.choose_occurrences(ids, parameters)
    counts = np.bincount(ids)
    assert set(chosen) == set(np.flatnonzero(counts >= 6))
    for token, positions in chosen.items():
        assert len(set(positions)) == 6
        assert (ids[positions] == token).all()
    again = frequency.choose_occurrences(ids, parameters)
    other = frequency.choose_occurrences(ids, frequency.Parameters(occurrences=6, seed=5))
    assert all((chosen[token] == again[token]).all() for token in chosen)
    assert any((chosen[token] != other[token]).any() for token in chosen)


def checkpoint(config):
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    return Checkpoint(model, "tiny", 0, "causal", None, weight_hash(model))


def small(config_class, **more):
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    return config_class(**sizes, intermediate_size=24, max_position_embeddings=32, **more)


@pytest.fixture(scope="module")
def study_text():
    random = np.random.default_rng(SEED)
    law = 1 / np.arange(1, VOCABULARY + 1)
    blocks = tuple(random.choice(VOCABULARY, size=(6, 16), p=law / law.sum()) for _ in range(4))
    counts = np.bincount(np.concatenate([block.ravel() for block in blocks]), minlength=VOCABULARY)
    return StudyText(blocks, counts, "digest")


def test_collect_against_direct_computation(study_text):
    tiny = checkpoint(small(GPTNeoXConfig, tie_word_embeddings=False))
    parameters = frequency.Parameters(occurrences=3, text_tokens=10**6, probe="Tm")
    arrays = frequency.collect(tiny, study_text, parameters)
    for name, matrix in (
        ("input", tiny.model.gpt_neox.embed_in.weight),
        ("output", tiny.model.get_output_embeddings().weight),
    ):
        rows = matrix.double().numpy()
        ids = arrays["token_ids"]
        np.testing.assert_array_equal(arrays[f"{name}_rows"], matrix.numpy()[ids])
        np.testing.assert_allclose(arrays[f"{name}_vocabulary"], np.linalg.norm(rows - rows.mean(0), axis=1)[ids])
        np.testing.assert_allclose(arrays[f"{name}_norm"], np.linalg.norm(rows, axis=1)[ids])
    # Contextual vectors, one sequence at a time, straight from the model.
    flat = np.concatenate([block.reshape(-1) for block in study_text.blocks])
    hidden = np.concatenate(
        [
            tiny.model(input_ids=torch.from_numpy(block[[i]]), output_hidden_states=True).hidden_states[2][0].numpy()
            for block in study_text.blocks
            for i in range(len(block))
        ]
    )
    chosen = frequency.choose_occurrences(flat, parameters)
    expected = [np.sqrt(hidden[chosen[token]].var(0, ddof=1).sum()) for token in arrays["occurrence_ids"]]
    np.testing.assert_allclose(arrays["occurrence_distance"], expected, rtol=1e-4)


def test_tied_model_has_no_output_rows(study_text):
    arrays = frequency.collect(
        checkpoint(small(LlamaConfig, tie_word_embeddings=True)), study_text, frequency.Parameters(occurrences=3)
    )
    assert not [name for name in arrays if name.startswith("output")]


def test_an_unknown_probe_is_named(study_text):
    llama = checkpoint(small(LlamaConfig, tie_word_embeddings=True))
    with pytest.raises(ValueError, match="E0_in"):
        frequency.collect(llama, study_text, frequency.Parameters(occurrences=3, probe="E0_in"))


def test_no_token_occurs_often_enough(study_text):
    llama = checkpoint(small(LlamaConfig, tie_word_embeddings=True))
    arrays = frequency.collect(llama, study_text, frequency.Parameters(occurrences=10_000))
    assert len(arrays["occurrence_ids"]) == 0
    table = frequency.token_distances([Collection("m", 5, "h", arrays)])
    assert isinstance(table, pd.DataFrame)
    assert set(table["centroid"]) == {"vocabulary"}


def test_cut_offs_give_what_a_single_one_gives():
    found = frequency.by_minimum_count({"m": collections()}, [1, 100, 10**9])
    assert list(found) == [1, 100]
    alone = frequency.summarise({"m": collections()}, minimum_count=100, draws=1)
    pd.testing.assert_frame_equal(found[100], alone)


def test_group_cosines_of_a_planted_cone():
    cone = collections(steps=(4,))[0]
    cone.arrays["input_rows"][25:] = np.array([3.0] + [0.0] * 7)  # the rarer half points one way
    table = frequency.group_cosines(cone, groups=2)
    cosines = table[table["matrix"] == "input"].set_index("group")["cosine"]
    assert cosines[1] == pytest.approx(1)
    assert abs(cosines[2]) < 0.15
    assert table["tokens"].tolist() == [25] * 4
