"""What the tangent study collects, against the same sums written out row by row, on real small models."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from families import FAMILIES, MASK, VOCABULARY, small_model
from transformers import LlamaConfig, LlamaForCausalLM

from anisotropy.errors import UserError
from anisotropy.geometry.moments import Moments
from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.models.corpus import StudyText
from anisotropy.models.objectives import inputs_and_labels, shuffled
from anisotropy.models.probes import capture, find_places
from anisotropy.models.readers import find_readers
from anisotropy.studies import tangents
from anisotropy.studies.held_out import held_out_groups
from anisotropy.studies.results import Collection
from anisotropy.studies.tangent_bases import Course
from anisotropy.studies.tangent_cells import Choices, cells
from anisotropy.studies.tangent_tables import stage_table

LENGTH, BLOCKS, SEQUENCES = 10, 6, 3
families = pytest.mark.parametrize("family", FAMILIES)


def text(seed=0, sequences=SEQUENCES, blocks=BLOCKS):
    random = np.random.default_rng(seed)
    ids = tuple(random.integers(3, VOCABULARY, size=(sequences, LENGTH)) for _ in range(blocks))
    return StudyText(ids, np.bincount(np.concatenate(ids).ravel(), minlength=VOCABULARY), "digest")


def checkpoint(family="gpt_neox", model=None, step=0):
    model = (model or small_model(family)).requires_grad_(False)
    objective = FAMILIES[family][3]
    return Checkpoint(model, family, step, objective, MASK if objective == "masked" else None, weight_hash(model))


def collect(family="gpt_neox", of=None, model=None, step=0, **parameters):
    given = tangents.Parameters(tokens=BLOCKS * SEQUENCES * LENGTH, reservoir=20, **parameters)
    arrays = tangents.collect(checkpoint(family, model, step), of or text(), given)
    return Collection(family, step, f"hash-{step}", arrays)


def held_out_batches(family, model, mask_share=0.3):
    """Inputs, labels and wrong labels of the odd blocks, from the definitions."""
    for number, ids in list(enumerate(text().blocks))[1::2]:
        inputs, labels = inputs_and_labels(
            ids, FAMILIES[family][3], mask_id=MASK, mask_share=mask_share, seed=[0, number]
        )
        yield tuple(torch.from_numpy(array) for array in (inputs, labels, shuffled(labels, number)))


@families
def test_gradients_of_each_block_are_those_of_its_summed_loss(family):
    model = small_model(family)
    collection = collect(family, model=model)
    usable = LENGTH - 1 if FAMILIES[family][3] == "causal" else LENGTH
    for role, which in (("gradient", 1), ("shuffled", 2)):
        for probe in tangents.probes_of(collection):
            found = tangents.moments_of(collection, probe, f"activation.{role}")
            assert len(found) == BLOCKS // 2
            for moments, batch in zip(found, held_out_batches(family, model), strict=True):
                whole = capture(model, batch[0], batch[which], probes=[probe])
                rows = (whole.gradients[probe] * whole.positions)[:, :usable].reshape(-1, 16)
                expected = Moments.of(rows)
                assert moments.count == SEQUENCES * usable
                scale = float(expected.scatter.abs().max())
                torch.testing.assert_close(moments.scatter, expected.scatter, rtol=1e-4, atol=1e-6 * scale)


@families
def test_the_weight_reading_is_the_gradient_of_the_weights(family):
    model = small_model(family)
    collection = collect(family, model=model)
    places = find_places(model)
    readers = find_readers(model, places)
    probes = tangents.probes_of(collection, "weight")
    assert probes == tangents.probes_of(collection)
    model.requires_grad_(True)
    for block, (inputs, labels, _) in enumerate(held_out_batches(family, model)):
        model.zero_grad()
        asked = labels[:, 1:] if FAMILIES[family][3] == "causal" else labels
        (model(input_ids=inputs, labels=labels).loss * (asked != -100).sum()).backward()
        for probe in probes:
            # GPT-2 keeps its matrices transposed.
            gradients = [part.weight.grad for part in readers[probe]]
            rows = torch.cat([g.T if family == "gpt2" else g for g in gradients])
            expected = Moments.of(rows).scatter
            found = tangents.moments_of(collection, probe, "weight.gradient")[block].scatter
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


@families
def test_activations_are_split_by_block_and_positions_without_a_gradient_left_out(family):
    model = small_model(family)
    collection = collect(family, model=model)
    causal = FAMILIES[family][3] == "causal"
    usable = LENGTH - causal
    for role, start in (("fit", 0), ("held_out", 1)):
        rows = []
        for number, ids in list(enumerate(text().blocks))[start::2]:
            inputs, _ = inputs_and_labels(ids, FAMILIES[family][3], mask_id=MASK, seed=[0, number])
            rows.append(capture(model, torch.from_numpy(inputs), probes=["Tm"]).activations["Tm"][:, :usable])
        (found,) = tangents.moments_of(collection, "Tm", f"activation.{role}")
        expected = Moments.of(torch.cat(rows))
        assert found.count == expected.count
        torch.testing.assert_close(found.covariance, expected.covariance, rtol=1e-4, atol=1e-5)


def test_centred_and_unpaired_weight_gradients():
    """Centring removes the product of the means; another pairing keeps exactly that product in expectation."""
    model = small_model("llama")
    collection = collect("llama", model=model)
    places = find_places(model)
    readers = find_readers(model, places)
    centred, paired = [], []
    for inputs, labels, _ in held_out_batches("llama", model):
        found = capture(model, inputs, labels, probes=["Tm"], places=places, readers=readers)
        g = found.reader_gradients["Tm"][:, :-1].reshape(-1, 48) * found.positions
        x = found.reader_inputs["Tm"][:, :-1].reshape(-1, 16)
        paired.append(g.T @ x)
        centred.append((g - g.mean(0)).T @ (x - x.mean(0)))
    (moments,) = tangents.moments_of(collection, "Tm", "weight.centred")
    expected = Moments.of(torch.cat(centred)).scatter
    torch.testing.assert_close(moments.scatter, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
    (unpaired,) = tangents.moments_of(collection, "Tm", "weight.unpaired")
    assert unpaired.count == moments.count
    assert not torch.allclose(unpaired.scatter, Moments.of(torch.cat(paired)).scatter, rtol=1e-2)


def test_every_checkpoint_sees_the_same_masks_labels_and_rows():
    """Two checkpoints whose embeddings are equal give equal rows at the first probe: the same inputs were read."""
    one, other = small_model("eurobert"), small_model("eurobert")
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(2)
    first, second = collect("eurobert", model=one), collect("eurobert", model=other, step=7)
    for name in ("T1_in.activation.fit.scatter", "T1_in.activation.held_out.scatter", "T1_in.activation.rows"):
        np.testing.assert_array_equal(first.arrays[name], second.arrays[name])
    assert first.arrays["T1_in.activation.gradient.scatter"].any()
    changed = collect("eurobert", model=one, seed=1)
    assert not np.array_equal(
        first.arrays["T1_in.activation.fit.scatter"], changed.arrays["T1_in.activation.fit.scatter"]
    )


def test_batches_do_not_matter(monkeypatch):
    """One sequence at a time gives the same table as all at once, to rounding of the model's float32."""
    whole = collect("llama")
    monkeypatch.setattr(tangents, "_SEQUENCES_A_BATCH", 1)
    parts = collect("llama")
    assert set(whole.arrays) == set(parts.arrays)
    for name, array in whole.arrays.items():
        if "unpaired" in name:  # dealt out within a batch
            continue
        scale = np.abs(array).max() + 1e-30
        np.testing.assert_allclose(parts.arrays[name], array, rtol=1e-3, atol=1e-4 * scale, err_msg=name)


