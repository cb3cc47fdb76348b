"""Results in one file: a cluster's become a laptop's book, a teacher's a class's.

The file is a plain tar. Its first member lists all others with their SHA-256; then come manifests (see
``anisotropy.models.recorded``) and collections. What is taken in is checked by content and by name, and written
under a name made from the content: a member's own path is never followed.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError
from tqdm import tqdm

from anisotropy.errors import UserError
from anisotropy.files import make_folder, replacing
from anisotropy.models.recorded import (
    FOLDER,
    MODEL,
    STEPS,
    TOKENIZER,
    CheckpointEntry,
    Manifest,
    ModelEntry,
    folder_name,
    is_tokenizer_file,
    manifests,
)
from anisotropy.provenance import git_revision, module_file, source_hash
from anisotropy.runs.measuring import STUDIES
from anisotropy.studies.results import ARRAYS, RECORD, Key, ResultStore

LISTING = "contents.json"
FORMAT, VERSION = "anisotropy results", 1
_LARGEST_LISTING = 256 * 2**20


@dataclass
class Exported:
    """What an export holds: number of collections, labels of the models recorded beside them, size in bytes."""

    collections: int
    models: list[str]
    size: int


@dataclass
class Imported:
    """What an import did.

    Attributes:
        new, known: collections that were taken in, and that were here already.
        usable: those of the file that this version of the code reads; others it would measure again.
        models: labels recorded anew, or of which checkpoints were added.
        other_runs: labels whose record here is of another training, which stays.
    """

    new: int = 0
    known: int = 0
    usable: int = 0
    models: list[str] = field(default_factory=list)
    other_runs: list[str] = field(default_factory=list)


@cache
def current_code(study: str) -> str | None:
    """Source hash of a study in this version of the code; ``None`` where it has no such study."""
    module = f"anisotropy.studies.{study}"
    return source_hash(module) if study in STUDIES and module_file(module).is_file() else None


def is_usable(key: Mapping[str, Any]) -> bool:
    """Whether this version of the code reads the collection of this key, instead of measuring it again."""
    return key["code"] == current_code(str(key["study"]))


def export_results(
    results: Path,
    target: Path,
    *,
    models: Sequence[str] = (),
    requests: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] | None = None,
) -> Exported:
    """Write results and what is recorded of their models into one file.

    Args:
        results: folder of all results.
        target: the file.
        models: labels; only their collections. Empty for all.
        requests: instead of models: by label, studies with parameters; only collections of these that this version
            reads.

    Raises:
        UserError: nothing to export, a label of which nothing is recorded, or a target that cannot be written.
    """
    recorded = {manifest.label: manifest for manifest in manifests(results)}
    records = list(ResultStore(results).records())
    if requests is not None:
        models = list(requests)
    if unknown := [label for label in models if label not in recorded]:
        raise UserError(
            f"nothing is recorded of {unknown[0]!r}: measure it first (recorded: {', '.join(recorded) or 'no model'})"
        )
    if models:
        recorded = {label: recorded[label] for label in models}
        records = [record for record in records if _belongs(record, recorded, requests)]
    if not records:
        raise UserError(f"nothing to export: {results} holds no such results")
    if target.is_dir():
        raise UserError(f"{target} is a folder; name a file, for example {target / 'results.tar'}")
    files = [file for manifest in recorded.values() for file in manifest.files()]
    files += [Path(record["folder"]) / name for record in records for name in (ARRAYS, RECORD)]
    with replacing(target) as temporary, tarfile.open(temporary, "w") as archive:
        names = {file: str(PurePosixPath(*file.relative_to(results).parts)) for file in files}
        listing = {"format": FORMAT, "version": VERSION, "revision": git_revision()}
        listing["files"] = {names[file]: _digest(file) for file in _shown(files, "reading")}
        _add(archive, LISTING, json.dumps(listing, indent=1, sort_keys=True).encode())
        for file in _shown(files, "writing"):
            archive.add(file, arcname=names[file], recursive=False, filter=_anonymous)
    return Exported(len(records), list(recorded), target.stat().st_size)


def _belongs(
    record: Mapping[str, Any],
    recorded: Mapping[str, Manifest],
    requests: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] | None,
) -> bool:
    key = record["key"]
    owners = [label for label, manifest in recorded.items() if key["weight_hash"] in _weights(manifest)]
    if requests is None or not owners:
        return bool(owners)
    return is_usable(key) and any((key["study"], key["parameters"]) in requests[label] for label in owners)


@cache
def _weights(manifest: Manifest) -> Collection[str]:
    return {weights for entry in manifest.checkpoints().values() for weights in entry.weights.values()}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = _anonymous(tarfile.TarInfo(name))
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _shown(files: Sequence[Any], what: str) -> Iterator[Any]:
    return tqdm(files, desc=what, unit="file", leave=False, disable=None)  # in terminals only


def import_results(results: Path, source: Path) -> Imported:
    """Take in an exported file; what is here already stays as it is.

    Raises:
        UserError: no such file, not an export, one of a newer version, or a damaged one; what came before the damage
            has been taken in and is whole.
    """
    if not source.is_file():
        raise UserError(f"no such file: {source}")
    make_folder(results)
    try:
        with tarfile.open(source, "r:") as archive:
            return _take_in(archive, results, source)
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"{source} is not an export of results, or is cut off ({error})") from None


def _take_in(archive: tarfile.TarFile, results: Path, source: Path) -> Imported:
    digests = _listed(archive, source)
    done, store = Imported(), ResultStore(results)
    waiting: dict[str, dict[str, bytes]] = {}  # by folder, until a model or a collection is whole
    seen = set()
    for member in _shown_members(archive, len(digests)):
        if not member.isfile() or member.name not in digests:
            raise UserError(f"{source} is not an export of results: it holds {member.name!r}, which is not in its list")
        content = _content(archive, member)
        if hashlib.sha256(content).hexdigest() != digests[member.name]:
            raise UserError(f"{source} is damaged: {member.name} is not what was exported; get the file again")
        seen.add(member.name)
        parts = PurePosixPath(member.name).parts
        place = "/".join(parts[:2])
        waiting.setdefault(place, {})["/".join(parts[2:])] = content
        if parts[0] != FOLDER and {ARRAYS, RECORD} <= waiting[place].keys():
            _take_collection(waiting.pop(place), place, store, source, done)
    if missing := len(digests) - len(seen):
        raise UserError(f"{source} is cut off: {missing} of its {len(digests)} files are missing")
    for place, files in waiting.items():
        _take_manifest(files, place, results, source, done)
    return done


def _shown_members(archive: tarfile.TarFile, number: int) -> Iterator[tarfile.TarInfo]:
    rest = iter(archive.next, None)
    return tqdm(rest, total=number, desc="importing", unit="file", leave=False, disable=None)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    content = file.read() if file else b""
    if len(content) != member.size:
        raise tarfile.ReadError(f"{member.name} ends too early")
    return content


def _listed(archive: tarfile.TarFile, source: Path) -> dict[str, str]:
    """The files that an export says it holds, with their digests."""
    first = archive.next()
    try:
        if first is None or first.name != LISTING or not first.isfile() or first.size > _LARGEST_LISTING:
            raise ValueError("its first file is not the list of its files")
        listing = json.loads(_content(archive, first))
        if listing["format"] != FORMAT:
            raise ValueError(f"its format is {listing['format']!r}")
        if listing["version"] != VERSION:
            raise UserError(f"{source} was written by a newer version of this project; update it, then import again")
        return {str(name): str(digest) for name, digest in listing["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{source} is not an export of results ({error})") from None


def _take_collection(files: Mapping[str, bytes], place: str, store: ResultStore, source: Path, done: Imported) -> None:
    try:
        key = Key(**json.loads(files[RECORD])["key"])
        told = f"{key.study}/{key.digest}"
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{source} is not an export of results ({place}: {error})") from None
    if place != told or not key.study.isidentifier():
        raise UserError(f"{source} is not an export of results: {place} belies its record")
    done.usable += is_usable(key.content())
    if key in store:
        done.known += 1
        return
    with replacing(store.folder(key)) as temporary:
        temporary.mkdir()
        for name in (ARRAYS, RECORD):
            (temporary / name).write_bytes(files[name])
    done.new += 1


def _take_manifest(files: Mapping[str, bytes], place: str, results: Path, source: Path, done: Imported) -> None:
    try:
        model = ModelEntry.model_validate_json(files[MODEL])
        steps = [CheckpointEntry.model_validate_json(files[name]) for name in files if name.startswith(f"{STEPS}/")]
    except (ValidationError, KeyError) as error:
        raise UserError(f"{source} is not an export of results ({place}: {type(error).__name__})") from None
    tokenizer = {name.partition("/")[2]: files[name] for name in files if name.startswith(f"{TOKENIZER}/")}
    named = {MODEL, *(f"{STEPS}/{entry.step}.json" for entry in steps), *(f"{TOKENIZER}/{name}" for name in tokenizer)}
    if (
        place != f"{FOLDER}/{folder_name(model.label)}"
        or named != set(files)
        or not all(map(is_tokenizer_file, tokenizer))
    ):
        raise UserError(f"{source} is not an export of results: {place} belies its record")
    here = Manifest(results, model.label)
    if here:
        _add_to(here, model, steps, done)
        return
    with replacing(here.folder) as temporary:
        for name, content in files.items():
            make_folder((temporary / name).parent)
            (temporary / name).write_bytes(content)
    done.models.append(model.label)


def _add_to(here: Manifest, model: ModelEntry, steps: Sequence[CheckpointEntry], done: Imported) -> None:
    """Add checkpoints that are not recorded here yet, if it is the same training."""
    known = here.checkpoints()
    same = here.model().training == model.training and all(
        known[entry.step].weights.get(dtype, weights) == weights
        for entry in steps
        if entry.step in known
        for dtype, weights in entry.weights.items()
    )
    if not same:
        done.other_runs.append(model.label)
        return
    missing = [entry for entry in steps if entry.step not in known]
    for entry in missing:
        here.write_checkpoint(entry)
    here.add_texts(model.texts)
    if missing:
        done.models.append(model.label)
