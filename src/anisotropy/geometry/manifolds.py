r"""Manifolds whose second fundamental form is known: chord against arc along every geodesic.

All of them are hypersurfaces of R^d, d = m + 1, seen from one base point p. A direction v is a unit vector of shape
(m,) in the basis of principal directions at p, so its normal curvature is Σ κ_i v_i², whose size κ = ‖II(v, v)‖ is the
ambient curvature of the geodesic that leaves p along v. With arc length r and chord t = ‖γ(r) − p‖,

.. math::
    t = r - \frac{\kappa^2 r^3}{24} + O(r^4), \qquad r = t + \frac{\kappa^2 t^3}{24} + O(t^4),

where the order 4 term is −κκ'r⁴/24 for a plane curve: it vanishes on circles and spheres and at vertices, where κ' = 0,
and the remainder is then of order 5 (do Carmo, *Differential Geometry of Curves and Surfaces*, §1.5–1.6).

Here are the manifolds whose geodesics have a closed form; `curves` has plane curves whose arc length has one, and
`surfaces` those whose geodesics are integrated. Lengths carry one unit, that of the radii; curvatures are its inverse.
Everything is NumPy in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf, isfinite, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["Circle", "Cylinder", "Manifold", "Sphere", "ball_volume"]

Floats = NDArray[np.float64]

_HALVINGS = 64  # bisection steps: more than the bits of a float64
_UNIT = 1e-9  # how far the length of a direction may be from 1


class Manifold(ABC):
    """A hypersurface seen from a base point.

    Attributes:
        point: the base point p, shape (d,), in the manifold's own coordinates.
        frame: rows are the m principal directions at p and then the unit normal, shape (d, d).
        principal_curvatures: κ_1 … κ_m with respect to that normal, signed, shape (m,).
    """

    point: Floats
    frame: Floats
    principal_curvatures: Floats

    @property
    def dimension(self) -> int:
        """The manifold's own dimension m."""
        return len(self.principal_curvatures)

    @property
    def ambient(self) -> int:
        """The dimension d = m + 1 of the space around it."""
        return self.dimension + 1

    def normal_curvature(self, direction: ArrayLike | None = None) -> float:
        """Signed normal curvature ⟨II(v, v), N⟩ = Σ κ_i v_i² of a direction, in 1/length.

        `direction` is a unit vector of shape (m,) in the principal directions; without one it is the first of them.

        Raises `ValueError` for another shape, another length than 1, or values that are not finite.
        """
        return float(self.principal_curvatures @ self._direction(direction) ** 2)

    def chord(self, arc: ArrayLike, direction: ArrayLike | None = None) -> Any:
        """Ambient distance ‖γ(r) − p‖ after the arc length r ≥ 0 along a direction; the shape of `arc` is kept.

        Raises `ValueError` for a negative arc, values that are not finite, or a direction that is none.
        """
        values, v = _lengths(arc, "arc"), self._direction(direction)
        return self._chord(values.ravel(), v).reshape(values.shape)[()]

    def arc(self, chord: ArrayLike, direction: ArrayLike | None = None) -> Any:
        """Arc length at which the geodesic first reaches the ambient distance `chord`; the shape of `chord` is kept.

        It is the inverse of `chord` as long as the chord grows, that is up to `largest_chord`.

        Raises `ValueError` for a chord beyond `largest_chord`, which no arc has before the geodesic turns back, for a
        negative one, values that are not finite, or a direction that is none.
        """
        values, v = _lengths(chord, "chord"), self._direction(direction)
        return self._arc(values.ravel(), v).reshape(values.shape)[()]

    def largest_chord(self, direction: ArrayLike | None = None) -> float:
        """Largest chord before the geodesic starts to come back: 2/κ on a circle, infinite on a line.

        It bounds where chord and arc determine each other. (The *reach* of a set in Federer's sense is another
        number.)
        """
        v = self._direction(direction)
        turning = self._turning(v)
        return inf if not isfinite(turning) else float(self._chord(np.array([turning]), v)[0])

    def geodesic(self, arc: ArrayLike, direction: ArrayLike | None = None) -> Floats:
        """Points γ(r) of the unit-speed geodesic from p, shape (…, d) for `arc` of shape (…), in own coordinates.

        `(points - point) @ frame.T` are its coordinates along the principal directions and, last, the normal.

        Raises `ValueError` as `chord` does.
        """
        values, v = _lengths(arc, "arc"), self._direction(direction)
        return self._geodesic(values.ravel(), v).reshape(*values.shape, self.ambient)

    @abstractmethod
    def sample(self, count: int, seed: int) -> Floats:
        """Draw points uniformly in volume, shape (count, d)."""

    @abstractmethod
    def _geodesic(self, arc: Floats, v: Floats) -> Floats: ...

    @abstractmethod
    def _turning(self, v: Floats) -> float:
        """The arc at which the chord first stops growing; infinite if it never does."""

    def _chord(self, arc: Floats, v: Floats) -> Floats:
        return np.linalg.norm(self._geodesic(arc, v) - self.point, axis=-1)

    def _arc(self, chord: Floats, v: Floats) -> Floats:
        high = self._turning(v)
        if isfinite(high):
            self._check_reach(chord, float(self._chord(np.array([high]), v)[0]))
        else:
            high = 1.0
            while chord.size and self._chord(np.array([high]), v)[0] < chord.max():
                high *= 2
        return invert(lambda r: self._chord(r, v), chord, high)

    def _check_reach(self, chord: Floats, largest: float) -> None:
        if chord.size and chord.max() > largest * (1 + 1e-12):
            raise ValueError(
                f"chord {chord.max():.6g} is beyond the manifold's reach: along this direction the chord grows up to "
                f"{largest:.6g} only"
            )

    def _direction(self, direction: ArrayLike | None) -> Floats:
        m = self.dimension
        if direction is None:
            return np.eye(m)[0]
        v = np.asarray(direction, dtype=np.float64)
        if v.shape != (m,):
            raise ValueError(f"direction has shape {v.shape}; on a manifold of dimension {m} it must be ({m},)")
        length = float(np.linalg.norm(v))
        if not abs(length - 1) <= _UNIT:
            raise ValueError(f"direction has length {length:.6g}; it must be a unit vector")
        return v


