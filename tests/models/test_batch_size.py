"""Batches that do not fit: estimates against torch's own record of allocations, and results that do not change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import FAMILIES, MASK, VOCABULARY, small_model, text_and_labels
from torch.profiler import ProfilerActivity, profile

from anisotropy.errors import UserError
from anisotropy.models import batch_size, probes
from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.models.corpus import StudyText
from anisotropy.models.objectives import IGNORED, shuffled
from anisotropy.models.probes import capture, capture_each, find_places
from anisotropy.models.readers import find_readers
from anisotropy.models.sizes import Shape, pass_bytes
from anisotropy.studies import alignment, concept_tables, frequency, tangents

families = pytest.mark.parametrize("family", FAMILIES)
ERRORS = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    "python": MemoryError(),
    "allocator": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 B"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
}


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(batch_size, "_largest", {})
    batch_size.take_notes()


def everything(model, family, sequences=7):
    """Captures of a batch under two sets of labels, with readers and a watched module."""
    places = find_places(model)
    inputs, labels = text_and_labels(family, sequences)
    watched = {"second block": model.get_submodule(FAMILIES[family][0])[1]} if family == "gpt2" else {}
    readers = find_readers(model, places)
    other = torch.from_numpy(shuffled(labels.numpy(), 3))
    return capture_each(
        model, inputs, [labels, other], probes=list(places.entries), places=places, readers=readers, watched=watched
    )


def assert_same(found, expected):
    assert found.positions == expected.positions
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    for part in ("activations", "gradients", "reader_inputs", "reader_gradients"):
        ours, theirs = getattr(found, part), getattr(expected, part)
        assert list(ours) == list(theirs), part
        for name, values in theirs.items():
            scale = float(values.abs().max())
            torch.testing.assert_close(ours[name], values, rtol=1e-4, atol=1e-5 * scale, msg=f"{part} {name}")


def fail_above(model, largest, error):
    """The model runs out of memory in its second block with more sequences than ``largest``; returns sizes tried."""
    tried = []

    def hook(module, arguments, keywords, output):
        tried.append(len(output[0] if isinstance(output, tuple) else output))
        if tried[-1] > largest:
            raise error

    blocks = model.base_model.get_submodule("layers" if hasattr(model.base_model, "layers") else "h")
    blocks[1].register_forward_hook(hook, with_kwargs=True)
    return tried


@families
@pytest.mark.parametrize("size", [1, 2])
def test_pieces_give_the_capture_of_the_whole(family, size, monkeypatch):
    model = small_model(family).requires_grad_(False)
    whole = everything(model, family)
    monkeypatch.setattr(probes, "fitting", lambda *_: size)
    for found, expected in zip(everything(model, family), whole, strict=True):
        assert_same(found, expected)


def test_without_labels_pieces_hold_activations_only(monkeypatch):
    model = small_model("gpt_neox")
    inputs, _ = text_and_labels("gpt_neox", 5)
    whole = capture(model, inputs, probes=["E0_in", "Tm"])
    monkeypatch.setattr(probes, "fitting", lambda *_: 3)
    found = capture(model, inputs, probes=["E0_in", "Tm"])
    assert (found.gradients, found.loss, found.positions) == ({}, None, 0)
    for probe, values in whole.activations.items():
        torch.testing.assert_close(found.activations[probe], values)


def test_a_piece_without_a_label_adds_nothing(monkeypatch):
    model = small_model("eurobert")
    inputs, labels = text_and_labels("eurobert", 4)
    labels[1] = IGNORED
    whole = capture(model, inputs, labels, probes=["Tm"])
    monkeypatch.setattr(probes, "fitting", lambda *_: 1)
    found = capture(model, inputs, labels, probes=["Tm"])
    assert_same(found, whole)
    assert not found.gradients["Tm"][1].any()


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_out_of_memory_halves_and_goes_on(error):
    whole = everything(small_model("gpt_neox"), "gpt_neox")
    model = small_model("gpt_neox")
    tried = fail_above(model, 3, error)
    for found, expected in zip(everything(model, "gpt_neox"), whole, strict=True):
        assert_same(found, expected)
    assert tried == [7, 3, 3, 1]
    assert batch_size.take_notes() == ["memory ran out on cpu at 7 sequences a batch; went on with 3 a batch"]
    everything(model, "gpt_neox")
    assert tried[4:] == [3, 3, 1]
    assert batch_size.take_notes() == []


def test_one_sequence_that_does_not_fit_is_a_clear_error():
    model = small_model("llama")
    tried = fail_above(model, 0, ERRORS["torch"])
    with pytest.raises(UserError, match="not enough memory on cpu for a single sequence"):
        everything(model, "llama")
    assert tried == [7, 3, 1]


def test_other_errors_pass_through():
    model = small_model("llama")
    tried = fail_above(model, 0, RuntimeError("expected scalar type Float"))
    with pytest.raises(RuntimeError, match="expected scalar type Float"):
        everything(model, "llama")
    assert tried == [7]


def study_text():
    random = np.random.default_rng(0)
    ids = tuple(random.integers(3, VOCABULARY, size=(8, 20)) for _ in range(6))
    return StudyText(ids, np.bincount(np.concatenate(ids).ravel(), minlength=VOCABULARY), "digest")


STUDIES = {
    "tangents": (tangents, {"tokens": 960, "reservoir": 20}),
    "frequency": (frequency, {"occurrences": 4, "text_tokens": 960}),
    "alignment": (alignment, {"text_tokens": 960, "tokens": 480, "groups": 3, "components": 4, "weight_seeds": 1}),
}


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("family", ["gpt_neox", "eurobert"])
def test_a_study_that_runs_out_of_memory_finds_the_same(study, family):
    module, parameters = STUDIES[study]

    def collect(model):
        objective = FAMILIES[family][3]
        mask = MASK if objective == "masked" else None
        checkpoint = Checkpoint(model.requires_grad_(False), family, 0, objective, mask, weight_hash(model))
        return module.collect(checkpoint, study_text(), module.Parameters(**parameters))

    whole, model = collect(small_model(family)), small_model(family)
    tried = fail_above(model, 3, ERRORS["torch"])
    found = collect(model)
    assert max(tried) > 3
    assert len(batch_size.take_notes()) >= 1
    assert set(found) == set(whole)
    for name, array in whole.items():
        if study == "alignment" and array.dtype.kind != "f":
            continue  # converged or not, and ranks of near ties, are decided by the last digit
        scale = np.abs(array).max() + 1e-30
        np.testing.assert_allclose(found[name], array, rtol=2e-3, atol=2e-4 * scale, err_msg=name)


def test_concept_tables_read_the_same_rows():
    model, blocks = small_model("gpt_neox"), study_text().blocks
    checkpoint = Checkpoint(model, "small", 0, "causal", None, "hash")
    reservoir = concept_tables.choose_rows(960, 300, 0)
    whole = concept_tables.read_layers(checkpoint, blocks, reservoir)
    fail_above(model, 3, ERRORS["allocator"])
    found = concept_tables.read_layers(checkpoint, blocks, reservoir)
    for layer, rows in whole.items():
        np.testing.assert_allclose(found[layer], rows, rtol=1e-4, atol=1e-5)


class TestEstimates:
    @families
    @pytest.mark.parametrize(("labels", "with_readers"), [(0, False), (2, True)])
    def test_of_a_pass_hold_against_what_torch_allocates(self, family, labels, with_readers):
        """At least what is allocated at the peak, at most twice as much; for two very different shapes."""
        for d, layers, vocabulary in ((128, 4, 512), (64, 2, 8_192)):
            sizes = {"hidden_size": d, "vocab_size": vocabulary, "max_position_embeddings": 128}
            sizes |= {} if family == "gpt2" else {"intermediate_size": 3 * d}
            model = small_model(family, layers, **sizes).requires_grad_(False)
            places = find_places(model)
            names = places.distinct()
            readers = {probe: maps for probe, maps in find_readers(model, places).items() if probe in names}
            readers = readers if with_readers else {}
            ids = torch.randint(3, 500, (4, 128), generator=torch.Generator().manual_seed(0))

            def run(ids=ids, model=model, names=names, places=places, readers=readers):
                capture_each(model, ids, [ids] * labels, probes=names, places=places, readers=readers)

            run()
            shape = Shape.of_config(model.config)
            estimate = pass_bytes(shape, ids.numel(), labels, len(names), len(readers))
            assert 1 <= estimate / peak_bytes(run) <= 2.2

    def test_free_memory_heeds_the_control_group(self, tmp_path, monkeypatch):
        limit, used = tmp_path / "limit", tmp_path / "used"
        used.write_text("300\n")
        monkeypatch.setattr(batch_size, "_CGROUPS", ((str(limit), str(used)),))
        free = batch_size.free_memory(torch.device("cpu"))
        assert free > 10**8
        limit.write_text("max\n")
        assert batch_size.free_memory(torch.device("cpu")) > 10**8
        limit.write_text("1000\n")
        assert batch_size.free_memory(torch.device("cpu")) == 700
        assert batch_size.fitting(100, torch.device("cpu")) == 3
        assert batch_size.fitting(10**9, torch.device("cpu")) == 1


def peak_bytes(run):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    now = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
