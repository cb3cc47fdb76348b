"""A plan as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from anisotropy.runs.plan import Job, Loading, Plan, size

_DOWNLOAD_SPEED = 20e6


def as_text(plan: Plan, download_speed: float = _DOWNLOAD_SPEED) -> str:
    """Every job, the totals, and whether this machine has what they need.

    Args:
        plan: the plan.
        download_speed: bytes a second.
    """
    gpu = plan.machine.gpu is not None
    header = ["model", "job", "checkpoints", "download", "disk", "memory", *(["GPU memory"] if gpu else []), "time"]
    rows = [header]
    for model in plan.models:
        of_model = [job for job in plan.jobs if job.model == model.model]
        rows.append(_loading_row(model, gpu))
        rows += [_job_row(job, gpu) for job in of_model]
    totals = plan.totals
    rows.append(
        [
            "total",
            "",
            "",
            size(totals["download"]) if totals["download"] else "–",
            size(totals["checkpoints"] + totals["results"]),
            size(totals["memory"]),
            *([size(totals["gpu_memory"])] if gpu else []),
            duration(totals["seconds"]),
        ]
    )
    lines = _aligned(rows)
    return "\n".join([*lines, "", *_words(plan, download_speed)])


def _loading_row(model: Loading, gpu: bool) -> list[str]:
    weights = f"{model.parameters / 1e6:,.0f} M weights" if model.parameters else "size unknown"
    nothing = [""] * (2 if gpu else 1)
    disk = size(model.disk) if model.disk else "–"
    download = size(model.download) if model.download else "–"
    return [model.model, weights, str(model.checkpoints), download, disk, *nothing, duration(model.seconds)]


def _job_row(job: Job, gpu: bool) -> list[str]:
    left = str(job.checkpoints) if not job.done else f"{job.checkpoints - job.done} of {job.checkpoints}"
    memory = [size(job.memory), *([size(job.gpu_memory)] if gpu else [])]
    return ["", job.study, left, "", size(job.result_bytes), *memory, duration(job.seconds)]


def _words(plan: Plan, download_speed: float) -> list[str]:
    totals, machine = plan.totals, plan.machine
    lines = [
        f"On {machine.device}, with {size(machine.memory)} of memory and {size(machine.disk)} of disk free"
        + (f", {size(machine.gpu_memory)} free on the GPU." if machine.gpu else "."),
        "Times are estimates for a machine that does nothing else, from this processor's speed at a matrix product"
        + (" and a table of GPUs that was not measured here." if machine.gpu else ".")
        + " A factor of two either way is usual.",
        "Memory is that of a whole batch; where less is free, batches are smaller. Jobs run one after the other.",
    ]
    if totals["download"]:
        lines.append(
            f"Downloads come on top: {duration(totals['download'] / download_speed)} at "
            f"{size(download_speed)} a second."
        )
    if done := sum(job.done for job in plan.jobs):
        lines.append(f"Measured already, and left out of disk and time: {done} of the checkpoints above.")
    smaller = [model.model for model in plan.models if model.verdict == "fits in smaller batches"]
    if smaller:
        lines.append(f"In smaller batches: {', '.join(smaller)}.")
    lines += [f"Not enough: {shortage}." for shortage in plan.shortages] or ["All of it fits this machine."]
    if plan.notes:
        lines += ["", "Not confirmed:", *(f"  {note}" for note in _grouped(plan.notes))]
    return lines


def _grouped(notes: Sequence[str]) -> list[str]:
    """Models that share a note in one line."""
    models: dict[str, list[str]] = {}
    for note in notes:
        model, _, text = note.partition(": ")
        models.setdefault(text, []).append(model)
    return [f"{', '.join(names)}: {text}" for text, names in models.items()]


def duration(seconds: float) -> str:
    """Seconds for a reader: ``40 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 1:
        return "–" if seconds == 0 else "< 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 48 * 3_600 else f"{seconds / 86_400:.1f} days"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if n < 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * len(lines[0]), *lines[1:-1], "-" * len(lines[0]), lines[-1]]
