"""Collections of the tangent study with known covariances, exact to rounding: nothing here is sampled.

Activations vary most along the first K axes, then along the next K. Gradients put ``ratio`` times as much variance into
each of the first K directions as into each other one, which makes their E_r equal to ``ratio``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anisotropy.studies.results import Collection

D, K, BLOCKS, ROWS = 24, 4, 10, 300
PROBES = ("T1_in", "Tm")


def role(name: str, covariances: list[np.ndarray], mean: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Arrays of one role: a block per covariance, ROWS rows each."""
    row, column = np.triu_indices(D)
    return {
        f"{name}.count": np.full(len(covariances), ROWS),
        f"{name}.mean": np.array([np.zeros(D) if mean is None else mean for _ in covariances]),
        f"{name}.scatter": np.array([ROWS * c[row, column] for c in covariances], dtype=np.float32),
    }


def axes(*variances: float, start: int = 0) -> np.ndarray:
    """A diagonal covariance: the given variances on the axes from ``start``, 1 elsewhere."""
    diagonal = np.ones(D)
    diagonal[start : start + len(variances)] = variances
    return np.diag(diagonal)


def gradient(ratio: float, start: int = 0, spread: float = 0.05) -> list[np.ndarray]:
    """Covariances of gradients with E_r = ratio in the axes from ``start``; blocks differ by a few percent."""
    return [axes(*[ratio * (1 + spread * np.cos(block))] * K, start=start) for block in range(BLOCKS)]


def rotation(seed: int) -> np.ndarray:
    """A random rotation, to make a case general."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))[0]


def collection(
    step: int,
    ratio: float,
    shuffled: float = 1.0,
    model: str = "planted",
    start: Mapping[str, int] | None = None,
    weight: bool = False,
) -> Collection:
    """One checkpoint.

    Args:
        step: its step.
        ratio: E_r of the true gradients in the first K principal directions of each probe's activations.
        shuffled: the same for shuffled labels.
        model: label.
        start: first of the K axes of each probe's activations; different ones make probes unlike.
        weight: whether there is a weight reading, equal to the other one.
    """
    arrays: dict[str, np.ndarray] = {"loss": np.array(1.0), "weight_tokens": np.array(ROWS)}
    random = np.random.default_rng(step)
    for probe in PROBES:
        at = (start or {"T1_in": 0, "Tm": 12}).get(probe, 0)
        # Distinct variances: directions of equal variance are in no order.
        activations = axes(*(100.0 + np.arange(2 * K)[::-1] * 3 - 80 * (np.arange(2 * K) >= K)), start=at)
        for reading in ("activation", "weight") if weight else ("activation",):
            arrays |= role(f"{probe}.{reading}.fit", [activations])
            arrays |= role(f"{probe}.{reading}.held_out", [activations])
            arrays |= role(f"{probe}.{reading}.gradient", gradient(ratio, at))
            arrays |= role(f"{probe}.{reading}.shuffled", gradient(shuffled, at))
            rows = random.normal(size=(200, D)) * np.sqrt(np.diag(activations))
            arrays[f"{probe}.{reading}.rows"] = rows.astype(np.float32)
        if weight:
            for name in ("unpaired", "centred"):
                arrays |= role(f"{probe}.weight.{name}", [axes(*[shuffled] * K, start=at)])
    return Collection(model, step, f"{model}-{step}", arrays)


def run(ratio: float = 8.0, shuffled: float = 1.0, untrained: float = 1.0, **more: object) -> list[Collection]:
    """A training run: untrained at step 0, then the same ratios to the end."""
    steps = (0, 10, 20, 30, 70, 100)
    return [collection(step, ratio if step else untrained, shuffled, **more) for step in steps]  # type: ignore[arg-type]
