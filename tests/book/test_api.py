"""The reference of the package: its worked example runs, and its pages show what they promise."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from anisotropy.report import rules

BOOK = Path(__file__).parents[2] / "book"
PAGES = {
    path: path.read_text(encoding="utf-8") for path in (BOOK / "measures.md", *sorted((BOOK / "api").glob("*.md")))
}
SHOWN = sorted({name for text in PAGES.values() for name in re.findall(r"automodule:: (\S+)", text)})


def test_the_worked_example_runs_as_it_stands():
    page = (BOOK / "api.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    example = doctest.DocTestParser().get_doctest(code, {}, "book/api.md", "book/api.md", 0)
    assert len(example.examples) > 15
    report: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(example, out=report.append).failed == 0, "".join(report)


def test_every_study_and_every_rule_is_shown():
    from anisotropy.runs.measuring import STUDIES

    assert {f"anisotropy.studies.{name}" for name in STUDIES} <= set(SHOWN)
    assert {f"{rules.__name__}.{found.name}" for found in pkgutil.iter_modules(rules.__path__)} <= set(SHOWN)


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name == "api"], ids=lambda path: path.stem)
def test_every_section_says_when_to_use_it(path: Path):
    sections = re.findall(r"^## .+\n\n(.+)\n\n```\{eval-rst\}", PAGES[path], re.MULTILINE)
    assert len(sections) == PAGES[path].count("\n## ") > 3
    assert all(sentence.startswith("Use ") for sentence in sections), sections


def documented(module: ModuleType) -> list[tuple[str, str]]:
    """Names and docstrings of what a module defines for others."""
    found = [("", module.__doc__ or "")]
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        found.append((name, inspect.getdoc(value) or ""))
        if inspect.isclass(value):
            members = {name: getattr(one, "fget", getattr(one, "__func__", one)) for name, one in vars(value).items()}
            found += [
                (f"{value.__name__}.{name}", inspect.getdoc(one) or "")
                for name, one in members.items()
                if not name.startswith("_") and inspect.isfunction(one)
            ]
    return found


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_returned_is_not_read_as_a_type(name: str):
    """Sphinx takes what stands before a colon in the first line of "Returns:" for a type and sets it apart."""
    from sphinx.ext.napoleon import Config, GoogleDocstring

    style = Config(napoleon_use_rtype=True)
    pages = [(of, str(GoogleDocstring(text, style))) for of, text in documented(import_module(name))]
    assert [(of, found[1]) for of, page in pages if (found := re.search(r"^ *:rtype: (.*)$", page, re.MULTILINE))] == []
