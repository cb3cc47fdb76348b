"""Read ``experiments.yml``: which notebooks a set executes, on which models, with which parameters."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from anisotropy.errors import UserError
from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.runs.measuring import STUDIES, Request, Steps, needed_steps, study_parameters
from anisotropy.runs.project import EXPERIMENTS

PAPER, PAPER_TABLES = "paper", "paper-tables"


class Chapter(BaseModel):
    """What a notebook needs, whatever the set.

    Attributes:
        studies: those it summarises.
        summary: whether it is about the other chapters: it is executed after them, and reads what they say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    studies: tuple[str, ...] = ()
    summary: bool = False


class Set(BaseModel):
    """Parameters of each notebook of one set, by the notebook's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    notebooks: dict[str, dict[str, Any]]

    @field_validator("notebooks")
    @classmethod
    def _with_the_papers_models(cls, notebooks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """``models: paper`` stands for every model of the catalogue that the paper uses in that chapter's figures."""
        papers = {PAPER: catalogue().paper(), PAPER_TABLES: catalogue().paper(tables=True)}
        for name, parameters in notebooks.items():
            models = parameters.get("models", [])
            if isinstance(models, str) and models not in papers:
                raise ValueError(f"{name}: models is {models!r}; a list of models, or {PAPER} or {PAPER_TABLES}")
        return {
            name: {**parameters, "models": papers[parameters["models"]]}
            if isinstance(parameters.get("models"), str)
            else parameters
            for name, parameters in notebooks.items()
        }

    def models(self, notebook: str) -> list[str]:
        """Models and controls of a notebook."""
        parameters = self.notebooks[notebook]
        return [*parameters.get("models", []), *parameters.get("controls", [])]

    def all_models(self) -> list[str]:
        """Every model of the set, in the order of first use."""
        return list(dict.fromkeys(model for notebook in self.notebooks for model in self.models(notebook)))

    def on(self, models: Sequence[str]) -> Set:
        """The same notebooks on other models; without any, the set as it is.

        Raises:
            UserError: an unknown model.
        """
        if not models:
            return self
        changed = {
            name: on_models(parameters, models) if "models" in parameters else parameters
            for name, parameters in self.notebooks.items()
        }
        return self.model_copy(update={"notebooks": changed})

    def checkpoints(self, notebook: str, model: str) -> Steps:
        """Which checkpoints of a model a notebook reads; of a control, all."""
        parameters = self.notebooks[notebook]
        return parameters.get("checkpoints", "all") if model in parameters.get("models", []) else "all"


