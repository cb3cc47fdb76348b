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
from anisotropy.models.checkpoints import (
    CheckpointRecord,
    Source,
    check_dtype,
    open_source,
    quiet_transformers,
    select_steps,
)
from anisotropy.models.corpus import EMBEDDED, StudyText, study_text, tokenizer_digest
from anisotropy.models.hub_corpus import open_corpus
from anisotropy.models.recorded import Manifest, RecordedSource
from anisotropy.provenance import provenance, source_hash
from anisotropy.runs.project import Project
from anisotropy.studies.results import Collection, Key, ResultStore

if TYPE_CHECKING:
    import torch

STUDIES = ("layers", "frequency", "tangents", "updates", "concept_tables", "alignment")

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
    return parameters.model_copy(update=entry.limit(dict(parameters))) if entry else parameters


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
        dtype: str | None = None,
        evict: bool | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Nothing is read or loaded yet.

        Args:
            project: where checkpoints and results are.
            corpus: see :func:`anisotropy.models.hub_corpus.open_corpus`.
            device: ``"auto"``, or what torch calls it.
            dtype: floating point type of the weights, by default the project's; results in other types are kept apart.
            evict: delete weights from the hub's cache once they are loaded, unless they were there before; by default
                as the project does.
            report: receives one line per finished checkpoint.
        """
        self.project, self.corpus_source, self.report = project, corpus, report
        self.store = ResultStore(project.results)
        self._device, self._dtype = device, check_dtype(dtype or project.dtype)
        self._evict = project.evict if evict is None else evict
        self._texts: dict[str, StudyText] = {}

    @property
    def device(self) -> torch.device:
        """Where models are loaded to.

        Raises:
            UserError: a device torch does not know or does not have.
        """
        return choose_device(self._device)

    @property
    def dtype(self) -> str:
        """Floating point type that models are measured in."""
        return self._dtype

    def open(self, name: ModelName) -> RecordedSource:
        """A model's checkpoints, in this laboratory's type, with what is recorded of them beside the results.

        Raises:
            UserError: neither on this machine nor recorded; see :func:`anisotropy.models.checkpoints.open_source`.
        """
        manifest = Manifest(self.project.results, name.label)
        live: Source | UserError
        try:
            live = open_source(name, self.project.checkpoints, dtype=self._dtype, evict=self._evict, report=self.report)
        except UserError as error:
            live = error
        return RecordedSource(name, manifest, live, dtype=self._dtype)

    def check_checkpoints(self, model: str, choice: Steps) -> None:
        """Find out about a mistyped model, revision or step before anything slow is imported.

        Raises:
            UserError: as :meth:`open` and :func:`anisotropy.models.records.select_steps`.
        """
        source = self.open(parse_name(model))
        select_steps([record.step for record in source.records()], choice, source.name.label)

    def measure(self, model: str, study: str, parameters: BaseModel, checkpoints: Steps = "all") -> Measured:
        """The collections of one study; see :meth:`measure_all`."""
        return self.measure_all(model, [(study, parameters)], checkpoints)[0]

    def kept(self, study: str, parameters: BaseModel) -> dict[str, list[Collection]]:
        """What is kept of a study under these parameters, whatever the model; nothing is loaded or measured.

        Of a model that is recorded, only what belongs to the recorded weights: another training may have had its name.
        """
        code = source_hash(f"anisotropy.studies.{study}")
        found = self.store.kept(study, parameters.model_dump(mode="json"), code)
        for label in list(found):
            if manifest := Manifest(self.project.results, label):
                weights = {entry.weights.get(self._dtype) for entry in manifest.checkpoints().values()}
                found[label] = [one for one in found[label] if one.weight_hash in weights]
        return {label: collections for label, collections in found.items() if collections}

    def read(self, model: str, study: str, parameters: BaseModel, steps: Sequence[int]) -> list[Collection]:
        """What is kept of a recorded model, by the records alone: no text is read and no weights are opened.

        Args:
            model: a name as :func:`anisotropy.models.catalogue.parse_name` reads it.
            study: which study.
            parameters: as they were asked for.
            steps: of its checkpoints.

        Raises:
            UserError: something of it is not kept.
        """
        name = parse_name(model)
        manifest = Manifest(self.project.results, name.label)
        entries = manifest.checkpoints() if manifest else {}
        text = manifest.model().texts.get(self.corpus_source) if manifest else None
        code = source_hash(f"anisotropy.studies.{study}")
        given = limited(parameters, name).model_dump(mode="json")
        keys = [
            Key(study, given, entries[step].weights.get(self._dtype, ""), str(text), code) if step in entries else None
            for step in steps
        ]
        if lost := [step for step, key in zip(steps, keys, strict=True) if key is None or key not in self.store]:
            raise UserError(f"{name.label}: {study} at step {lost[0]} is not kept; execute its chapter again")
        return [self.store.read(key, name.label, step) for step, key in zip(steps, keys, strict=True) if key]

    def is_measured(
        self, model: str, requests: Sequence[Request], choices: Sequence[Sequence[Steps]] | None = None
    ) -> bool:
        """Whether a model that is recorded here has every collection it is asked for, so that no weights are needed.

        It goes by the records alone and reads no text, so it is quick; arguments are those of :meth:`measure_all`.
        """
        manifest = Manifest(self.project.results, parse_name(model).label)
        text = manifest.model().texts.get(self.corpus_source) if manifest else None
        entries = manifest.checkpoints() if text else {}
        if not entries:
            return False
        for (study, parameters), of_one in zip(requests, choices or [["all"]] * len(requests), strict=True):
            code = source_hash(f"anisotropy.studies.{study}")
            given = limited(parameters, parse_name(model)).model_dump(mode="json")
            for step in needed_steps(list(entries), of_one, model):
                weights = entries[step].weights.get(self._dtype, "")
                if Key(study, given, weights, str(text), code) not in self.store:
                    return False
        return True

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
            checkpoints: which ones, see :func:`anisotropy.models.records.select_steps`.
            choices: for each request, at which checkpoints its notebooks read it; by default at all. A checkpoint that
                is listed in ``checkpoints`` and read by no notebook is measured for every request.

        Returns:
            What was found for each request, in their order.

        Raises:
            UserError: an unknown model, a missing or damaged checkpoint, a corpus that is too small.
        """
        name = parse_name(model)
        quiet_transformers()
        source = self.open(name)
        records = {record.step: record for record in source.records()}
        steps = select_steps(list(records), checkpoints, name.label)
        text = self.text(source)
        if self._device != "auto":
            choose_device(self._device)  # a mistyped one leaves nothing behind
        source.keep(self.corpus_source, text.digest)
        asked, requests = requests, [(study, limited(parameters, name)) for study, parameters in requests]
        found = [Measured(name, source.objective, [], list(source.notes)) for _ in requests]
        for (_, full), (_, used), measured in zip(asked, requests, found, strict=True):
            measured.notes.extend(_limits(name, full, used))
        pairs = list(zip(requests, found, strict=True))
        needed = [needed_steps(list(records), of_one, name.label) for of_one in choices or [["all"]] * len(requests)]
        wanted = {step: [pair for pair, at in zip(pairs, needed, strict=True) if step in at] for step in steps}
        if checkpoints == "all":
            wanted = {step: of_step for step, of_step in wanted.items() if of_step}
        for number, (step, of_step) in enumerate(wanted.items(), 1):
            where = f"checkpoint {number} of {len(wanted)}"
            try:
                loaded = self._checkpoint(source, records[step], text, of_step or pairs, where)
            except Exception as error:
                error.add_note(f"while {name.label} was measured at step {step}")
                raise
            if loaded:
                from anisotropy.models.batch_size import release

                release(self.device)
        return found

    def _checkpoint(
        self,
        source: RecordedSource,
        record: CheckpointRecord,
        text: StudyText,
        pairs: Sequence[tuple[Request, Measured]],
        where: str,
    ) -> bool:
        """Whether the checkpoint had to be loaded; it is dropped on return."""
        label, step = source.name.label, record.step
        checkpoint = source.load(step, self.device) if record.weight_hash is None else None
        weights = checkpoint.weight_hash if checkpoint else record.weight_hash
        assert weights is not None
        if record.weight_hash is None:
            source.keep_checkpoint(record, weights)
        # By weights, not by model and step: an untrained control is its model under another name.
        with locked(self.project.results / f".weights-{weights[:32]}.lock"):
            if checkpoint is None and any(
                self._key(study, parameters, weights, text) not in self.store for (study, parameters), _ in pairs
            ):
                checkpoint = source.load(step, self.device)
            for (study, parameters), measured in pairs:
                twin = next((other.step for other in measured.collections if other.weight_hash == weights), None)
                if twin is not None:
                    measured.notes.append(
                        f"{label}: {record.title} holds the same weights as step {twin} and is left out"
                    )
                    continue
                key = self._key(study, parameters, weights, text)
                if key not in self.store:
                    assert checkpoint is not None
                    started = time.perf_counter()
                    arrays = _module(study).collect(checkpoint, text, parameters)
                    seconds = time.perf_counter() - started
                    for note in dict.fromkeys(_batch_notes()):
                        measured.notes.append(f"{label}: {study} at {record.title}: {note}")
                    about = provenance(str(checkpoint.model.device), seconds, dtype=self._dtype)
                    self.store.write(key, Collection(label, step, weights, arrays, about))
                    self.report(f"{label}: {study} at {record.title} in {seconds:.1f} s ({where})")
                measured.collections.append(self.store.read(key, label, step))
                measured.loaded += checkpoint is not None
        return checkpoint is not None

    def _key(self, study: str, parameters: BaseModel, weight_hash: str, text: StudyText) -> Key:
        code = source_hash(f"anisotropy.studies.{study}")
        return Key(study, parameters.model_dump(mode="json"), weight_hash, text.digest, code)

    def text(self, source: Source) -> StudyText:
        """The study text under a model's own tokenizer; made once per tokenizer."""
        tokenizer = source.tokenizer()
        digest = tokenizer_digest(tokenizer)
        if digest not in self._texts:
            self._texts[digest] = study_text(open_corpus(self.corpus_source, self.report), tokenizer, len(tokenizer))
        return self._texts[digest]


def _batch_notes() -> list[str]:
    from anisotropy.models.batch_size import take_notes

    return take_notes()


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
