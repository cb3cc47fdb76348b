import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from minibook import write_mini_book

from anisotropy.runs.site import SiteError, build_site, toc_documents

BUILD = "import sys, pathlib; from anisotropy.runs.site import build_site; build_site(*map(pathlib.Path, sys.argv[1:]))"


class Book:
    """A miniature book, its site, and ways to change the one and to look at the other."""

    def __init__(self, folder: Path) -> None:
        self.sources, self.executed = write_mini_book(folder)
        self.output = folder / "build"
        self.notebook = self.executed / "notebooks" / "spread.ipynb"

    def build(self) -> Path:
        return build_site(self.sources, self.executed, self.output)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", BUILD, self.sources, self.executed, self.output]
        return subprocess.Popen(command, start_new_session=True)

    def edit(self, page: str, old: str, new: str) -> None:
        path = self.sources / page
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def site(self) -> dict[str, str]:
        html = self.output / "html"
        files = [path for path in sorted(html.rglob("*")) if path.is_file()]
        return {str(path.relative_to(html)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def leftovers(self) -> list[Path]:
        return [path for path in (self.output / "sites").iterdir() if path != (self.output / "html").resolve()]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = Book(tmp_path_factory.mktemp("book"))
    book.build()
    return book


@pytest.fixture
def book(rendered: Book, tmp_path: Path) -> Book:
    """Fresh sources beside the site of the untouched ones, so that each test saves itself the first build."""
    fresh = Book(tmp_path)
    fresh.output = rendered.output
    return fresh


def kill(process: subprocess.Popen[bytes], group: bool = True) -> None:
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_pages(book: Book, process: subprocess.Popen[bytes]) -> None:
    while not list((book.output / "sites").glob("work-*/_build/html/**/*.html")):
        assert process.poll() is None
        time.sleep(0.01)


def test_a_build_leaves_one_site(rendered: Book):
    assert (rendered.output / "html" / "index.html").is_file()
    assert "notebooks/spread.html" in rendered.site()
    assert rendered.leftovers() == []


def test_toc_in_reading_order(rendered: Book):
    assert toc_documents(rendered.sources / "_toc.yml") == ["book/index", "notebooks/spread", "book/appendix"]


def test_a_broken_link_fails_every_time_and_keeps_the_old_site(book: Book):
    before = book.site()
    book.edit("book/index.md", "One page of each kind", "[One page](nowhere.md) of each kind")
    for _ in range(2):
        with pytest.raises(SiteError, match=r"book/index\.md:\d+: WARNING.*nowhere.*(?s:.)*site\.log"):
            book.build()
    assert book.site() == before


def test_a_failed_notebook_fails_every_time_and_names_the_cell(book: Book):
    before = book.site()
    notebook = nbformat.read(book.notebook, as_version=4)
    notebook.cells[4].outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])]
    nbformat.write(notebook, book.notebook)
    for _ in range(2):
        with pytest.raises(SiteError, match=r"notebooks/spread\.ipynb failed in cell 5"):
            book.build()
    assert book.site() == before


@pytest.mark.parametrize("content", [None, '{"cells": [', "[]"], ids=["missing", "cut off", "not a notebook"])
def test_a_notebook_that_was_not_executed_is_named(book: Book, content: str | None):
    before = book.site()
    if content is None:
        book.notebook.unlink()
    else:
        book.notebook.write_text(content)
    with pytest.raises(SiteError, match=r"notebooks/spread\.ipynb .*executed"):
        book.build()
    assert book.site() == before


@pytest.mark.parametrize(
    ("old", "new", "message"), [("book/appendix", "book/nowhere", "nowhere"), ("root", "{", "_toc.yml")]
)
def test_a_wrong_table_of_contents_is_named(book: Book, old: str, new: str, message: str):
    book.edit("_toc.yml", old, new)
    with pytest.raises(SiteError, match=message):
        book.build()


def test_a_page_shows_a_file_of_the_project(book: Book, tmp_path: Path):
    book.output = tmp_path / "build"
    page = book.sources / "book" / "appendix.md"
    with page.open("a", encoding="utf-8") as appendix:
        appendix.write("\n```{include} ../CHANGELOG.md\n```\n")
    with pytest.raises(SiteError, match=r"book/appendix\.md.*CHANGELOG\.md"):
        book.build()
    (book.sources / "CHANGELOG.md").write_text(
        "## What is new\n\nA file that stands beside the book.\n", encoding="utf-8"
    )
    book.build()
    assert "A file that stands beside the book." in (book.output / "html" / "book" / "appendix.html").read_text("utf-8")


def test_a_folder_that_cannot_be_written_is_named(book: Book, tmp_path: Path):
    book.output = tmp_path / "taken"
    book.output.write_text("a file")
    with pytest.raises(SiteError, match=r"cannot be built.*taken"):
        book.build()


def test_a_picture_without_alt_text_fails(book: Book):
    notebook = nbformat.read(book.notebook, as_version=4)
    notebook.cells[3].outputs[0].metadata = {}
    nbformat.write(notebook, book.notebook)
    with pytest.raises(
        SiteError, match=r"notebooks/spread\.ipynb, cell 4, line \d+: WARNING: a picture without alt text"
    ):
        book.build()


def test_a_killed_build_keeps_the_old_site_and_the_next_one_is_right(tmp_path: Path):
    book = Book(tmp_path)
    book.build()
    first = book.site()

    book.edit("book/index.md", "One page of each kind", "A page of every kind")
    book.edit("book/index.md", ":link: lower-bound\n:link-type: ref\n", "")
    book.edit("_toc.yml", "  - file: book/appendix\n", "")
    # Its table of references moves to a page that stays.
    (book.sources / "book" / "appendix.md").unlink()
    with (book.sources / "book" / "index.md").open("a") as page:
        page.write("\n```{bibliography}\n```\n")

    process = book.start()
    wait_for_pages(book, process)
    kill(process)
    assert book.site() == first
    assert book.leftovers()

    book.build()
    assert "A page of every kind" in (book.output / "html" / "book" / "index.html").read_text(encoding="utf-8")
    assert "book/appendix.html" in first
    assert not [name for name in book.site() if "appendix" in name]
    assert book.leftovers() == []


def test_equal_sources_give_equal_bytes(book: Book):
    before = book.site()
    book.build()
    assert book.site() == before


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path):
    """Twenty times, every other time only the parent: the site is always the old one or the new one, whole."""
    book, moments = Book(tmp_path), random.Random(0)
    started = time.monotonic()
    book.build()
    seconds = time.monotonic() - started
    old, new = "One page of each kind", "A page of every kind"
    known = [book.site()]
    book.edit("book/index.md", old, new)
    book.build()
    known.append(book.site())
    for attempt in range(20):
        old, new = new, old
        book.edit("book/index.md", old, new)
        process = book.start()
        time.sleep(moments.uniform(0, 1.2 * seconds))
        kill(process, group=attempt % 2 == 0)
        assert book.site() in known
    book.build()
    assert book.site() == known[1]
    assert book.leftovers() == []
