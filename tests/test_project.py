"""The project's own rules: style, types, rooms, and files that have to agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements() -> dict[str, Requirement]:
    extras = PYPROJECT["project"]["optional-dependencies"]
    lines = [*PYPROJECT["project"]["dependencies"], *extras["book"], *extras["cluster"], *extras["dev"]]
    return {canonical(Requirement(line).name): Requirement(line) for line in lines}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        [Path(sys.executable).with_name("lint-imports")],
    ],
    ids=["ruff check", "ruff format", "mypy", "rooms"],
)
def test_the_code_keeps_to_the_rules(command):
    if isinstance(command[0], str):
        command = [sys.executable, "-m", *command]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_conda_users_get_the_same_set():
    names = {"pytorch": "torch"}
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    entries = environment["dependencies"]
    pip = next(entry["pip"] for entry in entries if isinstance(entry, dict))
    lines = [entry for entry in [*entries, *pip] if isinstance(entry, str) and not entry.startswith("-")]
    found = {}
    for line in lines:
        requirement = Requirement(line)
        found[canonical(names.get(requirement.name, requirement.name))] = requirement.specifier
    python = found.pop("python")
    found.pop("pip")
    assert str(python) == PYPROJECT["project"]["requires-python"]
    assert found == {name: requirement.specifier for name, requirement in requirements().items()}
    assert "--editable ." in pip


def test_versions_tested_together_lie_in_the_ranges():
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            pinned[canonical(name)] = version
    for name, requirement in requirements().items():
        assert name in pinned, f"constraints.txt does not pin {name}"
        assert requirement.specifier.contains(pinned[name]), f"{name} {pinned[name]} is not in {requirement.specifier}"
    assert pinned["torch"] == "2.13.0"


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines()]


def test_no_file_names_a_path_of_one_machine():
    pattern = re.compile(r"(^|[^A-Za-z0-9_.])/(w[o]rk|r[o]ot|h[o]me)/")
    text_files = [file for file in tracked_files() if file.suffix not in {".png", ".svg"} and file.is_file()]
    assert text_files
    found = [file for file in text_files if pattern.search(file.read_text(encoding="utf-8"))]
    assert not found


def test_notebooks_are_committed_without_outputs():
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                assert not cell.outputs, path
                assert cell.execution_count is None, path
        assert "papermill" not in json.loads(path.read_text())["metadata"], path
