"""Exercises: each has a solution, and each solution ran with the page and checked itself."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from anisotropy.runs.experiments import load_experiments

ROOT = Path(__file__).parents[2]
CHAPTERS = [name for name, chapter in load_experiments(ROOT).chapters.items() if not chapter.summary]
EXERCISE = re.compile(r"^`{3,}\{exercise\}.*?^:label: ([\w-]+)$", re.M | re.S)
START = re.compile(r"^`{3,}\{solution-start\} ([\w-]+)$", re.M)
END = re.compile(r"^`{3,}\{solution-end\}$", re.M)


def solutions(notebook: nbformat.NotebookNode) -> dict[str, list[nbformat.NotebookNode]]:
    """The code cells of each solution, by the exercise's label."""
    found: dict[str, list[nbformat.NotebookNode]] = {}
    label = None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if label is not None:
                found[label].append(cell)
            continue
        if END.search(cell.source):
            label = None
        if begun := START.search(cell.source):
            label = begun[1]
            found[label] = []
    assert label is None, f"the solution of {label} has no end"
    return found


@pytest.fixture(params=CHAPTERS)
def chapter(request) -> Path:
    return ROOT / "notebooks" / f"{request.param}.ipynb"


def test_a_chapter_has_at_least_three_exercises_each_solved(chapter):
    notebook = nbformat.read(chapter, as_version=4)
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    labels = EXERCISE.findall(text)
    assert len(labels) >= 3
    assert len(set(labels)) == len(labels)
    assert list(solutions(notebook)) == labels


def test_solutions_are_code_that_checks_itself(chapter):
    for label, cells in solutions(nbformat.read(chapter, as_version=4)).items():
        assert cells, label
        assert all("solution" in cell.metadata.get("tags", []) for cell in cells), label
        assert any(re.search(r"^\s*assert ", cell.source, re.M) for cell in cells), label


def test_solutions_ran_with_the_page(chapter, smoke_project):
    executed = smoke_project.build / "executed" / "notebooks" / chapter.name
    for label, cells in solutions(nbformat.read(executed, as_version=4)).items():
        for cell in cells:
            assert cell.execution_count is not None, label
            assert cell.outputs, label
            assert not any(
                output.output_type in {"error", "stream"} and output.get("name") == "stderr" for output in cell.outputs
            )
