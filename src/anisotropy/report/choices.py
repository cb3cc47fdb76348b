"""What verdicts become under other choices: a small file that is committed, so that a page can show it at once.

``make choices`` executes chapters again with one parameter changed at a time, and writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from anisotropy.errors import UserError
from anisotropy.report.committed import Data, Made, as_text
from anisotropy.report.scorecard import Outcome
from anisotropy.report.tables import signed
from anisotropy.report.verdict_data import VerdictData

FILE = "choices.json"
VERSION = 1


class Judged(Data):
    """One verdict, as much of it as can be compared; fields as in `VerdictData`."""

    claim: str
    model: str
    title: str
    reading: str
    outcome: Outcome
    estimate: float | None
    digits: int

    @classmethod
    def of(cls, verdict: VerdictData) -> Judged:
        """The verdict in short."""
        return cls(**{name: getattr(verdict, name) for name in cls.model_fields})

    @property
    def place(self) -> tuple[str, str, str]:
        """What makes two verdicts comparable."""
        return self.claim, self.model, self.reading


class Changed(Data):
    """A chapter's verdicts with one parameter changed.

    Attributes:
        chapter: the notebook.
        parameter: its name.
        was: the value of the book.
        value: the other one.
        verdicts: under the other one.
    """

    chapter: str
    parameter: str
    was: Any
    value: Any
    verdicts: tuple[Judged, ...]


class Choices(Data):
    """Verdicts under other choices.

    Attributes:
        made: what the numbers were made with.
        base: verdicts as the book has them, by chapter.
        changed: under each alternative.
    """

    version: int = VERSION
    made: Made
    base: dict[str, tuple[Judged, ...]]
    changed: tuple[Changed, ...]


def choices_file() -> Path:
    """Where the committed file is."""
    return Path(str(files("anisotropy.report") / "data" / FILE))


def read_choices(file: Path | None = None) -> Choices | None:
    """The committed file, or another; ``None`` where none has been made.

    Raises:
        UserError: a file that this version cannot read.
    """
    file = file or choices_file()
    if not file.is_file():
        return None
    try:
        return Choices.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValueError, ValidationError):
        raise UserError(
            f"{file} was not written by this version of the project; make it again: `make choices`"
        ) from None


def choices_json(choices: Choices) -> str:
    """As text: numbers to six digits, one alternative a line so that differences can be read."""
    return as_text(choices, lines=("changed",))


def change_table(choices: Choices) -> pd.DataFrame:
    """One row per alternative.

    Returns:
        Columns ``chapter``, ``parameter``, ``was``, ``value``; ``verdicts`` compared, ``changed`` how many of them say
        something else, ``largest_move`` of an estimate, and ``which`` changed, a list of sentences.
    """
    rows = []
    for changed in choices.changed:
        before = {judged.place: judged for judged in choices.base[changed.chapter]}
        pairs = [(before[one.place], one) for one in changed.verdicts if one.place in before]
        turned = [(old, new) for old, new in pairs if old.outcome != new.outcome]
        moves = [
            abs(new.estimate - old.estimate)
            for old, new in pairs
            if old.estimate is not None and new.estimate is not None
        ]
        rows.append(
            {
                "chapter": changed.chapter,
                "parameter": changed.parameter,
                "was": value_text(changed.was),
                "value": value_text(changed.value),
                "verdicts": len(pairs),
                "changed": len(turned),
                "largest_move": max(moves, default=float("nan")),
                "which": [turn_text(old, new) for old, new in turned],
            }
        )
    return pd.DataFrame(rows)


def firmness_sentence(choices: Choices) -> str:
    """How many verdicts change at all, by a seed and by anything else, in a sentence or two."""
    table = change_table(choices)
    parts = []
    for name, rows in (
        ("another seed", table["parameter"] == "seed"),
        ("another choice", table["parameter"] != "seed"),
    ):
        own = table[rows]
        if own["verdicts"].sum():
            share = 100 * own["changed"].sum() / own["verdicts"].sum()
            parts.append(
                f"under {name}, {own['changed'].sum():,} of {own['verdicts'].sum():,} verdicts ({share:.0f} %) say "
                "something else"
            )
    reversed_ones = int(by_claim(choices)["reversed"].sum())
    ends = {0: "None goes", 1: "One goes"}.get(reversed_ones, f"{reversed_ones} go")
    return f"{len(table)} alternatives: {'; '.join(parts)}. {ends} from *holds* to *fails* or back."


def made_sentence(choices: Choices) -> str:
    """When the committed file was made, and with what."""
    made = choices.made
    return (
        f"Committed results of {made.date[:10]}, revision {made.revision or 'unknown'}, on {', '.join(made.devices)}; "
        "`make choices` makes them again."
    )


def turn_text(old: Judged, new: Judged) -> str:
    """How one verdict turned, in words: claim, model, reading, from what to what."""

    def said(one: Judged) -> str:
        return one.outcome.value + ("" if one.estimate is None else f" at {signed(one.estimate, one.digits)}")

    return f"{old.claim}, {old.title}, {old.reading}: {said(old)} → {said(new)}"


def as_list(sentences: Sequence[str]) -> str:
    """Sentences as an HTML list for a cell of a table; ``none`` without any."""
    if not sentences:
        return "none"
    return '<ul class="long">' + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def value_text(value: Any) -> str:
    """A parameter's value as a reader would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(value_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def by_claim(choices: Choices) -> pd.DataFrame:
    """How firm each claim's verdicts are, a row per claim and model.

    Returns:
        Columns ``claim``, ``model`` (title), ``readings``, ``alternatives`` under which they were judged again,
        ``comparisons`` (readings × alternatives), ``changed`` and ``reversed`` (from holds to fails or back).
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for chapter, base in choices.base.items():
        before = {judged.place: judged for judged in base}
        own = [changed for changed in choices.changed if changed.chapter == chapter]
        for judged in base:
            row = rows.setdefault(
                (judged.claim, judged.title),
                {"readings": 0, "alternatives": len(own), "comparisons": 0, "changed": 0, "reversed": 0},
            )
            row["readings"] += 1
        for changed in own:
            for new in changed.verdicts:
                if (old := before.get(new.place)) is None:
                    continue
                row = rows[old.claim, old.title]
                row["comparisons"] += 1
                row["changed"] += old.outcome != new.outcome
                row["reversed"] += {old.outcome, new.outcome} == {Outcome.HOLDS, Outcome.FAILS}
    return pd.DataFrame([{"claim": claim, "model": model, **row} for (claim, model), row in sorted(rows.items())])
