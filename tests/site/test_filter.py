"""A table that a reader can filter: by keyboard, and without scripts a plain table."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from observe import CHROMIUM
from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.site, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
SCRIPT = Path(__file__).parents[2] / "book" / "_static" / "filter.js"
ROWS = [("C1", "a", "holds"), ("C1", "b", "fails"), ("C2", "a", "fails"), ("C2", "a", "holds")]
TABLE = (
    "<!DOCTYPE html><html lang='en'><title>t</title><main><div class='output'><table data-filter='0 2'><thead><tr>"
    "<th>claim</th><th>model</th><th>verdict</th></tr></thead><tbody>"
    + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in ROWS)
    + "</tbody></table></div></main></html>"
)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_content(TABLE)
    page.add_script_tag(path=SCRIPT)
    yield page
    page.close()


def shown(page: Page) -> list[str]:
    return page.locator("tbody tr:visible").all_inner_texts()


def test_menus_choose_rows_together(page: Page) -> None:
    assert page.get_by_label("claim").locator("option").all_inner_texts() == ["all", "C1", "C2"]
    page.get_by_label("verdict").select_option("fails")
    assert [text.split() for text in shown(page)] == [list(ROWS[1]), list(ROWS[2])]
    page.get_by_label("claim").select_option("C2")
    assert [text.split() for text in shown(page)] == [list(ROWS[2])]
    assert page.locator("form output").inner_text() == "1 of 4 rows"
    page.get_by_label("claim").select_option("")
    page.get_by_label("verdict").select_option("")
    assert len(shown(page)) == len(ROWS)


def test_the_keyboard_is_enough(page: Page) -> None:
    page.keyboard.press("Tab")
    page.keyboard.type("C2")
    assert {text.split()[0] for text in shown(page)} == {"C2"}


def test_without_scripts_the_table_is_whole(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(TABLE)
    assert len(shown(page)) == len(ROWS)
    assert page.locator("form").count() == 0
    context.close()
