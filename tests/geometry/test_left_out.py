"""Leave-one-out principal subspaces against an eigendecomposition per row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisotropy.geometry.left_out import left_out_shares, subspace_shares


def moments(rows):
    mean = rows.mean(0, dtype=np.float64)
    centred = rows - mean
    return len(rows), mean, centred.T @ centred


def by_eigendecompositions(rows, which, vectors, rank):
    shares = np.empty((len(which), rank))
    for line, i in enumerate(which):
        _, directions = np.linalg.eigh(np.cov(np.delete(rows, i, axis=0).T))
        along = (vectors[line] @ directions[:, ::-1][:, :rank]) ** 2
        shares[line] = np.cumsum(along) / (vectors[line] @ vectors[line])
    return shares


@pytest.mark.parametrize(
    ("n", "scales"),
    [
        (12, np.ones(4)),
        (300, np.ones(24)),  # no direction stands out: leaving a row out turns them most
        (200, np.geomspace(1, 1e-3, 30)),
        (9, np.linspace(1, 2, 7)),  # hardly more rows than directions
    ],
)
def test_equals_an_eigendecomposition_without_the_row(n, scales):
    random = np.random.default_rng(5)
    d = len(scales)
    rows = random.normal(size=(n, d)) * scales + 3
    which = np.arange(min(n, 40))
    vectors = [random.normal(size=(len(which), d)), rows[which]]
    rank = d // 2
    found = left_out_shares(*moments(rows), rows[which], vectors, rank)
    for shares, array in zip(found, vectors, strict=True):
        np.testing.assert_allclose(shares, by_eigendecompositions(rows, which, array, rank), atol=1e-9)


@settings(max_examples=40)
@given(st.integers(3, 8), st.integers(0, 10**6), st.floats(0, 1))
def test_any_spectrum(d, seed, steepness):
    # Steeper ones end below what float64 resolves of the largest variance, in either computation.
    random = np.random.default_rng(seed)
    rows = random.normal(size=(4 * d, d)) * np.exp(-steepness * np.arange(d))
    vectors = random.normal(size=(4 * d, d))
    (found,) = left_out_shares(*moments(rows), rows, [vectors], d - 1)
    expected = by_eigendecompositions(rows, np.arange(len(rows)), vectors, d - 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (np.diff(found, axis=1) >= -1e-12).all()


def test_it_matters_for_the_row_itself():
    # Rows are independent and isotropic, so a row has on average the chance share of what the others span; of what it
    # helps to span it has more.
    left_out, everything = [], []
    for seed in range(60):
        rows = np.random.default_rng(seed).normal(size=(60, 20))
        count, mean, scatter = moments(rows)
        left_out.append(left_out_shares(count, mean, scatter, rows, [rows], 5)[0][:, 4].mean())
        everything.append(subspace_shares(rows, np.linalg.eigh(scatter)[1][:, ::-1][:, :5])[:, 4].mean())
    assert np.mean(left_out) == pytest.approx(5 / 20, abs=4 * np.std(left_out) / np.sqrt(60))
    assert np.mean(everything) > 1.3 * np.mean(left_out)


def test_a_row_at_the_mean_changes_nothing():
    random = np.random.default_rng(2)
    rows = random.normal(size=(50, 6)) * np.arange(6, 0, -1)
    count, mean, scatter = moments(rows)
    vector = random.normal(size=(1, 6))
    (found,) = left_out_shares(count, mean, scatter, mean[None], [vector], 4)
    basis = np.linalg.eigh(scatter)[1][:, ::-1]
    np.testing.assert_allclose(found, subspace_shares(vector, basis[:, :4]), atol=1e-9)


def test_equal_variances_and_rows_along_one_direction():
    # Two directions of equal variance, and rows that have no component along some of the others.
    rows = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 0.1], [0, 0, -0.1]], dtype=float)
    (found,) = left_out_shares(*moments(rows), rows[:1], [np.eye(3)[:1]], 2)
    # Without the first row direction 0 has half its variance, so direction 1 comes first.
    np.testing.assert_allclose(found, [[0, 1]], atol=1e-8)


def test_many_rows_are_taken_in_parts():
    random = np.random.default_rng(3)
    rows = random.normal(size=(600, 5))
    vectors = random.normal(size=(600, 5))
    count, mean, scatter = moments(rows)
    (whole,) = left_out_shares(count, mean, scatter, rows, [vectors], 3)
    (alone,) = left_out_shares(count, mean, scatter, rows[555:556], [vectors[555:556]], 3)
    np.testing.assert_allclose(whole[555:556], alone, atol=1e-12)


def test_a_zero_vector_has_no_share():
    rows = np.random.default_rng(4).normal(size=(30, 4))
    (found,) = left_out_shares(*moments(rows), rows[:2], [np.array([[0.0] * 4, [1.0] * 4])], 2)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
    assert np.isnan(subspace_shares(np.zeros((1, 4)), np.eye(4)[:, :2])).all()


@pytest.mark.parametrize("rank", [0, 4])
def test_a_rank_without_directions_is_refused(rank):
    rows = np.random.default_rng(4).normal(size=(30, 4))
    with pytest.raises(ValueError, match="between 1 and 3"):
        left_out_shares(*moments(rows), rows[:2], [rows[:2]], rank)


def test_the_share_in_a_basis():
    vectors = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
    np.testing.assert_allclose(subspace_shares(vectors, np.eye(3)), [[0.36, 1, 1], [0, 0, 1]])
