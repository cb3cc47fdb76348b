"""A notebook's first call and its last."""

from __future__ import annotations

import json
import shutil

import pytest

from anisotropy.errors import UserError
from anisotropy.runs import session as module
from anisotropy.runs.session import Session

PARAMETERS = {"occurrences": 3, "text_tokens": 4096}


@pytest.fixture
def shown(monkeypatch):
    """What a notebook would show, in order; a line that is replaced counts once."""
    lines = []

    class Handle:
        def __init__(self, place):
            self.place = place

        def update(self, thing):
            lines[self.place] = thing.data

    def display(thing, display_id=False, raw=False):
        lines.append(thing["text/markdown"] if raw else thing.data)
        return Handle(len(lines) - 1) if display_id else None

    monkeypatch.setattr(module, "display", display)
    return lines


@pytest.fixture
def here(tiny_run, tmp_path, monkeypatch):
    """A project with a run named tiny-pythia, and another that passes for its shuffled control."""
    folder, _ = tiny_run
    shutil.copytree(folder, tmp_path / "checkpoints" / "tiny-pythia" / "seed-0")
    shutil.copytree(folder, tmp_path / "checkpoints" / "tiny-pythia-shuffled" / "seed-0")
    (tmp_path / "experiments.yml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_page_from_first_to_last_call(here, small_corpus, shown):
    run = Session(models=["tiny-pythia"], controls=["tiny-pythia-shuffled"], checkpoints=3, corpus=str(small_corpus))
    assert run.models == ["tiny-pythia"]
    assert run.controls == {"tiny-pythia": "tiny-pythia-shuffled"}
    assert run.titles() == {"tiny-pythia": "tiny-Pythia", "tiny-pythia-shuffled": "tiny-Pythia, shuffled labels"}
    assert run.overview()["role"].tolist() == ["causal", "control"]
    collections = run.collect("frequency", **PARAMETERS)
    assert [collection.step for collection in collections["tiny-pythia"]] == [0, 4, 32]
    assert [collection.step for collection in collections["tiny-pythia-shuffled"]] == [0, 1, 2, 4, 8, 16, 32]
    assert "10 checkpoints of 2 models" in shown[0]
    assert len(shown) == 1
    training = run.training()
    assert training.groupby("model").size().tolist() == [7, 7]
    assert (training.groupby("model")["unigram"].nunique() == 1).all()
    sizes = run.vocabulary("tiny-pythia")
    assert 0 < sizes["never seen"] < sizes["vocabulary size"]
    run.finish()
    assert "| tiny-Pythia | causal | 3 (0 … 32) | 0 | cpu |" in shown[-1]
    assert f"Corpus `{small_corpus}`; weights in float32." in shown[-1]
    about = run.provenance()
    assert [(one["model"], one["training_seed"], one["control"]) for one in about["models"]] == [
        ("tiny-pythia", 0, False),
        ("tiny-pythia-shuffled", 0, True),
    ]
    assert about["models"][0]["steps"] == [0, 4, 32]
    assert set(about["studies"]) == {"frequency"}
    json.dumps(about)


def test_folders_of_one_name_are_told_apart(here, tiny_run):
    for folder in ("a/x/run", "b/x/run", "x/run", "own"):
        shutil.copytree(tiny_run[0], here / folder)
    run = Session(models=["a/x/run", "b/x/run", "own"])
    assert run.titles() == {"a/x/run": "a/x/run", "b/x/run": "b/x/run", "own": "own"}
    assert Session(models=["a/x/run", "own"]).titles() == {"a/x/run": "run", "own": "own"}
    titles = Session(models=["a/x/run", "x/run"]).titles()
    assert titles == {"a/x/run": "a/x/run", "x/run": "x/run"}


def test_tokens_are_readable(here, small_corpus, shown):
    run = Session(models=["tiny-pythia"], corpus=str(small_corpus))
    tokenizer = run._sources["tiny-pythia"].tokenizer()
    ids = [tokenizer.convert_tokens_to_ids(piece) for piece in ("a", "Ġ", "Ċ", "Ã")]
    assert run.token_text("tiny-pythia", ids) == ["a", "␣", "↵", "\\xc3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": []}, "at least one is needed"),
        ({"models": ["tiny-pyhtia"]}, "did you mean tiny-pythia"),
        ({"models": ["tiny-pythia", "tiny-pythia"]}, "listed twice"),
        ({"models": ["mini-pythia"]}, r"run `anisotropy pretrain mini-pythia` \(about 2.5 minutes"),
        ({"models": ["tiny-pythia"], "controls": ["tiny-eurobert"]}, "is no shuffled-label run"),
        ({"models": ["tiny-pythia"], "controls": ["mini-pythia-shuffled"]}, "which is not among the models"),
    ],
)
def test_mistakes_stop_the_page_in_one_line(here, arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        Session(**arguments)
    (line,) = caught.value._render_traceback_()
    assert line == f"anisotropy: {caught.value}"
    assert "\n" not in line


def test_results_of_models_that_are_not_here_are_found(here, small_corpus, shown):
    run = Session(models=["tiny-pythia"], checkpoints=1, corpus=str(small_corpus))
    run.collect("frequency", **PARAMETERS)
    assert run.kept("frequency", **PARAMETERS) == {}
    elsewhere = Session(models=["tiny-pythia-shuffled"], corpus=str(small_corpus))
    assert [one.step for one in elsewhere.kept("frequency", **PARAMETERS)["tiny-pythia"]] == [32]
    assert elsewhere.kept("frequency", occurrences=7) == {}


def test_a_summary_over_seeds_has_a_title_even_if_only_one_seed_is_here(here, tiny_run):
    shutil.copytree(tiny_run[0], here / "checkpoints" / "tiny-pythia" / "seed-1")
    titles = Session(models=["tiny-pythia@1"]).titles()
    assert titles == {"tiny-pythia": "tiny-Pythia", "tiny-pythia@1": "tiny-Pythia, seed 1"}
