"""What every chapter begins with: learning goals, and how long it runs on which device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anisotropy.runs.experiments import load_experiments

ROOT = Path(__file__).parents[2]
CHAPTERS = [name for name, chapter in load_experiments(ROOT).chapters.items() if not chapter.summary]


def beginning(name: str) -> str:
    """The Markdown cells before the first code cell."""
    text = ""
    for cell in json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "markdown":
            return text
        text += "".join(cell["source"]) + "\n\n"
    return text


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_begins_with_its_goals(name: str):
    goals = re.search(r"^\*\*You will learn\*\*\n\n((?:- .+\n)+)", beginning(name), re.MULTILINE)
    assert goals
    assert 3 <= goals[1].count("\n- ") + 1 <= 5


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_says_how_long_it_runs_on_which_device(name: str):
    (line,) = re.findall(r"^\*\*Run time\*\* on (?:one CPU core|two CPU cores): (.+)$", beginning(name), re.MULTILINE)
    assert re.search(r"\b(?:seconds?|minutes?)\b", line)
    assert "GPU" in line
