"""A small sweep on a real SLURM, one of whose nodes dies in the middle: `make test-cluster`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import yaml
from local_slurm import NODES, slurm, wait_for, why_not
from smoke_book import assert_equal_collections, copy_project

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(why_not()), reason=why_not() or "")]

SWEEP = ("sweep", "--set", "smoke", "--models", "tiny-pythia,tiny-eurobert")
ON_SLURM = (
    *("--profile", "slurm", "--partition", "main", "--memory", "3", "--cpus", "1", "--hours", "1"),
    *("--", "--slurm-init-seconds-before-status-checks", "5", "--latency-wait", "10"),
)


def test_a_sweep_survives_a_node_and_gives_what_one_machine_gives(tmp_path: Path):
    project = copy_project(tmp_path / "project")
    with slurm(tmp_path / "slurm") as cluster:
        started = time.monotonic()

        def say(line: str) -> None:
            print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

        process = project.start(*SWEEP, *ON_SLURM)
        wait_for("three collections", lambda: len(project.written()) >= 3 or process.poll() is not None, 600)
        wait_for("a job on each node", lambda: all(map(cluster.running, NODES)) or process.poll() is not None, 60)
        assert process.poll() is None, process.communicate()[0]
        before = project.written()
        (lost,) = cluster.running("n1")
        cluster.kill_node("n1")
        say(f"node n1 killed with job {lost}; {len(before)} collections so far")
        wait_for("the controller to miss it", lambda: cluster.states()["n1"].startswith("down"), 120)
        say(f"states {cluster.states()}; job {lost}: {cluster.log(f'JobId={lost} ')[-1]}")
        cluster.start_node("n1")
        wait_for("its return", lambda: cluster.states()["n1"] in ("idle", "alloc", "mix"), 60)
        say(f"node n1 restarted, states {cluster.states()}")
        output, _ = process.communicate()
        say(f"sweep ended with {process.returncode}, {len(project.written())} collections")
        for line in cluster.log("requeue", "Requeue", f"JobId={lost} "):
            print("   ", line)
        assert process.returncode == 0, output
        after = project.written()
        assert {file: after[file] for file in before} == before

        code, output = project.run(*SWEEP, *ON_SLURM)
        assert code == 0, output
        assert "Nothing to be done" in output
        assert project.written() == after
        say("run again: nothing to be done")

    local = copy_project(tmp_path / "local")
    shutil.copytree(project.root / "checkpoints", local.root / "checkpoints")
    code, output = local.run(*SWEEP, "--", "--cores", "1")
    assert code == 0, output
    say("the same on one machine, one thread")
    assert_equal_collections(project, local)


def test_a_job_that_fails_is_named_and_the_others_go_on(tmp_path: Path):
    """One checkpoint is damaged: its job fails and says which, the rest is measured, and a repaired one resumes."""
    project = copy_project(tmp_path / "project")
    experiments = yaml.safe_load((project.root / "experiments.yml").read_text())
    page = {"models": ["tiny-pythia"], "controls": [], "checkpoints": [4, 8, 64], "occurrences": 4, "text_tokens": 8192}
    experiments["sets"] = {"few": {"about": "one page, three checkpoints", "notebooks": {"frequency-variance": page}}}
    (project.root / "experiments.yml").write_text(yaml.safe_dump(experiments))
    code, output = project.run("pretrain", "tiny-pythia")
    assert code == 0, output
    weights = project.root / "checkpoints" / "tiny-pythia" / "seed-0" / "step-000008" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    with slurm(tmp_path / "slurm"):
        sweep = ("sweep", "--set", "few", *ON_SLURM, "--retries", "0")
        code, output = project.run(*sweep)
        print(output[-3000:])
        assert code != 0
        assert "while tiny-pythia was measured at step 8" in output
        assert "step-000008 is damaged" in output
        done = project.written()
        assert len(done) == 2
        weights.write_bytes(whole)
        code, output = project.run(*sweep)
        assert code == 0, output
        after = project.written()
        assert len(after) == 3
        assert {file: after[file] for file in done} == done
