"""What this machine has: memory, disk, and how fast it multiplies; without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

# Multiplications and additions a second, float32 and float64, by what the driver calls the device: half of what the
# manufacturer states, since the products here are small. None of them was measured by this project.
_GPU_SPEEDS = {"H200": (33e12, 33e12), "H100": (33e12, 33e12), "A100": (9.7e12, 4.8e12), "V100": (7.8e12, 3.9e12)}
_OTHER_GPU = (8e12, 0.15e12)
_PRODUCT, _REPETITIONS = 512, 24  # short and often: the best one was not disturbed


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes, speeds in operations a second; without a GPU its fields are empty.

    Attributes:
        cores: of the CPU.
        memory: of the CPU that is free now.
        disk: free where results are kept.
        cache_disk: free where the hub's cache is.
        cpu_speeds: float32 and float64, measured just now on a matrix product.
        gpu: its name.
        gpu_memory: free on it.
        gpu_speeds: float32 and float64, from a table.
    """

    cores: int
    memory: int
    disk: int
    cache_disk: int
    cpu_speeds: tuple[float, float]
    gpu: str | None = None
    gpu_memory: int = 0
    gpu_speeds: tuple[float, float] = (0.0, 0.0)

    @property
    def device(self) -> str:
        """Where models will be measured, in words."""
        return self.gpu or f"the CPU ({self.cores} cores)"


def this_machine(results: Path) -> Machine:
    """Look at this machine; takes a fifth of a second."""
    gpu = _gpu()
    return Machine(
        cores=os.cpu_count() or 1,
        memory=psutil.virtual_memory().available,
        disk=_free(results),
        cache_disk=_free(hub_cache()),
        cpu_speeds=cpu_speeds(),
        gpu=gpu[0] if gpu else None,
        gpu_memory=gpu[1] if gpu else 0,
        gpu_speeds=speeds_of_gpu(gpu[0]) if gpu else (0.0, 0.0),
    )


def cpu_speeds() -> tuple[float, float]:
    """Float32 and float64 operations a second of this processor, at a matrix product just now."""
    return _speed(np.float32), _speed(np.float64)


def speeds_of_gpu(name: str) -> tuple[float, float]:
    """Float32 and float64 operations a second, by the device's name."""
    return next((speeds for part, speeds in _GPU_SPEEDS.items() if part in name), _OTHER_GPU)


def hub_cache() -> Path:
    """Where huggingface_hub keeps downloads."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or home / "hub")


def _free(folder: Path) -> int:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def _speed(dtype: type) -> float:
    matrix: np.ndarray = np.ones((_PRODUCT, _PRODUCT), dtype=dtype)
    best = min(_timed(matrix) for _ in range(_REPETITIONS))
    return 2.0 * _PRODUCT**3 / best


def _timed(matrix: np.ndarray) -> float:
    started = time.perf_counter()
    np.dot(matrix, matrix)
    return time.perf_counter() - started


def _gpu() -> tuple[str, int] | None:
    """Name and free memory of the first NVIDIA GPU."""
    command = ["nvidia-smi", "--query-gpu=name,memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        name, free = answer.splitlines()[0].rsplit(",", 1)
        return name.strip(), int(free) * 2**20
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None
