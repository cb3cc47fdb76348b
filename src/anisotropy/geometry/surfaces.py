"""Surfaces whose geodesics are integrated: ellipsoids, the torus, and graphs with given principal curvatures.

A hypersurface F = 0 with unit normal N = −∇F/‖∇F‖ has II(u, v) = (uᵀ F'' v/‖∇F‖) N, and its unit-speed geodesics solve

    γ'' = −(γ'ᵀ F''(γ) γ'/‖∇F(γ)‖²) ∇F(γ),

the acceleration that keeps γ on the surface and nothing else. It is integrated with an explicit Runge–Kutta method of
order 8 (Hairer, Nørsett & Wanner, *Solving Ordinary Differential Equations I*, II.5) to about ten digits. That no
parametrisation is needed makes one piece of code serve every surface and dimension; the tests compare it with the
equations in coordinates.
"""

from __future__ import annotations

from abc import abstractmethod
from math import cos, inf, pi, sin
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anisotropy.geometry.manifolds import Floats, Manifold, finite, invert, positive, unit_vectors, whole

__all__ = ["Ellipsoid", "ImplicitSurface", "QuadraticGraph", "Torus"]

_RELATIVE, _ABSOLUTE = 1e-11, 1e-13
_STEPS_A_LENGTH = 20  # steps per characteristic length, so that interpolation between them is as good as they are
_FARTHEST = 2**6  # in characteristic lengths: how long a geodesic is followed in search of its turning point


class ImplicitSurface(Manifold):
    """A hypersurface F = 0 of R^d. `scale` is a characteristic length: the step of the integration follows it."""

    scale: float

    @abstractmethod
    def _gradient(self, x: Floats) -> Floats:
        """∇F at one point, shape (d,)."""

    @abstractmethod
    def _hessian(self, x: Floats) -> Floats:
        """F'' at one point, shape (d, d)."""

    def _look_from(self, point: Floats, tangents: Floats | None = None) -> None:
        """Set base point, frame and principal curvatures; `tangents` (m, d) are principal directions if known."""
        gradient = self._gradient(point)
        normal = -gradient / np.linalg.norm(gradient)
        form = self._hessian(point) / np.linalg.norm(gradient)
        if tangents is None:
            basis = np.linalg.svd(normal[None])[2][1:]
            values, vectors = np.linalg.eigh(basis @ form @ basis.T)
            order = np.argsort(-values, kind="stable")
            tangents = vectors.T[order] @ basis
            # A fixed sign, so that one machine's direction is another's.
            largest = np.take_along_axis(tangents, np.abs(tangents).argmax(1)[:, None], axis=1)
            tangents = tangents * np.sign(largest)
        self._turned: dict[bytes, tuple[float, float]] = {}
        self.point = point
        self.frame = np.concatenate([tangents, normal[None]])
        self.principal_curvatures = np.einsum("id,de,ie->i", tangents, form, tangents)

    def _track(self, v: Floats, end: float, stop: bool = False) -> Any:
        """Integrate to arc length `end`; with `stop` only until the chord stops growing."""
        from scipy.integrate import solve_ivp

        d = self.ambient

        def accelerate(_: float, state: Floats) -> Floats:
            x, velocity = state[:d], state[d:]
            gradient = self._gradient(x)
            bend = velocity @ self._hessian(x) @ velocity / (gradient @ gradient)
            return np.concatenate([velocity, -bend * gradient])

        def growing(r: float, state: Floats) -> float:
            return float((state[:d] - self.point) @ state[d:]) if r > 0 else 1.0

        growing.terminal, growing.direction = stop, -1  # type: ignore[attr-defined]
        start = np.concatenate([self.point, v @ self.frame[:-1]])
        return solve_ivp(
            accelerate,
            (0, end),
            start,
            method="DOP853",
            rtol=_RELATIVE,
            atol=_ABSOLUTE * self.scale,
            max_step=self.scale / _STEPS_A_LENGTH,
            dense_output=True,
            events=growing,
        )

    def _geodesic(self, arc: Floats, v: Floats) -> Floats:
        if not arc.size or arc.max() == 0:
            return np.broadcast_to(self.point, (len(arc), self.ambient)).copy()
        return self._track(v, float(arc.max())).sol(arc)[: self.ambient].T

    def largest_chord(self, direction: ArrayLike | None = None) -> float:
        """Largest chord before the geodesic starts to come back, infinite if it never does; kept once it is known.

        "Never" means: not within 64 characteristic lengths.
        """
        return self._turn(self._direction(direction))[1]

    def _turning(self, v: Floats) -> float:
        return self._turn(v)[0]

    def _turn(self, v: Floats) -> tuple[float, float]:
        key = v.tobytes()
        if key not in self._turned:
            found = self._track(v, _FARTHEST * self.scale, stop=True)
            chord = float(np.linalg.norm(found.y[: self.ambient, -1] - self.point))
            self._turned[key] = (float(found.t[-1]), chord) if found.status == 1 else (inf, inf)
        return self._turned[key]

    def _arc(self, chord: Floats, v: Floats) -> Floats:
        if not chord.size or chord.max() == 0:
            return np.zeros_like(chord)
        end = 2 * float(chord.max())
        while True:
            found = self._track(v, end, stop=True)
            reached = float(np.linalg.norm(found.y[: self.ambient, -1] - self.point))
            if found.status == 1:
                self._check_reach(chord, reached)
            if found.status == 1 or reached >= chord.max():
                break
            if end > _FARTHEST * max(self.scale, float(chord.max())):
                raise ValueError(f"chord {chord.max():.6g}: no arc up to {end:.6g} reaches it")
            end *= 2

        def apart(arc: Floats) -> Floats:
            return np.linalg.norm(found.sol(arc)[: self.ambient].T - self.point, axis=1)

        return invert(apart, chord, float(found.t[-1]))


