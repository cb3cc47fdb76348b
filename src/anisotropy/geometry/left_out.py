r"""Principal directions of all rows but one, for every row in turn, from one eigendecomposition.

A row takes part in the principal directions it is then held against, so it looks more aligned with them than it is.
Leaving it out changes the scatter by a rank-one term, S' = S − n/(n − 1)·uuᵀ with u the row minus the mean. In the
eigenbasis of S that is diag(λ) − zzᵀ, whose eigenvalues μ interlace the old ones and solve the secular equation

.. math:: f(\mu) = 1 - \sum_j \frac{z_j^2}{\lambda_j - \mu} = 0,

with eigenvectors (λ_j − μ)⁻¹ z_j (Golub 1973; Bunch, Nielsen & Sorensen 1978). Per row that costs O(d) for each wanted
direction instead of O(d³) for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["left_out_shares", "subspace_shares"]

Array = NDArray[np.float64]
_ROWS_AT_A_TIME = 256  # 256 rows of 128 to 768 values stay in a core's cache
_ITERATIONS = 60  # a few are enough; bisection, where it must help out, needs more
_CLOSE = 1e-6  # convergence is quadratic: after a relative step of this size the next one is below rounding
_SMALLEST = 1e-10  # smaller components of z than this share of its length are raised to it


def subspace_shares(vectors: NDArray[np.floating], basis: Array) -> Array:
    """Return each vector's share of squared length in the span of the first 1, 2, … columns of a basis.

    Args:
        vectors: shape (n, d). A zero vector has no direction: its shares are NaN.
        basis: orthonormal columns, shape (d, k).

    Returns:
        Shape (n, k), increasing along each row, between 0 and 1.
    """
    wide = np.asarray(vectors, dtype=np.float64)
    return _shares(np.cumsum((wide @ basis) ** 2, axis=1), wide)


def left_out_shares(
    count: int, mean: Array, centred_scatter: Array, rows: NDArray[np.floating], vectors: Sequence[Array], rank: int
) -> list[Array]:
    """Return the shares of each row's vectors in the principal subspaces of all *other* rows.

    Row i is left out exactly: the subspaces are those of the centred scatter of the remaining count − 1 rows about
    their own mean.

    Args:
        count: number of rows behind the moments.
        mean: their mean, shape (d,).
        centred_scatter: Σ (x − mean)(x − mean)ᵀ, shape (d, d).
        rows: some of those rows, each left out in turn, shape (n, d).
        vectors: arrays of shape (n, d); line i belongs to row i. A zero vector has shares NaN.
        rank: the largest rank.

    Returns:
        For each array of ``vectors`` one of shape (n, rank) with the share of squared length in the leading 1, 2, …,
        rank directions.

    Raises:
        ValueError: a rank below 1, or beyond the directions that still vary whichever row is left out.
    """
    values, directions = np.linalg.eigh((centred_scatter + centred_scatter.T) / 2)
    values, directions = values[::-1].copy(), np.ascontiguousarray(directions[:, ::-1])
    varying = int((values > values[0] * len(values) * np.finfo(np.float64).eps).sum())
    if not 1 <= rank < varying:
        raise ValueError(
            f"rank is {rank}; it must lie between 1 and {varying - 1}: {varying} directions vary, one may go with a row"
        )
    found = [np.empty((len(rows), rank)) for _ in vectors]
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = slice(start, start + _ROWS_AT_A_TIME)
        z = (np.asarray(rows[part], dtype=np.float64) - mean) @ directions * np.sqrt(count / (count - 1))
        turned = [np.asarray(array[part], dtype=np.float64) @ directions for array in vectors]
        energies = _leading_energies(values, z, turned, rank)
        for shares, energy, array in zip(found, energies, turned, strict=True):
            shares[part] = _shares(np.cumsum(energy, axis=1), array)
    return found


def _shares(energies: Array, vectors: Array) -> Array:
    squares = np.einsum("nd,nd->n", vectors, vectors)
    with np.errstate(invalid="ignore"):
        return np.clip(energies / np.where(squares > 0, squares, np.nan)[:, None], 0, 1)


def _leading_energies(values: Array, z: Array, vectors: Sequence[Array], rank: int) -> list[Array]:
    """Squared components of vectors along the leading eigenvectors of diag(values) − zzᵀ, values falling."""
    # Without zeros in z and without ties every interval between neighbouring values holds exactly one eigenvalue;
    # raising what is tiny disturbs the scatter by less than float64 resolves in it.
    length = np.sqrt(np.einsum("nd,nd->n", z, z))[:, None]
    least = np.maximum(_SMALLEST * length, 1e-12 * np.sqrt(values[0]))
    z = np.where(np.abs(z) < least, least, z)
    apart = 16 * np.finfo(np.float64).eps * values[0]
    values = values + apart * np.arange(len(values))[::-1]
    found = [np.empty((len(z), rank)) for _ in vectors]
    squares = z * z
    for i in range(rank):
        differences = _root_differences(values, squares, i)
        direction = z / differences
        norm = np.einsum("nd,nd->n", direction, direction)
        for energy, array in zip(found, vectors, strict=True):
            energy[:, i] = np.einsum("nd,nd->n", array, direction) ** 2 / norm
    return found


def _root_differences(values: Array, squares: Array, i: int) -> Array:
    """λ_j − μ_i for the root μ_i between values i + 1 and i, shape (n, d), accurate for the two next to the root."""
    gap = values[i] - values[i + 1]
    parts = np.zeros((len(values), 2))
    parts[: i + 1, 0] = parts[i + 1 :, 1] = 1
    # The first step starts in the middle, the same point for all rows, so that sums over j are matrix products.
    middle = values - (values[i] + values[i + 1]) / 2
    value = 1 - squares @ (1 / middle)
    above, below = (squares @ (parts / middle[:, None] ** 2)).T
    # f falls from +∞ to −∞: positive in the middle, the root lies in the upper half. Distances are kept from the pole
    # that is nearer, where subtracting the root itself would cancel.
    upper = value > 0
    base = np.where(upper[:, None], values - values[i], values - values[i + 1])
    low, high = np.where(upper, -gap / 2, 0.0), np.where(upper, 0.0, gap / 2)
    offset = np.where(upper, -gap / 2, gap / 2)
    differences = base - offset[:, None]
    for _ in range(_ITERATIONS):
        new = offset + _rational_step(value, above, below, differences[:, i], differences[:, i + 1])
        inside = (new >= low) & (new <= high) & (new != 0)
        new = np.where(inside, new, (low + high) / 2)
        moved = np.abs(new - offset) > _CLOSE * np.abs(new)
        offset = new
        np.subtract(base, offset[:, None], out=differences)
        if not moved.any():
            break
        inverse = 1 / differences
        terms = squares * inverse
        value = 1 - terms.sum(1)
        terms *= inverse
        above, below = (terms @ parts).T
        # f is decreasing: where it is positive the root lies higher.
        low, high = np.where(value > 0, offset, low), np.where(value > 0, high, offset)
    return differences


def _rational_step(value: Array, above: Array, below: Array, upper: Array, lower: Array) -> Array:
    """Step to the root of c − s/(upper − x) − t/(lower − x), which has the two parts' values and slopes at x = 0."""
    s, t = above * upper**2, below * lower**2
    c = value + above * upper + below * lower
    linear = c * (upper + lower) - s - t
    constant = upper * lower * value
    root = linear + np.copysign(np.sqrt(np.maximum(linear**2 - 4 * c * constant, 0)), linear)
    with np.errstate(divide="ignore", invalid="ignore"):
        near, far = 2 * constant / root, root / (2 * c)
    return np.where((near > lower) & (near < upper), near, far)
