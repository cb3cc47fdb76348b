import json
import tarfile

import numpy as np
import pytest

from anisotropy.errors import UserError
from anisotropy.studies.results import Collection, Key, ResultStore

KEY = Key("frequency", {"probe": "Tm"}, "w" * 64, "t" * 64, "c" * 64)


def collection(**arrays):
    return Collection("mini-pythia", 4, KEY.weight_hash, arrays, {"device": "cpu", "date": "2026-01-01", "seconds": 1})


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "results")


def test_what_is_written_is_read(store):
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert KEY not in store
    store.write(KEY, collection(rows=rows, ids=np.arange(5)))
    found = store.read(KEY, "another label", 7)
    np.testing.assert_array_equal(found.arrays["rows"], rows)
    assert found.arrays["ids"].dtype == np.int64
    assert (found.model, found.step) == ("another label", 7)
    assert found.provenance["device"] == "cpu"


@pytest.mark.parametrize("field", ["study", "weight_hash", "text", "code"])
def test_each_part_of_the_key_counts(field):
    changed = {name: getattr(KEY, name) for name in ("study", "parameters", "weight_hash", "text", "code")}
    assert Key(**changed | {field: "other"}).digest != KEY.digest
    assert Key(**changed).digest == KEY.digest


def test_parameters_count_whatever_their_order():
    one = Key("s", {"a": 1, "b": 2}, "w", "t", "c")
    assert one.digest == Key("s", {"b": 2, "a": 1}, "w", "t", "c").digest
    assert one.digest != Key("s", {"a": 1, "b": 3}, "w", "t", "c").digest


def test_non_contiguous_arrays_keep_their_values(store):
    rows = np.arange(12.0).reshape(3, 4).T
    store.write(KEY, collection(rows=rows))
    np.testing.assert_array_equal(store.read(KEY, "m", 0).arrays["rows"], rows)


def test_the_first_of_two_writers_wins(store):
    store.write(KEY, collection(x=np.zeros(1)))
    store.write(KEY, collection(x=np.ones(1)))
    assert store.read(KEY, "m", 0).arrays["x"] == 0


def test_a_failed_write_leaves_nothing(store, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("anisotropy.studies.results.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        store.write(KEY, collection(x=np.zeros(1)))
    assert KEY not in store
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_a_damaged_file_is_named(store):
    store.write(KEY, collection(x=np.zeros(100)))
    file = next(store.root.rglob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(UserError, match=r"damaged result .*delete that folder"):
        store.read(KEY, "m", 0)


def test_export_and_import(store, tmp_path):
    other_key = Key("frequency", {}, "x", "t", "c")
    store.write(KEY, collection(x=np.arange(3.0)))
    store.write(other_key, collection(x=np.arange(4.0)))
    assert store.export(tmp_path / "all.tar") == 2
    other = ResultStore(tmp_path / "elsewhere")
    other.write(other_key, collection(x=np.arange(4.0)))
    assert other.import_from(tmp_path / "all.tar") == (1, 1)
    np.testing.assert_array_equal(other.read(KEY, "m", 0).arrays["x"], np.arange(3.0))
    assert [record["key"]["study"] for record in other.records()] == ["frequency", "frequency"]


def test_nothing_to_export(store, tmp_path):
    with pytest.raises(UserError, match="nothing to export"):
        store.export(tmp_path / "all.tar")
    assert not (tmp_path / "all.tar").exists()


def test_import_of_what_is_no_export(store, tmp_path):
    with pytest.raises(UserError, match="no such file"):
        store.import_from(tmp_path / "missing.tar")
    (tmp_path / "text.tar").write_text("hello")
    with pytest.raises(UserError, match="not an export"):
        store.import_from(tmp_path / "text.tar")


def test_a_record_that_belies_its_place_is_refused(store, tmp_path):
    store.write(KEY, collection(x=np.zeros(1)))
    record = next(store.root.rglob("record.json"))
    content = json.loads(record.read_text())
    content["key"]["weight_hash"] = "forged"
    record.write_text(json.dumps(content))
    store.export(tmp_path / "forged.tar")
    with pytest.raises(UserError, match="belies its record"):
        ResultStore(tmp_path / "clean").import_from(tmp_path / "forged.tar")


def test_members_outside_the_folder_are_not_written(store, tmp_path):
    (tmp_path / "record.json").write_text(json.dumps({"key": KEY.content(), "provenance": {}}))
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "record.json", arcname="../../escaped/record.json")
    with pytest.raises(UserError, match="belies"):
        store.import_from(tmp_path / "evil.tar")
    assert not (tmp_path.parent / "escaped").exists()


def test_kept_collections_are_found_by_what_they_say_of_themselves(store):
    for step in (4, 0):
        key = Key("tangents", {"tokens": 8}, f"w{step}", "text", "code")
        store.write(key, Collection("olmo-1b", step, f"w{step}", {"x": np.array(step)}, {}))
    store.write(Key("tangents", {"tokens": 9}, "w", "text", "code"), collection())
    store.write(Key("tangents", {"tokens": 8}, "w", "text", "old code"), collection())
    store.write(Key("frequency", {"tokens": 8}, "w", "text", "code"), collection())
    found = store.kept("tangents", {"tokens": 8}, "code")
    assert list(found) == ["olmo-1b"]
    assert [(one.step, int(one.arrays["x"])) for one in found["olmo-1b"]] == [(0, 0), (4, 4)]
    assert store.kept("tangents", {"tokens": 10}, "code") == {}
