r"""Curvature bias: how much farther than the chord the arc reaches, on average over a radial density.

Let a neighbour of p be drawn at ambient distance t with density g_σ(t) = g(t/σ)/σ, and let r(t) be the arc length to
it. With κ the curvature along its geodesic and m_i = ∫ sⁱ g(s) ds,

.. math::
    \text{bias} = \frac{\mathbb{E}[r - t]}{\mathbb{E}[t]} = \kappa^2\sigma^2\,\frac{m_3}{24\,m_1}
    + O\bigl((\kappa\sigma)^3\bigr) \quad\text{as } \kappa\sigma \to 0,

since r = t + κ²t³/24 + O(t⁴). So the bias falls with the *square* of the scale: slope 2 in log–log, as long as the
shape g stays the same while σ shrinks. A cut at a fixed multiple of σ is part of the shape; a cut at a fixed distance T
is not, and spoils the law wherever it cuts anything. The law is an identity about one geodesic.

How many neighbours there *are* within t is another question, answered by the extrinsic ball volume (Karp & Pinsky,
*Volume of a small extrinsic ball in a submanifold*, Bull. London Math. Soc. 21, 1989), `extrinsic_ball_volume`.

Lengths carry one unit and curvatures its inverse; biases are ratios. NumPy and SciPy, float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from anisotropy.geometry.manifolds import Floats, Manifold, ball_volume, positive, whole

__all__ = [
    "Bias",
    "RadialDensity",
    "Slope",
    "attenuation_slope",
    "beta",
    "curvature_bias",
    "exponential",
    "extrinsic_ball_volume",
    "half_normal",
    "normal_variance_share",
    "quadrature_bias",
    "sampled_ball_volume",
    "sampled_bias",
    "split_variance",
    "uniform",
    "volume_coefficient",
]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(512)
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class RadialDensity:
    """A density of ambient distances t ≥ 0: a fixed shape, a scale σ, and where it is cut.

    Attributes:
        name: of the shape.
        scale: σ > 0, in units of length.
        cut: the distance beyond which nothing is drawn (the rest is renormalised); infinite for no cut. In multiples of
            σ it belongs to the shape; as a fixed distance it does not, and the bias stops falling as σ².
        shape: the distribution at σ = 1, a frozen SciPy distribution on [0, ∞).
    """

    name: str
    scale: float
    cut: float
    shape: Any

    @property
    def support(self) -> float:
        """Largest distance that can be drawn."""
        return float(min(self.cut, self.scale * self.shape.support()[1]))

    def moment(self, order: int) -> float:
        """E[t^order] of the density as cut, in units of length to that power."""
        return self.mean_of(lambda t: t**order)

    def mean_of(self, function: Any) -> float:
        """E[f(t)], by Gauss–Legendre quadrature on 512 nodes; `function` maps arrays (n,) to (n,)."""
        # Beyond 40σ every shape here has less mass than a float64 can tell from zero.
        end = min(self.support, 40 * self.scale)
        t = end * (_NODES + 1) / 2
        density = self.shape.pdf(t / self.scale) / self.scale
        return float(np.sum(_WEIGHTS * density * function(t)) / np.sum(_WEIGHTS * density))

    def sample(self, count: int, random: np.random.Generator) -> Floats:
        """Draw distances, shape (count,)."""
        return self.quantile(random.uniform(size=count))

    def quantile(self, level: ArrayLike) -> Floats:
        """Distance below which a share `level` of the draws lies; the shape of `level` is kept."""
        return self.scale * self.shape.ppf(np.asarray(level) * self.shape.cdf(self.support / self.scale))


def uniform(scale: float) -> RadialDensity:
    """Uniform distances on [0, σ].

    Raises `ValueError` for a scale that is not positive and finite.
    """
    return RadialDensity("uniform", positive(scale, "scale"), inf, stats.uniform())


def half_normal(scale: float, cut: float = inf) -> RadialDensity:
    """Half-normal distances: sizes of a Gaussian number with standard deviation σ, up to the distance `cut`.

    Raises `ValueError` for a scale that is not positive and finite, or a cut that is not positive.
    """
    return RadialDensity("half-normal", positive(scale, "scale"), _cut(cut), stats.halfnorm())


def exponential(scale: float, cut: float = inf) -> RadialDensity:
    """Exponential distances of mean σ, truncated at the distance `cut`.

    Raises `ValueError` as `half_normal` does.
    """
    return RadialDensity("exponential", positive(scale, "scale"), _cut(cut), stats.expon())


def beta(scale: float, a: float, b: float, cut: float = inf) -> RadialDensity:
    """Beta(a, b) distances on [0, σ], up to the distance `cut`.

    Raises `ValueError` as `half_normal` does, and for a or b below 1, where the density has a pole at an end.
    """
    for value, name in ((a, "a"), (b, "b")):
        if not value >= 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    return RadialDensity(f"Beta({a:g}, {b:g})", positive(scale, "scale"), _cut(cut), stats.beta(a, b))


@dataclass(frozen=True)
class Bias:
    """A Monte Carlo estimate of the relative bias E[r − t]/E[t].

    `standard_error` is that of the ratio of two means of the same draws, [`low`, `high`] the 95 % interval and `draws`
    their number.
    """

    estimate: float
    standard_error: float
    low: float
    high: float
    draws: int


def curvature_bias(curvature: float, density: RadialDensity) -> float:
    """Relative bias E[r − t]/E[t] to leading order: κ² E[t³]/(24 E[t]), which is κ²σ² m₃/(24 m₁).

    For a uniform density it is κ²T²/48, half-normal κ²σ²/12, exponential κ²σ²/4 (κ²σ²·0.191 if cut at 5σ), and
    Beta(a, b) κ²σ²(a + 1)(a + 2)/(24(a + b + 1)(a + b + 2)).

    `curvature` is κ = ‖II(v, v)‖ ≥ 0, in 1/length.

    Raises `ValueError` for a curvature that is negative or not finite.
    """
    if not (np.isfinite(curvature) and curvature >= 0):
        raise ValueError(f"curvature is {curvature}; κ is the length of II(v, v), so it must be finite and at least 0")
    return curvature**2 * density.moment(3) / (24 * density.moment(1))


def quadrature_bias(manifold: Manifold, density: RadialDensity, direction: ArrayLike | None = None) -> float:
    """Relative bias E[r − t]/E[t] along a geodesic of a manifold, from its exact arcs, by quadrature.

    Raises `ValueError` if the density reaches beyond the manifold's `largest_chord`; cut it.
    """
    _check_support(manifold, density, direction)
    extra = density.mean_of(lambda t: manifold.arc(t, direction) - t)
    return extra / density.moment(1)


def sampled_bias(
    manifold: Manifold, density: RadialDensity, draws: int, seed: int, direction: ArrayLike | None = None
) -> Bias:
    """Relative bias from `draws` random distances and their exact arcs, with its interval.

    The standard error of the ratio q = mean(r − t)/mean(t) is that of r − t − qt, over mean(t) √draws.

    Raises `ValueError` as `quadrature_bias` does, or for fewer than 2 draws.
    """
    if whole(draws, "draws") < 2:
        raise ValueError("draws is 1; an interval needs at least 2")
    _check_support(manifold, density, direction)
    t = density.sample(draws, np.random.default_rng(seed))
    extra = manifold.arc(t, direction) - t
    estimate = extra.mean() / t.mean()
    error = float((extra - estimate * t).std(ddof=1) / (t.mean() * sqrt(draws)))
    half = _NORMAL_95 * error
    return Bias(float(estimate), error, float(estimate - half), float(estimate + half), draws)


@dataclass(frozen=True)
class Slope:
    """Slope of a line through (log x, log y), with its 95 % interval from the errors of y."""

    estimate: float
    low: float
    high: float


def attenuation_slope(scales: ArrayLike, biases: ArrayLike, standard_errors: ArrayLike | None = None) -> Slope:
    """Slope of log bias against log scale by least squares; all of shape (n,), n ≥ 2.

    The interval propagates the standard errors of independent biases (to first order, log y has error s/y); without
    them the biases count as exact and the interval is a point.

    Raises `ValueError` for shapes that differ, values that are not positive (a flat manifold has no bias, hence no
    slope), fewer than 2 scales or scales that are all equal.
    """
    x, y = np.asarray(scales, dtype=np.float64), np.asarray(biases, dtype=np.float64)
    s = np.zeros_like(y) if standard_errors is None else np.asarray(standard_errors, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or s.shape != y.shape:
        raise ValueError(f"scales, biases and errors have shapes {x.shape}, {y.shape}, {s.shape}; all must be (n,)")
    if len(x) < 2 or np.ptp(x) == 0:
        raise ValueError("a slope needs at least 2 different scales")
    for values, name in ((x, "scales"), (y, "biases")):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"{name} must be positive and finite to have a logarithm")
    centred = np.log(x) - np.log(x).mean()
    weights = centred / (centred @ centred)
    estimate = float(weights @ np.log(y))
    half = _NORMAL_95 * float(np.linalg.norm(weights * s / y))
    return Slope(estimate, estimate - half, estimate + half)


def volume_coefficient(second_form: ArrayLike) -> float:
    """The coefficient c of vol(M ∩ B_t) = ω_m t^m (1 + ct² + O(t⁴)): c = (2‖II‖² − ‖H‖²)/(8(m + 2)), H = trace II.

    `second_form` is II in an orthonormal tangent basis: principal curvatures (m,), a symmetric matrix (m, m), or one
    such matrix for each normal direction, (codimension, m, m). c is 1/24 on the unit circle, 1/32 on the cylinder, 0 on
    S², −3/40 on S³ and −m(m − 2)/(8(m + 2)) on S^m: many neighbours along a geodesic do not mean many neighbours.

    Raises `ValueError` for another shape, a matrix that is not symmetric, or values that are not finite.
    """
    form = np.asarray(second_form, dtype=np.float64)
    if not np.isfinite(form).all():
        raise ValueError("second_form holds values that are not finite")
    if form.ndim == 1 and len(form):
        form = np.diag(form)
    if form.ndim == 2:
        form = form[None]
    if form.ndim != 3 or form.shape[1] != form.shape[2] or not form.size:
        raise ValueError(f"second_form has shape {np.shape(second_form)}; it must be (m,), (m, m) or (c, m, m)")
    if not np.allclose(form, form.swapaxes(1, 2), rtol=1e-9, atol=1e-12):
        raise ValueError("second_form is not symmetric; II(u, v) = II(v, u)")
    m = form.shape[1]
    mean_curvature = np.trace(form, axis1=1, axis2=2)
    return float((2 * (form**2).sum() - (mean_curvature**2).sum()) / (8 * (m + 2)))


def extrinsic_ball_volume(radius: ArrayLike, second_form: ArrayLike) -> Any:
    """Volume of the part of a manifold within ambient distance t of p, to second order: ω_m t^m (1 + ct²).

    `radius` t ≥ 0 has any shape, which is kept; `second_form` as for `volume_coefficient`.

    Raises `ValueError` for a negative radius, values that are not finite, and as `volume_coefficient` does.
    """
    t = np.asarray(radius, dtype=np.float64)
    if not (np.isfinite(t).all() and (t >= 0).all()):
        raise ValueError("radius must be finite and at least 0")
    m = np.shape(second_form)[-1] if np.ndim(second_form) else 0
    return (ball_volume(m) * t**m * (1 + volume_coefficient(second_form) * t**2))[()]


def sampled_ball_volume(manifold: Any, radii: ArrayLike, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Volume within each ambient radius of p, by sampling; and its binomial standard errors. Shapes (n,).

    `manifold` needs a `volume` (a circle, a sphere, a cylinder high enough); all radii share the draws.

    Raises `ValueError` for radii that are not positive, or a manifold without a volume.
    """
    if not hasattr(manifold, "volume"):
        raise ValueError(f"{type(manifold).__name__} has no known volume to take a share of")
    t = np.array([positive(radius, "radius") for radius in np.atleast_1d(np.asarray(radii, dtype=np.float64))])
    distance = np.sort(np.linalg.norm(manifold.sample(draws, seed) - manifold.point, axis=1))
    share = np.searchsorted(distance, t, side="right") / draws
    return manifold.volume * share, manifold.volume * np.sqrt(share * (1 - share) / draws)


