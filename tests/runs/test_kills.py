"""Kills at random moments of a sweep: nothing that was measured is lost, and the values are those of a quiet run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from smoke_book import Project, assert_equal_collections, copy_project

SWEEP = ("sweep", "--set", "killed")
KILLS = 20
# Studies that take little time per checkpoint: kills then come at every stage, not only in the longest.
NOTEBOOKS = ("frequency-variance", "tangent-alignment", "embedding-updates")


def small_project(folder: Path) -> Project:
    """A copy of this project with one more set: three notebooks of the smoke book."""
    project = copy_project(folder)
    file = project.root / "experiments.yml"
    experiments = yaml.safe_load(file.read_text(encoding="utf-8"))
    notebooks = {name: experiments["sets"]["smoke"]["notebooks"][name] for name in NOTEBOOKS}
    experiments["sets"]["killed"] = {"about": "three pages, to be killed", "notebooks": notebooks}
    file.write_text(yaml.safe_dump(experiments), encoding="utf-8")
    return project


def group(leader: int) -> list[int]:
    """Processes that a command has started, itself among them, whether their parents live or not."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return sorted(pid for pid, pgid in pairs if pgid == leader)


def abandoned(project: Project) -> list[Path]:
    return list((project.root / "results").rglob(".owner"))


def take_away(project: Project, records: Iterable[Path]) -> None:
    """Remove some collections, and the stamps that say they are there."""
    for record in records:
        shutil.rmtree(record.parent)
    shutil.rmtree(project.root / "_build" / "killed" / "stamps", ignore_errors=True)


@pytest.mark.slow
def test_twenty_kills_of_a_sweep_lose_nothing_that_was_measured(tmp_path):
    """Every other time all its processes at once, else a single one: the driver, a job, or what a job started."""
    quiet = small_project(tmp_path / "quiet")
    started = time.monotonic()
    code, output = quiet.run(*SWEEP)
    assert code == 0, output
    seconds = time.monotonic() - started
    project = small_project(tmp_path / "project")
    moments = random.Random(0)
    leaders, kills, interrupted = [], 0, 0
    while kills < KILLS:
        before = project.written()
        process = project.start(*SWEEP)
        leaders.append(process.pid)
        # A sweep needs some ten seconds to its first collection; most kills should come after that.
        end = time.monotonic() + moments.uniform(4, max(30, seconds / 3))
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is None:
            if kills % 2 == 0:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                os.kill(moments.choice(group(process.pid)), signal.SIGKILL)
            kills += 1
            process.wait()
        elif process.returncode == 0:
            before = project.written()
            take_away(project, [Path(file) for file in sorted(before)[::2]])
            before = {file: when for file, when in before.items() if Path(file).exists()}
        assert process.stdout is not None
        process.stdout.close()
        after = project.written()
        assert {file: after.get(file) for file in before} == before
        interrupted += len(after) > len(before)
        print(
            f"{time.monotonic() - started:5.0f} s: {kills} kills, {len(before)} → {len(after)} collections", flush=True
        )
    assert interrupted >= 5, "too few kills came while something was measured"
    code, output = project.run(*SWEEP)
    assert code == 0, output
    while any(group(leader) for leader in leaders):  # a job whose driver was killed goes on to its end
        time.sleep(0.1)
    assert_equal_collections(project, quiet)
    # What a kill left beside a study's results is gone with the next collection of that study.
    before = project.written()
    take_away(project, {Path(file).parents[1]: Path(file) for file in before}.values())
    left = project.written()
    code, output = project.run(*SWEEP)
    assert code == 0, output
    after = project.written()
    assert after.keys() == before.keys()
    assert {file: after[file] for file in left} == left
    assert abandoned(project) == []
