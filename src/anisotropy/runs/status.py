"""Tables of the status page: when a book was executed, on what, with which software, and what measuring took."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from anisotropy.report.choices import read_choices
from anisotropy.report.seeds import read_spread
from anisotropy.report.verdict_data import Chapter
from anisotropy.runs.books import Book
from anisotropy.runs.sharing import current_code


def chapter_rows(chapters: Sequence[Chapter]) -> pd.DataFrame:
    """One row per executed chapter: date, seconds, device and models."""
    rows = []
    for chapter in chapters:
        page = chapter.provenance or {}
        models = page.get("models", [])
        titles = escape(", ".join(model["title"] for model in models)) or "none"
        devices = sorted({device for model in models for device in model["devices"]})
        rows.append(
            {
                "chapter": escape(chapter.title),
                "executed": str(page.get("executed", "unknown"))[:16].replace("T", " "),
                "executed in (s)": page.get("seconds", float("nan")),
                "measured on": ", ".join(devices) or "–",
                "models and controls": f'<div class="long">{titles}</div>',
                "revision": page.get("revision") or "unknown",
            }
        )
    return pd.DataFrame(rows)


def model_rows(chapters: Sequence[Chapter]) -> pd.DataFrame:
    """One row per model, controls included: checkpoints, training seed, device, and when it was measured last."""
    rows: dict[str, dict[str, Any]] = {}
    for chapter in chapters:
        for model in (chapter.provenance or {}).get("models", []):
            row = rows.setdefault(
                model["model"],
                {
                    "model": escape(model["title"]),
                    "kind": model["kind"],
                    "objective": "control" if model["control"] else model["objective"],
                    "checkpoints": 0,
                    "last step": "–",
                    "training seed": "–" if model["training_seed"] is None else f"{model['training_seed']}",
                    "measured on": "",
                    "measured": "",
                },
            )
            row["checkpoints"] = max(row["checkpoints"], len(model["steps"]))
            if len(model["steps"]) > 1:
                row["last step"] = f"{max(model['steps']):,}"
            row["measured on"] = ", ".join(sorted({*row["measured on"].split(", "), *model["devices"]} - {""}))
            row["measured"] = max(row["measured"], str(model["measured"])[:10])
    return pd.DataFrame(rows.values())


def measuring_rows(book: Book) -> pd.DataFrame:
    """Seconds behind what the chapters read, by study and model; controls are left out.

    Where several chapters read the same, the first stands for all.
    """
    rows: dict[tuple[str, str, tuple[str, ...]], dict[str, Any]] = {}
    for chapter, study in book.studies():
        if chapter not in book.chapters:
            continue
        for model, found in book.collect(chapter, study).items():
            seconds = [float(one.provenance["seconds"]) for one in found]
            made = tuple(str(one.provenance["date"]) for one in found)
            rows.setdefault(
                (study, model, made),
                {
                    "chapter": escape(book.chapters[chapter].title),
                    "study": study,
                    "model": escape(book.titles().get(model, model)),
                    "checkpoints": len(found),
                    "seconds": sum(seconds),
                    "seconds a checkpoint": sum(seconds) / len(seconds) if seconds else float("nan"),
                    "device": ", ".join(sorted({str(one.provenance["device"]) for one in found})),
                },
            )
    return pd.DataFrame(rows.values())


def software_rows(chapters: Sequence[Chapter]) -> pd.DataFrame:
    """Versions of this package and of the libraries, several where chapters were executed with several."""
    found: dict[str, list[str]] = {}
    for chapter in chapters:
        page = chapter.provenance or {}
        versions = {"anisotropy": page.get("package"), "revision": page.get("revision"), **page.get("libraries", {})}
        for name, version in versions.items():
            if version and version not in found.setdefault(name, []):
                found[name].append(str(version))
    return pd.DataFrame([{"what": name, "version": ", ".join(versions)} for name, versions in found.items()])


def committed_rows() -> pd.DataFrame:
    """The committed results: what they hold, when they were made, and whether their code is still this code."""
    rows = []
    spread, choices = read_spread(), read_choices()
    for name, command, kept, size in (
        ("verdicts over training seeds", "make seeds", spread, len(spread.verdicts) if spread else 0),
        ("verdicts under other choices", "make choices", choices, len(choices.changed) if choices else 0),
    ):
        if kept is None:
            rows.append({"what": name, "entries": 0, "made": "not yet", "revision": "–", "current": "–"})
            continue
        old = [study for study, code in kept.made.studies.items() if code != current_code(study)]
        rows.append(
            {
                "what": f"{name} ({command})",
                "entries": size,
                "made": kept.made.date[:10],
                "revision": kept.made.revision or "unknown",
                "current": f"no: {', '.join(old)} changed since" if old else "yes",
            }
        )
    return pd.DataFrame(rows)
