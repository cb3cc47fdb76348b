"""Forest Cover Type: the measures of this book on data that are not language (Figure 5).

A row is a patch of forest with 54 features and one of seven cover types; how common a type is stands in for how
frequent a token is. What is measured does not know that: any table of numbers with classes goes the same way.

Each number stands beside what it would be if nothing were there, by one of two nulls. *Permuted columns* shuffle every
feature on its own: each keeps its values, and nothing relates them. *Permuted labels* deal the rows out to classes of
the same sizes at random: the classes keep their frequencies, and nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from anisotropy.concepts import METHODS, Decomposition, decompose, stability
from anisotropy.errors import UserError
from anisotropy.geometry import effective_rank, isoscore
from anisotropy.geometry.moments import Moments
from anisotropy.statistics import permutation_null
from anisotropy.studies.covertype_data import SCALINGS, Dataset, Floats, Scaling

MEASURES = ("spread", "isoscore", "effective_rank")


def permuted(rows: Floats, random: np.random.Generator) -> Floats:
    """Every column of (n, d) shuffled on its own: the same values per feature, no relation between features."""
    return random.permuted(rows, axis=0)


def covariance(rows: Floats) -> torch.Tensor:
    """Covariance of (n, d) over n − 1, shape (d, d), accumulated in float64."""
    return Moments.of(torch.from_numpy(rows)).covariance


def measure(rows: Floats) -> dict[str, float]:
    """One number per measure of a cloud of shape (n, d).

    ``spread`` is √tr C, the root mean square distance to the centroid with n − 1 for n, in the unit of the features;
    ``isoscore`` lies in [0, 1]; ``effective_rank`` counts directions, 1 … d.
    """
    c = covariance(rows)
    return {
        "spread": float(c.trace().sqrt()),
        "isoscore": float(isoscore(c)),
        "effective_rank": effective_rank(rows).estimate,
    }


def whole(dataset: Dataset, draws: int = 99, seed: int = 0) -> pd.DataFrame:
    """IsoScore and effective rank of all rows, raw and standardised, beside permuted columns.

    Returns:
        Columns ``scaling``, ``measure``, ``value``, ``null_low``, ``null_median``, ``null_high`` (95 % of the draws),
        and ``variances_alone``: the value of uncorrelated features of the same variances, with as many rows as you
        like.
    """
    rows: list[dict[str, Any]] = []
    for scaling in SCALINGS:
        x = dataset.scaled(scaling)
        random = np.random.default_rng(seed)
        value = measure(x)
        null = pd.DataFrame([measure(permuted(x, random)) for _ in range(draws)])
        variances = x.var(0, ddof=1)
        alone = {
            "isoscore": float(isoscore(np.diag(variances))),
            "effective_rank": effective_rank(np.diag(np.sqrt(variances)), centre=False).estimate,
        }
        rows.extend(
            {"scaling": scaling, "measure": name, "value": value[name]}
            | _band(null[name].to_numpy())
            | {"variances_alone": alone[name]}
            for name in ("isoscore", "effective_rank")
        )
    return pd.DataFrame(rows)


def _band(draws: NDArray[Any]) -> dict[str, float]:
    low, median, high = np.quantile(draws, [0.025, 0.5, 0.975])
    return {"null_low": float(low), "null_median": float(median), "null_high": float(high)}


@dataclass(frozen=True)
class Components:
    """What the three decompositions found, beside permuted columns.

    Attributes:
        strengths: columns ``scaling``, ``method``, ``rank`` (from 1), ``strength`` (share of variance, for Semi-NMF of
            code mass), ``null_low``, ``null_median``, ``null_high``.
        fits: columns ``scaling``, ``method``, ``iterations``, ``converged``, and with their ``…_null_low``,
            ``…_null_median`` and ``…_null_high``: ``unexplained`` (squared error over the total variance), ``overlap``
            (the largest ``|cosine|`` between two components) and ``halves`` (mean ``|cosine|`` of components matched
            between two random halves of the rows, each with its own seed).
        found: the decomposition of all rows, by scaling and method.
    """

    strengths: pd.DataFrame
    fits: pd.DataFrame
    found: Mapping[tuple[str, str], Decomposition]


def components(dataset: Dataset, k: int = 6, refits: int = 9, seed: int = 0) -> Components:
    """Principal, independent and Semi-NMF components, raw and standardised.

    Args:
        dataset: what :func:`anisotropy.studies.covertype_data.load` returned.
        k: number of components.
        refits: of each decomposition to permuted columns; the band of so few draws is their full range.
        seed: of the decompositions, halves and permutations.

    Raises:
        UserError: more components than half of the rows have directions.
    """
    strengths: list[dict[str, Any]] = []
    fits: list[dict[str, Any]] = []
    found: dict[tuple[str, str], Decomposition] = {}
    for scaling in SCALINGS:
        x = dataset.scaled(scaling)
        random = np.random.default_rng(seed)
        nulls = [permuted(x, random) for _ in range(refits)]
        for method in METHODS:
            try:
                own, halves = _fit(x, method, k, seed)
                others = [_fit(null, method, k, seed + 1 + draw) for draw, null in enumerate(nulls)]
            except ValueError as error:
                raise UserError(f"components: {error}") from None
            found[scaling, method] = own
            null_strengths = np.array([other.strength for other, _ in others])
            strengths.extend(
                {"scaling": scaling, "method": method, "rank": rank + 1, "strength": float(own.strength[rank])}
                | _range(null_strengths[:, rank], "null")
                for rank in range(k)
            )
            fits.append(
                {"scaling": scaling, "method": method, "iterations": own.iterations, "converged": own.converged}
                | {"unexplained": _unexplained(x, own), "overlap": _overlap(own), "halves": halves}
                | _range([_unexplained(n, o) for n, (o, _) in zip(nulls, others, strict=True)], "unexplained_null")
                | _range([_overlap(other) for other, _ in others], "overlap_null")
                | _range([other_halves for _, other_halves in others], "halves_null")
            )
    return Components(pd.DataFrame(strengths), pd.DataFrame(fits), found)


def _fit(x: Floats, method: Any, k: int, seed: int) -> tuple[Decomposition, float]:
    """A decomposition of all rows, and how far those of two halves agree."""
    order = np.random.default_rng(seed).permutation(len(x))
    halves = [
        decompose(x[np.sort(part)], method, k, seed=2 * seed + number).components
        for number, part in enumerate(np.array_split(order, 2))
    ]
    return decompose(x, method, k, seed=seed), stability(halves).mean


def _unexplained(x: Floats, found: Decomposition) -> float:
    variance = float(np.square(x - x.mean(0)).sum())
    return found.relative_loss * float(np.square(x).sum()) / variance


def _overlap(found: Decomposition) -> float:
    cosines = np.abs(found.components @ found.components.T)
    return float(np.triu(cosines, 1).max())


def _range(values: Any, name: str) -> dict[str, float]:
    v = np.asarray(values)
    return {f"{name}_low": float(v.min()), f"{name}_median": float(np.median(v)), f"{name}_high": float(v.max())}


@dataclass(frozen=True)
class Plane:
    """Rows and components seen in the plane of the first two principal components.

    Attributes:
        points: shape (n, 2), rows in the plane, from the mean row.
        deviations: shape (2,), standard deviations of the points along the axes.
        null_deviations: the same for permuted columns, in the plane of *their* first two principal components.
        directions: by method, shape (k, 2): components of length 1, of which the plane shows a part.
        share: share of the variance in the plane.
        null_share: the same of the permuted columns.
    """

    points: Floats
    deviations: Floats
    null_deviations: Floats
    directions: Mapping[str, Floats]
    share: float
    null_share: float


def plane(dataset: Dataset, found: Components, scaling: Scaling = "standardised", seed: int = 0) -> Plane:
    """See rows and components (what :func:`components` returned) in the plane of largest variance."""
    x = dataset.scaled(scaling)
    own = decompose(x, "pca", 2)
    other = decompose(permuted(x, np.random.default_rng(seed)), "pca", 2)
    return Plane(
        own.codes,
        own.codes.std(0, ddof=1),
        other.codes.std(0, ddof=1),
        {method: found.found[scaling, method].components @ own.components.T for method in METHODS},
        float(own.strength.sum()),
        float(other.strength.sum()),
    )


@dataclass(frozen=True)
class ClassStudy:
    """The measures of every class beside permuted labels.

    Attributes:
        labels: shape (c,), the most frequent class first.
        names: of the classes.
        counts: shape (c,), rows of each class.
        used: shape (c,), rows of each class that one measurement uses.
        total: rows of all classes, small ones included.
        left_out: classes with too few rows.
        values: shape (c, 3), in the order of ``MEASURES``.
        null: shape (draws, c, 3), the same of classes dealt out at random.
    """

    labels: NDArray[np.int64]
    names: tuple[str, ...]
    counts: NDArray[np.int64]
    used: NDArray[np.int64]
    total: int
    left_out: tuple[str, ...]
    values: Floats
    null: Floats

    def table(self) -> pd.DataFrame:
        """A row per class and measure.

        Columns ``class``, ``count``, ``frequency``, ``used``, ``measure``, ``value``, ``null_low``, ``null_median``,
        ``null_high``.
        """
        return pd.DataFrame(
            [
                {
                    "class": name,
                    "count": int(self.counts[i]),
                    "frequency": float(self.counts[i] / self.total),
                    "used": int(self.used[i]),
                    "measure": measured,
                    "value": float(self.values[i, m]),
                    **_band(self.null[:, i, m]),
                }
                for i, name in enumerate(self.names)
                for m, measured in enumerate(MEASURES)
            ]
        )

    def correlations(self, draws: int = 999, seed: int = 0) -> pd.DataFrame:
        """Spearman correlation of each measure with class frequency, beside both nulls.

        Permuted labels show what class size alone does; shuffled frequencies what chance does among so few classes.

        Returns:
            Columns ``measure``, ``rho``, ``classes``, ``labels_low``, ``labels_median``, ``labels_high`` (permuted
            labels), ``labels_p`` (two-sided), ``shuffled_low``, ``shuffled_high``, ``shuffled_p``; no rows with fewer
            than four classes.
        """
        if len(self.labels) < 4:
            return pd.DataFrame(columns=["measure", "rho", "classes"])
        rows = []
        for m, measured in enumerate(MEASURES):
            shuffled = permutation_null(spearman, self.counts, self.values[:, m], draws, seed)
            null = np.array([spearman(self.counts, draw[:, m]) for draw in self.null])
            rho, band = shuffled.estimate, _band(null)
            ends = min(1 + int((null >= rho).sum()), 1 + int((null <= rho).sum()))
            rows.append(
                {
                    "measure": measured,
                    "rho": rho,
                    "classes": len(self.labels),
                    "labels_low": band["null_low"],
                    "labels_median": band["null_median"],
                    "labels_high": band["null_high"],
                    "labels_p": min(1.0, 2 * ends / (len(null) + 1)),
                    "shuffled_low": shuffled.low,
                    "shuffled_high": shuffled.high,
                    "shuffled_p": shuffled.p_value,
                }
            )
        return pd.DataFrame(rows)


def spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Rank correlation of two sequences; 0 where one is constant, which goes with nothing."""
    a, b = (pd.Series(values).rank().to_numpy() for values in (x, y))
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else 0.0


