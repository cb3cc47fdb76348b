"""Dimension: how many numbers it takes to say where a point is.

Four answers, which agree only for a flat cloud of equal variances. Two are *intrinsic*, of the curved set on which the
points lie: `twonn` looks at each point's two nearest neighbours, `graph_dimension` at shortest paths between all. Two
are *linear*, of the flat space that holds the points: `effective_rank` is the exponential of an entropy,
`pca_components` a count of directions.

All take rows `x` of shape (n, d), compute in float64 whatever the precision of `x`, and return a `DimensionEstimate`.
The intrinsic estimators need *independent* points: several noisy copies of the same points (say, one set of concepts
taken from successive checkpoints) look one- to five-dimensional whatever they came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, nan, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from anisotropy.geometry._checks import Matrix, rows_matrix
from anisotropy.geometry._graph_distances import NoEstimate, graph_distances, sphere_dimension
from anisotropy.geometry._neighbours import distinct_rows, nearest_neighbours
from anisotropy.geometry._spectrum import singular_values

Floats = NDArray[np.float64]

__all__ = ["DimensionEstimate", "effective_rank", "graph_dimension", "pca_components", "twonn"]


@dataclass(frozen=True)
class DimensionEstimate:
    """A dimension, what it rests on, and what was left out.

    `estimate` is the dimension; `low` and `high` bound a 95 % interval, or are None where none is defined. `points` is
    the number of rows used, `duplicates` the number of rows dropped because an equal one came before, `unreachable` the
    number dropped because no path leads to them. `capped` tells that the estimate is the largest value the measure can
    give, so that the truth may be anything above. Where a method has no answer for points that are otherwise in order,
    `estimate` is NaN and `note` says why.
    """

    estimate: float
    points: int
    low: float | None = None
    high: float | None = None
    duplicates: int = 0
    unreachable: int = 0
    capped: bool = False
    note: str = ""


def twonn(x: Matrix, discard: float = 0.1) -> DimensionEstimate:
    """Estimate the intrinsic dimension from the ratios of second to first nearest-neighbour distances.

    `x` has shape (n, d). If the density is about constant over the distance to the second neighbour, μ = r₂/r₁ follows
    P(μ > m) = m^(−D) whatever the density is (Facco, d'Errico, Rodriguez & Laio, *Scientific Reports* 7, 12140, 2017).
    D is the slope of −log(1 − F(μ)) against log μ through the origin, with the share `discard` of largest ratios left
    out, as in scikit-dimension.

    The interval is a 95 % one for the sampling error: the variance of the slope from the influence of each ratio,
    with the covariances of points that are neighbours (two points that are each other's nearest share r₁; treating
    ratios as independent would make the interval a quarter too short). It does not contain the bias, which is downward
    and grows with the dimension, because a sample fills a high-dimensional set too sparsely for the density to look
    constant: with 2,000 points cubes of dimension 5 and 10 give about 4.7 and 8.4, a Gaussian in 50 dimensions 32.

    Duplicates have r₁ = 0. They are dropped beforehand and counted, and so are points that differ by less than float64
    can tell. Neighbours are exact, in O(n²d) time and with memory for a few tiles of products only.

    Where points are so regular (a lattice) that all ratios used are 1, the estimate is NaN.

    Raises `ValueError` for fewer than 3 different points, values that are not finite, a share outside [0, 1), or fewer
    than two ratios left.
    """
    if not 0 <= discard < 1:
        raise ValueError(f"discard is {discard}; it must lie in [0, 1), the share of largest ratios to leave out")
    rows = rows_matrix(x, "x")
    kept = distinct_rows(rows)
    _check_distinct(len(rows), len(kept), 3)
    found = nearest_neighbours(rows[kept] if len(kept) < len(rows) else rows, 2)
    distances, neighbours = (t.cpu().numpy() for t in found)
    apart = distances[:, 0] > 0
    log_ratios = np.log(distances[apart, 1] / distances[apart, 0])
    n = len(log_ratios)
    used = int(n * (1 - discard))
    if used < 2:
        raise ValueError(f"{used} of {n} ratios are left after discarding {discard:.0%}; at least 2 are needed")
    # With nothing discarded the largest ratio has F = 1 and −log(1 − F) infinite; it carries no equation.
    used = min(used, n - 1)
    ordered = np.sort(log_ratios)[:used]
    squares = float(ordered @ ordered)
    if squares == 0:
        note = f"all {used} ratios used are 1, as on a lattice, so the slope is not defined"
        return DimensionEstimate(nan, points=n, duplicates=len(rows) - n, note=note)
    estimate = float(ordered @ -np.log1p(-np.arange(1, used + 1) / n)) / squares
    influence = np.zeros(len(apart))
    influence[apart] = _influence(estimate * log_ratios, discard)
    half_width = 1.959963984540054 * sqrt(_variance_of_mean(influence, neighbours))
    return DimensionEstimate(
        estimate,
        points=n,
        low=estimate * exp(-half_width),
        high=estimate * exp(half_width),
        duplicates=len(rows) - n,
    )


def graph_dimension(
    x: Matrix,
    neighbours: int = 3,
    bins: int = 50,
    largest: int = 50,
    all_pairs_up_to: int = 2000,
    sources: int = 500,
    seed: int = 0,
) -> DimensionEstimate:
    """Estimate the intrinsic dimension from shortest-path distances in a neighbour graph.

    `x` has shape (n, d). Each point is joined to its nearest `neighbours`; the histogram (of `bins` bins) of
    shortest-path lengths is compared, on its rising side, with the distances on spheres of dimension 1 … `largest`
    (Granata & Carnevale, *Scientific Reports* 6, 31377, 2016; their program stops at 25). The window runs from two
    standard deviations below the peak, but not below the longest edge, to the peak. The estimate is an integer with no
    interval. Trust it from 2 to 5, give or take 1: beyond, the peak is narrow and the sample decides the fit. `capped`
    says that `largest` fitted best.

    Up to `all_pairs_up_to` points all pairs are measured; above, the paths from `sources` points drawn with `seed`.
    Duplicates are dropped beforehand; points outside the largest connected piece are dropped and counted as
    unreachable.

    The estimate is NaN, with a note, where no piece of the graph holds more than half of the points (three neighbours
    do not hold a random sample of a curve together), or the histogram has no hump to fit: one-dimensional sets have
    none, and far outliers squeeze it into too few bins or add an edge longer than the peak.

    Raises `ValueError` for values that are not finite, parameters below their least value, fewer different points than
    10 and neighbours + 2, or more distances than fit into 1 GiB.
    """
    for name, value, least in (
        ("neighbours", neighbours, 1),
        ("bins", bins, 4),
        ("largest", largest, 1),
        ("all_pairs_up_to", all_pairs_up_to, 0),
        ("sources", sources, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    rows = rows_matrix(x, "x")
    kept = distinct_rows(rows)
    _check_distinct(len(rows), len(kept), max(10, neighbours + 2))
    distinct = rows[kept] if len(kept) < len(rows) else rows
    duplicates = len(rows) - len(kept)
    connected = len(kept)
    try:
        distances = graph_distances(distinct, neighbours, all_pairs_up_to, sources, seed)
        connected = distances.connected
        estimate = sphere_dimension(distances, bins, largest)
    except NoEstimate as reason:
        return DimensionEstimate(
            nan, points=connected, duplicates=duplicates, unreachable=len(kept) - connected, note=str(reason)
        )
    return DimensionEstimate(
        float(estimate),
        points=connected,
        duplicates=duplicates,
        unreachable=len(kept) - connected,
        capped=estimate == largest,
    )


def effective_rank(x: Matrix, centre: bool = True) -> DimensionEstimate:
    r"""Return the exponential of the entropy of the singular values σ_i.

    .. math:: \exp\Bigl(-\sum_i p_i \log p_i\Bigr), \qquad p_i = \frac{\sigma_i}{\sum_j \sigma_j}

    `x` has shape (n, d); with `centre` its mean row is taken away first, as for `pca_components`. The singular values
    are *not* squared (Roy & Vetterli, *The Effective Rank*, 2007), so weak directions count for more than they do in
    the variance. r equal singular values give r; the result lies between 1 and min(n, d), less one in n for centring.

    Raises `ValueError` for values that are not finite, fewer than 2 rows when centring, or rows that are all equal
    (all zero without centring), which have no direction at all.
    """
    values = _spectrum(x, centre)
    shares = values / values.sum()
    entropy = -torch.special.xlogy(shares, shares).sum()
    return DimensionEstimate(float(entropy.exp()), points=len(rows_matrix(x, "x")))


def pca_components(x: Matrix, share: float = 0.7, cap: int = 100, centre: bool = True) -> DimensionEstimate:
    """Count the principal components that hold the given share of the variance.

    `x` has shape (n, d). The estimate is the smallest m with Σ_{i≤m} σ_i² ≥ share · Σσ_i²; where that is more than
    `cap` it is cap + 1 and `capped` is set, as in the paper (101 where more than 100). Without `centre` the share is
    one of the squared length instead of the variance.

    Raises `ValueError` for a share outside (0, 1], a cap below 1, and the matrices that `effective_rank` refuses.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; it must lie in (0, 1], such as 0.7 for 70 % of the variance")
    if cap < 1:
        raise ValueError(f"cap is {cap}; it must be at least 1")
    values = _spectrum(x, centre)
    cumulative = (values / values[0]).square().cumsum(dim=0)
    # Without slack, 7 of 10 equal variances miss 70 % by an ulp.
    needed = 1 + int((cumulative < share * cumulative[-1] * (1 - 1e-12)).sum())
    return DimensionEstimate(float(min(needed, cap + 1)), points=len(rows_matrix(x, "x")), capped=needed > cap)


def _spectrum(x: Matrix, centre: bool) -> torch.Tensor:
    rows = rows_matrix(x, "x", rows=2 if centre else 1)
    largest = float(rows.detach().abs().max())
    values = singular_values(rows, centre)
    # The mean of n equal rows is off by an ulp, which would otherwise pass for a direction.
    if float(values[0]) <= 1e-14 * largest * sqrt(rows.numel()):
        raise ValueError("all rows of x are equal" if centre else "x is zero everywhere; it has no direction")
    return values


def _check_distinct(rows: int, distinct: int, needed: int) -> None:
    if distinct < needed:
        raise ValueError(f"x has {distinct} different points among {rows}; at least {needed} are needed")


def _influence(exponentials: Floats, discard: float) -> Floats:
    """Return what each ratio adds to D̂/D − 1, times n, to leading order.

    e = D·log μ is a standard exponential. With e_(i) ordered and y = −log(1 − p) its quantiles, D̂/D = Σe y/Σe² ≈ 1 −
    Σ(e − y)y/Σy², and a fluctuation of the quantiles is one of the distribution function: Σ(e − y)y/n becomes the mean
    of A − min(e, L)²/2, with L = −log(discard) and A = ∫₀ᴸ y e⁻ʸ dy; Σy²/n becomes B = ∫₀ᴸ y² e⁻ʸ dy.
    """
    if discard == 0:
        end, a, b = inf, 1.0, 2.0
    else:
        end = -log(discard)
        a = 1 - (end + 1) * discard
        b = 2 - (end**2 + 2 * end + 2) * discard
    return (a - np.minimum(exponentials, end) ** 2 / 2) / b


def _variance_of_mean(values: Floats, neighbours: NDArray[np.int64]) -> float:
    """Return the variance of the mean of `values` of shape (n,) that depend on those of their neighbours, (n, 2)."""
    n = len(values)
    one = np.repeat(np.arange(n), neighbours.shape[1])
    other = neighbours.ravel()
    pairs = np.unique(np.minimum(one, other) * n + np.maximum(one, other))
    own = float(values @ values)
    shared = 2 * float(values[pairs // n] @ values[pairs % n])
    return max(own, own + shared) / n**2
