"""The command line: quick answers, one-line errors, exit codes that mean what they say."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from anisotropy.cli import main


@pytest.fixture
def here(tiny_run, tmp_path, monkeypatch):
    folder, _ = tiny_run
    shutil.copytree(folder, tmp_path / "checkpoints" / "tiny-pythia" / "seed-0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(main, list(arguments))


COMMANDS = [
    "models",
    "pretrain",
    "measure",
    "run",
    "site",
    "publish",
    "book",
    "results",
    "results list",
    "results export",
]


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that cannot import torch."""
    code = "import sys; sys.modules['torch'] = None; from anisotropy.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_needs_no_torch(command):
    found = without_torch(*command.split(), "--help")
    assert found.returncode == 0, found.stderr
    assert "Usage:" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "mini-pyhtia"], "did you mean mini-pythia"),
        (["pretrain", "pythia-160m"], "is not a miniature"),
        (["measure", "--model", "mini-pyhtia"], "did you mean mini-pythia"),
        (["measure", "--model", "mini-pythia", "--studies", "frequency", "--set", "smoke"], "exclude each other"),
        (["run", "missing.ipynb"], "no such notebook"),
        (["book", "--set", "smoek"], "did you mean 'smoke'"),
        (["publish", "site", "--set", "smoek"], "did you mean 'smoke'"),
    ],
)
def test_arguments_are_checked_without_torch(arguments, message):
    found = without_torch(*arguments)
    assert found.returncode == 1
    assert found.stdout == ""
    assert message in found.stderr
    assert found.stderr.startswith("anisotropy: ")
    assert found.stderr.count("\n") == 1


def test_models_lists_every_name_and_what_is_here(here):
    found = call("models")
    assert found.exit_code == 0
    lines = {line.split()[0]: line for line in found.output.splitlines()}
    assert "pretrained, 7 checkpoints" in lines["tiny-pythia"]
    assert "not yet: `anisotropy pretrain mini-pythia`" in lines["mini-pythia"]
    assert "EleutherAI/pythia-160m" in lines["pythia-160m"]
    assert "unconfirmed: branch" in lines["eurobert-210m"]


def test_measure_says_what_it_did_and_does_it_once(here, small_corpus):
    arguments = ["measure", "-m", "tiny-pythia", "--checkpoint", "32", "--corpus", str(small_corpus)]
    arguments += ["--studies", "frequency"]
    first, second = call(*arguments), call(*arguments)
    assert first.exit_code == second.exit_code == 0, first.output
    assert "1 checkpoints (1 measured now)" in first.output
    assert "1 checkpoints (0 measured now)" in second.output
    listed = call("results", "list")
    assert "frequency" in listed.output
    assert "step 32" in listed.output
    assert "1 collections" in call("results", "export", "all.tar").output
    shutil.rmtree("results")
    assert "1 new collections, 0 were here already" in call("results", "import", "all.tar").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "-m", "tiny-pythia", "--checkpoint", "3"], "has no checkpoint 3"),
        (["measure", "-m", "tiny-pythia", "--corpus", "nowhere"], "no such file or folder"),
        (["measure", "-m", "tiny-pythia", "--device", "gpu"], "device 'gpu' cannot be used here"),
        (["measure", "-m", "tiny-pythia", "--studies", "frequence"], "unknown study"),
        (["measure", "-m", "mini-pythia"], "run `anisotropy pretrain mini-pythia`"),
        (["pretrain", "tiny-pythia", "--corpus", "empty.txt"], "holds no text"),
        (["results", "export", "all.tar"], "nothing to export"),
        (["results", "import", "nowhere.tar"], "no such file"),
        (["site"], "no experiments.yml"),
    ],
)
def test_mistakes_take_one_line_and_leave_nothing_behind(here, arguments, message):
    (here / "empty.txt").touch()
    found = call(*arguments)
    assert found.exit_code == 1
    assert message in found.output
    assert found.output.count("\n") == 1
    assert not list(here.glob("results/*/*"))
    assert not (here / "all.tar").exists()


def test_results_that_cannot_be_written(here, monkeypatch, small_corpus):
    (here / "file").touch()
    monkeypatch.setenv("ANISOTROPY_RESULTS", str(here / "file" / "results"))
    found = call("measure", "-m", "tiny-pythia", "--checkpoint", "0", "--corpus", str(small_corpus))
    assert found.exit_code == 1
    assert "cannot write to" in found.output
    assert found.output.count("\n") == 1
