"""Matching: which concept of one set is which of another, and how well they agree beyond chance.

Concepts are rows of a matrix of shape (k, d): directions in the same d-dimensional space. Two sets are compared one to
one: concepts are paired so that the sum of `|correlations|` is as large as it can be. The sign is ignored, because a
direction and its opposite span the same line.

Choosing the best pairs out of k² makes even unrelated sets agree: 50 concepts in d dimensions reach about 2.3/√d on
average. Looking at the best of the pairs raises that further. So a matched correlation says something only beside
`rotated_baseline`, which puts randomly rotated concepts through the same matching and the same selection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Matching", "RotatedBaseline", "absolute_correlations", "match", "matched_pairs", "rotated_baseline"]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Matching:
    """Pairs of concepts, best first, and three summaries of how well they agree.

    `first` and `second` (shape (m,), m the smaller number of concepts) index the two sets, `correlations` are the
    `|correlations|` of the pairs in decreasing order. `mean` is their average over all pairs, `top` over the best ones
    (ten, or as many as there are), and `above_gap` over the `gap_count` pairs above the spectral gap, the largest drop
    between successive values. Among unrelated sets that drop may be anywhere, often below all pairs but one or above
    all but one, so `above_gap` has the widest null of the three.
    """

    first: Indices
    second: Indices
    correlations: Floats
    mean: float
    top: float
    above_gap: float
    gap_count: int


@dataclass(frozen=True)
class RotatedBaseline:
    """The three summaries of a `Matching` for randomly rotated concepts: arrays of shape (draws,)."""

    mean: Floats
    top: Floats
    above_gap: Floats


def absolute_correlations(a: ArrayLike, b: ArrayLike) -> Floats:
    """Return `|Pearson|` between the rows of `a` (k_a, d) and those of `b` (k_b, d), shape (k_a, k_b).

    The correlation runs over the d coordinates. A constant row, such as the zero row of a dead component, varies with
    nothing: its correlations are 0 by definition.

    Raises `ValueError` for values that are not finite, arrays that are not two-dimensional or differ in d, and d < 2.
    """
    first, second = _concepts(a, "a"), _concepts(b, "b")
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"a lives in R^{first.shape[1]} and b in R^{second.shape[1]}; concepts need the same space")
    return np.minimum(np.abs(_standardised(first) @ _standardised(second).T), 1.0)


def matched_pairs(similarities: Floats) -> tuple[Indices, Indices, Floats]:
    """Return the one-to-one pairs (rows, columns, values) with the largest sum of `similarities`, best pair first."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(similarities, maximize=True)
    values = similarities[rows, columns]
    order = np.argsort(-values, kind="stable")
    return rows[order], columns[order], values[order]


def match(a: ArrayLike, b: ArrayLike, top: int = 10) -> Matching:
    """Match the concepts `a` (k_a, d) with `b` (k_b, d) one to one on `|Pearson|` (the Hungarian method).

    With different numbers of concepts the surplus stays unmatched. Raises `ValueError` as `absolute_correlations` does,
    and for `top` below 1.
    """
    if top < 1:
        raise ValueError(f"top is {top}; it must be at least 1")
    first, second, values = matched_pairs(absolute_correlations(a, b))
    drops = values[:-1] - values[1:]
    gap = int(drops.argmax()) + 1 if len(drops) else 1
    return Matching(
        first, second, values, float(values.mean()), float(values[:top].mean()), float(values[:gap].mean()), gap
    )


def rotated_baseline(a: ArrayLike, b: ArrayLike, draws: int, seed: int, top: int = 10) -> RotatedBaseline:
    """Match `a` (k_a, d) with randomly rotated copies of `b` (k_b, d), `draws` times.

    A rotation drawn uniformly from the orthogonal group (Haar measure) keeps all lengths and angles among the concepts
    of `b`, so the method that found them leaves its mark, and only their relation to `a` is lost. The rotation is not
    formed: b = LV with orthonormal rows V (k_b, d), and V turns into a uniformly random frame, in O(k_b²d) a draw.

    Raises `ValueError` as `match` does, and for fewer than one draw.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws}; at least 1 is needed")
    concepts = _concepts(b, "b")
    generator = np.random.default_rng(seed)
    lower = np.asarray(np.linalg.qr(concepts.T, mode="r")).T
    results = []
    for _ in range(draws):
        frame, triangle = np.linalg.qr(generator.standard_normal((concepts.shape[1], lower.shape[1])))
        # LAPACK's sign convention is not uniform; with a positive diagonal the factor is Haar distributed (Mezzadri
        # 2007).
        frame *= np.sign(np.diagonal(triangle))
        results.append(match(a, lower @ frame.T, top))
    return RotatedBaseline(
        np.array([r.mean for r in results]),
        np.array([r.top for r in results]),
        np.array([r.above_gap for r in results]),
    )


def _standardised(rows: Floats) -> Floats:
    scaled = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(float).tiny)
    centred = scaled - scaled.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    # The mean of equal numbers is off by an ulp; what is left of a constant row must not be blown up to length 1.
    constant = lengths <= 1e-14 * np.sqrt(rows.shape[1])
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, lengths))


def _concepts(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise ValueError(f"{name} has shape {array.shape}; it must be (k, d), one concept a row, with k ≥ 1 and d ≥ 2")
    bad = ~np.isfinite(array)
    if bad.any():
        i, j = (int(v) for v in np.argwhere(bad)[0])
        raise ValueError(f"{name}[{i}, {j}] is {array[i, j]}; all values must be finite ({int(bad.sum())} are not)")
    return array
