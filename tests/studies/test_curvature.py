"""Tables of the curvature chapter, and the bridge to data on spreads that were planted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.geometry.curvature import uniform
from anisotropy.geometry.curves import Ellipse, Parabola
from anisotropy.geometry.manifolds import Circle, Sphere
from anisotropy.geometry.surfaces import QuadraticGraph
from anisotropy.report.rules.curvature import C7_RANGES
from anisotropy.studies import curvature


def tokens(rare=2.0, frequent=1.0, n=500, seed=0, stage="trained"):
    """Spreads that fall geometrically from the rarest to the most frequent token, with 10 % noise."""
    random = np.random.default_rng(seed)
    spread = np.geomspace(rare, frequent, n) * random.lognormal(sigma=0.1, size=n)
    return pd.DataFrame(
        {
            "centroid": "occurrences",
            "stage": stage,
            "token_id": random.permutation(n),
            "count": np.arange(n) + 8,
            "distance": spread,
        }
    )


class TestScaleRatio:
    def test_of_planted_spreads(self):
        found = curvature.scale_ratio(tokens())
        # Fifths of a geometric sequence from 2 to 1: their middles are 2^0.8 apart.
        assert found["ratio"] == pytest.approx(2**0.8, rel=0.03)
        assert found["bias_ratio"] == pytest.approx(found["ratio"] ** 2)
        assert found["low"] < found["ratio"] < found["high"]
        assert found["null_low"] < 1 < found["null_high"] < found["low"]
        assert found["tokens"] == 100

    def test_groups_are_the_ends(self):
        assert curvature.scale_ratio(tokens(rare=1, frequent=2))["ratio"] < 0.7

    def test_equal_spreads_stay_in_the_null(self):
        inside = 0
        for seed in range(40):
            found = curvature.scale_ratio(tokens(1, 1, seed=seed), draws=199, seed=seed)
            inside += found["null_low"] <= found["ratio"] <= found["null_high"]
        assert inside >= 34

    def test_no_scale_changes_it(self):
        table = tokens()
        found = curvature.scale_ratio(table)
        scaled = curvature.scale_ratio(table.assign(distance=7 * table["distance"]))
        assert scaled["ratio"] == pytest.approx(found["ratio"])

    def test_other_readings_and_few_tokens_give_nothing(self):
        assert curvature.scale_ratio(tokens().assign(centroid="vocabulary")) == {}
        assert curvature.scale_ratio(tokens(), stage="untrained") == {}
        assert curvature.scale_ratio(tokens(n=20)) == {}

    @pytest.mark.parametrize("share", [0, 0.6, np.nan])
    def test_refuses_a_share(self, share):
        with pytest.raises(ValueError, match="share is"):
            curvature.scale_ratio(tokens(), share)


class TestLocal:
    def test_a_curved_graph_falls_and_its_curvature_is_found(self):
        random = np.random.default_rng(0)
        graph = QuadraticGraph([1.0, -1.0])
        turn = np.linalg.qr(random.normal(size=(6, 6)))[0]
        points = np.pad(graph.lift(random.uniform(-0.3, 0.3, (4000, 2))), ((0, 0), (0, 3))) @ turn
        found = curvature.local_shares(points, 2, [50, 100, 200, 400])
        slope = np.polyfit(np.log(found["scale"]), np.log(found["share"]), 1)[0]
        assert slope == pytest.approx(2, abs=0.2)
        # ‖II‖ = √2 at the vertex; a uniform disc has √(2/3) of the share of a Gaussian.
        assert found["curvature"].iloc[1] == pytest.approx(np.sqrt(2 * 2 / 3), rel=0.15)

    def test_isotropic_vectors_have_a_share_that_is_not_small(self):
        points = np.random.default_rng(0).normal(size=(3000, 12))
        found = curvature.local_table(points, 3)
        assert set(found["points"]) == {"data", "flat twin"}
        assert found["share"].min() > 0.5
        wide = found.pivot(index="neighbours", columns="points", values="share")
        np.testing.assert_allclose(wide["data"], wide["flat twin"], rtol=0.1)

    def test_the_twin_has_mean_and_covariance(self):
        points = np.random.default_rng(0).normal(size=(20_000, 3)) * [1, 2, 3] + 5
        points[:, 2] += points[:, 0] ** 2
        twin = curvature.flat_twin(points, 1)
        np.testing.assert_allclose(twin.mean(0), points.mean(0), rtol=0.05)
        np.testing.assert_allclose(np.cov(twin.T), np.cov(points.T), atol=0.06 * np.var(points[:, 2]))

    def test_what_does_not_fit(self):
        points = np.random.default_rng(0).normal(size=(30, 4))
        assert curvature.local_table(points, 8).empty
        assert curvature.local_table(points, 2).neighbours.tolist() == []
        with pytest.raises(ValueError, match="do not fit"):
            curvature.local_shares(points, 2, [40])
        with pytest.raises(ValueError, match="do not fit"):
            curvature.local_shares(points, 4, [10])


class TestTables:
    def test_shapes_are_those_the_rule_names(self):
        assert set(curvature.SHAPES) == set(C7_RANGES)
        for name in curvature.SHAPES:
            # Scale by scale the same shape: moments over powers of σ do not change.
            one, other = curvature.shape(name, 0.1), curvature.shape(name, 0.3)
            assert one.moment(3) / one.moment(1) * 9 == pytest.approx(other.moment(3) / other.moment(1))
        with pytest.raises(ValueError, match="must be one of half-normal"):
            curvature.shape("normal", 1.0)

    def test_bias_table(self):
        table = curvature.bias_table(curvature.SHAPES, [2.0], C7_RANGES, scales=3, draws=2000)
        assert len(table) == 9
        assert ((table["estimate"] - table["exact"]).abs() < 5 * table["standard_error"]).all()
        np.testing.assert_allclose(table["closed"], table["exact"], rtol=0.05)
        slopes = curvature.slope_table(table)
        np.testing.assert_allclose(slopes["exact"], 2, atol=0.05)
        assert ((slopes["low"] < slopes["estimate"]) & (slopes["estimate"] < slopes["high"])).all()

    def test_slopes_off_the_circle(self):
        """Off a vertex the next order is κκ'σ/κ² higher only, and odd in the direction."""
        places = {"circle": (Circle(2.0), [1.0]), "parabola": (Parabola(1, 0.5), [1.0])}
        table = curvature.place_slopes(places, "half-normal", 0.2).set_index("place")
        assert table.loc["circle", "one"] == pytest.approx(2.007, abs=0.002)
        assert table.loc["circle", "both"] == pytest.approx(table.loc["circle", "one"])
        assert table.loc["parabola", "one"] < 1.85
        assert table.loc["parabola", "both"] == pytest.approx(2, abs=0.05)

    def test_series_table(self):
        table = curvature.series_table({"c": (Circle(3.0), [1.0]), "e": (Ellipse(2, 1, 0.8), [1.0])})
        circle = table[table["place"] == "c"]
        assert circle["chord"].max() == pytest.approx(0.5)
        np.testing.assert_allclose(circle["error"], 3 / 640 * circle["chord"] ** 4, rtol=0.1)

    def test_profiles(self):
        densities = {"a": uniform(1.0), "b": curvature.shape("half-normal", 0.1)}
        curves, dots = curvature.profile_tables([0.5, 1.5], densities, 1.0, dots=10)
        np.testing.assert_allclose(np.hypot(curves["along"], curves["normal"]).groupby(curves["curvature"]).max(), 1)
        np.testing.assert_allclose(np.hypot(dots["along"], dots["normal"]), dots["chord"])
        bias = dots.groupby(["density", "curvature"])["bias"].first()
        assert bias["a", 1.5] > bias["a", 0.5] > bias["b", 1.5] > bias["b", 0.5] > 0
        with pytest.raises(ValueError, match="beyond the manifold's reach"):
            curvature.profile_tables([2.5], densities, 1.0)

    def test_rays_end_on_the_ball(self):
        rays = curvature.rays_table((1.8, 0.3), 1.0, rays=8)
        ends = rays.groupby("angle").last()
        np.testing.assert_allclose(np.linalg.norm(ends[["x", "y", "z"]], axis=1), 1, rtol=1e-9)
        assert ends["arc"].iloc[0] > ends["arc"].iloc[2]

    def test_cuts(self):
        table = curvature.cut_table({"a": curvature.SHAPES["exponential"]}, 1.0, [0.02, 0.04])
        np.testing.assert_allclose(table["slope"], 2, atol=0.02)

    def test_volumes(self):
        table = curvature.volume_table({"s": Sphere(2)}, [0.5, 1.0], 50_000, 0)
        np.testing.assert_allclose(table["predicted"], 0, atol=1e-12)
        assert (table["sampled"].abs() < 4 * table["standard_error"]).all()

    def test_split(self):
        table = curvature.split_table([1.0, 0.5], [0.01, 0.1], 50_000, 0)
        np.testing.assert_allclose(table["share"], table["predicted"], rtol=0.05)
