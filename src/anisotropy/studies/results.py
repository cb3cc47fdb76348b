"""Where collections are kept: one folder per key, arrays and provenance, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from anisotropy.errors import UserError
from anisotropy.files import replacing
from anisotropy.provenance import digest_of

ARRAYS, RECORD = "arrays.safetensors", "record.json"


@dataclass(frozen=True)
class Key:
    """What decides the values of a collection.

    Attributes:
        study: the study's name.
        parameters: of its ``collect``.
        weight_hash: of the checkpoint.
        text: digest of the tokens it was measured on.
        code: source hash of the study and the modules it imports.
    """

    study: str
    parameters: Mapping[str, Any]
    weight_hash: str
    text: str
    code: str

    @property
    def digest(self) -> str:
        """The name under which the collection is kept."""
        return digest_of(self.content())

    def content(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "study": self.study,
            "parameters": dict(self.parameters),
            "weight_hash": self.weight_hash,
            "text": self.text,
            "code": self.code,
        }


@dataclass(frozen=True)
class Collection:
    """What one study collected from one checkpoint.

    Attributes:
        model: the model's label, such as ``mini-pythia`` or ``mini-pythia@1``.
        step: the checkpoint's step.
        weight_hash: of the checkpoint.
        arrays: the study's arrays by name.
        provenance: versions, device, seconds, date; not part of the key.
    """

    model: str
    step: int
    weight_hash: str
    arrays: Mapping[str, np.ndarray]
    provenance: Mapping[str, Any] = field(default_factory=dict)


class ResultStore:
    """A folder of collections that processes and machines can share."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: Key) -> Path:
        """Where a collection is, or would be."""
        return self.root / key.study / key.digest

    def __contains__(self, key: Key) -> bool:
        return (self.folder(key) / RECORD).is_file()

    def read(self, key: Key, model: str, step: int) -> Collection:
        """A kept collection, under the label and step of the caller.

        Raises:
            UserError: the file is damaged; the message names it.
        """
        folder = self.folder(key)
        try:
            arrays = load_file(folder / ARRAYS)
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        except (SafetensorError, OSError, json.JSONDecodeError) as error:
            raise UserError(
                f"damaged result {folder} ({error}); delete that folder, it will be measured again"
            ) from None
        return Collection(model, step, key.weight_hash, arrays, record["provenance"])

    def write(self, key: Key, collection: Collection) -> None:
        """Keep a collection; another process that wrote the same key first is left alone.

        Raises:
            UserError: the folder cannot be written to.
        """
        if key in self:
            return
        record = {
            "key": key.content(),
            "model": collection.model,
            "step": collection.step,
            "provenance": dict(collection.provenance),
        }
        with replacing(self.folder(key)) as temporary:
            temporary.mkdir()
            save_file(
                {name: np.asarray(array, order="C") for name, array in collection.arrays.items()}, temporary / ARRAYS
            )
            (temporary / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of everything kept, by study and key."""
        for file in sorted(self.root.glob(f"*/*/{RECORD}")):
            try:
                yield json.loads(file.read_text(encoding="utf-8")) | {"folder": str(file.parent)}
            except ValueError as error:
                raise UserError(
                    f"damaged result {file.parent} ({error}); delete that folder, it will be measured again"
                ) from None

    def kept(self, study: str, parameters: Mapping[str, Any], code: str) -> dict[str, list[Collection]]:
        """Every collection of one study with these parameters and this code, by model and in the order of steps.

        It needs no model and no text: results that another machine measured are found by what they say of themselves.
        """
        found: dict[str, list[Collection]] = {}
        for record in self.records():
            key = Key(**record["key"])
            if (key.study, key.parameters, key.code) == (study, dict(parameters), code):
                collection = self.read(key, record["model"], record["step"])
                found.setdefault(collection.model, []).append(collection)
        return {model: sorted(of_model, key=lambda one: one.step) for model, of_model in found.items()}
