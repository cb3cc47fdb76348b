"""How the processes of this project use cores and memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_LARGE = 1 << 30


def share_cores() -> None:
    """Let idle threads sleep: two busy OpenMP processes on few cores would spin against each other.

    Only libraries that are loaded afterwards, and processes started from this one, see it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy and SciPy compute matrix products in one thread inside the ``with`` block.

    Thousands of products of small matrices gain nothing from a second thread, and where another process is busy the
    threads spin while they wait for each other: concepts of 1,000 rows took ten times as long. torch is left as it is.
    """
    # It comes with scikit-learn, and is slow to import.
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1, "blas"):
        yield


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
