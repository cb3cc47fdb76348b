"""Exact nearest neighbours of every row, without an n × n matrix.

Dimension estimators divide small distances, so the distances must be right to the last digits; squared distances from
‖a‖² + ‖b‖² − 2a·b are not (in float32, near-duplicates come out as zero or NaN). Yet that product is the fast way to
find *who* the neighbours are. So: candidates come from blocked float32 products, their distances are recomputed from
differences in float64, and a rounding bound certifies for each row that no other row can be nearer. Rows that the bound
cannot decide are searched again in float64, and, should that not do either, by differences throughout.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

_TREE_DIMENSIONS = 8
_TILE = 2048
_SPARE_CANDIDATES = 6
_GATHERED_VALUES = 2**20  # 8 MiB of float64 per batch of gathered rows


def distinct_rows(x: Tensor) -> Tensor:
    """Return the indices of the first occurrence of each distinct row of `x`, in increasing order."""
    seen: set[bytes] = set()
    keep = []
    for start in range(0, len(x), _TILE):
        # Adding zero turns −0 into 0, which are equal numbers but different bytes.
        block = np.ascontiguousarray((x[start : start + _TILE].detach().to(torch.float64) + 0.0).cpu().numpy())
        for i, row in enumerate(block):
            digest = blake2b(row, digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                keep.append(start + i)
    return torch.tensor(keep, device=x.device)


def nearest_neighbours(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return distances (float64) and indices of the k nearest other rows of each row, both of shape (n, k).

    `x` has shape (n, d) with n > k and distinct rows. Memory is O(nk) plus a float32 copy of `x` and a few tiles.
    """
    points = _Points(x.detach())
    if points.d <= _TREE_DIMENSIONS and x.device.type == "cpu":
        return _search_tree(points, k)
    everyone = torch.arange(points.n, device=x.device)
    # A user may have allowed bfloat16 or TF32 inside float32 products, for which the rounding bound would not hold.
    if torch.get_float32_matmul_precision() == "highest":
        distances, indices, certain = _search_pairs(points, k)
    else:
        distances, indices, certain = _search_rows(points, everyone, k)
    rows = everyone[~certain]
    if len(rows):
        distances[rows], indices[rows], certain = _search_rows(points, rows, k)
        rows = rows[~certain]
    if len(rows):
        distances[rows], indices[rows] = _search_differences(points, rows, k)
    return distances, indices


class _Points:
    """Rows seen from their mean and in units of their largest coordinate: small norms lose fewest digits."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.n, self.d = x.shape
        self.device = x.device
        total = torch.zeros(self.d, dtype=torch.float64, device=x.device)
        for block in x.split(_TILE):
            total += block.to(torch.float64).sum(dim=0)
        self.mean = total / self.n
        self.scale = max(float((b.to(torch.float64) - self.mean).abs().max()) for b in x.split(_TILE))

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return (self.x[rows].to(torch.float64) - self.mean) / self.scale

    def others_apart(self, rows: Tensor, columns: slice, squares: Tensor) -> None:
        """Put infinity where a row meets itself."""
        there = torch.arange(columns.start, columns.start + squares.shape[1], device=self.device)
        squares[rows[:, None] == there] = torch.inf


class _Best:
    """The smallest values seen so far for each of some rows, and the columns they came from."""

    def __init__(self, rows: int, kept: int, dtype: torch.dtype, device: torch.device) -> None:
        self.values = torch.full((rows, kept), torch.inf, dtype=dtype, device=device)
        self.columns = torch.zeros((rows, kept), dtype=torch.int64, device=device)

    def update(self, rows: slice, values: Tensor, offset: int) -> None:
        """Take in `values` for `rows`; its columns are counted from `offset`."""
        kept = self.values.shape[1]
        found, where = values.topk(min(kept, values.shape[1]), dim=1, largest=False)
        merged, order = torch.cat([self.values[rows], found], dim=1).topk(kept, dim=1, largest=False)
        self.values[rows] = merged
        self.columns[rows] = torch.cat([self.columns[rows], where + offset], dim=1).gather(1, order)


def _search_tree(points: _Points, k: int) -> tuple[Tensor, Tensor]:
    from scipy.spatial import cKDTree

    everyone = torch.arange(points.n)
    coordinates = points[everyone].numpy()
    found = cKDTree(coordinates).query(coordinates, k + 1)[1]
    # A row is its own nearest neighbour, usually but not always listed first (a difference can underflow to zero).
    own = found == everyone.numpy()[:, None]
    own[~own.any(axis=1), -1] = True
    return _exact(points, everyone, torch.from_numpy(found[~own].reshape(points.n, k)), k)


def _search_pairs(points: _Points, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Search all rows in float32, visiting each pair of tiles once for both sides."""
    n, device = points.n, points.device
    coordinates = torch.empty((n, points.d), dtype=torch.float32, device=device)
    norms = torch.empty(n, dtype=torch.float32, device=device)
    tiles = [slice(start, start + _TILE) for start in range(0, n, _TILE)]
    for tile in tiles:
        block = points[tile]
        coordinates[tile], norms[tile] = block, block.square().sum(dim=1)
    best = _Best(n, min(k + _SPARE_CANDIDATES, n - 1), torch.float32, device)
    for i, one in enumerate(tiles):
        for other in tiles[i:]:
            squares = torch.addmm(norms[other], coordinates[one], coordinates[other].T, alpha=-2)
            squares += norms[one, None]
            if one is other:
                squares.fill_diagonal_(torch.inf)
            else:
                best.update(other, squares.T, one.start)
            best.update(one, squares, other.start)
    return _certify(points, torch.arange(n, device=device), best, norms, k)


