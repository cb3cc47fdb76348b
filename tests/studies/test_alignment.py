"""The alignment study on planted concepts, on random ones, and on small models of several families."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import FAMILIES, MASK, VOCABULARY, small_model

from anisotropy.concepts.decompositions import METHODS, decompose
from anisotropy.concepts.matching import absolute_correlations, match
from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.models.corpus import StudyText
from anisotropy.report.rules.alignment import better_than_ica, stronger_concepts_align
from anisotropy.report.scorecard import Outcome
from anisotropy.studies import alignment
from anisotropy.studies.alignment_tables import rank_trends, summarise
from anisotropy.studies.results import Collection

SMALL = alignment.Parameters(text_tokens=960, tokens=600, groups=3, weight_seeds=2, rotations=3, components=6)


@pytest.fixture(scope="module")
def text():
    random = np.random.default_rng(3)
    law = 1 / np.arange(3, VOCABULARY)
    blocks = tuple(random.choice(np.arange(3, VOCABULARY), size=(10, 16), p=law / law.sum()) for _ in range(6))
    return StudyText(blocks, np.bincount(np.concatenate([b.ravel() for b in blocks]), minlength=VOCABULARY), "digest")


def checkpoint(family="gpt_neox", step=0, **more):
    model = small_model(family, layers=2, **more).requires_grad_(False)
    objective = FAMILIES[family][3]
    return Checkpoint(model, "small", step, objective, MASK if objective == "masked" else None, weight_hash(model))


@pytest.fixture(scope="module")
def collected(text):
    return alignment.collect(checkpoint(), text, SMALL)


def frame(random, k, d):
    return np.linalg.qr(random.standard_normal((d, k)))[0].T


def test_groups_hold_activations_and_gradients_of_the_summed_loss(text):
    """Against one backward pass of our own over all of a group; batches of 32 sequences must not show."""
    tiny = checkpoint()
    first = next(alignment._groups(tiny, text, SMALL.model_copy(update={"tokens": 10_000}), {}))
    ids = torch.from_numpy(np.concatenate(text.blocks[::3]))
    embedded = tiny.model.gpt_neox.embed_in.weight.detach()[ids].requires_grad_(True)
    logits = tiny.model(inputs_embeds=embedded).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, embedded)
    expected = gradient[:, :-1].reshape(-1, 16).double().numpy()
    np.testing.assert_array_equal(first.data, embedded.detach()[:, :-1].reshape(-1, 16).numpy())
    np.testing.assert_allclose(first.gradient, expected / np.sqrt((expected**2).mean()), atol=1e-4)
    assert not np.allclose(first.shuffled, first.gradient, atol=0.1)


def test_a_sample_is_spread_over_the_group_and_has_the_asked_size(text):
    whole = list(alignment._groups(checkpoint(), text, SMALL.model_copy(update={"tokens": 10_000}), {}))
    sample = list(alignment._groups(checkpoint(), text, SMALL, {}))
    assert [len(group.data) for group in sample] == [200] * 3
    for all_rows, group in zip(whole, sample, strict=True):
        places = [
            int(np.flatnonzero((all_rows.gradient / group.gradient[i]).std(1) < 1e-4)[0]) for i in range(0, 200, 20)
        ]
        assert places == sorted(places)
        assert places[-1] > 200


def test_groups_are_equal_where_blocks_are_not(text):
    uneven = SMALL.model_copy(update={"text_tokens": 39 * 16, "tokens": 10_000})
    assert [len(group.data) for group in alignment._groups(checkpoint(), text, uneven, {})] == [13 * 15] * 3


def test_the_last_token_of_a_causal_sequence_takes_no_part(text):
    few = SMALL.model_copy(update={"tokens": 10_000})
    assert [len(group.data) for group in alignment._groups(checkpoint(), text, few, {})] == [2 * 10 * 15] * 3


def test_summaries_are_those_of_the_kept_concepts(collected):
    for method in METHODS:
        found = match(collected[f"data_{method}"], collected[f"gradient_{method}"])
        expected = [found.mean, found.top, found.above_gap]
        np.testing.assert_allclose(collected[f"gradient_{method}_matched"][0], expected, rtol=1e-5)
        np.testing.assert_allclose(collected[f"gradient_{method}_correlations"][0], found.correlations, rtol=1e-4)
    assert collected["gradient_pca_rotated"].shape == (3, 3, 3)
    assert collected["dimensions"].tolist() == [16]


def test_data_concepts_are_their_own_image_at_the_embedding(text, collected):
    rows = alignment._matrices(checkpoint(), {}, SMALL)["embedding"]
    weights = decompose(rows, "pca", 6).components
    expected = absolute_correlations(weights, collected["data_pca"])
    np.testing.assert_allclose(collected["weight_embedding_pca"][0], expected, atol=1e-3)


def test_the_image_of_a_linear_map_is_exact():
    random = np.random.default_rng(0)
    rows = random.laplace(size=(400, 5)) @ random.standard_normal((5, 12)) + 0.1
    matrix = random.standard_normal((12, 20))
    for method in METHODS:
        concepts = decompose(rows, method, 5)
        fitted = concepts.codes @ concepts.components + concepts.mean
        found = alignment.image(concepts, fitted @ matrix + (3.0 if method != "semi_nmf" else 0.0))
        np.testing.assert_allclose(found, concepts.components @ matrix, atol=1e-6)


def test_equal_twice_and_another_seed_gives_other_numbers(text, collected):
    again = alignment.collect(checkpoint(), text, SMALL)
    other = alignment.collect(checkpoint(), text, SMALL.model_copy(update={"seed": 1}))
    for name, array in collected.items():
        np.testing.assert_array_equal(array, again[name])
    assert not np.allclose(other["gradient_ica_matched"], collected["gradient_ica_matched"])


def test_no_two_uses_share_a_seed():
    streams = [
        (stream, number) for stream in (*range(3), 5, 6, 7, 9, *range(10, 13), *range(30, 33)) for number in range(8)
    ]
    seeds = [alignment._seed(SMALL, *stream) for stream in streams] + [alignment._seed(SMALL, 8)]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("family", ["eurobert", "modernbert", "gpt2", "llama"])
def test_other_families(family, text):
    arrays = alignment.collect(checkpoint(family), text, SMALL)
    for matrix in alignment.MATRICES:
        for method in METHODS:
            table = arrays[f"weight_{matrix}_{method}"]
            assert table.shape == (2, 6, 6)
            assert ((table >= 0) & (table <= 1)).all()
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_a_family_without_known_maps_has_no_number_for_them(text):
    llama = checkpoint("llama")
    llama.model.model.layers[0].mlp = torch.nn.Identity()
    arrays = alignment.collect(llama, text, SMALL)
    assert not [name for name in arrays if "first" in name or "second" in name]
    assert "weight_embedding_pca" in arrays


def test_a_concept_that_is_a_token_is_named_by_it(text):
    tiny = checkpoint()
    ids, rows = alignment._frequent_tokens(tiny, text, SMALL.model_copy(update={"named_tokens": 20}))
    assert ids[0] == text.counts.argmax()
    embedding = tiny.model.gpt_neox.embed_in.weight.detach().double().numpy()
    np.testing.assert_allclose(rows, embedding[ids] - embedding.mean(0))
    concepts = {f"{part}_{method}": -3 * rows[[4, 7]] for part in ("data", "gradient") for method in METHODS}
    found = alignment._likest_tokens(concepts, ids, rows, SMALL)
    assert found["gradient_ica_token"].tolist() == [ids[4], ids[7]]
    np.testing.assert_allclose(found["data_pca_likeness"], 1)
    assert 0.3 < found["chance_likeness"][0] < 0.7
    masked = alignment._frequent_tokens(checkpoint("eurobert"), text, SMALL.model_copy(update={"named_tokens": 5}))[0]
    assert masked[-1] == MASK
    assert len(set(masked)) == len(masked)


def test_concepts_are_at_most_half_of_the_dimensions(text):
    arrays = alignment.collect(checkpoint(), text, SMALL.model_copy(update={"components": 51}))
    assert arrays["data_pca"].shape == (8, 16)


def test_shared_planted_concepts_are_found_and_only_they():
    random = np.random.default_rng(4)
    shared = frame(random, 20, 128)
    pairs = []
    for _ in range(4):
        other = np.linalg.svd(shared[:6])[2][6:]  # an orthonormal complement of the shared ones
        second = np.concatenate([shared[:6], frame(random, 14, 122) @ other])
        pairs.append((shared, random.permutation(second)))
    found = alignment.compare(pairs, "x", alignment.Parameters(rotations=20))
    assert (found["x_gap"] == 6).all()
    np.testing.assert_allclose(found["x_matched"][:, 2], 1, atol=1e-6)
    excess = found["x_matched"] - found["x_rotated"].mean(1)
    assert (excess > 0.2).all()


def test_planted_sources_shared_by_data_and_gradients_are_found_by_ica():
    random = np.random.default_rng(5)
    directions = frame(random, 4, 32)
    data, gradient = (
        random.laplace(size=(3000, 4)) * [4, 3, 2, 2] @ directions + 0.2 * random.standard_normal((3000, 32))
        for _ in range(2)
    )
    a, b = (decompose(rows, "ica", 4, seed=seed).components for rows, seed in ((data, 1), (gradient, 2)))
    found = alignment.compare([(a, b)] * 2, "x", SMALL)
    assert found["x_matched"][0, 0] > 0.95
    assert found["x_rotated"][..., 0].max() < 0.6


def test_unrelated_concepts_exceed_nothing_under_any_selection():
    """50 concepts in 240 dimensions: the floor is 0.15, and selection above the gap raises it to about 0.22."""
    random = np.random.default_rng(6)
    pairs = [(frame(random, 50, 240), frame(random, 50, 240)) for _ in range(20)]
    found = alignment.compare(pairs, "x", alignment.Parameters(rotations=4))
    matched, rotated = found["x_matched"], found["x_rotated"]
    mean, top, above_gap = matched.mean(0)
    assert mean == pytest.approx(2.3 / np.sqrt(240), rel=0.05)
    assert top == pytest.approx(0.20, abs=0.01)
    assert above_gap == pytest.approx(0.22, abs=0.025)
    excess = matched - rotated.mean(1)
    error = excess.std(0, ddof=1) / np.sqrt(len(excess))
    assert (np.abs(excess.mean(0)) < 4 * error).all()


def test_not_finite_activations_are_named(text):
    broken = checkpoint()
    broken.model.gpt_neox.embed_in.weight[5] = torch.nan
    with pytest.raises(ValueError, match=r"small, step 0, data, pca: x holds .* not finite"):
        alignment.collect(broken, text, SMALL)


def test_constant_activations_are_named(text):
    broken = checkpoint()
    broken.model.gpt_neox.embed_in.weight[:] = 1.0
    with pytest.raises(ValueError, match=r"data, pca: .*0 direction"):
        alignment.collect(broken, text, SMALL)


def test_fewer_rows_than_concepts_are_named(text):
    with pytest.raises(ValueError, match=r"data: 4 rows are too few for 6 concepts; raise tokens or lower components"):
        alignment.collect(checkpoint(), text, SMALL.model_copy(update={"tokens": 12}))


def test_more_groups_than_blocks_are_refused(text):
    with pytest.raises(ValueError, match="groups is 7, but the text has 6 blocks"):
        alignment.collect(checkpoint(), text, SMALL.model_copy(update={"groups": 7}))


def test_an_unknown_probe_is_named(text):
    with pytest.raises(ValueError, match="E0_in"):
        alignment.collect(checkpoint("llama"), text, SMALL.model_copy(update={"probe": "E0_in"}))


def test_the_rules_reject_an_untrained_model(text):
    """One random network in the role of the trained, another in that of the untrained: nothing to find.

    Of 4 · 6 verdicts on C5 0.6 may hold, of 4 · 9 on C6 1.8, plus three standard deviations each.
    """
    outcomes = {"C5": [], "C6": []}
    for number in range(4):
        collections = []
        for step in (0, 1):
            random = checkpoint(step=step)
            generator = torch.Generator().manual_seed(10 * number + step)
            for parameter in random.model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=0.2, generator=generator)
            arrays = alignment.collect(random, text, SMALL.model_copy(update={"components": 8, "seed": number}))
            collections.append(Collection("model", step, str(step), arrays))
        verdicts = better_than_ica(summarise({"model": collections}), {})
        verdicts += stronger_concepts_align(rank_trends({"model": collections}), {})
        for verdict in verdicts:
            outcomes[verdict.claim].append(verdict.outcome is Outcome.HOLDS)
    assert len(outcomes["C5"]) == 24
    assert sum(outcomes["C5"]) <= 0.6 + 3 * 0.6**0.5
    assert sum(outcomes["C6"]) <= 1.8 + 3 * 1.8**0.5
