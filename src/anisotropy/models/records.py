"""What is known of a checkpoint before it is loaded, and which ones a user asks for; imports no torch."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from anisotropy.errors import UnknownNameError, UserError
from anisotropy.models.catalogue import ModelName
from anisotropy.models.heads import Objective
from anisotropy.models.loaded import Checkpoint

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

# Step 0 means untrained in every study, so a trained model of unknown step cannot have it.
UNKNOWN_STEP = 1


@dataclass(frozen=True)
class CheckpointRecord:
    """What is known of a checkpoint before it is loaded.

    Attributes:
        step: optimiser steps before it, 0 for the untrained model. Where they are not known: a number that puts it
            after every known step, at least ``UNKNOWN_STEP``, which orders and names but counts nothing.
        weight_hash: of its weights in the source's type, where it is known without loading them.
        validation_loss: nats per token, where it is known.
        label: what to call it where its step is not known, such as ``main`` or ``released model``.
    """

    step: int
    weight_hash: str | None = None
    validation_loss: float | None = None
    label: str | None = None

    @property
    def title(self) -> str:
        """How a page names it, by its step or by its label where the step is not known."""
        return self.label or f"step {self.step}"


class Source(Protocol):
    """A model with its checkpoints in the order of training, loaded in one floating point type.

    Attributes:
        name: as a user names it.
        objective: of its head.
        unigram: validation cross-entropy of the training frequencies, where it is known.
        notes: sentences that a reader of its numbers should know.
        training: how a miniature was made, as its index tells it; empty for others.
        is_whole: whether :meth:`records` has every checkpoint; of a hub model without a network, only those cached.
    """

    name: ModelName
    objective: Objective
    unigram: float | None = None
    notes: Sequence[str] = ()
    training: Mapping[str, Any] = {}
    is_whole: bool = True

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint, by step."""

    def mark(self, step: int) -> str | None:
        """Something that changes when the weights of a checkpoint may have; ``None`` where nothing tells."""
        return None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer shared by all checkpoints."""

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One checkpoint, verified."""


def select_steps(available: list[int], choice: str | int | list[int], label: str) -> list[int]:
    """Which checkpoints to use.

    Args:
        available: existing steps.
        choice: ``"all"``, a list of steps, or a number: that many steps, log-spaced, the first and last among them.
        label: the model's name, for messages.

    Raises:
        UserError: a step that does not exist, or a number below 1.
    """
    steps = sorted(available)
    if choice == "all":
        return steps
    if isinstance(choice, list):
        if missing := [step for step in choice if step not in steps]:
            raise no_such_step(label, missing[0], steps)
        return sorted(set(choice))
    if not isinstance(choice, int) or choice < 1:
        raise UserError(f"checkpoints: {choice!r} is neither 'all', nor a list of steps, nor a number of checkpoints")
    if choice >= len(steps):
        return steps
    if choice == 1:
        return steps[-1:]
    positions = [math.log1p(step) for step in steps]
    targets = [positions[0] + i * (positions[-1] - positions[0]) / (choice - 1) for i in range(1, choice - 1)]
    chosen = {steps[0], steps[-1]}
    for target in targets:  # the nearest step that is still free: sparse steps are nearest to several targets
        chosen.add(min(set(steps) - chosen, key=lambda step: (abs(math.log1p(step) - target), step)))
    return sorted(chosen)


def no_such_step(label: str, step: Any, steps: Iterable[int]) -> UnknownNameError:
    """The error of a step that a model does not have; it names those it has, the nearest where they are many."""
    ordered = sorted(steps)
    near = ""
    if isinstance(step, int) and len(ordered) > _LISTED:
        found = sorted(sorted(ordered, key=lambda one: abs(one - step))[:2])
        near = f", nearest {' and '.join(map(str, found))}"
    return UnknownNameError(f"{label} has no checkpoint {step}; it has {listing(ordered)}{near}")


_LISTED = 16


def listing(names: Iterable[Any]) -> str:
    """Names in one line; of many, the first eight and the last."""
    ordered = list(names)
    if len(ordered) <= _LISTED:
        return ", ".join(map(str, ordered))
    return f"{', '.join(map(str, ordered[:8]))}, … {ordered[-1]} ({len(ordered)} in all)"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names like this one, the most alike first."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
