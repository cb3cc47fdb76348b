"""Verdicts under other choices: what is compared, what counts as changed, and how the file is kept."""

from __future__ import annotations

import pytest

from anisotropy.errors import UserError
from anisotropy.report.choices import (
    Changed,
    Choices,
    Judged,
    as_list,
    by_claim,
    change_table,
    choices_json,
    firmness_sentence,
    made_sentence,
    read_choices,
    value_text,
)
from anisotropy.report.committed import Made
from anisotropy.report.scorecard import Outcome

HOLDS, FAILS, OPEN = Outcome.HOLDS, Outcome.FAILS, Outcome.INCONCLUSIVE


def judged(outcome, estimate=0.5, reading="one", model="a"):
    return Judged(
        claim="C1", model=model, title=model.upper(), reading=reading, outcome=outcome, estimate=estimate, digits=2
    )


def changed(parameter, *verdicts, was=16, value=8):
    return Changed(chapter="page", parameter=parameter, was=was, value=value, verdicts=verdicts)


@pytest.fixture
def choices():
    made = Made(
        date="2026-01-02T00:00:00+00:00",
        revision="abc",
        package="0.1.0",
        libraries={"torch": "2"},
        devices=("cpu",),
        corpus="sotu",
        texts={},
        studies={},
    )
    base = {"page": (judged(HOLDS), judged(FAILS, 0.123456789, "two"), judged(OPEN, None, model="b"))}
    others = (
        changed("rank", judged(FAILS, -0.25), judged(FAILS, 0.1, "two"), judged(OPEN, None, model="b")),
        changed("seed", judged(OPEN, 0.4), judged(FAILS, 0.1, "two"), judged(FAILS, 1.0, "other rank")),
    )
    return Choices(made=made, base=base, changed=others)


def test_only_what_both_have_is_compared(choices):
    rank, seed = change_table(choices).to_dict("records")
    assert (rank["verdicts"], rank["changed"]) == (3, 1)
    assert rank["largest_move"] == pytest.approx(0.75)
    assert rank["which"] == ["C1, A, one: holds at +0.50 → fails at −0.25"]
    assert (seed["verdicts"], seed["changed"]) == (2, 1)


def test_claims_are_counted_and_a_reversal_is_more_than_a_change(choices):
    a, b = by_claim(choices).to_dict("records")
    assert a == {
        "claim": "C1",
        "model": "A",
        "readings": 2,
        "alternatives": 2,
        "comparisons": 4,
        "changed": 2,
        "reversed": 1,
    }
    assert (b["comparisons"], b["changed"]) == (1, 0)


def test_a_seed_stands_apart_from_other_choices(choices):
    text = firmness_sentence(choices)
    assert "under another seed, 1 of 2 verdicts (50 %)" in text
    assert "under another choice, 1 of 3 verdicts (33 %)" in text
    assert text.endswith("One goes from *holds* to *fails* or back.")
    assert "2026-01-02" in made_sentence(choices)


def test_the_file_comes_back_and_a_strange_one_is_refused(choices, tmp_path):
    file = tmp_path / "choices.json"
    assert read_choices(file) is None
    file.write_text(choices_json(choices), encoding="utf-8")
    back = read_choices(file)
    assert back.base["page"][1].estimate == 0.123457
    assert change_table(back).equals(change_table(choices))
    file.write_text('{"version": 1}')
    with pytest.raises(UserError, match="make it again: `make choices`"):
        read_choices(file)


def test_values_and_lists_read_as_a_person_would_write_them():
    assert [value_text(value) for value in (True, 8192, [1, 2], "step", 0.2)] == ["yes", "8,192", "1, 2", "step", "0.2"]
    assert as_list([]) == "none"
    assert as_list(["a < b"]) == '<ul class="long"><li>a &lt; b</li></ul>'
