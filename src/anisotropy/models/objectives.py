"""Inputs and labels for the two training objectives, drawn so that every checkpoint sees the same ones.

Labels follow the transformers convention: one label per input position, ``IGNORED`` where there is no loss; causal
models shift them by one position themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

IGNORED = -100
Seed = int | Sequence[int]


def masked(ids: np.ndarray, mask_id: int, share: float, seed: Seed) -> tuple[np.ndarray, np.ndarray]:
    """Replace a random share of the tokens by the mask token and ask for the original ones.

    Every chosen position becomes the mask token (ours: no random replacements). Each sequence has its own generator,
    so sequence i of a block is masked alike whatever stands beside it.

    Args:
        ids: token ids, shape (sequences, length).
        mask_id: id of the mask token.
        share: share of positions to mask, in (0, 1); each sequence masks ``round(share * length)``, at least one.
        seed: seed of the draw.

    Returns:
        Inputs and labels, each of the shape of ``ids``.

    Raises:
        ValueError: ``share`` outside (0, 1).
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"mask share must lie strictly between 0 and 1, got {share}")
    length = ids.shape[1]
    count = max(1, round(share * length))
    inputs, labels = ids.copy(), np.full_like(ids, IGNORED)
    for i, sequence in enumerate(ids):
        chosen = np.random.default_rng([*np.atleast_1d(seed), i]).permutation(length)[:count]
        inputs[i, chosen] = mask_id
        labels[i, chosen] = sequence[chosen]
    return inputs, labels


def shuffled(labels: np.ndarray, seed: int) -> np.ndarray:
    """Permute all labels among all positions that have one: the unigram law stays, every dependence on context goes."""
    result = labels.copy()
    present = labels != IGNORED
    result[present] = np.random.default_rng(seed).permutation(labels[present])
    return result


def inputs_and_labels(
    ids: np.ndarray, objective: str, *, mask_id: int | None, mask_share: float = 0.3, seed: Seed = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of either objective (``"causal"`` or ``"masked"``); shapes as ``ids``.

    Raises:
        ValueError: another objective, or a masked one without a mask token.
    """
    if objective == "causal":
        return ids, ids
    if objective != "masked":
        raise ValueError(f"unknown objective {objective!r}: expected 'causal' or 'masked'")
    if mask_id is None:
        raise ValueError("a masked objective needs a tokenizer with a mask token")
    return masked(ids, mask_id, mask_share, seed)
