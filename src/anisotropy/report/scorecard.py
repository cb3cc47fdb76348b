"""Verdicts: what the rules of ``anisotropy.report.rules`` say about the paper's claims, and how a page shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from typing import Concatenate, ParamSpec

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
        of_printed: whether the rule was run on the paper's printed numbers instead of measured ones.
        by_seed: the same rule on each training seed alone, where it was run so (see :func:`on_each_seed`).
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
    of_printed: bool = False
    by_seed: tuple[tuple[int, Verdict], ...] = ()

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
        interval = f"{self.quantity} = {self.interval}{runs}{self._seeds_apart()}"
        paper = ""
        if self.printed is not None:
            paper = f"; this is {'near' if self.near_paper else 'not near'} the paper's {signed(self.printed, 1)}"
        return f"{head} ({interval}), because {self.reason}{paper}."

    def _seeds_apart(self) -> str:
        """What the rule says of each training seed alone, where there are several."""
        if len(self.by_seed) < 2:
            return ""
        apart = (
            f"seed {seed} {one.outcome.value}"
            + ("" if one.estimate is None else f" at {signed(one.estimate, one.digits)}")
            for seed, one in self.by_seed
        )
        return f": {', '.join(apart)}"


_P = ParamSpec("_P")


def on_each_seed(
    rule: Callable[Concatenate[pd.DataFrame, _P], list[Verdict]],
) -> Callable[Concatenate[pd.DataFrame, _P], list[Verdict]]:
    """Let a rule also judge each training seed alone; its verdicts carry these in ``by_seed``.

    Args:
        rule: takes a table with columns ``model`` and ``seed``, then whatever else it needs.
    """

    @wraps(rule)
    def judged(table: pd.DataFrame, *arguments: _P.args, **options: _P.kwargs) -> list[Verdict]:
        verdicts = rule(table, *arguments, **options)  # first: it says what the table lacks
        runs = set(table[["model", "seed"]].itertuples(index=False, name=None))
        alone = {
            (verdict.model, verdict.claim, verdict.reading, int(seed)): verdict
            for seed in sorted(table["seed"].unique())
            for verdict in rule(table[table["seed"] == seed], *arguments, **options)
            if (verdict.model, seed) in runs
        }
        seeds = sorted({seed for *_, seed in alone})
        return [
            replace(
                verdict,
                by_seed=tuple(
                    (seed, alone[place])
                    for seed in seeds
                    if (place := (verdict.model, verdict.claim, verdict.reading, seed)) in alone
                ),
            )
            for verdict in verdicts
        ]

    return judged


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


def show_verdicts(
    verdicts: Sequence[Verdict],
    titles: Mapping[str, str],
    caption: str,
    interval: str,
    *,
    counted: bool = True,
    subject: str = "model",
    table: pd.DataFrame | None = None,
    formats: Mapping[str, str] | None = None,
) -> None:
    """Put verdicts on the page: how many of each kind, the table, and each with its reason in a fold.

    The output of the table also carries the verdicts as data (see :mod:`anisotropy.report.verdict_data`), so what the
    page says and what a scorecard says is the same.

    Args:
        verdicts: of one claim, at least one.
        titles: of the models.
        caption: of the table.
        interval: see :func:`verdict_table`.
        counted: whether these are the claim's verdicts, or shown beside them for comparison.
        subject: what a verdict is of, in the singular.
        table: shown in place of :func:`verdict_table`.
        formats: of the table's columns, see :func:`anisotropy.report.tables.show_table`.
    """
    from anisotropy.report.verdict_data import VERDICTS, bundle

    say(count_outcomes(verdicts, subject))
    data = {VERDICTS: bundle(verdicts, titles, caption=caption, interval=interval, counted=counted)}
    shown = verdict_table(verdicts, titles, interval) if table is None else table
    show_table(shown, caption, formats, data=data)
    sentences = [f"- {verdict.sentence(titles[verdict.model])}" for verdict in verdicts]
    say(":::{dropdown} Each verdict in words, with its reason", *sentences, ":::")


def count_outcomes(verdicts: Sequence[Verdict], subject: str = "model") -> str:
    """How many verdicts of one claim hold, fail and stay open, in one sentence."""
    counts = Counter(verdict.outcome.value for verdict in verdicts)
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    models = len({verdict.model for verdict in verdicts})
    return (
        f"**Claim {verdicts[0].claim}: {len(verdicts)} verdict{'s' * (len(verdicts) > 1)} on "
        f"{models} {subject}{'s' * (models > 1)}: {parts}.**"
    )
