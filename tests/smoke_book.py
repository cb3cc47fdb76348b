"""The smallest real book, built once a session in a copy of this project, by the command a reader uses."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anisotropy.runs.site import SHOWN
from anisotropy.studies.results import Key, ResultStore

ROOT = Path(__file__).parents[1]
COPIED = ("src", "book", "notebooks", "workflow", "Snakefile", "experiments.yml", "_config.yml", "_toc.yml", *SHOWN)


@dataclass(frozen=True)
class Project:
    """A copy of the project that runs its own copy of the package."""

    root: Path

    @property
    def build(self) -> Path:
        return self.root / "_build" / "smoke"

    @property
    def site(self) -> Path:
        return self.build / "html"

    @property
    def notebook(self) -> Path:
        return self.build / "executed" / "notebooks" / "frequency-variance.ipynb"

    def environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        # Sums differ in their last bit with the number of threads: every command has those the workflow gives it.
        left_out = ("ANISOTROPY_", "OMP_NUM_THREADS")
        return {name: value for name, value in os.environ.items() if not name.startswith(left_out)} | own

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "anisotropy", *arguments],
            cwd=self.root,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of one command."""
        process = self.start(*arguments)
        output, _ = process.communicate()
        return process.returncode, output

    def planned(self, *more: str) -> dict[str, int]:
        """How many jobs of each rule the next run would do."""
        code, output = self.run("book", "--set", "smoke", "--dry-run", *more)
        assert code == 0, output
        return {
            rule: int(count) for rule, count in re.findall(r"^(pretrain|measure|notebook|site) +(\d+)$", output, re.M)
        }

    def collections(self) -> dict[tuple[str, str], dict[str, np.ndarray]]:
        """Everything measured, by study and key: whatever name a model had when it was measured."""
        store = ResultStore(self.root / "results")
        keys = [Key(**record["key"]) for record in store.records()]
        return {(key.study, key.digest): dict(store.read(key, "", 0).arrays) for key in keys}

    def written(self) -> dict[str, tuple[int, int]]:
        """When each record was written, and its inode: neither changes unless it is measured again."""
        found = [(file, file.stat()) for file in (self.root / "results").glob("*/*/record.json")]
        return {str(file): (stat.st_mtime_ns, stat.st_ino) for file, stat in found}

    def kill_when(self, ready: Callable[[], bool], *arguments: str, within: float = 60) -> None:
        """Start a command and kill it with all its children, without warning, as soon as ``ready`` says so."""
        process = self.start(*arguments)
        deadline = time.monotonic() + within
        while not ready():
            assert process.poll() is None, f"ended before it could be killed: {process.communicate()[0]}"
            assert time.monotonic() < deadline, "never ready"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def assert_equal_collections(one: Project, other: Project) -> None:
    first, second = one.collections(), other.collections()
    assert first
    assert first.keys() == second.keys()
    for place, arrays in first.items():
        assert arrays.keys() == second[place].keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, second[place][name], err_msg=f"{place}, {name}")


def copy_project(target: Path) -> Project:
    target.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*"))
        else:
            shutil.copy(source, target / name)
    return Project(target)
