"""Manifolds against closed forms, against geodesics in coordinates, and against what symmetry says of their samples."""

from __future__ import annotations

from math import inf, pi, sqrt

import numpy as np
import pytest
import sympy
from scipy.integrate import quad, solve_ivp

from anisotropy.geometry.curves import Ellipse, Parabola
from anisotropy.geometry.manifolds import Circle, Cylinder, Sphere, ball_volume
from anisotropy.geometry.surfaces import Ellipsoid, QuadraticGraph, Torus

EVERY = {
    "circle": (lambda: Circle(2.0), [1.0]),
    "sphere S4": (lambda: Sphere(4, 0.5), [0.0, 0.6, 0.0, 0.8]),
    "cylinder, helix": (lambda: Cylinder(1.5), [0.6, 0.8]),
    "cylinder, around": (lambda: Cylinder(), [1.0, 0.0]),
    "cylinder, turning helix": (lambda: Cylinder(), [0.995, sqrt(1 - 0.995**2)]),
    "ellipse, vertex": (lambda: Ellipse(2, 1), [1.0]),
    "ellipse, elsewhere": (lambda: Ellipse(2, 1, 0.8), [-1.0]),
    "parabola, vertex": (lambda: Parabola(1.0), [-1.0]),
    "parabola, elsewhere": (lambda: Parabola(1.0, 0.5), [1.0]),
    "parabola, far up": (lambda: Parabola(1.0, 4.0), [-1.0]),
    "torus": (lambda: Torus(2, 0.7, 0.9), [0.6, 0.8]),
    "torus, inside": (lambda: Torus(2, 0.7, pi), [0.6, -0.8]),
    "ellipsoid": (lambda: Ellipsoid([1, 1.5, 2], [0.5, 0.6, 0.7]), [0.6, 0.8]),
    "ellipsoid in R4": (lambda: Ellipsoid([1, 1.5, 2, 1.2], [0.5, 0.6, 0.7, 0.1]), [0.0, 0.6, 0.8]),
    "graph": (lambda: QuadraticGraph([1.0, -0.5, 0.2]), [0.48, 0.64, 0.6]),
}


@pytest.fixture(params=EVERY, scope="module")
def place(request):
    make, direction = EVERY[request.param]
    return make(), np.array(direction)


def turning_arc(manifold, direction):
    largest = manifold.largest_chord(direction)
    return 3 / abs(manifold.principal_curvatures).max() if largest == inf else float(manifold.arc(largest, direction))


