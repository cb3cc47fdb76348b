"""Energies and isotropy of resampled blocks, from the moments of each block.

A bootstrap over blocks asks for the same measures on thousands of multisets of blocks. Every one of them is a function
of sums over blocks, so the matrices are touched once: afterwards a resample with multiplicities w costs a few products
of size (blocks, blocks). With S_b the scatter of block b about a common point and s_b the sum of its rows about it,

    A = Σ w_b S_b,  v = Σ w_b s_b,  n = Σ w_b n_b,  (n − 1)C = A − vvᵀ/n,
    tr (n − 1)C = tr A − ‖v‖²/n,  ‖(n − 1)C‖² = ‖A‖² − 2vᵀAv/n + ‖v‖⁴/n²,

where ‖A‖² and vᵀAv are quadratic and cubic in w. Removing a subspace replaces S_b by PS_bP and s_b by Ps_b.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anisotropy.geometry._checks import Matrix, orthonormal_basis
from anisotropy.geometry.isotropy import shrunk_invariants
from anisotropy.geometry.moments import Moments

__all__ = ["BlockMoments"]


class BlockMoments:
    """Moments of disjoint blocks of rows in R^d, ready to be resampled.

    Weights are multiplicities, shape (draws, blocks), finite and not negative, with some block in each draw; a row of
    ones is the sample itself.
    """

    def __init__(self, blocks: Sequence[Moments]) -> None:
        """Take the blocks in; they must have rows of one dimension.

        Raises `ValueError` for no blocks, an empty block, or blocks of different dimension.
        """
        self.total = Moments.merged(blocks)
        if empty := [number for number, block in enumerate(blocks) if block.count == 0]:
            raise ValueError(f"block {empty[0]} holds no rows")
        self.counts = torch.tensor([float(block.count) for block in blocks], dtype=torch.float64)
        shifts = torch.stack([block.mean - self.total.mean for block in blocks])
        self._sums = self.counts[:, None] * shifts
        centred = torch.stack([block.centred_scatter for block in blocks])
        # About the common mean: about the origin a large offset would swallow the covariance's digits.
        self._scatters = centred + self.counts[:, None, None] * shifts[:, :, None] * shifts[:, None, :]
        self._means = torch.stack([block.mean for block in blocks])
        self._centred = centred
        flat = self._scatters.flatten(1)
        self._gram = flat @ flat.T

    @property
    def dimension(self) -> int:
        """Length d of a row."""
        return self.total.dimension

    def energy_fraction(self, basis: Matrix, weights: Tensor, centre: bool = False) -> Tensor:
        """Return the energy fraction of a basis (d, k) under each row of weights, shape (draws,).

        It is tr(QᵀSQ)/tr S with the uncentred scatter S, or with the scatter about the resample's own mean.

        Raises `ValueError` for a basis of another dimension or without orthonormal columns, for weights of another
        shape, and where all rows of a resample are zero (no energy to share).
        """
        q = orthonormal_basis(basis, "basis", self.dimension)
        w = self._checked(weights)
        if centre:
            whole, _ = self._invariants(w, None)
            left, _ = self._invariants(w, q)
            inside = whole - left
        else:
            whole = w @ self._energies(None)
            inside = w @ self._energies(q)
        if bool((whole <= 0).any()):
            raise ValueError("a resample has rows that are all zero; they have no energy to share")
        return inside / whole

    def isoscore_star(self, weights: Tensor, zeta: float, without: Matrix | None = None) -> Tensor:
        """Return IsoScore* of the covariance under each row of weights, shape (draws,), ambient dimension kept.

        With `without`, a basis (d, k), the subspace is removed first: Iso*(PCP), P = I − QQᵀ, with the target of the
        shrinkage recomputed from PCP.

        Raises `ValueError` as `energy_fraction` does, for ζ outside [0, 1], and where nothing varies in a resample.
        """
        if not 0 <= zeta <= 1:
            raise ValueError(f"zeta is {zeta}; it must lie between 0 (no shrinkage) and 1 (the target alone)")
        q = None if without is None else orthonormal_basis(without, "without", self.dimension)
        trace, squares = self._invariants(self._checked(weights), q)
        # What is left of equal rows after their mean is subtracted is rounding.
        if bool((trace <= 1e-13 * self._gram.max().sqrt()).any()):
            raise ValueError("in a resample nothing varies; isotropy compares directions of variance")
        trace, squares = shrunk_invariants(trace, squares, self.dimension, zeta)
        return (trace.square() / squares - 1) / (self.dimension - 1)

    def _checked(self, weights: Tensor) -> Tensor:
        w = torch.as_tensor(weights, dtype=torch.float64)
        if w.ndim != 2 or w.shape[1] != len(self.counts):
            raise ValueError(f"weights have shape {tuple(w.shape)}; ({len(self.counts)} blocks) columns are needed")
        if not bool(torch.isfinite(w).all()) or bool((w < 0).any()) or bool((w.sum(1) == 0).any()):
            raise ValueError("weights are multiplicities: finite, not negative, and not all zero in a draw")
        return w

    def _energies(self, q: Tensor | None) -> Tensor:
        """Return tr S_b, or tr(QᵀS_bQ), of each block's uncentred scatter."""
        if q is None:
            spread = self._centred.diagonal(dim1=1, dim2=2).sum(1)
            return spread + self.counts * self._means.square().sum(1)
        spread = ((self._centred @ q) * q).sum((1, 2))
        return spread + self.counts * (self._means @ q).square().sum(1)

    def _invariants(self, w: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the trace and the squared Frobenius norm of the centred scatter, projected off q if there is one."""
        traces, gram, sums = self._scatters.diagonal(dim1=1, dim2=2).sum(1), self._gram, self._sums
        if q is not None:
            crossed = self._scatters @ q
            inner = q.T @ crossed
            traces = traces - inner.diagonal(dim1=1, dim2=2).sum(1)
            crossed, inner = crossed.flatten(1), inner.flatten(1)
            gram = gram - 2 * crossed @ crossed.T + inner @ inner.T
            sums = sums - (sums @ q) @ q.T
        n = w @ self.counts
        products = sums @ sums.T
        cubic = torch.einsum("id,bde,je->ibj", sums, self._scatters, sums)
        length = ((w @ products) * w).sum(1)
        squares = ((w @ gram) * w).sum(1)
        mixed = (w @ cubic.transpose(0, 1).flatten(1)).view(len(w), *products.shape)
        bent = (w[:, None, :] @ mixed @ w[:, :, None]).flatten()
        return w @ traces - length / n, squares - 2 * bent / n + (length / n).square()
