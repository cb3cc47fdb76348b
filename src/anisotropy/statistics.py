"""Intervals, tests and nulls: how sure a number is, and what it would be if nothing were there.

Tokens of one document are not independent, so intervals for activations and gradients resample whole *blocks* of
documents (`bootstrap_blocks`) and comparisons count blocks (`sign_test`). Associations between two properties of tokens
come with an interval (`correlation`), and with the distribution they would have if one property were dealt out at
random (`permutation_null`). Every random draw takes an explicit seed; NumPy's global random state is neither read nor
changed. Arrays in, numbers out; SciPy is imported on first use, because a command line that only checks its arguments
should not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import atanh, isfinite, nan, sqrt, tanh
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Bootstrap",
    "Correlation",
    "PermutationNull",
    "SignTest",
    "block_multiplicities",
    "bootstrap_blocks",
    "correlation",
    "pearson",
    "permutation_null",
    "sign_test",
]

CorrelationKind = Literal["pearson", "spearman"]


@dataclass(frozen=True)
class Correlation:
    """A correlation with its confidence interval.

    `estimate`, `low` and `high` lie in [−1, 1] (all three NaN when one of the inputs is constant, for which a
    correlation is not defined), `n` is the number of pairs and `kind` is `"pearson"` or `"spearman"`.
    """

    estimate: float
    low: float
    high: float
    n: int
    kind: CorrelationKind


@dataclass(frozen=True)
class PermutationNull:
    """A statistic beside its values on permuted data.

    `estimate` is the statistic of the data as given, `draws` its values on the permutations (shape `(draws,)`), `low`
    and `high` the central 95 % of those values, and `p_value` the two-sided Monte Carlo p-value.
    """

    estimate: float
    draws: NDArray[np.float64]
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class Bootstrap:
    """A statistic of blocks with its percentile interval.

    `estimate` is the statistic of all blocks as given, `low` and `high` the ends of the interval, `draws` the values on
    the resamples (shape `(draws,)`) and `blocks` the number of blocks behind it.
    """

    estimate: float
    low: float
    high: float
    draws: NDArray[np.float64]
    blocks: int


@dataclass(frozen=True)
class SignTest:
    """The result of a one-sided sign test: `positive` of `n` non-zero differences, and the `ties` left out."""

    p_value: float
    positive: int
    n: int
    ties: int


def correlation(x: ArrayLike, y: ArrayLike, kind: CorrelationKind = "pearson", confidence: float = 0.95) -> Correlation:
    r"""Correlate the pairs (x_i, y_i) and put an interval around the result.

    `x` and `y` are sequences of equal length n ≥ 4. Both kinds of interval are symmetric in Fisher's z = artanh(r),

    .. math:: \tanh\bigl(\operatorname{artanh}(r) \pm z_c \cdot \mathrm{SE}\bigr),

    with z_c the normal quantile of `confidence`. For Pearson's r, SE = 1/√(n − 3) (Fisher 1921), exact to leading
    order for bivariate normal pairs. For Spearman's ρ that SE is too small for strong associations, so it is replaced
    by √((1 + ρ²/2)/(n − 3)) (Bonett & Wright, *Psychometrika* 65, 2000). At ±1 the interval shrinks to that point.

    A constant `x` or `y` has no correlation with anything: estimate and interval are then NaN.

    Raises `ValueError` for an unknown kind, a confidence outside (0, 1), inputs that are not one-dimensional, differ in
    length, hold fewer than 4 pairs (the standard error needs n > 3) or values that are not finite.
    """
    if kind not in ("pearson", "spearman"):
        raise ValueError(f"kind is {kind!r}; it must be 'pearson' or 'spearman'")
    _check_confidence(confidence)
    first, second = _finite_vector(x, "x"), _finite_vector(y, "y")
    if len(first) != len(second):
        raise ValueError(f"x has {len(first)} values and y has {len(second)}; a correlation needs pairs")
    n = len(first)
    if n < 4:
        raise ValueError(f"got {n} pairs; an interval for a correlation needs at least 4")
    if np.all(first == first[0]) or np.all(second == second[0]):
        return Correlation(nan, nan, nan, n, kind)

    from scipy import stats

    if kind == "pearson":
        estimate = float(stats.pearsonr(first, second).statistic)
        standard_error = 1 / sqrt(n - 3)
    else:
        estimate = float(stats.spearmanr(first, second).statistic)
        standard_error = sqrt((1 + estimate**2 / 2) / (n - 3))
    # Rounding leaves perfect association at 1 − 2e-16 as often as at 1, where artanh would turn noise into a width.
    if 1 - abs(estimate) < 4 * np.finfo(float).eps:
        estimate = float(np.sign(estimate))
        return Correlation(estimate, estimate, estimate, n, kind)
    half_width = float(stats.norm.ppf((1 + confidence) / 2)) * standard_error
    centre = atanh(estimate)
    return Correlation(estimate, tanh(centre - half_width), tanh(centre + half_width), n, kind)


def pearson(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return Pearson's r of two vectors of equal length, without checks: the statistic of a thousand shuffles.

    A constant vector gives NaN; `correlation` checks its input and adds an interval.
    """
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def permutation_null(
    statistic: Callable[[NDArray[Any], NDArray[Any]], float], x: ArrayLike, y: ArrayLike, draws: int, seed: int
) -> PermutationNull:
    r"""Compare `statistic(x, y)` with its values when `y` is shuffled against `x`.

    `x` and `y` hold one entry (a number or a row) per unit along their first axis; `statistic` takes both arrays and
    returns one number. Under the hypothesis that the pairing carries no information every shuffle is as likely as the
    one observed, so with B = `draws` shuffles

    .. math::
        p = \min\Bigl(1, \frac{2}{B + 1}
            \min\bigl(1 + \#\{\text{draw} \ge \text{estimate}\},\ 1 + \#\{\text{draw} \le \text{estimate}\}\bigr)\Bigr),

    twice the smaller of the two one-sided Monte Carlo p-values. Counting the observed order as one of the permutations
    (the + 1) keeps the test valid for any B (Phipson & Smyth 2010), and doubling keeps it valid for statistics whose
    null is skewed. The smallest p-value is therefore 2/(B + 1). Draws equal to the estimate up to rounding count as
    ties.

    Raises `ValueError` if the lengths differ, fewer than 2 units or 1 draw are asked for, or the statistic is not one
    finite number on the data or on a shuffle.
    """
    first, second = np.asarray(x), np.asarray(y)
    if first.ndim == 0 or second.ndim == 0 or len(first) != len(second):
        raise ValueError(f"x has shape {first.shape} and y has shape {second.shape}; the first axes must agree")
    if len(first) < 2:
        raise ValueError(f"got {len(first)} unit(s); there is nothing to permute with fewer than 2")
    _check_draws(draws)
    generator = np.random.default_rng(seed)
    estimate = _one_number(statistic(first, second), "on the data")
    values = np.empty(draws)
    for i in range(draws):
        values[i] = _one_number(statistic(first, generator.permutation(second)), f"on permutation {i}")
    # Summing in another order moves a statistic by a few ulps; without the slack exact ties would count on one side.
    slack = 100 * np.finfo(float).eps * max(abs(estimate), float(np.abs(values).max()))
    as_high = 1 + int(np.count_nonzero(values >= estimate - slack))
    as_low = 1 + int(np.count_nonzero(values <= estimate + slack))
    low, high = np.quantile(values, [0.025, 0.975])
    return PermutationNull(estimate, values, float(low), float(high), min(1.0, 2 * min(as_high, as_low) / (draws + 1)))


