"""Windows of checkpoints and the geometry of their concepts (Table 2, the light half).

What has a geometry here is a set of k directions, the rows of D, of length 1 each: not the tokens and not their codes.
So an estimate of intrinsic dimension has k points, an effective rank is at most k − 1 (rows are taken about their mean
row), and `pca_70` cannot exceed k − 1 either. Where directions are compared between two factorisations, these come
from different Semi-NMF seeds: equal seeds start from equal codes, and part of the agreement would be the start's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch

from anisotropy.concepts.semi_nmf import stability
from anisotropy.errors import UserError
from anisotropy.geometry.dimension import effective_rank, graph_dimension, pca_components, twonn
from anisotropy.geometry.moments import Moments
from anisotropy.geometry.subspaces import principal_basis, subspace_similarity
from anisotropy.studies.concept_tables import CARD_LAYER, LAYERS, RAW_MEASURES
from anisotropy.studies.course import Weighting, checkpoint_weights
from anisotropy.studies.results import Collection

UNTRAINED = "untrained"
ONLY = "the one checkpoint"
METRICS = (*RAW_MEASURES, "pca_similarity", "pca_similarity_within", "c_w")
READINGS = ("per_checkpoint", "pooled", "scaled", "activations")
_COLUMNS = ["window", "layer", "metric", "reading", "value", "spread", "estimates", "possible"]


@dataclass(frozen=True)
class Window:
    """Checkpoints that stand in one column: their steps, and the label they go by."""

    label: str
    steps: tuple[int, ...]


def make_windows(steps: Sequence[int], windows: int = 4) -> list[Window]:
    """Cut the checkpoints after step 0 into windows of equal numbers.

    Where the number does not divide, the earliest checkpoints are left out; with fewer checkpoints than windows each
    has its own. Step 0 is in none: it is a control. The window of a model with one checkpoint does not name a step.

    Raises:
        UserError: fewer than one window.
    """
    if windows < 1:
        raise UserError(f"windows is {windows}; at least 1 is needed")
    trained = sorted(step for step in steps if step > 0)
    if not trained:
        return []
    if len(steps) == 1:
        return [Window(ONLY, tuple(trained))]
    size = max(1, len(trained) // windows)
    kept = trained[len(trained) - size * min(windows, len(trained)) :]
    groups = [tuple(kept[start : start + size]) for start in range(0, len(kept), size)]
    return [Window(_label(group), group) for group in groups]


def _label(steps: Sequence[int]) -> str:
    return f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,}–{steps[-1]:,}"


def summarise(
    collections: Mapping[str, Sequence[Collection]],
    *,
    windows: int = 4,
    similarity_rank: int = 16,
    weighting: Weighting = "step",
) -> pd.DataFrame:
    """Table 2 of every model, ``model`` in front; see :func:`window_table`."""
    return pd.concat(
        [
            window_table(of_model, windows=windows, similarity_rank=similarity_rank, weighting=weighting).assign(
                model=label
            )
            for label, of_model in collections.items()
        ],
        ignore_index=True,
    )[["model", *_COLUMNS]]


def window_table(
    collections: Sequence[Collection],
    *,
    windows: int = 4,
    similarity_rank: int = 16,
    weighting: Weighting = "step",
) -> pd.DataFrame:
    """The measures of one model in every window, layer and reading.

    Args:
        collections: by step.
        windows: how many; see :func:`make_windows`. The untrained model has a column of its own.
        similarity_rank: rank of the principal subspaces that are compared, chance rank/d [ours].
        weighting: of the checkpoints of a window in ``per_checkpoint`` averages.

    Returns:
        Columns ``window``, ``layer``, ``metric`` (one of ``METRICS``), ``reading`` (``per_checkpoint`` is computed per
        checkpoint, then averaged; ``pooled`` takes directions of all checkpoints of a window as one set; ``scaled``
        is per checkpoint, each direction times its mean code; ``activations`` is of the activations themselves),
        ``value`` (mean over Semi-NMF seeds), ``spread`` (their standard deviation, missing where there is no seed), and
        how many ``estimates`` of the ``possible`` ones exist (an intrinsic dimension can have none).

    Raises:
        UserError: a similarity rank that the directions do not have.
    """
    by_step = {collection.step: collection for collection in collections}
    columns = [Window(UNTRAINED, (0,))] if 0 in by_step else []
    columns += make_windows(list(by_step), windows)
    measured = {step: MeasuredConcepts(collection) for step, collection in by_step.items()}
    rows: list[dict[str, object]] = []
    for layer in LAYERS:
        before: dict[str, list[torch.Tensor]] | None = None
        for window in columns:
            members = [measured[step] for step in window.steps]
            weights = checkpoint_weights(window.steps, weighting)
            bases = _bases(members, weights, layer, similarity_rank)
            for metric, reading, values in _cells(members, weights, layer, similarity_rank):
                rows.append(_row(window, layer, metric, reading, values))
            if before is not None and window.label != UNTRAINED:
                for reading, own in bases.items():
                    values = _similarities(before[reading], own)
                    rows.append(_row(window, layer, "pca_similarity", reading, values))
            before = None if window.label == UNTRAINED else bases
    return pd.DataFrame(rows, columns=_COLUMNS)


class MeasuredConcepts:
    """One checkpoint, with the measures of its concepts computed once.

    Attributes:
        arrays: what ``collect`` returned.
    """

    def __init__(self, collection: Collection) -> None:
        """Nothing is measured yet."""
        self.arrays = collection.arrays
        self._found: dict[tuple[str, str], np.ndarray] = {}

    def geometry(self, layer: str, reading: str) -> np.ndarray:
        """Shape (seeds, 4): ``RAW_MEASURES`` of the concepts from each seed."""
        if (layer, reading) not in self._found:
            sets = self.arrays[f"{layer}_directions"].astype(np.float64)
            if reading == "scaled":
                sets = sets * self.arrays[f"{layer}_mean_code"][:, :, None]
            self._found[layer, reading] = np.array([geometry_of(rows) for rows in sets])
        return self._found[layer, reading]


def geometry_of(rows: np.ndarray) -> tuple[float, float, float, float]:
    """``RAW_MEASURES`` of the rows of a matrix, rows about their mean: the last two share matrix and centring."""
    return (
        graph_dimension(rows).estimate,
        twonn(rows).estimate,
        pca_components(rows).estimate,
        effective_rank(rows).estimate,
    )


def random_directions(concepts: int, coordinates: int, draws: int = 20, seed: int = 0) -> pd.DataFrame:
    """The same measures of as many directions drawn uniformly at random: what the table shows of nothing.

    Returns:
        A row per metric, with columns ``metric``, ``value`` (mean), ``spread`` (standard deviation), ``estimates``,
        ``possible``.
    """
    random = np.random.default_rng(seed)
    drawn = random.standard_normal((draws, concepts, coordinates))
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    values = np.array([geometry_of(rows) for rows in drawn])
    return pd.DataFrame(
        [{"metric": metric} | _mean_and_spread(values[:, place]) for place, metric in enumerate(RAW_MEASURES)]
    )


def _row(window: Window, layer: str, metric: str, reading: str, values: np.ndarray) -> dict[str, object]:
    return {"window": window.label, "layer": layer, "metric": metric, "reading": reading} | _mean_and_spread(values)


def _mean_and_spread(values: np.ndarray) -> dict[str, object]:
    known = values[np.isfinite(values)]
    return {
        "value": float(known.mean()) if len(known) else np.nan,
        "spread": float(known.std(ddof=1)) if len(known) > 1 else np.nan,
        "estimates": len(known),
        "possible": len(values),
    }


def _cells(
    members: Sequence[MeasuredConcepts], weights: np.ndarray, layer: str, rank: int
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Metric, reading and the values per seed of one window at one layer."""
    for reading in ("per_checkpoint", "scaled"):
        found = np.array([member.geometry(layer, reading) for member in members])
        averages = weighted_average(found, weights)
        for place, metric in enumerate(RAW_MEASURES):
            yield metric, reading, averages[:, place]
    stacked = np.concatenate([member.arrays[f"{layer}_directions"] for member in members], axis=1).astype(np.float64)
    pooled = np.array([geometry_of(rows) for rows in stacked])
    raw = weighted_average(np.array([member.arrays[f"{layer}_raw"] for member in members]), weights)
    for place, metric in enumerate(RAW_MEASURES):
        yield metric, "pooled", pooled[:, place]
        yield metric, "activations", raw[place : place + 1]
    if f"{layer}_c_w" in members[0].arrays:
        yield "c_w", "per_checkpoint", weighted_average(np.array([m.arrays[f"{layer}_c_w"] for m in members]), weights)
        baseline = np.array([m.arrays[f"{layer}_c_w_baseline"].mean(axis=1) for m in members])
        yield "c_w", "baseline", weighted_average(baseline, weights)
    if len(members) > 1:
        for reading in ("per_checkpoint", "activations"):
            bases = [_bases([member], np.ones(1), layer, rank)[reading] for member in members]
            pairs = np.array([_similarities(a, b) for a, b in pairwise(bases)])
            yield "pca_similarity_within", reading, pairs.mean(axis=0)


