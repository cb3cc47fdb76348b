"""Where things are: the project's folder, and in it checkpoints, results and builds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

EXPERIMENTS = "experiments.yml"


@dataclass(frozen=True)
class Project:
    """Folders of one project; ``ANISOTROPY_CHECKPOINTS`` and ``ANISOTROPY_RESULTS`` relocate two of them."""

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
    def build(self) -> Path:
        """Executed notebooks, the staged book and the site."""
        return self.root / "_build"


def find_project(start: Path | None = None) -> Project:
    """The nearest folder at or above ``start`` that holds ``experiments.yml``; else ``start`` itself."""
    start = (start or Path.cwd()).resolve()
    return Project(next((folder for folder in (start, *start.parents) if (folder / EXPERIMENTS).is_file()), start))