class TestEveryManifold:
    def test_arc_of_chord_is_the_arc(self, place):
        manifold, direction = place
        arcs = np.linspace(0, 0.95 * turning_arc(manifold, direction), 9)
        found = manifold.arc(manifold.chord(arcs, direction), direction)
        np.testing.assert_allclose(found, arcs, rtol=1e-9, atol=1e-12)

    def test_geodesics_are_unit_speed_start_at_p_and_bend_by_the_normal_curvature(self, place):
        manifold, direction = place
        h = 1e-3 / abs(manifold.principal_curvatures).max()
        steps = np.arange(5) * h
        points = manifold.geodesic(steps, direction)
        np.testing.assert_allclose(points[0], manifold.point, atol=1e-12)
        gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
        np.testing.assert_allclose(gaps, h, rtol=1e-5)
        local = (points - manifold.point) @ manifold.frame.T
        np.testing.assert_allclose(local[1, :-1] / h, direction, atol=1e-5)
        bend = (2 * local[0] - 5 * local[1] + 4 * local[2] - local[3]) / h**2
        assert bend[-1] == pytest.approx(manifold.normal_curvature(direction), abs=3e-5)
        np.testing.assert_allclose(bend[:-1] @ direction, 0, atol=4e-3)

    def test_the_frame_is_orthonormal(self, place):
        manifold, _ = place
        np.testing.assert_allclose(manifold.frame @ manifold.frame.T, np.eye(manifold.ambient), atol=1e-12)

    def test_chords_are_straight_distances(self, place):
        manifold, direction = place
        arcs = np.linspace(0, turning_arc(manifold, direction), 5)
        straight = np.linalg.norm(manifold.geodesic(arcs, direction) - manifold.point, axis=1)
        np.testing.assert_allclose(manifold.chord(arcs, direction), straight, atol=1e-9)

    def test_shapes_are_kept(self, place):
        manifold, direction = place
        assert np.ndim(manifold.chord(0.1, direction)) == 0
        assert manifold.arc(np.full((2, 3), 0.1), direction).shape == (2, 3)
        assert manifold.geodesic(np.full((2, 3), 0.1), direction).shape == (2, 3, manifold.ambient)

    def test_samples_lie_on_the_manifold_and_follow_the_seed(self, place):
        manifold, _ = place
        points = manifold.sample(50, 3)
        assert points.shape == (50, manifold.ambient)
        np.testing.assert_array_equal(points, manifold.sample(50, 3))
        if hasattr(manifold, "_gradient"):
            for point in points[:5]:
                gradient = manifold._gradient(point)
                other = manifold._gradient(point + 1e-4 * gradient) - manifold._gradient(point - 1e-4 * gradient)
                np.testing.assert_allclose(other / 2e-4, manifold._hessian(point) @ gradient, rtol=1e-4, atol=1e-5)

    def test_refuses_what_is_no_length_and_no_direction(self, place):
        manifold, direction = place
        with pytest.raises(ValueError, match="cannot be negative"):
            manifold.arc(-0.1, direction)
        with pytest.raises(ValueError, match="not finite"):
            manifold.chord(np.nan, direction)
        with pytest.raises(ValueError, match="unit vector"):
            manifold.chord(0.1, 1.1 * direction)
        with pytest.raises(ValueError, match="unit vector"):
            manifold.normal_curvature(np.full(manifold.dimension, np.nan))
        with pytest.raises(ValueError, match=f"it must be \\({manifold.dimension},\\)"):
            manifold.chord(0.1, [*direction, 0.0])

    def test_refuses_a_chord_beyond_the_reach(self, place):
        manifold, direction = place
        largest = manifold.largest_chord(direction)
        if largest < inf:
            with pytest.raises(ValueError, match="beyond the manifold's reach"):
                manifold.arc(1.001 * largest, direction)


SERIES = {
    "circle": 5,
    "sphere S4": 5,
    "cylinder, helix": 5,
    "ellipse, vertex": 5,
    "ellipse, elsewhere": 4,
    "parabola, vertex": 5,
    "parabola, elsewhere": 4,
    "torus": 4,
    "ellipsoid": 4,
    "graph": 5,
}


@pytest.mark.parametrize(("name", "order"), SERIES.items())
def test_the_order_of_the_series_error(name, order):
    make, direction = EVERY[name]
    manifold = make()
    kappa = abs(manifold.normal_curvature(direction))
    t = np.geomspace(0.01, 0.06, 6) / abs(manifold.principal_curvatures).max()
    error = np.abs(manifold.arc(t, direction) - t - kappa**2 * t**3 / 24)
    assert np.polyfit(np.log(t), np.log(error), 1)[0] == pytest.approx(order, abs=0.12)


def test_the_series_symbolically():
    """A plane curve in its Frenet frame: chord and arc to order 4, the circle to order 5."""
    r, t, kappa, change = sympy.symbols("r t kappa change", positive=True)
    angle = sympy.integrate(kappa + change * r, r)
    x = sympy.integrate(sympy.series(sympy.cos(angle), r, 0, 5).removeO(), r)
    y = sympy.integrate(sympy.series(sympy.sin(angle), r, 0, 5).removeO(), r)
    # The chord over r, as the root of a polynomial that is 1 at r = 0.
    square = sympy.expand(sympy.expand(x**2 + y**2) / r**2)
    chord = sympy.expand(r * sympy.series(sympy.sqrt(square), r, 0, 4).removeO())
    assert sympy.simplify(chord.coeff(r, 3) + kappa**2 / 24) == 0
    assert sympy.simplify(chord.coeff(r, 4) + kappa * change / 24) == 0
    arc = sympy.series(2 / kappa * sympy.asin(kappa * t / 2), t, 0, 7).removeO()
    assert sympy.expand(arc - (t + kappa**2 * t**3 / 24 + 3 * kappa**4 * t**5 / 640)) == 0


