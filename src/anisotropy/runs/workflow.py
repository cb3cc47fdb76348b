"""Drive Snakemake so that a killed run never has to be cleaned up by hand."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from typing import NoReturn

from anisotropy.errors import UserError
from anisotropy.files import make_folder
from anisotropy.runs.project import Project

_PROFILE = "workflow/profiles/local"


def drive(project: Project, set_name: str, dry_run: bool = False) -> NoReturn:
    """Become the Snakemake run of a set; its exit code is this process's.

    A second call waits until the first has ended. The lock is ours: it is freed when the process that holds it dies,
    which Snakemake's own lock is not.

    Raises:
        UserError: Snakemake is not installed.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise UserError("Snakemake is not installed: `pip install 'anisotropy[book]'`, or use `make book`")
    command = [
        sys.executable,
        *("-m", "snakemake", "--nolock", "--rerun-incomplete"),
        *("--workflow-profile", str(project.root / _PROFILE)),
        *("--config", f"set={set_name}"),
        *(["--dry-run"] if dry_run else []),
    ]
    lock = os.open(make_folder(project.build) / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another build is running here; waiting for it", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    os.chdir(project.root)
    commands = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    os.execve(sys.executable, command, os.environ | {"PATH": commands})
