"""Labels of models with several trainings: ``mini-pythia`` is training seed 0, ``mini-pythia@1`` training seed 1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_SEEDED = re.compile(r"(.+)@(\d+)")


def split_label(label: str) -> tuple[str, int]:
    """Name and training seed of a label; the seed is 0 where the label has none."""
    match = _SEEDED.fullmatch(label)
    return (match[1], int(match[2])) if match else (label, 0)


def join_label(name: Any, seed: Any) -> str:
    """The label of a name and a training seed: what :func:`split_label` takes apart."""
    return f"{name}@{seed}" if seed else str(name)


def names_of(labels: Iterable[str]) -> list[str]:
    """Names without their training seeds, each once, in the order of the labels."""
    return list(dict.fromkeys(split_label(label)[0] for label in labels))


def names_of_controls(controls: Mapping[str, str]) -> dict[str, str]:
    """Controls by model, both without their training seeds: what tables over several seeds call them."""
    return {split_label(model)[0]: split_label(control)[0] for model, control in controls.items()}
