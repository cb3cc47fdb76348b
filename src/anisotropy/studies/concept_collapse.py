"""Whether the last layer's effective rank collapses: its ratio to the first layer's, in every reading (claim C8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from anisotropy.geometry.dimension import effective_rank
from anisotropy.models.labels import split_label
from anisotropy.studies.concept_tables import RAW_MEASURES
from anisotropy.studies.concept_windows import READINGS, MeasuredConcepts, weighted_average
from anisotropy.studies.course import Weighting, checkpoint_weights, stage_steps
from anisotropy.studies.results import Collection


def collapse(collections: Mapping[str, Sequence[Collection]], weighting: Weighting = "step") -> pd.DataFrame:
    """Effective rank of the last layer over that of the first, late in training and untrained (claim C8).

    For concepts the ratio is taken per Semi-NMF seed; ``low`` and ``high`` are the lowest and highest of them, which
    says how far the factorisation decides, and nothing about other training runs. For activations the interval is a
    95 % one over blocks of documents, from a jackknife of the log ratio.

    Returns:
        Columns ``model``, ``seed`` (of training), ``reading`` (``per_checkpoint``, ``pooled``, ``scaled``,
        ``activations``), ``stage`` (``late`` or ``untrained``), ``first`` and ``last`` (effective ranks), ``ratio``,
        ``low``, ``high``. A model without checkpoints late in training has no ``late`` rows; a stage that is missing
        has no rows.
    """
    rows: list[dict[str, object]] = []
    for label, of_model in collections.items():
        name, training_seed = split_label(label)
        by_step = {collection.step: collection for collection in of_model}
        stages = {"late": stage_steps(list(by_step), "late"), "untrained": [step for step in by_step if step == 0]}
        for stage, steps in stages.items():
            if not steps:
                continue
            members = [by_step[step] for step in steps]
            weights = checkpoint_weights(steps, weighting)
            for reading in READINGS:
                first, last, ratio, low, high = (
                    _raw_ratio(members, weights) if reading == "activations" else _ratio(members, weights, reading)
                )
                rows.append(
                    {"model": name, "seed": training_seed, "reading": reading, "stage": stage}
                    | {"first": first, "last": last, "ratio": ratio, "low": low, "high": high}
                )
    names = ["model", "seed", "reading", "stage", "first", "last", "ratio", "low", "high"]
    return pd.DataFrame(rows, columns=names)


def _ratio(
    members: Sequence[Collection], weights: np.ndarray, reading: str
) -> tuple[float, float, float, float, float]:
    place = RAW_MEASURES.index("effective_rank")
    measured = [MeasuredConcepts(member) for member in members]
    ranks = {}
    for layer in ("first", "last"):
        if reading == "pooled":
            sets = np.concatenate([member.arrays[f"{layer}_directions"] for member in members], axis=1)
            ranks[layer] = np.array([effective_rank(rows.astype(np.float64)).estimate for rows in sets])
        else:
            ranks[layer] = weighted_average(np.array([m.geometry(layer, reading)[:, place] for m in measured]), weights)
    ratios = ranks["last"] / ranks["first"]
    return (
        float(ranks["first"].mean()),
        float(ranks["last"].mean()),
        float(ranks["last"].mean() / ranks["first"].mean()),
        float(ratios.min()),
        float(ratios.max()),
    )


def _raw_ratio(members: Sequence[Collection], weights: np.ndarray) -> tuple[float, float, float, float, float]:
    from scipy import stats

    place = RAW_MEASURES.index("effective_rank")
    full = {
        layer: weighted_average(np.array([m.arrays[f"{layer}_raw"][place] for m in members]), weights)
        for layer in ("first", "last")
    }
    without = {
        layer: weighted_average(np.array([m.arrays[f"{layer}_rank_without_block"] for m in members]), weights)
        for layer in ("first", "last")
    }
    logs = np.log(without["last"] / without["first"])
    n = len(logs)
    error = float(np.sqrt((n - 1) / n * ((logs - logs.mean()) ** 2).sum()))
    half = float(stats.t.ppf(0.975, n - 1)) * error
    ratio = float(full["last"] / full["first"])
    return float(full["first"]), float(full["last"]), ratio, ratio * float(np.exp(-half)), ratio * float(np.exp(half))


def ratio_courses(collections: Sequence[Collection]) -> pd.DataFrame:
    """Effective rank of the last layer over the first's at every checkpoint.

    Returns:
        Columns ``step``, ``reading`` (``per_checkpoint``, mean over Semi-NMF seeds, or ``activations``), ``ratio``.
    """
    rows: list[dict[str, object]] = []
    for collection in collections:
        alone = np.ones(1)
        concepts, raw = _ratio([collection], alone, "per_checkpoint"), _raw_ratio([collection], alone)
        rows.append({"step": collection.step, "reading": "per_checkpoint", "ratio": concepts[2]})
        rows.append({"step": collection.step, "reading": "activations", "ratio": raw[2]})
    return pd.DataFrame(rows, columns=["step", "reading", "ratio"])
