"""How finely gradients are kept apart: by block of text, or by group of blocks where matrices are large."""

from __future__ import annotations

LARGE = 1_024
_GROUPS_OF_LARGE = 5


def held_out_groups(hidden_size: int, blocks: int, groups: int | None = None) -> int:
    """Into how many groups so many held-out blocks are merged [ours].

    A group keeps matrices of d × d. With a group per block (ten), a checkpoint of d = 2,048 would take 1.5 GB on disk;
    so above d = 1,024 there are five unless another number is asked for.
    """
    return min(blocks, groups or (blocks if hidden_size <= LARGE else _GROUPS_OF_LARGE))
