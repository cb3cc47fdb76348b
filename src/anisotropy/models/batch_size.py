"""How many sequences go through a model at once: as many as an estimate allows, and fewer where memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import torch

from anisotropy.errors import UserError

Result = TypeVar("Result")

# The rest is for what a study makes of a pass, and for other processes.
_SHARE_OF_FREE = {"cuda": 0.7, "cpu": 0.5}
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")

_largest: dict[Hashable, int] = {}
_notes: list[str] = []


def fitting(bytes_per_sequence: int, device: torch.device) -> int:
    """How many sequences fit into the memory that is free now, by an estimate; at least one."""
    share = _SHARE_OF_FREE.get(device.type, 0.5)
    return max(1, int(share * free_memory(device) / max(1, bytes_per_sequence)))


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on a device; for a CPU within the limit of the process's control group."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = psutil.virtual_memory().available
    for limit_file, used_file in _CGROUPS:
        try:
            free = min(free, int(Path(limit_file).read_text()) - int(Path(used_file).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return max(0, free)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, in the words of torch's allocators or of Python."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


def in_pieces(
    sequences: int, guess: int, run: Callable[[slice], Result], kind: Hashable, device: torch.device
) -> Iterator[tuple[slice, Result]]:
    """Run a function over sequences, in pieces as large as memory allows.

    Where memory runs out, the piece is halved and tried again; later pieces of the same kind start at the size that
    went well, and :func:`take_notes` says so once.

    Args:
        sequences: how many there are.
        guess: largest piece to begin with.
        run: what to do with a piece; called again for part of it after a failure, so it must leave nothing behind.
        kind: whatever decides how much memory a sequence takes.
        device: whose cache is emptied before the next try.

    Raises:
        UserError: memory runs out even for a single sequence.
    """
    start, failed = 0, 0
    while start < sequences:
        size = max(1, min(guess, _largest.get(kind, guess), sequences - start))
        place = slice(start, start + size)
        result = _tried(run, place)
        if result is None:
            release(device)
            if size == 1:
                raise UserError(
                    f"not enough memory on {device} for a single sequence: free some, use another device, or a "
                    "smaller model"
                )
            failed = failed or size
            _largest[kind] = size // 2
            continue
        if failed:
            _notes.append(f"memory ran out on {device} at {failed} sequences a batch; went on with {size} a batch")
            failed = 0
        yield place, result[0]
        start += size


def _tried(run: Callable[[slice], Result], place: slice) -> tuple[Result] | None:
    # Left before the next try: the error's traceback holds the tensors of the failed one.
    try:
        return (run(place),)
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise


def take_notes() -> list[str]:
    """Sentences about batches that had to be smaller since the last call."""
    taken = list(_notes)
    _notes.clear()
    return taken


def release(device: torch.device) -> None:
    """Give back what a dropped model or a failed pass had on a device; nothing to do on a CPU."""
    if device.type != "cpu":
        gc.collect()
        (torch.cuda if device.type == "cuda" else torch.mps).empty_cache()
