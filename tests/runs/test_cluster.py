"""What a SLURM profile is told; a real one is started by `make test-cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anisotropy.errors import UserError
from anisotropy.runs.cluster import slurm_options
from anisotropy.runs.project import Project
from anisotropy.runs.workflow import profile_folder, read_profile

ROOT = Path(__file__).parents[2]
PROFILE = read_profile(ROOT / "workflow" / "profiles" / "slurm")


def command(folder: Path, name: str, output: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{output}'\n")
    file.chmod(0o755)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A machine with SLURM's commands, of a site that keeps accounts."""
    command(tmp_path, "sbatch", "")
    command(tmp_path, "scontrol", "AccountingStorageType   = accounting_storage/slurmdbd")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def values(options: list[str], option: str) -> list[str]:
    rest = options[options.index(option) + 1 :]
    return rest[: next((n for n, word in enumerate(rest) if word.startswith("--")), len(rest))]


def test_what_is_asked_stands_beside_what_the_profile_says(slurm):
    asked = {"partition": "gpu", "account": "me", "gpus": 2, "memory": 32, "hours": 1.5, "cpus": None}
    options = slurm_options(PROFILE, asked)
    assert set(values(options, "--default-resources")) == {
        "slurm_partition=gpu",
        "slurm_account=me",
        "mem_mb=32000",
        "runtime=90",
    }
    assert values(options, "--set-resources") == ["measure:gpu=2"]
    assert "--set-threads" not in options
    assert "--slurm-status-command" not in options


def test_without_wishes_the_profile_decides(slurm):
    options = slurm_options(PROFILE, {"partition": None, "gpus": None})
    assert set(values(options, "--default-resources")) == {"mem_mb=16000", "runtime=240"}
    assert "--set-resources" not in options
    assert values(slurm_options(PROFILE, {"cpus": 8}), "--set-threads") == ["pretrain=8", "measure=8", "notebook=8"]


def test_a_site_without_accounts_is_asked_by_squeue(slurm):
    command(slurm, "scontrol", "AccountingStorageType   = accounting_storage/none")
    assert values(slurm_options(PROFILE, {}), "--slurm-status-command") == ["squeue"]


def test_no_slurm_or_none_that_answers(slurm, monkeypatch):
    (slurm / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UserError, match="SLURM does not answer"):
        slurm_options(PROFILE, {})
    (slurm / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(slurm))
    with pytest.raises(UserError, match="no command sbatch"):
        slurm_options(PROFILE, {})


def test_options_of_slurm_need_its_profile():
    local = read_profile(ROOT / "workflow" / "profiles" / "local")
    assert slurm_options(local, {"partition": None}) == []
    with pytest.raises(UserError, match="--gpus is an option of SLURM jobs: it needs --profile slurm"):
        slurm_options(local, {"partition": None, "gpus": 1})


def test_profiles_by_name_or_folder(tmp_path):
    project = Project(ROOT)
    assert profile_folder(project, "local") == ROOT / "workflow" / "profiles" / "local"
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    assert profile_folder(project, str(tmp_path)) == tmp_path
    with pytest.raises(UserError, match="unknown profile 'slrum': profiles are local, slurm, or a folder"):
        profile_folder(project, "slrum")
    (tmp_path / "config.yaml").write_text("executor: no-such\n")
    with pytest.raises(UserError, match=r"needs snakemake-executor-plugin-no-such, .*anisotropy\[cluster\]"):
        profile_folder(project, str(tmp_path))
    for content, message in (("a: [", "is not YAML"), ("- a\n", "must hold a mapping")):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(UserError, match=message):
            profile_folder(project, str(tmp_path))
