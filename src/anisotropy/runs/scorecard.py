"""The scorecard of a set: verdicts read from its executed notebooks, and how far they spread over training seeds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.files import replacing
from anisotropy.provenance import git_revision
from anisotropy.report.scorecard import Outcome
from anisotropy.report.seeds import Spread
from anisotropy.report.tables import signed
from anisotropy.report.verdict_data import Chapter, Found, VerdictData, read_chapter
from anisotropy.runs.experiments import Set, load_experiments
from anisotropy.runs.project import Project
from anisotropy.runs.selection import FILE as SELECTION
from anisotropy.runs.selection import read_selection
from anisotropy.runs.sharing import current_code

PRINTED = "printed"
_SHORT = {
    Outcome.HOLDS: "hold",
    Outcome.FAILS: "fail",
    Outcome.INCONCLUSIVE: "open",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.NOT_RUN: "not run",
}


@dataclass(frozen=True)
class Scorecard:
    """Every verdict of a book.

    Attributes:
        set_name: of ``experiments.yml``, or the name of a build on a reader's models.
        chapters: the executed ones, in the order of the set; pages about other pages are not among them.
        missing: chapters of the set that have not been executed.
    """

    set_name: str
    chapters: tuple[Chapter, ...]
    missing: tuple[str, ...]

    @property
    def found(self) -> list[Found]:
        """All verdicts, those shown for comparison included."""
        return [found for chapter in self.chapters for found in chapter.verdicts]

    @property
    def measured(self) -> list[Found]:
        """The claims' verdicts on this set's models, and claim C7's on manifolds."""
        return [found for found in self.found if found.counted and not found.verdict.of_printed]

    @property
    def on_printed(self) -> list[Found]:
        """The rules on the paper's printed numbers."""
        return [found for found in self.found if found.verdict.of_printed]

    def content(self) -> dict[str, Any]:
        """As plain data: verdicts, where each stands, and where the numbers come from."""
        return {
            "set": self.set_name,
            "executed": max(
                (str(page["executed"]) for chapter in self.chapters if (page := chapter.provenance)), default=None
            ),
            "revision": git_revision(),
            "missing": list(self.missing),
            "verdicts": [found.model_dump(mode="json") for found in self.found],
            "provenance": {chapter.name: chapter.provenance for chapter in self.chapters},
        }


def read_scorecard(project: Project, name: str) -> Scorecard:
    """Read the verdicts of a book from its executed notebooks; nothing is executed.

    Args:
        project: where it is built.
        name: a set, or a build of one on a reader's models.

    Raises:
        UserError: no such set or build, none of its notebooks has been executed, or one of them by another version.
    """
    notebooks = load_experiments(project.root).chapters_of(chosen_set(project, name))
    folder = project.build / name / "executed" / "notebooks"
    there = [notebook for notebook in notebooks if (folder / f"{notebook}.ipynb").is_file()]
    if not there:
        raise UserError(f"no notebook of the set {name!r} has been executed: run `anisotropy book --set {name}` first")
    chapters = tuple(read_chapter(folder / f"{notebook}.ipynb") for notebook in there)
    return Scorecard(name, chapters, tuple(notebook for notebook in notebooks if notebook not in there))


def chosen_set(project: Project, name: str) -> Set:
    """What a book is made of: a set as it is, or on the models that its build was started with.

    Raises:
        UserError: no such set or build.
    """
    experiments = load_experiments(project.root)
    built = name not in experiments.sets and (project.build / name / SELECTION).is_file()
    return read_selection(project, name).chosen(project) if built else experiments.get_set(name)


