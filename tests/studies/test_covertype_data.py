"""The Forest Cover Type data: UCI's format on synthetic files, everything that is not it, and the stand-in."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from anisotropy.errors import UserError
from anisotropy.studies.covertype_data import FEATURES, load

SEED = 11


def covtype_rows(n=200, seed=SEED):
    """Rows of ``covtype.data``: 10 whole quantities, one of 4 wilderness areas, one of 40 soils, a cover type."""
    random = np.random.default_rng(seed)
    quantities = random.normal([2800, 180, 15, 250, 40, 2000, 210, 220, 140, 1900], 20, size=(n, 10)).round()
    wilderness, soil = np.eye(4)[random.integers(4, size=n)], np.eye(40)[random.integers(40, size=n)]
    labels = random.choice(7, size=n, p=np.array([30, 40, 10, 5, 5, 5, 5]) / 100) + 1
    labels[:7] = np.arange(1, 8)
    return np.column_stack([quantities, wilderness, soil, labels]).astype(int)


def lines(rows):
    return [",".join(map(str, row)) for row in rows]


def write(path, content):
    path.write_text("\n".join(content) + "\n")
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_in_ucis_format_is_read_as_it_is(tmp_path, packed):
    rows = covtype_rows()
    path = write(tmp_path / "covtype.data", lines(rows))
    if packed:
        packed_path = tmp_path / "covtype.data.gz"
        packed_path.write_bytes(gzip.compress(path.read_bytes()))
        path = packed_path
    found = load(str(path))
    varies = np.ptp(rows[:, :-1], axis=0) > 0
    assert_array_equal(found.rows, rows[:, :-1][:, varies])
    assert_array_equal(found.labels, rows[:, -1])
    assert found.constant == (~varies).sum()
    assert len(found.features) == found.rows.shape[1]
    assert found.features[0] == "Elevation"
    assert found.classes[7] == "Krummholz"
    assert not found.stand_in
    assert "stand-in" not in found.title + found.about
    assert found.rows.dtype == np.float64


def test_features_have_scikit_learns_names():
    from sklearn.datasets import _covtype

    assert list(FEATURES) == _covtype.FEATURE_NAMES


def test_what_scikit_learn_fetches_gives_the_same_as_the_file(tmp_path, monkeypatch):
    rows = covtype_rows()
    fetched = SimpleNamespace(data=rows[:, :-1].astype(float), target=rows[:, -1].astype(np.int32))
    monkeypatch.setattr("sklearn.datasets.fetch_covtype", lambda **options: fetched)
    one, other = load("covertype"), load(str(write(tmp_path / "covtype.data", lines(rows))))
    assert_array_equal(one.rows, other.rows)
    assert_array_equal(one.labels, other.labels)
    assert (one.title, one.features, one.classes) == (other.title, other.features, other.classes)


def test_without_network_the_message_says_what_to_do(monkeypatch):
    def refuse(**options):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_covtype", refuse)
    with pytest.raises(UserError, match=r"no route to host.*network once.*covtype\.data\.gz.*data='offline'"):
        load("covertype")


def changed(rows, row, column, value):
    table = [line.split(",") for line in lines(rows)]
    table[row][column] = value
    return [",".join(line) for line in table]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([line.rsplit(",", 1)[0] for line in lines(covtype_rows(9))], "has 54 columns; covtype.data has 55"),
        ([line + ",1" for line in lines(covtype_rows(9))], "has 56 columns"),
        ([*lines(covtype_rows(9)), lines(covtype_rows(9))[0] + ",1"], "line 10"),
        (changed(covtype_rows(9), 4, 2, "steep"), "row 5, column 3 holds 'steep', which is no number"),
        (changed(covtype_rows(9), 4, 2, ""), "row 5, column 3 holds no value"),
        (changed(covtype_rows(9), 4, 2, "inf"), "row 5, column 3"),
        ([",".join([*FEATURES, "Cover_Type"]), *lines(covtype_rows(9))], "row 1, column 1 .*no header"),
        (changed(covtype_rows(9), 4, 54, "8"), "holds 8; cover types are whole, from 1 to 7"),
        (changed(covtype_rows(9), 4, 54, "1.5"), "holds 1.5; cover types"),
        (changed(covtype_rows(9), 4, 20, "2"), "must hold 0 or 1"),
        ([line.rsplit(",", 1)[0] + ",3" for line in lines(covtype_rows(9))], "all 9 rows are of class 3; at least two"),
        ([lines(covtype_rows(9))[0][:-1] + str(label) for label in (1, 2)], "0 of 54 columns vary"),
    ],
)
def test_another_format_is_refused_by_line(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        load(str(write(tmp_path / "covtype.data", content)))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="'covtpe' is neither 'offline' nor 'covertype' nor a file"):
        load("covtpe")
    with pytest.raises(UserError, match="nor a file"):
        load(str(tmp_path))
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(UserError, match="is empty"):
        load(str(empty))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress("\n".join(lines(covtype_rows())).encode())[:-200])
    with pytest.raises(UserError, match="cannot read"):
        load(str(cut))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x81" * 50)
    with pytest.raises(UserError, match=r"is not in the format of|columns"):
        load(str(binary))
    with pytest.raises(UserError, match="max_rows: 1 is too few"):
        load(max_rows=1)


def test_a_subsample_is_drawn_from_its_seed_without_replacement(tmp_path):
    path = str(write(tmp_path / "covtype.data", lines(covtype_rows(400))))
    one, same, other = load(path, 150, seed=1), load(path, 150, seed=1), load(path, 150, seed=2)
    assert one.rows.shape[0] == 150
    assert one.available == 400
    assert_array_equal(one.labels, same.labels)
    assert_array_equal(one.rows, same.rows)
    assert one.labels.tolist() != other.labels.tolist()
    assert len(np.unique(one.rows, axis=0)) == 150  # the synthetic rows differ from one another


def test_the_stand_in_says_so_and_has_zipfs_frequencies():
    found = load()
    assert found.stand_in
    assert "stand-in" in found.title
    assert found.sizes().tolist() == [round(174 / rank) for rank in range(1, 11)]
    assert load(seed=0).sizes().index.tolist() != load(seed=1).sizes().index.tolist()
    assert (np.ptp(found.rows, axis=0) > 0).all()
    assert found.rows.shape[1] + found.constant == 64


def test_standardised_columns_have_mean_0_and_variance_1():
    x = load().scaled("standardised")
    assert_allclose(x.mean(0), 0, atol=1e-12)
    assert_allclose(x.var(0, ddof=1), 1)
