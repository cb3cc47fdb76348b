"""What the concept study collects: on tiny models, planted activations, and where it has to refuse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

from anisotropy.concepts import match
from anisotropy.errors import UserError
from anisotropy.geometry import effective_rank, pca_components
from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.models.corpus import StudyText
from anisotropy.studies import concept_tables
from anisotropy.studies.concept_cards import make_cards
from anisotropy.studies.concept_tables import LAYERS, Parameters
from anisotropy.studies.results import Collection

SEED, VOCABULARY, SIZE = 3, 60, 32
SMALL = Parameters(concepts=12, rows=300, text_tokens=1_000_000, seeds=2, ica_rows=300, card_rows=300, draws=2)


def checkpoint(config, plant=None):
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    if plant is not None:
        plant(model)
    return Checkpoint(model, "tiny", 7, "causal", None, weight_hash(model))


def neox(**more):
    sizes = {"vocab_size": VOCABULARY, "hidden_size": SIZE, "num_hidden_layers": 4, "num_attention_heads": 2}
    return GPTNeoXConfig(**sizes, intermediate_size=48, max_position_embeddings=32, tie_word_embeddings=False, **more)


@pytest.fixture(scope="module")
def text():
    random = np.random.default_rng(SEED)
    blocks = tuple(random.integers(VOCABULARY, size=(6, 16)) for _ in range(4))
    counts = np.bincount(np.concatenate([block.ravel() for block in blocks]), minlength=VOCABULARY)
    counts[VOCABULARY - 1] = 0
    return StudyText(blocks, counts, "digest")


@pytest.fixture(scope="module")
def collected(text):
    tiny = checkpoint(neox())
    return tiny, concept_tables.collect(tiny, text, SMALL)


def test_activations_are_those_of_a_direct_run(text):
    tiny = checkpoint(neox())
    reservoir = concept_tables.choose_rows(384, 50, 0)
    layers = concept_tables.read_layers(tiny, text.blocks, reservoir)
    for layer, entry in {"first": 0, "middle": 2, "last": 3}.items():
        direct = np.concatenate(
            [
                tiny.model(input_ids=torch.from_numpy(block[[i]]), output_hidden_states=True)
                .hidden_states[entry][0]
                .numpy()
                for block in text.blocks
                for i in range(len(block))
            ]
        )
        np.testing.assert_allclose(layers[layer], direct[reservoir], rtol=1e-4, atol=1e-6)


def test_rows_are_drawn_once_each_and_from_a_seed():
    rows = concept_tables.choose_rows(100, 40, 1)
    assert len(set(rows)) == 40
    assert (rows == concept_tables.choose_rows(100, 40, 1)).all()
    assert (rows != concept_tables.choose_rows(100, 40, 2)).any()
    assert sorted(concept_tables.choose_rows(30, 40, 1)) == list(range(30))


def test_what_is_collected_has_its_shapes_and_units(collected):
    _, arrays = collected
    for layer in LAYERS:
        directions = arrays[f"{layer}_directions"]
        assert directions.shape == (2, 12, SIZE)
        np.testing.assert_allclose(np.linalg.norm(directions, axis=2), 1, rtol=1e-5)
        assert (np.diff(arrays[f"{layer}_mean_code"], axis=1) <= 0).all()
        assert ((arrays[f"{layer}_loss"] > 0) & (arrays[f"{layer}_loss"] < 1)).all()
        np.testing.assert_allclose(arrays[f"{layer}_principal"] @ arrays[f"{layer}_principal"].T, np.eye(12), atol=1e-5)
        assert arrays[f"{layer}_rank_without_block"].shape == (4,)
    assert {name for name in arrays if name.endswith("c_w")} == {"first_c_w", "middle_c_w"}
    assert arrays["card_contexts"].shape == (12, 5, 19)
    assert (arrays["card_unembeddings"] != VOCABULARY - 1).all()  # never seen in training


def test_raw_measures_and_their_jackknife_are_of_the_activations(collected, text):
    tiny, arrays = collected
    rows = concept_tables.read_layers(tiny, text.blocks, arrays["reservoir"])["middle"]
    assert arrays["middle_raw"][3] == pytest.approx(effective_rank(rows).estimate)
    assert arrays["middle_raw"][2] == pca_components(rows).estimate
    of_block = arrays["reservoir"] // 96
    for block in range(4):
        left = effective_rank(rows[of_block != block]).estimate
        assert arrays["middle_rank_without_block"][block] == pytest.approx(left, rel=1e-6)


def test_the_next_weight_is_the_next_blocks_first_map():
    tiny = checkpoint(neox())
    for layer, block in {"first": 1, "middle": 3}.items():
        expected = tiny.model.gpt_neox.layers[block].attention.query_key_value.weight
        np.testing.assert_array_equal(concept_tables.next_weight(tiny.model, layer), expected.numpy())
    assert concept_tables.next_weight(tiny.model, "last") is None


def test_weights_that_are_kept_transposed_are_turned():
    gpt2 = checkpoint(GPT2Config(vocab_size=VOCABULARY, n_embd=SIZE, n_layer=3, n_head=2, n_positions=32))
    weight = concept_tables.next_weight(gpt2.model, "first")
    np.testing.assert_array_equal(weight, gpt2.model.transformer.h[1].attn.c_attn.weight.T.numpy())


def test_few_coordinates_have_fewer_concepts(text):
    assert concept_tables.concept_count(Parameters(concepts=48), 32) == 24
    assert concept_tables.concept_count(Parameters(concepts=48), 128) == 48
    arrays = concept_tables.collect(checkpoint(neox()), text, SMALL.model_copy(update={"concepts": 99}))
    assert arrays["middle_directions"].shape == (2, 24, SIZE)
    assert arrays["ica"].shape == (24, SIZE)


def test_two_blocks_leave_no_weight_after_the_middle_one():
    sizes = {"vocab_size": VOCABULARY, "hidden_size": SIZE, "intermediate_size": 48, "num_attention_heads": 2}
    llama = checkpoint(LlamaConfig(**sizes, num_hidden_layers=2, max_position_embeddings=32))
    assert concept_tables.next_weight(llama.model, "first") is not None
    assert concept_tables.next_weight(llama.model, "middle") is None


def test_a_weight_that_reads_the_concepts_matches_and_a_random_one_does_as_chance_says():
    class Fit:
        def __init__(self, rows):
            self.components_ = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    random = np.random.default_rng(0)
    own, other = random.standard_normal((2, 20, 64))
    parameters = Parameters(draws=20)
    same = concept_tables._weight_correlation("first", [Fit(own)], [Fit(-own[::-1])], parameters)
    assert same["first_c_w"][0] == pytest.approx(1)
    strange = concept_tables._weight_correlation("first", [Fit(own)], [Fit(other)], parameters)
    # The baseline against an independent simulation: fresh pairs of random sets, matched the same way.
    simulated = [match(*random.standard_normal((2, 20, 64))).mean for _ in range(20)]
    assert strange["first_c_w_baseline"].mean() == pytest.approx(np.mean(simulated), abs=0.02)
    assert strange["first_c_w"][0] == pytest.approx(np.mean(simulated), abs=0.05)


def test_fits_that_do_not_settle_are_recorded_without_a_warning(text):
    tiny = checkpoint(neox())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays = concept_tables.collect(tiny, text, SMALL.model_copy(update={"max_iter": 1}))
    assert not arrays["middle_converged"].any()
    assert (arrays["middle_iterations"] == 1).all()


def constant(model):
    model.gpt_neox.embed_in.weight.fill_(1.0)


def broken(model):
    model.gpt_neox.embed_in.weight[5] = float("nan")


@pytest.mark.parametrize(
    ("plant", "change", "message"),
    [
        (constant, {}, r"tiny, step 7, first layer \(T1_in\): the activations are the same for all 300 tokens"),
        (broken, {}, r"tiny, step 7, first layer \(T1_in\): \d+ of 9600 activations are not finite"),
        (None, {"rows": 20, "concepts": 24}, "20 rows for 24 concepts"),
    ],
)
def test_what_cannot_be_factorised_is_refused_by_name(text, plant, change, message):
    with pytest.raises(UserError, match=message):
        concept_tables.collect(checkpoint(neox(), plant), text, SMALL.model_copy(update=change))


def test_excess_is_a_residual_of_independence():
    random = np.random.default_rng(4)
    rank_one = np.outer(random.random(30), random.random(5))
    excess, expected = concept_tables.code_excess(rank_one)
    np.testing.assert_allclose(expected, rank_one)
    np.testing.assert_allclose(excess, 0, atol=1e-12)
    rank_one[3, 2] *= 4
    excess, _ = concept_tables.code_excess(rank_one)
    assert np.unravel_index(excess.argmax(), excess.shape) == (3, 2)
    assert (concept_tables.code_excess(np.zeros((4, 2)))[0] == 0).all()


def test_cards_of_a_concept_that_fires_on_planted_tokens():
    ids = np.arange(64) % 10
    codes = np.ones((64, 3))
    codes[ids == 4, 1] = 9.0
    codes[:, 2] = 0
    arrays = concept_tables.card_arrays(codes, ids, np.arange(64), 16, 3)
    assert arrays["card_tokens"][1, 0] == 4
    assert arrays["card_active"].tolist() == [1, 1, 0]
    assert (arrays["card_contexts"][1, :, 12] == 4).all()
    assert (arrays["card_contexts"][2] == -1).all()
    # One example a sequence, and no context leaves its sequence: token 4 stands at place 4 of the first one.
    first = next(context for context in arrays["card_contexts"][1] if context[11] == 3 and (context[:8] == -1).all())
    assert first[8:].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_long_activations_do_not_head_every_card():
    codes = np.ones((400, 2))
    codes[0] = 100  # a long activation with as much of each concept
    codes[100:130, 0] = 5
    ids = np.zeros(400, dtype=int)
    ids[0], ids[100:130] = 1, 2
    arrays = concept_tables.card_arrays(codes, ids, np.arange(400), 400, 1)
    assert arrays["card_tokens"][0, 0] == 2
    assert arrays["card_contexts"][0, 0, 12] == 2


def test_nearest_unembeddings_are_taken_about_the_mean_and_leave_unseen_tokens_out():
    matrix = np.full((10, 4), 5.0)
    matrix[2] += [3, 0, 0, 0]
    matrix[3] -= [3, 0, 0, 0]
    matrix[9] += [9, 0, 0, 0]
    counts = np.ones(10)
    counts[9] = 0
    arrays = concept_tables.nearest_unembeddings(np.eye(1, 4, dtype=np.float32), matrix, counts)
    assert arrays["card_unembeddings"][0, 0] == 2
    assert arrays["card_cosines"][0, 0] == pytest.approx(1)
    assert 9 not in arrays["card_unembeddings"]


def test_a_card_names_the_words_of_a_planted_concept():
    """A toy corpus in which two words share a direction that nothing else has."""
    words = [11, 23]

    def plant(model):
        direction = torch.zeros(SIZE)
        direction[0] = 6.0
        model.gpt_neox.embed_in.weight[words] += direction
        model.get_output_embeddings().weight[31] += direction

    random = np.random.default_rng(8)
    blocks = tuple(random.integers(VOCABULARY, size=(10, 16)) for _ in range(4))
    text = StudyText(blocks, np.ones(VOCABULARY, dtype=np.int64), "digest")
    parameters = SMALL.model_copy(update={"rows": 640, "card_rows": 640, "tol": 1e-5})
    arrays = concept_tables.collect(checkpoint(neox(initializer_range=0.01), plant), text, parameters)
    card = make_cards([Collection("toy", 1, "hash", arrays)], 1)[0]
    assert abs(arrays["middle_directions"][0, 0, 0]) > 0.9
    assert {token for token, _ in card.tokens} == set(words)
    assert sum(share for _, share in card.tokens) == pytest.approx(1)
    assert all(example.token in words and example.times_expected > 2 for example in card.examples)
    assert card.unembeddings[0][0] == 31
    assert card.activation[-1] > 2
