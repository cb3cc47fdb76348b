"""The scorecard as a page: all verdicts in one picture, and as a table that a reader can filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anisotropy.report.exhibits import CLAIMS, of, subject, subjects_of, verdict_text
from anisotropy.report.figures import CONTROL, INK, WIDTH, plt
from anisotropy.report.scorecard import Outcome
from anisotropy.report.tables import signed
from anisotropy.report.verdict_data import Chapter, Found, VerdictData

# Shapes, not colours: they also stand on paper, and mean the same to everybody.
_GLYPHS: dict[Outcome, dict[str, Any]] = {
    Outcome.HOLDS: {"marker": "o", "markerfacecolor": INK, "color": INK},
    Outcome.FAILS: {"marker": "x", "color": INK, "markeredgewidth": 1.6},
    Outcome.INCONCLUSIVE: {"marker": "o", "markerfacecolor": "white", "color": INK},
    Outcome.NOT_APPLICABLE: {"marker": "_", "color": CONTROL},
    Outcome.NOT_RUN: {"marker": ".", "color": CONTROL},
}
_ACROSS = 6
FILTERED = ("claim", "model", "verdict")


def draw_verdicts(measured: Sequence[Found]) -> tuple[Figure, str]:
    """Every verdict as a sign: a row per claim, a column per model, readings in the order of the chapters."""
    claims = [claim for claim in CLAIMS if of(measured, claim)]
    subjects = subjects_of(measured)
    cells = {
        (claim, name): [one for one in of(measured, claim) if subject(one) == name]
        for claim in claims
        for name in subjects
    }
    # A phone has room for four models beside each other.
    blocks = [subjects[first : first + 4] for first in range(0, len(subjects), 4)]
    heights = [sum(_lines(cells, claim, block) + 0.8 for claim in claims) + 2.2 for block in blocks]
    figure, axes = plt.subplots(
        len(blocks), 1, figsize=(WIDTH, 0.25 * sum(heights) + 0.6), height_ratios=heights, squeeze=False
    )
    for axis, block in zip(axes[:, 0], blocks, strict=True):
        _draw_block(axis, claims, block, cells)
    present = Counter(one.verdict.outcome for one in measured)
    handles = [
        Line2D([], [], linestyle="none", markersize=6, label=outcome.value, **glyph)
        for outcome, glyph in _GLYPHS.items()
        if present[outcome]
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    words = []
    for claim in claims:
        said = (f"{name} {verdict_text(cells[claim, name])}" for name in subjects if cells[claim, name])
        words.append(f"{claim}: {', '.join(said)}")
    return figure, f"One sign per verdict, claims by models. {'; '.join(words)}."


def _lines(cells: Mapping[tuple[str, str], Sequence[Found]], claim: str, block: Sequence[str]) -> int:
    return max(1, *(-(-len(cells[claim, name]) // _ACROSS) for name in block))


def _draw_block(
    axis: Axes, claims: Sequence[str], block: Sequence[str], cells: Mapping[tuple[str, str], Sequence[Found]]
) -> None:
    apart, top = _ACROSS + 1.5, 0.0
    for claim in claims:
        lines = _lines(cells, claim, block)
        axis.text(-1.2, top + 0.5 * (lines - 1), claim, ha="right", va="center", fontweight="bold")
        for column, name in enumerate(block):
            for number, found in enumerate(cells[claim, name]):
                x = column * apart + number % _ACROSS
                axis.plot(x, top + number // _ACROSS, markersize=6, **_GLYPHS[found.verdict.outcome])
        top += lines + 0.8
        axis.axhline(top - 0.9, color="#e4e4e4", linewidth=0.8, zorder=0)
    for column, name in enumerate(block):
        axis.text(column * apart - 0.2, -1.1, _wrapped(name), va="bottom", fontsize=10)
    axis.set(xlim=(-3.0, 4 * apart - 1), ylim=(top - 0.5, -1.2))
    axis.set_axis_off()


def _wrapped(name: str) -> str:
    return name.replace(" (", "\n(").replace(", ", ",\n")


def verdict_rows(
    found: Sequence[Found], chapters: Mapping[str, Chapter], spread: Mapping[tuple[str, str, str], VerdictData]
) -> pd.DataFrame:
    """One row per verdict, as HTML: what it says, its numbers and what they are held against, and where it stands.

    Args:
        found: the verdicts.
        chapters: executed ones, by name, for the links.
        spread: the same verdicts over training seeds, by claim, model and reading; see :func:`by_place`.
    """
    rows = []
    for one in found:
        verdict = one.verdict
        over = spread.get((verdict.claim, verdict.model, verdict.reading))
        title = chapters[one.chapter].title if one.chapter in chapters else one.chapter
        rows.append(
            {
                "claim": verdict.claim,
                "verdict": verdict.outcome.value,
                "model": escape(verdict.title),
                "reading": escape(verdict.reading),
                "estimate [interval]": _estimate(verdict),
                "controls": _controls(verdict),
                "training seeds here": f"{verdict.seeds}" if verdict.seeds else "–",
                "over training seeds": _seeds(over),
                "why": f'<div class="long">{escape(verdict.reason)}</div>',
                "printed": "–" if verdict.printed is None else signed(verdict.printed, 1),
                "where": f'<a href="{escape(one.chapter)}.html#{escape(one.anchor)}">{escape(title)}</a>',
            }
        )
    return pd.DataFrame(rows)


def by_place(found: Sequence[Found]) -> dict[tuple[str, str, str], VerdictData]:
    """Verdicts by claim, model and reading."""
    return {(one.verdict.claim, one.verdict.model, one.verdict.reading): one.verdict for one in found}


def seed_rows(found: Sequence[Found]) -> pd.DataFrame:
    """How far the training seeds agree: a row per claim and model."""
    rows = []
    for claim in CLAIMS:
        own = of(found, claim)
        for name in subjects_of(own):
            readings = [one for one in own if subject(one) == name]
            apart = [one for one in readings if len({seed.outcome for seed in one.verdict.by_seed.values()}) > 1]
            rows.append(
                {
                    "claim": claim,
                    "model": name,
                    "all seeds together": verdict_text(readings),
                    "readings": len(readings),
                    "seeds disagree in": len(apart),
                    "most apart": max((_width(one.verdict) for one in readings), default=float("nan")),
                }
            )
    return pd.DataFrame(rows)


def _width(verdict: VerdictData) -> float:
    values = [one.estimate for one in verdict.by_seed.values() if one.estimate is not None]
    return max(values) - min(values) if len(values) > 1 else 0.0


def _estimate(verdict: VerdictData) -> str:
    if verdict.estimate is None:
        return "–"
    text = f"{escape(verdict.quantity)} {signed(verdict.estimate, verdict.digits)}"
    if verdict.interval is None:
        return text
    ends = ", ".join(signed(end, verdict.digits) for end in verdict.interval)
    return f'{text} <span class="whole">[{ends}]</span>'


def _controls(verdict: VerdictData) -> str:
    return (
        "; ".join(f"{escape(name)} {signed(value, verdict.digits)}" for name, value in verdict.controls.items()) or "–"
    )


def _seeds(verdict: VerdictData | None) -> str:
    """``3 of 3 fail, −0.32 … −0.31``."""
    if verdict is None or len(verdict.by_seed) < 2:
        return "–"
    counts = Counter(one.outcome.value for one in verdict.by_seed.values())
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    values = [one.estimate for one in verdict.by_seed.values() if one.estimate is not None]
    if not values:
        return said
    return f"{said}: {signed(min(values), verdict.digits)} … {signed(max(values), verdict.digits)}"