class Ellipsoid(ImplicitSurface):
    """The ellipsoid Σ (x_i/a_i)² = 1 in R^d, seen from the point a ∘ u; principal directions by falling curvature.

    `semi_axes` has shape (d,), d ≥ 2, and u = `at` is a direction of R^d (the first axis if left out), normalised here.

    Raises `ValueError` for semi-axes that are not positive and finite, or a point of another dimension or without a
    direction.
    """

    def __init__(self, semi_axes: ArrayLike, at: ArrayLike | None = None) -> None:
        axes = np.asarray(semi_axes, dtype=np.float64)
        if axes.ndim != 1 or len(axes) < 2:
            raise ValueError(f"semi_axes has shape {axes.shape}; it must be (d,) with d at least 2")
        self.semi_axes = np.array([positive(axis, f"semi_axes[{i}]") for i, axis in enumerate(axes)])
        self.scale = float(axes.min())
        u = np.eye(len(axes))[0] if at is None else np.asarray(at, dtype=np.float64)
        if u.shape != axes.shape:
            raise ValueError(f"at has shape {u.shape}; the semi-axes have {axes.shape}")
        if not np.isfinite(u).all() or not u.any():
            raise ValueError("at must be finite and not zero: it is the direction of the base point")
        self._look_from(axes * u / np.linalg.norm(u))

    def sample(self, count: int, seed: int) -> Floats:
        """Draw points uniformly in volume, shape (count, d): sphere points, kept in proportion to their stretching."""
        random = np.random.default_rng(seed)

        def propose(n: int) -> tuple[Floats, Floats]:
            u = unit_vectors(n, self.ambient, random)
            return u * self.semi_axes, np.linalg.norm(u / self.semi_axes, axis=1) * self.semi_axes.min()

        return _accept(propose, whole(count, "count"), random)

    def _gradient(self, x: Floats) -> Floats:
        return 2 * x / self.semi_axes**2

    def _hessian(self, x: Floats) -> Floats:
        return np.diag(2 / self.semi_axes**2)


