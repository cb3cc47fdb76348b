"""A local patch of a curved surface, x = x₀ + u + ½II(u, u), and laws of its tangent coordinates u.

`scale` σ always means E‖u‖² = σ², `curvature` κ the largest ‖II(v, v)‖ over unit v, and K = E‖u‖⁴/σ⁴. What the gradient
of a linear map sees of a patch is in `gradients`. The derivations are on the page *Theory*. NumPy in float64;
every draw takes a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, factorial, gamma, pi, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Law", "Patch", "kurtosis", "moment", "patch_covariance", "positive_moment", "sample"]

Array = NDArray[np.float64]
Seed = int | Sequence[int] | np.random.Generator
Law = Literal["gaussian", "bounded", "skewed", "two-point"]
_STARTS = 32


class Patch:
    """A piece of an m-dimensional surface in R^(m + c), in coordinates in which the first m axes are tangent.

    Attributes:
        forms: second fundamental form, shape (c, m, m): II(u, v)_a = Σ_ij forms[a, i, j] u_i v_j.
        base: the point x₀, shape (m + c,).
    """

    def __init__(self, forms: ArrayLike, base: ArrayLike | None = None) -> None:
        """Check the form and the base point; without one the patch passes through the origin.

        Raises:
            ValueError: forms that are not (c, m, m), symmetric and finite, or a base point of another dimension.
        """
        self.forms = finite(forms, "forms")
        if self.forms.ndim != 3 or self.forms.shape[1] != self.forms.shape[2] or not self.forms.size:
            raise ValueError(f"forms has shape {self.forms.shape}; it must be (normal, tangent, tangent)")
        if not np.allclose(self.forms, self.forms.transpose(0, 2, 1), rtol=1e-12, atol=0):
            raise ValueError("forms must be symmetric: II(u, v) = II(v, u)")
        self.base = np.zeros(self.dimension) if base is None else finite(base, "base")
        if self.base.shape != (self.dimension,):
            raise ValueError(f"base has shape {self.base.shape}; the patch lies in R^{self.dimension}")

    @classmethod
    def curve(cls, curvature: float, base: ArrayLike | None = None) -> Patch:
        """The curve x = (u, ½κu²) in the plane, moved to ``base``; ``curvature`` κ ≥ 0.

        Raises:
            ValueError: a negative curvature, or a base point that is not in the plane.
        """
        if not curvature >= 0:
            raise ValueError(f"curvature is {curvature}; it must not be negative")
        return cls(np.full((1, 1, 1), float(curvature)), base)

    @classmethod
    def random(cls, tangent: int, normal: int, curvature: float, seed: int) -> Patch:
        """A Gaussian second fundamental form of shape (normal, tangent, tangent), scaled to the given curvature κ > 0.

        Raises:
            ValueError: dimensions below 1, or a curvature that is not positive.
        """
        if tangent < 1 or normal < 1:
            raise ValueError(f"tangent is {tangent} and normal {normal}; both must be at least 1")
        if not curvature > 0:
            raise ValueError(f"curvature is {curvature}; it must be positive")
        draw = np.random.default_rng(seed).standard_normal((normal, tangent, tangent))
        forms = draw + draw.transpose(0, 2, 1)
        return cls(forms * (curvature / cls(forms).curvature))

    @property
    def tangent(self) -> int:
        """Dimension m of the surface."""
        return self.forms.shape[1]

    @property
    def dimension(self) -> int:
        """Dimension d = m + c of the space around it."""
        return self.forms.shape[1] + self.forms.shape[0]

    @property
    def curvature(self) -> float:
        """The largest ‖II(v, v)‖ over unit tangent vectors v.

        It equals the largest absolute eigenvalue of Σ_a n_a forms[a] over unit normals n, and is found by maximising
        over v and n in turn from many starts; every step raises the value. Exact for one normal direction.
        """
        m = self.tangent
        if len(self.forms) == 1:
            return float(np.abs(np.linalg.eigvalsh(self.forms[0])).max())
        starts = np.concatenate([np.eye(m), np.random.default_rng(0).standard_normal((_STARTS, m))])
        return max(self._ascend(v / np.linalg.norm(v)) for v in starts)

    def _ascend(self, v: Array) -> float:
        reached = 0.0
        for _ in range(1000):
            bent = np.einsum("aij,i,j->a", self.forms, v, v)
            size = float(np.linalg.norm(bent))
            if size <= reached * (1 + 1e-14):
                break
            reached = size
            values, vectors = np.linalg.eigh(np.einsum("a,aij->ij", bent / size, self.forms))
            v = vectors[:, np.abs(values).argmax()]
        return reached

    def bend(self, u: ArrayLike) -> Array:
        """The normal part ½II(u, u) of points with tangent coordinates ``u`` of shape (n, m); shape (n, c).

        Raises:
            ValueError: coordinates of another dimension.
        """
        v = coordinates(u, self.tangent)
        return 0.5 * np.einsum("aij,ni,nj->na", self.forms, v, v, optimize=True)

    def points(self, u: ArrayLike) -> Array:
        """The points x = x₀ + u + ½II(u, u) of the patch, shape (n, d), for ``u`` of shape (n, m)."""
        v = coordinates(u, self.tangent)
        return self.base + np.concatenate([v, self.bend(v)], axis=1)

    def mean(self, scale: float) -> Array:
        """E[x], shape (d,), under any law of :func:`sample`: their covariance is (σ²/m)·I, so E[½II(u, u)] = σ²H/2m."""
        traces = np.trace(self.forms, axis1=1, axis2=2)
        return self.base + np.concatenate([np.zeros(self.tangent), traces * (scale**2 / (2 * self.tangent))])


def sample(law: Law, count: int, dimension: int, scale: float, seed: Seed) -> Array:
    """Draw tangent coordinates u of shape (count, dimension) with mean 0 and covariance (σ²/m)·I, so E‖u‖² = σ².

    - ``"gaussian"``: N(0, σ²/m) in each coordinate; K = 1 + 2/m.
    - ``"bounded"``: uniform in the ball of radius σ√((m + 2)/m); K = (m + 2)²/(m(m + 4)).
    - ``"skewed"``: (σ/√m)(ε − 1) in each coordinate, ε exponential; K = 1 + 8/m, third moments not 0.
    - ``"two-point"``: of length √σ with probability σ, in a uniform direction, else 0. Then K = 1/σ: heavy tails, of
      which no K independent of σ is a bound.

    Raises:
        ValueError: an unknown law, a count or dimension below 1, a scale that is not positive (for two points: not in
            (0, 1]).
    """
    _check_law(law, dimension, scale)
    if count < 1:
        raise ValueError(f"count is {count}; at least 1 is needed")
    generator = np.random.default_rng(seed)
    if law == "skewed":
        return (scale / sqrt(dimension)) * (generator.standard_exponential((count, dimension)) - 1)
    normal = generator.standard_normal((count, dimension))
    if law == "gaussian":
        return (scale / sqrt(dimension)) * normal
    directions = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    uniform = generator.random((count, 1))
    if law == "bounded":
        return (scale * sqrt((dimension + 2) / dimension)) * uniform ** (1 / dimension) * directions
    return np.where(uniform < scale, sqrt(scale), 0.0) * directions


def kurtosis(law: Law, dimension: int, scale: float) -> float:
    """K = E‖u‖⁴/σ⁴ of a law of :func:`sample`; 1 is the smallest any law can have."""
    _check_law(law, dimension, scale)
    m = dimension
    return {
        "gaussian": 1 + 2 / m,
        "bounded": (m + 2) ** 2 / (m * (m + 4)),
        "skewed": 1 + 8 / m,
        "two-point": 1 / scale,
    }[law]


def moment(law: Law, order: int, scale: float) -> float:
    """E[u^order] in one dimension.

    The skewed law has σ^k times the number of permutations of k things that leave none in its place.
    """
    _check_law(law, 1, scale)
    if order < 0:
        raise ValueError(f"order is {order}; it must not be negative")
    if order == 0:
        return 1.0
    if law == "skewed":
        return scale**order * sum((-1) ** i * factorial(order) // factorial(i) for i in range(order + 1))
    return 0.0 if order % 2 else 2 * positive_moment(law, order, scale)


def positive_moment(law: Law, order: int, scale: float) -> float:
    """E[max(u, 0)^order] in one dimension, for an order of at least 1."""
    _check_law(law, 1, scale)
    if order < 1:
        raise ValueError(f"order is {order}; it must be at least 1")
    if law == "gaussian":
        return scale**order * 2 ** (order / 2 - 1) * gamma((order + 1) / 2) / sqrt(pi)
    if law == "bounded":
        return (sqrt(3) * scale) ** order / (2 * (order + 1))
    if law == "skewed":
        return scale**order * factorial(order) * exp(-1)
    return scale ** (order / 2 + 1) / 2


def patch_covariance(patch: Patch, law: Law, scale: float) -> Array:
    """Cov(x) of a patch, shape (d, d), in closed form: σ²/m on the tangent block, order κ²σ⁴ on the normal one.

    With s = E[u₁²], ν = E[u₁³], q = E[u₁²u₂²], μ = E[u₁⁴] the three blocks are s·I, ½ν·II(e_i, e_i)_a and
    ¼((q − s²)H_aH_b + 2q⟨II_a, II_b⟩ + (μ − 3q)Σ_i II_a(e_i, e_i)II_b(e_i, e_i)), H = tr II. ν = 0 except for the
    skewed law, so tangent and normal coordinates are otherwise uncorrelated.

    Raises:
        ValueError: what :func:`sample` refuses.
    """
    m, forms = patch.tangent, patch.forms
    s = scale**2 / m
    third = 2 * s**1.5 if law == "skewed" else 0.0
    round_law = law in ("bounded", "two-point")
    q = kurtosis(law, m, scale) * scale**4 / (m * (m + 2)) if round_law else s**2
    mu = 9 * s**2 if law == "skewed" else 3 * q
    diagonals = np.einsum("aii->ai", forms)
    traces, flat = diagonals.sum(1), forms.reshape(len(forms), -1)
    cross = 0.5 * third * diagonals.T
    normal = (
        (q - s**2) * np.outer(traces, traces) + 2 * q * flat @ flat.T + (mu - 3 * q) * diagonals @ diagonals.T
    ) / 4
    return np.block([[s * np.eye(m), cross], [cross.T, normal]])


def _check_law(law: str, dimension: int, scale: float) -> None:
    if law not in get_args(Law):
        raise ValueError(f"law is {law!r}; it must be one of {', '.join(get_args(Law))}")
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}; it must be at least 1")
    if not (scale > 0 and np.isfinite(scale)):
        raise ValueError(f"scale is {scale}; it must be positive")
    if law == "two-point" and scale > 1:
        raise ValueError(f"scale is {scale}; with two points it is a probability too, so at most 1")


def finite(values: ArrayLike, name: str) -> Array:
    """Return `values` as a finite float64 array."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite")
    return array


def coordinates(u: ArrayLike, dimension: int) -> Array:
    """Return `u` as tangent coordinates of shape (n, dimension), n ≥ 1."""
    v = finite(u, "u")
    if v.ndim != 2 or v.shape[1] != dimension or not len(v):
        raise ValueError(f"u has shape {v.shape}; it must be (n, {dimension}), one point a row")
    return v
