"""Curvature bias and volumes against closed forms, quadrature and sampling."""

from __future__ import annotations

from math import inf, pi

import numpy as np
import pytest
import sympy
from scipy.integrate import quad

from anisotropy.geometry.curvature import (
    attenuation_slope,
    beta,
    curvature_bias,
    exponential,
    extrinsic_ball_volume,
    half_normal,
    normal_variance_share,
    quadrature_bias,
    sampled_ball_volume,
    sampled_bias,
    split_variance,
    uniform,
    volume_coefficient,
)
from anisotropy.geometry.curves import Ellipse
from anisotropy.geometry.manifolds import Circle, Cylinder, Sphere, ball_volume
from anisotropy.geometry.surfaces import Ellipsoid, QuadraticGraph, Torus

# The ranges of κσ in which the slope is 2 within 0.05.
RANGES = {
    "half-normal": (lambda scale: half_normal(scale, 8 * scale), 0.2),
    "Beta(2, 5)": (lambda scale: beta(scale, 2, 5), 0.5),
    "exponential": (lambda scale: exponential(scale, 5 * scale), 0.1),
}


class TestDensities:
    def test_moments_symbolically(self):
        """m₃/(24 m₁) of each shape, by SymPy."""
        s = sympy.symbols("s", positive=True)
        a, b = sympy.Integer(2), sympy.Integer(5)
        shapes = {
            uniform: (sympy.Integer(1), 1, {}),
            half_normal: (sympy.exp(-(s**2) / 2), sympy.oo, {}),
            exponential: (sympy.exp(-s), sympy.oo, {}),
            beta: (s ** (a - 1) * (1 - s) ** (b - 1), 1, {"a": 2, "b": 5}),
        }
        known = {
            uniform: sympy.Rational(1, 48),
            half_normal: sympy.Rational(1, 12),
            exponential: sympy.Rational(1, 4),
            beta: (a + 1) * (a + 2) / (24 * (a + b + 1) * (a + b + 2)),
        }
        for make, (shape, end, more) in shapes.items():
            moment = [sympy.integrate(s**i * shape, (s, 0, end)) for i in (1, 3)]
            ratio = sympy.simplify(moment[1] / (24 * moment[0]))
            assert sympy.simplify(ratio - known[make]) == 0
            density = make(0.3, **more)
            assert curvature_bias(1.7, density) == pytest.approx(1.7**2 * 0.3**2 * float(ratio), rel=1e-9)

    def test_the_cut_exponential_symbolically(self):
        s = sympy.symbols("s", positive=True)
        first, third = (sympy.integrate(s**i * sympy.exp(-s), (s, 0, 5)) for i in (1, 3))
        expected = float(third / (24 * first))
        assert expected == pytest.approx(0.1915, abs=1e-4)
        assert curvature_bias(1.0, exponential(0.1, 0.5)) == pytest.approx(expected * 0.01, rel=1e-9)

    @pytest.mark.parametrize(
        "density",
        [uniform(0.4), half_normal(0.4), half_normal(0.4, 0.6), exponential(0.4, 1.0), beta(0.4, 2, 5)],
        ids=lambda density: f"{density.name} {density.cut:g}",
    )
    def test_draws_have_the_moments_of_the_quadrature(self, density):
        t = density.sample(100_000, np.random.default_rng(0))
        assert t.min() >= 0
        assert t.max() <= density.support
        for order in (1, 2, 3):
            error = (t**order).std() / np.sqrt(len(t))
            assert abs((t**order).mean() - density.moment(order)) < 4 * error

    def test_support(self):
        assert uniform(0.4).support == 0.4
        assert half_normal(0.4).support == inf
        assert exponential(0.4, 1.0).support == 1.0
        assert beta(0.4, 2, 5, cut=9).support == 0.4


