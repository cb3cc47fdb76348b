"""Execute chapters again with one of our choices changed at a time, and write what their verdicts become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.files import replacing
from anisotropy.provenance import digest_of, source_hash
from anisotropy.report.choices import Changed, Choices, Judged, choices_json, value_text
from anisotropy.report.verdict_data import Chapter, read_chapter
from anisotropy.runs.experiments import Experiments, Set, load_experiments, notebook_path
from anisotropy.runs.gate import imports_of, read_notebook, run_notebook
from anisotropy.runs.parameters import checked, notebook_parameters
from anisotropy.runs.project import Project, find_project
from anisotropy.runs.seeds import made_of

FOLDER = "choices"
_NO_CHOICE = ("models", "controls", "checkpoints", "corpus", "device")


@dataclass(frozen=True)
class Alternative:
    """One execution of a chapter: with the book's values, or with one of them changed.

    Attributes:
        chapter: the notebook.
        values: all parameters that are passed to it.
        parameter: which one is changed, ``None`` where none is.
        was: the book's value of it.
    """

    chapter: str
    values: dict[str, Any]
    parameter: str | None = None
    was: Any = None

    @property
    def title(self) -> str:
        """What is executed, in a line."""
        return (
            self.chapter
            if self.parameter is None
            else f"{self.chapter}, {self.parameter} {self.values[self.parameter]}"
        )


def alternatives(project: Project, experiments: Experiments) -> list[Alternative]:
    """Every chapter with the book's values, then with each alternative of ``experiments.yml``.

    Raises:
        UserError: an alternative that its notebook does not take, or that is the book's own value.
    """
    plan = experiments.choices
    if plan is None:
        raise UserError("experiments.yml lists no choices")
    chosen = experiments.get_set(plan.set).on(plan.models)
    if lost := [name for name in plan.alternatives if name not in chosen.notebooks]:
        raise UserError(f"choices name {lost[0]!r}, which is not in the set {plan.set!r}")
    found = []
    for chapter, others in plan.alternatives.items():
        path = notebook_path(project.root, chapter)
        known = notebook_parameters(read_notebook(path), path.name)
        base = chosen.notebooks[chapter]
        found.append(Alternative(chapter, base))
        for parameter, values in others.items():
            for value in values:
                changed = base | {parameter: value}
                checked(changed, known, path.name)
                was = base.get(parameter, known[parameter].default)
                if value == was:
                    raise UserError(f"choices: {chapter}, {parameter}: {value!r} is what the book has")
                found.append(Alternative(chapter, changed, parameter, was))
    return found


def make_choices(project: Project, report: Callable[[str], None] = lambda line: None) -> Choices:
    """Execute what has not been executed yet, and gather the verdicts; a killed call goes on.

    Args:
        project: where notebooks and results are.
        report: receives a line per execution.

    Raises:
        UserError: see :func:`alternatives`; or a notebook failed.
    """
    wanted = alternatives(project, load_experiments(project.root))
    executed = []
    for number, one in enumerate(wanted, 1):
        path = _place(project, one)
        if not path.is_file():
            report(f"{one.title} ({number} of {len(wanted)})")
            run_notebook(notebook_path(project.root, one.chapter), path, one.values, project.build / "failed")
        executed.append((one, read_chapter(path)))
    made = made_of([chapter for _, chapter in executed], project)
    base = {one.chapter: tuple(_judged(chapter)) for one, chapter in executed if one.parameter is None}
    changed = tuple(
        Changed(
            chapter=one.chapter,
            parameter=one.parameter,
            was=one.was,
            value=one.values[one.parameter],
            verdicts=tuple(_judged(chapter)),
        )
        for one, chapter in executed
        if one.parameter is not None
    )
    return Choices(made=made, base=base, changed=changed)


def parameter_rows(chosen: Set, chapters: Mapping[str, Chapter], made: Choices | None) -> pd.DataFrame:
    """Every parameter of every chapter of a book, as a reader would look it up.

    Args:
        chosen: the book's set.
        chapters: executed ones, by name.
        made: verdicts under other choices, where there are some.

    Returns:
        Columns ``chapter``, ``parameter``, ``meaning``, ``book``, ``tried instead``; what chooses models, text or
        machine is left out.
    """
    project, rows = find_project(), []
    for name, chapter in chapters.items():
        path, meaning = notebook_path(project.root, name), ""
        for parameter in notebook_parameters(read_notebook(path), path.name).values():
            meaning = parameter.help or meaning  # one comment may be about several lines
            if parameter.name in _NO_CHOICE:
                continue
            tried = [
                value_text(one.value)
                for one in (made.changed if made else ())
                if (one.chapter, one.parameter) == (name, parameter.name)
            ]
            rows.append(
                {
                    "chapter": escape(chapter.title),
                    "parameter": parameter.name,
                    "meaning": f'<div class="long">{escape(meaning)}</div>',
                    "book": value_text(chosen.notebooks[name].get(parameter.name, parameter.default)),
                    "tried instead": "; ".join(tried) or "–",
                }
            )
    return pd.DataFrame(rows)


def write_choices(choices: Choices, target: Path) -> None:
    """Write the file, whole or not at all.

    Raises:
        UserError: it is a folder, or cannot be written.
    """
    if target.is_dir():
        raise UserError(f"{target} is a folder; name a file")
    with replacing(target) as temporary:
        temporary.write_text(choices_json(choices), encoding="utf-8")


def _judged(chapter: Chapter) -> Iterator[Judged]:
    for found in chapter.verdicts:
        if found.counted and not found.verdict.of_printed:
            yield Judged.of(found.verdict)


def _place(project: Project, one: Alternative) -> Path:
    """Where its executed notebook is; a change of its code or of the notebook's makes another place."""
    notebook = notebook_path(project.root, one.chapter)
    code = source_hash(*sorted(imports_of(notebook)))
    name = digest_of([notebook.read_text(encoding="utf-8"), code, one.values])[:16]
    return project.build / FOLDER / f"{one.chapter}-{name}.ipynb"
