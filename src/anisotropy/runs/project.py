"""Where things are: the project's folder, and in it checkpoints, results and builds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

EXPERIMENTS = "experiments.yml"


@dataclass(frozen=True)
class Project:
    """Folders of one project and how its models are loaded.

    ``ANISOTROPY_CHECKPOINTS`` and ``ANISOTROPY_RESULTS`` relocate two folders. ``ANISOTROPY_DTYPE`` and
    ``ANISOTROPY_EVICT`` reach every job and notebook of a book or a sweep, wherever it runs.
    """

    root: Path

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the miniatures pretrained here."""
        return Path(os.environ.get("ANISOTROPY_CHECKPOINTS") or self.root / "checkpoints")

    @property
    def results(self) -> Path:
        """Collections measured here."""
        return Path(os.environ.get("ANISOTROPY_RESULTS") or self.root / "results")

    @property
    def dtype(self) -> str:
        """Floating point type in which models are measured."""
        return os.environ.get("ANISOTROPY_DTYPE") or "float32"

    @property
    def evict(self) -> bool:
        """Whether weights leave the hub's cache once they are loaded."""
        return os.environ.get("ANISOTROPY_EVICT", "") not in ("", "0")

    @property
    def build(self) -> Path:
        """Executed notebooks, the staged book and the site."""
        return self.root / "_build"


def find_project(start: Path | None = None) -> Project:
    """The nearest folder at or above ``start`` that holds ``experiments.yml``; else ``start`` itself."""
    start = (start or Path.cwd()).resolve()
    return Project(next((folder for folder in (start, *start.parents) if (folder / EXPERIMENTS).is_file()), start))
