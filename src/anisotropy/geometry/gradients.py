r"""What the gradient of a linear map sees of a patch: a base-point, a tangent and a normal part.

For y = Wx with upstream gradient g = ∂loss/∂y, on a patch x = x₀ + u + ½II(u, u),

.. math::
    \nabla W = \mathbb{E}[g x^\top] = \mathbb{E}[g]\,x_0^\top + \mathbb{E}[g u^\top]
    + \tfrac12\,\mathbb{E}[g\,\mathrm{II}(u, u)^\top].

This module takes the three parts apart, bounds them, and knows their closed forms on curves. The derivations are on the
page *Theory*. NumPy in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from anisotropy.geometry.patches import Array, Law, Patch, coordinates, finite, moment, positive_moment

__all__ = [
    "Bounds",
    "Energies",
    "Example",
    "Gradient",
    "Upstream",
    "cauchy_schwarz",
    "energies",
    "exact_energies",
    "exact_gradient",
    "scaling_exponents",
    "standard_errors",
    "weight_gradient",
]

Reading = Literal["mean", "covariance", "energy"]


@dataclass(frozen=True)
class Upstream:
    """An upstream gradient on a curve: g(u) = Σ_j a_j u^j + b·max(u, 0), with `coefficients` a and `relu` b."""

    coefficients: tuple[float, ...] = ()
    relu: float = 0.0

    def __call__(self, u: ArrayLike) -> Array:
        """Values of shape (n, 1) at tangent coordinates of shape (n, 1)."""
        v = coordinates(u, 1)
        values = self.relu * np.maximum(v, 0)
        for order, coefficient in enumerate(self.coefficients):
            values = values + coefficient * v**order
        return values

    def moment(self, order: int, law: Law, scale: float) -> float:
        """E[g(u) u^order]."""
        polynomial = sum(a * moment(law, j + order, scale) for j, a in enumerate(self.coefficients))
        return polynomial + (self.relu * positive_moment(law, order + 1, scale) if self.relu else 0.0)

    def energy(self, order: int, law: Law, scale: float) -> float:
        """E[g(u)² u^order], for an even order."""
        total = self.relu**2 * positive_moment(law, order + 2, scale) if self.relu else 0.0
        for j, a in enumerate(self.coefficients):
            total += a * sum(b * moment(law, j + k + order, scale) for k, b in enumerate(self.coefficients))
            if self.relu:
                total += 2 * a * self.relu * positive_moment(law, j + order + 1, scale)
        return total


@dataclass(frozen=True)
class Gradient:
    """The parts of ∇W = E[g xᵀ]: `base` (p, d), `tangent` (p, m) and `normal` (p, c)."""

    base: Array
    tangent: Array
    normal: Array

    @property
    def matrix(self) -> Array:
        """Their sum ∇W, shape (p, d)."""
        return self.base + np.concatenate([self.tangent, self.normal], axis=1)

    @property
    def ratio(self) -> float:
        """‖normal‖/‖tangent‖ in the Frobenius norm, infinite if only the tangent part is 0, NaN if both are."""
        return _ratio(float(np.linalg.norm(self.normal)), float(np.linalg.norm(self.tangent)))


@dataclass(frozen=True)
class Energies:
    """Mean energy of the per-sample gradients g xᵀ: `tangent` E[‖g‖²‖u‖²], `normal` E[‖g‖²‖½II(u, u)‖²]."""

    tangent: float
    normal: float

    @property
    def ratio(self) -> float:
        """Normal over tangent energy, infinite if only the tangent energy is 0, NaN if both are."""
        return _ratio(self.normal, self.tangent)


@dataclass(frozen=True)
class Bounds:
    """Upper bounds by Cauchy and Schwarz, G_rms·σ for `tangent` and ½κ·G_rms·√K·σ² for `normal`.

    `alignment` is γ = ‖E[g uᵀ]‖/(G_rms σ), between 0 and 1: how much of the tangent bound is used. (0 if the bound is.)
    """

    tangent: float
    normal: float
    alignment: float

    @property
    def ratio(self) -> float:
        """The bound on ‖normal‖/‖tangent‖, √K κσ/2γ."""
        return _ratio(self.normal, self.tangent * self.alignment)


def weight_gradient(upstream: ArrayLike, u: ArrayLike, patch: Patch, centred: bool = False) -> Gradient:
    """Split the weight gradient of a linear map on a sample of a patch.

    Args:
        upstream: g = ∂loss/∂y, shape (n, p).
        u: tangent coordinates, shape (n, m).
        patch: the patch.
        centred: take Cov(g, x) instead of E[g xᵀ]; then the base point drops out.

    Raises:
        ValueError: shapes that do not fit, values that are not finite.
    """
    g, v = _pair(upstream, u, patch.tangent)
    bent, mean = patch.bend(v), g.mean(0)
    if centred:
        g = g - mean
    base = np.outer(np.zeros_like(mean) if centred else mean, patch.base)
    return Gradient(base, g.T @ v / len(g), g.T @ bent / len(g))


def standard_errors(upstream: ArrayLike, u: ArrayLike, patch: Patch, centred: bool = False) -> Gradient:
    """Monte Carlo standard error of each entry of :func:`weight_gradient`, as a `Gradient` of the same shapes.

    Raises:
        ValueError: as :func:`weight_gradient`, and for fewer than 2 rows.
    """
    g, v = _pair(upstream, u, patch.tangent)
    if len(g) < 2:
        raise ValueError("a standard error needs at least 2 rows")
    bent, spread = patch.bend(v), g.std(0, ddof=1)
    if centred:
        g, v, bent = (a - a.mean(0) for a in (g, v, bent))
        spread = np.zeros_like(spread)

    def error(features: Array) -> Array:
        squares = (g**2).T @ features**2 / len(g) - (g.T @ features / len(g)) ** 2
        return np.sqrt(np.maximum(squares, 0) / (len(g) - 1))

    return Gradient(np.outer(spread / sqrt(len(g)), np.abs(patch.base)), error(v), error(bent))


def cauchy_schwarz(upstream: ArrayLike, u: ArrayLike, patch: Patch) -> Bounds:
    """The two upper bounds with the sample's own G_rms, σ and K, for which they hold exactly.

    Args:
        upstream: shape (n, p).
        u: shape (n, m).
        patch: the patch; its curvature κ is the largest.

    Raises:
        ValueError: shapes that do not fit, values that are not finite.
    """
    g, v = _pair(upstream, u, patch.tangent)
    squares = (v**2).sum(1)
    strength = sqrt((g**2).sum(1).mean())
    tangent = strength * sqrt(squares.mean())
    used = float(np.linalg.norm(g.T @ v / len(g)))
    return Bounds(
        tangent=tangent,
        normal=0.5 * patch.curvature * strength * sqrt((squares**2).mean()),
        alignment=used / tangent if tangent else 0.0,
    )


def energies(upstream: ArrayLike, u: ArrayLike, patch: Patch) -> Energies:
    """Mean energies of the per-sample gradients, in which nothing can cancel.

    Args:
        upstream: shape (n, p).
        u: shape (n, m).
        patch: the patch.

    Raises:
        ValueError: shapes that do not fit, values that are not finite.
    """
    g, v = _pair(upstream, u, patch.tangent)
    weights = (g**2).sum(1)
    return Energies(float((weights * (v**2).sum(1)).mean()), float((weights * (patch.bend(v) ** 2).sum(1)).mean()))


def exact_gradient(upstream: Upstream, law: Law, scale: float, patch: Patch, centred: bool = False) -> Gradient:
    """The expectation that :func:`weight_gradient` estimates, on a plane curve, from the moments of the law.

    Raises:
        ValueError: a patch that is no plane curve, or a law or scale that `patches.sample` refuses.
    """
    kappa = _plane_curvature(patch)
    mean, tangent, normal = (upstream.moment(order, law, scale) for order in range(3))
    if centred:
        # E[u] = 0 under every law here.
        normal, mean = normal - mean * moment(law, 2, scale), 0.0
    return Gradient(mean * patch.base[None], np.full((1, 1), tangent), np.full((1, 1), kappa * normal / 2))


def exact_energies(upstream: Upstream, law: Law, scale: float, patch: Patch) -> Energies:
    """The expectation that :func:`energies` estimates, on a plane curve, from the moments of the law.

    Raises:
        ValueError: a patch that is no plane curve, or a law or scale that `patches.sample` refuses.
    """
    kappa = _plane_curvature(patch)
    return Energies(upstream.energy(2, law, scale), kappa**2 * upstream.energy(4, law, scale) / 4)


@dataclass(frozen=True)
class Example:
    """An upstream gradient under a law, and how its normal and tangent parts are compared.

    `reading` is `"mean"` for E[g xᵀ], `"covariance"` for Cov(g, x) and `"energy"` for per-sample energies; `exponent`
    is the power of σ that the ratio normal/tangent is predicted to have as σ → 0.
    """

    name: str
    upstream: Upstream
    law: Law
    reading: Reading
    exponent: float

    def ratio(self, u: ArrayLike, patch: Patch) -> float:
        """Normal over tangent on a sample u of shape (n, 1) of a plane curve."""
        g = self.upstream(u)
        if self.reading == "energy":
            return energies(g, u, patch).ratio
        return weight_gradient(g, u, patch, centred=self.reading == "covariance").ratio

    def exact_ratio(self, scale: float, patch: Patch) -> float:
        """What :meth:`ratio` estimates."""
        if self.reading == "energy":
            return exact_energies(self.upstream, self.law, scale, patch).ratio
        return exact_gradient(self.upstream, self.law, scale, patch, centred=self.reading == "covariance").ratio


def scaling_exponents(scales: ArrayLike, values: ArrayLike) -> Array:
    """Least-squares slopes of log value against log scale: values ∝ scale^slope.

    Args:
        scales: shape (k,), k ≥ 2, positive and not all equal.
        values: shape (…, k), positive; one slope per leading index.

    Returns:
        Slopes of shape (…).

    Raises:
        ValueError: shapes that do not fit, values or scales that are not positive.
    """
    x, y = finite(scales, "scales"), finite(values, "values")
    if x.ndim != 1 or len(x) < 2 or y.shape[-1:] != x.shape or np.ptp(x) == 0:
        raise ValueError(f"scales has shape {x.shape} and values {y.shape}; two different scales are needed at least")
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError("scales and values must be positive: a slope of logarithms has no other place")
    centred = np.log(x) - np.log(x).mean()
    return np.log(y) @ centred / (centred @ centred)


def _pair(upstream: ArrayLike, u: ArrayLike, dimension: int) -> tuple[Array, Array]:
    g, v = finite(upstream, "upstream"), coordinates(u, dimension)
    if g.ndim != 2 or len(g) != len(v):
        raise ValueError(f"upstream has shape {g.shape} and u {v.shape}; both need one row a point")
    return g, v


def _plane_curvature(patch: Patch) -> float:
    if patch.forms.shape != (1, 1, 1):
        raise ValueError(f"closed forms are for plane curves; this patch has forms of shape {patch.forms.shape}")
    return float(patch.forms[0, 0, 0])


def _ratio(numerator: float, denominator: float) -> float:
    if denominator:
        return numerator / denominator
    return float("inf") if numerator else float("nan")
