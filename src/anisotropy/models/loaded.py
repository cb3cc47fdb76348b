"""A checkpoint in memory: what studies are given. It stands alone, so that a change elsewhere re-measures nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anisotropy.models.heads import Objective

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: the model in eval mode on its device, and what it is."""

    model: PreTrainedModel
    name: str
    step: int
    objective: Objective
    mask_id: int | None
    weight_hash: str
