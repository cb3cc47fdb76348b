import numpy as np
import pytest
import skdim
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.datasets import make_swiss_roll

from anisotropy.geometry.dimension import effective_rank, graph_dimension, pca_components, twonn


def line(n, rng):
    return rng.random((n, 1)) * np.array([[1.0, 2, 3]])


def circle(n, rng):
    angle = 2 * np.pi * rng.random(n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def plane(n, rng):
    return rng.random((n, 2)) @ rng.standard_normal((2, 6))


def sphere(n, rng, dimension=2):
    g = rng.standard_normal((n, dimension + 1))
    return g / np.linalg.norm(g, axis=1, keepdims=True)


def swiss_roll(n, rng):
    return make_swiss_roll(n, random_state=int(rng.integers(1000)))[0]


def cube(n, rng, dimension):
    return rng.random((n, dimension))


def gaussian(n, rng, dimension):
    return rng.standard_normal((n, dimension))


def matrix_with_singular_values(values, n, d, seed=0):
    """Rows with mean zero and the given singular values."""
    rng = np.random.default_rng(seed)
    left = rng.standard_normal((n, len(values)))
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    return left * np.asarray(values, dtype=float) @ np.linalg.qr(rng.standard_normal((d, len(values))))[0].T


class TestTwoNN:
    @pytest.mark.parametrize(
        ("shape", "truth"),
        [(line, 1), (circle, 1), (plane, 2), (sphere, 2), (swiss_roll, 2)],
        ids=lambda value: getattr(value, "__name__", None),
    )
    def test_known_dimensions(self, shape, truth):
        result = twonn(shape(3000, np.random.default_rng(0)))
        # The sampling error of the slope is about 1.4 D/√n: four of them.
        assert result.estimate == pytest.approx(truth, rel=4 * 1.4 / np.sqrt(3000))
        assert result.low < result.estimate < result.high
        assert (result.points, result.duplicates, result.unreachable, result.note) == (3000, 0, 0, "")

    @pytest.mark.parametrize(("dimension", "documented", "make"), [(5, 4.7, cube), (10, 8.4, cube), (50, 32, gaussian)])
    def test_bias_in_high_dimension_is_downward_and_as_documented(self, dimension, documented, make):
        estimates = [twonn(make(2000, np.random.default_rng(seed), dimension)).estimate for seed in range(3)]
        assert np.mean(estimates) == pytest.approx(documented, rel=0.05)
        assert np.mean(estimates) < dimension

    @pytest.mark.parametrize(
        ("shape", "options"),
        [(circle, ()), (sphere, (3,)), (swiss_roll, ()), (cube, (10,)), (gaussian, (26,)), (gaussian, (50,))],
    )
    @pytest.mark.parametrize("discard", [0.1, 0.25])
    def test_is_scikit_dimensions(self, shape, options, discard):
        x = shape(1200, np.random.default_rng(1), *options)
        theirs = skdim.id.TwoNN(discard_fraction=discard).fit(x).dimension_
        assert twonn(x, discard=discard).estimate == pytest.approx(theirs, rel=1e-9)

    def test_single_precision_is_scikit_dimensions_on_the_same_values(self):
        x = gaussian(800, np.random.default_rng(2), 40).astype(np.float32)
        theirs = skdim.id.TwoNN().fit(x.astype(np.float64)).dimension_
        assert twonn(x).estimate == pytest.approx(theirs, rel=1e-9)

    def test_duplicates_are_dropped_beforehand_and_counted(self):
        rng = np.random.default_rng(3)
        x = sphere(1000, rng)
        repeated = rng.permutation(np.vstack([x, x[:300], x[:100]]))
        result, clean = twonn(repeated), twonn(x)
        assert (result.points, result.duplicates) == (1000, 400)
        assert result.estimate == pytest.approx(clean.estimate, rel=1e-12)
        assert (result.low, result.high) == (pytest.approx(clean.low), pytest.approx(clean.high))

    def test_signed_zeros_are_duplicates(self):
        x = np.vstack([circle(50, np.random.default_rng(0)), [[0.0, 0.0]], [[-0.0, 0.0]]])
        assert twonn(x).duplicates == 1

    @pytest.mark.parametrize("dimension", [1, 2, 5])
    def test_interval_covers(self, dimension):
        # Spheres have no boundary, and at n = 1000 hardly a bias up to dimension 3; S⁵ loses 1.4 %.
        truth = 0.986 * 5 if dimension == 5 else dimension
        covered = 0
        for seed in range(150):
            result = twonn(sphere(1000, np.random.default_rng(seed), dimension))
            covered += result.low <= truth <= result.high
        # Binomial(150, 0.95) has SD 2.7.
        assert covered >= 133

    def test_mutual_neighbours_widen_the_interval(self):
        result = twonn(sphere(4000, np.random.default_rng(0)))
        # Independent ratios would give SD 1.076/√n by the asymptotics of the slope.
        half_width = np.log(result.high / result.low) / 2
        assert half_width > 1.1 * 1.96 * 1.076 / np.sqrt(4000)

    def test_all_ratios_may_be_used(self):
        x = sphere(1000, np.random.default_rng(4))
        result = twonn(x, discard=0)
        assert result.estimate == pytest.approx(2, rel=0.15)
        assert result.low < result.estimate < result.high

    @settings(deadline=None, max_examples=20)
    @given(st.integers(0, 999), st.floats(-250, 250), st.sampled_from([3, 12]))
    def test_invariant_to_scale_rotation_shift_and_order(self, seed, log_scale, dimension):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((60, dimension))
        moved = rng.permutation(x @ ortho_group.rvs(dimension, random_state=seed) + rng.standard_normal(dimension))
        assert twonn(moved * 10.0**log_scale).estimate == pytest.approx(twonn(x).estimate, rel=1e-9)

    def test_lattice_has_no_answer(self):
        x = np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(-1, 2)
        result = twonn(x)
        assert np.isnan(result.estimate)
        assert "lattice" in result.note
        assert (result.low, result.high, result.points) == (None, None, 64)

    @pytest.mark.parametrize(
        ("x", "options", "message"),
        [
            (np.ones((5, 2)), {}, "x has 1 different points among 5; at least 3"),
            (np.eye(2), {}, "x has 2 different points among 2"),
            (np.eye(3), {"discard": 0.9}, "0 of 3 ratios are left after discarding 90%"),
            (np.eye(5), {"discard": 1}, "discard is 1"),
            (np.eye(5), {"discard": -0.1}, "discard is -0.1"),
            ([[0.0, np.nan]] * 4, {}, r"x\[0, 1\] is nan"),
            (np.ones(5), {}, r"x has shape \(5,\)"),
            (np.ones((0, 3)), {}, r"x has shape \(0, 3\)"),
        ],
    )
    def test_refuses(self, x, options, message):
        with pytest.raises(ValueError, match=message):
            twonn(x, **options)


class TestGraphDimension:
    @pytest.mark.parametrize("dimension", [2, 3, 4, 5])
    @pytest.mark.parametrize("make", [gaussian, cube, sphere])
    def test_up_to_five_within_one(self, make, dimension):
        result = graph_dimension(make(800, np.random.default_rng(dimension), dimension))
        assert abs(result.estimate - dimension) <= 1
        assert result.points + result.unreachable == 800
        assert (result.low, result.high, result.capped, result.note) == (None, None, False, "")

    def test_swiss_roll_is_unrolled(self):
        assert graph_dimension(swiss_roll(1500, np.random.default_rng(0))).estimate == 2

    def test_sources_stand_for_all_pairs(self):
        x = gaussian(1500, np.random.default_rng(0), 3)
        every, some = graph_dimension(x), graph_dimension(x, all_pairs_up_to=1000, sources=300, seed=1)
        assert abs(every.estimate - some.estimate) <= 1
        again = graph_dimension(x, all_pairs_up_to=1000, sources=300, seed=1)
        assert again == some

    def test_duplicates_and_unreachable_points_are_counted(self):
        rng = np.random.default_rng(0)
        near = sphere(600, rng, 3)
        far = sphere(40, rng, 3) + 100
        result = graph_dimension(np.vstack([near, far, near[:50]]))
        assert (result.duplicates, result.unreachable, result.points) == (50, 40, 600)
        assert result.estimate == graph_dimension(near).estimate

    def test_largest_is_reported_as_a_cap(self):
        result = graph_dimension(gaussian(600, np.random.default_rng(0), 5), largest=3)
        assert (result.estimate, result.capped) == (3, True)

    @settings(deadline=None, max_examples=5)
    @given(st.integers(0, 99), st.floats(-100, 100))
    def test_invariant_to_scale_rotation_shift_and_order(self, seed, log_scale):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((300, 3))
        moved = rng.permutation(x @ ortho_group.rvs(3, random_state=seed) + 5) * 10.0**log_scale
        assert graph_dimension(moved).points == graph_dimension(x).points
        # Bin edges move by rounding, which may move a count; the estimate follows within its resolution.
        estimates = graph_dimension(moved).estimate, graph_dimension(x).estimate
        assert np.isnan(estimates).any() or abs(estimates[0] - estimates[1]) <= 1

    def test_single_precision(self):
        x = gaussian(600, np.random.default_rng(1), 4)
        assert abs(graph_dimension(x.astype(np.float32)).estimate - graph_dimension(x).estimate) <= 1

    def test_curves_fall_apart(self):
        result = graph_dimension(circle(500, np.random.default_rng(0)))
        assert np.isnan(result.estimate)
        assert "falls into" in result.note
        assert result.points == 500

    def test_an_open_curve_has_no_hump(self):
        result = graph_dimension(line(500, np.random.default_rng(0)), neighbours=20)
        assert np.isnan(result.estimate)
        assert "no single hump" in result.note

    def test_an_edge_longer_than_the_peak(self):
        x = gaussian(300, np.random.default_rng(0), 3)
        result = graph_dimension(x, neighbours=150)
        assert np.isnan(result.estimate)
        assert "longest edge" in result.note

    @pytest.mark.parametrize(
        ("x", "options", "message"),
        [
            (np.ones((50, 2)), {}, "x has 1 different points among 50; at least 10"),
            (np.eye(12), {"neighbours": 11}, "x has 12 different points among 12; at least 13"),
            (np.eye(20), {"neighbours": 0}, "neighbours is 0"),
            (np.eye(20), {"bins": 3}, "bins is 3"),
            (np.eye(20), {"largest": 0}, "largest is 0"),
            (np.eye(20), {"sources": 0}, "sources is 0"),
            (np.eye(20), {"all_pairs_up_to": -1}, "all_pairs_up_to is -1"),
            ([[0.0, np.inf]] * 20, {}, r"x\[0, 1\] is inf"),
        ],
    )
    def test_refuses(self, x, options, message):
        with pytest.raises(ValueError, match=message):
            graph_dimension(x, **options)


class TestEffectiveRank:
    @pytest.mark.parametrize("r", [1, 4, 9])
    @pytest.mark.parametrize(("n", "d"), [(50, 12), (11, 40), (9000, 10)])
    def test_equal_singular_values(self, r, n, d):
        result = effective_rank(matrix_with_singular_values([3.0] * r, n, d))
        assert result.estimate == pytest.approx(r, rel=1e-9)
        assert (result.points, result.low, result.high) == (n, None, None)

    def test_by_hand_singular_values_are_not_squared(self):
        # p = (1/2, 1/4, 1/4): the entropy is (3/2)·log 2.
        x = matrix_with_singular_values([2, 1, 1], 30, 5)
        assert effective_rank(x).estimate == pytest.approx(2**1.5, rel=1e-12)

    def test_centring(self):
        x = matrix_with_singular_values([1, 1, 1], 30, 6)
        shifted = x + 100 * np.ones(6)
        assert effective_rank(shifted).estimate == pytest.approx(3, rel=1e-9)
        assert effective_rank(shifted, centre=False).estimate < 1.1

    def test_blocks_do_not_matter(self, monkeypatch):
        x = gaussian(500, np.random.default_rng(0), 7)
        whole = effective_rank(x).estimate
        monkeypatch.setattr("anisotropy.geometry._spectrum._BLOCK", 16)
        assert effective_rank(x).estimate == pytest.approx(whole, rel=1e-13)

    @settings(deadline=None, max_examples=25)
    @given(st.integers(0, 999), st.floats(-250, 250))
    def test_invariant_to_scale_rotation_and_order(self, seed, log_scale):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((12, 5))
        moved = rng.permutation(x) @ ortho_group.rvs(5, random_state=seed) * 10.0**log_scale
        assert effective_rank(moved).estimate == pytest.approx(effective_rank(x).estimate, rel=1e-10)
        assert pca_components(moved).estimate == pca_components(x).estimate

    def test_constant_columns_and_zero_rows_do_not_count(self):
        x = matrix_with_singular_values([1, 1], 30, 4)
        assert effective_rank(np.hstack([x, np.full((30, 2), 7.0)])).estimate == pytest.approx(2, rel=1e-9)
        with_zeros = np.vstack([x, np.zeros((5, 4))])
        assert effective_rank(with_zeros, centre=False).estimate == pytest.approx(2, rel=1e-9)

    def test_single_precision_is_computed_in_double(self):
        x = gaussian(200, np.random.default_rng(0), 6).astype(np.float32)
        assert effective_rank(x).estimate == pytest.approx(effective_rank(x.astype(np.float64)).estimate, rel=1e-14)


class TestPCAComponents:
    @pytest.mark.parametrize(
        ("variances", "share", "expected"),
        [([1] * 10, 0.7, 7), ([8, 1, 1], 0.7, 1), ([6, 3, 1], 0.7, 2), ([6, 3, 1], 0.9, 2), ([6, 3, 1], 1.0, 3)],
    )
    def test_by_hand(self, variances, share, expected):
        x = matrix_with_singular_values(np.sqrt(variances), 40, 12)
        assert pca_components(x, share=share).estimate == expected

    def test_cap(self):
        x = matrix_with_singular_values([1] * 10, 40, 12)
        over, at = pca_components(x, cap=6), pca_components(x, cap=7)
        assert (over.estimate, over.capped) == (7, True)
        assert (at.estimate, at.capped) == (7, False)

    def test_papers_default(self):
        x = matrix_with_singular_values([1] * 160, 400, 200)
        result = pca_components(x)
        assert (result.estimate, result.capped) == (101, True)

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"share": 0}, "share is 0"), ({"share": 70}, "share is 70"), ({"cap": 0}, "cap is 0")],
    )
    def test_refuses(self, options, message):
        with pytest.raises(ValueError, match=message):
            pca_components(np.eye(4), **options)


@pytest.mark.parametrize("measure", [effective_rank, pca_components])
class TestSpectralInput:
    @pytest.mark.parametrize("value", [0.0, 0.1, 1e30])
    def test_refuses_equal_rows(self, measure, value):
        with pytest.raises(ValueError, match="all rows of x are equal"):
            measure(np.full((7, 3), value))

    def test_refuses_zero_without_centring(self, measure):
        with pytest.raises(ValueError, match="x is zero everywhere"):
            measure(np.zeros((7, 3)), centre=False)
        assert measure(np.ones((7, 3)), centre=False).estimate == pytest.approx(1)

    def test_refuses_one_row(self, measure):
        with pytest.raises(ValueError, match=r"x has shape \(1, 3\); at least 2 row"):
            measure(np.ones((1, 3)))

    def test_refuses_not_finite(self, measure):
        with pytest.raises(ValueError, match=r"x\[1, 0\] is nan"):
            measure([[1.0, 2], [np.nan, 1]])

    def test_takes_tensors(self, measure):
        x = gaussian(30, np.random.default_rng(0), 4)
        assert measure(torch.from_numpy(x)) == measure(x)
