"""From a fresh copy of the project to a book: what runs, what runs again, and what survives a kill."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import numpy as np
import pytest
from smoke_book import Project, copy_project

from anisotropy.errors import UserError
from anisotropy.runs.project import find_project
from anisotropy.runs.workflow import drive
from anisotropy.studies.results import Key, ResultStore


@contextmanager
def changed(file: Path, old: str, new: str) -> Iterator[None]:
    before = file.read_text(encoding="utf-8")
    assert old in before
    file.write_text(before.replace(old, new, 1), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(before, encoding="utf-8")


def values(project: Project, study: str | None = None) -> dict[tuple[str, str, int], dict[str, np.ndarray]]:
    """Everything measured, by study, model and step; times and dates are no values."""
    store = ResultStore(project.root / "results")
    return {
        (record["key"]["study"], record["model"], record["step"]): dict(store.read(Key(**record["key"]), "", 0).arrays)
        for record in store.records()
        if study in (None, record["key"]["study"])
    }


def assert_same_values(one: Project, other: Project) -> None:
    first, second = values(one), values(other)
    assert first
    assert first.keys() == second.keys()
    for place, arrays in first.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, second[place][name], err_msg=f"{place}, {name}")


def shown(path: Path) -> list[str]:
    """What an executed notebook shows, but for the lines that name times and dates."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells[:-1] for output in cell.outputs]
    texts = [str(output.get("data", output.get("text"))) for output in outputs]
    return [text for text in texts if "read from `results/`" not in text]


@pytest.fixture
def scratch(smoke_project, tmp_path) -> Project:
    """A copy with the checkpoints of the smoke book, and nothing measured."""
    project = copy_project(tmp_path / "project")
    shutil.copytree(smoke_project.root / "checkpoints", project.root / "checkpoints")
    return project


def test_the_book_is_there_and_nothing_is_left_to_do(smoke_project):
    assert (smoke_project.site / "index.html").is_file()
    assert (smoke_project.site / "notebooks" / "frequency-variance.html").is_file()
    steps = [0, 1, 2, 4, 8, 16, 32, 64]
    models = ("tiny-pythia", "tiny-eurobert", "tiny-pythia-shuffled")
    # Before its first step the control is the same model: the same weights are measured once, under either name.
    found = {(model, step) for _, model, step in values(smoke_project, "frequency")}
    measured = found - {("tiny-pythia-shuffled", 0)}
    assert measured | {("tiny-pythia", 0)} == {
        (model, step) for model in models for step in steps if (model, step) != ("tiny-pythia-shuffled", 0)
    }
    before = smoke_project.notebook.stat().st_mtime_ns
    code, output = smoke_project.run("book", "--set", "smoke")
    assert code == 0, output
    assert "Nothing to be done" in output
    assert smoke_project.notebook.stat().st_mtime_ns == before


def test_the_notebook_measured_nothing_that_the_workflow_had_not(smoke_project):
    text = smoke_project.notebook.read_text(encoding="utf-8")
    assert "24 checkpoints of 3 models: 24 read from `results/`, 0 measured now" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "jobs"),
    [
        ("book/notation.md", "One letter", "A letter", {"site": 1}),
        ("notebooks/frequency-variance.ipynb", "You will learn", "You learn", {"notebook": 6, "site": 1}),
        ("src/anisotropy/report/figures.py", '"#0072B2"', '"#0072B3"', {"notebook": 16, "site": 1}),
        ("experiments.yml", "occurrences: 4", "occurrences: 5", {"measure": 3, "notebook": 13, "site": 1}),
        (
            "src/anisotropy/studies/course.py",
            "gaps / 2",
            "gaps / 2.0",
            {"measure": 3, "notebook": 13, "site": 1},
        ),
        (
            "src/anisotropy/models/catalogue.yml",
            "batch_size: 16",
            "batch_size: 8",
            {"pretrain": 3, "measure": 3, "notebook": 13, "site": 1},
        ),
    ],
    ids=["prose", "notebook", "figure style", "parameter", "study", "recipe"],
)
def test_a_change_redoes_what_depends_on_it_and_no_more(smoke_project, file, old, new, jobs):
    with changed(smoke_project.root / file, old, new):
        assert smoke_project.planned() == jobs
    (smoke_project.root / file).touch()


