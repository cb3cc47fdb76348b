"""How fast a linear map learns the tangent and the normal directions of a patch: known solutions and simulations.

One layer, y = Wx, and two, y = UWx, with the loss ½E‖y − Mx‖² of a linear teacher M. Under gradient flow each
eigenvector of C = E[x xᵀ] is learned at the speed of its eigenvalue: σ²/m for tangent, O(κ²σ⁴) for normal directions.
With two layers the speed also grows with what has been learned (Saxe, McClelland & Ganguli 2014), which is the feedback
loop. Time τ is the learning rate times the number of steps. NumPy in float64; every draw takes a seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anisotropy.geometry.patches import Law, Patch, sample

__all__ = [
    "Course",
    "balanced_start",
    "crossover_time",
    "descend",
    "linear_flow",
    "logistic_strength",
    "peak_lead",
    "tangent_share",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """A recorded training run: `times` (k,), `weights` W (k, p, d), and of two layers the `readouts` U (k, q, p)."""

    times: Array
    weights: Array
    readouts: Array | None = None

    @property
    def maps(self) -> Array:
        """The map from x to y at each time, W or UW, shape (k, q, d)."""
        return self.weights if self.readouts is None else self.readouts @ self.weights


def linear_flow(moment: ArrayLike, cross: ArrayLike, start: ArrayLike, times: ArrayLike) -> Array:
    """Solve dW/dτ = B − WC exactly: the gradient flow of ½E‖Wx − y*‖².

    For an eigenvector q of C with eigenvalue λ, W(τ)q = W(0)q e^{−λτ} + Bq(1 − e^{−λτ})/λ (τBq at λ = 0).

    Args:
        moment: C = E[x xᵀ], shape (d, d), symmetric, no negative eigenvalue.
        cross: B = E[y* xᵀ], shape (p, d).
        start: W(0), shape (p, d).
        times: shape (k,), not negative.

    Returns:
        W at each time, shape (k, p, d).

    Raises:
        ValueError: shapes that do not fit, a C that is not symmetric or has a negative eigenvalue, negative times.
    """
    a, b, w, t = (np.asarray(x, dtype=np.float64) for x in (moment, cross, start, times))
    if a.ndim != 2 or a.shape[0] != a.shape[1] or b.ndim != 2 or b.shape[1] != len(a) or w.shape != b.shape:
        raise ValueError(f"moment {a.shape}, cross {b.shape} and start {w.shape} must be (d, d), (p, d) and (p, d)")
    if t.ndim != 1 or not (t >= 0).all():
        raise ValueError("times must be one-dimensional and not negative")
    if not np.allclose(a, a.T, rtol=1e-10, atol=0):
        raise ValueError("moment must be symmetric")
    values, vectors = np.linalg.eigh(a)
    if values[0] < -1e-10 * max(abs(values[-1]), 1e-300):
        raise ValueError(f"moment has the eigenvalue {values[0]:.3g}; a second moment has none below 0")
    values = np.maximum(values, 0)
    exponent = np.multiply.outer(t, values)
    safe = np.where(values > 0, values, 1)
    gained = np.where(values > 0, -np.expm1(-exponent) / safe, t[:, None])
    modes = (w @ vectors) * np.exp(-exponent)[:, None] + (b @ vectors) * gained[:, None]
    return modes @ vectors.T


def descend(
    patch: Patch,
    law: Law,
    scale: float,
    teacher: ArrayLike,
    start: ArrayLike,
    readout: ArrayLike | None = None,
    *,
    rate: float,
    steps: int,
    batch: int,
    seed: int,
    every: int = 1,
    centred: bool = True,
) -> Course:
    """Train on fresh samples of a patch by stochastic gradient descent.

    Args:
        patch: where x lies.
        law: how its tangent coordinates are drawn.
        scale: their σ.
        teacher: M, shape (q, d).
        start: W at the beginning, shape (p, d); without a readout p = q.
        readout: U at the beginning, shape (q, p), for two layers.
        rate: learning rate.
        steps: number of steps.
        batch: samples a step.
        seed: of the samples.
        every: record each ``every``-th step, and the start.
        centred: subtract E[x], which is known, from x.

    Raises:
        ValueError: shapes that do not fit, numbers that are not positive, or weights that grow without bound.
    """
    m, w = np.asarray(teacher, dtype=np.float64), np.array(start, dtype=np.float64)
    v = None if readout is None else np.array(readout, dtype=np.float64)
    d = patch.dimension
    columns_fit = m.ndim == w.ndim == 2 and m.shape[1] == w.shape[1] == d
    if not columns_fit or (m.shape != w.shape if v is None else v.shape != (m.shape[0], w.shape[0])):
        layers = "(q, p) or, without readout, p = q" if v is None else f"(q, p), not {v.shape}"
        raise ValueError(f"teacher {m.shape} must be (q, {d}), start {w.shape} (p, {d}), readout {layers}")
    if not (rate > 0 and steps > 0 and batch > 0 and every > 0):
        raise ValueError("rate, steps, batch and every must be positive")
    generator = np.random.default_rng(seed)
    offset = patch.mean(scale) if centred else np.zeros(d)
    kept_w, kept_v = [w.copy()], [] if v is None else [v.copy()]
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, steps + 1):
            x = patch.points(sample(law, batch, patch.tangent, scale, generator)) - offset
            hidden = x @ w.T
            error = x @ m.T - (hidden if v is None else hidden @ v.T)
            if v is None:
                w += (rate / batch) * error.T @ x
            else:
                change = (rate / batch) * error.T @ hidden
                w += (rate / batch) * (error @ v).T @ x
                v += change
            if step % every == 0:
                kept_w.append(w.copy())
                if v is not None:
                    kept_v.append(v.copy())
    if not np.isfinite(w).all() or np.abs(w).max() > 1e6:
        raise ValueError(f"the weights grew without bound; a rate of {rate} is too large here")
    times = np.arange(len(kept_w), dtype=np.float64) * (rate * every)
    return Course(times, np.stack(kept_w), np.stack(kept_v) if kept_v else None)


def balanced_start(width: int, dimension: int, strength: float, seed: int) -> tuple[Array, Array]:
    """Two layers that begin as UW = a₀·I with UᵀU = WWᵀ: W = √a₀ R, U = √a₀ Rᵀ, R with orthonormal columns.

    Args:
        width: hidden units p, at least d.
        dimension: d.
        strength: a₀ > 0.
        seed: of R.

    Returns:
        W of shape (p, d) and U of shape (d, p).

    Raises:
        ValueError: fewer hidden units than dimensions, a strength that is not positive.
    """
    if not width >= dimension >= 1:
        raise ValueError(f"width is {width}; it must be at least the dimension, {dimension}, and that at least 1")
    if not strength > 0:
        raise ValueError(f"strength is {strength}; it must be positive, because 0 is where two layers stay")
    frame = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, dimension)))[0]
    return np.sqrt(strength) * frame, np.sqrt(strength) * frame.T


def logistic_strength(start: float, variance: float, times: ArrayLike) -> Array:
    """Strength a(τ) of one mode of two balanced layers whose teacher has strength 1: da/dτ = 2λa(1 − a).

    a(τ) = 1/(1 + (1/a₀ − 1)e^{−2λτ}) for `start` a₀ in (0, 1) and `variance` λ > 0 of the input along the mode.

    Raises:
        ValueError: a start outside (0, 1), a variance that is not positive.
    """
    _check_mode(start, variance)
    return 1 / (1 + (1 / start - 1) * np.exp(-2 * variance * np.asarray(times, dtype=np.float64)))


def peak_lead(start: float, tangent: float, normal: float) -> float:
    """The lead a_T/a_N of two layers at the moment when the tangent mode is half learned: (1 + Q^{1 − ρ})/2.

    Q = 1/a₀ − 1 and ρ = λ_N/λ_T for input variances `tangent` λ_T and `normal` λ_N. It has no limit as a₀ → 0, while
    one layer that starts at 0 never leads by more than 1/ρ.

    Raises:
        ValueError: as :func:`logistic_strength`.
    """
    _check_mode(start, tangent)
    _check_mode(start, normal)
    return (1 + (1 / start - 1) ** (1 - normal / tangent)) / 2


def crossover_time(tangent: float, normal: float) -> float:
    """When the normal part of one layer's gradient overtakes the tangent one: ln(λ_T/λ_N)/(λ_T − λ_N).

    For a start at 0 and a teacher of equal strength on both, whose gradients are λe^{−λτ}.

    Raises:
        ValueError: variances that are not positive, or a normal one that is not the smaller.
    """
    if not 0 < normal < tangent:
        raise ValueError(f"tangent is {tangent} and normal {normal}; 0 < normal < tangent is needed")
    return float(np.log(tangent / normal) / (tangent - normal))


def tangent_share(weights: ArrayLike, covariance: ArrayLike, tangent: int) -> Array:
    """Share of the variance of h = Wx that comes from the tangent coordinates of x: tr(W_T C_TT W_Tᵀ)/tr(WCWᵀ).

    Args:
        weights: W, shape (…, p, d).
        covariance: C, shape (d, d); tangent and normal coordinates uncorrelated.
        tangent: how many coordinates come first.

    Raises:
        ValueError: shapes that do not fit, correlated blocks, activations without variance.
    """
    w, a = np.asarray(weights, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or w.shape[-1] != len(a) or not 0 < tangent < len(a):
        raise ValueError(f"weights {w.shape}, covariance {a.shape} and tangent {tangent} do not fit together")
    if np.abs(a[:tangent, tangent:]).max() > 1e-10 * np.abs(a).max():
        raise ValueError("tangent and normal coordinates are correlated; their variances do not add up")
    parts = np.einsum("...pi,ij,...pj->...", w[..., :tangent], a[:tangent, :tangent], w[..., :tangent])
    whole = np.einsum("...pi,ij,...pj->...", w, a, w)
    if not (whole > 0).all():
        raise ValueError("the activations do not vary")
    return parts / whole


def _check_mode(start: float, variance: float) -> None:
    if not 0 < start < 1:
        raise ValueError(f"start is {start}; it must lie between 0 and 1, where the teacher is")
    if not variance > 0:
        raise ValueError(f"variance is {variance}; it must be positive")
