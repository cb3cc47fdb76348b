"""The laboratory on a real tiny model: what is kept is not measured again, and what is wrong is named."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from anisotropy.errors import UserError
from anisotropy.models import batch_size
from anisotropy.models.catalogue import ModelName, parse_name
from anisotropy.models.checkpoints import FolderSource
from anisotropy.models.recorded import Manifest
from anisotropy.runs.measuring import Laboratory, choose_device, study_parameters
from anisotropy.runs.project import Project

PARAMETERS = study_parameters("frequency", {"occurrences": 3, "text_tokens": 4096})


@pytest.fixture
def project(tiny_run, tmp_path):
    folder, _ = tiny_run
    shutil.copytree(folder.parents[1], tmp_path / "checkpoints")
    return Project(tmp_path)


@pytest.fixture
def laboratory(project, small_corpus):
    return Laboratory(project, corpus=str(small_corpus))


def test_measured_once_then_read(laboratory, project, small_corpus, monkeypatch):
    lines = []
    laboratory.report = lines.append
    first = laboratory.measure("tiny-pythia", "frequency", PARAMETERS)
    assert [collection.step for collection in first.collections] == [0, 1, 2, 4, 8, 16, 32]
    assert (first.loaded, len(lines)) == (7, 7)
    assert "checkpoint 7 of 7" in lines[-1]
    monkeypatch.setattr(FolderSource, "load", lambda *_: pytest.fail("loaded again"))
    second = Laboratory(project, corpus=str(small_corpus)).measure("tiny-pythia", "frequency", PARAMETERS)
    assert second.loaded == 0
    for one, other in zip(first.collections, second.collections, strict=True):
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name])
    assert first.collections[0].provenance["libraries"]["torch"]


def test_what_is_kept_is_read_by_the_records_alone(laboratory, project, small_corpus, monkeypatch):
    measured = laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [0, 4]).collections
    monkeypatch.setattr(Laboratory, "text", lambda *_: pytest.fail("the text was read"))
    again = Laboratory(project, corpus=str(small_corpus))
    for one, other in zip(measured, again.read("tiny-pythia", "frequency", PARAMETERS, [0, 4]), strict=True):
        assert (one.step, one.weight_hash) == (other.step, other.weight_hash)
        np.testing.assert_array_equal(one.arrays["token_ids"], other.arrays["token_ids"])
    for steps, parameters in (([0, 8], PARAMETERS), ([0], study_parameters("frequency"))):
        with pytest.raises(UserError, match=rf"frequency at step {steps[-1]} is not kept; execute its chapter again"):
            again.read("tiny-pythia", "frequency", parameters, steps)


def test_only_what_is_missing_is_measured(laboratory):
    laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [0, 4])
    assert laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [0, 4, 8]).loaded == 1
    other = study_parameters("frequency", {"occurrences": 4, "text_tokens": 4096})
    assert laboratory.measure("tiny-pythia", "frequency", other, [0]).loaded == 1


def test_one_load_serves_every_request(laboratory, monkeypatch):
    loads = []
    load = FolderSource.load
    monkeypatch.setattr(FolderSource, "load", lambda *arguments: loads.append(arguments) or load(*arguments))
    other = study_parameters("frequency", {"occurrences": 4, "text_tokens": 4096})
    found = laboratory.measure_all("tiny-pythia", [("frequency", PARAMETERS), ("frequency", other)], [32])
    assert len(loads) == 1
    assert [len(measured.collections) for measured in found] == [1, 1]


def test_equal_weights_under_two_steps_are_named_and_used_once(laboratory, project, tmp_path):
    run = tmp_path / "own-run"
    source = project.checkpoints / "tiny-pythia" / "seed-0"
    for step, original in ((10, 4), (20, 8), (30, 8)):
        shutil.copytree(source / f"step-{original:06d}", run / f"step-{step}")
    shutil.copytree(source / "tokenizer", run / "tokenizer")
    measured = laboratory.measure(str(run), "frequency", PARAMETERS)
    assert [collection.step for collection in measured.collections] == [10, 20]
    assert measured.notes == [f"{run}: step 30 holds the same weights as step 20 and is left out"]


def test_each_request_at_the_checkpoints_its_notebooks_read(laboratory):
    other = study_parameters("frequency", {"occurrences": 4, "text_tokens": 4096})
    requests = [("frequency", PARAMETERS), ("frequency", other)]
    choices = [[[4], 1], [[8]]]
    found = laboratory.measure_all("tiny-pythia", requests, choices=choices)
    assert [[one.step for one in measured.collections] for measured in found] == [[4, 32], [8]]
    found = laboratory.measure_all("tiny-pythia", requests, [8], choices)
    assert [[one.step for one in measured.collections] for measured in found] == [[], [8]]
    found = laboratory.measure_all("tiny-pythia", requests, [2], choices)
    assert [[one.step for one in measured.collections] for measured in found] == [[2], [2]]


def test_two_that_measure_the_same_weights_at_once_measure_them_once(project, small_corpus, tmp_path):
    """As jobs of a cluster do; an untrained control, for one, has its model's weights under another name."""
    shutil.copytree(project.checkpoints / "tiny-pythia" / "seed-0", tmp_path / "other-name")
    lines = []

    def measure(model):
        own = Laboratory(project, corpus=str(small_corpus), report=lines.append)
        return own.measure(model, "frequency", PARAMETERS, [0, 4, 32])

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(measure, ["tiny-pythia", str(tmp_path / "other-name")])
    assert len(lines) == 3
    for first, second in zip(one.collections, other.collections, strict=True):
        assert first.provenance == second.provenance