def test_prose_is_rendered_without_running_anything_else(smoke_project):
    before = smoke_project.notebook.stat().st_mtime_ns
    for title in ("Signs", "Notation"):
        page = smoke_project.root / "book" / "notation.md"
        page.write_text(f"# {title}\n" + page.read_text(encoding="utf-8").split("\n", 1)[1], encoding="utf-8")
        code, output = smoke_project.run("book", "--set", "smoke")
        assert code == 0, output
        assert title in (smoke_project.site / "book" / "notation.html").read_text(encoding="utf-8")
    assert smoke_project.notebook.stat().st_mtime_ns == before


def test_a_broken_notebook_then_a_broken_link_fail_every_time(smoke_project):
    for file, old, new, message in (
        ("notebooks/frequency-variance.ipynb", "titles = run.titles()", "titles = run.tilets()", "tilets"),
        ("book/run-it.md", "# Run it on your model", "# Run it\\n\\n{doc}`nowhere`", "nowhere"),
    ):
        with changed(smoke_project.root / file, old, new.replace("\\n", "\n")):
            for _ in range(2):
                code, output = smoke_project.run("book", "--set", "smoke")
                assert code != 0
                assert message in output
    code, output = smoke_project.run("book", "--set", "smoke")
    assert code == 0, output
    assert (smoke_project.site / "index.html").is_file()


def test_other_models_make_a_book_of_their_own(smoke_project):
    before = smoke_project.notebook.stat().st_mtime_ns
    on = ("book", "--set", "smoke", "--models", "tiny-eurobert")
    assert smoke_project.planned("--models", "tiny-eurobert") == {"measure": 1, "notebook": 16, "site": 1}
    code, output = smoke_project.run(*on, "--where")
    assert (code, output) == (0, f"{smoke_project.root / '_build' / 'smoke--tiny-eurobert' / 'html'}\n")
    output = (
        smoke_project.root / "_build" / "smoke--tiny-eurobert" / "executed" / "notebooks" / "embedding-updates.ipynb"
    )
    code, text = smoke_project.run(*on, "--", "--until", str(output.relative_to(smoke_project.root)))
    assert code == 0, text
    page = output.read_text(encoding="utf-8")
    assert "8 checkpoints of 1 models: 8 read from `results/`, 0 measured now" in page
    assert "tiny-Pythia" not in page
    assert smoke_project.notebook.stat().st_mtime_ns == before


def test_a_checkpoint_is_a_job_where_jobs_run_elsewhere(smoke_project, tmp_path):
    """On a cluster; here with a profile that runs the same jobs on this machine."""
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    elsewhere = ("--profile", str(tmp_path), "--models", "tiny-pythia")
    # Elsewhere the command of a pretraining writes a log, so it is planned again; it finds everything there.
    assert smoke_project.planned(*elsewhere) == {"pretrain": 2, "measure": 16, "notebook": 16, "site": 1}
    target = f"_build/smoke--tiny-pythia/stamps/measured-tiny-pythia.steps/{8}"
    code, output = smoke_project.run("sweep", "--set", "smoke", *elsewhere, "--", "--until", target)
    assert code == 0, output
    log = smoke_project.root / "_build" / "smoke--tiny-pythia" / "logs" / "measure-tiny-pythia-step-8.log"
    assert "frequency is there for 1 checkpoints (0 measured now)" in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_job_that_fails_elsewhere_shows_the_end_of_its_log(scratch, tmp_path):
    (tmp_path / "config.yaml").write_text("cores: 1\nquiet: [rules, reason, host]\n")
    weights = scratch.root / "checkpoints" / "tiny-pythia" / "seed-0" / "step-000008" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    target = f"_build/smoke--tiny-pythia/stamps/measured-tiny-pythia.steps/{8}"
    elsewhere = ("--profile", str(tmp_path), "--models", "tiny-pythia")
    code, output = scratch.run("sweep", "--set", "smoke", *elsewhere, "--", "--until", target)
    assert code != 0
    assert "measure-tiny-pythia-step-8 did not come to its end" in output
    assert "step-000008 is damaged" in output
    assert "while tiny-pythia was measured at step 8" in output
    assert "the same command again takes up what is missing" in output


