"""Decompositions: principal components, Semi-NMF and independent components, behind one small interface.

All three write rows A (n × d) as codes times components, A ≈ 1m + ZD with Z (n × k) and D (k × d). They differ in what
they ask of them: PCA wants orthogonal directions of largest variance, Semi-NMF non-negative codes, ICA independent
codes. PCA and ICA take the mean row m away first; Semi-NMF does not (m = 0).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anisotropy.concepts.semi_nmf import SemiNMF

__all__ = ["METHODS", "Decomposition", "Method", "decompose"]

Method = Literal["pca", "semi_nmf", "ica"]
METHODS: tuple[Method, ...] = get_args(Method)
_BLOCK = 4096


@dataclass(frozen=True)
class Decomposition:
    """Concepts of a matrix, strongest first.

    `components` (k, d) have rows of length 1, `codes` (n, k) carry the scale, `mean` (d,) is what was taken away first.
    `strength` (k,) ranks them: for PCA and ICA the share of the total variance that the component explains, for
    Semi-NMF the share of the code mass. `relative_loss` is ‖A − 1m − ZD‖²/‖A‖², the same yardstick for all.
    `iterations` is the number the method took (1 for PCA), and `converged` tells whether it stopped by itself.
    """

    method: Method
    components: NDArray[Any]
    codes: NDArray[Any]
    mean: NDArray[Any]
    strength: NDArray[np.float64]
    relative_loss: float
    iterations: int
    converged: bool


def decompose(
    x: ArrayLike,
    method: Method,
    n_components: int,
    seed: int = 0,
    tol: float = 1e-4,
    max_iter: int = 500,
) -> Decomposition:
    """Find `n_components` concepts of the rows of `x`, shape (n, d), by the given method.

    - `"pca"`: the leading eigenvectors of the covariance; deterministic, `seed`, `tol` and `max_iter` are not used.
    - `"semi_nmf"`: `SemiNMF`, with `tol` on the relative decrease of the loss.
    - `"ica"`: FastICA (Hyvärinen & Oja 2000; scikit-learn's, parallel, whitened to unit variance) on the leading
      principal components, with `tol` on the change of the unmixing matrix. Its components are the columns of the
      *mixing* matrix, the directions along which the sources enter the data. They are in general not orthogonal, so
      their explained variances need not add up.

    A method that reaches `max_iter` is reported by `converged`, without a warning; so is ICA where it settles in the
    very last iteration.

    Raises `ValueError` for an unknown method, and for values that are not finite, fewer than 2 rows, or more components
    than the data have directions (k ≤ min(n, d) for Semi-NMF, k ≤ the rank of the centred data for PCA and ICA).
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}")
    rows = np.asarray(x)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"x has shape {rows.shape}; it must be (n, d) with at least 2 rows")
    if not np.isfinite(rows).all():
        raise ValueError(f"x holds {int((~np.isfinite(rows)).sum())} values that are not finite")
    if method == "semi_nmf":
        return _semi_nmf(rows, n_components, seed, tol, max_iter)
    mean = rows.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(_covariance(rows, mean))
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = int((values > values[0] * len(values) * np.finfo(np.float64).eps).sum()) if values[0] > 0 else 0
    if not 1 <= n_components <= rank:
        raise ValueError(
            f"n_components is {n_components}; the centred x has {rank} direction(s), so it must be 1 … {rank}"
        )
    total = float(values.clip(min=0).sum())
    if method == "pca":
        components = _fix_signs(vectors[:, :n_components].T)
        codes = _coordinates(rows, mean, components)
        strength = values[:n_components] / total
        return _finish("pca", rows, components, codes, mean, strength, 1, True)
    return _ica(rows, mean, values, vectors, n_components, total, seed, tol, max_iter)


def _semi_nmf(rows: NDArray[Any], k: int, seed: int, tol: float, max_iter: int) -> Decomposition:
    from sklearn.exceptions import ConvergenceWarning

    model = SemiNMF(k, tol=tol, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        codes = model.fit_transform(rows)
    strength = model.code_mass_ / model.code_mass_.sum()
    mean = np.zeros(rows.shape[1])
    return _finish("semi_nmf", rows, model.components_, codes, mean, strength, model.n_iter_, model.converged_)


def _ica(
    rows: NDArray[Any],
    mean: NDArray[np.float64],
    values: NDArray[np.float64],
    vectors: NDArray[np.float64],
    k: int,
    total: float,
    seed: int,
    tol: float,
    max_iter: int,
) -> Decomposition:
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    directions = _fix_signs(vectors[:, :k].T)
    spread = np.sqrt(values[:k])
    white = _coordinates(rows, mean, directions) / spread
    model = FastICA(whiten=False, fun=_log_cosh, random_state=seed, tol=tol, max_iter=max_iter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sources = model.fit_transform(white)
    # Not from whether it warned: warnings are global, and decompositions run in several threads.
    converged = model.n_iter_ < max_iter
    # Whitened axes are uncorrelated with unit variance, so the unmixing matrix is orthogonal and its inverse its
    # transpose.
    mixing = (model.components_ * spread) @ directions
    lengths = np.linalg.norm(mixing, axis=1)
    strength = lengths**2 / total
    order = np.argsort(-strength, kind="stable")
    components, codes = mixing[order] / lengths[order, None], sources[:, order] * lengths[order]
    return _finish("ica", rows, components, codes, mean, strength[order], model.n_iter_, converged)


def _log_cosh(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """FastICA's default contrast: g = tanh and the row means of g'.

    scikit-learn's own visits one component at a time in Python, which is slower and keeps other threads waiting.
    """
    g = np.tanh(x)
    return g, 1 - np.einsum("ij,ij->i", g, g) / x.shape[1]


def _finish(
    method: Method,
    rows: NDArray[Any],
    components: NDArray[Any],
    codes: NDArray[Any],
    mean: NDArray[np.float64],
    strength: NDArray[np.float64],
    iterations: int,
    converged: bool,
) -> Decomposition:
    error = energy = 0.0
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK].astype(np.float64)
        residual = block - mean - codes[start : start + _BLOCK] @ components.astype(np.float64)
        error += float((residual**2).sum())
        energy += float((block**2).sum())
    dtype = rows.dtype
    return Decomposition(
        method,
        components.astype(dtype),
        codes.astype(dtype),
        mean.astype(dtype),
        strength.astype(np.float64),
        error / energy,
        int(iterations),
        bool(converged),
    )


def _covariance(rows: NDArray[Any], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    d = rows.shape[1]
    scatter = np.zeros((d, d))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK] - mean
        scatter += block.T @ block
    return scatter / (len(rows) - 1)


def _coordinates(rows: NDArray[Any], mean: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (rows − mean)·directionsᵀ in float64, without a float64 copy of all rows."""
    starts = range(0, len(rows), _BLOCK)
    return np.concatenate([(rows[start : start + _BLOCK] - mean) @ directions.T for start in starts])


def _fix_signs(components: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(components).argmax(axis=1)
    return components * np.sign(components[np.arange(len(components)), largest])[:, None]
