"""Plane curves whose arc length is known in closed form: the ellipse and the parabola, at and off their vertices."""

from __future__ import annotations

from abc import abstractmethod
from math import inf, isfinite, pi, sqrt

import numpy as np
from scipy import special

from anisotropy.geometry.manifolds import Floats, Manifold, finite, first_root, invert, positive, whole

__all__ = ["Ellipse", "Parabola", "PlaneCurve"]


class PlaneCurve(Manifold):
    """A curve in the plane with a parameter φ and an arc length known in closed form; direction ±1 is that of φ."""

    def __init__(self, parameter: float) -> None:
        """Put the base point at φ = `parameter`."""
        self.parameter = finite(parameter, "parameter")
        at = np.array([self.parameter])
        self.point = self._position(at)[0]
        tangent = self._velocity(at)[0]
        tangent = tangent / np.linalg.norm(tangent)
        self.frame = np.stack([tangent, [-tangent[1], tangent[0]]])
        self.principal_curvatures = np.array([self._curvature(self.parameter)])

    @abstractmethod
    def _position(self, parameter: Floats) -> Floats: ...

    @abstractmethod
    def _velocity(self, parameter: Floats) -> Floats: ...

    @abstractmethod
    def _curvature(self, parameter: float) -> float: ...

    @abstractmethod
    def _length(self, parameter: Floats) -> Floats:
        """Arc length from φ = 0, with the sign of φ."""

    @abstractmethod
    def _turning_parameter(self, sign: float) -> float:
        """How far φ goes before the chord stops growing."""

    def _travelled(self, step: Floats, sign: float) -> Floats:
        return np.abs(self._length(self.parameter + sign * step) - self._length(np.array([self.parameter])))

    def _step(self, arc: Floats, sign: float) -> Floats:
        high = 1.0
        while arc.size and self._travelled(np.array([high]), sign)[0] < arc.max():
            high *= 2
        return invert(lambda step: self._travelled(step, sign), arc, high)

    def _apart(self, step: Floats, sign: float) -> Floats:
        return np.linalg.norm(self._position(self.parameter + sign * step) - self.point, axis=-1)

    def _geodesic(self, arc: Floats, v: Floats) -> Floats:
        return self._position(self.parameter + v[0] * self._step(arc, float(v[0])))

    def _turning(self, v: Floats) -> float:
        step = self._turning_parameter(float(v[0]))
        return float(self._travelled(np.array([step]), float(v[0]))[0]) if isfinite(step) else inf

    def _arc(self, chord: Floats, v: Floats) -> Floats:
        sign = float(v[0])
        high = self._turning_parameter(sign)
        if isfinite(high):
            self._check_reach(chord, float(self._apart(np.array([high]), sign)[0]))
        else:
            high = 1.0
            while chord.size and self._apart(np.array([high]), sign)[0] < chord.max():
                high *= 2
        return self._travelled(invert(lambda step: self._apart(step, sign), chord, high), sign)


class Ellipse(PlaneCurve):
    """The ellipse (a cos φ, b sin φ), seen from φ = `parameter`; multiples of π/2 are its vertices.

    Its arc length is an incomplete elliptic integral of the second kind.

    Raises `ValueError` for semi-axes that are not positive and finite.
    """

    def __init__(self, a: float, b: float, parameter: float = 0.0) -> None:
        self.a, self.b = positive(a, "a"), positive(b, "b")
        super().__init__(parameter)

    def sample(self, count: int, seed: int) -> Floats:
        """Draw points uniformly in arc length, shape (count, 2)."""
        quarter = float(self._length(np.array([pi / 2]))[0])
        where = np.random.default_rng(seed).uniform(0, 4 * quarter, whole(count, "count"))
        return self._position(invert(self._length, where, 2 * pi))

    def _position(self, parameter: Floats) -> Floats:
        return np.stack([self.a * np.cos(parameter), self.b * np.sin(parameter)], axis=-1)

    def _velocity(self, parameter: Floats) -> Floats:
        return np.stack([-self.a * np.sin(parameter), self.b * np.cos(parameter)], axis=-1)

    def _curvature(self, parameter: float) -> float:
        speed = np.hypot(self.a * np.sin(parameter), self.b * np.cos(parameter))
        return float(self.a * self.b / speed**3)

    def _length(self, parameter: Floats) -> Floats:
        return self.b * special.ellipeinc(parameter, 1 - (self.a / self.b) ** 2)

    def _turning_parameter(self, sign: float) -> float:
        def growing(step: Floats) -> Floats:
            moved = self.parameter + sign * step
            return sign * np.sum((self._position(moved) - self.point) * self._velocity(moved), axis=-1)

        return first_root(growing, 1e-3, 2 * pi)


class Parabola(PlaneCurve):
    """The parabola y = κx²/2 with curvature κ at its vertex, seen from x = `parameter`.

    Raises `ValueError` unless the curvature is positive and finite.
    """

    def __init__(self, curvature: float, parameter: float = 0.0) -> None:
        self.curvature = positive(curvature, "curvature")
        super().__init__(parameter)

    def sample(self, count: int, seed: int, extent: float = 1.0) -> Floats:
        """Draw points uniformly in arc length over −extent ≤ x ≤ extent, shape (count, 2)."""
        end = self._length(np.array([positive(extent, "extent")]))[0]
        where = np.random.default_rng(seed).uniform(-1, 1, whole(count, "count")) * end
        return self._position(np.sign(where) * invert(self._length, np.abs(where), extent))

    def _position(self, parameter: Floats) -> Floats:
        return np.stack([parameter, self.curvature * parameter**2 / 2], axis=-1)

    def _velocity(self, parameter: Floats) -> Floats:
        return np.stack([np.ones_like(parameter), self.curvature * parameter], axis=-1)

    def _curvature(self, parameter: float) -> float:
        return self.curvature / (1 + (self.curvature * parameter) ** 2) ** 1.5

    def _length(self, parameter: Floats) -> Floats:
        slope = self.curvature * parameter
        return (parameter * np.sqrt(1 + slope**2) + np.arcsinh(slope) / self.curvature) / 2

    def _turning_parameter(self, sign: float) -> float:
        # The chord turns where 1 + κ²x(x + x_0)/2 = 0, if at all: far up one arm, on the way down to the other.
        x, gap = self.parameter, self.parameter**2 - 8 / self.curvature**2
        if gap < 0 or sign * x > 0:
            return inf
        return abs(x) + (abs(x) - sqrt(gap)) / 2
