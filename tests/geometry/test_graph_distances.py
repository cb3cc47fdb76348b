import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import floyd_warshall

from anisotropy.geometry._graph_distances import GraphDistances, NoEstimate, graph_distances, sphere_dimension


def sphere_lengths(dimension, n=400_000, seed=0):
    """Distances from one point to others drawn uniformly on S^D: density proportional to sin^(D − 1)."""
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n, 2))
    rest = rng.chisquare(dimension - 1, n) if dimension > 1 else 0
    return np.arccos(g[:, 0] / np.sqrt(g[:, 0] ** 2 + g[:, 1] ** 2 + rest))


@pytest.mark.parametrize("dimension", [2, 3, 5, 8, 15])
def test_exact_sphere_distances(dimension):
    assert sphere_dimension(GraphDistances(sphere_lengths(dimension), 1000, 0.05), 50, 50) == dimension


@pytest.mark.parametrize("sigma", [0.7, 1.0])
def test_gaussian_hump(sigma):
    # Near its peak (D − 1)·log sin(πr/(2m)) is −(D − 1)(π/2m)²(r − m)²/2: a normal hump at m has D = 1 + (2m/πσ)².
    lengths = np.random.default_rng(0).normal(5, sigma, 1_000_000)
    expected = 1 + (10 / (np.pi * sigma)) ** 2
    assert sphere_dimension(GraphDistances(lengths, 1000, 0.01), 50, 50) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("seed", [397, 417, 431, 482])
def test_a_second_fit_that_runs_away_is_not_used(seed):
    # Rough histograms for which the second parabola peaks far from the first.
    lengths = np.random.default_rng(seed).normal(5, 1, 1000)
    assert sphere_dimension(GraphDistances(lengths, 1000, 0.01), 50, 50) == pytest.approx(11.1, abs=2.5)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e200])
def test_unit_does_not_matter(scale):
    assert sphere_dimension(GraphDistances(scale * sphere_lengths(4), 1000, scale * 0.05), 50, 50) == 4


@pytest.mark.parametrize(
    ("lengths", "edge", "message"),
    [
        (1 - np.sqrt(np.linspace(0, 1, 10_001)), 0.001, "peak at 0.01 but average 0.333"),
        (sphere_lengths(2), 1.8, r"not a bin .* beyond the longest edge"),
        (np.append(sphere_lengths(40, 5000), 50.0), 0.01, "bins of graph distances"),
        # A valley with a spike in its middle.
        (np.repeat(b := np.arange(50), (b - 25) ** 2 + 50 + 1500 * (b == 25)), 1, "not curved down"),
    ],
    ids=["monotone", "coarse", "narrow", "valley"],
)
def test_no_hump(lengths, edge, message):
    with pytest.raises(NoEstimate, match=message):
        sphere_dimension(GraphDistances(lengths, 1000, edge), 50, 50)


def neighbour_graph(x, k):
    distances = torch.cdist(x, x)
    graph = np.full(distances.shape, np.inf)
    for i, (values, ends) in enumerate(zip(*distances.topk(k + 1, largest=False), strict=True)):
        graph[i, ends] = graph[ends, i] = values
    return graph


def test_shortest_paths_are_floyd_warshalls():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 3)))
    found = graph_distances(x, neighbours=4, all_pairs_up_to=100, sources=1, seed=0)
    graph = neighbour_graph(x, 4)
    assert found.connected == 60
    assert found.lengths == pytest.approx(floyd_warshall(graph)[np.triu_indices(60, 1)], rel=1e-12)
    assert found.longest_edge == pytest.approx(graph[np.isfinite(graph)].max(), rel=1e-12)


def test_sources_are_rows_of_the_same_table():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 3)))
    some = graph_distances(x, neighbours=4, all_pairs_up_to=10, sources=7, seed=3)
    chosen = np.sort(np.random.default_rng(3).choice(60, size=7, replace=False))
    table = floyd_warshall(neighbour_graph(x, 4))
    expected = np.concatenate([np.delete(table[i], i) for i in chosen])
    assert some.lengths == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("all_pairs", "size"), [(100, "60 × 60"), (10, "20 × 60")])
def test_refuses_what_does_not_fit(monkeypatch, all_pairs, size):
    monkeypatch.setattr("anisotropy.geometry._graph_distances._MOST_DISTANCES", 1000)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 3)))
    with pytest.raises(ValueError, match=f"{size} distances would take 0.0 GiB; .* to at most 16"):
        graph_distances(x, neighbours=4, all_pairs_up_to=all_pairs, sources=20, seed=0)
