"""A cache in the hub's own layout, written by hand."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import constants

CACHE = Path(constants.HF_HUB_CACHE)


def put(
    repository: str, revision: str, folder: Path, keep: Callable[[str], bool] = lambda _: True, kind: str = "models"
) -> Path:
    """Store a folder as a downloaded revision: a ref, a snapshot of links, and blobs; returns the snapshot."""
    base = CACHE / f"{kind}--{repository.replace('/', '--')}"
    commit = hashlib.sha1(revision.encode()).hexdigest()
    for part in ("refs", "blobs", f"snapshots/{commit}"):
        (base / part).mkdir(parents=True, exist_ok=True)
    (base / "refs" / revision).write_text(commit)
    for file in filter(lambda file: keep(file.name), folder.iterdir()):
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, base / "blobs" / blob)
        (base / "snapshots" / commit / file.name).symlink_to(Path("../../blobs") / blob)
    return base / "snapshots" / commit
