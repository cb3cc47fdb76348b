"""From prose and executed notebooks to the book's HTML.

Sphinx is not safe incrementally: a failed build passes when it is repeated, changed assets and cross references stay
stale. So every build is a clean one in a new folder, and `html` is a link that moves to the new site in one step at the
end. Until that step the old site is untouched; a build that is killed leaves a folder that the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from anisotropy.errors import UserError

logger = logging.getLogger(__name__)

STAGE, CLEAN, SITES, HTML, LOG = "book", "_clean", "sites", "html", "site.log"
SHOWN = ("CHANGELOG.md",)  # files of the project that a page includes
JUPYTER_BOOK = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
ERRORS_SHOWN = 12


class SiteError(UserError):
    """The book could not be built; the message says why and the old site is still there."""


def build_site(root: Path, executed: Path, build: Path, beside: Mapping[str, str] | None = None) -> Path:
    """Build the book and return the path of its first page.

    `root` is the repository; `executed` mirrors it with the executed notebooks (`executed/notebooks/x.ipynb`); `build`
    takes the staged sources (`book/`), the site (`html/`) and the log (`site.log`); `beside` are texts of files that
    lie beside the pages, by name. Raises `SiteError`, and leaves the site as it was, when a notebook of `_toc.yml` has
    not been executed or the book has any warning.
    """
    try:
        return _build(root.resolve(), executed.resolve(), build.resolve(), beside or {})
    except OSError as error:
        raise SiteError(f"the book cannot be built: {error}") from error


def _build(root: Path, executed: Path, build: Path, beside: Mapping[str, str]) -> Path:
    build.mkdir(parents=True, exist_ok=True)
    with _only_builder(build) as lock:
        _remove_leftovers(build)
        stage_book(root, executed, build / STAGE)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=build / SITES))
        _run_jupyter_book(build / STAGE, work, build / LOG, lock)
        _write_first_page(work / "_build" / "html", toc_documents(root / "_toc.yml")[0])
        for name, text in beside.items():
            (work / "_build" / "html" / name).write_text(text, encoding="utf-8")
        site = work.with_name(work.name.replace("work", "site"))
        (work / "_build" / "html").rename(site)
        _point(build / HTML, site)
        _remove_leftovers(build)
    return build / HTML / "index.html"


def stage_book(root: Path, executed: Path, stage: Path) -> None:
    """Copy to `stage` what Jupyter Book reads, at the same paths as in `root` but with the notebooks executed."""
    documents = toc_documents(root / "_toc.yml")
    notebooks = [f"{name}.ipynb" for name in documents if not (root / f"{name}.md").exists()]
    for notebook in notebooks:
        _check_executed(notebook, root, executed)
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(root / "book", stage / "book", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("_config.yml", "_toc.yml"):
        shutil.copyfile(root / name, stage / name)
    for name in SHOWN:
        if (root / name).exists():  # a page that includes a missing file fails in Sphinx, which names the page
            shutil.copyfile(root / name, stage / name)
    for notebook in notebooks:
        for source, target in [(executed, stage), (root, stage / CLEAN)]:
            (target / notebook).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / notebook, target / notebook)


def toc_documents(toc: Path) -> list[str]:
    """The pages that a `_toc.yml` names, in order, without their suffixes."""

    def walk(entry: Any) -> Iterator[str]:
        if isinstance(entry, list):
            for item in entry:
                yield from walk(item)
        elif isinstance(entry, dict):
            yield from (str(entry[key]) for key in ("root", "file") if key in entry)
            for value in entry.values():
                yield from walk(value)

    try:
        contents = yaml.safe_load(toc.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SiteError(f"{toc.name} cannot be read: {error}") from error
    return [re.sub(r"\.(md|ipynb)$", "", name) for name in walk(contents)]


def _check_executed(notebook: str, root: Path, executed: Path) -> None:
    if not (root / notebook).exists():
        raise SiteError(f"_toc.yml names {notebook.removesuffix('.ipynb')}, but there is no such page or notebook")
    path = executed / notebook
    if not path.exists():
        raise SiteError(f"{notebook} is in _toc.yml but was not executed: {path} does not exist")
    # Jupyter Book would render a traceback without a warning.
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise SiteError(f"{notebook} was executed into a file that is not a notebook: {path}") from error
    for number, cell in enumerate(cells, start=1):
        if any(output.get("output_type") == "error" for output in cell.get("outputs", [])):
            raise SiteError(f"{notebook} failed in cell {number}: {path}")


def _run_jupyter_book(stage: Path, work: Path, log: Path, lock: int) -> None:
    logger.info("rendering the book")
    command = [*JUPYTER_BOOK, "build", str(stage), "--path-output", str(work), "-W", "-n", "--keep-going"]
    # Sets keep one order from run to run, so that equal sources give equal bytes.
    environment = os.environ | {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    with log.open("w", encoding="utf-8") as output:
        # The child keeps the lock too: when only the parent is killed, the next build waits instead of racing with it.
        code = subprocess.run(
            command, cwd=stage, env=environment, stdout=output, stderr=subprocess.STDOUT, pass_fds=[lock], check=False
        ).returncode
    if code:
        raise SiteError(f"the book has errors, the old site is kept\n{_complaints(log, stage)}\nAll of it: {log}")


def _complaints(log: Path, stage: Path) -> str:
    """The warnings and errors of a log, with paths of the repository and a notebook's cells instead of pseudo lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(encoding="utf-8")).replace(f"{stage}/", "")
    lines = [
        line for line in text.splitlines() if re.search(r"\b(WARNING|ERROR|CRITICAL)\b|^\w*(Error|Exception)\b", line)
    ]
    if not lines:
        lines = [line for line in text.splitlines() if line.strip()]

    def cell(match: re.Match[str]) -> str:
        # myst-nb counts 10000 a cell.
        number, line = divmod(int(match[2]), 10000)
        return f"{match[1]}, cell {number}, line {line}:" if number else f"{match[1]}:"

    return "\n".join(re.sub(r"(\S+\.ipynb):(\d+):", cell, line) for line in lines[-ERRORS_SHOWN:])


def _write_first_page(site: Path, document: str) -> None:
    # Sphinx writes a bare <meta>: no title, no language, and nothing to see where refreshing is switched off.
    (site / "index.html").write_text(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={document}.html">
<title>The book starts on another page</title>
</head>
<body><main><h1>The book starts on another page</h1><p><a href="{document}.html">Open it</a></p></main></body>
</html>
""",
        encoding="utf-8",
    )


@contextlib.contextmanager
def _only_builder(build: Path) -> Iterator[int]:
    descriptor = os.open(build / ".site.lock", os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another build of this book is running: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _point(link: Path, site: Path) -> None:
    """Make `link` lead to `site` in one step; a link can be replaced atomically, a folder cannot."""
    fresh = link.with_name(f".{link.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(site.relative_to(link.parent), target_is_directory=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    fresh.replace(link)


def _remove_leftovers(build: Path) -> None:
    sites = build / SITES
    sites.mkdir(exist_ok=True)
    current = (build / HTML).resolve()
    for folder in sites.iterdir():
        if folder.resolve() != current:
            shutil.rmtree(folder, ignore_errors=True)
