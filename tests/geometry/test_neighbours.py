import subprocess
import sys

import numpy as np
import pytest
import torch

from anisotropy.geometry import _neighbours
from anisotropy.geometry._neighbours import distinct_rows, nearest_neighbours


def by_differences(x, k):
    """Every distance from coordinate differences in float64; nothing can cancel."""
    x = x.to(torch.float64)
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)
    return distances.topk(k, dim=1, largest=False)


def gaussian(n, d, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d))).to(dtype)


def near_pairs(n, d):
    x = gaussian(n, d)
    x[n // 2 :] = x[: n - n // 2] + 1e-9 * gaussian(n - n // 2, d, 1)
    return x


def curve_in_many_dimensions(n, d):
    angle = torch.from_numpy(np.random.default_rng(0).random(n)) * 6.28
    return torch.stack([angle.cos(), angle.sin()], dim=1) @ gaussian(2, d)


def one_outlier(n, d):
    x = 1e-3 * gaussian(n, d)
    x[n // 3] = 1e6
    return x


CLOUDS = {
    "tree": gaussian(500, 3),
    "line": gaussian(500, 1),
    "products": gaussian(2500, 20),
    "float32": gaussian(900, 20, dtype=torch.float32),
    "float16": gaussian(300, 20, dtype=torch.float16),
    "far from the origin": gaussian(900, 20) + 1000,
    "curve": curve_in_many_dimensions(2300, 60),
    "near pairs": near_pairs(900, 20),
    "all within 1e-12": 1 + 1e-12 * gaussian(700, 20),
    "outlier": one_outlier(900, 20),
    "fewer points than candidates": gaussian(5, 20),
    "as many dimensions as points": gaussian(40, 300),
}


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("k", [2, 3])
def test_exact(name, k):
    x = CLOUDS[name]
    distances, indices = nearest_neighbours(x, k)
    expected = by_differences(x, k)
    # Distances to the last digits, whatever the precision and however near the points.
    assert torch.allclose(distances, expected.values, rtol=1e-14, atol=0)
    assert torch.equal(indices, expected.indices)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("d", [3, 20])
def test_extreme_units(scale, d):
    x = gaussian(300, d)
    distances, indices = nearest_neighbours(x * scale, 2)
    expected = nearest_neighbours(x, 2)
    assert torch.allclose(distances / scale, expected[0], rtol=1e-13, atol=0)
    assert torch.equal(indices, expected[1])


def test_each_stage_is_reached(monkeypatch):
    stages = []
    for name in ("_search_rows", "_search_differences"):
        original = getattr(_neighbours, name)

        def spy(points, rows, k, original=original, name=name):
            stages.append(name)
            return original(points, rows, k)

        monkeypatch.setattr(_neighbours, name, spy)
    nearest_neighbours(CLOUDS["products"], 2)
    assert stages == []
    nearest_neighbours(CLOUDS["curve"], 2)
    assert stages == ["_search_rows"]
    stages.clear()
    clusters = gaussian(60, 20).repeat_interleave(40, 0) + 1e-11 * gaussian(2400, 20, 1)
    found = nearest_neighbours(clusters, 2)
    assert stages == ["_search_rows", "_search_differences"]
    assert torch.equal(found[1], by_differences(clusters, 2).indices)


def test_lower_precision_products_are_not_trusted(monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    monkeypatch.setattr(_neighbours, "_search_pairs", None)
    x = CLOUDS["products"][:600]
    assert torch.equal(nearest_neighbours(x, 2)[1], by_differences(x, 2).indices)


def test_distinct_rows_keep_the_first(monkeypatch):
    x = torch.tensor([[1.0, 2], [0.0, 1], [1.0, 2], [-0.0, 1], [3, 3], [1, 2]])
    assert distinct_rows(x).tolist() == [0, 1, 4]
    monkeypatch.setattr(_neighbours, "_TILE", 2)
    assert distinct_rows(x).tolist() == [0, 1, 4]


def test_memory_stays_flat():
    # 8,000 points: a float64 n × n matrix alone would take 512 MB.
    code = """
import resource, torch
from anisotropy.geometry.dimension import twonn
x = torch.randn(8000, 64)
twonn(x[:500])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
twonn(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(out) < 200
