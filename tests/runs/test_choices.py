"""One choice changed at a time: a real notebook, executed with each value, its verdicts gathered."""

from __future__ import annotations

import nbformat
import pytest
from click.testing import CliRunner

from anisotropy.cli import main
from anisotropy.errors import UserError
from anisotropy.report.choices import change_table, read_choices
from anisotropy.runs.choices import alternatives, make_choices, parameter_rows
from anisotropy.runs.experiments import load_experiments
from anisotropy.runs.project import Project
from anisotropy.runs.scorecard import chosen_set

EXPERIMENTS = """
chapters: {{page: {{}}}}
sets:
  small: {{about: a, notebooks: {{page: {{models: [tiny-pythia], shift: 0.5}}}}}}
choices:
  set: small
  models: [tiny-pythia]
  alternatives: {alternatives}
"""
PARAMETERS = """# catalogue names
models: list[str] = ["tiny-pythia"]
# where the estimate lies
shift: float = 0.0
"""
CODE = """from anisotropy.report.scorecard import Outcome, Verdict, show_verdicts
from anisotropy.runs.session import Page

page = Page()
outcome = Outcome.HOLDS if shift > 0 else Outcome.FAILS
verdict = Verdict("C1", "tiny-pythia", "one", outcome, "why", shift)
show_verdicts([verdict], {"tiny-pythia": "tiny-Pythia"}, "c", "i")
"""
END = """provenance = page.provenance() | {"corpus": "sotu", "studies": {}}
page.provenance = lambda: provenance
page.finish()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    cells = [nbformat.v4.new_markdown_cell("# The page\n\n## Verdict")]
    cells += [nbformat.v4.new_code_cell(source) for source in (PARAMETERS, CODE, END)]
    cells[1].metadata.tags, cells[3].metadata.tags = ["parameters"], ["sentinel"]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(notebook, tmp_path / "notebooks" / "page.ipynb")
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def vary(project, alternatives):
    (project.root / "experiments.yml").write_text(EXPERIMENTS.format(alternatives=alternatives))
    return load_experiments(project.root)


def test_each_value_is_executed_once_and_its_verdicts_are_kept(project):
    vary(project, "{page: {shift: [-0.5]}}")
    lines = []
    made = make_choices(project, lines.append)
    assert lines == ["page (1 of 2)", "page, shift -0.5 (2 of 2)"]
    (row,) = change_table(made).to_dict("records")
    assert row["was"] == "0.5"
    assert row["which"] == ["C1, tiny-Pythia, one: holds at +0.50 → fails at −0.50"]
    done = CliRunner().invoke(main, ["choices", "-o", "choices.json"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(str(project.root / "choices.json"))  # nothing is executed again
    assert read_choices(project.root / "choices.json").base.keys() == {"page"}
    (looked_up,) = parameter_rows(chosen_set(project, "small"), {}, made).to_dict("records") or [None]
    assert looked_up is None


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ("{page: {shift: [0.5]}}", "choices: page, shift: 0.5 is what the book has"),
        ("{page: {shft: [1.0]}}", "has no parameter 'shft'"),
        ("{page: {shift: [far]}}", "'far' is not of type float"),
        ("{pge: {shift: [1.0]}}", "choices name 'pge', which is not in the set 'small'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(project, others, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        alternatives(project, vary(project, others))


def test_without_choices_there_is_nothing_to_vary(project):
    vary(project, "{page: {shift: [1.0]}}")
    text = (project.root / "experiments.yml").read_text().split("choices:")[0]
    (project.root / "experiments.yml").write_text(text)
    with pytest.raises(UserError, match="lists no choices"):
        make_choices(project)


def test_a_folder_is_no_file(project):
    vary(project, "{page: {}}")
    done = CliRunner().invoke(main, ["choices", "-o", "notebooks"])
    assert done.exit_code == 1
    assert "name a file" in done.output