def test_groups_of_blocks_hold_the_same_rows():
    """Merging the moments of a group's blocks gives the group's; what is not kept by block stays as it is."""
    apart, merged = collect("llama"), collect("llama", groups=2)
    for name, array in apart.arrays.items():
        if array.ndim and len(array) != BLOCKS // 2:
            np.testing.assert_array_equal(merged.arrays[name], array, err_msg=name)
    for gradient, role in product(tangents.GRADIENTS, ("gradient", "shuffled")):
        blocks = tangents.moments_of(apart, "Tm", f"{gradient}.{role}")
        groups = tangents.moments_of(merged, "Tm", f"{gradient}.{role}")
        assert len(groups) == 2
        for group, members in zip(groups, (blocks[:2], blocks[2:]), strict=True):
            expected = Moments.merged(members)
            assert group.count == expected.count
            scale = float(expected.scatter.abs().max())
            torch.testing.assert_close(group.scatter, expected.scatter, rtol=1e-4, atol=1e-5 * scale)


def test_only_large_models_are_grouped_by_default():
    assert [held_out_groups(d, 10) for d in (128, 1_024, 1_152, 2_048)] == [10, 10, 5, 5]
    assert held_out_groups(2_048, 10, 10) == 10
    assert held_out_groups(128, 10, 2) == 2
    assert held_out_groups(2_048, 3) == 3


