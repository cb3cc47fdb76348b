"""The commands of the page "Run it on your model" are commands that exist, with options and parameters that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from anisotropy.cli import main
from anisotropy.models.catalogue import parse_name
from anisotropy.models.corpus import load_documents
from anisotropy.runs.experiments import load_experiments
from anisotropy.runs.gate import read_notebook
from anisotropy.runs.parameters import checked, notebook_parameters, parse_assignments

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "run-it.md").read_text(encoding="utf-8")
SETTING = re.compile(r"[A-Z_]+=\S+")


def commands() -> list[list[str]]:
    """Every command in the page's blocks and in its running text, as words; leading settings of variables left out."""
    lines = [
        line
        for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.S)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"`((?:anisotropy|make) [^`…]+)`", PAGE)
    found = []
    for line in lines:
        words = shlex.split(line.strip().lstrip("!"))
        while words and SETTING.fullmatch(words[0]):
            words = words[1:]
        found.append(words)
    return [words for words in found if words]


def of(program: str) -> list[list[str]]:
    return [words[1:] for words in commands() if words[0] == program]


def test_the_page_has_commands_for_every_place():
    programs = {words[0] for words in commands()}
    assert programs == {"make", "anisotropy", "papermill", "python", "pip", "git", "%cd"}
    assert {words[0] for words in of("anisotropy")} == {
        "book",
        "measure",
        "models",
        "plan",
        "pretrain",
        "results",
        "run",
        "sweep",
    }


@pytest.mark.parametrize("words", of("anisotropy"), ids=" ".join)
def test_anisotropy_takes_these_options(words, tmp_path, monkeypatch):
    """Click parses the line without running it; models, sets, notebooks and parameters are looked up."""
    (tmp_path / "path" / "to" / "run").mkdir(parents=True)
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    monkeypatch.chdir(tmp_path)
    command: click.Command = main
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    if not words and any(parameter.required for parameter in command.params):
        return  # a command that is only named
    given = command.make_context(command.name, list(words)).params
    for label in [*(given.get("models") or ()), *(given.get("names") or ())]:
        parse_name(label)
    experiments = load_experiments(ROOT)
    if given.get("set_name"):
        experiments.get_set(given["set_name"])
    if "notebook" in given:
        known = notebook_parameters(read_notebook(given["notebook"]), given["notebook"].name)
        checked(parse_assignments(given["assignments"], known, given["notebook"].name), known, given["notebook"].name)


@pytest.mark.parametrize("words", of("make"), ids=" ".join)
def test_make_has_these_targets(words):
    text = (ROOT / "Makefile").read_text()
    target, *settings = words
    assert re.search(rf"^{target}:", text, flags=re.M), target
    for setting in settings:
        name, value = setting.split("=", 1)
        assert re.search(rf"^{name} \?=", text, flags=re.M), name
        if name == "SET":
            load_experiments(ROOT).get_set(value)


def test_other_programs_are_given_what_exists():
    for words in of("papermill"):
        known = notebook_parameters(read_notebook(ROOT / words[0]), words[0])
        assert all(text.split(":")[0] in known for text in words if ": " in text)
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), flags=re.M)
    for words in of("pip"):
        assert set(re.findall(r"\w+", words[-1])) <= set(extras), words
    for (script,) in of("python"):
        assert (ROOT / script).is_file()


def test_a_folder_of_text_is_read(tmp_path):
    (tmp_path / "one.txt").write_text("some text\n\nmore text")
    assert load_documents(str(tmp_path))


@pytest.mark.parametrize("line", ["plan --set paper --models pythia-160m --offline --json", "models"])
def test_cheap_commands_run(line):
    found = subprocess.run(
        [sys.executable, "-m", "anisotropy", *line.split()], cwd=ROOT, capture_output=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_untested_places_say_so():
    colab = PAGE.split("## On Colab")[1].split("##")[0]
    assert "Untested" in colab
    assert "not on a GPU" in PAGE
