"""A notebook's first call: check its parameters, resolve its models, then read or measure what it asks for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown, display

from anisotropy.errors import UserError
from anisotropy.models.catalogue import ModelName, catalogue, parse_name
from anisotropy.models.checkpoints import Source, quiet_transformers
from anisotropy.models.corpus import EMBEDDED
from anisotropy.provenance import git_revision, source_hash, versions
from anisotropy.report.verdict_data import PROVENANCE, VERSION
from anisotropy.runs.measuring import Laboratory, Measured, Steps, study_parameters
from anisotropy.runs.project import find_project
from anisotropy.studies.results import Collection

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Page:
    """A page that measures no model: what it computes, it computes itself."""

    def __init__(self, origin: str = "no model and no text takes part") -> None:
        """Start the page's clock.

        Args:
            origin: what the page's numbers come from, after "Computed on this page from its parameters".
        """
        self._started, self._origin = time.perf_counter(), origin

    def finish(self) -> None:
        """Show where the page's numbers come from; the last call of every notebook."""
        shown = "\n".join(["**Where these numbers come from**", "", *self._origins(), self._made()])
        display({"text/markdown": shown, "text/plain": shown, PROVENANCE: self.provenance()}, raw=True)

    def provenance(self) -> dict[str, Any]:
        """Where the page's numbers come from, as data: versions, revision, date, seconds, and models where it has any.

        The date is that of now, the seconds those since the page began.
        """
        return {
            "version": VERSION,
            "package": versions(["anisotropy"])["anisotropy"],
            "revision": git_revision(),
            "libraries": versions(("torch", "transformers", "numpy", "scipy", "pandas")),
            "executed": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - self._started, 1),
            "models": [],
        }

    def _origins(self) -> list[str]:
        return [f"Computed on this page from its parameters; {self._origin}.", ""]

    def _made(self) -> str:
        libraries = ", ".join(f"{name} {version}" for name, version in versions(("torch", "transformers")).items())
        return (
            f"Revision `{git_revision() or 'no git checkout'}`; {libraries}; executed {datetime.now(UTC):%Y-%m-%d} in "
            f"{time.perf_counter() - self._started:.0f} s."
        )


