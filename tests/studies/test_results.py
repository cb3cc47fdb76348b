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


def test_a_damaged_record_is_named(store):
    store.write(KEY, collection(x=np.zeros(1)))
    next(store.root.rglob("record.json")).write_text("{")
    with pytest.raises(UserError, match=r"damaged result .*delete that folder"):
        list(store.records())


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
