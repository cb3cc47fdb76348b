"""Pages about the other pages: they read every chapter, and say what the chapters say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from smoke_book import Project

from anisotropy.report.exhibits import CLAIMS, EXHIBITS
from anisotropy.report.verdict_data import read_chapter
from anisotropy.runs import project
from anisotropy.runs.experiments import load_experiments
from anisotropy.runs.scorecard import Scorecard, read_scorecard


class Page(HTMLParser):
    """The tables of a page, by their captions' first words, as rows of texts; and all links."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.links: list[str] = []
        self.text = ""
        self._cell = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attributes if name == "href" and value]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables:
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def scorecard(smoke_project: Project) -> Scorecard:
    return read_scorecard(project.Project(smoke_project.root), "smoke")


def page(smoke_project: Project, name: str) -> Page:
    return Page(smoke_project.site / "notebooks" / f"{name}.html")


def test_the_scorecard_has_a_row_per_verdict_and_links_to_it(smoke_project: Project, scorecard: Scorecard) -> None:
    shown = page(smoke_project, "scorecard")
    table = max((table for table in shown.tables if table[0][:4] == ["claim", "verdict", "model", "reading"]), key=len)
    rows = sorted((row[0], row[2], row[3], row[1]) for row in table[1:])
    assert rows == sorted(
        (one.verdict.claim, one.verdict.title, one.verdict.reading, one.verdict.outcome.value)
        for one in scorecard.measured
    )
    assert {f"{one.chapter}.html#{one.anchor}" for one in scorecard.measured} <= set(shown.links)


def test_the_file_for_programs_lies_beside_the_pages(smoke_project: Project, scorecard: Scorecard) -> None:
    content = json.loads((smoke_project.site / "scorecard.json").read_text(encoding="utf-8"))
    assert content["verdicts"] == [found.model_dump(mode="json") for found in scorecard.found]
    assert "../scorecard.json" in page(smoke_project, "scorecard").links


def test_the_first_page_has_a_picture_every_claim_and_three_ways_in(smoke_project: Project) -> None:
    first = page(smoke_project, "index")
    text = (smoke_project.site / "notebooks" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'<img[^>]+alt="Vectors of the middle layer of tiny-', text)
    said = re.sub(r"\s+", " ", first.text).replace("’", "'")
    assert all(f"{claim}, {words}" in said for claim, words in CLAIMS.items())
    assert {"anisotropy.html", "../book/run-it.html", "scorecard.html", "at-a-glance.html"} <= set(first.links)
    assert "Show code cell source" not in first.text


def test_the_paper_at_a_glance_leads_to_every_chapter(smoke_project: Project) -> None:
    glance = page(smoke_project, "at-a-glance")
    assert {f"{exhibit.chapter}.html" for exhibit in EXHIBITS} <= set(glance.links)
    (table,) = (table for table in glance.tables if table[0][0] == "in the paper")
    assert {row[0].partition(":")[0] for row in table[1:]} == {exhibit.name for exhibit in EXHIBITS}
    assert "tiny-Pythia" in table[0]


def test_the_status_names_every_chapter_and_model(smoke_project: Project, scorecard: Scorecard) -> None:
    status = page(smoke_project, "status")
    chapters = next(table for table in status.tables if table[0][0] == "chapter" and "executed" in table[0])
    assert [row[0] for row in chapters[1:]] == [chapter.title for chapter in scorecard.chapters]
    times = next(table for table in status.tables if "seconds" in table[0])
    studies = {study for chapter in load_experiments(smoke_project.root).chapters.values() for study in chapter.studies}
    assert {row[1] for row in times[1:]} == studies
    assert {row[2] for row in times[1:]} == {"tiny-Pythia", "tiny-EuroBERT"}


def test_choices_list_every_parameter(smoke_project: Project) -> None:
    choices = page(smoke_project, "choices")
    table = next(table for table in choices.tables if table[0][:3] == ["chapter", "parameter", "meaning"])
    rows = {(row[0], row[1]): row[3] for row in table[1:]}
    assert rows["Gradient tangent alignment", "rank"] == "4"  # the smoke book's, not the notebook's default
    assert not {"models", "device", "corpus"} & {name for _, name in rows}


def test_summaries_say_which_chapters_they_read(smoke_project: Project, scorecard: Scorecard) -> None:
    experiments = load_experiments(smoke_project.root)
    folder = smoke_project.build / "executed" / "notebooks"
    for name, chapter in experiments.chapters.items():
        if chapter.summary:
            about = read_chapter(folder / f"{name}.ipynb").provenance
            assert about is not None
            assert about["chapters"].keys() == {one.name for one in scorecard.chapters}