class TestClosedForms:
    def test_circle(self):
        t = np.linspace(0, 2 / 0.7, 11)
        np.testing.assert_allclose(Circle.of_curvature(0.7).arc(t), 2 / 0.7 * np.arcsin(0.7 * t / 2), rtol=1e-12)

    def test_normal_curvatures_follow_euler(self):
        cylinder = Cylinder(2.0)
        for angle in np.linspace(0, pi, 7):
            v = [np.cos(angle), np.sin(angle)]
            assert cylinder.normal_curvature(v) == pytest.approx(np.cos(angle) ** 2 / 2)
        assert cylinder.chord(3.0, [0.0, 1.0]) == 3.0
        assert cylinder.largest_chord([0.0, 1.0]) == inf

    def test_torus_and_ellipsoid_curvatures(self):
        torus = Torus(2, 0.7, 2.0)
        np.testing.assert_allclose(torus.principal_curvatures, [1 / 0.7, np.cos(2) / (2 + 0.7 * np.cos(2))])
        # At the end of the axis a_1 the normal sections are ellipses with curvature a_1/a_i².
        np.testing.assert_allclose(Ellipsoid([3, 1, 2]).principal_curvatures, [3, 3 / 4])
        point = Ellipsoid([1, 1.5, 2], [0.5, 0.6, 0.7])
        p, axes = point.point, point.semi_axes
        gauss = 1 / (np.prod(axes) ** 2 * ((p**2 / axes**4).sum()) ** 2)
        assert np.prod(point.principal_curvatures) == pytest.approx(gauss)

    def test_a_round_ellipsoid_is_the_sphere(self):
        t = np.linspace(0, 1.9, 7)
        np.testing.assert_allclose(Ellipsoid([1, 1, 1], [1, 2, 3]).arc(t, [0.6, 0.8]), 2 * np.arcsin(t / 2), atol=1e-9)

    def test_a_graph_along_a_principal_direction_is_the_parabola(self):
        t = np.linspace(0, 4, 7)
        graph = QuadraticGraph([0.8, -0.3])
        np.testing.assert_allclose(graph.arc(t, [1.0, 0.0]), Parabola(0.8).arc(t), atol=1e-9)
        np.testing.assert_allclose(graph.arc(t, [0.0, 1.0]), Parabola(0.3).arc(t), atol=1e-9)
        assert graph.normal_curvature([0.0, 1.0]) == -0.3

    def test_an_ellipse_in_the_ellipsoid(self):
        t = np.linspace(0, 1.5, 5)
        surface = Ellipsoid([2, 1, 3])
        np.testing.assert_allclose(surface.arc(t, [1.0, 0.0]), Ellipse(2, 1).arc(t), atol=1e-8)

    def test_ellipse_arc_length_by_quadrature(self):
        ellipse = Ellipse(2, 1, 0.8)
        length, _ = quad(lambda phi: np.hypot(2 * np.sin(phi), np.cos(phi)), 0.8, 1.7)
        end = np.array([2 * np.cos(1.7), np.sin(1.7)])
        np.testing.assert_allclose(ellipse.geodesic(length), end, rtol=1e-9)

    def test_a_parabola_seen_from_far_up_turns_where_the_derivative_says(self):
        parabola = Parabola(1.0, 4.0)
        largest = parabola.largest_chord([-1.0])
        x = np.linspace(-4, 4, 400_001)
        distance = np.hypot(x - 4, (x**2 - 16) / 2)
        # Seen along the curve: the first local maximum on the way from x = 4 down.
        falling = distance[::-1]
        first = falling[np.flatnonzero(np.diff(falling) < 0)[0]]
        assert largest == pytest.approx(first, rel=1e-8)
        assert parabola.largest_chord([1.0]) == inf

    def test_ball_volumes(self):
        np.testing.assert_allclose([ball_volume(m) for m in (1, 2, 3, 4)], [2, pi, 4 * pi / 3, pi**2 / 2])
        np.testing.assert_allclose([Sphere(m, 2.0).volume for m in (1, 2, 3)], [4 * pi, 16 * pi, 2 * pi**2 * 8])