def test_a_failure_says_at_which_checkpoint(laboratory, monkeypatch):
    monkeypatch.setattr("anisotropy.studies.frequency.collect", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [4])
    assert caught.value.__notes__ == ["while tiny-pythia was measured at step 4"]


def test_mistakes_are_named(laboratory, tmp_path):
    with pytest.raises(UserError, match="has no checkpoint 3; it has 0, 1, 2, 4"):
        laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [3])
    with pytest.raises(UserError, match=r"not been pretrained here; run `anisotropy pretrain mini-eurobert` \(about"):
        laboratory.measure("mini-eurobert", "frequency", PARAMETERS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no checkpoints"):
        laboratory.measure(str(tmp_path / "empty"), "frequency", PARAMETERS)
    assert not (tmp_path / "results" / "frequency").exists()


def test_a_damaged_checkpoint_stops_before_anything_is_written(laboratory, project):
    file = project.checkpoints / "tiny-pythia" / "seed-0" / "step-000004" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match="damaged"):
        laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [4])
    assert not list(project.results.glob("frequency/*"))


@pytest.mark.parametrize(
    ("study", "given", "message"),
    [
        ("frequencies", {}, "unknown study 'frequencies': studies are layers, frequency"),
        ("frequency", {"occurences": 4}, "parameter 'occurences'.*its parameters are probe, occurrences"),
        ("frequency", {"occurrences": 1}, "parameter 'occurrences'.*greater than or equal to 2"),
    ],
)
def test_study_parameters_are_checked(study, given, message):
    with pytest.raises(UserError, match=message):
        study_parameters(study, given)


def test_devices():
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(UserError, match="device 'gpu0' cannot be used here"):
        choose_device("gpu0")


def test_checkpoints_of_a_folder_are_loaded_again_only_when_their_files_change(laboratory, project, tmp_path):
    run = tmp_path / "own-run"
    source = project.checkpoints / "tiny-pythia" / "seed-0"
    for step, original in ((10, 4), (20, 8)):
        shutil.copytree(source / f"step-{original:06d}", run / f"step-{step}")
    shutil.copytree(source / "tokenizer", run / "tokenizer")
    assert laboratory.measure(str(run), "frequency", PARAMETERS).loaded == 2
    assert laboratory.measure(str(run), "frequency", PARAMETERS).loaded == 0
    shutil.copytree(source / "step-000016", run / "step-20", dirs_exist_ok=True)
    changed = laboratory.measure(str(run), "frequency", PARAMETERS)
    assert changed.loaded == 1
    assert (
        changed.collections[1].weight_hash == FolderSource(parse_name("tiny-pythia"), source).records()[5].weight_hash
    )
    # Without the folder its results are still there, and a step that was never measured is named.
    away = run.rename(tmp_path / "moved")
    assert laboratory.open(ModelName(kind="folder", name=str(run))).records()[0].step == 10
    assert away.is_dir()


