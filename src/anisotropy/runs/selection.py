"""What one build is about: a set of ``experiments.yml``, on its own models or on a reader's, and how it is cut up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from anisotropy.errors import UserError
from anisotropy.files import write_json
from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.provenance import digest_of
from anisotropy.runs.experiments import Set, load_experiments
from anisotropy.runs.measuring import Laboratory
from anisotropy.runs.project import Project

FILE = "selection.json"
BOOK = "book"  # the parameter by which a page about other pages is told whose
Unit = Literal["model", "checkpoint"]


@dataclass(frozen=True)
class Selection:
    """A set and what it is built on.

    Attributes:
        set_name: the set.
        models: labels of the models that take the place of the set's own; empty for those.
        unit: what one measuring job takes, a model with all its checkpoints or one checkpoint.
        steps: by model, what is known of its checkpoints before anything runs: each step and a mark that changes with
            its files. Of a model on the hub only where a job is a checkpoint; of one pretrained here, its schedule.
    """

    set_name: str
    models: tuple[str, ...] = ()
    unit: Unit = "model"
    steps: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The folder of its build."""
        return build_name(self.set_name, self.models)

    def chosen(self, project: Project) -> Set:
        """The set, on these models."""
        return load_experiments(project.root).get_set(self.set_name).on(self.models)


def build_name(set_name: str, models: Sequence[str] = ()) -> str:
    """The folder, below ``_build``, of a set's book on these models: no two share one."""
    return f"{set_name}--{file_name(*models)}" if models else set_name


def file_name(*models: str) -> str:
    """A name for files about models: their own where that can be one, else the last part of each and a digest."""
    readable = "+".join(re.sub(r"[^\w.@-]+", "-", Path(model).name) for model in models)
    if readable == "+".join(models) and len(readable) <= 60:
        return readable
    return f"{readable[:40]}-{digest_of(list(models))[:8]}"


def split_models(given: Iterable[str], root: Path) -> list[str]:
    """Labels of models as a reader gives them: one each or separated by commas.

    Folders are named from the project's folder where they lie in it, else in full, so that a job that starts elsewhere
    finds them.

    Raises:
        UserError: an unknown model; the message lists the nearest names.
    """
    texts: list[str] = []
    for text in given:
        if Path(text).expanduser().is_dir():
            texts.append(text)
        else:
            texts += [part.strip() for part in text.split(",") if part.strip()]
    labels = []
    for text in texts:
        name = parse_name(text)
        label = name.label
        if name.kind == "folder":
            full = Path(os.path.abspath(name.name))
            inside = str(full.relative_to(root)) if full != root and full.is_relative_to(root) else None
            label = inside if inside and inside not in catalogue().names() else str(full)
        labels.append(label)
    return list(dict.fromkeys(labels))


def prepare(project: Project, set_name: str, models: Sequence[str] = (), unit: Unit = "model") -> Selection:
    """Find out what a build is about, and note it in the build's folder for the jobs, wherever they run.

    Raises:
        UserError: an unknown set or model, a folder without checkpoints, a hub that does not answer.
    """
    selection = Selection(set_name, tuple(models), unit)
    chosen = selection.chosen(project)
    steps = {model: _steps(project, model, unit) for model in chosen.all_models()}
    selection = Selection(set_name, tuple(models), unit, steps)
    write_json(
        project.build / selection.name / FILE,
        {"set": set_name, "models": list(models), "unit": unit, "steps": steps},
    )
    return selection


def read_selection(project: Project, name: str) -> Selection:
    """What :func:`prepare` noted.

    Raises:
        UserError: nothing has been prepared under this name.
    """
    file = project.build / name / FILE
    try:
        noted = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"no such build: {file} is missing; start it with `anisotropy book`") from None
    steps = {model: {int(step): mark for step, mark in marks.items()} for model, marks in noted["steps"].items()}
    return Selection(noted["set"], tuple(noted["models"]), noted["unit"], steps)


def _steps(project: Project, model: str, unit: Unit) -> dict[int, str]:
    name = parse_name(model)
    if name.kind == "miniature":
        return dict.fromkeys(catalogue().miniatures[name.name].recipe.checkpoint_steps(), "")
    if name.kind == "hub" and unit == "model":
        return {}
    source = Laboratory(project).open(name)
    return {record.step: "" if name.kind == "hub" else source.mark(record.step) or "" for record in source.records()}