def _search_rows(points: _Points, rows: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Search for the neighbours of some rows in float64."""
    best = _Best(len(rows), min(k + _SPARE_CANDIDATES, points.n - 1), torch.float64, points.device)
    norms = torch.empty(len(rows), dtype=torch.float64, device=points.device)
    step = _TILE // 2
    for i in range(0, len(rows), step):
        mine = slice(i, i + step)
        own = points[rows[mine]]
        norms[mine] = own.square().sum(dim=1)
        for j in range(0, points.n, step):
            columns = slice(j, j + step)
            others = points[columns]
            squares = torch.addmm(others.square().sum(dim=1), own, others.T, alpha=-2)
            squares += norms[mine, None]
            points.others_apart(rows[mine], columns, squares)
            best.update(mine, squares, j)
    return _certify(points, rows, best, norms, k)


def _search_differences(points: _Points, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Search for the neighbours of some rows by coordinate differences, whose small values lose no digits."""
    best = _Best(len(rows), k, torch.float64, points.device)
    step = _TILE // 4
    for i in range(0, len(rows), step):
        mine = slice(i, i + step)
        own = points.x[rows[mine]].to(torch.float64) / points.scale
        for j in range(0, points.n, step):
            columns = slice(j, j + step)
            others = points.x[columns].to(torch.float64) / points.scale
            distances = torch.cdist(own, others, compute_mode="donot_use_mm_for_euclid_dist")
            points.others_apart(rows[mine], columns, distances)
            best.update(mine, distances, j)
    return best.values * points.scale, best.columns


def _certify(points: _Points, rows: Tensor, best: _Best, norms: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Recompute the candidates' distances, and tell for which rows they certainly include the k nearest.

    A product in precision u has |fl(‖a − b‖²) − ‖a − b‖²| ≤ c(‖a‖ + ‖b‖)² with c = (d + 16)u, for any order of
    summation. Rows that are no candidates have fl(‖a − b‖²) ≥ t, the largest candidate. Either ‖b‖ ≤ 3‖a‖, then ‖a −
    b‖² ≥ t − 16c‖a‖²; or ‖a − b‖ ≥ (‖a‖ + ‖b‖)/2, then ‖a − b‖² ≥ t/(1 + 4c). The case distinction keeps one row of
    huge norm from spoiling the bound for all others.
    """
    distances, indices = _exact(points, rows, best.columns, k)
    if best.values.shape[1] == points.n - 1:
        return distances, indices, torch.ones(len(rows), dtype=torch.bool, device=points.device)
    c = (points.d + 16) * torch.finfo(best.values.dtype).eps / 2
    threshold = best.values[:, -1].to(torch.float64)
    bound = torch.minimum(threshold - 16 * c * norms.to(torch.float64), threshold / (1 + 4 * c))
    return distances, indices, (distances[:, -1] / points.scale).square() <= bound


def _exact(points: _Points, rows: Tensor, columns: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k smallest distances among the candidate `columns` of each row, from float64 differences."""
    distances = torch.empty((len(rows), k), dtype=torch.float64, device=points.device)
    indices = torch.empty((len(rows), k), dtype=torch.int64, device=points.device)
    step = max(1, _GATHERED_VALUES // (columns.shape[1] * points.d))
    for start in range(0, len(rows), step):
        batch = slice(start, start + step)
        gathered = points.x[columns[batch]].to(torch.float64)
        gathered -= points.x[rows[batch], None].to(torch.float64)
        gathered /= points.scale
        nearest, order = gathered.norm(dim=2).topk(k, dim=1, largest=False)
        distances[batch] = nearest * points.scale
        indices[batch] = columns[batch].gather(1, order)
    return distances, indices
