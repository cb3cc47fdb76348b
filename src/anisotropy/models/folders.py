"""Checkpoints in folders: what ``anisotropy pretrain`` writes, and what a Trainer or ``save_pretrained`` does."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anisotropy.errors import UserError
from anisotropy.models.catalogue import ModelName, catalogue
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.loading import load_model, load_tokenizer, objective_in, weight_hash
from anisotropy.models.records import UNKNOWN_STEP, CheckpointRecord, Source, no_such_step
from anisotropy.provenance import digest_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

INDEX = "index.json"
TOKENIZER = "tokenizer"
STEP_FOLDER = re.compile(r"(?:step|checkpoint)-?(\d+)")
_TRAINING_TOKENS_PER_SECOND = 12_000


def miniature_folder(root: Path, name: ModelName) -> Path:
    """Where a miniature's checkpoints are kept."""
    return root / name.name / f"seed-{name.seed}"


def step_folder(step: int) -> str:
    """Name of a checkpoint's folder; zero-padded so that folders sort by step."""
    return f"step-{step:06d}"


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a folder of checkpoints; empty where there is none.

    Raises:
        UserError: an index that is not JSON.
    """
    file = folder / INDEX
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); delete {folder} and pretrain again") from None


def expected_minutes(tokens: int) -> float:
    """Minutes to train a miniature on so many tokens with two cores, from the speed measured on one machine."""
    return tokens / _TRAINING_TOKENS_PER_SECOND / 60


class FolderSource(Source):
    """Step folders in one folder, with the index that pretraining wrote where there is one; or one saved model."""

    def __init__(self, name: ModelName, folder: Path, *, dtype: str = "float32") -> None:
        self.name, self.folder, self._dtype = name, folder, dtype
        self.index = read_index(folder)
        if name.kind == "miniature" and not self.index.get("complete"):
            missing = "its pretraining has not finished" if self.index else "it has not been pretrained here"
            recipe = catalogue().miniatures[name.name].recipe
            raise UserError(
                f"{name.label}: {missing}; run `anisotropy pretrain {name.label}` "
                f"(about {expected_minutes(recipe.steps * recipe.tokens_per_step):.2g} minutes on two cores), "
                "or import results that hold it: `anisotropy results import FILE`"
            )
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}: give one that holds step folders, or import its results")
        self.unigram: float | None = self.index.get("unigram_cross_entropy")
        self.training = self.index
        self._folders = {
            int(match[1]): path
            for path in folder.iterdir()
            if (match := STEP_FOLDER.fullmatch(path.name)) and path.is_dir()
        }
        self._label: str | None = None
        if not self._folders and (folder / "config.json").is_file():
            self._folders, self._label = {UNKNOWN_STEP: folder}, "saved model"
        if not self._folders:
            raise UserError(
                f"{folder} holds no checkpoints: expected folders named step-N or checkpoint-N, or one saved model"
            )
        self.objective = objective_in(next(iter(self._folders.values())))

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint by step, with loss and hash where the index knows them."""
        if self.index:
            return [
                CheckpointRecord(
                    entry["step"], entry["weight_hash"] if self._dtype == "float32" else None, entry["validation_loss"]
                )
                for entry in self.index["checkpoints"]
            ]
        return [CheckpointRecord(step, label=self._label) for step in sorted(self._folders)]

    def mark(self, step: int) -> str | None:
        """The weights' hash where the index has it, else names, sizes and times of the files."""
        for entry in self.index.get("checkpoints", []):
            if entry["step"] == step:
                return str(entry["weight_hash"])
        files = sorted(path for path in self._folders[step].rglob("*") if path.is_file())
        facts = [(str(path.relative_to(self.folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
        return digest_of(facts)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer beside the steps, else the one saved with the last step."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        shared = self.folder / TOKENIZER
        return load_tokenizer(str(shared if shared.is_dir() else self._folders[max(self._folders)]))

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One checkpoint; its hash must be the one the index recorded."""
        if step not in self._folders:
            raise no_such_step(self.name.label, step, self._folders)
        folder = self._folders[step]
        model = load_model(str(folder), self.objective, device)
        found = weight_hash(model)
        entries = self.index.get("checkpoints", [])
        recorded = next((entry["weight_hash"] for entry in entries if entry["step"] == step), None)
        if recorded is not None and recorded != found:
            raise UserError(f"{folder}: weights differ from those recorded in {INDEX}; delete the folder and pretrain")
        if self._dtype != "float32":
            model = load_model(str(folder), self.objective, device, self._dtype)
            found = weight_hash(model)
        return Checkpoint(model, self.name.label, step, self.objective, self.tokenizer().mask_token_id, found)
