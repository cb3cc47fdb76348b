"""Synthetic collections of the concept study, with directions that a test chooses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anisotropy.studies.concept_tables import LAYERS
from anisotropy.studies.results import Collection

CONCEPTS, COORDINATES, SEEDS, TRACKED = 20, 40, 2, 60


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def random_directions(random: np.random.Generator, *shape: int) -> np.ndarray:
    return unit(random.standard_normal(shape))


def collection(
    step: int,
    directions: Callable[[str], np.ndarray] | None = None,
    raw_rank: dict[str, float] | None = None,
    seed: int = 0,
) -> Collection:
    """One checkpoint whose concepts at a layer are ``directions(layer)``, shape (seeds, k, d); random by default."""
    random = np.random.default_rng((seed, step))
    arrays: dict[str, np.ndarray] = {"reservoir": np.arange(TRACKED)}
    for layer in LAYERS:
        chosen = directions(layer) if directions else random_directions(random, SEEDS, CONCEPTS, COORDINATES)
        seeds, concepts, coordinates = chosen.shape
        rank = (raw_rank or {}).get(layer, 10.0)
        arrays[f"{layer}_directions"] = chosen.astype(np.float32)
        arrays[f"{layer}_mean_code"] = np.tile(np.linspace(2, 1, concepts), (seeds, 1))
        arrays[f"{layer}_loss"] = np.full(seeds, 0.1)
        arrays[f"{layer}_iterations"] = np.full(seeds, 7)
        arrays[f"{layer}_converged"] = np.ones(seeds, dtype=bool)
        arrays[f"{layer}_raw"] = np.array([np.nan, 3.0, 5.0, rank])
        arrays[f"{layer}_raw_duplicates"] = np.array([0])
        arrays[f"{layer}_principal"] = np.eye(concepts, coordinates, dtype=np.float32)
        arrays[f"{layer}_rank_without_block"] = np.full(6, rank)
        if layer != "last":
            arrays[f"{layer}_c_w"] = np.full(seeds, 0.5)
            arrays[f"{layer}_c_w_baseline"] = np.full((seeds, 3), 0.25)
    own = arrays["middle_directions"][0].astype(float)
    arrays["ica"] = own[::-1].astype(np.float32)
    arrays["ica_converged"] = np.array([True])
    arrays["tracked"] = (np.abs(random.standard_normal((TRACKED, len(own)))) @ own).astype(np.float32)
    concepts = len(own)
    contexts = np.full((concepts, 2, 19), -1, dtype=np.int64)
    contexts[:, :, 12] = 5
    contexts[:, 0, 11], contexts[:, 0, 13] = 3, 4
    arrays |= {
        "card_active": np.full(concepts, 0.75),
        "card_contexts": contexts,
        "card_ratios": np.full((concepts, 2), 3.0),
        "card_tokens": np.tile([5, 6, -1], (concepts, 1)),
        "card_token_shares": np.tile([0.8, 0.2, 0.0], (concepts, 1)),
        "card_unembeddings": np.tile([7, 8], (concepts, 1)),
        "card_cosines": np.tile([0.9, -0.2], (concepts, 1)),
    }
    return Collection("synthetic", step, f"hash{step}", arrays)
