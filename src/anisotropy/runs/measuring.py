"""From a model's name to its collections: what is kept is read, the rest measured with one load per checkpoint."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from anisotropy.errors import UserError
from anisotropy.files import locked
from anisotropy.models.catalogue import ModelName, catalogue, parse_name
from anisotropy.models.checkpoints import CheckpointRecord, Source, open_source, quiet_transformers, select_steps
from anisotropy.models.corpus import EMBEDDED, StudyText, load_corpus, study_text, tokenizer_digest
from anisotropy.provenance import provenance, source_hash
from anisotropy.runs.project import Project
from anisotropy.studies.results import Collection, Key, ResultStore

if TYPE_CHECKING:
    import torch

STUDIES = ("frequency", "tangents", "updates", "concept_tables", "alignment")

_TEXT = ("tokens", "text_tokens")  # the studies' parameters that say how much text is read

Steps = str | int | list[int]
Request = tuple[str, BaseModel]


def study_parameters(study: str, given: Mapping[str, Any] | None = None) -> BaseModel:
    """Check a study's parameters.

    Raises:
        UserError: an unknown study, or a parameter that it refuses; the message names it and lists the valid ones.
    """
    if study not in STUDIES:
        raise UserError(f"unknown study {study!r}: studies are {', '.join(STUDIES)}")
    model = _module(study).Parameters
    try:
        return model.model_validate(dict(given or {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UserError(
            f"study {study!r}, parameter {name!r}: {first['msg'].lower()}; its parameters are "
            f"{', '.join(model.model_fields)}"
        ) from None


def limited(parameters: BaseModel, name: ModelName) -> BaseModel:
    """Parameters as a model is measured with: the catalogue limits how much text a slow model reads."""
    entry = catalogue().packages.get(name.name) if name.kind == "package" else None
    if entry is None:
        return parameters
    found = {field: getattr(parameters, field) for field in _TEXT if field in type(parameters).model_fields}
    return parameters.model_copy(update={field: min(value, entry.text_tokens) for field, value in found.items()})


def _limits(name: ModelName, wanted: BaseModel, used: BaseModel) -> list[str]:
    """A sentence where a model read less text than was asked for."""
    fields = [field for field in type(used).model_fields if getattr(wanted, field) != getattr(used, field)]
    if not fields:
        return []
    numbers = getattr(used, fields[0]), getattr(wanted, fields[0])
    return [f"{name.title} is large for this book and read {numbers[0]:,} tokens of text instead of {numbers[1]:,}"]


def _module(study: str) -> Any:
    return importlib.import_module(f"anisotropy.studies.{study}")


@dataclass
class Measured:
    """Collections of one model by step, and what the reader should know about them.

    Attributes:
        name: the model.
        objective: ``causal`` or ``masked``.
        collections: by step; of checkpoints with equal weights only the first.
        notes: sentences, one for each checkpoint left out.
        loaded: how many checkpoints had to be loaded because something was not yet kept.
    """

    name: ModelName
    objective: str
    collections: list[Collection]
    notes: list[str] = field(default_factory=list)
    loaded: int = 0


class Laboratory:
    """Measures models of one project on one corpus and one device."""

    def __init__(
        self,
        project: Project,
        *,
        corpus: str = EMBEDDED,
        device: str = "auto",
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Nothing is read or loaded yet.

        Args:
            project: where checkpoints and results are.
            corpus: see :func:`anisotropy.models.corpus.load_documents`.
            device: ``"auto"``, or what torch calls it.
            report: receives one line per finished checkpoint.
        """
        self.project, self.corpus_source, self.report = project, corpus, report
        self.store = ResultStore(project.results)
        self._device = device
        self._texts: dict[str, StudyText] = {}

    @property
    def device(self) -> torch.device:
        """Where models are loaded to.

        Raises:
            UserError: a device torch does not know or does not have.
        """
        return choose_device(self._device)

    def measure(self, model: str, study: str, parameters: BaseModel, checkpoints: Steps = "all") -> Measured:
        """The collections of one study; see :meth:`measure_all`."""
        return self.measure_all(model, [(study, parameters)], checkpoints)[0]

    def kept(self, study: str, parameters: BaseModel) -> dict[str, list[Collection]]:
        """What is kept of a study under these parameters, whatever the model; nothing is loaded or measured."""
        return self.store.kept(study, parameters.model_dump(mode="json"), source_hash(f"anisotropy.studies.{study}"))

    def measure_all(
        self,
        model: str,
        requests: Sequence[Request],
        checkpoints: Steps = "all",
        choices: Sequence[Sequence[Steps]] | None = None,
    ) -> list[Measured]:
        """Collect several studies of one model, each checkpoint loaded once and only if something is missing.

        A killed call loses at most the checkpoint it was at; processes that come to the same weights take turns.

        Args:
            model: a name as :func:`anisotropy.models.catalogue.parse_name` reads it.
            requests: studies, each with its parameters.
            checkpoints: which ones, see :func:`anisotropy.models.checkpoints.select_steps`.
            choices: for each request, at which checkpoints its notebooks read it; by default at all. A checkpoint that
                is listed in ``checkpoints`` and read by no notebook is measured for every request.

        Returns:
            What was found for each request, in their order.

        Raises:
            UserError: an unknown model, a missing or damaged checkpoint, a corpus that is too small.
        """
        name = parse_name(model)
        quiet_transformers()
        source = open_source(name, self.project.checkpoints, report=self.report)
        records = {record.step: record for record in source.records()}
        steps = select_steps(list(records), checkpoints, name.label)
        text = self.text(source)
        asked, requests = requests, [(study, limited(parameters, name)) for study, parameters in requests]
        found = [Measured(name, source.objective, []) for _ in requests]
        for (_, full), (_, used), measured in zip(asked, requests, found, strict=True):
            measured.notes.extend(_limits(name, full, used))
        pairs = list(zip(requests, found, strict=True))
        needed = [needed_steps(list(records), of_one, name.label) for of_one in choices or [["all"]] * len(requests)]
        wanted = {step: [pair for pair, at in zip(pairs, needed, strict=True) if step in at] for step in steps}
        if checkpoints == "all":
            wanted = {step: of_step for step, of_step in wanted.items() if of_step}
        for number, (step, of_step) in enumerate(wanted.items(), 1):
            self._checkpoint(source, records[step], text, of_step or pairs, f"checkpoint {number} of {len(wanted)}")
        return found

    def _checkpoint(
        self,
        source: Source,
        record: CheckpointRecord,
        text: StudyText,
        pairs: Sequence[tuple[Request, Measured]],
        where: str,
    ) -> None:
        label, step = source.name.label, record.step
        checkpoint = source.load(step, self.device) if record.weight_hash is None else None
        weights = checkpoint.weight_hash if checkpoint else record.weight_hash
        assert weights is not None
        # By weights, not by model and step: an untrained control is its model under another name.
        with locked(self.project.results / f".weights-{weights[:32]}.lock"):
            if checkpoint is None and any(
                self._key(study, parameters, weights, text) not in self.store for (study, parameters), _ in pairs
            ):
                checkpoint = source.load(step, self.device)
            for (study, parameters), measured in pairs:
                twin = next((other.step for other in measured.collections if other.weight_hash == weights), None)
                if twin is not None:
                    measured.notes.append(f"{label}: step {step} holds the same weights as step {twin} and is left out")
                    continue
                key = self._key(study, parameters, weights, text)
                if key not in self.store:
                    assert checkpoint is not None
                    started = time.perf_counter()
                    arrays = _module(study).collect(checkpoint, text, parameters)
                    seconds = time.perf_counter() - started
                    about = provenance(str(checkpoint.model.device), seconds)
                    self.store.write(key, Collection(label, step, weights, arrays, about))
                    self.report(f"{label}: {study} at step {step} in {seconds:.1f} s ({where})")
                measured.collections.append(self.store.read(key, label, step))
                measured.loaded += checkpoint is not None

    def _key(self, study: str, parameters: BaseModel, weight_hash: str, text: StudyText) -> Key:
        code = source_hash(f"anisotropy.studies.{study}")
        return Key(study, parameters.model_dump(mode="json"), weight_hash, text.digest, code)

    def text(self, source: Source) -> StudyText:
        """The study text under a model's own tokenizer; made once per tokenizer."""
        tokenizer = source.tokenizer()
        digest = tokenizer_digest(tokenizer)
        if digest not in self._texts:
            self._texts[digest] = study_text(load_corpus(self.corpus_source), tokenizer, len(tokenizer))
        return self._texts[digest]


def needed_steps(available: Sequence[int], choices: Sequence[Steps], label: str) -> list[int]:
    """The checkpoints that any of several choices takes, in order; see `select_steps` of the checkpoints."""
    return sorted({step for choice in choices for step in select_steps(list(available), choice, label)})


def choose_device(device: str = "auto") -> torch.device:
    """A GPU where there is one, else the CPU; or the device that is named.

    Raises:
        UserError: a device torch does not know or does not have.
    """
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch.empty(1, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r} cannot be used here ({str(error).splitlines()[0]}); try 'auto'") from None
