"""The paper at a glance: its claims in a few words, its figures and tables, and the chapter that recomputes each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anisotropy.report.scorecard import Outcome
from anisotropy.report.verdict_data import Chapter, Found

# Claim C7 is an identity of geometry: it is judged on manifolds, not on models.
CLAIMS: Mapping[str, str] = {
    "C1": "frequent tokens are confined",
    "C2": "gradients concentrate in the tangent proxy",
    "C3": "the tangent proxy carries the gradient's anisotropy",
    "C4": "embedding updates of frequent tokens are the most tangent",
    "C5": "PCA and Semi-NMF gradient concepts align better than ICA's",
    "C6": "higher-ranked weight concepts align better",
    "C7": "concentration attenuates the curvature bias",
    "C8": "the last layer's effective rank collapses in decoders",
}


@dataclass(frozen=True)
class Exhibit:
    """A figure or table of the paper.

    Attributes:
        name: as the paper numbers it.
        shows: what is in it, in a few words.
        chapter: the notebook that recomputes it.
        claims: read off it.
    """

    name: str
    shows: str
    chapter: str
    claims: tuple[str, ...] = ()


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit("Figure 1", "distance of tokens to their centroid against frequency", "frequency-variance", ("C1",)),
    Exhibit("Figure 2", "bias of chords on curved surfaces, and its attenuation", "curvature-bias", ("C7",)),
    Exhibit("Proposition 2.3", "why training amplifies tangent directions", "tangent-amplification"),
    Exhibit("Table 1", "energy and anisotropy of gradients in the tangent proxy", "tangent-alignment", ("C2", "C3")),
    Exhibit("Figures 3 and 4, Table 3", "embedding updates by token frequency", "embedding-updates", ("C4",)),
    Exhibit("Table 2", "geometry of Semi-NMF concepts by layer and over training", "semi-nmf-concepts", ("C8",)),
    Exhibit("Figure 5", "Forest Cover Type, an example without language", "covertype"),
    Exhibit("Figure 6", "concepts of gradients against concepts of data", "concept-alignment", ("C5",)),
    Exhibit("Figure 7", "concepts of weights against concepts of data, by rank", "concept-alignment", ("C6",)),
)


def glance_table(chapters: Mapping[str, Chapter], measured: Sequence[Found]) -> str:
    """Each figure and table, its chapter, and what was found on each model, as a Markdown table with links.

    Args:
        chapters: executed ones, by name.
        measured: the claims' verdicts.
    """
    subjects = subjects_of(measured)
    lines = [
        "```{table}",
        ":class: glance",
        "",
        "| in the paper | chapter | claim | " + " | ".join(subjects) + " |",
        "|---" * (3 + len(subjects)) + "|",
    ]
    for exhibit in EXHIBITS:
        chapter = chapters.get(exhibit.chapter)
        link = f"[{chapter.title}]({exhibit.chapter}.ipynb)" if chapter else "not in this book"
        for claim in exhibit.claims or ("",):
            cells = [verdict_text([found for found in of(measured, claim) if subject(found) == s]) for s in subjects]
            head = f"**{exhibit.name}**: {exhibit.shows}"
            lines.append(f"| {' | '.join([head, link, claim or '–', *cells])} |")
    return "\n".join([*lines, "```"])


def claim_lines(chapters: Mapping[str, Chapter], measured: Sequence[Found]) -> list[str]:
    """One bullet a claim: what it says, and how many of its verdicts hold, fail and stay open, with a link."""
    lines = []
    for claim, words in CLAIMS.items():
        own = of(measured, claim)
        if not own:
            lines.append(f"- **{claim}**, {words}: not judged in this book.")
            continue
        where = own[0].chapter
        title = chapters[where].title if where in chapters else where
        parts = "; ".join(
            f"{name}: {verdict_text([found for found in own if subject(found) == name])}" for name in subjects_of(own)
        )
        lines.append(f"- **{claim}**, {words}. {parts} ([{title}]({where}.ipynb)).")
    return lines


def headline(measured: Sequence[Found]) -> str:
    """All verdicts on models in one sentence; those on surfaces stand apart."""
    on_models = [found for found in measured if found.verdict.claim != "C7"]
    counts = Counter(found.verdict.outcome for found in on_models)
    models = list(dict.fromkeys(found.verdict.title for found in on_models))
    parts = ", ".join(f"{counts[outcome]} {_PLURAL[outcome]}" for outcome in Outcome if counts[outcome])
    claims = len({found.verdict.claim for found in on_models})
    return (
        f"**{len(on_models)} verdicts on {claims} claims and {len(models)} models ({', '.join(models)}): {parts}.** "
        "A claim has several readings, since the paper's own is not always known to us, and each is judged by itself."
    )


def of(found: Iterable[Found], claim: str) -> list[Found]:
    """Those on one claim."""
    return [one for one in found if one.verdict.claim == claim]


def subject(found: Found) -> str:
    """Whom a verdict is about: a model's title, or all surfaces together."""
    return "surfaces" if found.verdict.claim == "C7" else found.verdict.title


def subjects_of(found: Iterable[Found]) -> list[str]:
    """Models in order of first appearance, surfaces last."""
    names = list(dict.fromkeys(map(subject, found)))
    return sorted(names, key=lambda name: name == "surfaces")


def verdict_text(found: Sequence[Found]) -> str:
    """What the readings of one claim say on one model: ``fails``, or ``3 of 12 hold, 9 fail``; ``–`` without any."""
    counts = Counter(one.verdict.outcome for one in found)
    if not counts:
        return "–"
    if len(found) == 1:
        return found[0].verdict.outcome.value
    if len(counts) == 1:
        (outcome,) = counts
        return f"{_PLURAL[outcome]}, all {len(found)}"
    first, *rest = [f"{counts[outcome]} {_PLURAL[outcome]}" for outcome in Outcome if counts[outcome]]
    return f"{', '.join([first, *rest])} of {len(found)}"


_PLURAL = {
    Outcome.HOLDS: "hold",
    Outcome.FAILS: "fail",
    Outcome.INCONCLUSIVE: "open",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.NOT_RUN: "not run",
}