def normal_variance_share(second_form: ArrayLike, scale: float) -> float:
    """Normal over tangent variance of x = (u, ½ II(u, u)) for Gaussian u of standard deviation σ: σ²‖II‖²/(2m).

    Var(½ II(u, u)) = ½σ⁴‖II‖² over tr Cov(u) = mσ²; in one dimension κ²σ²/2. `second_form` as principal curvatures,
    shape (m,).

    Raises `ValueError` for another shape, values that are not finite or a scale that is not positive.
    """
    kappa = np.asarray(second_form, dtype=np.float64)
    if kappa.ndim != 1 or not len(kappa) or not np.isfinite(kappa).all():
        raise ValueError("second_form must be finite principal curvatures of shape (m,)")
    return float(positive(scale, "scale") ** 2 * (kappa**2).sum() / (2 * len(kappa)))


def split_variance(points: ArrayLike, tangent: ArrayLike) -> tuple[float, float]:
    """Tangent and normal variance of points (n, d): traces of their covariance in and outside a subspace.

    `tangent` (m, d) has orthonormal rows. The covariance is centred, n in the denominator.

    Raises `ValueError` for shapes that do not fit, values that are not finite, or rows that are not orthonormal.
    """
    x, q = np.asarray(points, dtype=np.float64), np.asarray(tangent, dtype=np.float64)
    if x.ndim != 2 or q.ndim != 2 or x.shape[1] != q.shape[1]:
        raise ValueError(f"points {x.shape} and tangent {q.shape} must be (n, d) and (m, d)")
    if not np.isfinite(x).all():
        raise ValueError("points holds values that are not finite")
    if not np.allclose(q @ q.T, np.eye(len(q)), atol=1e-6):
        raise ValueError("the rows of tangent are not orthonormal")
    centred = x - x.mean(0)
    along = centred @ q.T
    inside = float((along**2).sum() / len(x))
    # From the residuals, not as total minus inside: at small σ the difference would be rounding.
    return inside, float(((centred - along @ q) ** 2).sum() / len(x))


def _cut(cut: float) -> float:
    if not cut > 0:
        raise ValueError(f"cut is {cut}; it must be positive, or infinite for none")
    return float(cut)


def _check_support(manifold: Manifold, density: RadialDensity, direction: ArrayLike | None) -> None:
    largest = manifold.largest_chord(direction)
    if density.support > largest * (1 + 1e-12):
        raise ValueError(
            f"the {density.name} density reaches the chord {density.support:.6g}, beyond the manifold's reach "
            f"{largest:.6g}: cut it"
        )
