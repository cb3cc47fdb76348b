"""Verdicts as data: what a page shows as a table, its notebook also carries for programs.

:func:`anisotropy.report.scorecard.show_verdicts` puts a :class:`Verdicts` under the media type :data:`VERDICTS` into
the output that holds the table, and the last cell of a page its :data:`PROVENANCE`. Renderers pick the HTML or Markdown
beside them. :func:`read_chapter` reads both back from an executed notebook.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from anisotropy.errors import UserError
from anisotropy.models.catalogue import catalogue
from anisotropy.report.scorecard import Outcome, Verdict

#: Media type of the verdicts of one table.
VERDICTS = "application/vnd.anisotropy.verdicts+json"
#: Media type of what a page says about where its numbers come from.
PROVENANCE = "application/vnd.anisotropy.provenance+json"
VERSION = 1


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OneSeed(_Data):
    """What a rule says of one training seed alone; fields as in :class:`VerdictData`."""

    outcome: Outcome
    reason: str
    estimate: float | None
    interval: tuple[float, float] | None
    controls: dict[str, float]


class VerdictData(_Data):
    """One verdict; see :class:`anisotropy.report.scorecard.Verdict` for what the numbers are.

    Attributes:
        model: label without the training seed; a printed model's name where ``of_printed``.
        interval: lowest and highest end.
        training_seeds: which seeds, where the model is trained here; ``None`` elsewhere, where it is not known.
        printed: the paper's value.
        of_printed: the rule was run on printed numbers.
        by_seed: by training seed, as text since JSON has no other keys.
    """

    claim: str
    model: str
    title: str
    reading: str
    outcome: Outcome
    reason: str
    quantity: str
    digits: int
    estimate: float | None
    interval: tuple[float, float] | None
    controls: dict[str, float]
    seeds: int
    training_seeds: tuple[int, ...] | None
    printed: float | None
    near_paper: bool | None
    of_printed: bool
    by_seed: dict[str, OneSeed]


class Verdicts(_Data):
    """The verdicts of one table of a page.

    Attributes:
        caption: of the table.
        interval: what the estimates are and what their interval is over.
        counted: whether they are the claim's verdicts, or shown beside them.
    """

    version: int = VERSION
    caption: str
    interval: str
    counted: bool
    verdicts: tuple[VerdictData, ...]


class Found(_Data):
    """A verdict and where it stands: the chapter, the section's anchor in its page, and its table."""

    chapter: str
    anchor: str
    caption: str
    interval_over: str
    counted: bool
    verdict: VerdictData


class Chapter(_Data):
    """What an executed notebook says of itself: verdicts in the order of the page, and where its numbers come from."""

    name: str
    title: str
    verdicts: tuple[Found, ...]
    provenance: dict[str, Any] | None


def bundle(
    verdicts: Sequence[Verdict], titles: Mapping[str, str], *, caption: str, interval: str, counted: bool = True
) -> dict[str, Any]:
    """Verdicts as plain JSON data, the content of :data:`VERDICTS`; arguments as ``show_verdicts`` takes them."""
    data = Verdicts(
        caption=caption,
        interval=interval,
        counted=counted,
        verdicts=tuple(verdict_data(verdict, titles[verdict.model]) for verdict in verdicts),
    )
    return data.model_dump(mode="json")


def verdict_data(verdict: Verdict, title: str) -> VerdictData:
    """One verdict with its model's title; what is not finite is missing."""
    known = verdict.model in catalogue().miniatures
    return VerdictData(
        claim=verdict.claim,
        model=verdict.model,
        title=title,
        reading=verdict.reading,
        quantity=verdict.quantity,
        digits=verdict.digits,
        seeds=verdict.seeds,
        training_seeds=tuple(seed for seed, _ in verdict.by_seed) if known else None,
        printed=_number(verdict.printed),
        near_paper=verdict.near_paper,
        of_printed=verdict.of_printed,
        by_seed={str(seed): OneSeed(**_judgement(one)) for seed, one in verdict.by_seed} if known else {},
        **_judgement(verdict),
    )


def _judgement(verdict: Verdict) -> dict[str, Any]:
    low, high = _number(verdict.low), _number(verdict.high)
    return {
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "estimate": _number(verdict.estimate),
        "interval": None if low is None or high is None else (low, high),
        "controls": {name: value for name, value in verdict.controls if _number(value) is not None},
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def read_chapter(path: Path) -> Chapter:
    """The verdicts and the provenance that an executed notebook carries.

    Raises:
        UserError: no such file, not a notebook, or verdicts that another version of this project wrote.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except OSError:
        raise UserError(f"no such notebook: {path}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a notebook ({type(error).__name__})") from None
    found: list[Found] = []
    provenance, anchor = None, ""
    for cell in cells:
        anchor = _last_anchor(cell) or anchor
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            provenance = data.get(PROVENANCE, provenance)
            if VERDICTS in data:
                found += _placed(data[VERDICTS], path, anchor)
    return Chapter(name=path.stem, title=_title(cells) or path.stem, verdicts=tuple(found), provenance=provenance)


def _placed(content: Any, path: Path, anchor: str) -> list[Found]:
    try:
        table = Verdicts.model_validate(content)
    except ValidationError:
        table = None
    if table is None or table.version != VERSION:
        raise UserError(f"{path} was executed with another version of this project; execute it again")
    place = {"chapter": path.stem, "anchor": anchor, "caption": table.caption, "interval_over": table.interval}
    return [Found(**place, counted=table.counted, verdict=verdict) for verdict in table.verdicts]


def _title(cells: Sequence[Mapping[str, Any]]) -> str | None:
    """The first heading of a notebook."""
    texts = (_source(cell) for cell in cells if cell.get("cell_type") == "markdown")
    return next((found[1] for text in texts if (found := re.search(r"^# +(.+?) *#*$", text, re.MULTILINE))), None)


def _source(cell: Mapping[str, Any]) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def _last_anchor(cell: Mapping[str, Any]) -> str | None:
    """Anchor of the last heading in a Markdown cell, as Sphinx makes it."""
    if cell.get("cell_type") != "markdown":
        return None
    outside_code = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", _source(cell), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,6} +(.+?) *#*$", outside_code, flags=re.MULTILINE)
    return section_anchor(headings[-1]) if headings else None


def section_anchor(heading: str) -> str:
    """The id that docutils gives a section: lower case ASCII letters and digits, joined by hyphens."""
    ascii_only = unicodedata.normalize("NFKD", heading.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"^[-0-9]+|-+$", "", re.sub(r"[^a-z0-9]+", "-", ascii_only))