class Sphere(Manifold):
    """The round sphere S^m of radius R in R^(m + 1): κ_i = 1/R, chord 2R sin(r/2R) in every direction.

    Raises `ValueError` for m < 1, or a radius that is not positive and finite.
    """

    def __init__(self, dimension: int, radius: float = 1.0) -> None:
        self.radius = positive(radius, "radius")
        m = whole(dimension, "dimension")
        self.point = np.append(np.zeros(m), -radius)
        self.frame = np.eye(m + 1)
        self.principal_curvatures = np.full(m, 1 / radius)

    @property
    def volume(self) -> float:
        """Its m-dimensional volume."""
        return (self.dimension + 1) * ball_volume(self.dimension + 1) * self.radius**self.dimension

    def sample(self, count: int, seed: int) -> Floats:
        """Draw points uniformly in volume, shape (count, m + 1)."""
        return self.radius * unit_vectors(whole(count, "count"), self.ambient, np.random.default_rng(seed))

    def _geodesic(self, arc: Floats, v: Floats) -> Floats:
        angle = arc[:, None] / self.radius
        return self.radius * np.concatenate([np.sin(angle) * v, -np.cos(angle)], axis=1)

    def _turning(self, v: Floats) -> float:
        return pi * self.radius

    def _chord(self, arc: Floats, v: Floats) -> Floats:
        return 2 * self.radius * np.abs(np.sin(arc / (2 * self.radius)))

    def _arc(self, chord: Floats, v: Floats) -> Floats:
        self._check_reach(chord, 2 * self.radius)
        return 2 * self.radius * np.arcsin(np.minimum(chord / (2 * self.radius), 1))


class Circle(Sphere):
    """The circle of radius R in the plane, with r = (2/κ) arcsin(κt/2) exactly.

    Raises `ValueError` for a radius that is not positive and finite.
    """

    def __init__(self, radius: float = 1.0) -> None:
        super().__init__(1, radius)

    @classmethod
    def of_curvature(cls, curvature: float) -> Circle:
        """The circle of curvature κ.

        Raises `ValueError` unless κ is positive and finite.
        """
        return cls(1 / positive(curvature, "curvature"))