def coordinate_geodesic(embedding, symbols, start, ambient_velocity, arcs):
    """Geodesic from the Christoffel symbols of a parametrisation, derived by SymPy: another equation than ours."""
    jacobian = embedding.jacobian(symbols)
    metric = (jacobian.T * jacobian).applyfunc(sympy.simplify)
    inverse = metric.inv()
    n = len(symbols)
    gamma = [
        [
            [
                sum(
                    inverse[i, a]
                    * (
                        sympy.diff(metric[a, j], symbols[k])
                        + sympy.diff(metric[a, k], symbols[j])
                        - sympy.diff(metric[j, k], symbols[a])
                    )
                    for a in range(n)
                )
                / 2
                for k in range(n)
            ]
            for j in range(n)
        ]
        for i in range(n)
    ]
    christoffel = sympy.lambdify(symbols, gamma, "numpy")
    place = sympy.lambdify(symbols, embedding, "numpy")
    tangent = sympy.lambdify(symbols, jacobian, "numpy")
    speed = np.linalg.lstsq(np.asarray(tangent(*start), dtype=float), ambient_velocity, rcond=None)[0]

    def accelerate(_, state):
        q, velocity = state[:n], state[n:]
        symbols_here = np.asarray(christoffel(*q), dtype=float)
        return np.concatenate([velocity, -np.einsum("ijk,j,k->i", symbols_here, velocity, velocity)])

    path = solve_ivp(accelerate, (0, arcs[-1]), [*start, *speed], method="RK45", rtol=1e-10, atol=1e-12, t_eval=arcs)
    return np.stack([np.asarray(place(*q), dtype=float).ravel() for q in path.y[:n].T])


ARCS = np.linspace(0, 2.0, 6)
U, V = sympy.symbols("u v")


def test_torus_geodesics_against_christoffel_symbols():
    torus, direction = Torus(2, 0.7, 0.9), np.array([0.6, 0.8])
    out = 2 + sympy.Rational(7, 10) * sympy.cos(V)
    embedding = sympy.Matrix([out * sympy.cos(U), out * sympy.sin(U), sympy.Rational(7, 10) * sympy.sin(V)])
    expected = coordinate_geodesic(embedding, (U, V), (0.0, 0.9), direction @ torus.frame[:2], ARCS)
    np.testing.assert_allclose(torus.geodesic(ARCS, direction), expected, atol=1e-8)


def test_ellipsoid_geodesics_against_christoffel_symbols():
    u, v = 0.7, 0.4
    at = [np.cos(u) * np.cos(v), np.sin(u) * np.cos(v), np.sin(v)]
    ellipsoid, direction = Ellipsoid([1, 1.5, 2], at), np.array([0.6, 0.8])
    embedding = sympy.Matrix(
        [sympy.cos(U) * sympy.cos(V), sympy.Rational(3, 2) * sympy.sin(U) * sympy.cos(V), 2 * sympy.sin(V)]
    )
    expected = coordinate_geodesic(embedding, (U, V), (u, v), direction @ ellipsoid.frame[:2], ARCS)
    np.testing.assert_allclose(ellipsoid.geodesic(ARCS, direction), expected, atol=1e-8)


def test_clairaut_on_the_torus():
    """On a surface of revolution the angular momentum about the axis is conserved along a geodesic."""
    torus = Torus(2, 0.7, 0.9)
    arcs = np.linspace(0.5, 8, 40)
    h = 1e-4
    velocity = (torus.geodesic(arcs + h, [0.6, 0.8]) - torus.geodesic(arcs - h, [0.6, 0.8])) / (2 * h)
    x = torus.geodesic(arcs, [0.6, 0.8])
    momentum = x[:, 0] * velocity[:, 1] - x[:, 1] * velocity[:, 0]
    np.testing.assert_allclose(momentum, (2 + 0.7 * np.cos(0.9)) * 0.8, rtol=1e-6)


