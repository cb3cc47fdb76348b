"""What a run will cost before anything runs: download, disk, memory and time of every job; needs neither torch nor hub.

Sizes come from the catalogue and from closed forms; where the hub answers, the files' own sizes and the number of
checkpoints replace the catalogue's. Times are estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.models.folders import expected_minutes
from anisotropy.models.sizes import FLOAT32
from anisotropy.provenance import source_hash
from anisotropy.runs.declared import with_defaults
from anisotropy.runs.experiments import Experiments
from anisotropy.runs.machine import Machine
from anisotropy.runs.measuring import Steps
from anisotropy.runs.project import Project
from anisotropy.runs.subjects import Subject, subject
from anisotropy.studies.costs import cost, seconds
from anisotropy.studies.results import ResultStore

_PROCESS = 700 * 2**20  # Python, torch and the text, as the records of measurements show
_READ_AND_HASH = 4e8  # bytes a second: a checkpoint is read whole and hashed

GPU_WORK = 0.85  # of a GPU's memory: the rest is its driver's and the allocator's


@dataclass(frozen=True)
class Job:
    """One study on the checkpoints of one model.

    Attributes:
        model, study: their names.
        parameters: of the study, all of them.
        checkpoints: how many are asked for.
        done: how many of them are measured and kept already.
        result_bytes: of all that are not.
        memory: of the process on the CPU at its peak, bytes.
        gpu_memory, least_gpu_memory: at the peak where the model is (the CPU, without a GPU) with full batches, and
            with a sequence at a time, bytes.
        seconds: of all checkpoints that are not done.
    """

    model: str
    study: str
    parameters: Mapping[str, Any]
    checkpoints: int
    done: int
    result_bytes: float
    memory: float
    gpu_memory: float
    least_gpu_memory: float
    seconds: float


@dataclass(frozen=True)
class Loading:
    """What it takes to have a model's checkpoints: downloads or pretraining, and reading them.

    Attributes:
        model: its name.
        parameters: number of weights; ``None`` where it is not known.
        checkpoints: how many are used.
        download: bytes still to come from the hub.
        disk: bytes that its checkpoints add to this machine's disk.
        seconds: to pretrain it here, and to read and hash its checkpoints.
        verdict: whether it fits into the memory of this machine.
    """

    model: str
    parameters: int | None
    checkpoints: int
    download: float
    disk: float
    seconds: float
    verdict: str


@dataclass(frozen=True)
class Plan:
    """Everything a set asks for on some models, on one machine."""

    machine: Machine
    models: Sequence[Loading]
    jobs: Sequence[Job]
    notes: Sequence[str] = field(default_factory=list)

    @cached_property
    def totals(self) -> dict[str, float]:
        """Sums in bytes and seconds; ``memory`` and ``gpu_memory`` are those of the largest job."""
        return {
            "download": sum(model.download for model in self.models),
            "checkpoints": sum(model.disk for model in self.models),
            "results": sum(job.result_bytes for job in self.jobs),
            "memory": max((job.memory for job in self.jobs), default=0.0),
            "gpu_memory": max((job.gpu_memory for job in self.jobs), default=0.0),
            "seconds": sum(model.seconds for model in self.models) + sum(job.seconds for job in self.jobs),
        }

    @property
    def shortages(self) -> list[str]:
        """What this machine has too little of, a sentence each."""
        totals, machine = self.totals, self.machine
        found = []
        if totals["results"] > machine.disk:
            found.append(f"results need {size(totals['results'])} of disk, {size(machine.disk)} are free")
        if totals["download"] > machine.cache_disk:
            found.append(
                f"checkpoints need {size(totals['download'])} in the hub's cache, {size(machine.cache_disk)} are free: "
                "evict each after use (`--evict`), or use fewer checkpoints"
            )
        return found + [f"{model.model}: {model.verdict}" for model in self.models if "not fit" in model.verdict]

    def as_data(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "machine": asdict(self.machine),
            "models": [asdict(model) for model in self.models],
            "jobs": [asdict(job) for job in self.jobs],
            "totals": self.totals,
            "shortages": self.shortages,
            "notes": list(self.notes),
        }


def make_plan(
    project: Project,
    experiments: Experiments,
    set_name: str,
    models: Sequence[str],
    machine: Machine,
    *,
    ask_hub: bool = True,
) -> Plan:
    """Cost everything that the notebooks of a set ask for.

    Args:
        project: where checkpoints and results are.
        experiments: the project's file.
        set_name: a set of it.
        models: labels of models that take the place of the set's own; none for those.
        machine: what there is.
        ask_hub: look up sizes and checkpoints on the hub where it can be reached.

    Raises:
        UserError: an unknown set or model, a folder without checkpoints.
    """
    chosen = experiments.get_set(set_name).on(models)
    kept = _Kept(ResultStore(project.results))
    loadings, jobs, notes = [], [], []
    for label in chosen.all_models():
        found = subject(parse_name(label), project, ask_hub)
        notes += [f"{label}: {note}" for note in found.notes]
        wanted = list(_wanted(experiments, set_name, models, label))
        counts = [found.count(choices) for _, _, choices in wanted]
        of_model = []
        if found.shape is not None:
            for (study, parameters, _), count in zip(wanted, counts, strict=True):
                of_model.append(_job(label, study, parameters, count, kept, found, machine))
        used = found.count([choice for _, _, choices in wanted for choice in choices])
        loadings.append(_loading(label, found, used, of_model, machine))
        jobs += of_model
    return Plan(machine, loadings, jobs, notes)


def _wanted(
    experiments: Experiments, set_name: str, models: Sequence[str], label: str
) -> Iterable[tuple[str, dict[str, Any], list[Steps]]]:
    """Studies with all their parameters, and the choices of checkpoints that notebooks make, of one model."""
    chosen = experiments.get_set(set_name).on(models)
    found: list[tuple[str, dict[str, Any], list[Steps]]] = []
    for notebook, given in chosen.notebooks.items():
        if label not in chosen.models(notebook):
            continue
        choice = chosen.checkpoints(notebook, label)
        for study in experiments.chapters[notebook].studies:
            parameters = with_defaults(study, given)
            if label in catalogue().packages:
                parameters = catalogue().packages[label].limit(parameters)
            choices = next((kept for name, other, kept in found if (name, other) == (study, parameters)), None)
            if choices is None:
                found.append((study, parameters, choices := []))
            if choice not in choices:
                choices.append(choice)
    return found


class _Kept:
    """How many checkpoints of a model are measured already, by study and parameters."""

    def __init__(self, store: ResultStore) -> None:
        self._records = list(store.records()) if store.root.is_dir() else []

    def count(self, model: str, study: str, parameters: Mapping[str, Any]) -> int:
        of_study = [
            record
            for record in self._records
            if (record["model"], record["key"]["study"], record["key"]["parameters"]) == (model, study, parameters)
        ]
        if not of_study:
            return 0
        code = source_hash(f"anisotropy.studies.{study}")
        return len({record["step"] for record in of_study if record["key"]["code"] == code})


def _job(
    label: str,
    study: str,
    parameters: Mapping[str, Any],
    count: int,
    kept: _Kept,
    found: Subject,
    machine: Machine,
) -> Job:
    assert found.shape is not None
    work = cost(study, found.shape, parameters)
    done = min(count, kept.count(label, study, parameters))
    weights = FLOAT32 * found.shape.parameters
    model_speed, device_speed = machine.gpu_speeds if machine.gpu else machine.cpu_speeds
    on_cpu = 0.0 if machine.gpu else work.device_bytes
    return Job(
        model=label,
        study=study,
        parameters=dict(parameters),
        checkpoints=count,
        done=done,
        result_bytes=(count - done) * work.result_bytes,
        memory=_PROCESS + weights + work.host_bytes + on_cpu,
        gpu_memory=weights + work.device_bytes,
        least_gpu_memory=weights + work.least_device_bytes,
        seconds=(count - done) * seconds(work, model_speed, device_speed, machine.cpu_speeds[1]),
    )


def _loading(label: str, found: Subject, used: int, jobs: Sequence[Job], machine: Machine) -> Loading:
    missing = max(0, used - found.here)
    download = missing * found.bytes_per_checkpoint if found.remote else 0.0
    made = missing * found.bytes_per_checkpoint if not found.remote else 0.0
    # A checkpoint is loaded once for all studies, and not at all where everything is kept.
    to_load = max((job.checkpoints - job.done for job in jobs), default=0)
    reading = to_load * FLOAT32 * (found.shape.parameters if found.shape else 0) / _READ_AND_HASH
    training = 60 * expected_minutes(found.training_tokens) if missing and found.training_tokens else 0.0
    parameters = found.shape.parameters if found.shape else None
    return Loading(label, parameters, used, download, download + made, training + reading, _verdict(jobs, machine))


def _verdict(jobs: Sequence[Job], machine: Machine) -> str:
    if not jobs:
        return "size unknown"
    if machine.gpu:
        full, least, free = _largest(jobs, "gpu_memory"), _largest(jobs, "least_gpu_memory"), machine.gpu_memory
        free = round(GPU_WORK * free)
        host = _largest(jobs, "memory")
        if host > machine.memory:
            return f"does not fit: needs {size(host)} of memory beside the GPU, {size(machine.memory)} are free"
    else:
        rest = max(job.memory - job.gpu_memory for job in jobs)
        full, least, free = _largest(jobs, "memory"), _largest(jobs, "least_gpu_memory") + rest, machine.memory
    if full <= free:
        return "fits"
    if least <= free:
        return "fits in smaller batches"
    return f"does not fit: needs {size(least)} of memory on {machine.device}, {size(free)} are free"


def _largest(jobs: Sequence[Job], what: str) -> float:
    return max(getattr(job, what) for job in jobs)


def size(amount: float) -> str:
    """Bytes for a reader: ``940 MB``, ``12.3 GB``; multiples of 1,000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1_000 or unit == "TB":
            break
        amount /= 1_000
    return f"{amount:.0f} {unit}" if amount >= 100 or unit in ("B", "kB") else f"{amount:.1f} {unit}"
