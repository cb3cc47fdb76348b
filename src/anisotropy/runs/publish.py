"""A built book as a folder and a zip that can be put anywhere: real files, nothing that leads out of the folder."""

from __future__ import annotations

import shutil
import zipfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from anisotropy.errors import UserError
from anisotropy.files import locked, replacing

MARK = ".anisotropy-book"
_ABOUT_MARK = "Written by `anisotropy publish`, which replaces this whole folder when it runs again.\n"
_NO_JEKYLL = ".nojekyll"  # GitHub would leave out folders whose names begin with an underscore, styles among them
_LEFT_OUT = (".buildinfo",)  # Sphinx's note to itself
_BUILD_LOCK = ".site.lock"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first date that a zip can hold


@dataclass(frozen=True)
class Published:
    """A publication: its folder and its zip, the number of files, and both sizes in bytes."""

    folder: Path
    archive: Path
    files: int
    folder_size: int
    archive_size: int


def publish(site: Path, target: Path) -> Published:
    """Copy a site into a folder and, with the same content, into a zip beside it; equal sites give equal bytes.

    Both are written under other names first and then take the place of what an earlier call wrote, so that nobody
    reads half of a site; a kill leaves the earlier ones. While the book is being built this waits.

    Args:
        site: the built site; a link to it is followed.
        target: the folder; ``target.zip`` lies beside it.

    Raises:
        UserError: no site there, a target that holds what this has not written, or one that cannot be written.
    """
    if not (site / "index.html").is_file():
        raise UserError(f"there is no book to publish: {site / 'index.html'} does not exist")
    folder = target.expanduser().resolve()
    archive = folder.with_name(f"{folder.name}.zip")
    _check_replaceable(folder, archive)
    lock = site.parent / _BUILD_LOCK
    try:
        with (
            locked(lock) if lock.is_file() else nullcontext(),
            replacing(folder) as new_folder,
            replacing(archive) as new_archive,
        ):
            _copy(site.resolve(), new_folder)
            names = _pack(new_folder, new_archive, folder.name)
            sizes = sum((new_folder / name).stat().st_size for name in names), new_archive.stat().st_size
    except OSError as error:
        raise UserError(f"cannot publish to {folder}: {error.strerror or error}") from None
    return Published(folder, archive, len(names), *sizes)


def _check_replaceable(folder: Path, archive: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder, new or empty")
    if folder.is_dir() and not (folder / MARK).is_file() and any(folder.iterdir()):
        raise UserError(f"{folder} holds files that `anisotropy publish` did not write; name a folder, new or empty")
    if archive.exists() and not _is_ours(archive, folder.name):
        raise UserError(f"{archive} is not a zip that `anisotropy publish` wrote; name another folder, or move it away")


def _is_ours(archive: Path, name: str) -> bool:
    try:
        with zipfile.ZipFile(archive) as packed:
            return f"{name}/{MARK}" in packed.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _copy(site: Path, folder: Path) -> None:
    # Links are followed, and modes of files left behind: a web server has to be able to read everything.
    shutil.copytree(site, folder, ignore=shutil.ignore_patterns(*_LEFT_OUT), copy_function=shutil.copyfile)
    (folder / _NO_JEKYLL).touch()
    (folder / MARK).write_text(_ABOUT_MARK, encoding="utf-8")


def _pack(folder: Path, archive: Path, inside: str) -> list[str]:
    """Zip a folder under the name ``inside``; returns its files, sorted."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with zipfile.ZipFile(archive, "w") as packed:
        for name in names:
            entry = zipfile.ZipInfo(f"{inside}/{name}", _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # a plain Unix file, wherever it is made
            packed.writestr(entry, (folder / name).read_bytes())
    return names
