"""Verdicts: what the rules of :mod:`anisotropy.report.rules` say about the paper's claims, and how a page shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from anisotropy.report.prose import say
from anisotropy.report.tables import show_table, signed


class Outcome(StrEnum):
    """What a rule can say."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Verdict:
    """One claim on one model under one reading.

    Attributes:
        claim: its id, ``C1`` … ``C8``.
        model: the model's label.
        reading: which definition of the quantity.
        outcome: what the rule says.
        estimate: the number it rests on, averaged over training seeds; missing where there is none.
        low, high: the interval: the lowest and highest end over seeds.
        controls: value of each control, by name.
        seeds: training seeds behind it.
        reason: why the rule says so, a clause that follows "because".
        printed: the paper's value, where the claim has one that this estimate can be held against.
        near_paper: whether the estimate is near it.
        quantity: what the estimate is, in a word or a symbol.
        digits: decimals it is shown with.
    """

    claim: str
    model: str
    reading: str
    outcome: Outcome
    reason: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    controls: tuple[tuple[str, float], ...] = ()
    seeds: int = 0
    printed: float | None = None
    near_paper: bool | None = None
    quantity: str = "ρ"
    digits: int = 2

    @property
    def interval(self) -> str:
        """Estimate and interval as text; ``–`` where there is none."""
        if self.estimate is None or self.low is None or self.high is None:
            return "–"
        estimate, low, high = (signed(value, self.digits) for value in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"

    def sentence(self, title: str) -> str:
        """The verdict in words, for a page; ``title`` is the model's name."""
        head = f"**{self.claim}, {title}, {self.reading}: {self.outcome.value}**"
        if self.estimate is None:
            return f"{head}, because {self.reason}."
        runs = {0: "", 1: ", one run"}.get(self.seeds, f", {self.seeds} training seeds")
        interval = f"{self.quantity} = {self.interval}{runs}"
        paper = ""
        if self.printed is not None:
            paper = f"; this is {'near' if self.near_paper else 'not near'} the paper's {signed(self.printed, 1)}"
        return f"{head} ({interval}), because {self.reason}{paper}."


def verdict_table(verdicts: Sequence[Verdict], titles: Mapping[str, str], interval: str) -> pd.DataFrame:
    """Verdicts as a table for a page: one row each, numbers as text with their intervals.

    Args:
        verdicts: of one claim.
        titles: of the models.
        interval: name of the column of estimates: the quantity and what its interval is over.
    """
    rows = []
    for verdict in verdicts:
        row: dict[str, object] = {
            "model": titles[verdict.model],
            "reading": verdict.reading,
            "verdict": verdict.outcome.value,
            interval: verdict.interval,
            "controls": "; ".join(f"{name} {signed(value, verdict.digits)}" for name, value in verdict.controls) or "–",
            "seeds": verdict.seeds,
        }
        if verdict.printed is not None:
            row[f"near {signed(verdict.printed, 1)}"] = "yes" if verdict.near_paper else "no"
        rows.append(row)
    return pd.DataFrame(rows).fillna("–")


def show_verdicts(verdicts: Sequence[Verdict], titles: Mapping[str, str], caption: str, interval: str) -> None:
    """Put verdicts on the page: how many of each kind, the table, and each with its reason in a fold.

    Args:
        verdicts: of one claim, at least one.
        titles: of the models.
        caption: of the table.
        interval: see :func:`verdict_table`.
    """
    say(count_outcomes(verdicts))
    show_table(verdict_table(verdicts, titles, interval), caption)
    sentences = [f"- {verdict.sentence(titles[verdict.model])}" for verdict in verdicts]
    say(":::{dropdown} Each verdict in words, with its reason", *sentences, ":::")


def count_outcomes(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts of one claim hold, fail and stay open, in one sentence."""
    counts = Counter(verdict.outcome.value for verdict in verdicts)
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    models = len({verdict.model for verdict in verdicts})
    return (
        f"**Claim {verdicts[0].claim}: {len(verdicts)} verdict{'s' * (len(verdicts) > 1)} on "
        f"{models} model{'s' * (models > 1)}: {parts}.**"
    )
