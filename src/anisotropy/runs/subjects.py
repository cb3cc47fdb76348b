"""What is known of a model before anything of it is loaded: shape, checkpoints, bytes, and what of it is here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anisotropy.errors import UserError
from anisotropy.models.catalogue import ModelName, catalogue
from anisotropy.models.checkpoints import UNKNOWN_STEP, open_source
from anisotropy.models.folders import miniature_folder, read_index
from anisotropy.models.hub_files import cache_folder, cached_revisions
from anisotropy.models.packages import is_converted
from anisotropy.models.sizes import Shape
from anisotropy.models.stored import Stored, stored
from anisotropy.runs.measuring import Steps, needed_steps
from anisotropy.runs.project import Project

_WEIGHTS = (".safetensors", ".bin")


@dataclass(frozen=True)
class Subject:
    """One model.

    Attributes:
        name: as a user names it.
        shape: ``None`` where nothing tells it.
        bytes_per_checkpoint: of stored weights.
        steps: of its checkpoints, or ``None`` where only their number is known, or not even that.
        number: of its checkpoints, or ``None``.
        here: how many are on this machine.
        remote: whether the others are downloaded (or else made here).
        training_tokens: of its pretraining here.
        notes: what could not be confirmed.
    """

    name: ModelName
    shape: Shape | None
    bytes_per_checkpoint: float
    steps: Sequence[int] | None
    number: int | None
    here: int
    remote: bool = False
    training_tokens: int = 0
    notes: Sequence[str] = field(default_factory=list)

    def count(self, choices: Iterable[Steps]) -> int:
        """How many checkpoints several choices take together; an unknown number counts as one.

        Raises:
            UserError: a step that the model does not have.
        """
        choices = list(choices)
        if self.steps is not None:
            return len(needed_steps(self.steps, choices, self.name.label))
        most = self.number or 1
        numbers = [choice for choice in choices if isinstance(choice, int)]
        listed = {step for choice in choices if isinstance(choice, list) for step in choice}
        if "all" in choices:
            return most
        if self.number is not None:
            return min(most, max([0, *numbers]) + len(listed))
        return max([1, *numbers]) if not listed else max([0, *numbers]) + len(listed)


def subject(name: ModelName, project: Project, ask_hub: bool = True) -> Subject:
    """Find out about a model.

    Raises:
        UserError: a folder without checkpoints.
    """
    if name.kind == "miniature":
        return _miniature(name, project)
    if name.kind == "package":
        return _packaged(name, project)
    return _of_hub(name, project, ask_hub) if name.kind == "hub" else _of_folder(name, project)


def _miniature(name: ModelName, project: Project) -> Subject:
    recipe = catalogue().miniatures[name.name].recipe
    known, index = stored(name.name), read_index(miniature_folder(project.checkpoints, name))
    steps = recipe.checkpoint_steps()
    made = len(index.get("checkpoints", []))
    left = 1 - made / len(steps)
    tokens = 0 if index.get("complete") else round(left * recipe.steps * recipe.tokens_per_step)
    return Subject(name, known.shape, known.bytes, steps, len(steps), made, training_tokens=tokens)


def _packaged(name: ModelName, project: Project) -> Subject:
    entry = catalogue().packages[name.name]
    here = is_converted(project.checkpoints, name)
    notes = [] if here else ["its first use converts it (half a minute)"]
    return Subject(name, stored(name.name).shape, entry.bytes_converted, [UNKNOWN_STEP], 1, int(here), notes=notes)


def _of_folder(name: ModelName, project: Project) -> Subject:
    steps = [record.step for record in open_source(name, project.checkpoints).records()]
    files = [file for file in Path(name.name).rglob("*") if file.suffix in _WEIGHTS]
    total = sum(file.stat().st_size for file in files)
    config = next(iter(sorted(Path(name.name).rglob("config.json"))), None)
    shape, notes = _shape_in(config)
    return Subject(name, shape, total / max(1, len(steps)), steps, len(steps), len(steps), notes=notes)


def _shape_in(file: Path | None) -> tuple[Shape | None, list[str]]:
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file else {}
        return Shape.of_file(config), []
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, [f"its configuration does not tell its size ({error}); its studies are left out of the totals"]


def _of_hub(name: ModelName, project: Project, ask_hub: bool) -> Subject:
    entry = catalogue().hub.get(name.name)
    known = stored(name.name) if entry else None
    repository = entry.hub if entry else name.name
    cached = cached_revisions(repository)
    notes: list[str] = []
    if ask_hub:
        try:
            return _asked(name, repository, known, cached, project)
        except UserError as error:
            notes.append(f"not confirmed by the hub ({error})")
    else:
        notes.append("the hub was not asked")
    if known is None:
        config = next(iter(sorted(cache_folder(repository).glob("snapshots/*/config.json"))), None)
        shape, more = _shape_in(config)
        return Subject(name, shape, _cached_bytes(repository), None, len(cached) or None, len(cached), True, notes=more)
    if entry and entry.unconfirmed:
        notes.append(f"unconfirmed in the catalogue: {', '.join(entry.unconfirmed)}")
    if known.checkpoints is None:
        notes.append("how many checkpoints it has is not known: those asked for are counted, 'all' as one")
    here = len([revision for revision in cached if revision != "main"])
    return Subject(name, known.shape, known.bytes, None, known.checkpoints, here, True, notes=notes)


def _asked(name: ModelName, repository: str, known: Stored | None, cached: list[str], project: Project) -> Subject:
    """With the hub's own list of checkpoints and sizes of files; from the cache where the hub does not answer.

    Raises:
        UserError: no answer and nothing in the cache, or a repository that is missing or gated.
    """
    from anisotropy.models.hub import HubSource
    from anisotropy.models.hub_files import fetch_descriptions

    source = HubSource(name)
    newest = source.revisions[max(source.revisions)]
    notes = [note.removeprefix(f"{name.label}: ") for note in source.notes]
    if not source.is_whole:
        notes.append("the hub does not answer: only the checkpoints in its cache are counted")
    shape = known.shape if known else None
    try:
        told, _ = _shape_in(fetch_descriptions(repository, newest) / "config.json")
        if told and known and told.parameters != known.shape.parameters:
            notes.append(
                f"its configuration says {told.parameters:,} parameters, the catalogue {known.shape.parameters:,}"
            )
        shape = told or shape
    except UserError as error:
        notes.append(f"configuration not read ({error})")
    stored_bytes = _hub_bytes(repository, newest)
    if stored_bytes is None:
        stored_bytes = known.bytes if known else _cached_bytes(repository)
        notes.append("sizes of files are estimated")
    here = len(set(cached) & set(source.revisions.values()))
    steps = sorted(source.revisions)
    return Subject(name, shape, stored_bytes, steps, len(steps), here, True, notes=notes)


def _hub_bytes(repository: str, revision: str) -> float | None:
    """Size of a revision's weights as the hub tells it: safetensors where there are any."""
    from huggingface_hub import HfApi

    try:
        files = HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=10).siblings or []
    except Exception:  # offline, limited, gated: each has its own class, and an estimate does as well
        return None
    for suffix in _WEIGHTS:
        sizes = [file.size or 0 for file in files if file.rfilename.endswith(suffix)]
        if sum(sizes):
            return float(sum(sizes))
    return None


def _cached_bytes(repository: str) -> float:
    revisions = [path for path in cache_folder(repository).glob("snapshots/*") if path.is_dir()]
    sizes = [sum(file.stat().st_size for file in one.rglob("*") if file.suffix in _WEIGHTS) for one in revisions]
    return float(max(sizes, default=0))
