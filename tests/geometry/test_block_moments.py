"""Resampled blocks against the same measures on the rows written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from anisotropy.geometry.block_moments import BlockMoments
from anisotropy.geometry.isotropy import isoscore_star
from anisotropy.geometry.moments import Moments
from anisotropy.geometry.subspaces import energy_fraction, project_out

D, BLOCKS = 6, 4


def rows_of(seed, offset=0.0):
    random = np.random.default_rng(seed)
    scales = np.linspace(0.2, 3, D)
    return [
        torch.from_numpy(random.normal(size=(5 + 3 * block, D)) * scales + offset * random.normal(size=D))
        for block in range(BLOCKS)
    ]


def basis(seed, k=2):
    return torch.linalg.qr(torch.from_numpy(np.random.default_rng(seed).normal(size=(D, k)))).Q


multiplicities = hnp.arrays(np.int64, BLOCKS, elements=st.integers(0, 4)).filter(lambda counts: counts.sum() > 0)


@given(multiplicities, st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 100.0]), st.sampled_from([0.0, 0.2, 0.9]))
def test_equals_the_measures_on_the_resampled_rows(counts, seed, offset, zeta):
    rows, q = rows_of(seed, offset), basis(seed + 1)
    blocks = BlockMoments([Moments.of(block) for block in rows])
    weights = torch.from_numpy(counts)[None]
    written_out = torch.cat([block.repeat(int(count), 1) for block, count in zip(rows, counts, strict=True)])
    moments = Moments.of(written_out)
    tolerance = {"rel": 1e-7, "abs": 1e-9}
    uncentred = blocks.energy_fraction(q, weights)
    assert float(uncentred) == pytest.approx(float(energy_fraction(moments.scatter, q)), **tolerance)
    centred = blocks.energy_fraction(q, weights, centre=True)
    assert float(centred) == pytest.approx(float(energy_fraction(moments.covariance, q)), **tolerance)
    whole = blocks.isoscore_star(weights, zeta)
    assert float(whole) == pytest.approx(float(isoscore_star(moments.covariance, zeta)), **tolerance)
    left = blocks.isoscore_star(weights, zeta, q)
    expected = isoscore_star(project_out(moments.covariance, q), zeta)
    assert float(left) == pytest.approx(float(expected), **tolerance)


def test_draws_are_computed_side_by_side():
    blocks = BlockMoments([Moments.of(block) for block in rows_of(0)])
    weights = torch.tensor([[1, 1, 1, 1], [2, 0, 1, 1], [0, 0, 0, 3]])
    together = blocks.isoscore_star(weights, 0.1, basis(1))
    alone = torch.cat([blocks.isoscore_star(row[None], 0.1, basis(1)) for row in weights])
    torch.testing.assert_close(together, alone)
    assert blocks.dimension == D


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_unit_of_the_rows_does_not_matter(scale):
    weights = torch.tensor([[1, 2, 0, 1]])
    one, other = (BlockMoments([Moments.of(factor * block) for block in rows_of(3)]) for factor in (1.0, scale))
    torch.testing.assert_close(one.isoscore_star(weights, 0.2), other.isoscore_star(weights, 0.2))
    torch.testing.assert_close(one.energy_fraction(basis(2), weights), other.energy_fraction(basis(2), weights))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[1.0, 1.0]], r"weights have shape \(1, 2\); \(4 blocks\)"),
        ([1.0, 1.0, 1.0, 1.0], "weights have shape"),
        ([[0.0, 0.0, 0.0, 0.0]], "multiplicities"),
        ([[1.0, -1.0, 1.0, 1.0]], "multiplicities"),
        ([[1.0, float("nan"), 1.0, 1.0]], "multiplicities"),
    ],
)
def test_weights_that_are_no_multiplicities(weights, message):
    blocks = BlockMoments([Moments.of(block) for block in rows_of(0)])
    with pytest.raises(ValueError, match=message):
        blocks.energy_fraction(basis(0), torch.tensor(weights))


def test_blocks_that_say_nothing():
    with pytest.raises(ValueError, match="nothing to merge"):
        BlockMoments([])
    with pytest.raises(ValueError, match="block 1 holds no rows"):
        BlockMoments([Moments.of(rows_of(0)[0]), Moments(D)])
    with pytest.raises(ValueError, match="dimension 3"):
        BlockMoments([Moments.of(rows_of(0)[0]), Moments.of(torch.ones(2, 3))])
    zero = BlockMoments([Moments.of(torch.zeros(3, D)), Moments.of(rows_of(0)[0])])
    with pytest.raises(ValueError, match="no energy to share"):
        zero.energy_fraction(basis(0), torch.tensor([[1, 0]]))
    with pytest.raises(ValueError, match="nothing varies"):
        zero.isoscore_star(torch.tensor([[1, 0]]), 0.0)
    with pytest.raises(ValueError, match="zeta is 2"):
        zero.isoscore_star(torch.tensor([[1, 1]]), 2)
    with pytest.raises(ValueError, match="not orthonormal"):
        zero.energy_fraction(torch.ones(D, 2), torch.tensor([[1, 1]]))