class Session(Page):
    """The models of one page, side by side, and everything measured on them.

    Attributes:
        models: labels of the models the page is about.
        controls: label of a model's shuffled-label control, by model, where one was asked for.
    """

    def __init__(
        self,
        *,
        models: Sequence[str],
        controls: Sequence[str] = (),
        checkpoints: Steps = "all",
        corpus: str = EMBEDDED,
        device: str = "auto",
        dtype: str | None = None,
        evict: bool | None = None,
    ) -> None:
        """Check the parameters and find every model's checkpoints; nothing is loaded yet.

        Args:
            models: catalogue names, hub ids, or folders of checkpoints.
            controls: catalogue names of shuffled-label runs, each the control of one of ``models``.
            checkpoints: ``"all"``, a list of steps, or a number of log-spaced ones; controls always use all.
            corpus: the study corpus.
            device: ``"auto"``, or what torch calls it.
            dtype: floating point type of the weights; by default the project's, which is float32 unless changed.
            evict: delete weights from the hub's cache once they are loaded, unless they were there before; by default
                as the project does.

        Raises:
            UserError: no models, an unknown one, one that has not been pretrained, a control of no model here.
        """
        super().__init__()
        if not models:
            raise UserError("models: at least one is needed, for example ['mini-pythia']")
        names = [parse_name(model) for model in models]
        if repeated := next((name.label for name in names if names.count(name) > 1), None):
            raise UserError(f"models: {repeated!r} is listed twice")
        self._names = {name.label: name for name in names}
        self.models = list(self._names)
        self.controls = {}
        for control in map(parse_name, controls):
            self.controls[self._controlled(control)] = control.label
            self._names[control.label] = control
        self._checkpoints, self.corpus = checkpoints, corpus
        self._laboratory = Laboratory(
            find_project(), corpus=corpus, device=device, dtype=dtype, evict=evict, report=self._report
        )
        quiet_transformers()
        self._line: Any = None
        self._sources: dict[str, Source] = {label: self._laboratory.open(name) for label, name in self._names.items()}
        self._measured: dict[str, Measured] = {}
        self._studies: set[str] = set()

    def _controlled(self, control: ModelName) -> str:
        entry = catalogue().miniatures.get(control.name)
        of = entry.control_of if entry else None
        if of is None:
            raise UserError(f"controls: {control.label!r} is no shuffled-label run of the catalogue")
        label = ModelName(kind="miniature", name=of, seed=control.seed).label
        if label not in self.models:
            raise UserError(f"controls: {control.label!r} is the control of {label!r}, which is not among the models")
        return label

    def _report(self, line: str) -> None:
        # One line that is replaced: a page shows the last state, somebody who watches sees it move.
        if self._line is None:
            self._line = display(Markdown(line), display_id=True)
        else:
            self._line.update(Markdown(line))

    def title(self, label: str) -> str:
        """A model's name for figures and tables; folders of one name show enough of their paths to tell them apart."""
        title = self._names[label].title
        alike = [Path(name.name).parts for name in self._names.values() if name.title == title]
        if self._names[label].kind != "folder" or len(alike) == 1:
            return title
        parts = Path(self._names[label].name).parts
        lengths = range(1, len(parts))
        told = (n for n in lengths if [other[-n:] for other in alike].count(parts[-n:]) == 1)
        return str(Path(*parts[-next(told, len(parts)) :]))

    def titles(self) -> dict[str, str]:
        """Titles by label, controls included; a summary over training seeds goes by the name without its seed."""
        without_seed = {
            name.name: name.model_copy(update={"seed": 0}).title
            for name in self._names.values()
            if name.kind == "miniature"
        }
        return without_seed | {label: self.title(label) for label in self._names}

    def collect(self, study: str, **parameters: Any) -> dict[str, list[Collection]]:
        """Collections of every model and control, by label; measured where they are not kept yet.

        Checkpoints that repeat another's weights are left out, and named on the page.

        Raises:
            UserError: a parameter that the study refuses, a missing or damaged checkpoint.
        """
        checked = study_parameters(study, parameters)
        self._studies.add(study)
        started, controls = time.perf_counter(), set(self.controls.values())
        found = {}
        for label in self._names:
            steps = "all" if label in controls else self._checkpoints
            measured = self._laboratory.measure(label, study, checked, steps)
            self._measured[label], found[label] = measured, measured.collections
        seconds = time.perf_counter() - started
        used = sum(len(collections) for collections in found.values())
        loaded = sum(self._measured[label].loaded for label in found)
        self._report(
            f"{used} checkpoints of {len(found)} models: {used - loaded} read from `results/`, {loaded} measured now "
            f"({seconds:.0f} s)."
        )
        for label in found:
            for note in self._measured[label].notes:
                display(Markdown(f"**Note.** {note}."))
        return found

    def kept(self, study: str, **parameters: Any) -> dict[str, list[Collection]]:
        """Collections of models that are not on this page but were measured or imported before, by label."""
        found = self._laboratory.kept(study, study_parameters(study, parameters))
        return {label: collections for label, collections in found.items() if label not in self._names}

    def training(self) -> pd.DataFrame:
        """Validation loss of models pretrained here: ``model``, ``step``, ``loss``, ``unigram`` (nats)."""
        rows = [
            {"model": label, "step": record.step, "loss": record.validation_loss, "unigram": source.unigram}
            for label, source in self._sources.items()
            for record in source.records()
            if record.validation_loss is not None
        ]
        return pd.DataFrame(rows, columns=["model", "step", "loss", "unigram"])

    def token_text(self, label: str, ids: Iterable[int]) -> list[str]:
        """Tokens as a reader sees them: space ``␣``, line break ``↵``, other bytes ``\\xe2``."""
        tokenizer = self._sources[label].tokenizer()
        return [_readable(tokenizer, int(token)) for token in ids]

    def decoders(self) -> list[str]:
        """The causal models of the page."""
        return [label for label in self.models if self._sources[label].objective == "causal"]

    def overview(self) -> pd.DataFrame:
        """What each model of the page is, in words."""
        rows = []
        for label, name in self._names.items():
            known = catalogue()
            entry = known.miniatures.get(name.name) or known.packages.get(name.name) or known.hub.get(name.name)
            role = "control" if label in self.controls.values() else self._sources[label].objective
            rows.append({"model": self.title(label), "role": role, "what it is": entry.note if entry else name.name})
        return pd.DataFrame(rows)

    def vocabulary(self, label: str) -> dict[str, int]:
        """Sizes of the study text under a model's tokenizer: tokens counted, vocabulary, and how much of it occurs."""
        counts = self._laboratory.text(self._sources[label]).counts
        return {
            "tokens counted": int(counts.sum()),
            "vocabulary size": len(counts),
            "never seen": int((counts == 0).sum()),
        }

    def provenance(self) -> dict[str, Any]:
        """As of a page without models, and for every model which checkpoints, measured where and when."""
        return super().provenance() | {
            "corpus": self.corpus,
            "studies": {study: source_hash(f"anisotropy.studies.{study}") for study in sorted(self._studies)},
            "models": [
                {
                    "model": label,
                    "title": self.title(label),
                    "kind": self._names[label].kind,
                    "training_seed": self._names[label].seed if self._names[label].kind == "miniature" else None,
                    "objective": measured.objective,
                    "control": label in self.controls.values(),
                    "steps": [collection.step for collection in measured.collections],
                    "devices": sorted({str(one.provenance["device"]) for one in measured.collections}),
                    "measured": max((str(one.provenance["date"]) for one in measured.collections), default=None),
                }
                for label, measured in self._measured.items()
            ],
        }

    def _origins(self) -> list[str]:
        rows = []
        for label, measured in self._measured.items():
            collections = measured.collections
            devices = sorted({str(collection.provenance["device"]) for collection in collections})
            dates = sorted(str(collection.provenance["date"])[:10] for collection in collections)
            names = {record.step: record.label or f"{record.step}" for record in self._sources[label].records()}
            ends = dict.fromkeys(names.get(one.step, f"{one.step}") for one in (collections[0], collections[-1]))
            rows.append(
                f"| {self.title(label)} | {measured.objective} | {len(collections)} ({' … '.join(ends)}) "
                f"| {self._names[label].seed if self._names[label].kind == 'miniature' else '–'} "
                f"| {', '.join(devices)} | {dates[-1]} |"
            )
        return [
            "| model | objective | checkpoints (steps) | training seed | device | measured |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"Corpus `{self.corpus}`; weights in {self._laboratory.dtype}.",
        ]


def _readable(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    text = tokenizer.decode([token])
    if "\ufffd" in text:
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
        piece = tokenizer.convert_ids_to_tokens(token)
        return "".join(f"\\x{byte_of[character]:02x}" if character in byte_of else character for character in piece)
    return text.replace(" ", "␣").replace("\n", "↵")
