"""The checks of the pages can fail: small pages, each with one flaw, and what is found on them."""

import os
from collections.abc import Iterator

import pytest
from observe import CHROMIUM, NO_CHROMIUM, on_a_phone, on_paper
from playwright.sync_api import Browser, Page
from questions import FACTS, MOTION

pytestmark = pytest.mark.site
if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip(NO_CHROMIUM, allow_module_level=True)

WIDE_TABLE = "<table><tr><td style='min-width: 900px'>numbers</td></tr></table>"


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


def fill(page: Page, article: str, style: str = "") -> Page:
    page.set_content(
        f"<html data-theme='light'><head><style>{style}</style></head>"
        f"<body><main><article class='bd-article'>{article}</article></main></body></html>"
    )
    return page


@pytest.mark.parametrize(
    ("article", "flaw"),
    [
        (WIDE_TABLE, "wide"),
        (f"<div style='overflow: hidden'>{WIDE_TABLE}</div>", "cut"),
        (f"<div style='overflow-x: auto'>{WIDE_TABLE}</div>", "unreachable"),
        (f"<div style='overflow-x: auto' tabindex='0'>{WIDE_TABLE}</div>", None),
    ],
    ids=["sticks out", "cut", "only by mouse", "as it should be"],
)
def test_a_wide_table_on_a_phone(blank: Page, article: str, flaw: str | None):
    found = on_a_phone(fill(blank, article))
    assert flaw is None or "numbers" in found[flaw][0]
    assert not found["cut"] or flaw == "cut"
    assert not found["unreachable"] or flaw == "unreachable"
    assert (found["page"] > 360) == (flaw == "wide")


@pytest.mark.parametrize(
    ("article", "flaw"),
    [
        ("<button>Copy</button>", "useless"),
        ("<p style='color: #bbb'>grey</p>", "pale"),
        ("<pre style='background: rgb(20, 24, 30); color: black'>code</pre>", "dark"),
        (WIDE_TABLE, "lost"),
        (f"<div style='overflow-x: auto'>{WIDE_TABLE}</div>", "lost"),
        ("<div class='admonition toggle-hidden'>a solution</div>", "folded"),
        ("<details><summary></summary>nameless</details>", "folded"),
        ("<details><summary>The code of this figure</summary>…</details><p>text</p>", None),
    ],
)
def test_a_print(blank: Page, article: str, flaw: str | None):
    found = on_paper(fill(blank, article))
    assert {name for name, nodes in found.items() if nodes} == ({flaw} if flaw else set())


@pytest.mark.parametrize(("style", "moves"), [("p { transition: color 1s }", True), ("p { color: black }", False)])
def test_motion(blank: Page, style: str, moves: bool):
    assert bool(fill(blank, "<p>text</p>", style).evaluate(MOTION)) == moves


def test_the_end_of_a_page(blank: Page):
    origin = "<div class='cell_output'>Where these numbers come from: a run</div>"
    assert fill(blank, f"<p>text</p>{origin}").evaluate(FACTS)["after"] == ""
    assert fill(blank, f"{origin}<p>more text</p>").evaluate(FACTS)["after"] == "more text"
    assert fill(blank, "<div class='cell_output'>0.5</div>").evaluate(FACTS)["ending"] == "0.5"
