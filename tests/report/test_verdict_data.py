"""Verdicts as data: what a notebook carries is what its page shows."""

from __future__ import annotations

import json
import math

import nbformat
import pytest
from docutils.nodes import make_id

from anisotropy.errors import UserError
from anisotropy.report.scorecard import Outcome, Verdict
from anisotropy.report.verdict_data import PROVENANCE, VERDICTS, bundle, read_chapter, section_anchor, verdict_data

ALONE = Verdict("C1", "mini-pythia", "one", Outcome.FAILS, "it is high", 0.1, 0.0, 0.2, (("untrained", 0.3),), 1)
BOTH = Verdict("C1", "mini-pythia", "one", Outcome.HOLDS, "it is low", -0.4, -0.5, -0.3, seeds=2, printed=-0.5)
BOTH = Verdict(**{**BOTH.__dict__, "by_seed": ((0, ALONE), (2, ALONE)), "near_paper": True})
ELSEWHERE = Verdict("C1", "pythia-160m", "one", Outcome.NOT_APPLICABLE, "none", math.nan, by_seed=((0, ALONE),))


def notebook(path, *cells):
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), path)
    return path


def code(**data):
    output = nbformat.v4.new_output("display_data", {"text/plain": "shown"} | data)
    return nbformat.v4.new_code_cell("show()", outputs=[output], execution_count=1)


def test_a_verdict_keeps_its_numbers_and_its_seeds():
    data = verdict_data(BOTH, "mini-Pythia")
    assert (data.claim, data.model, data.title, data.outcome) == ("C1", "mini-pythia", "mini-Pythia", "holds")
    assert (data.estimate, data.interval, data.printed, data.near_paper) == (-0.4, (-0.5, -0.3), -0.5, True)
    assert data.training_seeds == (0, 2)
    assert data.by_seed["2"].controls == {"untrained": 0.3}
    assert data.by_seed["2"].outcome == "fails"


def test_seeds_are_named_only_where_they_are_known_and_what_is_not_finite_is_missing():
    data = verdict_data(ELSEWHERE, "Pythia")
    assert (data.training_seeds, data.by_seed, data.estimate, data.interval) == (None, {}, None, None)


def test_a_notebook_gives_back_what_was_shown_in_it(tmp_path):
    titles = {"mini-pythia": "mini-Pythia"}
    shown = bundle([BOTH], titles, caption="Claim C1.", interval="x [95 %]")
    beside = bundle([ALONE], titles, caption="Beside.", interval="x [95 %]", counted=False)
    text = nbformat.v4.new_markdown_cell
    path = notebook(
        tmp_path / "chapter.ipynb",
        text("# A chapter\n\n## Verdict on *claim* `C1`\n\n```bash\n# no heading\n```\n"),
        code(**{VERDICTS: shown}),
        text("Some text."),
        code(**{VERDICTS: beside}),
        code(**{PROVENANCE: {"revision": "abc"}}),
    )
    chapter = read_chapter(path)
    assert chapter.name == "chapter"
    assert chapter.provenance == {"revision": "abc"}
    assert [(one.anchor, one.counted, one.caption) for one in chapter.verdicts] == [
        ("verdict-on-claim-c1", True, "Claim C1."),
        ("verdict-on-claim-c1", False, "Beside."),
    ]
    assert chapter.verdicts[0].verdict == verdict_data(BOTH, "mini-Pythia")


@pytest.mark.parametrize(
    "heading",
    ["Verdict on claim C4", "The paper's Figure 1, left: trajectories", "2 × 3 — Überblick", "What “normal” is"],
)
def test_anchors_are_those_of_the_book(heading):
    assert section_anchor(heading) == make_id(heading)


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no such notebook: .*missing\.ipynb"):
        read_chapter(tmp_path / "missing.ipynb")
    (tmp_path / "text.ipynb").write_text("hello")
    with pytest.raises(UserError, match="is not a notebook"):
        read_chapter(tmp_path / "text.ipynb")
    shown = bundle([ALONE], {"mini-pythia": "P"}, caption="c", interval="i")
    for change in ({"version": 0}, {"verdicts": [{"claim": "C1"}]}):
        path = notebook(tmp_path / "old.ipynb", code(**{VERDICTS: json.loads(json.dumps(shown)) | change}))
        with pytest.raises(UserError, match=r"old\.ipynb was executed with another version"):
            read_chapter(path)
