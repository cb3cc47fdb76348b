"""Files of the hub and of its cache on this machine: list revisions, download what is needed, free disk again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from anisotropy.errors import UserError
from anisotropy.models.catalogue import catalogue
from anisotropy.models.hub_errors import hub_error, unanswered
from anisotropy.models.records import listing

_SAFETENSORS, _PICKLED = "model*.safetensors", "pytorch_model*.bin"
_DESCRIPTIONS = (".json", ".txt", ".model", ".jinja")  # configuration, tokenizer, list of parts; all small

_ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class Revisions:
    """What a repository has.

    Attributes:
        commits: commit by name of branch or tag.
        missing: why the hub could not be asked, so that these are only those in the cache; ``None`` if it was.
    """

    commits: Mapping[str, str]
    missing: BaseException | None = None


def find_revisions(repository: str) -> Revisions:
    """Branches and tags of a hub repository; without an answer of the hub, those the cache holds.

    Raises:
        UserError: no such repository (the message names similar ones), or no answer and nothing in the cache.
    """
    from huggingface_hub import list_repo_refs
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        found = list_repo_refs(repository)
    except Exception as error:
        if unanswered(error):
            if cached := _cached_commits(repository):
                return Revisions(cached, error)
            raise hub_error(repository, error, known=_catalogued()) from None
        known = [*_catalogued(), *_of_owner(repository)] if isinstance(error, RepositoryNotFoundError) else []
        raise hub_error(repository, error, known=known) from None
    # A branch before a tag of the same name, as git has it.
    return Revisions({ref.name: ref.target_commit for ref in [*found.tags, *found.branches]})


def cached_revisions(repository: str) -> list[str]:
    """Branches of a repository that are in the hub's cache on this machine."""
    return sorted(_cached_commits(repository))


def cached_checkpoints(repository: str) -> int:
    """How many revisions are in the cache with all their weights."""
    snapshots = cache_folder(repository) / "snapshots"
    return sum(is_whole(folder) for folder in snapshots.iterdir()) if snapshots.is_dir() else 0


def _cached_commits(repository: str) -> dict[str, str]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return {}
    return {
        name: revision.commit_hash
        for found in repositories
        if (found.repo_type, found.repo_id) == ("model", repository)
        for name, revision in found.refs.items()
    }


def _catalogued() -> list[str]:
    return [entry.hub for entry in catalogue().hub.values()]


def _of_owner(repository: str) -> list[str]:
    """Other repositories of the same owner on the hub."""
    from huggingface_hub import list_models

    with suppress(Exception):  # a hint is not worth a second error
        found = [model.id for model in list_models(author=repository.partition("/")[0], limit=500)]
        return [name for name in found if name != repository]
    return []


def cache_folder(repository: str) -> Path:
    """Where the hub's library keeps a model repository."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def fetch_descriptions(repository: str, revision: str) -> Path:
    """Download configuration and tokenizer of a revision; without an answer of the hub, take what the cache holds.

    Returns:
        The folder of the revision in the cache.

    Raises:
        UserError: the hub refuses, or does not answer and the cache lacks the revision, or the disk is full.
    """
    return _fetch(repository, revision, weights=False)


def fetch_model(repository: str, revision: str, commit: str) -> tuple[Path, bool]:
    """Download weights and configuration of a revision.

    Safetensors are taken where there are any, else ``pytorch_model*.bin``; formats for other libraries are left.

    Returns:
        The folder of the revision in the cache, and whether its weights were downloaded now.

    Raises:
        UserError: as :func:`fetch_descriptions`, or a revision without weights.
    """
    here = cache_folder(repository) / "snapshots" / commit
    if is_whole(here):
        return here, False
    folder = _fetch(repository, revision, weights=True)
    if not weight_files(folder):
        names = listing(sorted(path.name for path in folder.iterdir()))
        raise UserError(
            f"{repository}@{revision} holds no weights that can be read here, in {_SAFETENSORS} or {_PICKLED}: {names}"
        )
    return folder, True


def _fetch(repository: str, revision: str, *, weights: bool) -> Path:
    from huggingface_hub import model_info, snapshot_download

    _progress_in_terminals_only()
    try:
        names = [str(sibling.rfilename) for sibling in model_info(repository, revision=revision).siblings or []]
        wanted = [name for name in names if _is_description(name)] + (_weights_among(names) if weights else [])
        return Path(snapshot_download(repository, revision=revision, allow_patterns=wanted or [""]))
    except Exception as error:
        found = _in_cache(repository, revision) if unanswered(error) else None
        if found is None or (weights and not is_whole(found)):
            raise hub_error(repository, error, revision) from None
        return found


def _in_cache(repository: str, revision: str) -> Path | None:
    commit = _cached_commits(repository).get(revision, revision)
    folder = cache_folder(repository) / "snapshots" / commit
    return folder if folder.is_dir() else None


def _progress_in_terminals_only() -> None:
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()


def _is_description(name: str) -> bool:
    return "/" not in name and name.endswith(_DESCRIPTIONS)


def _weights_among(names: list[str]) -> list[str]:
    top = [PurePosixPath(name) for name in names if "/" not in name]
    for pattern, single in ((_SAFETENSORS, "model.safetensors"), (_PICKLED, "pytorch_model.bin")):
        if found := [str(path) for path in top if path.match(pattern)]:
            return [single] if single in found else found
    return []


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights in a folder."""
    return [folder / name for name in _weights_among([path.name for path in folder.iterdir()])]


def is_whole(folder: Path) -> bool:
    """Whether a revision's configuration and all parts of its weights are in the cache."""
    if not (folder / "config.json").is_file():
        return False
    found = weight_files(folder)
    for index in folder.glob("*.index.json"):
        try:
            parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError):
            return False
        if index.name.partition(".index")[0].endswith(found[0].suffix if found else "") and len(found) > 1:
            return parts <= {file.name for file in found}
    return bool(found)


def drop_weights(folder: Path) -> int:
    """Delete a revision's weights from the cache and leave its small files; returns the bytes that this freed.

    What another revision shares stays. Branch, configuration and tokenizer stay too, so that results which were kept
    can still be shown without a network.
    """
    others = {file.resolve() for other in folder.parent.iterdir() if other != folder for file in other.rglob("*")}
    freed = 0
    for file in weight_files(folder):
        blob = file.resolve()
        size = blob.stat().st_size
        file.unlink()
        if blob not in others:
            blob.unlink(missing_ok=True)
            freed += size
    for part in (folder.parents[1] / "blobs").glob("*.incomplete"):  # of killed downloads, which are begun anew
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                part.unlink()
    return freed
