"""What the measures accept: one place that turns input into float64 tensors or says what is wrong with it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

Matrix = Any  # a torch.Tensor, a NumPy array, or nested sequences of numbers


def rows_matrix(x: Matrix, name: str, rows: int = 1) -> Tensor:
    """Return `x` as a finite floating-point tensor of shape (n, d) with at least `rows` rows, in its own precision."""
    matrix = _tensor(x, name)
    if matrix.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; it must be two-dimensional, one point a row")
    if matrix.is_complex():
        raise ValueError(f"{name} is complex ({matrix.dtype}); it must be real")
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.float64)
    if matrix.shape[0] < rows or matrix.shape[1] < 1:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; at least {rows} row(s) and 1 column are needed")
    _check_finite(matrix, name)
    return matrix


def symmetric_matrix(c: Matrix, name: str) -> Tensor:
    """Return `c` as a float64 tensor of shape (d, d): finite, symmetric, no negative diagonal, not all zero.

    The graph of a differentiable input is kept.
    """
    matrix = rows_matrix(c, name).to(torch.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; it must be square, (d, d)")
    values = matrix.detach()
    largest = float(values.abs().max())
    if largest == 0:
        raise ValueError(f"{name} is zero everywhere: the points do not vary, so no direction stands out or fails to")
    skew = float((values - values.T).abs().max())
    # A float32 product XᵀX is symmetric to about 1e-7; a transposed or mixed-up matrix is off by order one.
    if skew > 1e-5 * largest:
        raise ValueError(f"{name} differs from its transpose by up to {skew:.3g}; it must be symmetric")
    smallest = float(values.diagonal().min())
    if smallest < -1e-5 * largest:
        raise ValueError(f"{name} has {smallest:.3g} on its diagonal; variances cannot be negative")
    return matrix


def orthonormal_basis(basis: Matrix, name: str, dimension: int | None = None) -> Tensor:
    """Return `basis` as a float64 tensor of shape (d, k), k ≤ d, whose columns are orthonormal to about 1e-5."""
    matrix = rows_matrix(basis, name).to(torch.float64)
    d, k = matrix.shape
    if dimension is not None and d != dimension:
        raise ValueError(f"{name} has shape ({d}, {k}); its columns must lie in R^{dimension}")
    if k > d:
        raise ValueError(
            f"{name} has shape ({d}, {k}); at most {d} columns can be orthonormal (one column a direction)"
        )
    defect = float((matrix.T @ matrix - torch.eye(k, dtype=torch.float64, device=matrix.device)).abs().max())
    if defect > 1e-4:
        raise ValueError(f"the columns of {name} are not orthonormal: QᵀQ − I has an entry of size {defect:.3g}")
    return matrix


def check_rank(rank: int, limit: int, why: str) -> None:
    """Raise `ValueError` unless 1 ≤ `rank` ≤ `limit`; `why` ends the message."""
    if not 1 <= rank <= limit:
        raise ValueError(f"rank is {rank}; it must lie between 1 and {limit} ({why})")


def _tensor(x: Matrix, name: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    array = np.asarray(x)
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{name} holds {array.dtype}, not numbers")
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    with warnings.catch_warnings():
        # Torch warns of read-only memory (a memory map, a pandas column) because it could write to it; nothing here
        # does.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _check_finite(matrix: Tensor, name: str) -> None:
    values = matrix.detach()
    # min and max pass NaN on and show ±inf, without the n × d mask that isfinite would allocate.
    low, high = torch.aminmax(values)
    if bool(torch.isfinite(low)) and bool(torch.isfinite(high)):
        return
    bad = (~torch.isfinite(values)).nonzero()
    i, j = (int(v) for v in bad[0])
    raise ValueError(f"{name}[{i}, {j}] is {float(values[i, j])}; all values must be finite ({len(bad)} are not)")
