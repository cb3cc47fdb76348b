"""Execute chapters again with one of our choices changed at a time, and write what their verdicts become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anisotropy.errors import UserError
from anisotropy.files import replacing
from anisotropy.provenance import digest_of, source_hash
from anisotropy.report.choices import Changed, Choices, Judged, choices_json
from anisotropy.report.verdict_data import Chapter, read_chapter
from anisotropy.runs.experiments import Experiments, load_experiments, notebook_path
from anisotropy.runs.gate import imports_of, read_notebook, run_notebook
from anisotropy.runs.parameters import checked, notebook_parameters
from anisotropy.runs.project import Project
from anisotropy.runs.seeds import made_of

FOLDER = "choices"


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
