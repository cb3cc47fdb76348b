"""How verdicts reach a page, whatever the claim."""

from __future__ import annotations

import pandas as pd
import pytest

from anisotropy.report import prose, scorecard, tables
from anisotropy.report.scorecard import Outcome, Verdict, count_outcomes, on_each_seed, show_verdicts, verdict_table
from anisotropy.report.verdict_data import VERDICTS, Verdicts

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
    count, table, sentences = seen
    assert "1 holds" in count.data
    assert "Claim C9." in table["text/html"]
    assert scorecard.Verdict.sentence(HOLDS, "Model A") in sentences.data
    assert "because there is none" in sentences.data
    data = Verdicts.model_validate(table[VERDICTS])
    assert [(one.claim, one.model, one.outcome) for one in data.verdicts] == [
        ("C9", "a", "holds"),
        ("C9", "b", "not applicable"),
    ]
    assert (data.caption, data.interval, data.counted) == ("Claim C9.", "x [95 %]", True)


def below_zero(table, controls):
    """A rule as the project's are: the mean of all seeds, and it needs a control."""
    verdicts = []
    for model in dict.fromkeys(table["model"]):
        own = table.loc[table["model"] == model, "value"]
        outcome = Outcome.HOLDS if own.max() < 0 else Outcome.FAILS
        verdicts.append(Verdict("C9", model, "one", outcome, controls, own.mean(), own.min(), own.max(), (), len(own)))
    return [*verdicts, Verdict("C9", "absent", "one", Outcome.NOT_APPLICABLE, "it has no rows")]


def test_a_rule_also_judges_each_training_seed_alone():
    rows = [("a", 0, -0.3), ("a", 1, 0.1), ("a", 2, -0.1), ("b", 0, -1.0)]
    a, b, absent = on_each_seed(below_zero)(pd.DataFrame(rows, columns=["model", "seed", "value"]), controls="why")
    assert (a.outcome, a.estimate, a.low, a.high, a.seeds) == (Outcome.FAILS, pytest.approx(-0.1), -0.3, 0.1, 3)
    assert [(seed, one.outcome, one.estimate) for seed, one in a.by_seed] == [
        (0, "holds", -0.3),
        (1, "fails", 0.1),
        (2, "holds", -0.1),
    ]
    assert [seed for seed, _ in b.by_seed] == [0]
    assert absent.by_seed == ()
    assert "3 training seeds: seed 0 holds at −0.30, seed 1 fails at +0.10, seed 2 holds at −0.10" in a.sentence("A")
    assert "one run)" in b.sentence("B")