class TestSampling:
    """Uniform in volume: shares of regions whose volume is known; 4 standard errors of 40,000 draws."""

    N = 40_000

    def share(self, inside, expected):
        assert abs(inside.mean() - expected) < 4 * sqrt(expected * (1 - expected) / self.N)

    def test_sphere_and_cylinder(self):
        sphere = Sphere(2).sample(self.N, 0)
        self.share(sphere[:, 2] > 0.5, 0.25)  # Archimedes
        cylinder = Cylinder(1.0, height=3.0).sample(self.N, 1)
        self.share((np.abs(cylinder[:, 1]) < 0.5) & (cylinder[:, 0] > 0), 1 / 6)

    def test_torus(self):
        torus = Torus(2, 0.7).sample(self.N, 2)
        # The outer half has area 2πr(πR + 2r) of 4π²Rr.
        self.share(np.hypot(torus[:, 0], torus[:, 1]) > 2, 0.5 + 0.7 / (2 * pi))

    def test_ellipsoid_of_revolution(self):
        points = Ellipsoid([1, 1, 2]).sample(self.N, 3)

        def band(z):
            return np.sqrt(1 - z**2 / 4) * np.sqrt(1 + z**2 / (16 * (1 - z**2 / 4)))

        expected = quad(band, -0.5, 0.5)[0] / quad(band, -2, 2)[0]
        self.share(np.abs(points[:, 2]) < 0.5, expected)

    def test_ellipse_and_parabola(self):
        points = Ellipse(2, 1).sample(self.N, 4)
        speed = lambda phi: np.hypot(2 * np.sin(phi), np.cos(phi))  # noqa: E731
        self.share(points[:, 0] > 2 * np.cos(0.5), quad(speed, -0.5, 0.5)[0] / quad(speed, -pi, pi)[0])
        points = Parabola(2.0).sample(self.N, 5, extent=1.5)
        length = lambda x: sqrt(1 + 4 * x**2)  # noqa: E731
        self.share(np.abs(points[:, 0]) < 0.5, quad(length, 0, 0.5)[0] / quad(length, 0, 1.5)[0])

    def test_graph(self):
        points = QuadraticGraph([2.0, 2.0]).sample(self.N, 6, extent=1.0)
        area = lambda s: s * sqrt(1 + 4 * s**2)  # noqa: E731
        inside = np.linalg.norm(points[:, :2], axis=1) < 0.5
        self.share(inside, quad(area, 0, 0.5)[0] / quad(area, 0, 1)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Circle(0), "radius is 0"),
        (lambda: Circle(np.nan), "radius is nan"),
        (lambda: Circle.of_curvature(-1), "curvature is -1"),
        (lambda: Sphere(0), "dimension is 0"),
        (lambda: Sphere(2.5), "dimension is 2.5"),
        (lambda: Cylinder(1, height=-1), "height is -1"),
        (lambda: Ellipse(1, -2), "b is -2"),
        (lambda: Ellipse(1, 2, np.inf), "parameter is inf"),
        (lambda: Parabola(-1), "curvature is -1"),
        (lambda: Ellipsoid([1, 0, 2]), r"semi_axes\[1\] is 0"),
        (lambda: Ellipsoid([1]), "d at least 2"),
        (lambda: Ellipsoid([1, 2, 3], [1, 0]), "the semi-axes have"),
        (lambda: Ellipsoid([1, 2, 3], [0, 0, 0]), "not zero"),
        (lambda: Torus(1, 2), "thinner"),
        (lambda: Torus(1, -0.5), "minor is -0.5"),
        (lambda: Torus(1, 0.5, np.nan), "angle is nan"),
        (lambda: QuadraticGraph([[1.0]]), "one principal curvature a direction"),
        (lambda: QuadraticGraph([1, np.inf]), "not finite"),
        (lambda: QuadraticGraph([1, 2]).lift(np.ones((3, 3))), r"it must be \(n, 2\)"),
        (lambda: QuadraticGraph([1, 2]).sample(3, 0, extent=0), "extent is 0"),
        (lambda: Circle().sample(0, 0), "count is 0"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