def test_a_hub_that_does_not_answer_is_said_before_any_job(smoke_project, tmp_path):
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    arguments = ("sweep", "--set", "smoke", "--models", "some/model", "--profile", str(tmp_path))
    code, output = smoke_project.run(*arguments)
    assert code == 1
    assert output.startswith("anisotropy: some/model is not in the cache")
    assert output.count("\n") == 1


def test_a_killed_measurement_goes_on(scratch, smoke_project):
    folder = scratch.root / "results" / "frequency"
    command = ("measure", "--model", "tiny-pythia", "--set", "smoke")
    scratch.kill_when(lambda: folder.is_dir() and len(list(folder.glob("*/record.json"))) >= 3, *command)
    assert 3 <= len(values(scratch, "frequency")) < 8
    code, output = scratch.run(*command)
    assert code == 0, output
    assert "8 checkpoints (8 measured now)" not in output
    own = values(scratch)
    expected = values(smoke_project)
    studies = {study for study, _, _ in own}
    assert len(own) == 8 * len(studies)
    for study in studies:
        # Before its first step the control is the same model: the same weights are measured once, under either name.
        expected.setdefault((study, "tiny-pythia", 0), expected.get((study, "tiny-pythia-shuffled", 0), {}))
    for place, arrays in own.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[place][name])


def test_a_killed_notebook_leaves_nothing_and_runs_again(smoke_project, tmp_path):
    output = tmp_path / "out" / "frequency-variance.ipynb"
    command = ("run", "notebooks/frequency-variance.ipynb", "--set", "smoke", "--output", str(output))

    def halfway() -> bool:
        return any("0 measured now" in part.read_text() for part in tmp_path.glob("out/.*/*.ipynb"))

    smoke_project.kill_when(halfway, *command)
    assert not output.exists()
    code, text = smoke_project.run(*command)
    assert code == 0, text
    assert shown(output) == shown(smoke_project.notebook)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(smoke_project, tmp_path):
    """Kill the whole build twenty times; what comes out in the end is what an uninterrupted run gives."""
    project = copy_project(tmp_path / "project")
    moments = random.Random(0)
    kills = 0
    while kills < 20:
        process = project.start("book", "--set", "smoke")
        end = time.monotonic() + moments.uniform(2, 16)
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        elif kills < 20:
            # It came to its end before the next kill: take something away so that there is work again.
            shutil.rmtree(project.root / "results")
            shutil.rmtree(project.build / "stamps")
        process.communicate()
    code, output = project.run("book", "--set", "smoke")
    assert code == 0, output
    assert_same_values(project, smoke_project)
    assert shown(project.notebook) == shown(smoke_project.notebook)


def test_a_second_build_waits_for_the_first(smoke_project):
    with (smoke_project.root / "_build" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = smoke_project.start("book", "--set", "smoke", "--dry-run")
        assert process.stdout is not None
        assert "another build is running here; waiting" in process.stdout.readline()
        assert process.poll() is None
    rest, _ = process.communicate()
    assert process.returncode == 0, rest


def test_without_snakemake_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="Snakemake is not installed: `pip install"):
        drive(find_project(tmp_path), "smoke")
