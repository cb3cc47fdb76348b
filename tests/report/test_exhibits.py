"""The paper at a glance and the scorecard's tables, against verdicts made up here."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from anisotropy.report import verdict_pages as cards
from anisotropy.report.exhibits import CLAIMS, EXHIBITS, claim_lines, glance_table, headline, subjects_of, verdict_text
from anisotropy.report.figures import plt, style
from anisotropy.report.scorecard import Outcome
from anisotropy.report.verdict_data import Chapter, Found, OneSeed, VerdictData
from anisotropy.runs.experiments import load_experiments

HOLDS, FAILS, OPEN = Outcome.HOLDS, Outcome.FAILS, Outcome.INCONCLUSIVE


def found(claim, title, outcome, reading="one", chapter="frequency-variance", **more):
    values = {
        "claim": claim,
        "model": title.lower(),
        "title": title,
        "reading": reading,
        "outcome": outcome,
        "reason": "x < y & so on",
        "quantity": "ρ",
        "digits": 2,
        "estimate": -0.5,
        "interval": (-0.6, -0.4),
        "controls": {"untrained": 0.1},
        "seeds": 1,
        "training_seeds": (0,),
        "printed": -0.5,
        "near_paper": True,
        "of_printed": False,
        "by_seed": {},
    } | more
    return Found(
        chapter=chapter,
        anchor="verdict",
        caption="c",
        interval_over="tokens",
        counted=True,
        verdict=VerdictData(**values),
    )


CHAPTER = {"frequency-variance": Chapter(name="frequency-variance", title="Frequency", verdicts=(), provenance=None)}
SOME = [
    found("C1", "A", HOLDS),
    found("C1", "A", FAILS, "two"),
    found("C1", "B", FAILS),
    found("C1", "B", FAILS, "two"),
    found("C7", "circle", HOLDS, chapter="curvature-bias"),
]


def test_every_exhibit_has_a_chapter_of_the_book_and_every_claim_an_exhibit():
    chapters = load_experiments(Path(__file__).parents[2]).chapters
    assert {exhibit.chapter for exhibit in EXHIBITS} <= set(chapters)
    assert sorted(claim for exhibit in EXHIBITS for claim in exhibit.claims) == list(CLAIMS)


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        ([], "–"),
        ([found("C1", "A", OPEN)], "inconclusive"),
        ([found("C1", "A", FAILS), found("C1", "A", FAILS, "two")], "fail, all 2"),
        ([found("C1", "A", FAILS), found("C1", "A", HOLDS, "two")], "1 hold, 1 fail of 2"),
    ],
)
def test_readings_are_counted_in_words(verdicts, text):
    assert verdict_text(verdicts) == text


def test_a_glance_has_a_row_per_exhibit_and_claim_and_a_column_per_model():
    lines = glance_table(CHAPTER, SOME).splitlines()
    assert subjects_of(SOME) == ["A", "B", "surfaces"]
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + sum(max(1, len(exhibit.claims)) for exhibit in EXHIBITS)
    assert len({row.count("|") for row in rows}) == 1
    first = [cell.strip() for cell in rows[2].split("|")[1:-1]]
    assert first[1:] == ["[Frequency](frequency-variance.ipynb)", "C1", "1 hold, 1 fail of 2", "fail, all 2", "–"]
    assert "not in this book" in rows[3]


def test_claims_and_models_are_counted_and_surfaces_are_no_model():
    assert "4 verdicts on 1 claims and 2 models (A, B): 1 hold, 3 fail." in headline(SOME)
    lines = claim_lines(CHAPTER, SOME)
    assert len(lines) == len(CLAIMS)
    assert "A: 1 hold, 1 fail of 2; B: fail, all 2 ([Frequency](frequency-variance.ipynb))" in lines[0]
    assert lines[1].endswith("not judged in this book.")


def test_every_verdict_is_one_sign_of_its_own_shape():
    with style():
        figure, alt = cards.draw_verdicts(SOME)
    (axis,) = figure.axes
    signs = [line for line in axis.lines if len(line.get_xdata()) == 1]
    shapes = [line.get_marker() for line in signs]
    assert len(signs) == len(SOME)
    assert (shapes.count("o"), shapes.count("x")) == (2, 3)
    assert "A 1 hold, 1 fail of 2" in alt
    plt.close(figure)


def test_many_models_are_drawn_four_beside_each_other():
    with style():
        figure, _ = cards.draw_verdicts([found("C1", f"model {n}", HOLDS) for n in range(9)])
    assert [sum(len(line.get_xdata()) == 1 for line in axis.lines) for axis in figure.axes] == [4, 4, 1]
    plt.close(figure)


class Cells(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name == "href"]

    def handle_data(self, data):
        self.text += data


def test_rows_hold_the_numbers_their_controls_and_a_link_and_no_markup_of_others():
    by_seed = {
        str(seed): OneSeed(outcome=outcome, reason="", estimate=estimate, interval=None, controls={})
        for seed, (outcome, estimate) in enumerate([(FAILS, -0.3), (FAILS, -0.1), (HOLDS, -0.5)])
    }
    spread = cards.by_place([found("C1", "A", FAILS, by_seed=by_seed)])
    table = cards.verdict_rows([found("C1", "A", HOLDS), found("C1", "<b>", FAILS)], CHAPTER, spread)
    first, second = table.to_dict("records")
    assert Cells(first["estimate [interval]"]).text == "ρ −0.50 [−0.60, −0.40]"
    assert first["controls"] == "untrained +0.10"
    assert first["printed"] == "−0.5"
    assert first["over training seeds"] == "2 fails, 1 holds: −0.50 … −0.10"
    assert second["over training seeds"] == "–"
    assert Cells(first["where"]).links == ["frequency-variance.html#verdict"]
    assert Cells(first["why"]).text == "x < y & so on"
    assert second["model"] == "&lt;b&gt;"


def test_seeds_that_disagree_are_counted():
    def seeds(*outcomes):
        return {
            str(n): OneSeed(outcome=outcome, reason="", estimate=0.1 * n, interval=None, controls={})
            for n, outcome in enumerate(outcomes)
        }

    verdicts = [
        found("C1", "A", HOLDS, by_seed=seeds(HOLDS, HOLDS, HOLDS)),
        found("C1", "A", OPEN, "two", by_seed=seeds(HOLDS, FAILS)),
    ]
    (row,) = cards.seed_rows(verdicts).to_dict("records")
    assert (row["readings"], row["seeds disagree in"]) == (2, 1)
    assert row["most apart"] == pytest.approx(0.2)
