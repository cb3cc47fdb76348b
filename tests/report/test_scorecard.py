"""How verdicts reach a page, whatever the claim."""

from __future__ import annotations

from anisotropy.report import prose, scorecard, tables
from anisotropy.report.scorecard import Outcome, Verdict, count_outcomes, show_verdicts, verdict_table

TITLES = {"a": "Model A", "b": "Model B"}
HOLDS = Verdict("C9", "a", "one", Outcome.HOLDS, "it does", 1.2345, 1.0, 1.5, (("untrained", 0.1),), 3, digits=3)
FAILS = Verdict("C9", "b", "two", Outcome.FAILS, "it does not", -1.0, -2.0, -0.5, (), 1, -0.5, False)
NOTHING = Verdict("C9", "b", "three", Outcome.NOT_APPLICABLE, "there is none")


def test_outcomes_are_counted_in_words():
    assert count_outcomes([HOLDS]) == "**Claim C9: 1 verdict on 1 model: 1 holds.**"
    every = count_outcomes([HOLDS, FAILS, NOTHING, NOTHING])
    assert every == "**Claim C9: 4 verdicts on 2 models: 1 holds, 1 fails, 2 not applicable.**"


def test_a_table_names_its_interval_and_the_printed_value_where_there_is_one():
    table = verdict_table([HOLDS, NOTHING], TITLES, "slope [95 %]")
    assert list(table["slope [95 %]"]) == ["+1.234 [+1.000, +1.500]", "–"]
    assert list(table["controls"]) == ["untrained +0.100", "–"]
    assert not any(column.startswith("near") for column in table)
    assert list(verdict_table([HOLDS, FAILS], TITLES, "x")["near −0.5"]) == ["–", "no"]


def test_a_page_gets_the_count_the_table_and_the_reasons(monkeypatch):
    seen = []
    for module in (tables, prose):
        monkeypatch.setattr(module, "display", lambda *objects, **options: seen.extend(objects))
    show_verdicts([HOLDS, NOTHING], TITLES, "Claim C9.", "x [95 %]")
    count, table, sentences = (shown.data for shown in seen)
    assert "1 holds" in count
    assert "Claim C9." in table
    assert scorecard.Verdict.sentence(HOLDS, "Model A") in sentences
    assert "because there is none" in sentences
