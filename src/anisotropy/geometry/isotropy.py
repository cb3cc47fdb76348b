"""Isotropy: how evenly a cloud of vectors fills the space it lives in.

Two questions go by this name and have different answers. *How many directions share the variance?* is answered by the
spectrum λ_1 ≥ … ≥ λ_d of the covariance: the participation ratio counts them, IsoScore rescales the count to [0, 1],
and IsoScore* does so for a shrunk covariance. *Do the vectors point the same way?* is answered by the mean cosine,
which a mean far from the origin drives to 1 however round the cloud around it is.

The first three take a covariance of shape (d, d), in any unit: all of them are free of scale. They need no eigenvalues,
because Σλ = tr C and Σλ² = ‖C‖²_F; that makes them exact, fast (O(d²)) and differentiable with respect to C. Everything
is accumulated in float64, and results are 0-dimensional float64 tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from anisotropy.geometry._checks import Matrix, rows_matrix, symmetric_matrix

__all__ = ["cosine_by_coordinate", "isoscore", "isoscore_star", "mean_cosine", "participation_ratio"]

_BLOCK = 4096


def participation_ratio(covariance: Matrix) -> Tensor:
    """Count the directions that share the variance: PR = (Σλ)²/Σλ².

    `covariance` has shape (d, d). The result is a 0-d tensor between 1 (all variance along one direction) and d (the
    same variance along each); r equal nonzero eigenvalues give r.

    Raises `ValueError` for a matrix that is not square, symmetric and finite, has a negative diagonal, or is zero.
    """
    matrix = symmetric_matrix(covariance, "covariance")
    return _participation(*_trace_and_squares(matrix))


def isoscore(covariance: Matrix) -> Tensor:
    """Score isotropy from 0 (one direction) to 1 (all alike): IsoScore = (PR − 1)/(d − 1).

    `covariance` has shape (d, d) with d ≥ 2. This closed form equals the algorithm of Rudman, Gillman, Rayne &
    Eickhoff (*IsoScore: Measuring the Uniformity of Embedding Space Utilization*, 2022): there the eigenvalues are
    normalised to length √d, their distance to (1, …, 1) is rescaled to an isotropy defect and mapped back, and every
    step is a function of PR alone. Their package rounds √d to float32, so it agrees to about 1e-7.

    The score of a *sample* is biased: for n isotropic rows its expectation is about n/(n + d), so n ≫ d is needed
    before a low score means anything.

    Raises `ValueError` as `participation_ratio` does, and for d = 1, where there is nothing to compare.
    """
    matrix = symmetric_matrix(covariance, "covariance")
    return _score(*_trace_and_squares(matrix), len(matrix))


def isoscore_star(covariance: Matrix, zeta: float, target: Matrix | None = None) -> Tensor:
    r"""Score the isotropy of a shrunk covariance: the IsoScore of (1 − ζ)C + ζC₀.

    `covariance` C and `target` C₀ have shape (d, d), d ≥ 2; `zeta` lies in [0, 1]. With few rows the sample covariance
    is far from round even when the source is; Rudman & Eickhoff (*Stable Anisotropic Regularization*, 2024) therefore
    shrink it towards a covariance C₀ that is known better.

    The default target is the round covariance of the same total variance, C₀ = (tr C/d)·I. Then the trace is unchanged
    and, with a = (1 − ζ)²,

    .. math:: \frac{1}{\mathrm{PR}_\zeta} = \frac{a}{\mathrm{PR}} + \frac{1 - a}{d},

    so the score does not depend on the scale of C; it is ζ-monotone, equals IsoScore at ζ = 0 and 1 at ζ = 1. A fixed
    target such as the identity ties the score to the unit: for tiny gradients C₀ = I drives it to 1 whatever their
    shape.

    Raises `ValueError` as `isoscore` does, for ζ outside [0, 1], and for a target of another shape.
    """
    if not 0 <= zeta <= 1:
        raise ValueError(f"zeta is {zeta}; it must lie between 0 (no shrinkage) and 1 (the target alone)")
    matrix = symmetric_matrix(covariance, "covariance")
    d = len(matrix)
    if target is None:
        return _score(*shrunk_invariants(*_trace_and_squares(matrix), d, zeta), d)
    other = symmetric_matrix(target, "target")
    if other.shape != matrix.shape:
        raise ValueError(f"target has shape {tuple(other.shape)} and covariance {tuple(matrix.shape)}; they must agree")
    return _score(*_trace_and_squares((1 - zeta) * matrix + zeta * other), d)


def mean_cosine(x: Matrix) -> Tensor:
    r"""Average the cosine over all pairs of different rows, exactly.

    `x` has shape (n, d) with n ≥ 2. With u_i = x_i/‖x_i‖ the sum over all ordered pairs is ‖Σu_i‖² − n, so

    .. math::
        \operatorname{mean}_{i \ne j} \cos(x_i, x_j) = \frac{\lVert\sum_i u_i\rVert^2 - n}{n(n - 1)},

    in O(nd) time and without any n × n matrix. The result is a 0-d tensor between −1/(n − 1) and 1; 0 is expected of
    directions drawn uniformly. Ethayarajh (2019) calls it the anisotropy of contextual representations.

    Raises `ValueError` for fewer than 2 rows, values that are not finite, and rows of length zero, which have no
    direction: leave them out first.
    """
    matrix = rows_matrix(x, "x", rows=2)
    n, d = matrix.shape
    total = torch.zeros(d, dtype=torch.float64, device=matrix.device)
    for _, units in _unit_rows(matrix):
        total = total + units.sum(dim=0)
    return (total.square().sum() - n) / (n * (n - 1))


def cosine_by_coordinate(x: Matrix, labels: Tensor) -> Tensor:
    r"""Split the mean cosine over pairs of rows with *different* labels into what each coordinate adds to it.

    `x` has shape (n, d); `labels` (n,) are integers, such as the token of each row: rows of one token are alike for a
    reason that says nothing about the cloud. With u_i = x_i/‖x_i‖, U_a the sum of the u_i with label a and n_a their
    number, coordinate j adds

    .. math:: c_j = \frac{\bigl(\sum_a U_{aj}\bigr)^2 - \sum_a U_{aj}^2}{n^2 - \sum_a n_a^2},

    and Σ_j c_j is the mean cosine: exact, in O(nd). With all labels different it is `mean_cosine`. The contribution of
    single coordinates is Timkey & van Schijndel's (*All Bark and No Bite*, 2021), there averaged over sampled pairs.

    The result has shape (d,), float64. Raises `ValueError` as `mean_cosine` does, for labels that are not n integers,
    and where all labels are the same.
    """
    matrix = rows_matrix(x, "x", rows=2)
    n, d = matrix.shape
    if labels.shape != (n,) or labels.is_floating_point():
        raise ValueError(f"labels must be {n} integers, one a row; got {labels.dtype} of shape {tuple(labels.shape)}")
    found, place = torch.unique(labels.to(matrix.device), return_inverse=True)
    if len(found) < 2:
        raise ValueError(f"all {n} rows have the label {int(found[0])}; a pair needs two different ones")
    sums = torch.zeros(len(found), d, dtype=torch.float64, device=matrix.device)
    for start, units in _unit_rows(matrix):
        sums = sums.index_add(0, place[start : start + len(units)], units)
    pairs = n**2 - int(torch.bincount(place).square().sum())
    return (sums.sum(dim=0).square() - sums.square().sum(dim=0)) / pairs


def _unit_rows(matrix: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield blocks of rows scaled to length 1 in float64, each with the number of its first row."""
    for start in range(0, len(matrix), _BLOCK):
        block = matrix[start : start + _BLOCK].to(torch.float64)
        # Dividing by the largest entry first keeps the squares of very small and very large rows representable.
        largest = block.detach().abs().amax(dim=1, keepdim=True)
        empty = (largest == 0).flatten().nonzero()
        if len(empty):
            raise ValueError(f"x[{start + int(empty[0])}] is zero and has no direction; leave such rows out")
        block = block / largest
        yield start, block / block.norm(dim=1, keepdim=True)


def shrunk_invariants(trace: Tensor, squares: Tensor, d: int, zeta: float) -> tuple[Tensor, Tensor]:
    """Return (tr, ‖·‖²_F) of (1 − ζ)C + ζ(tr C/d)I from those of C: the trace stays, the squares move to tr²/d."""
    a = (1 - zeta) ** 2
    return trace, a * squares + (1 - a) * trace.square() / d


def _trace_and_squares(matrix: Tensor) -> tuple[Tensor, Tensor]:
    # Every score here is free of scale; dividing keeps the squares of a covariance of 1e-200 from vanishing.
    scaled = matrix / matrix.detach().abs().max()
    return scaled.diagonal().sum(), scaled.square().sum()


def _participation(trace: Tensor, squares: Tensor) -> Tensor:
    return trace.square() / squares


def _score(trace: Tensor, squares: Tensor, d: int) -> Tensor:
    if d < 2:
        raise ValueError("covariance has shape (1, 1); isotropy compares directions, so at least 2 are needed")
    return (_participation(trace, squares) - 1) / (d - 1)