def scorecard_text(scorecard: Scorecard, spread: Spread | None = None, each_reading: bool = False) -> str:
    """The scorecard for a terminal: measured verdicts, the rules on printed numbers, and the spread over seeds.

    Args:
        scorecard: of a set.
        spread: over training seeds, the committed one.
        each_reading: a line per reading instead of counts.
    """
    table = readings if each_reading else claims_by_model
    dates = sorted(str(chapter.provenance["executed"])[:10] for chapter in scorecard.chapters if chapter.provenance)
    parts = [f"Verdicts of the set {scorecard.set_name!r}, executed {_span(dates)}. open: inconclusive."]
    for head, found in (("Measured", scorecard.measured), ("On the paper's printed numbers", scorecard.on_printed)):
        if found:
            parts += ["", f"{head}:", table(found).to_string(index=False)]
    if scorecard.missing:
        parts += ["", f"Not executed yet: {', '.join(scorecard.missing)}."]
    if spread is not None:
        parts += ["", spread_heading(spread), table(spread.verdicts).to_string(index=False)]
    return "\n".join(parts)


def spread_heading(spread: Spread) -> str:
    """What the spread is over, how often seeds disagree, and whether the code has changed since."""
    seeds = ", ".join(map(str, spread.seeds))
    text = (
        f"Over the training seeds {seeds} (committed, {spread.made.date[:10]}, revision "
        f"{spread.made.revision or 'unknown'}); alone, the seeds disagree in {len(spread.disagreeing())} of "
        f"{len(spread.verdicts)} readings"
    )
    changed = [study for study, code in spread.made.studies.items() if code != current_code(study)]
    return f"{text}; measured before the last change of {', '.join(changed)}:" if changed else f"{text}:"


def _span(dates: Sequence[str]) -> str:
    if not dates:
        return "at an unknown date"
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} … {dates[-1]}"


def claims_by_model(found: Iterable[Found]) -> pd.DataFrame:
    """How many readings hold, fail and stay open, a row per claim and a column per model."""
    cells: dict[str, dict[str, Counter[Outcome]]] = {}
    for one in found:
        verdict = one.verdict
        cells.setdefault(verdict.claim, {}).setdefault(verdict.title, Counter())[verdict.outcome] += 1
    rows = [
        {"claim": claim} | {title: _counted(outcomes) for title, outcomes in by_model.items()}
        for claim, by_model in sorted(cells.items())
    ]
    return pd.DataFrame(rows).fillna("–")


def _counted(outcomes: Counter[Outcome]) -> str:
    return ", ".join(f"{outcomes[outcome]} {short}" for outcome, short in _SHORT.items() if outcomes[outcome])


def readings(found: Sequence[Found]) -> pd.DataFrame:
    """One line per verdict: claim, model, reading, outcome, estimate with interval, training seeds, section."""
    rows = [
        {
            "claim": one.verdict.claim,
            "model": one.verdict.title,
            "reading": one.verdict.reading,
            "verdict": one.verdict.outcome.value,
            "estimate": estimate_text(one.verdict),
            "seeds": one.verdict.seeds,
            "seed by seed": spread_text(one.verdict),
            "where": f"{one.chapter}#{one.anchor}",
        }
        for one in sorted(found, key=lambda one: one.verdict.claim)
    ]
    return pd.DataFrame(rows)


def estimate_text(verdict: VerdictData) -> str:
    """Quantity, estimate and interval; ``–`` where there is none."""
    if verdict.estimate is None:
        return "–"
    text = f"{verdict.quantity} {signed(verdict.estimate, verdict.digits)}"
    if verdict.interval is None:
        return text
    return f"{text} [{', '.join(signed(end, verdict.digits) for end in verdict.interval)}]"


def spread_text(verdict: VerdictData) -> str:
    """Outcome and estimate of each training seed, where there are several."""
    if len(verdict.by_seed) < 2:
        return "–"
    return ", ".join(
        one.outcome.value + ("" if one.estimate is None else f" {signed(one.estimate, verdict.digits)}")
        for one in verdict.by_seed.values()
    )


def write_scorecard(scorecard: Scorecard, target: Path) -> None:
    """Write a scorecard as JSON.

    Raises:
        UserError: the file cannot be written.
    """
    if target.is_dir():
        raise UserError(f"{target} is a folder; name a file")
    with replacing(target) as temporary:
        temporary.write_text(scorecard_json(scorecard), encoding="utf-8")


def scorecard_json(scorecard: Scorecard) -> str:
    """A scorecard as text that any JSON reader takes."""
    return json.dumps(scorecard.content(), allow_nan=False, indent=1, ensure_ascii=False) + "\n"
