"""How the processes of this project use cores and memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_LARGE = 1 << 30


def share_cores() -> None:
    """Let idle threads sleep: two busy OpenMP processes on few cores would spin against each other.

    Only libraries that are loaded afterwards, and processes started from this one, see it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def side_by_side(function: Callable[[Task], Result], tasks: Iterable[Task], workers: int | None = None) -> list[Result]:
    """Apply a function to tasks in threads, each computing in its share of the cores; results in the order of tasks.

    Thousands of products of small matrices gain nothing from a second thread, and threads that wait for each other
    spin: decompositions of 1,000 rows took up to ten times as long. Several of them beside each other do use the cores.

    Args:
        function: NumPy, SciPy and torch release Python's lock in their products; other Python code takes turns.
        tasks: what to apply it to.
        workers: threads, one per core by default; 1 where the work is on a GPU.
    """
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    workers = min(workers or cores, cores)
    each = max(1, before // workers)
    try:
        # OpenMP counts threads per calling thread, so every worker has to be told.
        with (
            threadpool_limits(each, "blas"),
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(each,)) as pool,
        ):
            return list(pool.map(function, tasks))
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory up to 1 GiB instead of returning it to the system at once.

    A training step allocates and frees the same large arrays again and again; without this, a fifth of its time goes
    into mapping them anew. Returns whether the C library took it (glibc does, others are left as they are).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE)) and bool(mallopt(_TRIM_THRESHOLD, _LARGE))
