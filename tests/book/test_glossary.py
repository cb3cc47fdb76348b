"""The glossary: sorted, every word of it is linked, and a page links a word where it first uses it."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "book" / "glossary.md").read_text(encoding="utf-8").replace(r"\*", "*")
ENTRY = re.compile(r"^(\w.*)\n  (.+)$", re.MULTILINE)
TERMS = dict(ENTRY.findall(GLOSSARY))
# Units that pages use in captions, where a link cannot stand.
ONLY_HERE = {"nats", "perplexity"}
MOST_LINKS = 12

ROLE = re.compile(r"\{term\}`([^`<]+?)(?:\s*<([^`>]+)>)?`")
# Where a word is no use of it that a reader would want explained: code, maths, headings, quotations, link texts.
ELSEWHERE = re.compile(
    r"""
      ^(?:`{3,}|:{3,})\{math\}.*?^(?:`{3,}|:{3,})\s*$
    | ^`{3}\w*\n.*?^`{3}\s*$
    | ^\#+\ [^\n]*$ | ^`{3,}[^\n]*$ | ^:{3,}[^\n]*$ | ^:\w[\w-]*:[^\n]*$ | ^\([^\n]*\)=$
    | \$\$.*?\$\$ | \$[^$\n]+\$
    | \{[\w:]+\}`[^`]*` | `[^`\n]*`
    | \[[^\]\n]*\]\([^)\n]*\)
    | "[^"\n]*"
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def prose(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text.replace(r"\*", "*")
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(source) for source in cells).replace(r"\*", "*")


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "\0", match[0])


PAGES = [
    path
    for path in (*sorted((ROOT / "notebooks").glob("*.ipynb")), *sorted((ROOT / "book").glob("*.md")))
    if path.name != "glossary.md"
]
LINKED = [path for path in PAGES if ROLE.search(prose(path))]


def targets(text: str) -> list[str]:
    return [target or shown for shown, target in ROLE.findall(text)]


def test_terms_are_sorted_and_defined_once():
    names = [name for name, _ in ENTRY.findall(GLOSSARY)]
    assert len(names) == len(set(names)) > 50
    for first, second in pairwise(names):
        assert first.casefold() < second.casefold(), f"{first} stands before {second}"


@pytest.mark.parametrize("term", TERMS)
def test_a_definition_is_short_and_says_where_the_book_uses_it(term: str):
    definition = TERMS[term]
    if not re.search(r"\{(?:doc|term)\}`", definition):
        raise AssertionError(f"{term} leads nowhere")
    without_pointer = re.sub(r" ?(?:See|Compare) \{\w+\}`[^`]*`\.", "", definition)
    sentences = re.findall(r"[.?!](?:\s|$)", re.sub(r"\$[^$]*\$", "x", without_pointer))
    assert 1 <= len(sentences) <= 4, term


@pytest.mark.parametrize("path", [*LINKED, ROOT / "book" / "glossary.md"], ids=lambda path: path.name)
def test_every_linked_word_is_in_the_glossary(path: Path):
    assert [target for target in targets(prose(path)) if target not in TERMS] == []


def test_every_word_is_linked_from_a_page():
    linked = {target for path in LINKED for target in targets(prose(path))}
    assert sorted(set(TERMS) - linked - ONLY_HERE) == []
    assert set(TERMS) >= ONLY_HERE


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.name)
def test_the_first_use_on_a_page_is_the_linked_one(path: Path):
    text = prose(path)
    late = []
    for link in ROLE.finditer(text):
        words = {link[1], link[2] or link[1]}
        plain = ELSEWHERE.sub(blank, text[: link.start()])
        late += [word for word in words if re.search(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", plain, re.IGNORECASE)]
    assert late == []


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.name)
def test_a_page_links_a_word_once_and_not_too_many(path: Path):
    found = targets(ELSEWHERE.sub(lambda match: match[0] if ROLE.fullmatch(match[0]) else "", prose(path)))
    assert len(found) == len(set(found)) <= MOST_LINKS


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.name)
def test_headings_and_maths_hold_no_links(path: Path):
    text = prose(path)
    assert not re.search(r"^#+ .*\{term\}", text, re.MULTILINE)
    assert not re.search(r"\$[^$\n]*\{term\}[^$\n]*\$(?!\d)", re.sub(r"\$[^$\n]+\$", "", text))


def test_every_chapter_links_words():
    from anisotropy.runs.experiments import load_experiments

    chapters = [name for name, chapter in load_experiments(ROOT).chapters.items() if not chapter.summary]
    assert sorted(set(chapters) - {path.stem for path in LINKED}) == []
