"""From the executed notebooks of a set over training seeds to the small file that is committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anisotropy.errors import UserError
from anisotropy.files import replacing
from anisotropy.models.catalogue import parse_name
from anisotropy.models.recorded import Manifest
from anisotropy.report.committed import Made
from anisotropy.report.seeds import Run, Spread, spread_json
from anisotropy.report.verdict_data import Chapter
from anisotropy.runs.project import Project
from anisotropy.runs.scorecard import Scorecard, read_scorecard

SET = "seeds"


def make_spread(project: Project, set_name: str = SET) -> Spread:
    """Gather the verdicts of a set and what they were made with; every notebook of it must have been executed.

    Raises:
        UserError: a notebook is missing, or its verdicts rest on one training seed only.
    """
    scorecard = read_scorecard(project, set_name)
    if scorecard.missing:
        raise UserError(f"set {set_name!r}: {', '.join(scorecard.missing)} not executed yet; run `anisotropy seeds`")
    measured = [found for found in scorecard.measured if found.verdict.by_seed]
    if not any(len(found.verdict.by_seed) > 1 for found in measured):
        raise UserError(
            f"set {set_name!r} has one training seed a model; a spread needs several: mini-pythia, mini-pythia@1"
        )
    # A seed's reason is that of the number beside it; without it the file is half as large.
    short = [
        found.model_copy(
            update={
                "verdict": found.verdict.model_copy(
                    update={
                        "by_seed": {
                            seed: one.model_copy(update={"reason": ""}) for seed, one in found.verdict.by_seed.items()
                        }
                    }
                )
            }
        )
        for found in measured
    ]
    return Spread(made=made_of(scorecard.chapters, project), runs=_runs(scorecard, project), verdicts=tuple(short))


def _pages(chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    return [chapter.provenance for chapter in chapters if chapter.provenance]


def _models(chapters: Sequence[Chapter]) -> dict[str, dict[str, Any]]:
    return {model["model"]: model for page in _pages(chapters) for model in page["models"]}


def made_of(chapters: Sequence[Chapter], project: Project) -> Made:
    """What the numbers of executed chapters were made with.

    Raises:
        UserError: they were executed on more than one corpus.
    """
    pages, models = _pages(chapters), _models(chapters)
    last = max(pages, key=lambda page: str(page["executed"]))
    corpora = {page["corpus"] for page in pages if "corpus" in page}
    if len(corpora) != 1:
        raise UserError(f"the notebooks were executed on several corpora ({', '.join(sorted(corpora))}), not on one")
    corpus = corpora.pop()
    texts = {
        label: manifest.model().texts.get(corpus, "")
        for label in models
        if (manifest := Manifest(project.results, label))
    }
    return Made(
        date=last["executed"],
        revision=last["revision"],
        package=last["package"],
        libraries=last["libraries"],
        devices=tuple(sorted({device for model in models.values() for device in model["devices"]})),
        corpus=corpus,
        texts={parse_name(label).name: digest for label, digest in texts.items()},
        studies={study: code for page in pages for study, code in page.get("studies", {}).items()},
    )


def _runs(scorecard: Scorecard, project: Project) -> tuple[Run, ...]:
    runs = []
    for label, model in _models(scorecard.chapters).items():
        name, manifest = parse_name(label), Manifest(project.results, label)
        entries = manifest.checkpoints() if manifest else {}
        last = max(model["steps"])
        runs.append(
            Run(
                model=name.name,
                seed=name.seed,
                control=model["control"],
                steps=last,
                validation_loss=entries[last].validation_loss if last in entries else None,
                unigram=manifest.model().unigram if manifest else None,
                identity=manifest.model().training.get("identity") if manifest else None,
            )
        )
    return tuple(sorted(runs, key=lambda run: (run.model, run.seed)))


def write_spread(spread: Spread, target: Path) -> None:
    """Write the file, whole or not at all.

    Raises:
        UserError: the folder cannot be written to.
    """
    if target.is_dir():
        raise UserError(f"{target} is a folder; name a file")
    with replacing(target) as temporary:
        temporary.write_text(spread_json(spread), encoding="utf-8")
