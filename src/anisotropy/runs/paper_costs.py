"""What the paper's models would take, here and on a GPU: the plan of the set ``paper`` as a short table."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from anisotropy.runs.experiments import load_experiments
from anisotropy.runs.machine import speeds_of_gpu, this_machine
from anisotropy.runs.plan import make_plan, size
from anisotropy.runs.plan_table import duration
from anisotropy.runs.project import Project

SET, _GPU, _GPU_MEMORY = "paper", "A100", 80 * 10**9


def paper_costs(project: Project) -> tuple[pd.DataFrame, str]:
    """By model: weights, checkpoints, download, results, memory, and times; and the totals in a sentence.

    Raises:
        UserError: no such set.
    """
    experiments = load_experiments(project.root)
    here = replace(this_machine(project.results), gpu=None)
    there = replace(here, gpu=_GPU, gpu_memory=_GPU_MEMORY, gpu_speeds=speeds_of_gpu(_GPU))
    on_cpu, on_gpu = (make_plan(project, experiments, SET, (), machine, ask_hub=False) for machine in (here, there))
    rows = []
    for model, same in zip(on_cpu.models, on_gpu.models, strict=True):
        jobs = [job for job in on_cpu.jobs if job.model == model.model]
        times = [
            found.seconds + sum(job.seconds for job in plan.jobs if job.model == found.model)
            for plan, found in ((on_cpu, model), (on_gpu, same))
        ]
        rows.append(
            [
                model.model,
                f"{(model.parameters or 0) / 1e6:,.0f} M",
                model.checkpoints,
                size(model.download),
                size(sum(job.result_bytes for job in jobs)),
                size(max((job.memory for job in jobs), default=0)),
                *map(duration, times),
            ]
        )
    columns = ["model", "weights", "checkpoints", "download", "results", "memory", "time here", f"time, {_GPU}"]
    totals = on_cpu.totals
    sentence = (
        f"In all: {size(totals['download'])} to download, {size(totals['results'])} of results, and about "
        f"{duration(totals['seconds'])} on this CPU or {duration(on_gpu.totals['seconds'])} on one {_GPU}, where "
        "decompositions that stay on the CPU take their share."
    )
    return pd.DataFrame(rows, columns=columns), sentence
