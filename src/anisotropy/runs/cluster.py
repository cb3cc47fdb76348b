"""What a SLURM profile asks of Snakemake: partition, account, GPUs, memory and time of the jobs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from anisotropy.errors import UserError

_EXECUTOR = "slurm"
_RULES = ("pretrain", "measure", "notebook")  # of the Snakefile: those whose jobs run on nodes


def slurm_options(settings: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Options of Snakemake for what was asked on the command line, on top of a profile's own settings.

    Snakemake lets an option replace a profile's whole list of resources, so the list is written out anew.

    Args:
        settings: the profile.
        asked: ``partition``, ``account``, ``cpus``, ``gpus``, ``memory`` (GB) and ``hours``; ``None`` where the profile
            decides.

    Raises:
        UserError: the profile submits nothing to SLURM and something was asked, or there is no SLURM here.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    if settings.get("executor") != _EXECUTOR:
        if given:
            raise UserError(f"--{next(iter(given))} is an option of SLURM jobs: it needs --profile slurm")
        return []
    if shutil.which("sbatch") is None:
        raise UserError("there is no SLURM here (no command sbatch): run this where jobs are submitted")
    resources = dict(settings.get("default-resources") or {})
    for name, (resource, factor) in {
        "partition": ("slurm_partition", None),
        "account": ("slurm_account", None),
        "memory": ("mem_mb", 1000),
        "hours": ("runtime", 60),
    }.items():
        if name in given:
            resources[resource] = given[name] if factor is None else max(1, round(given[name] * factor))
    options = ["--default-resources", *(f"{name}={value}" for name, value in resources.items())] if resources else []
    if "cpus" in given:
        options += ["--set-threads", *(f"{rule}={given['cpus']}" for rule in _RULES)]
    if "gpus" in given:
        of_rules = {rule: dict(of_rule) for rule, of_rule in (settings.get("set-resources") or {}).items()}
        of_rules.setdefault("measure", {})["gpu"] = given["gpus"]
        values = [f"{rule}:{name}={value}" for rule, of_rule in of_rules.items() for name, value in of_rule.items()]
        options += ["--set-resources", *values]
    if "slurm-status-command" not in settings and not _keeps_accounts():
        options += ["--slurm-status-command", "squeue"]
    return options


def _keeps_accounts() -> bool:
    """Whether SLURM writes an accounting database; without one, its command `sacct` never answers."""
    try:
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        raise UserError("SLURM does not answer (`scontrol show config`): is its controller running?") from None
    kept = next((line for line in shown.stdout.splitlines() if line.startswith("AccountingStorageType")), "")
    return "slurmdbd" in kept
