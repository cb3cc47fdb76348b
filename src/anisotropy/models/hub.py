"""Hub repositories whose branches or tags are checkpoints, and models that were published once."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from anisotropy.errors import UnknownNameError, UserError
from anisotropy.models.catalogue import HubModel, ModelName, catalogue
from anisotropy.models.heads import Objective
from anisotropy.models.hub_errors import hub_error
from anisotropy.models.hub_files import (
    drop_weights,
    fetch_descriptions,
    fetch_model,
    find_revisions,
)
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.loading import load_model, load_tokenizer, objective_in, weight_hash
from anisotropy.models.records import UNKNOWN_STEP, CheckpointRecord, Source, listing, nearest, no_such_step

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

MAIN = "main"
# step1000, step-160000, global_step500, checkpoint-20, stage1-step10000-tokens21B, step1000-tokens4B
_STEP = re.compile(r"(?:^|[-_/.])(?:global[-_]?)?(?:step|checkpoint|ckpt|iter)s?[-_]?(\d+)(?![\d.])", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubSource(Source):
    """Revisions of a hub repository: those a user names, else those with a step in their name, else ``main``.

    Attributes:
        repository: on the hub, ``owner/name``.
        revisions: branch, tag or commit by step; see :class:`~anisotropy.models.records.CheckpointRecord` for steps
            that are not known.
    """

    def __init__(self, name: ModelName, *, dtype: str = "float32", evict: bool = False) -> None:
        """Ask the hub, or the cache, which revisions there are; only the newest one's configuration is downloaded.

        Args:
            name: parsed.
            dtype: floating point type to load in.
            evict: delete weights from the cache once they are loaded, unless they were there before.

        Raises:
            UserError: no such repository or revision, no answer and nothing in the cache, two revisions of one step,
                a model without a language model head.
        """
        self.name, self._dtype, self._evict = name, dtype, evict
        self.entry: HubModel | None = catalogue().hub.get(name.name)
        self.repository = self.entry.hub if self.entry else name.name
        self._known = find_revisions(self.repository)
        self.is_whole = self._known.missing is None
        self.notes: list[str] = []
        self.revisions, self._labels = self._in_order(self._chosen())
        self.objective: Objective = self.entry.objective if self.entry else self._objective()

    def _chosen(self) -> list[str]:
        available = list(self._known.commits)
        if self.name.revisions:
            return list(dict.fromkeys(found for asked in self.name.revisions for found in self._matching(asked)))
        if found := [revision for revision in available if self._step(revision, whole=True) is not None]:
            return found
        if MAIN not in available:
            raise UserError(
                f"{self.name.label}: no revision of {self.repository} has a step in its name; name those you want, for "
                f"example {self.name.name}@{(available or [MAIN])[0]} (it has {listing(sorted(available)) or 'none'})"
            )
        if self.entry:
            self.notes.append(
                f"{self.name.label}: no revision of {self.repository} is named like {self.entry.branch}, so only the "
                "released model is measured"
            )
        return [MAIN]

    def _matching(self, asked: str) -> list[str]:
        available = sorted(self._known.commits)
        if asked in available or _COMMIT.fullmatch(asked):
            return [asked]
        if "*" in asked:
            pattern = re.compile(".*".join(map(re.escape, asked.split("*"))))
            if found := [revision for revision in available if pattern.fullmatch(revision)]:
                return found
        near = ", ".join(nearest(asked, available))
        if self._known.missing is not None:
            said = hub_error(self.repository, self._known.missing, asked)
            raise UnknownNameError(f"{said}; in the cache are its revisions {listing(available)}")
        raise UnknownNameError(
            f"{self.name.name} has no revision {asked!r}: {f'did you mean {near}? ' if near else ''}"
            f"{self.repository} has {listing(sorted(available, key=_natural))}"
        )

    def _step(self, revision: str, whole: bool = False) -> int | None:
        if self.entry and (match := re.fullmatch(self.entry.branch, revision)):
            return int(match[1])
        if self.entry and whole:
            return None
        return int(match[1]) if (match := _STEP.search(revision)) else None

    def _in_order(self, chosen: list[str]) -> tuple[dict[int, str], dict[int, str]]:
        """Revisions by step, and labels of those whose step is not known."""
        by_step: dict[int, str] = {}
        unknown: list[str] = []
        for revision in chosen:
            step = self._step(revision)
            if step is None:
                unknown.append(revision)
            elif self._commit(twin := by_step.setdefault(step, revision)) != self._commit(revision):
                stem = twin[: twin.find(str(step))]
                raise UserError(
                    f"{self.name.label}: {twin} and {revision} are both step {step}; name the revisions of one course "
                    f"of training, for example {self.name.name}@{stem}*"
                )
        first = max(UNKNOWN_STEP, max(by_step, default=0) + 1)
        labels = {first + place: _label(revision) for place, revision in enumerate(unknown)}
        after = {first + place: revision for place, revision in enumerate(unknown)}
        return dict(sorted(by_step.items())) | after, labels

    def _commit(self, revision: str) -> str:
        return self._known.commits.get(revision, revision)

    def _objective(self) -> Objective:
        revision = list(self.revisions.values())[-1]
        return objective_in(fetch_descriptions(self.repository, revision), f"{self.repository}@{revision}")

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint; hashes of weights are not known before these are loaded."""
        return [CheckpointRecord(step, label=self._labels.get(step)) for step in self.revisions]

    def mark(self, step: int) -> str | None:
        """The commit that the revision points to."""
        return self._commit(self.revisions[step])

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the final model; where that cannot be had, the one at the last checkpoint."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        places = [(self.entry.tokenizer if self.entry else None) or self.repository, self.repository]
        last = list(self.revisions.values())[-1]
        first_error = None
        for repository, revision in dict.fromkeys(zip(places, (MAIN, last), strict=True)):
            try:
                return load_tokenizer(str(fetch_descriptions(repository, revision)), f"{repository}@{revision}")
            except UserError as error:
                first_error = first_error or error
        assert first_error is not None
        raise first_error

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One revision, downloaded or from the cache, and gone from there again where it is to be evicted."""
        if step not in self.revisions:
            raise no_such_step(self.name.label, step, self.revisions)
        revision = self.revisions[step]
        folder, new = fetch_model(self.repository, revision, self._commit(revision))
        model = load_model(str(folder), self.objective, device, self._dtype, f"{self.repository}@{revision}")
        if self._evict and new:
            drop_weights(folder)
        found = weight_hash(model)
        return Checkpoint(model, self.name.label, step, self.objective, self.tokenizer().mask_token_id, found)


def _label(revision: str) -> str:
    return "released model" if revision == MAIN else revision


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Sort ``step2`` before ``step10``."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]
