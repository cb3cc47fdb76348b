"""Distances along a neighbour graph, and the sphere whose distances look like them.

On a sphere S^D the density of the distance r from a point is proportional to sin^(D−1)(πr/(2 r_max)), with r_max a
quarter of a great circle. Granata & Carnevale (*Scientific Reports* 6, 31377, 2016) compare the rising side of the
observed distribution of shortest-path distances with that shape: the geodesics of most manifolds, near the most common
distance, follow the same law. The steps below are those of their reference program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anisotropy.geometry._neighbours import nearest_neighbours

Floats = NDArray[np.float64]
_MOST_DISTANCES = 2**27  # 1 GiB of float64


class NoEstimate(Exception):
    """The points are in order, but the method has no answer for them; the message says why."""


@dataclass(frozen=True)
class GraphDistances:
    """Shortest-path lengths between points of the largest component, its size, and the longest single edge."""

    lengths: Floats
    connected: int
    longest_edge: float


def graph_distances(x: Tensor, neighbours: int, all_pairs_up_to: int, sources: int, seed: int) -> GraphDistances:
    """Measure shortest paths in the graph that joins each row of `x` to its nearest `neighbours` rows.

    Up to `all_pairs_up_to` connected points every pair is measured once; above, the distances from `sources` seeded
    points to all others.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components, dijkstra

    n = len(x)
    lengths, ends = (t.cpu().numpy() for t in nearest_neighbours(x, neighbours))
    starts = np.repeat(np.arange(n), neighbours)
    graph = csr_array((lengths.ravel(), (starts, ends.ravel())), shape=(n, n))
    labels = connected_components(graph, directed=False)[1]
    sizes = np.bincount(labels)
    members = np.flatnonzero(labels == sizes.argmax())
    if 2 * len(members) <= n:
        raise NoEstimate(
            f"the graph of {neighbours} neighbours falls into {len(sizes)} pieces, the largest with {len(members)} of "
            f"{n} points; distances need one piece with more than half of them: raise neighbours"
        )
    graph = graph[members][:, members]
    m = len(members)
    rows = m if m <= all_pairs_up_to else min(sources, m)
    if rows * m > _MOST_DISTANCES:
        raise ValueError(
            f"{rows:,} × {m:,} distances would take {8 * rows * m / 2**30:.1f} GiB; "
            f"lower all_pairs_up_to or sources to at most {_MOST_DISTANCES // m:,}"
        )
    if m <= all_pairs_up_to:
        distances = dijkstra(graph, directed=False)[np.triu_indices(m, 1)]
    else:
        chosen = np.sort(np.random.default_rng(seed).choice(m, size=min(sources, m), replace=False))
        table = dijkstra(graph, directed=False, indices=chosen)
        table[np.arange(len(chosen)), chosen] = np.nan
        distances = table[~np.isnan(table)]
    return GraphDistances(distances, m, float(graph.max()))


def sphere_dimension(distances: GraphDistances, bins: int, largest: int) -> int:
    """Return the D in 1 … `largest` for which (D − 1)·log sin(πr/(2 r_max)) is nearest to the log histogram."""
    # Shapes have no unit, and squares of lengths in a very small or large one would leave the range of floats.
    unit = float(distances.lengths.max())
    lengths, longest_edge = distances.lengths / unit, distances.longest_edge / unit
    counts, edges = np.histogram(lengths, bins)
    width = edges[1] - edges[0]
    centres = edges[:-1] + width / 2
    mean, spread = float(lengths.mean()), float(lengths.std())
    peak = float(centres[counts.argmax()])
    if abs(peak - mean) > spread + 2 * width:
        raise NoEstimate(
            f"graph distances, the largest being 1, peak at {peak:.3g} but average {mean:.3g} ± {spread:.3g}: there is "
            "no single hump to fit (fewer bins, other neighbours or more points may help)"
        )
    if peak <= longest_edge + width:
        raise NoEstimate(
            f"graph distances, the largest being 1, peak at {peak:.3g}, not a bin ({width:.3g}) beyond the longest "
            f"edge {longest_edge:.3g}: the graph is too coarse to measure them "
            "(fewer neighbours or more points may help)"
        )

    def parabola(low: float, high: float) -> tuple[float, float, float]:
        inside = (centres > low) & (centres < high) & (counts > 0)
        _check_enough(inside)
        a, b, c = np.polyfit(centres[inside], np.log(counts[inside]), 2)
        return float(a), float(b), float(c)

    def peak_of(a: float, b: float) -> tuple[float, float]:
        return -b / (2 * a), float(np.sqrt(-1 / (2 * a)))

    # Two passes: the first finds the hump from the highest bin, the second fits it around where the first has put it.
    first = parabola(peak - spread, peak + spread / 2)
    position, sigma = mean, spread
    if first[0] < 0:
        found = peak_of(*first[:2])
        if abs(found[0] - peak) < spread / 2 + width:
            position, sigma = found
    second = parabola(position - sigma, position + sigma / 2 + width)
    chosen, summit, fitted_sigma = second, position, sigma
    if second[0] < 0:
        summit, fitted_sigma = peak_of(*second[:2])
    low = max(summit - 2 * fitted_sigma - width / 2, 0.0, longest_edge)
    high = summit + width / 4
    if abs(summit - position) > sigma / 4 + width:
        chosen, summit, low, high = first, position, max(low, longest_edge), position + width / 4
    a, b, c = chosen
    if a >= 0:
        raise NoEstimate("the histogram of graph distances is not curved downward at its peak: there is no hump to fit")
    inside = (centres > low) & (centres <= high) & (counts > 0)
    _check_enough(inside)
    height = np.log(counts[inside]) - (c - b**2 / (4 * a))
    shape = np.log(np.sin(np.pi / 2 * centres[inside] / summit))
    misfits = [float(np.sqrt(np.mean(((d - 1) * shape - height) ** 2))) for d in range(1, largest + 1)]
    return 1 + int(np.argmin(misfits))


def _check_enough(inside: NDArray[np.bool_]) -> None:
    if inside.sum() < 4:
        raise NoEstimate(
            f"only {int(inside.sum())} bins of graph distances fall into the window of the fit; at least 4 are needed "
            "(more points or more bins may help)"
        )