class Cylinder(Manifold):
    """The cylinder of radius R around an axis in R³: κ = (1/R, 0), around and along; geodesics are helices.

    `height` is the extent of the part that is sampled, with p in its middle; geodesics ignore it.

    Raises `ValueError` for a radius or height that is not positive and finite.
    """

    def __init__(self, radius: float = 1.0, height: float = 4.0) -> None:
        self.radius, self.height = positive(radius, "radius"), positive(height, "height")
        self.point = np.array([0.0, 0.0, -radius])
        self.frame = np.eye(3)
        self.principal_curvatures = np.array([1 / radius, 0.0])

    @property
    def volume(self) -> float:
        """The area of the part that is sampled."""
        return 2 * pi * self.radius * self.height

    def sample(self, count: int, seed: int) -> Floats:
        """Draw points uniformly in area over the given height, shape (count, 3)."""
        random = np.random.default_rng(seed)
        angle = random.uniform(0, 2 * pi, whole(count, "count"))
        along = random.uniform(-self.height / 2, self.height / 2, count)
        return np.stack([self.radius * np.sin(angle), along, -self.radius * np.cos(angle)], axis=1)

    def _geodesic(self, arc: Floats, v: Floats) -> Floats:
        angle = arc * v[0] / self.radius
        return np.stack([self.radius * np.sin(angle), arc * v[1], -self.radius * np.cos(angle)], axis=1)

    def _turning(self, v: Floats) -> float:
        around = abs(float(v[0]))
        if around == 0:
            return inf
        # d(t²)/dr vanishes where x v_2² + v_1² sin x = 0, x = r v_1/R, which needs sin x < 0.
        x = first_root(lambda x: x * v[1] ** 2 + around**2 * np.sin(x), pi * (1 - 1e-12), 2 * pi)
        return x * self.radius / around

    def _chord(self, arc: Floats, v: Floats) -> Floats:
        return np.hypot(arc * v[1], 2 * self.radius * np.sin(arc * v[0] / (2 * self.radius)))


def ball_volume(dimension: int) -> float:
    """Volume ω_m of the unit ball of R^m."""
    return float(pi ** (dimension / 2) / special.gamma(dimension / 2 + 1))


def invert(function: Callable[[Floats], Floats], values: Floats, high: float) -> Floats:
    """Solve f(x) = value for x in [0, `high`] by bisection; `function` grows there. Shapes (n,) in and out."""
    low, top = np.zeros_like(values), np.full_like(values, high)
    for _ in range(_HALVINGS):
        middle = (low + top) / 2
        above = function(middle) > values
        top = np.where(above, middle, top)
        low = np.where(above, low, middle)
    return (low + top) / 2


def first_root(function: Callable[[Floats], Floats], low: float, high: float, grid: int = 4096) -> float:
    """The first x in [`low`, `high`] where the function falls from positive to ≤ 0; infinite if it never does."""
    x = np.linspace(low, high, grid)
    fallen = np.flatnonzero(function(x) <= 0)
    if not len(fallen):
        return inf
    if fallen[0] == 0:
        return low
    left, right = x[fallen[0] - 1], x[fallen[0]]
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if function(np.array([middle]))[0] > 0:
            left = middle
        else:
            right = middle
    return float((left + right) / 2)


def unit_vectors(count: int, dimension: int, random: np.random.Generator) -> Floats:
    """Directions drawn uniformly, shape (count, dimension)."""
    normal = random.standard_normal((count, dimension))
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def finite(value: float, name: str) -> float:
    """The number itself, or `ValueError` if it is not finite."""
    if not isfinite(value):
        raise ValueError(f"{name} is {value}; it must be finite")
    return float(value)


def positive(value: float, name: str) -> float:
    """The number itself, or `ValueError` if it is not positive and finite."""
    if not (isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be positive and finite")
    return float(value)


def whole(value: int, name: str) -> int:
    """The number itself, or `ValueError` if it is not a whole number of at least 1."""
    if value != int(value) or value < 1:
        raise ValueError(f"{name} is {value}; it must be a whole number of at least 1")
    return int(value)


def _lengths(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite")
    if (array < 0).any():
        raise ValueError(f"{name} is {array.min():.6g}; lengths cannot be negative")
    return array