def on_models(parameters: Mapping[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """A notebook's parameters with other models; of its controls, those whose model is among them.

    Raises:
        UserError: an unknown model.
    """
    labels = list(dict.fromkeys(parse_name(model).label for model in models))
    controls = [
        control
        for control in parameters.get("controls", [])
        if _controlled_by(control) in labels and control not in labels
    ]
    return {**parameters, "models": labels} | ({"controls": controls} if "controls" in parameters else {})


def _controlled_by(control: str) -> str | None:
    name = parse_name(control)
    entry = catalogue().miniatures.get(name.name) if name.kind == "miniature" else None
    return name.model_copy(update={"name": entry.control_of}).label if entry and entry.control_of else None


class OtherChoices(BaseModel):
    """Which of our choices are varied, one at a time.

    Attributes:
        set: whose chapters and values are varied.
        models: on which models.
        alternatives: other values, by chapter and parameter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    models: tuple[str, ...]
    alternatives: dict[str, dict[str, list[Any]]]


class Experiments(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chapters: dict[str, Chapter]
    sets: dict[str, Set]
    choices: OtherChoices | None = None

    def get_set(self, name: str) -> Set:
        """A set by name.

        Raises:
            UserError: no such set; the message lists them.
        """
        if name not in self.sets:
            near = difflib.get_close_matches(name, self.sets, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UserError(f"unknown set {name!r}: {hint}{EXPERIMENTS} has {', '.join(self.sets)}")
        return self.sets[name]

    def chapters_of(self, chosen: Set) -> list[str]:
        """A set's notebooks that are not about its other notebooks, in its order."""
        return [name for name in chosen.notebooks if not self.chapters[name].summary]

    def requests_of(self, set_name: str, model: str, on: Sequence[str] = ()) -> list[Request]:
        """What the notebooks of a set will ask of one model: studies with the parameters the notebooks pass on.

        Args:
            set_name: the set.
            model: a model of the set.
            on: models that take the place of the set's own.
        """
        return [request for request, _ in self.demands(set_name, model, on)]

    def plain_requests(self, set_name: str, on: Sequence[str] = ()) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Studies with all their parameters as plain data, by model, for every model of a set; see `requests_of`."""
        return {
            model: [
                (study, parameters.model_dump(mode="json"))
                for study, parameters in self.requests_of(set_name, model, on)
            ]
            for model in self.get_set(set_name).on(on).all_models()
        }

    def requests_by_step(
        self, set_name: str, model: str, steps: Sequence[int], on: Sequence[str] = ()
    ) -> dict[int, list[Request]]:
        """The same requests by checkpoint: only of those checkpoints that the notebooks read.

        Args:
            set_name: the set.
            model: a model of the set.
            steps: the model's checkpoints.
            on: models that take the place of the set's own.

        Raises:
            UserError: a set asks for a checkpoint that the model does not have.
        """
        wanted: dict[int, list[Request]] = {}
        for request, choices in self.demands(set_name, model, on):
            for step in needed_steps(steps, choices, model):
                wanted.setdefault(step, []).append(request)
        return dict(sorted(wanted.items()))

    def demands(self, set_name: str, model: str, on: Sequence[str] = ()) -> list[tuple[Request, list[Steps]]]:
        """The same requests, each with the choices of checkpoints that its notebooks make."""
        chosen = self.get_set(set_name).on(on)
        demands: list[tuple[Request, list[Steps]]] = []
        for notebook, parameters in chosen.notebooks.items():
            if model not in chosen.models(notebook):
                continue
            for study in self.chapters[notebook].studies:
                fields = type(study_parameters(study)).model_fields
                given = {name: value for name, value in parameters.items() if name in fields}
                request = (study, study_parameters(study, given))
                choices = next((choices for other, choices in demands if other == request), None)
                if choices is None:
                    demands.append((request, choices := []))
                if (choice := chosen.checkpoints(notebook, model)) not in choices:
                    choices.append(choice)
        return demands


def load_experiments(root: Path) -> Experiments:
    """Read and check the file in the project's folder.

    Raises:
        UserError: no such file, not YAML, or a name in it that does not exist; the message says which.
    """
    file = root / EXPERIMENTS
    try:
        experiments = Experiments.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except OSError:
        raise UserError(f"no {EXPERIMENTS} in {root}: run this in the project's folder") from None
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{file}: {' → '.join(map(str, first['loc']))}: {first['msg']}") from None
    for name, chapter in experiments.chapters.items():
        if unknown := set(chapter.studies) - set(STUDIES):
            raise UserError(f"{file}: chapter {name!r} names study {unknown.pop()!r}; studies are {', '.join(STUDIES)}")
        if not notebook_path(root, name).is_file():
            raise UserError(f"{file}: chapter {name!r} has no notebook {notebook_path(root, name)}")
    for set_name, chosen in experiments.sets.items():
        for notebook in chosen.notebooks:
            if notebook not in experiments.chapters:
                raise UserError(f"{file}: set {set_name!r} names {notebook!r}, which is not among the chapters")
        for model in chosen.all_models():
            parse_name(model)
    return experiments


def notebook_path(root: Path, name: str) -> Path:
    """The clean notebook of a chapter."""
    return root / "notebooks" / f"{name}.ipynb"
