"""Singular values of tall matrices, streamed: no squaring, no copy of the rows."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 4096


def singular_values(x: Tensor, centre: bool) -> Tensor:
    """Return the min(n, d) singular values of `x`, shape (n, d), in float64, largest first.

    The rows are folded block by block into the triangular factor of a QR decomposition, which has the same singular
    values; memory is a few (block + d) × d matrices. Eigenvalues of XᵀX would be cheaper, but they lose every singular
    value below 1e-8 of the largest to rounding, and measures that do not square would count that noise.
    """
    x = x.detach()
    n, d = x.shape
    mean = torch.zeros(d, dtype=torch.float64, device=x.device)
    if centre:
        for block in x.split(_BLOCK):
            mean += block.to(torch.float64).sum(dim=0)
        mean /= n
    if n <= d:
        return torch.linalg.svdvals(x.to(torch.float64) - mean)
    triangle = torch.zeros((0, d), dtype=torch.float64, device=x.device)
    for block in x.split(max(_BLOCK, d)):
        stacked = torch.cat([triangle, block.to(torch.float64) - mean])
        triangle = torch.linalg.qr(stacked, mode="r").R
    return torch.linalg.svdvals(triangle)