def weighted_average(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Average over checkpoints (the first axis) with weights; missing values are left out."""
    known = np.isfinite(values)
    shaped = weights.reshape(-1, *[1] * (values.ndim - 1)) * known
    total = shaped.sum(axis=0)
    summed = (np.where(known, values, 0) * shaped).sum(axis=0)
    return np.where(total > 0, summed / np.where(total > 0, total, 1), np.nan)


def _bases(
    members: Sequence[MeasuredConcepts], weights: np.ndarray, layer: str, rank: int
) -> dict[str, list[torch.Tensor]]:
    """Principal subspaces of a window's concepts, one per seed, by reading.

    ``per_checkpoint`` averages the covariances of the checkpoints' directions, ``pooled`` takes one covariance of all
    directions; a subspace needs no independent points, so both are sound.
    """
    sets = [member.arrays[f"{layer}_directions"] for member in members]
    _, concepts, d = sets[0].shape
    if not 1 <= rank < concepts:
        raise UserError(f"similarity_rank is {rank}; {concepts} concepts have 1 … {concepts - 1} principal directions")
    found: dict[str, list[torch.Tensor]] = {"per_checkpoint": [], "pooled": []}
    for seed in range(len(sets[0])):
        parts = [Moments.of(torch.from_numpy(np.ascontiguousarray(of_checkpoint[seed]))) for of_checkpoint in sets]
        average = torch.zeros(d, d, dtype=torch.float64)
        for weight, part in zip(weights, parts, strict=True):
            average += float(weight) * part.centred_scatter
        found["per_checkpoint"].append(principal_basis(average, rank))
        found["pooled"].append(principal_basis(Moments.merged(parts).centred_scatter, rank))
    # Principal directions of activations are kept without their variances: the last checkpoint stands for its window.
    found["activations"] = [torch.from_numpy(members[-1].arrays[f"{layer}_principal"][:rank].T.astype(np.float64))]
    return found


def _similarities(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> np.ndarray:
    """Similarity of subspaces from different seeds: the first's seed i with the second's seed i + 1."""
    shifted = [*second[1:], second[0]]
    return np.array([float(subspace_similarity(a, b)) for a, b in zip(first, shifted, strict=True)])


def agreement(collections: Sequence[Collection], seed: int = 0) -> pd.DataFrame:
    """How far factorisations agree: matched ``|cosine|``, mean over concepts (see ``stability``).

    Returns:
        Columns ``layer``, ``step``, ``comparison`` and ``value``. The comparisons are ``seeds`` (same checkpoint,
        different seeds), ``next, other seed`` (with the checkpoint before, different seeds), ``next, same seed`` (with
        the checkpoint before, equal seeds, which shares the start) and ``random`` (as many directions drawn at
        random).
    """
    rows = []
    random = np.random.default_rng(seed)
    for layer in LAYERS:
        before: np.ndarray | None = None
        for collection in collections:
            own = collection.arrays[f"{layer}_directions"]
            values = {"seeds": stability(list(own)).mean}
            if before is not None:
                count = len(own)
                values["next, other seed"] = _matched(before, own, 1, count)
                values["next, same seed"] = _matched(before, own, 0, count)
            values["random"] = stability(list(random.standard_normal((2, *own.shape[1:])))).mean
            rows += [
                {"layer": layer, "step": collection.step, "comparison": name, "value": value}
                for name, value in values.items()
            ]
            before = own
    return pd.DataFrame(rows, columns=["layer", "step", "comparison", "value"])


def _matched(before: np.ndarray, own: np.ndarray, shift: int, seeds: int) -> float:
    return float(np.mean([stability([before[i], own[(i + shift) % seeds]]).mean for i in range(seeds)]))


def methods_compared(collections: Sequence[Collection]) -> pd.DataFrame:
    """The geometry of PCA, ICA and Semi-NMF directions of the same activations, middle layer, last checkpoint.

    Returns:
        Columns ``method``, the measures, and ``agreement``, the matched ``|cosine|`` with the Semi-NMF directions of
        the first seed (for Semi-NMF, of the other seeds).
    """
    arrays = collections[-1].arrays
    own = arrays[f"{CARD_LAYER}_directions"].astype(np.float64)
    sets = {"PCA": arrays[f"{CARD_LAYER}_principal"].astype(np.float64), "ICA": arrays["ica"].astype(np.float64)}
    rows: list[dict[str, object]] = [
        {"method": name, **dict(zip(RAW_MEASURES, geometry_of(rows_), strict=True))}
        | {"agreement": stability([own[0], rows_]).mean}
        for name, rows_ in sets.items()
    ]
    # Orthonormal directions are all √2 apart: which of them are near each other, rounding decides.
    rows[0] |= {"id_graph": np.nan, "id_twonn": np.nan}
    found = weighted_average(np.array([geometry_of(rows_) for rows_ in own]), np.full(len(own), 1 / len(own)))
    rows.append(
        {"method": "Semi-NMF", **dict(zip(RAW_MEASURES, found, strict=True)), "agreement": stability(list(own)).mean}
    )
    return pd.DataFrame(rows)


def fits(collections: Mapping[str, Sequence[Collection]]) -> pd.DataFrame:
    """How the factorisations went: a row per model and layer.

    Returns:
        Columns ``model``, ``layer``, ``fits``, ``not_converged``, ``iterations`` (largest), ``loss_first`` and
        ``loss_last`` (relative loss at the first and last checkpoint, mean over seeds) and ``loss_spread`` (largest
        difference between seeds at one checkpoint, relative to their mean).
    """
    rows = []
    for model, of_model in collections.items():
        for layer in LAYERS:
            losses = np.array([collection.arrays[f"{layer}_loss"] for collection in of_model])
            converged = np.array([collection.arrays[f"{layer}_converged"] for collection in of_model])
            rows.append(
                {
                    "model": model,
                    "layer": layer,
                    "fits": losses.size,
                    "not_converged": int((~converged).sum()),
                    "iterations": int(max(collection.arrays[f"{layer}_iterations"].max() for collection in of_model)),
                    "loss_first": float(losses[0].mean()),
                    "loss_last": float(losses[-1].mean()),
                    "loss_spread": float((np.ptp(losses, axis=1) / losses.mean(axis=1)).max()),
                }
            )
    return pd.DataFrame(rows)
