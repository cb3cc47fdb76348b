"""The course of training: how much of it each checkpoint stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Weighting = Literal["step", "equal"]


def checkpoint_weights(steps: Sequence[int], weighting: Weighting = "step") -> np.ndarray:
    """Weights of an average over checkpoints, summing to 1.

    ``"step"`` gives each checkpoint the part of training it stands for, by the trapezoid rule over the step axis;
    with log-spaced checkpoints ``"equal"`` weights would mean "mostly untrained".

    Args:
        steps: increasing steps of the checkpoints.
        weighting: ``"step"`` or ``"equal"``.

    Raises:
        ValueError: no steps, steps that do not increase, or another weighting.
    """
    positions = np.asarray(steps, dtype=np.float64)
    if not len(positions) or (np.diff(positions) <= 0).any():
        raise ValueError(f"steps must be increasing and at least one, got {list(steps)}")
    if weighting not in ("step", "equal"):
        raise ValueError(f"unknown weighting {weighting!r}: expected 'step' or 'equal'")
    if weighting == "equal" or len(positions) == 1:
        return np.full(len(positions), 1.0 / len(positions))
    gaps = np.diff(positions)
    weights = np.zeros(len(positions))
    weights[:-1] += gaps / 2
    weights[1:] += gaps / 2
    return weights / weights.sum()


Stage = Literal["early", "late"]


def stage_steps(steps: Sequence[int], stage: Stage) -> list[int]:
    """The steps of a part of training, [ours]: early is 0 < step ≤ 0.3 · last, late is step ≥ 0.7 · last.

    Step 0 is a control and belongs to no stage; a course without any step after 0 has none.

    Raises:
        ValueError: another stage.
    """
    if stage not in ("early", "late"):
        raise ValueError(f"unknown stage {stage!r}: expected 'early' or 'late'")
    trained = [step for step in steps if step > 0]
    if stage == "early":
        return [step for step in trained if 10 * step <= 3 * max(steps)]
    return [step for step in trained if 10 * step >= 7 * max(steps)]
