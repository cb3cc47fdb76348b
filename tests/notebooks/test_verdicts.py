"""The verdicts of the book as data: every claim has some, and each stands where it says it does."""

from __future__ import annotations

import json

from smoke_book import Project

from anisotropy.report.verdict_data import VERSION, read_chapter
from anisotropy.runs import project
from anisotropy.runs.scorecard import read_scorecard


def test_every_claim_has_verdicts_on_the_page_that_its_anchor_leads_to(smoke_project: Project) -> None:
    scorecard = read_scorecard(project.Project(smoke_project.root), "smoke")
    assert scorecard.missing == ()
    assert {found.verdict.claim for found in scorecard.measured} == {f"C{number}" for number in range(1, 9)}
    assert {found.verdict.claim for found in scorecard.on_printed} == {"C2", "C3", "C4", "C8"}
    readings = [(one.verdict.claim, one.verdict.model, one.verdict.reading) for one in scorecard.measured]
    assert len(set(readings)) == len(readings)
    for found in scorecard.found:
        page = (smoke_project.site / "notebooks" / f"{found.chapter}.html").read_text(encoding="utf-8")
        assert f'id="{found.anchor}"' in page
    json.dumps(scorecard.content(), allow_nan=False)


def test_every_page_says_as_data_where_its_numbers_come_from(smoke_project: Project) -> None:
    for path in (smoke_project.build / "executed" / "notebooks").glob("*.ipynb"):
        provenance = read_chapter(path).provenance
        assert provenance is not None
        assert provenance["version"] == VERSION
        assert provenance["executed"].startswith("20")
        for model in provenance["models"]:
            assert model["steps"] == sorted(model["steps"])
            assert model["devices"]