def per_class(
    dataset: Dataset,
    scaling: Scaling = "standardised",
    equal: bool = False,
    draws: int = 99,
    resamples: int = 5,
    minimum_rows: int = 10,
    seed: int = 0,
) -> ClassStudy:
    """Measure every class, and classes of the same sizes dealt out at random.

    Args:
        dataset: what :func:`anisotropy.studies.covertype_data.load` returned.
        scaling: standardised means by the variances of all rows, not of the class.
        equal: give every class as many rows as the smallest has, drawn at random, and average over ``resamples``.
        draws: permutations of the labels.
        resamples: see ``equal``.
        minimum_rows: classes with fewer are left out (of permutations too), and named.
        seed: of all draws.

    Raises:
        UserError: fewer than two classes are left, a class whose rows are all equal, or a parameter too small.
    """
    for name, value, least in (("draws", draws, 1), ("resamples", resamples, 1), ("minimum_rows", minimum_rows, 2)):
        if value < least:
            raise UserError(f"{name}: {value} is too small; it must be at least {least}")
    sizes = dataset.sizes()
    kept = sizes[sizes >= minimum_rows]
    if len(kept) < 2:
        raise UserError(
            f"minimum_rows: {len(kept)} of {len(sizes)} classes have {minimum_rows} rows; at least two must "
            f"(the largest has {sizes.max()})"
        )
    inside = np.isin(dataset.labels, kept.index)
    x, labels = dataset.scaled(scaling)[inside], dataset.labels[inside]
    counts = kept.to_numpy()
    use = np.full(len(counts), counts.min()) if equal else counts
    repeats = resamples if equal else 1
    # Rows sorted by class, so that any permutation of them cuts into classes of the same sizes.
    order = np.concatenate([np.flatnonzero(labels == label) for label in kept.index])
    random = np.random.default_rng(seed)
    try:
        values = _class_values(x, order, counts, use, repeats, random)
        null = [_class_values(x, random.permutation(order), counts, use, repeats, random) for _ in range(draws)]
    except ValueError as error:
        raise UserError(f"a class cannot be measured: {error}; raise minimum_rows") from None
    return ClassStudy(
        kept.index.to_numpy(),
        tuple(dataset.classes[label] for label in kept.index),
        counts,
        use,
        len(dataset.labels),
        tuple(dataset.classes[label] for label in sizes.index.difference(kept.index)),
        values,
        np.array(null),
    )


def _class_values(
    x: Floats,
    order: NDArray[np.intp],
    counts: NDArray[np.int64],
    use: NDArray[np.int64],
    repeats: int,
    random: np.random.Generator,
) -> Floats:
    """Values of shape (c, 3), averaged over ``repeats`` subsamples of ``use`` rows from each class."""
    groups: Sequence[NDArray[np.intp]] = np.split(order, np.cumsum(counts)[:-1])
    values = np.zeros((len(counts), len(MEASURES)))
    for i, group in enumerate(groups):
        for _ in range(repeats):
            chosen = group if use[i] == len(group) else random.choice(group, use[i], replace=False)
            found = measure(x[chosen])
            values[i] += [found[name] / repeats for name in MEASURES]
    return values
