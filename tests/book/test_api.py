"""The reference of the package: its worked example runs, and its pages show every module that a reader may call."""

from __future__ import annotations

import doctest
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "book"
PAGES = (BOOK / "measures.md", *sorted((BOOK / "api").glob("*.md")))


def test_the_worked_example_runs_as_it_stands():
    page = (BOOK / "api.md").read_text(encoding="utf-8")
    example = doctest.DocTestParser().get_doctest(page, {}, "book/api.md", "book/api.md", 0)
    assert len(example.examples) > 10
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert result.failed == 0, "".join(report)
