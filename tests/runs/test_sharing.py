"""Results in one file: what comes out is what went in, and what is no export is refused before it does anything."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile

import numpy as np
import pytest

from anisotropy.errors import UserError
from anisotropy.models.recorded import Manifest
from anisotropy.models.records import CheckpointRecord
from anisotropy.runs import sharing
from anisotropy.runs.measuring import Laboratory, study_parameters
from anisotropy.runs.project import Project
from anisotropy.runs.sharing import LISTING, export_results, import_results
from anisotropy.studies.results import Collection, Key, ResultStore

PARAMETERS = study_parameters("frequency", {"occurrences": 3, "text_tokens": 4096})
REQUEST = [("frequency", PARAMETERS)]


@pytest.fixture(scope="module")
def cluster(tiny_run, small_corpus, tmp_path_factory):
    """A project where tiny-pythia was measured, and what was collected."""
    root = tmp_path_factory.mktemp("cluster")
    shutil.copytree(tiny_run[0], root / "checkpoints" / "tiny-pythia" / "seed-0")
    laboratory = Laboratory(Project(root), corpus=str(small_corpus))
    return Project(root), laboratory.measure("tiny-pythia", "frequency", PARAMETERS)


@pytest.fixture(scope="module")
def exported(cluster, tmp_path_factory):
    """One file with everything of that project."""
    target = tmp_path_factory.mktemp("export") / "all.tar"
    export_results(cluster[0].results, target)
    return target


def tar(path, files, kind=tarfile.REGTYPE):
    """Write a tar of these files, by name."""
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind if name != LISTING else tarfile.REGTYPE, len(content), "x"
            archive.addfile(member, io.BytesIO(content))
    return path


def members(path):
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def relisted(files):
    """The same files under a list of contents that fits them."""
    listing = json.loads(files[LISTING]) | {
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != LISTING}
    }
    return {LISTING: json.dumps(listing).encode()} | {n: c for n, c in files.items() if n != LISTING}


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_machine_reads_what_was_measured_without_any_checkpoint(cluster, exported, small_corpus, tmp_path):
    _, measured = cluster
    done = import_results(tmp_path / "results", exported)
    assert (done.new, done.known, done.usable, done.models) == (7, 0, 7, ["tiny-pythia"])
    laboratory = Laboratory(Project(tmp_path), corpus=str(small_corpus))
    assert laboratory.is_measured("tiny-pythia", REQUEST)
    again = laboratory.measure("tiny-pythia", "frequency", PARAMETERS)
    assert again.loaded == 0
    for one, other in zip(measured.collections, again.collections, strict=True):
        assert (one.step, one.weight_hash) == (other.step, other.weight_hash)
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name])
    second = import_results(tmp_path / "results", exported)
    assert (second.new, second.known, second.models, second.other_runs) == (0, 7, [], [])
    with pytest.raises(UserError, match=r"weights of step 0 are not on this machine.*anisotropy results import FILE"):
        laboratory.measure("tiny-pythia", "frequency", study_parameters("frequency", {"occurrences": 2}))


def test_what_is_here_is_never_overwritten(cluster, exported, tmp_path):
    here = tmp_path / "results"
    import_results(here, exported)
    for file in here.glob("frequency/*/arrays.safetensors"):
        file.write_bytes(b"mine")
    before = everything_in(here)
    assert import_results(here, exported).new == 0
    assert everything_in(here) == before


def test_a_run_of_this_machine_keeps_its_record(exported, tmp_path):
    import_results(tmp_path, exported)
    manifest = Manifest(tmp_path, "tiny-pythia")
    entry = manifest.checkpoints()[4]
    manifest.write_checkpoint(entry.model_copy(update={"weights": {"float32": "mine"}}))
    done = import_results(tmp_path, exported)
    assert done.other_runs == ["tiny-pythia"]
    assert manifest.checkpoints()[4].weights == {"float32": "mine"}


def test_missing_checkpoints_of_the_same_run_are_added(exported, tmp_path):
    import_results(tmp_path, exported)
    manifest = Manifest(tmp_path, "tiny-pythia")
    (manifest.folder / "checkpoints" / "8.json").unlink()
    assert import_results(tmp_path, exported).models == ["tiny-pythia"]
    assert set(manifest.checkpoints()) == {0, 1, 2, 4, 8, 16, 32}


def test_results_of_another_version_are_counted_apart(cluster, tmp_path, monkeypatch):
    project, _ = cluster
    export_results(project.results, tmp_path / "old.tar")
    monkeypatch.setattr(sharing, "current_code", lambda study: "newer")
    done = import_results(tmp_path / "results", tmp_path / "old.tar")
    assert (done.new, done.usable) == (7, 0)


def test_an_export_can_be_of_some_models_and_requests(cluster, tmp_path):
    project, measured = cluster
    results = tmp_path / "results"
    shutil.copytree(project.results, results)
    stray = Key("tangents", {"tokens": 8}, "w", "t", "c")
    ResultStore(results).write(stray, Collection("elsewhere", 0, "w", {"x": np.zeros(1)}, {}))
    old = Key("frequency", PARAMETERS.model_dump(mode="json"), measured.collections[0].weight_hash, "t", "old code")
    ResultStore(results).write(old, Collection("tiny-pythia", 0, old.weight_hash, {"x": np.zeros(1)}, {}))
    assert export_results(results, tmp_path / "1.tar").collections == 9
    assert export_results(results, tmp_path / "2.tar", models=["tiny-pythia"]).collections == 8
    requests = {"tiny-pythia": [("frequency", PARAMETERS.model_dump(mode="json"))]}
    assert export_results(results, tmp_path / "3.tar", requests=requests).collections == 7
    other = {"tiny-pythia": [("frequency", {"occurrences": 99})]}
    for arguments, message in (
        ({"models": ["mini-pythia"]}, r"nothing is recorded of 'mini-pythia'.*recorded: tiny-pythia"),
        ({"requests": other}, "holds no such results"),
    ):
        with pytest.raises(UserError, match=message):
            export_results(results, tmp_path / "4.tar", **arguments)
        assert not (tmp_path / "4.tar").exists()


def test_mistakes_are_named(exported, tmp_path):
    with pytest.raises(UserError, match="nothing to export"):
        export_results(tmp_path / "empty", tmp_path / "x.tar")
    with pytest.raises(UserError, match="no such file"):
        import_results(tmp_path / "results", tmp_path / "missing.tar")
    (tmp_path / "text.tar").write_text("hello")
    with pytest.raises(UserError, match="is not an export of results"):
        import_results(tmp_path / "results", tmp_path / "text.tar")
    assert not everything_in(tmp_path / "results")


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_a_file_that_was_cut_off_is_named_and_what_was_whole_stays_whole(exported, small_corpus, tmp_path, share):
    content = exported.read_bytes()
    (tmp_path / "cut.tar").write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match=r"cut off|damaged"):
        import_results(tmp_path / "results", tmp_path / "cut.tar")
    store = ResultStore(tmp_path / "results")
    for record in store.records():
        store.read(Key(**record["key"]), record["model"], record["step"])


def test_a_changed_byte_is_noticed(exported, tmp_path):
    files = members(exported)
    name = next(name for name in files if name.endswith("arrays.safetensors"))
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    with pytest.raises(UserError, match=r"is damaged: frequency/.* is not what was exported"):
        import_results(tmp_path / "results", tar(tmp_path / "changed.tar", files))


def test_a_newer_format_asks_for_an_update(exported, tmp_path):
    files = members(exported)
    files[LISTING] = json.dumps(json.loads(files[LISTING]) | {"version": 2}).encode()
    with pytest.raises(UserError, match="newer version of this project"):
        import_results(tmp_path / "results", tar(tmp_path / "new.tar", files))


def forged(files, name):
    record = json.loads(files[name])
    record["key"]["weight_hash"] = "forged"
    return files | {name: json.dumps(record).encode()}


@pytest.mark.parametrize(
    "change",
    [
        lambda files, record: forged(files, record),
        lambda files, record: files | {"../../escaped/record.json": b"{}"},
        lambda files, record: files | {"/tmp/escaped": b"{}"},
        lambda files, record: files | {"models/tiny-pythia/tokenizer/../../x.json": b"{}"},
        lambda files, record: files | {"models/tiny-pythia/tokenizer/code.py": b"print()"},
        lambda files, record: files | {"models/tiny-pythia/checkpoints/4.json": b"{}"},
        lambda files, record: {n.replace("models/tiny", "models/other"): c for n, c in files.items()},
        lambda files, record: files | {record: b"[]"},
    ],
    ids=["record", "above", "absolute", "above, below", "code", "checkpoint", "other name", "no record"],
)
def test_what_belies_its_name_is_refused_and_nothing_is_written_elsewhere(exported, tmp_path, change):
    files = members(exported)
    record = next(name for name in files if name.startswith("frequency/") and name.endswith("record.json"))
    path = tar(tmp_path / "evil.tar", relisted(change(files, record)))
    with pytest.raises(UserError, match="is not an export of results"):
        import_results(tmp_path / "inner" / "results", path)
    outside = {path for path in tmp_path.rglob("*") if path.is_file()} - set(everything_in(tmp_path / "inner"))
    assert outside == {path}


def test_links_and_unlisted_files_are_refused(exported, tmp_path):
    listing = {LISTING: members(exported)[LISTING]}
    for number, (name, kind) in enumerate([("models/x", tarfile.SYMTYPE), ("unlisted", tarfile.REGTYPE)]):
        path = tar(tmp_path / f"{number}.tar", listing | {name: b""}, kind)
        with pytest.raises(UserError, match="which is not in its list"):
            import_results(tmp_path / "results", path)


def test_a_checkpoint_is_recorded_by_type_and_forgotten_with_its_files(tmp_path):
    manifest = Manifest(tmp_path, "owner/name")
    record = CheckpointRecord(4, label="main")
    manifest.keep_checkpoint(record, "a", "float32", "commit 1")
    manifest.keep_checkpoint(record, "b", "bfloat16", "commit 1")
    assert manifest.checkpoints()[4].weights == {"float32": "a", "bfloat16": "b"}
    manifest.keep_checkpoint(record, "c", "float32", "commit 2")
    assert manifest.checkpoints()[4].weights == {"float32": "c"}
    (manifest.folder / "checkpoints" / "4.json").write_text("{")
    with pytest.raises(UserError, match=r"damaged record .*4\.json; delete it"):
        manifest.checkpoints()