class TestBias:
    def test_uniform_to_leading_order(self):
        """E[r − t] = κ²T³/96, symbolically and on a circle."""
        t, top, kappa = sympy.symbols("t T kappa", positive=True)
        mean = sympy.integrate(kappa**2 * t**3 / 24, (t, 0, top)) / top
        assert sympy.simplify(mean - kappa**2 * top**3 / 96) == 0
        density = uniform(0.1)
        exact = density.mean_of(lambda t: Circle.of_curvature(2).arc(t) - t)
        assert exact == pytest.approx(2**2 * 0.1**3 / 96, rel=5e-3)

    def test_quadrature_against_scipy(self):
        density = half_normal(0.3, 1.9)
        pdf = lambda t: np.exp(-((t / 0.3) ** 2) / 2)  # noqa: E731
        extra = quad(lambda t: (2 * np.arcsin(t / 2) - t) * pdf(t), 0, 1.9)[0] / quad(lambda t: t * pdf(t), 0, 1.9)[0]
        assert quadrature_bias(Circle(), density) == pytest.approx(extra, rel=1e-8)

    @pytest.mark.parametrize("name", RANGES)
    @pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
    def test_the_slope_is_two_and_the_coefficient_the_moments(self, name, kappa):
        make, top = RANGES[name]
        scales = np.geomspace(top / 10, top, 6) / kappa
        circle = Circle.of_curvature(kappa)
        exact = [quadrature_bias(circle, make(scale)) for scale in scales]
        closed = [curvature_bias(kappa, make(scale)) for scale in scales]
        assert attenuation_slope(scales, exact).estimate == pytest.approx(2, abs=0.05)
        assert attenuation_slope(scales[-2:], exact[-2:]).estimate == pytest.approx(2, abs=0.05)
        assert exact[0] == pytest.approx(closed[0], rel=1e-3)
        sampled = [sampled_bias(circle, make(scale), 20_000, seed) for seed, scale in enumerate(scales)]
        for one, other in zip(sampled, exact, strict=True):
            assert abs(one.estimate - other) < 4 * one.standard_error
        fit = attenuation_slope(scales, [one.estimate for one in sampled], [one.standard_error for one in sampled])
        assert fit.low < 2.05
        assert fit.high > 1.95

    @pytest.mark.parametrize(
        ("manifold", "direction"),
        [
            (Cylinder(), [0.6, 0.8]),
            (Ellipse(2, 1, 0.8), [1.0]),
            (Torus(2, 0.7, 0.9), [0.6, 0.8]),
            (Ellipsoid([1, 1.5, 2], [1, 1, 1]), [0.0, 1.0]),
            (QuadraticGraph([1.0, -2.0]), [0.6, 0.8]),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_the_law_needs_no_circle(self, manifold, direction):
        kappa = abs(manifold.normal_curvature(direction))
        # Away from vertices the next order is one power of σ higher only, so σ has to be small.
        scale = 0.002 / abs(manifold.principal_curvatures).max()
        density = half_normal(scale, 8 * scale)
        assert quadrature_bias(manifold, density, direction) == pytest.approx(curvature_bias(kappa, density), rel=0.02)

    def test_a_straight_direction_has_no_bias(self):
        assert quadrature_bias(Cylinder(), uniform(1.0), [0.0, 1.0]) == pytest.approx(0, abs=1e-15)
        assert curvature_bias(0, uniform(1.0)) == 0

    def test_a_fixed_cut_spoils_the_law(self):
        def local(make):
            return attenuation_slope([0.198, 0.202], [quadrature_bias(Circle(), make(s)) for s in (0.198, 0.202)])

        assert local(lambda s: exponential(s, 1.0)).estimate == pytest.approx(1.26, abs=0.01)
        assert local(lambda s: exponential(s, 5 * s)).estimate == pytest.approx(2, abs=0.15)

    def test_intervals_cover(self):
        density = exponential(0.1, 0.5)
        exact = quadrature_bias(Circle(), density)
        inside = [found.low <= exact <= found.high for seed in range(200) if (found := sample(density, seed))]
        assert 0.9 <= np.mean(inside) <= 0.99

    def test_one_seed_one_number(self):
        density = half_normal(0.1, 0.8)
        assert sample(density, 1) == sample(density, 1)
        assert sample(density, 1) != sample(density, 2)


def sample(density, seed):
    return sampled_bias(Circle(), density, 2000, seed)


class TestSlope:
    def test_of_a_power_law(self):
        x = np.geomspace(0.01, 1, 5)
        fit = attenuation_slope(x, 3 * x**1.5)
        assert (fit.estimate, fit.low, fit.high) == pytest.approx((1.5, 1.5, 1.5))

    def test_the_interval_covers(self):
        x, random = np.geomspace(0.01, 1, 5), np.random.default_rng(0)
        error = 0.02 * x**2
        inside = []
        for _ in range(400):
            fit = attenuation_slope(x, x**2 + error * random.standard_normal(5), error)
            inside.append(fit.low <= 2 <= fit.high)
        assert 0.92 <= np.mean(inside) <= 0.98


class TestVolumes:
    @pytest.mark.parametrize(
        ("form", "coefficient"),
        [
            ([1.0], 1 / 24),
            ([1.0, 0.0], 1 / 32),
            ([1.0, 1.0], 0.0),
            ([1.0, 1.0, 1.0], -3 / 40),
            *[([1.0] * m, -m * (m - 2) / (8 * (m + 2))) for m in (4, 5, 9)],
            ([1.0, -1.0], 4 / 32),
            ([2.0, 0.0], 4 / 32),
        ],
    )
    def test_coefficients(self, form, coefficient):
        assert volume_coefficient(form) == pytest.approx(coefficient, abs=1e-15)
        assert volume_coefficient(np.diag(form)) == pytest.approx(coefficient, abs=1e-15)

    def test_any_basis_and_codimension(self):
        random = np.random.default_rng(0)
        form = random.normal(size=(2, 3, 3))
        form = form + form.swapaxes(1, 2)
        turn = np.linalg.qr(random.normal(size=(3, 3)))[0]
        assert volume_coefficient(turn.T @ form @ turn) == pytest.approx(volume_coefficient(form))
        # A product of circles in R⁴: each curvature has a normal of its own.
        flat_torus = np.zeros((2, 2, 2))
        flat_torus[0, 0, 0] = flat_torus[1, 1, 1] = 1
        assert volume_coefficient(flat_torus) == pytest.approx((2 * 2 - 2) / 32)

    def test_against_exact_volumes(self):
        """The next order is t⁴: the error of the second-order volume falls by 16 when t is halved."""
        exact = {
            Circle(): lambda t: 4 * np.arcsin(t / 2),
            Sphere(2): lambda t: pi * t**2,
            Sphere(3): lambda t: 4 * pi * quad(lambda angle: np.sin(angle) ** 2, 0, 2 * np.arcsin(t / 2))[0],
            Cylinder(): lambda t: (
                2 * quad(lambda a: 2 * np.sqrt(max(0, t**2 - 4 * np.sin(a / 2) ** 2)), 0, 2 * np.arcsin(t / 2))[0]
            ),
        }
        for manifold, volume in exact.items():
            m, kappa = manifold.dimension, manifold.principal_curvatures
            errors = [volume(t) / (ball_volume(m) * t**m) - extrinsic_ball_volume(t, kappa) / (ball_volume(m) * t**m)
                      for t in (0.4, 0.2)]  # fmt: skip
            if m == 2 and isinstance(manifold, Sphere):
                assert max(map(abs, errors)) < 1e-12
            else:
                assert errors[0] / errors[1] == pytest.approx(16, rel=0.1)

    @pytest.mark.parametrize("manifold", [Circle(), Cylinder(), Sphere(2), Sphere(3)], ids=lambda m: type(m).__name__)
    def test_against_sampling(self, manifold):
        radii = np.array([0.4, 0.6, 0.8])
        volume, error = sampled_ball_volume(manifold, radii, 200_000, 1)
        expected = extrinsic_ball_volume(radii, manifold.principal_curvatures)
        # The next order of the expansion is below t⁴/100 here.
        assert np.all(np.abs(volume - expected) < 4 * error + 0.01 * radii**4 * expected)

    def test_what_has_no_volume_is_refused(self):
        with pytest.raises(ValueError, match="no known volume"):
            sampled_ball_volume(Torus(2, 1), [0.1], 10, 0)


class TestSplit:
    def test_share_symbolically(self):
        z, kappa, sigma = sympy.symbols("z kappa sigma", positive=True)
        gauss = sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
        moment = {i: sympy.integrate(z**i * gauss, (z, -sympy.oo, sympy.oo)) for i in (2, 4)}
        variance = (kappa / 2) ** 2 * sigma**4 * (moment[4] - moment[2] ** 2)
        assert sympy.simplify(variance / sigma**2 - kappa**2 * sigma**2 / 2) == 0
        assert normal_variance_share([1.3], 0.2) == pytest.approx(1.3**2 * 0.2**2 / 2)

    @pytest.mark.parametrize("curvatures", [[1.0], [1.0, -2.0], [0.5, 0.0, 1.0]])
    def test_against_sampling(self, curvatures):
        graph = QuadraticGraph(curvatures)
        for scale in (0.3, 0.03):
            u = scale * np.random.default_rng(0).standard_normal((100_000, len(curvatures)))
            inside, outside = split_variance(graph.lift(u), graph.frame[:-1])
            assert inside == pytest.approx(len(curvatures) * scale**2, rel=0.03)
            assert outside / inside == pytest.approx(normal_variance_share(curvatures, scale), rel=0.05)

    def test_parts_add_up(self):
        x = np.random.default_rng(0).normal(size=(50, 4)) + 7
        q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 2)))[0].T
        assert sum(split_variance(x, q)) == pytest.approx(x.var(0).sum())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uniform(0), "scale is 0"),
        (lambda: half_normal(-1), "scale is -1"),
        (lambda: exponential(np.nan), "scale is nan"),
        (lambda: beta(np.inf, 2, 5), "scale is inf"),
        (lambda: beta(1, 0.5, 5), "a is 0.5"),
        (lambda: beta(1, 2, np.nan), "b is nan"),
        (lambda: exponential(1, cut=0), "cut is 0"),
        (lambda: half_normal(1, cut=np.nan), "cut is nan"),
        (lambda: curvature_bias(-1, uniform(1)), "curvature is -1"),
        (lambda: curvature_bias(np.nan, uniform(1)), "curvature is nan"),
        (lambda: quadrature_bias(Circle(), half_normal(0.1)), "beyond the manifold's reach"),
        (lambda: quadrature_bias(Circle(), uniform(2.1)), "cut it"),
        (lambda: quadrature_bias(Circle(), uniform(1), [1.0, 0.0]), "dimension 1"),
        (lambda: sampled_bias(Circle(), uniform(1), 1, 0), "at least 2"),
        (lambda: sampled_bias(Circle(), uniform(2.1), 10, 0), "beyond"),
        (lambda: attenuation_slope([1, 2], [0, 1]), "biases must be positive"),
        (lambda: attenuation_slope([-1, 2], [1, 1]), "scales must be positive"),
        (lambda: attenuation_slope([1, 2], [1]), r"all must be \(n,\)"),
        (lambda: attenuation_slope([1, 1], [1, 2]), "2 different scales"),
        (lambda: volume_coefficient([[1, 2], [0, 1]]), "not symmetric"),
        (lambda: volume_coefficient(np.ones((2, 3))), r"must be \(m,\)"),
        (lambda: volume_coefficient(1.0), r"must be \(m,\)"),
        (lambda: volume_coefficient([np.nan]), "not finite"),
        (lambda: extrinsic_ball_volume(-1, [1.0]), "radius"),
        (lambda: sampled_ball_volume(Circle(), [0.0], 10, 0), "radius is 0"),
        (lambda: normal_variance_share([[1.0]], 1), "principal curvatures"),
        (lambda: normal_variance_share([1.0], 0), "scale is 0"),
        (lambda: split_variance(np.ones((3, 2)), np.ones((1, 3))), "must be"),
        (lambda: split_variance(np.full((3, 2), np.nan), np.eye(2)), "not finite"),
        (lambda: split_variance(np.ones((3, 2)), np.ones((1, 2))), "orthonormal"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