def bootstrap_blocks(
    blocks: ArrayLike | int,
    statistic: Callable[[NDArray[Any]], float] | None = None,
    *,
    seed: int,
    draws: int = 2000,
    confidence: float = 0.95,
) -> Bootstrap:
    """Put a percentile interval around a statistic by resampling whole blocks with replacement.

    There are two ways to call it.

    - `blocks` is an array with one entry per block along its first axis, shape `(blocks, …)`. Each resample is an array
      of the same shape whose entries are drawn with replacement, and `statistic` maps it to one number; without a
      `statistic` it is the mean (for blocks that hold one number each).
    - `blocks` is the *number* of blocks. Each resample is then an index array of shape `(blocks,)`, and `statistic`
      maps indices to one number. Use it when a block is more than an array, or when two quantities of the same blocks
      are compared: resampling both with the same indices keeps the pairing.

    The interval runs between the (1 ∓ confidence)/2 quantiles of `draws` resamples (Efron 1979). For a mean of B
    blocks the bootstrap's standard deviation is s/√B · √((B − 1)/B), so with few blocks the interval is a little
    narrow: by 2.5 % at B = 20.

    Raises `ValueError` for fewer than 2 blocks, values that are not finite, a missing statistic where a mean is not one
    number, or a statistic that is not one finite number on some resample.
    """
    _check_draws(draws)
    _check_confidence(confidence)
    if isinstance(blocks, (int, np.integer)) and not isinstance(blocks, bool):
        values = np.arange(blocks)
        if statistic is None:
            raise ValueError(f"blocks is the number {blocks}, so a statistic of block indices is needed")
    else:
        values = np.asarray(blocks)
        if values.ndim == 0:
            raise ValueError(f"blocks is {blocks!r}; it must be an array of blocks or their number")
        _check_finite(values, "blocks")
        if statistic is None and values.ndim > 1:
            raise ValueError(f"blocks has shape {values.shape}, whose mean is not one number; pass a statistic")
    if len(values) < 2:
        raise ValueError(f"got {len(values)} block(s); resampling needs at least 2")
    function = _mean if statistic is None else statistic
    generator = np.random.default_rng(seed)
    estimate = _one_number(function(values), "on all blocks")
    resampled = np.empty(draws)
    for i in range(draws):
        chosen = generator.integers(len(values), size=len(values))
        resampled[i] = _one_number(function(values[chosen]), f"on resample {i}")
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Bootstrap(estimate, float(low), float(high), resampled, len(values))


