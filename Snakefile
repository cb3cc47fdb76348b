# Checkpoints → collections → executed notebooks → book, for one set of experiments.yml (`--config set=smoke`).
#
# Checkpoints and results resume and are keyed by content, so they are never outputs (Snakemake would delete them): each
# step leaves a stamp. A stamp without its checkpoints is removed here, so that deleting a folder is enough to redo it.

import re
from pathlib import Path

from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.models.checkpoints import miniature_folder, read_index
from anisotropy.provenance import imported_modules, module_file
from anisotropy.runs.experiments import load_experiments, notebook_path
from anisotropy.runs.gate import imports_of
from anisotropy.runs.project import find_project

PROJECT = find_project(Path(workflow.basedir))
EXPERIMENTS = load_experiments(PROJECT.root)
SET_NAME = config.get("set", "laptop")
SET = EXPERIMENTS.get_set(SET_NAME)
BUILD = f"_build/{SET_NAME}"
MINIATURES = [model for model in SET.all_models() if parse_name(model).kind == "miniature"]


def sources(*modules):
    return sorted(str(module_file(module)) for module in imported_modules(*modules))


def documented():
    """Source files whose docstrings are a page."""
    named = re.findall(r"automodule:: (\S+)", "\n".join(path.read_text() for path in Path("book").glob("*.md")))
    return [str(module_file(module)) for module in named]


def pretrained(model):
    return f"_build/stamps/pretrained-{model}"


def measured(model):
    return f"{BUILD}/stamps/measured-{model.replace('/', '--')}"


for model in MINIATURES:
    if not read_index(miniature_folder(PROJECT.checkpoints, parse_name(model))).get("complete"):
        Path(pretrained(model)).unlink(missing_ok=True)


wildcard_constraints:
    model="|".join(SET.all_models()).replace("/", "--") or "none",
    notebook="|".join(SET.notebooks),


rule all:
    input:
        [measured(model) for model in SET.all_models()],
        expand(f"{BUILD}/executed/notebooks/{{notebook}}.ipynb", notebook=SET.notebooks),
        f"{BUILD}/stamps/site",


rule pretrain:
    input:
        [str(module_file(f"anisotropy.models.{module}")) for module in ("miniature", "corpus", "objectives")],
    output:
        touch("_build/stamps/pretrained-{model}"),
    params:
        recipe=lambda wildcards: catalogue().miniatures[parse_name(wildcards.model).name].recipe.model_dump_json(),
    threads: workflow.cores
    shell:
        "anisotropy pretrain {wildcards.model}"


rule measure:
    input:
        lambda wildcards: [pretrained(wildcards.model)] if wildcards.model in MINIATURES else [],
        lambda wildcards: sources(*(f"anisotropy.studies.{study}" for study, _ in requests(wildcards.model))),
    output:
        touch(f"{BUILD}/stamps/measured-{{model}}"),
    params:
        requests=lambda wildcards: str(requests(wildcards.model)),
        model=lambda wildcards: wildcards.model.replace("--", "/"),
    threads: workflow.cores
    shell:
        "anisotropy measure --model {params.model} --set {SET_NAME}"


def requests(model):
    return EXPERIMENTS.requests_of(SET_NAME, model.replace("--", "/"))


rule notebook:
    input:
        lambda wildcards: [measured(model) for model in SET.models(wildcards.notebook)],
        lambda wildcards: sources(*imports_of(notebook_path(PROJECT.root, wildcards.notebook))),
        notebook="notebooks/{notebook}.ipynb",
    output:
        f"{BUILD}/executed/notebooks/{{notebook}}.ipynb",
    params:
        parameters=lambda wildcards: str(SET.notebooks[wildcards.notebook]),
    # Everything is measured by now; what a page computes hardly uses a second core.
    threads: max(1, workflow.cores // 2)
    shell:
        "anisotropy run {input.notebook} --set {SET_NAME} --output {output}"


rule site:
    input:
        expand(f"{BUILD}/executed/notebooks/{{notebook}}.ipynb", notebook=SET.notebooks),
        [str(path) for path in sorted(Path("book").rglob("*")) if path.is_file()],
        sources("anisotropy.runs.site"),
        documented(),
        "_config.yml",
        "_toc.yml",
    output:
        touch(f"{BUILD}/stamps/site"),
    shell:
        "anisotropy site --set {SET_NAME}"
