"""Writing so that a kill at any moment leaves the old file or the new one, and locking shared folders."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anisotropy.errors import UserError


def make_folder(folder: Path) -> Path:
    """Create a folder with its parents.

    Raises:
        UserError: the place cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"cannot write to {folder}: permission denied; choose another folder")
    return folder


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary path beside ``target`` to write a file or a folder to; it replaces ``target`` on success."""
    make_folder(target.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    new = temporary / target.name
    try:
        yield new
        if target.is_dir() and new.exists():
            os.replace(target, temporary / ".old")  # set aside, not emptied: a kill leaves no half folder
        os.replace(new, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(target: Path, content: Any) -> None:
    """Write JSON with sorted keys, atomically."""
    with replacing(target) as temporary:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file; waits while another process holds it, and a killed holder frees it."""
    make_folder(path.parent)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
