"""What is recorded of a model beside its results, so that they can be read where its checkpoints are not.

A *manifest* is a folder below the results: what the model is, its tokenizer, and a file per checkpoint with the hash of
its weights and a mark of where they came from (a hub commit, or sizes and times of files). With it a checkpoint whose
mark has not changed need not be loaded to learn its hash, and a model that is not on this machine at all can still be
shown from what was measured of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from anisotropy.errors import UserError
from anisotropy.files import replacing, write_json
from anisotropy.models.catalogue import ModelName
from anisotropy.models.heads import Objective
from anisotropy.models.records import CheckpointRecord, Source

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from anisotropy.models.loaded import Checkpoint

FOLDER = "models"  # below the results
MODEL, STEPS, TOKENIZER = "model.json", "checkpoints", "tokenizer"
VERSION = 1


class CheckpointEntry(BaseModel):
    """One checkpoint as recorded.

    Attributes:
        step: see :class:`anisotropy.models.records.CheckpointRecord`, as for ``validation_loss`` and ``label``.
        weights: hash by floating point type.
        mark: of the source, see :meth:`anisotropy.models.records.Source.mark`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    weights: dict[str, str]
    mark: str | None = None
    validation_loss: float | None = None
    label: str | None = None


class ModelEntry(BaseModel):
    """A model as recorded, without its checkpoints.

    Attributes:
        label: the model's label; the folder is named after it.
        kind: where it lived.
        objective: of its head.
        unigram: validation cross-entropy of the training frequencies (nats), where it is known.
        notes: sentences that a reader of its numbers should know.
        training: how a miniature was made: identity, seed, recipe, corpus; empty for others.
        texts: digest of the study text under its tokenizer, by corpus.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    label: str
    kind: Literal["miniature", "package", "hub", "folder"]
    objective: Objective
    unigram: float | None = None
    notes: tuple[str, ...] = ()
    training: dict[str, Any] = {}
    texts: dict[str, str] = {}


class Manifest:
    """What is recorded of one model, in a folder of its own that processes and machines can share."""

    def __init__(self, results: Path, label: str) -> None:
        """Nothing is read yet.

        Args:
            results: folder of all results.
            label: of the model.
        """
        self.label = label
        self.folder = results / FOLDER / folder_name(label)

    def __bool__(self) -> bool:
        return (self.folder / MODEL).is_file()

    def model(self) -> ModelEntry:
        """What is recorded of the model itself.

        Raises:
            UserError: nothing, or a file that this version cannot read.
        """
        return ModelEntry.model_validate(_read(self.folder / MODEL, ModelEntry))

    def checkpoints(self) -> dict[int, CheckpointEntry]:
        """Recorded checkpoints by step."""
        files = (self.folder / STEPS).glob("*.json")
        entries = [CheckpointEntry.model_validate(_read(file, CheckpointEntry)) for file in files]
        return {entry.step: entry for entry in sorted(entries, key=lambda entry: entry.step)}

    def keep_model(self, entry: ModelEntry, tokenizer: PreTrainedTokenizerBase) -> None:
        """Record the model and its tokenizer; of another training under this label, everything is forgotten first."""
        known = self.model() if self else None
        if known is not None and known.training != entry.training:
            for file in (self.folder / STEPS).glob("*.json"):
                file.unlink(missing_ok=True)
        if known is not None:
            entry = entry.model_copy(update={"texts": known.texts | entry.texts})
        if entry != known:
            with replacing(self.folder / TOKENIZER) as temporary:
                tokenizer.save_pretrained(temporary)
            write_json(self.folder / MODEL, entry.model_dump(mode="json"))

    def keep_checkpoint(self, record: CheckpointRecord, weight_hash: str, dtype: str, mark: str | None) -> None:
        """Record one checkpoint; hashes of other types are kept while the mark is the same."""
        file = self.folder / STEPS / f"{record.step}.json"
        known = CheckpointEntry.model_validate(_read(file, CheckpointEntry)) if file.is_file() else None
        weights = known.weights if known is not None and known.mark == mark else {}
        if mark is None and weights.get(dtype) not in (None, weight_hash):
            weights = {}
        entry = CheckpointEntry(
            step=record.step,
            weights={**weights, dtype: weight_hash},
            mark=mark,
            validation_loss=record.validation_loss,
            label=record.label,
        )
        if entry != known:
            self.write_checkpoint(entry)

    def write_checkpoint(self, entry: CheckpointEntry) -> None:
        """Record a checkpoint in place of what was recorded of it."""
        write_json(self.folder / STEPS / f"{entry.step}.json", entry.model_dump(mode="json"))

    def add_texts(self, texts: Mapping[str, str]) -> None:
        """Record digests of study texts, those of corpora that are recorded already excepted."""
        known = self.model()
        if set(texts) - set(known.texts):
            entry = known.model_copy(update={"texts": {**texts, **known.texts}})
            write_json(self.folder / MODEL, entry.model_dump(mode="json"))

    def files(self) -> Iterator[Path]:
        """Everything that makes the manifest up, the model first."""
        yield self.folder / MODEL
        yield from sorted((self.folder / STEPS).glob("*.json"))
        yield from sorted(file for file in (self.folder / TOKENIZER).glob("*") if is_tokenizer_file(file.name))


def folder_name(label: str) -> str:
    """The folder of a label: the label itself where it can be one, else readable and with a digest."""
    if re.fullmatch(r"\w[\w.@-]*", label):
        return label
    readable = re.sub(r"[^\w.@-]+", "--", label).strip("-.")[-80:]
    return f"{readable}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def is_tokenizer_file(name: str) -> bool:
    """Whether a file of this name can be part of a recorded tokenizer; nothing that holds code or pickles."""
    return re.fullmatch(r"\w[\w.-]*\.(json|txt|model|jinja)", name) is not None


def manifests(results: Path) -> list[Manifest]:
    """Everything recorded, by label."""
    found = []
    for file in sorted((results / FOLDER).glob(f"*/{MODEL}")):
        label = str(_read(file, ModelEntry).get("label"))
        if folder_name(label) == file.parent.name:
            found.append(Manifest(results, label))
    return found


def _read(file: Path, kind: type[BaseModel]) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind.model_validate(content)
    except OSError:
        raise UserError(f"nothing is recorded here: no {file}") from None
    except (ValueError, ValidationError):
        raise UserError(f"damaged record {file}; delete it, it will be written again") from None
    return content


class RecordedSource(Source):
    """A model as recorded, over its checkpoints where these are on this machine, or without them.

    Where both are there the checkpoints decide: a recorded hash counts only under an unchanged mark. A hub model of
    which only some revisions are in the cache, with no network, has the recorded ones too.
    """

    def __init__(
        self, name: ModelName, manifest: Manifest, live: Source | UserError, *, dtype: str = "float32"
    ) -> None:
        """Args:
            name: of the model.
            manifest: what is recorded of it.
            live: its checkpoints on this machine, or why they are not there.
            dtype: floating point type whose hashes count.

        Raises:
            UserError: there are neither checkpoints nor records.
        """
        self.name, self.manifest, self._dtype = name, manifest, dtype
        self._live = None if isinstance(live, UserError) else live
        self._missing = live if isinstance(live, UserError) else None
        entry = manifest.model() if manifest else None
        if self._live is not None:
            self.objective, self.unigram, self.notes = self._live.objective, self._live.unigram, self._live.notes
        elif entry is not None:
            self.objective, self.unigram, self.notes = entry.objective, entry.unigram, entry.notes
        else:
            assert self._missing is not None
            raise self._missing

    @property
    def is_here(self) -> bool:
        """Whether any checkpoint is on this machine, or can be had from the hub."""
        return self._live is not None

    @cached_property
    def _recorded(self) -> Mapping[int, CheckpointEntry]:
        return self.manifest.checkpoints() if self.manifest else {}

    @cached_property
    def _loadable(self) -> frozenset[int]:
        return frozenset(record.step for record in self._live.records()) if self._live else frozenset()

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint, with the hash of its weights wherever that is known."""
        found = {record.step: self._with_hash(record) for record in self._live.records()} if self._live else {}
        if self._live is None or not self._live.is_whole:
            for step, entry in self._recorded.items():
                known = CheckpointRecord(step, entry.weights.get(self._dtype), entry.validation_loss, entry.label)
                if known.weight_hash is not None:
                    found.setdefault(step, known)
        return [found[step] for step in sorted(found)]

    def _with_hash(self, record: CheckpointRecord) -> CheckpointRecord:
        entry = self._recorded.get(record.step)
        mark = self.mark(record.step)
        if record.weight_hash is not None or entry is None or mark is None or entry.mark != mark:
            return record
        known = entry.weights.get(self._dtype)
        return CheckpointRecord(record.step, known, record.validation_loss, record.label)

    def mark(self, step: int) -> str | None:
        """That of the checkpoint on this machine."""
        return self._live.mark(step) if self._live and step in self._loadable else None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's own; where it cannot be had at once, the recorded one."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        from anisotropy.models.loading import load_tokenizer

        try:  # a package is unpacked to get at its tokenizer, which recorded results need not wait for
            if self._live is not None and not (self.manifest and self.name.kind == "package"):
                return self._live.tokenizer()
        except UserError:
            if not self.manifest:
                raise
        return load_tokenizer(str(self.manifest.folder / TOKENIZER), f"the recorded tokenizer of {self.name.label}")

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One checkpoint, where it is on this machine or can be had from the hub.

        Raises:
            UserError: it is only recorded; the message says how to get it, or what else would do.
        """
        if self._live is not None and (step in self._loadable or step not in self._recorded):
            return self._live.load(step, device)
        why = f" ({self._missing})" if self._missing else ""
        raise UserError(
            f"{self.name.label}: the weights of step {step} are not on this machine, only results that were imported "
            f"or measured before, and not all that is asked for is among them{why}; import results measured with this "
            "version of the code and these parameters (`anisotropy results import FILE`), or get the weights"
        )

    def keep(self, corpus: str, text: str) -> None:
        """Record the model and every checkpoint whose hash is known.

        Args:
            corpus: source of the study text.
            text: its digest under the model's tokenizer.
        """
        if self._live is None:
            return
        training = {
            field: self._live.training[field]
            for field in ("identity", "seed", "recipe", "corpus")
            if field in self._live.training
        }
        self.manifest.keep_model(
            ModelEntry(
                label=self.name.label,
                kind=self.name.kind,
                objective=self.objective,
                unigram=self.unigram,
                notes=tuple(self.notes),
                training=training,
                texts={corpus: text},
            ),
            self.tokenizer(),
        )
        for record in self.records():
            if record.weight_hash is not None and record.step in self._loadable:
                self.keep_checkpoint(record, record.weight_hash)

    def keep_checkpoint(self, record: CheckpointRecord, weight_hash: str) -> None:
        """Record one checkpoint that is on this machine."""
        if record.step in self._loadable:
            self.manifest.keep_checkpoint(record, weight_hash, self._dtype, self.mark(record.step))
