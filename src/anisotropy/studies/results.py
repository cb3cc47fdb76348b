"""Where collections are kept: one folder per key, arrays and provenance, written whole or not at all."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from anisotropy.errors import UserError
from anisotropy.files import make_folder, replacing
from anisotropy.provenance import digest_of

_ARRAYS, _RECORD = "arrays.safetensors", "record.json"


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

    def _folder(self, key: Key) -> Path:
        return self.root / key.study / key.digest

    def __contains__(self, key: Key) -> bool:
        return (self._folder(key) / _RECORD).is_file()

    def read(self, key: Key, model: str, step: int) -> Collection:
        """A kept collection, under the label and step of the caller.

        Raises:
            UserError: the file is damaged; the message names it.
        """
        folder = self._folder(key)
        try:
            arrays = load_file(folder / _ARRAYS)
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
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
        with replacing(self._folder(key)) as temporary:
            temporary.mkdir()
            save_file(
                {name: np.asarray(array, order="C") for name, array in collection.arrays.items()}, temporary / _ARRAYS
            )
            (temporary / _RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of everything kept, by study and key."""
        for file in sorted(self.root.glob(f"*/*/{_RECORD}")):
            yield json.loads(file.read_text(encoding="utf-8")) | {"folder": str(file.parent)}

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

    def export(self, target: Path) -> int:
        """Write everything kept into one ``.tar`` file; returns how many collections."""
        folders = sorted(file.parent for file in self.root.glob(f"*/*/{_RECORD}"))
        if not folders:
            raise UserError(f"nothing to export: {self.root} holds no results")
        with replacing(target) as temporary, tarfile.open(temporary, "w") as archive:
            for folder in folders:
                for name in (_ARRAYS, _RECORD):
                    archive.add(folder / name, arcname=str(PurePosixPath(folder.parent.name, folder.name, name)))
        return len(folders)

    def import_from(self, source: Path) -> tuple[int, int]:
        """Take in an exported file; returns how many collections were new and how many were here already.

        Raises:
            UserError: no such file, not an export, or one whose members are not what an export holds.
        """
        if not source.is_file():
            raise UserError(f"no such file: {source}")
        make_folder(self.root)
        new = known = 0
        try:
            with tarfile.open(source) as archive:
                members = {tuple(PurePosixPath(member.name).parts): member for member in archive if member.isfile()}
                for parts in sorted(parts for parts in members if parts[-1] == _RECORD):
                    record = json.loads(_content(archive, members[parts]))
                    key = Key(**record["key"])
                    if parts != (key.study, key.digest, _RECORD):
                        raise UserError(f"{source} is not an export of results: {'/'.join(parts)} belies its record")
                    if key in self:
                        known += 1
                        continue
                    with replacing(self._folder(key)) as temporary:
                        temporary.mkdir()
                        for name in (_ARRAYS, _RECORD):
                            (temporary / name).write_bytes(_content(archive, members[(*parts[:-1], name)]))
                    new += 1
        except (tarfile.TarError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise UserError(f"{source} is not an export of results ({error})") from None
        return new, known


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()