def test_another_training_under_the_same_label_is_told_apart(laboratory, project):
    laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [4])
    kept = laboratory.kept("frequency", PARAMETERS)["tiny-pythia"]
    assert [one.step for one in kept] == [4]
    manifest = Manifest(project.results, "tiny-pythia")
    other = manifest.checkpoints()[4].model_copy(update={"weights": {"float32": "of another training"}})
    manifest.write_checkpoint(other)
    assert "tiny-pythia" not in laboratory.kept("frequency", PARAMETERS)


def test_results_alone_are_enough_where_all_is_measured(laboratory, project, small_corpus):
    requests = [("frequency", PARAMETERS)]
    assert not laboratory.is_measured("tiny-pythia", requests)
    laboratory.measure("tiny-pythia", "frequency", PARAMETERS, 3)
    assert laboratory.is_measured("tiny-pythia", requests, [[3]])
    assert not laboratory.is_measured("tiny-pythia", requests, [["all"]])
    assert not Laboratory(project, corpus="sotu").is_measured("tiny-pythia", requests, [[3]])
    shutil.rmtree(project.checkpoints)
    away = Laboratory(project, corpus=str(small_corpus))
    assert away.measure("tiny-pythia", "frequency", PARAMETERS, 3).loaded == 0
    with pytest.raises(UserError, match=r"weights of step 1 are not on this machine.*results import FILE"):
        away.measure("tiny-pythia", "frequency", PARAMETERS, "all")
    with pytest.raises(UserError, match="has no checkpoint 3"):
        away.check_checkpoints("tiny-pythia", [3])


def test_the_type_of_the_weights_reaches_every_job_and_is_kept_apart(laboratory, project, small_corpus, monkeypatch):
    assert (laboratory.dtype, project.evict) == ("float32", False)
    exact = laboratory.measure("tiny-pythia", "frequency", PARAMETERS, [32])
    monkeypatch.setenv("ANISOTROPY_DTYPE", "bfloat16")
    monkeypatch.setenv("ANISOTROPY_EVICT", "1")
    assert project.evict
    half = Laboratory(project, corpus=str(small_corpus)).measure("tiny-pythia", "frequency", PARAMETERS, [32])
    assert (exact.loaded, half.loaded) == (1, 1)
    one, other = exact.collections[0], half.collections[0]
    assert (one.provenance["dtype"], other.provenance["dtype"]) == ("float32", "bfloat16")
    np.testing.assert_array_equal(one.arrays["token_ids"], other.arrays["token_ids"])
    np.testing.assert_allclose(one.arrays["input_rows"], other.arrays["input_rows"], rtol=2**-8)
    assert not np.array_equal(one.arrays["input_rows"], other.arrays["input_rows"])
    monkeypatch.setenv("ANISOTROPY_DTYPE", "float8")
    with pytest.raises(UserError, match="dtype 'float8' is not one of float32, bfloat16, float16"):
        Laboratory(project)


def test_smaller_batches_are_told_once_and_the_device_is_cleared(tiny_run, small_corpus, tmp_path, monkeypatch):
    """The first block runs out of memory above three sequences at every checkpoint; it is told at the first."""
    folder, _ = tiny_run
    monkeypatch.setenv("ANISOTROPY_CHECKPOINTS", str(folder.parents[1]))
    monkeypatch.setattr(batch_size, "_largest", {})
    load, released = FolderSource.load, []

    def scarce(module, arguments, output):
        if len(output[0] if isinstance(output, tuple) else output) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def load_with_little_memory(source, step, device):
        checkpoint = load(source, step, device)
        checkpoint.model.gpt_neox.layers[0].register_forward_hook(scarce)
        return checkpoint

    monkeypatch.setattr(FolderSource, "load", load_with_little_memory)
    monkeypatch.setattr(batch_size, "release", lambda device: released.append(str(device)))
    laboratory = Laboratory(Project(tmp_path), corpus=str(small_corpus), device="cpu")
    parameters = study_parameters("tangents", {"tokens": 2_560})
    found = laboratory.measure("tiny-pythia", "tangents", parameters, [0, 4])
    told = "tiny-pythia: tangents at step 0: memory ran out on cpu at 10 sequences a batch; went on with 2 a batch"
    assert [note for note in found.notes if "ran out" in note] == [told]
    assert len(released) >= 2
