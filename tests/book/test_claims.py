"""The page of claims says what the rules compute: thresholds, readings, controls and the paper's words."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

from anisotropy.report import rules
from anisotropy.report.rules import alignment, concept_tables, curvature, frequency, tangents, updates
from anisotropy.report.scorecard import Outcome
from anisotropy.studies.tangent_tables import CONTROLS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "claims.md").read_text(encoding="utf-8")
CLAIMS = tuple(f"C{number}" for number in range(1, 9))


def section(claim: str) -> str:
    found = re.search(
        rf"^\(claim-{claim.lower()}\)=\n## {claim}: (.*?)(?=^\(claim|^## The rules as code)", PAGE, re.M | re.S
    )
    assert found, f"no section on {claim}"
    return found[1]


def number(value: float) -> str:
    """As a page writes it; a typographic minus, no decimals that are zero."""
    return f"{value:g}".replace("-", "−")


# What each number is called in the code, and how the page writes it where it is not simply the number.
THRESHOLDS = {
    "C1": {
        number(frequency.C1_THRESHOLD): "C1_THRESHOLD",
        f"lvert\\rho + {-frequency.C1_PRINTED:g}\\rvert \\le {frequency.C1_NEAR:g}": "C1_PRINTED C1_NEAR",
        f"about {number(frequency.C1_PRINTED)} for decoders": "C1_PRINTED",
    },
    "C4": {
        f"at least {number(updates.C4_THRESHOLD)}": "C4_THRESHOLD",
        f"{updates.C4_NORMAL[0]:g} … {updates.C4_NORMAL[1]:g}": "C4_NORMAL",
    },
    "C5": {f"{' or '.join(alignment.METHOD_NAMES[one] for one in alignment.C5_BETTER)} against ICA": "C5_BETTER"},
    "C6": {f"at most {number(alignment.C6_THRESHOLD)}": "C6_THRESHOLD"},
    "C7": {
        f"is {curvature.C7_SLOPE:g} within {curvature.C7_WITHIN:g}": "C7_SLOPE C7_WITHIN",
        f"{curvature.C7_SLOPE:g} ± {curvature.C7_WITHIN:g}": "C7_SLOPE C7_WITHIN",
        f"within {curvature.C7_ERRORS:g} standard errors": "C7_ERRORS",
        ", ".join(f"`{name}` up to {top:g}" for name, top in curvature.C7_RANGES.items()): "C7_RANGES",
    },
    "C8": {f"at most {concept_tables.C8_THRESHOLD:g} of the first": "C8_THRESHOLD"},
}
READINGS = {
    "C1": [frequency.reading_name(*reading) for reading in frequency.READINGS],
    "C2": [f"{kind} gradient" for kind in ("activation", "weight")] + [*tangents._BASES.values(), "early", "late"],
    "C4": [updates.reading_name(matrix, stage) for matrix in updates.MATRICES for stage in ("early", "late")],
    "C5": list(alignment.METRIC_NAMES.values()),
    "C6": [*alignment.MATRIX_NAMES.values(), *alignment.METHOD_NAMES.values()],
    "C7": list(curvature.C7_RANGES),
    "C8": list(concept_tables.READING_NAMES.values()),
}
CONTROLS_OF = {
    "C1": [frequency._SHUFFLED, frequency._UNTRAINED],
    "C2": list(CONTROLS),
    "C3": list(tangents._C3_COMPARISONS.values()),
    "C4": [updates.SHUFFLED_LABELS, updates.UNTRAINED_BASIS, updates.RANDOM_BASIS],
    "C5": [alignment._UNTRAINED, alignment._SHUFFLED],
    "C6": [alignment._UNTRAINED],
    "C8": ["untrained"],
}
CHAPTERS = {
    "C1": "frequency-variance",
    "C2": "tangent-alignment",
    "C3": "tangent-alignment",
    "C4": "embedding-updates",
    "C5": "concept-alignment",
    "C6": "concept-alignment",
    "C7": "curvature-bias",
    "C8": "semi-nmf-concepts",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_has_everything_a_reader_needs(claim: str):
    text = section(claim)
    for heading in (
        "In the paper's words.",
        "In plain words.",
        "The rule.",
        "Readings.",
        "Controls.",
        "What would make it fail.",
        "Judged in",
    ):
        assert f"**{heading}**" in text
    assert f"{{doc}}`../notebooks/{CHAPTERS[claim]}`" in text
    assert f"[{claim}](#claim-{claim.lower()})" in PAGE


@pytest.mark.parametrize(("claim", "written"), [(claim, words) for claim, of in THRESHOLDS.items() for words in of])
def test_thresholds_are_those_of_the_rule(claim: str, written: str):
    assert written in section(claim)


def test_every_number_of_a_rule_is_on_the_page():
    named = {name for of_claim in THRESHOLDS.values() for names in of_claim.values() for name in names.split()}
    modules = [import_module(f"{rules.__name__}.{found.name}") for found in pkgutil.iter_modules(rules.__path__)]
    constants = {name for module in modules for name in vars(module) if re.fullmatch(r"C\d_[A-Z_]+", name)}
    assert constants - {"C8_LATE"} == named  # the stage is that of all claims, see below


def test_stages_are_those_of_the_course():
    from anisotropy.studies.course import stage_steps

    early, late = map(float, re.findall(r"s \\(?:le|ge) (0\.\d)", PAGE)[:2])
    steps = list(range(1001))
    assert stage_steps(steps, "early")[-1] == early * 1000
    assert stage_steps(steps, "late")[0] == late * 1000 == concept_tables.C8_LATE * 1000


@pytest.mark.parametrize("claim", READINGS)
def test_readings_are_those_of_the_rule(claim: str):
    text = section(claim)
    assert [name for name in READINGS[claim] if f"`{name}`" not in text] == []


@pytest.mark.parametrize("claim", CONTROLS_OF)
def test_controls_are_those_of_the_rule(claim: str):
    controls = re.search(r"\*\*Controls\.\*\* (.*)", section(claim))
    assert controls
    plain = controls[1].replace("`", "")
    assert [name for name in CONTROLS_OF[claim] if name not in plain] == []


def test_the_primary_reading_of_c2_is_named():
    gradient, basis, stage = tangents.PRIMARY
    assert f"{gradient} gradient, {tangents._BASES[basis]}, {stage}" in section("C2")


def test_every_outcome_is_explained():
    for outcome in Outcome:
        assert re.search(rf"^{outcome.value}\n: ", PAGE, re.MULTILINE), outcome


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_papers_words_are_those_its_chapter_quotes(claim: str):
    notebook = json.loads((ROOT / "notebooks" / f"{CHAPTERS[claim]}.ipynb").read_text(encoding="utf-8"))
    prose = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    words = re.search(r"\*\*In the paper's words\.\*\* (.*)", section(claim))
    assert words
    quotes = re.findall(r'"([^"]+)"', words[1])
    assert quotes or claim == "C8"
    assert [quote for quote in quotes if plain(quote) not in plain(prose)] == []


def plain(text: str) -> str:
    return re.sub(r"\{term\}`([^<`]*?)(?: <[^>]*>)?`", r"\1", text).replace("*", "")


def test_no_result_is_on_the_page():
    assert not re.search(r"\bmini-|SmolLM|Pythia\b", PAGE)
