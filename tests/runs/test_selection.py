"""What a build is about: names of models, of folders and of jobs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from anisotropy.errors import UserError
from anisotropy.runs.project import Project
from anisotropy.runs.selection import build_name, file_name, prepare, read_selection, split_models

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, tiny_run, monkeypatch) -> Project:
    """This project's experiments on folders of checkpoints ``a/run``, ``b/run`` and ``tiny-pythia``."""
    root = tmp_path / "project"
    root.mkdir()
    for name in ("experiments.yml", "notebooks"):
        (root / name).symlink_to(ROOT / name)
    for folder in ("a/run", "b/run", "tiny-pythia"):
        shutil.copytree(tiny_run[0], root / folder)
        (root / folder / "index.json").unlink()
    monkeypatch.chdir(root)
    return Project(root)


def test_models_are_given_one_by_one_or_with_commas_and_named_from_the_project(project, monkeypatch):
    root = project.root
    given = ["mini-pythia,owner/name", "a/run", f"{root}/b/run/", "mini-pythia", "mini-pythia@2"]
    assert split_models(given, root) == ["mini-pythia", "owner/name", "a/run", "b/run", "mini-pythia@2"]
    monkeypatch.chdir(root / "a")
    assert split_models(["run", "../b/run"], root) == ["a/run", "b/run"]
    monkeypatch.setenv("HOME", str(root))
    assert split_models(["~/a/run"], root) == ["a/run"]


def test_a_folder_that_bears_the_name_of_a_model_stays_a_folder(project):
    assert split_models(["./tiny-pythia"], project.root) == [str(project.root / "tiny-pythia")]
    assert split_models(["tiny-pythia"], project.root) == ["tiny-pythia"]


def test_folders_elsewhere_and_with_commas(project, tmp_path):
    other = tmp_path / "runs, all"
    other.mkdir()
    assert split_models([str(other)], project.root) == [str(other)]


def test_a_typo_is_answered_with_the_nearest(project):
    with pytest.raises(UserError, match=r"unknown model 'mini-pyhtia': did you mean mini-pythia"):
        split_models(["tiny-pythia,mini-pyhtia"], project.root)


def test_names_of_files_are_readable_and_never_shared():
    assert file_name("mini-pythia@1") == "mini-pythia@1"
    names = [
        file_name(*models)
        for models in (
            ["a/run"],
            ["b/run"],
            ["/x/a/run"],
            ["run"],
            ["a run"],
            ["owner/name"],
            ["owner--name"],
            ["x", "y"],
            ["y", "x"],
            ["x+y"],
            [f"model-{number}" for number in range(40)],
        )
    ]
    assert len(set(names)) == len(names)
    for name in names:
        assert set("/ '\"$~") & set(name) == set()
        assert len(name) < 64
    assert build_name("smoke") == "smoke"
    assert build_name("smoke", ["mini-pythia"]) == "smoke--mini-pythia"


def test_a_build_is_noted_for_its_jobs(project):
    made = prepare(project, "smoke", ["a/run", "b/run"], "checkpoint")
    noted = read_selection(project, made.name)
    assert noted == made
    assert list(noted.steps) == ["a/run", "b/run"]
    assert list(noted.steps["a/run"]) == [0, 1, 2, 4, 8, 16, 32]
    chosen = noted.chosen(project)
    assert chosen.all_models() == ["a/run", "b/run"]
    assert chosen.notebooks["frequency-variance"]["controls"] == []
    assert "models" not in chosen.notebooks["covertype"]


def test_a_checkpoint_that_is_written_again_is_seen(project):
    before = prepare(project, "smoke", ["a/run"]).steps["a/run"]
    file = next((project.root / "a" / "run" / "step-000008").glob("*.safetensors"))
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 10**9))
    after = prepare(project, "smoke", ["a/run"]).steps["a/run"]
    assert [step for step in before if before[step] != after[step]] == [8]


def test_miniatures_have_their_checkpoints_before_they_are_trained(project):
    selection = prepare(project, "smoke", unit="checkpoint")
    assert list(selection.steps["tiny-eurobert"]) == [0, 1, 2, 4, 8, 16, 32, 64]


def test_what_cannot_be_known_is_said_in_a_sentence(project):
    with pytest.raises(UserError, match="no such build"):
        read_selection(project, "smoke")
    (project.root / "empty").mkdir()
    with pytest.raises(UserError, match="holds no checkpoint"):
        prepare(project, "smoke", ["empty"])
    with pytest.raises(UserError, match="some/model is not in the cache, and the hub is switched off"):
        prepare(project, "smoke", ["some/model"], "checkpoint")