class Torus(ImplicitSurface):
    """The torus around the z axis, tube radius r around a circle of radius R > r, seen from tube angle `angle`.

    Angle 0 is the outer equator, π the inner one. Principal directions: around the tube, with curvature 1/r, and along
    the parallel, with cos(angle)/(R + r cos(angle)), negative on the inner side.

    Raises `ValueError` unless 0 < r < R, both finite.
    """

    def __init__(self, major: float, minor: float, angle: float = 0.0) -> None:
        self.major, self.minor = positive(major, "major"), positive(minor, "minor")
        if minor >= major:
            raise ValueError(f"minor is {minor} and major {major}; the tube must be thinner than the circle it follows")
        angle = finite(angle, "angle")
        self.scale = min(minor, major - minor)
        around, along = np.array([-sin(angle), 0.0, cos(angle)]), np.array([0.0, 1.0, 0.0])
        self._look_from(np.array([major + minor * cos(angle), 0.0, minor * sin(angle)]), np.stack([around, along]))

    def sample(self, count: int, seed: int) -> Floats:
        """Draw points uniformly in area, shape (count, 3)."""
        random = np.random.default_rng(seed)

        def propose(n: int) -> tuple[Floats, Floats]:
            tube, turn = random.uniform(0, 2 * pi, (2, n))
            out = self.major + self.minor * np.cos(tube)
            points = np.stack([out * np.cos(turn), out * np.sin(turn), self.minor * np.sin(tube)], axis=1)
            return points, out / (self.major + self.minor)

        return _accept(propose, whole(count, "count"), random)

    def _gradient(self, x: Floats) -> Floats:
        out = np.hypot(x[0], x[1])
        pull = 2 * (out - self.major) / out
        return np.array([pull * x[0], pull * x[1], 2 * x[2]])

    def _hessian(self, x: Floats) -> Floats:
        out = np.hypot(x[0], x[1])
        radial = np.array([x[0], x[1], 0.0]) / out
        pull = 2 * (out - self.major) / out
        flat = np.diag([1.0, 1.0, 0.0])
        return pull * flat + (2 - pull) * np.outer(radial, radial) + np.diag([0.0, 0.0, 2.0])


class QuadraticGraph(ImplicitSurface):
    """The graph z = ½ Σ κ_i u_i² over R^m, seen from its vertex: x = (u, ½ II(u, u)), with nothing left out.

    `curvatures` has shape (m,); signs are free, zeros are flat directions.

    Raises `ValueError` for another shape or values that are not finite.
    """

    def __init__(self, curvatures: ArrayLike) -> None:
        kappa = np.asarray(curvatures, dtype=np.float64)
        if kappa.ndim != 1 or not len(kappa):
            raise ValueError(
                f"curvatures has shape {kappa.shape}; it must be (m,), one principal curvature a direction"
            )
        if not np.isfinite(kappa).all():
            raise ValueError("curvatures holds values that are not finite")
        self._kappa = kappa
        self.scale = 1 / float(np.abs(kappa).max()) if kappa.any() else 1.0
        m = len(kappa)
        self._look_from(np.zeros(m + 1), np.eye(m, m + 1))

    def lift(self, coordinates: ArrayLike) -> Floats:
        """Put tangent coordinates u, shape (n, m), onto the graph: shape (n, m + 1).

        Raises `ValueError` for another number of columns.
        """
        u = np.asarray(coordinates, dtype=np.float64)
        if u.ndim != 2 or u.shape[1] != self.dimension:
            raise ValueError(f"coordinates has shape {u.shape}; it must be (n, {self.dimension})")
        return np.concatenate([u, (u**2 @ self._kappa)[:, None] / 2], axis=1)

    def sample(self, count: int, seed: int, extent: float = 1.0) -> Floats:
        """Draw points uniformly in volume over ‖u‖ ≤ `extent`, shape (count, m + 1)."""
        random = np.random.default_rng(seed)
        positive(extent, "extent")
        steepest = np.sqrt(1 + (np.abs(self._kappa).max() * extent) ** 2)

        def propose(n: int) -> tuple[Floats, Floats]:
            radius = extent * random.uniform(size=(n, 1)) ** (1 / self.dimension)
            u = radius * unit_vectors(n, self.dimension, random)
            return self.lift(u), np.sqrt(1 + ((self._kappa * u) ** 2).sum(1)) / steepest

        return _accept(propose, whole(count, "count"), random)

    def _gradient(self, x: Floats) -> Floats:
        return np.append(self._kappa * x[:-1], -1.0)

    def _hessian(self, x: Floats) -> Floats:
        return np.diag(np.append(self._kappa, 0.0))


def _accept(propose: Any, count: int, random: np.random.Generator) -> Floats:
    """Draw until `count` proposals are kept, each with its own probability."""
    kept: list[Floats] = []
    missing = count
    while missing > 0:
        points, probability = propose(2 * missing + 16)
        chosen = points[random.uniform(size=len(points)) < probability]
        kept.append(chosen[:missing])
        missing -= len(chosen[:missing])
    return np.concatenate(kept)