def block_multiplicities(blocks: int, draws: int, seed: int) -> NDArray[np.int64]:
    """Draw how often each block occurs in each resample of blocks: the bootstrap for statistics of sums over blocks.

    Returns an array of shape `(draws + 1, blocks)` whose rows sum to `blocks`; the first row is all ones, the sample
    itself. Statistics computed with the same rows are paired.

    Raises `ValueError` for fewer than 2 blocks or 1 draw.
    """
    if blocks < 2:
        raise ValueError(f"got {blocks} block(s); resampling needs at least 2")
    _check_draws(draws)
    drawn = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=draws)
    return np.vstack([np.ones((1, blocks), dtype=np.int64), drawn])


def sign_test(differences: ArrayLike) -> SignTest:
    """Test whether differences tend to be positive, by counting signs.

    `differences` holds one paired difference per block. Zeros say nothing about the sign, so they are dropped and
    counted in `ties`; of the n that remain, the number of positive ones is Binomial(n, ½) if positive and negative are
    equally likely, and

        p = P(Binomial(n, ½) ≥ positive),

    exactly. With n blocks p cannot go below 2⁻ⁿ: five blocks are the fewest that can reach 0.05. If every difference is
    zero there is no evidence, and p is 1. To test for negative differences pass `-differences`.

    Raises `ValueError` if there is no difference at all or one of them is not finite.
    """
    values = _finite_vector(differences, "differences")
    if not len(values):
        raise ValueError("differences is empty; a sign test needs at least one")
    positive, ties = int(np.count_nonzero(values > 0)), int(np.count_nonzero(values == 0))
    n = len(values) - ties
    if n == 0:
        return SignTest(1.0, 0, 0, ties)

    from scipy import stats

    return SignTest(float(stats.binomtest(positive, n, 0.5, alternative="greater").pvalue), positive, n, ties)


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values, dtype=np.float64))


def _finite_vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} has shape {vector.shape}; it must be one-dimensional")
    _check_finite(vector, name)
    return vector


def _check_finite(values: NDArray[Any], name: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        at = where[0] if len(where) == 1 else where
        raise ValueError(f"{name}[{at}] is {values[where]}; all values must be finite ({int(bad.sum())} are not)")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie strictly between 0 and 1, such as 0.95")


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise ValueError(f"draws is {draws}; at least 1 is needed")


def _one_number(value: Any, where: str) -> float:
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(f"the statistic returned shape {array.shape} {where}; it must return one number")
    number = float(array.reshape(()))
    if not isfinite(number):
        raise ValueError(f"the statistic is {number} {where}; it must be finite")
    return number