def test_merging_shards_gives_the_table_of_one_pass():
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(900, 12)) + 3)
    whole = Moments.of(rows)
    shards = Moments.merged([Moments.of(part) for part in rows.split(130)])
    torch.testing.assert_close(shards.scatter, whole.scatter, rtol=1e-10, atol=0)
    torch.testing.assert_close(shards.covariance, whole.covariance, rtol=1e-10, atol=1e-12)


def test_probes_that_coincide_are_kept_once_under_the_blocks_name():
    assert tangents.probes_of(collect("gpt_neox")) == ["T1_in", "T1_out", "Tm", "Tl"]
    assert tangents.probes_of(collect("llama")) == ["T1_in", "T1_out", "Tm", "Tl"]
    assert tangents.probes_of(collect("llama", model=small_model("llama", layers=2))) == ["T1_in", "T1_out"]


def test_a_probe_or_role_that_is_not_there_is_not_a_number():
    collection = collect("llama", model=small_model("llama", layers=1))
    assert tangents.probes_of(collection) == ["T1_in"]
    assert tangents.moments_of(collection, "T1_out", "activation.gradient") == []
    found = cells(Course([collection]), Choices(rank=2, draws=100))
    assert {cell.probe for cell in found} == {"T1_in"}
    assert "other probe" not in found[0].controls


def test_a_family_without_known_readers_has_the_activation_reading_alone(monkeypatch):
    monkeypatch.setattr(tangents, "find_readers", lambda model, places: {})
    collection = collect("llama")
    assert tangents.probes_of(collection, "weight") == []
    table = stage_table(course := Course([collection]), cells(course, choices := Choices(rank=2, draws=100)), choices)
    assert set(table["gradient"]) == {"activation"}


@pytest.mark.parametrize("tied", [False, True])
def test_tied_and_untied_models_are_measured_and_summarised(tied):
    def model(seed):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
            tie_word_embeddings=tied, initializer_range=0.2,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()

    with torch.random.fork_rng():
        run = [collect("llama", model=model(step), step=step) for step in (0, 3, 10)]
    course = Course(run)
    choices = Choices(rank=3, draws=100)
    table = stage_table(course, cells(course, choices), choices)
    assert np.isfinite(table["estimate"]).all()
    assert set(table["stage"]) == {"early", "late"}
    assert set(table["basis"]) == {"early", "own", "semi_nmf"}


def test_collections_do_not_grow_with_the_text():
    sizes = [sum(array.nbytes for array in collect("llama", of=text(sequences=n)).arrays.values()) for n in (3, 3 * 8)]
    assert sizes[0] == sizes[1]


def test_too_few_tokens_and_bad_parameters():
    with pytest.raises(UserError, match="fewer than the 6 blocks"):
        tangents.collect(checkpoint(), text(), tangents.Parameters(tokens=LENGTH))
    with pytest.raises(ValueError, match="greater than 0"):
        tangents.Parameters(tokens=0)
    with pytest.raises(ValueError, match="less than 1"):
        tangents.Parameters(mask_share=1.0)


def test_few_reservoir_rows_are_refused_for_semi_nmf():
    run = [collect("llama", step=step) for step in (0, 3, 10)]
    short = [
        Collection(one.model, one.step, one.weight_hash, dict(one.arrays) | {"Tm.activation.rows": np.ones((3, 16))})
        for one in run
    ]
    with pytest.raises(UserError, match="rows are too few for 3 Semi-NMF concepts; raise `reservoir`"):
        Course(short).proxy("semi_nmf", "activation", 3, "Tm", 3)
