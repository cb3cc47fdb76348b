"""Somebody's own checkpoints, of families that are not in the catalogue, give the whole book with one command."""

from __future__ import annotations

import re

import nbformat
import pytest
from own_checkpoints import masked_by_trainer, written_by_hand, written_by_trainer
from smoke_book import copy_project

from anisotropy.runs.experiments import load_experiments


@pytest.mark.slow
@pytest.mark.parametrize(
    "writers",
    [
        {"runs/mine": written_by_hand},
        {"masked run": masked_by_trainer},
        {"a/run": written_by_trainer, "b/run": written_by_hand, "c": masked_by_trainer},
    ],
    ids=["qwen2", "modernbert", "gpt2, qwen2 and modernbert"],
)
def test_the_whole_book(tmp_path, small_text, writers):
    project = copy_project(tmp_path / "project")
    folders = [write(project.root / name, small_text).relative_to(project.root) for name, write in writers.items()]
    models = [word for folder in folders for word in ("--models", str(folder))]
    code, output = project.run("book", "--set", "smoke", *models)
    assert code == 0, output
    code, where = project.run("book", "--set", "smoke", *models, "--where")
    assert code == 0
    site = where.strip()
    pages = sorted(project.root.glob("_build/*/executed/notebooks/*.ipynb"))
    experiments = load_experiments(project.root)
    assert [page.stem for page in pages] == sorted(experiments.get_set("smoke").notebooks)
    for page in pages:
        assert (project.root / site / "notebooks" / f"{page.stem}.html").is_file()
        if experiments.chapters[page.stem].summary:
            continue  # these show committed results of the miniatures too
        text = "\n".join(
            str(output.get("data", output.get("text", "")))
            for cell in nbformat.read(page, as_version=4).cells
            if cell.cell_type == "code"
            for output in cell.outputs
        )
        assert not re.search(r"mini-Pythia|tiny-Pythia|\bnan\b", text), page.name
    code, output = project.run("book", "--set", "smoke", *models)
    assert "Nothing to be done" in output
