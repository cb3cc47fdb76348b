"""What a language model head is trained on, told from the name of its class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Objective = Literal["causal", "masked"]

_ENDINGS: dict[Objective, tuple[str, ...]] = {
    "masked": ("ForMaskedLM", "ForPreTraining"),
    "causal": ("ForCausalLM", "LMHeadModel"),
}


def objective_of_heads(classes: Iterable[str]) -> Objective | None:
    """The objective of the first class that has a language model head; ``None`` where none has one."""
    for name in classes:
        for objective, endings in _ENDINGS.items():
            if name.endswith(endings):
                return objective
    return None
