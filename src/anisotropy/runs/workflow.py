"""Drive Snakemake so that a killed run never has to be cleaned up by hand."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

from anisotropy.errors import UserError
from anisotropy.files import make_folder
from anisotropy.runs.cluster import slurm_options
from anisotropy.runs.project import Project
from anisotropy.runs.selection import prepare

LOCAL = "local"
_PROFILES = "workflow/profiles"


def profile_folder(project: Project, profile: str) -> Path:
    """Where a profile is: one of the project's by name, or a folder of the reader's.

    Raises:
        UserError: no such profile, or one whose Snakemake plugin is not installed.
    """
    own = sorted(path.parent.name for path in (project.root / _PROFILES).glob("*/config.yaml"))
    folder = project.root / _PROFILES / profile if profile in own else Path(profile).expanduser().absolute()
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"unknown profile {profile!r}: profiles are {', '.join(own)}, or a folder with a config.yaml of your own"
        )
    executor = str(read_profile(folder).get("executor", LOCAL))
    if (
        executor != LOCAL
        and importlib.util.find_spec(f"snakemake_executor_plugin_{executor.replace('-', '_')}") is None
    ):
        raise UserError(
            f"profile {profile!r} needs snakemake-executor-plugin-{executor}, which is not installed: "
            "`pip install 'anisotropy[cluster]'`"
        )
    return folder


def read_profile(folder: Path) -> dict[str, Any]:
    """A profile's settings.

    Raises:
        UserError: not a YAML mapping.
    """
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{folder / 'config.yaml'} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{folder / 'config.yaml'} must hold a mapping of Snakemake's options")
    return settings


def drive(
    project: Project,
    set_name: str,
    models: Sequence[str] = (),
    *,
    profile: str = LOCAL,
    target: Literal["book", "measurements", "spread"] = "book",
    resources: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> NoReturn:
    """Become the Snakemake run of a set; its exit code is this process's.

    A second call waits until the first has ended. The lock is ours: it is freed when the process that holds it dies,
    which Snakemake's own lock is not.

    Args:
        project: where everything is; this process moves there.
        set_name: a set of ``experiments.yml``.
        models: models that take the place of the set's own.
        profile: where jobs run, see :func:`profile_folder`; elsewhere than here a job is one checkpoint.
        target: the whole book, only what has to be measured for it, or only the verdicts' spread over seeds.
        resources: of SLURM jobs, see :func:`anisotropy.runs.cluster.slurm_options`.
        options: more options of Snakemake.
        config: more settings for the workflow.
        dry_run: only say what would be done.

    Raises:
        UserError: Snakemake or the profile's plugin is not installed, an unknown set, model or profile, a folder
            without checkpoints, a hub that does not answer.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise UserError("Snakemake is not installed: `pip install 'anisotropy[book]'`, or use `make book`")
    folder = profile_folder(project, profile)
    of_slurm = slurm_options(read_profile(folder), resources or {})
    os.chdir(project.root)
    lock = os.open(make_folder(project.build) / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another build is running here; waiting for it", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    selection = prepare(project, set_name, models, "model" if profile == LOCAL else "checkpoint")
    command = [
        *(sys.executable, "-m", "snakemake", target, "--nolock", "--rerun-incomplete"),
        *("--workflow-profile", str(folder)),
        *("--config", f"build={selection.name}", *(f"{name}={value}" for name, value in (config or {}).items())),
        *(["--dry-run"] if dry_run else []),
        *of_slurm,
        *options,
    ]
    commands = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    os.execve(sys.executable, command, os.environ | {"PATH": commands})
