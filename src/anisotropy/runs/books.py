"""A page about the other pages of a book: their verdicts, what they measured, when and on what they were executed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from anisotropy.errors import UserError
from anisotropy.models.corpus import EMBEDDED
from anisotropy.report.verdict_data import Chapter
from anisotropy.runs.experiments import Set, load_experiments
from anisotropy.runs.measuring import Laboratory, study_parameters
from anisotropy.runs.project import find_project
from anisotropy.runs.scorecard import Scorecard, chosen_set, read_scorecard
from anisotropy.runs.session import Page
from anisotropy.studies.results import Collection


class Book(Page):
    """The executed chapters of one book.

    Attributes:
        name: of its build: a set, or a set on a reader's models.
        chosen: the set, on these models.
        scorecard: what its chapters found.
    """

    name: str
    chosen: Set
    scorecard: Scorecard

    def __init__(self, name: str) -> None:
        """Read the executed chapters; nothing is executed.

        Args:
            name: of the build.

        Raises:
            UserError: see :func:`anisotropy.runs.scorecard.read_scorecard`.
        """
        self._project = find_project()
        self.name = name
        self.chosen = chosen_set(self._project, name)
        self.scorecard = read_scorecard(self._project, name)
        super().__init__()

    @property
    def chapters(self) -> dict[str, Chapter]:
        """Executed chapters by name, in the order of the set."""
        return {chapter.name: chapter for chapter in self.scorecard.chapters}

    def titles(self) -> dict[str, str]:
        """Titles of the models that chapters measured, controls left out, by label, in order of first use."""
        found: dict[str, str] = {}
        for chapter in self.scorecard.chapters:
            for model in (chapter.provenance or {}).get("models", []):
                if not model["control"]:
                    found.setdefault(model["model"], model["title"])
        return found

    def studies(self) -> list[tuple[str, str]]:
        """The studies that chapters rest on, as (chapter, study)."""
        chapters = load_experiments(self._project.root).chapters
        return [(name, study) for name in self.chosen.notebooks for study in chapters[name].studies]

    def _parameters(self, chapter: str, study: str) -> BaseModel:
        values = self.chosen.notebooks[chapter]
        fields = type(study_parameters(study)).model_fields
        return study_parameters(study, {name: value for name, value in values.items() if name in fields})

    def collect(self, chapter: str, study: str) -> dict[str, list[Collection]]:
        """What a chapter measured, by model, at the checkpoints that it shows; controls are left out.

        Raises:
            UserError: the chapter has not been executed, or what it measured is not kept any more.
        """
        if chapter not in self.chapters:
            raise UserError(f"{chapter!r} is no executed chapter of this book; it has {', '.join(self.chapters)}")
        laboratory = Laboratory(self._project, corpus=self.chosen.notebooks[chapter].get("corpus", EMBEDDED))
        parameters = self._parameters(chapter, study)
        return {
            model["model"]: laboratory.read(model["model"], study, parameters, model["steps"])
            for model in (self.chapters[chapter].provenance or {}).get("models", [])
            if not model["control"]
        }

    def provenance(self) -> dict[str, Any]:
        """As of any page, and which chapters were read, executed when."""
        return super().provenance() | {
            "book": self.name,
            "chapters": {
                chapter.name: (chapter.provenance or {}).get("executed") for chapter in self.scorecard.chapters
            },
        }

    def _origins(self) -> list[str]:
        models = ", ".join(self.titles().values()) or "no model"
        left = self.scorecard.missing
        missing = f" Not executed: {', '.join(left)}." if left else ""
        return [
            f"This page measures nothing. It reads the {len(self.scorecard.chapters)} executed chapters of the book "
            f"`{self.name}`, which measured {models}; [Status](status.ipynb) says when, and on what.{missing}",
            "",
        ]
