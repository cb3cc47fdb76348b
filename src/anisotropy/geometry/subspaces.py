"""Subspaces: how much of a set of vectors lies along a few directions, and how much would by chance.

A basis is a matrix Q of shape (d, k) with orthonormal columns. A *scatter* is S = GᵀG of shape (d, d) for rows G (for
gradients: uncentred, their sum of outer products), a *covariance* the centred and normalised kind; both are sums over
rows, so they add over blocks and machines, and no measure here needs the rows again. Every share stands beside its
chance value: the mean over random bases where that has a closed form, seeded draws where a distribution is needed.

Computations run in float64 on the device of the input. Random bases are drawn with NumPy's generator on the CPU, so one
seed means the same bases on every device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from anisotropy.geometry._checks import Matrix, check_rank, orthonormal_basis, rows_matrix, symmetric_matrix
from anisotropy.geometry.isotropy import shrunk_invariants

__all__ = [
    "NullEnergies",
    "RemovalNull",
    "energy_fraction",
    "energy_ratio",
    "enrichment",
    "isoscore_removal_null",
    "next_variance_basis",
    "null_energies",
    "principal_angles",
    "principal_basis",
    "project_out",
    "random_normal_basis",
    "subspace_similarity",
]

_BLOCK = 4096
_DRAWN_VALUES = 2**22  # 32 MiB of float64 per batch of random bases


@dataclass(frozen=True)
class NullEnergies:
    """Energy fractions of random bases: `energies` of shape (draws,), and the `p_value` of the basis they stand
    beside.
    """

    energies: Tensor
    p_value: float


@dataclass(frozen=True)
class RemovalNull:
    """The change of IsoScore* when random directions are removed.

    `deltas` has shape (draws,) and holds the relative changes in percent, `mean` is their mean, and `base` the
    IsoScore* before anything is removed.
    """

    deltas: Tensor
    mean: float
    base: float


def principal_basis(covariance: Matrix, rank: int) -> Tensor:
    """Return the `rank` directions of largest variance, as a basis of shape (d, rank), largest first.

    `covariance` has shape (d, d). The sign of each column is fixed (its entry of largest magnitude is positive), so
    equal input gives equal output on every machine.

    Raises `ValueError` for a rank outside 1 … d, a rank beyond the number of directions that vary at all (n rows give
    at most n − 1 after centring; directions without variance are in no order), and the matrices that
    `participation_ratio` refuses.
    """
    vectors, varying = _principal_directions(covariance)
    check_rank(rank, len(vectors), f"the space has {len(vectors)} dimensions")
    check_rank(rank, varying, f"only {varying} directions have variance; the others are in no order")
    return vectors[:, :rank].clone()


def next_variance_basis(covariance: Matrix, rank: int) -> Tensor:
    """Return the principal directions rank + 1 … 2·rank, as a basis of shape (d, rank).

    This is the matched control for `principal_basis`: the same rank, orthogonal to it, and the largest variance that
    is left. It is harder to beat than random directions, which mostly catch directions of little variance.

    Raises `ValueError` as `principal_basis` does at twice the rank.
    """
    vectors, varying = _principal_directions(covariance)
    check_rank(rank, len(vectors) // 2, f"2·rank directions must fit into {len(vectors)} dimensions")
    check_rank(rank, varying // 2, f"only {varying} directions have variance, and 2·rank are needed")
    return vectors[:, rank : 2 * rank].clone()


def random_normal_basis(basis: Matrix, seed: int) -> Tensor:
    """Draw a basis of the same shape (d, k) uniformly from those orthogonal to `basis`.

    Raises `ValueError` if the complement, of dimension d − k, has no room for k directions, or if the columns of
    `basis` are not orthonormal.
    """
    q = orthonormal_basis(basis, "basis")
    _check_complement(*q.shape)
    return next(_random_bases(q.shape[0], q.shape[1], 1, seed, q))[0]


def energy_fraction(scatter: Matrix, basis: Matrix) -> Tensor:
    """Return the share of the squared length of the rows that lies in a subspace: e = tr(QᵀSQ)/tr S.

    `scatter` S has shape (d, d) and `basis` Q (d, k). The result is a 0-d tensor between 0 and 1, with chance value
    k/d. Pass the uncentred scatter for the energy of the rows, the centred one for their variance.

    Raises `ValueError` for a zero scatter (it has no energy to share), other shapes, or columns that are not
    orthonormal.
    """
    s = symmetric_matrix(scatter, "scatter")
    q = orthonormal_basis(basis, "basis", len(s))
    return _energies(s, q[None])[0]


def energy_ratio(scatter: Matrix, basis: Matrix) -> Tensor:
    r"""Compare the energy in a subspace with that of random ones orthogonal to it.

    .. math:: E_r = \frac{e\,(d - k)}{(1 - e)\,k}

    with the energy fraction e. A random basis of rank k in the complement of Q catches on average (1 − e)·k/(d − k) of
    the energy, so E_r is exactly e over that mean (not the mean of the ratios, which is larger). It is 1 for isotropic
    rows, and infinite if no energy lies outside the subspace. The result is a 0-d tensor.

    Raises `ValueError` as `energy_fraction` does, and for k = d, where the complement is empty.
    """
    s = symmetric_matrix(scatter, "scatter")
    q = orthonormal_basis(basis, "basis", len(s))
    d, k = q.shape
    if k == d:
        raise ValueError(f"basis spans all {d} dimensions; there is no complement to compare with")
    inside = _energies(s, q[None])[0]
    return inside * (d - k) / ((1 - inside).clamp_min(0) * k)


def null_energies(
    scatter: Matrix, basis: Matrix, draws: int, seed: int, space: Literal["complement", "ambient"] = "complement"
) -> NullEnergies:
    r"""Draw random bases of the same rank and see how often they catch as much energy.

    `scatter` has shape (d, d), `basis` (d, k). With B = `draws` bases and e the energy fraction of `basis`,

    .. math:: p = \frac{1 + \#\{\text{drawn energies} \ge e\}}{B + 1}.

    `space` says where the bases come from, and with it what p means.

    - `"ambient"` draws from all of R^d. If `basis` itself is a random one the draws are exchangeable with it, so p is
      uniform on 1/(B + 1), …, 1: a valid test of "these directions are no better than random ones".
    - `"complement"` draws orthogonal to `basis`, as the paper does. What one of two orthogonal subspaces catches the
      other cannot, so p is *not* uniform for a random basis: it hits the floor 1/(B + 1) more often than once in B + 1
      times, and more so the larger k/d. It describes; it does not test.

    Raises `ValueError` as `energy_fraction` does, for fewer than one draw or another `space`, and in the complement if
    d − k < k.
    """
    if space not in ("complement", "ambient"):
        raise ValueError(f"space is {space!r}; it must be 'complement' or 'ambient'")
    s = symmetric_matrix(scatter, "scatter")
    q = orthonormal_basis(basis, "basis", len(s))
    _check_draws(draws)
    d, k = q.shape
    if space == "complement":
        _check_complement(d, k)
    bases = _random_bases(d, k, draws, seed, q if space == "complement" else None, device=s.device)
    energies = torch.cat([_energies(s, batch) for batch in bases])
    # Equal energies, as for isotropic rows, differ by rounding; the slack counts them as equal.
    as_large = int((energies >= _energies(s, q[None])[0] * (1 - 1e-12)).sum())
    return NullEnergies(energies, (1 + as_large) / (draws + 1))


def project_out(covariance: Matrix, basis: Matrix) -> Tensor:
    """Remove a subspace from a covariance: PCP with P = I − QQᵀ, of shape (d, d).

    It is the covariance of the rows after their component along `basis` is taken away. The ambient dimension stays d,
    with k eigenvalues now zero, so a score of the result must be compared with what removing *any* k directions does:
    `isoscore_removal_null`.

    Raises `ValueError` for matrices that are not symmetric or of other shapes, and columns that are not orthonormal.
    """
    c = symmetric_matrix(covariance, "covariance")
    q = orthonormal_basis(basis, "basis", len(c))
    left = c - q @ (q.T @ c)
    projected = left - (left @ q) @ q.T
    return (projected + projected.T) / 2


def isoscore_removal_null(covariance: Matrix, rank: int, zeta: float, draws: int, seed: int) -> RemovalNull:
    r"""Measure what removing `rank` random directions does to IsoScore*.

    Removing directions makes any covariance less isotropic, because k of the d eigenvalues become zero: a negative
    change is no news, only a change beyond this null is. For each of `draws` random bases Q the relative change

    .. math::
        \Delta = 100\,\frac{\mathrm{Iso}^\star(PCP) - \mathrm{Iso}^\star(C)}{\mathrm{Iso}^\star(C)},
        \qquad P = I - QQ^\top,

    is taken in percent, with the default target recomputed from PCP and d kept. On an isotropic covariance every draw
    gives −100·dka/((d − 1)(d − k(1 − a))) with a = (1 − ζ)², which at ζ = 0 is −100k/(d − 1); for any spectrum at ζ = 0
    the mean is about −100·k·PR/d². The score follows from traces (tr PCP = tr C − tr QᵀCQ and ‖PCP‖² = ‖C‖² − 2‖CQ‖² +
    ‖QᵀCQ‖²), so a draw costs O(d²k).

    Raises `ValueError` for a rank outside 1 … d − 1, ζ outside [0, 1], fewer than one draw, matrices that
    `participation_ratio` refuses, or a covariance with IsoScore* 0, of which no change is a percentage.
    """
    if not 0 <= zeta <= 1:
        raise ValueError(f"zeta is {zeta}; it must lie between 0 (no shrinkage) and 1 (the target alone)")
    _check_draws(draws)
    c = symmetric_matrix(covariance, "covariance")
    c = c / c.abs().max()
    d = len(c)
    check_rank(rank, d - 1, f"something must be left of {d} dimensions")

    def score(trace: Tensor, squares: Tensor) -> Tensor:
        trace, squares = shrunk_invariants(trace, squares, d, zeta)
        return (trace.square() / squares - 1) / (d - 1)

    trace, squares = c.diagonal().sum(), c.square().sum()
    base = float(score(trace, squares))
    if base < 1e-12:
        raise ValueError(f"the IsoScore* of covariance is {base:.3g}; a change relative to it is not defined")
    deltas = []
    for q in _random_bases(d, rank, draws, seed, None, device=c.device):
        cq = _times_batch(c, q)
        inner = q.mT @ cq
        removed_trace = inner.diagonal(dim1=1, dim2=2).sum(dim=1)
        left = squares - 2 * cq.square().sum(dim=(1, 2)) + inner.square().sum(dim=(1, 2))
        deltas.append(100 * (score(trace - removed_trace, left) - base) / base)
    values = torch.cat(deltas)
    return RemovalNull(values, float(values.mean()), base)


def enrichment(rows: Matrix, basis: Matrix) -> Tensor:
    r"""Return for each row w its share in the subspace over the chance share.

    .. math:: \frac{\lVert Q^\top w\rVert^2 / \lVert w\rVert^2}{k/d}

    `rows` has shape (n, d), `basis` (d, k); the result has shape (n,) and lies between 0 and d/k. A row of uniformly
    random direction has ‖Qᵀw‖²/‖w‖² ~ Beta(k/2, (d − k)/2), hence mean enrichment 1 and standard deviation
    √(2(d − k)/(k(d + 2))). A zero row has no direction: its enrichment is NaN, a missing value.

    Raises `ValueError` for values that are not finite, other shapes, or columns that are not orthonormal.
    """
    matrix = rows_matrix(rows, "rows")
    q = orthonormal_basis(basis, "basis", matrix.shape[1]).to(matrix.device)
    d, k = q.shape
    shares = []
    for start in range(0, len(matrix), _BLOCK):
        block = matrix[start : start + _BLOCK].to(torch.float64)
        largest = block.detach().abs().amax(dim=1, keepdim=True)
        block = block / largest
        shares.append((block @ q).square().sum(dim=1) / block.square().sum(dim=1))
    return torch.cat(shares) * (d / k)


def principal_angles(a: Matrix, b: Matrix) -> Tensor:
    """Return the angles between two subspaces, in radians, smallest first.

    `a` and `b` are bases of shapes (d, k_a) and (d, k_b); the result has shape (min(k_a, k_b),) with values in
    [0, π/2]. Angles whose cosine is near 1 are taken from their sine, which keeps small angles accurate to 1e-16 where
    the arc cosine alone would stop at 1e-8 (Björck & Golub 1973; Knyazev & Argentati 2002).

    Raises `ValueError` if the bases live in different dimensions or their columns are not orthonormal.
    """
    qa = orthonormal_basis(a, "a")
    qb = orthonormal_basis(b, "b", len(qa)).to(qa.device)
    if qb.shape[1] > qa.shape[1]:
        qa, qb = qb, qa
    # Bases that come from float32 are orthonormal to 1e-7 only; that would show as angles of 3e-4.
    qa, qb = (torch.linalg.qr(q).Q for q in (qa, qb))
    inner = qa.T @ qb
    cosines = torch.linalg.svdvals(inner).clamp(max=1)
    sines = torch.linalg.svdvals(qb - qa @ inner).flip(0).clamp(max=1)
    return torch.where(cosines.square() >= 0.5, torch.arcsin(sines), torch.arccos(cosines))


def subspace_similarity(a: Matrix, b: Matrix) -> Tensor:
    """Return the mean squared cosine between two subspaces of equal rank: ‖QₐᵀQ_b‖²_F/k.

    `a` and `b` have shape (d, k). The result is a 0-d tensor between 0 (orthogonal) and 1 (the same subspace); two
    random subspaces give k/d on average.

    Raises `ValueError` if the shapes differ or columns are not orthonormal.
    """
    qa = orthonormal_basis(a, "a")
    qb = orthonormal_basis(b, "b", len(qa)).to(qa.device)
    if qa.shape != qb.shape:
        raise ValueError(f"a has rank {qa.shape[1]} and b rank {qb.shape[1]}; similarity compares equal ranks")
    return (qa.T @ qb).square().sum() / qa.shape[1]


def _principal_directions(covariance: Matrix) -> tuple[Tensor, int]:
    """Return all eigenvectors, largest variance first, signs fixed, and the number of those with variance."""
    c = symmetric_matrix(covariance, "covariance").detach()
    values, vectors = torch.linalg.eigh((c + c.T) / 2)
    values, vectors = values.flip(0), vectors.flip(1)
    leading = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    varying = int((values > values[0] * len(c) * torch.finfo(torch.float64).eps).sum())
    return vectors * torch.sign(leading), varying


def _random_bases(
    d: int, k: int, draws: int, seed: int, avoid: Tensor | None, device: torch.device | None = None
) -> Iterator[Tensor]:
    """Yield batches of shape (b, d, k) of uniformly random bases, orthogonal to the basis `avoid` if there is one."""
    generator = np.random.default_rng(seed)
    device = avoid.device if avoid is not None else device
    batch = max(1, _DRAWN_VALUES // (d * k))
    for start in range(0, draws, batch):
        gaussian = generator.standard_normal((min(batch, draws - start), d, k))
        frames = torch.from_numpy(gaussian).to(device or "cpu")
        if avoid is not None:
            # Twice, because after one pass an error of order ε relative to the *removed* part remains.
            for _ in range(2):
                frames = frames - avoid @ (avoid.T @ frames)
        q, r = torch.linalg.qr(frames)
        # LAPACK's signs are not uniform; with a positive diagonal of R the frame is Haar distributed (Mezzadri 2007).
        yield q * torch.sign(r.diagonal(dim1=1, dim2=2))[:, None, :]


def _times_batch(matrix: Tensor, bases: Tensor) -> Tensor:
    # One wide product instead of b narrow ones: (d, d) @ (d, b·k).
    b, d, k = bases.shape
    return (matrix @ bases.movedim(0, 1).reshape(d, b * k)).reshape(d, b, k).movedim(1, 0)


def _energies(scatter: Tensor, bases: Tensor) -> Tensor:
    return (_times_batch(scatter, bases) * bases).sum(dim=(1, 2)) / scatter.diagonal().sum()


def _check_complement(d: int, k: int) -> None:
    if d - k < k:
        raise ValueError(
            f"basis has rank {k} in {d} dimensions; its complement, of {d - k}, holds no basis of rank {k}"
        )


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise ValueError(f"draws is {draws}; at least 1 is needed")
