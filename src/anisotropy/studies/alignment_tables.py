"""What collections of :mod:`anisotropy.studies.alignment` say: curves over training and trends over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from anisotropy.concepts.decompositions import METHODS, Method
from anisotropy.concepts.matching import match, matched_pairs
from anisotropy.models.labels import split_label
from anisotropy.statistics import correlation
from anisotropy.studies.alignment import MATRICES, METRICS, SOURCES
from anisotropy.studies.replicates import mean_interval
from anisotropy.studies.results import Collection

Pairing = Literal["matched", "best"]


def alignment_table(collections: Sequence[Collection]) -> pd.DataFrame:
    """Matched correlations of gradient concepts with data concepts, a row per checkpoint, reading and group.

    Returns:
        Columns ``step``, ``source`` (``gradient``, or ``shuffled`` for labels without meaning), ``method``, ``metric``
        (``mean`` over all pairs, ``top`` over the ten best, ``above_gap``), ``group``, ``matched``, ``baseline`` (mean
        over rotations of the same group), ``baseline_low``, ``baseline_high`` (their smallest and largest),
        ``excess`` (matched − baseline), ``pairs`` (how many the metric is over).
    """
    rows = []
    for collection in collections:
        arrays = collection.arrays
        for source in SOURCES:
            for method in METHODS:
                name = f"{source}_{method}"
                count = arrays[f"{name}_correlations"].shape[1]
                pairs = {"mean": count, "top": min(10, count)}
                for place, metric in enumerate(METRICS):
                    for group, matched in enumerate(arrays[f"{name}_matched"][:, place]):
                        rotated = arrays[f"{name}_rotated"][group, :, place]
                        rows.append(
                            {
                                "step": collection.step,
                                "source": source,
                                "method": method,
                                "metric": metric,
                                "group": group,
                                "matched": float(matched),
                                "baseline": float(rotated.mean()),
                                "baseline_low": float(rotated.min()),
                                "baseline_high": float(rotated.max()),
                                "excess": float(matched - rotated.mean()),
                                "pairs": pairs.get(metric, int(arrays[f"{name}_gap"][group])),
                            }
                        )
    return pd.DataFrame(rows)


def summarise(collections: Mapping[str, Sequence[Collection]]) -> pd.DataFrame:
    """:func:`alignment_table` of every model, ``model`` and ``seed`` (of training) in front."""
    return pd.concat(
        [_labelled(label, alignment_table(of_model)) for label, of_model in collections.items()], ignore_index=True
    )


def _labelled(label: str, table: pd.DataFrame) -> pd.DataFrame:
    name, training_seed = split_label(label)
    table.insert(0, "model", name)
    table.insert(1, "seed", training_seed)
    return table


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """Means over groups with their intervals, a row per model, step, source, method and metric.

    Returns:
        Columns of the grouping, ``matched``, ``baseline``, ``baseline_low``, ``baseline_high`` (extremes over groups
        and rotations), ``excess``, ``excess_low``, ``excess_high`` (95 % over groups), ``pairs`` (median).
    """
    rows = []
    names = [name for name in ("model", "seed", "step", "source", "method", "metric") if name in table]
    for values, group in table.groupby(names, sort=False):
        interval = mean_interval(group["excess"])
        rows.append(
            dict(zip(names, values, strict=True))
            | {
                "matched": group["matched"].mean(),
                "baseline": group["baseline"].mean(),
                "baseline_low": group["baseline_low"].min(),
                "baseline_high": group["baseline_high"].max(),
                "excess": interval.mean,
                "excess_low": interval.low,
                "excess_high": interval.high,
                "pairs": float(group["pairs"].median()),
            }
        )
    return pd.DataFrame(rows)


def by_rank(correlations: np.ndarray, pairing: Pairing = "matched") -> np.ndarray:
    """One number a rank from the table of all correlations.

    Args:
        correlations: ``|Pearson|``, shape (ranks, data concepts).
        pairing: ``"matched"`` one to one so that the sum is largest, or ``"best"``, each rank's largest.

    Returns:
        Shape (ranks,); 0 for a rank that has no partner.

    Raises:
        ValueError: another pairing.
    """
    if pairing == "best":
        return correlations.max(1).astype(np.float64)
    if pairing != "matched":
        raise ValueError(f"unknown pairing {pairing!r}: expected 'matched' or 'best'")
    rows, _, values = matched_pairs(correlations.astype(np.float64))
    found = np.zeros(len(correlations))
    found[rows] = values
    return found


def rank_table(collections: Sequence[Collection], pairing: Pairing = "matched") -> pd.DataFrame:
    """Figure 7 as numbers: correlation with the data's concepts by rank, averaged over seeds.

    Returns:
        Columns ``step``, ``matrix``, ``method``, ``rank`` (0 the strongest), ``correlation``, ``spread`` (SD over
        seeds), ``floor`` (the mean of rotated concepts, which only ``matched`` is comparable with). Matrices that the
        family does not have in a known place are missing.
    """
    parts = []
    for collection in collections:
        for matrix in MATRICES:
            for method in METHODS:
                tables = collection.arrays.get(f"weight_{matrix}_{method}")
                if tables is None:
                    continue
                values = np.array([by_rank(table, pairing) for table in tables])
                parts.append(
                    pd.DataFrame(
                        {
                            "step": collection.step,
                            "matrix": matrix,
                            "method": method,
                            "rank": np.arange(values.shape[1]),
                            "correlation": values.mean(0),
                            "spread": values.std(0, ddof=1) if len(values) > 1 else np.nan,
                            "floor": float(collection.arrays[f"floor_{matrix}_{method}"].mean()),
                        }
                    )
                )
    columns = ["step", "matrix", "method", "rank", "correlation", "spread", "floor"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def rank_trends(collections: Mapping[str, Sequence[Collection]], pairing: Pairing = "matched") -> pd.DataFrame:
    """Spearman's ρ of rank with correlation, a row per model, checkpoint, matrix and method.

    The interval is over ranks of one run: descriptive, since ranks are no replicates.

    Returns:
        Columns ``model``, ``seed`` (of training), ``step``, ``matrix``, ``method``, ``rho``, ``low``, ``high``,
        ``ranks``, ``mean`` (correlation over ranks), ``floor``.
    """
    rows = []
    for label, of_model in collections.items():
        table = _labelled(label, rank_table(of_model, pairing))
        for (model, seed, step, matrix, method), group in table.groupby(
            ["model", "seed", "step", "matrix", "method"], sort=False
        ):
            found = correlation(group["rank"], group["correlation"], "spearman")
            rows.append(
                {
                    "model": model,
                    "seed": seed,
                    "step": step,
                    "matrix": matrix,
                    "method": method,
                    "rho": found.estimate,
                    "low": found.low,
                    "high": found.high,
                    "ranks": found.n,
                    "mean": group["correlation"].mean(),
                    "floor": group["floor"].iloc[0],
                }
            )
    columns = ["model", "seed", "step", "matrix", "method", "rho", "low", "high", "ranks", "mean", "floor"]
    return pd.DataFrame(rows, columns=columns)


def token_table(collections: Sequence[Collection]) -> pd.DataFrame:
    """How far concepts of the first group are single frequent tokens.

    Returns:
        Columns ``step``, ``part`` (``data``, ``gradient``), ``method``, ``rank`` (0 the strongest), ``token_id``,
        ``likeness`` (``|Pearson|`` with that token's embedding), ``chance`` (mean likeness of random directions).
    """
    parts = [
        pd.DataFrame(
            {
                "step": collection.step,
                "part": part,
                "method": method,
                "rank": np.arange(len(collection.arrays[f"{part}_{method}_token"])),
                "token_id": collection.arrays[f"{part}_{method}_token"],
                "likeness": collection.arrays[f"{part}_{method}_likeness"],
                "chance": float(collection.arrays["chance_likeness"][0]),
            }
        )
        for collection in collections
        for part in ("data", "gradient")
        for method in METHODS
    ]
    return pd.concat(parts, ignore_index=True)


def token_pairs(collection: Collection, method: Method) -> pd.DataFrame:
    """The matched pairs of the first group, with the token nearest to either concept.

    Returns:
        Columns ``correlation`` (best first), ``data_token``, ``gradient_token`` (ids), ``data_likeness``.
    """
    arrays = collection.arrays
    found = match(arrays[f"data_{method}"], arrays[f"gradient_{method}"])
    return pd.DataFrame(
        {
            "correlation": found.correlations,
            "data_token": arrays[f"data_{method}_token"][found.first],
            "gradient_token": arrays[f"gradient_{method}_token"][found.second],
            "data_likeness": arrays[f"data_{method}_likeness"][found.first],
        }
    )


def convergence(collections: Mapping[str, Sequence[Collection]]) -> pd.DataFrame:
    """How many decompositions stopped by themselves, a row per model, part and method.

    Returns:
        Columns ``model`` (label), ``part`` (``data``, ``gradient``, ``shuffled``), ``method``, ``converged``, ``fits``,
        ``lowest_loss``, ``highest_loss`` (share of ‖A‖² not reconstructed).
    """
    rows = []
    for label, of_model in collections.items():
        for part in ("data", *SOURCES):
            for method in METHODS:
                converged = np.concatenate([c.arrays[f"{part}_{method}_converged"] for c in of_model])
                loss = np.concatenate([c.arrays[f"{part}_{method}_loss"] for c in of_model])
                rows.append(
                    {
                        "model": label,
                        "part": part,
                        "method": method,
                        "converged": int(converged.sum()),
                        "fits": len(converged),
                        "lowest_loss": float(loss.min()),
                        "highest_loss": float(loss.max()),
                    }
                )
    return pd.DataFrame(rows)
