"""Writing so that a kill at any moment leaves the old file or the new one, and locking shared folders."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

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
    """Give a temporary path beside ``target`` to write a file or a folder to; it replaces ``target`` on success.

    Temporary folders that killed processes left in the same folder are removed on the way.
    """
    make_folder(target.parent)
    _remove_abandoned(target.parent)
    temporary, owned = _owned_folder(target)
    new = temporary / target.name
    try:
        yield new
        _put(new, target, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        owned.close()


def _put(new: Path, target: Path, aside: Path) -> None:
    for number in itertools.count():
        if target.is_dir() and new.exists():
            with suppress(FileNotFoundError):
                os.replace(target, aside / f".old-{number}")  # not emptied: a kill leaves no half folder
        try:
            os.replace(new, target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else another process put its own there just now
                raise


_OWNER = ".owner"  # locked as long as the process that writes there lives
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})


def _owned_folder(target: Path) -> tuple[Path, IO[str]]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        handle = (folder / _OWNER).open("w")
        with suppress(OSError):  # a file system without locks: nothing there is ever taken for abandoned
            fcntl.flock(handle, fcntl.LOCK_EX)
        if (folder / _OWNER).exists():  # else another process saw it before it was locked
            return folder, handle
        handle.close()


def _remove_abandoned(parent: Path) -> None:
    for owner in parent.glob(f".*/{_OWNER}"):
        with suppress(OSError), owner.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)


def write_json(target: Path, content: Any) -> None:
    """Write JSON with sorted keys, atomically."""
    with replacing(target) as temporary:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file; waits while another process holds it, and a killed holder frees it.

    Between machines that share a folder this holds where the file system passes locks on: NFS does, Lustre does when
    mounted with ``flock``. Where locks are refused the work goes on without: what it guards is written whole under its
    final name, so two processes may do the same work twice, and neither spoils the other's.
    """
    make_folder(path.parent)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        yield
