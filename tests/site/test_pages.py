"""What a reader meets on the rendered pages, of the miniature book or of the one that ANISOTROPY_SITE names."""

import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from observe import CHROMIUM, NO_CHROMIUM, PHONE, Visit, listen, pages
from playwright.sync_api import Browser
from questions import MOTION

pytestmark = pytest.mark.site
if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip(NO_CHROMIUM, allow_module_level=True)

OWN_WEIGHT, SHARED_WEIGHT = 1.5e6, 2.5e6
HASH = re.compile(r"[0-9a-f]{16,}", re.IGNORECASE)


class Document(HTMLParser):
    """The targets and the references of one HTML file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.references: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.references.append(value)


@pytest.fixture(scope="session")
def documents(rendered_site: Path) -> dict[Path, Document]:
    # The theme leaves templates in _static.
    return {path: Document(path) for path in rendered_site.rglob("*.html") if "_static" not in path.parts}


def expect_none(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def expect_on_no_page(visits: list[Visit], problems: Callable[[Visit], list[str]]) -> None:
    expect_none([f"{visit}: {problem}" for visit in visits for problem in problems(visit)])


def test_there_is_a_book(rendered_site: Path):
    assert pages(rendered_site)
    target = re.search(r'url=([^"]+)"', (rendered_site / "index.html").read_text(encoding="utf-8"))
    assert target is not None
    assert (rendered_site / target[1]).is_file()


def test_links_and_anchors_lead_somewhere(documents: dict[Path, Document], rendered_site: Path):
    lost = []
    for path, document in documents.items():
        for reference in document.references:
            parts = urlsplit(reference)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if target.is_dir():
                target /= "index.html"
            page = documents.get(rendered_site / target.relative_to(rendered_site.resolve()))
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and page is not None and anchor not in page.ids):
                lost.append(f"{path.relative_to(rendered_site)} → {reference}")
    expect_none(lost)


def test_nothing_leaves_the_site(visits: list[Visit]):
    expect_on_no_page(visits, lambda visit: visit.foreign)


def test_no_script_error_and_nothing_missing(visits: list[Visit]):
    expect_on_no_page(visits, lambda visit: visit.console + visit.failed)


def test_maths_is_rendered(visits: list[Visit]):
    assert any(visit.facts["formulas"] for visit in visits)
    expect_on_no_page(visits, lambda visit: visit.facts["unrendered"] + visit.facts["errors"] + visit.facts["raw"])


def test_pictures_say_what_they_show(visits: list[Visit]):
    def silent(visit: Visit) -> list[str]:
        return [
            f"{image['source']}: {image['alt']!r}"
            for image in visit.facts["images"]
            if len(image["alt"].split()) < 3 or HASH.search(image["alt"]) or not image["loaded"]
        ]

    expect_on_no_page(visits, silent)


def test_warnings_of_libraries_stay_off_the_pages(visits: list[Visit]):
    expect_on_no_page(visits, lambda visit: visit.facts["stderr"])


def test_accessible_in_both_themes(read_over_http: list[Visit]):
    expect_on_no_page(read_over_http, lambda visit: visit.violations)


def test_a_phone_never_scrolls_sideways(read_over_http: list[Visit]):
    expect_on_no_page(read_over_http, lambda visit: visit.narrow["wide"])
    expect_on_no_page(read_over_http, lambda visit: ["scrolls"] if visit.narrow["page"] > PHONE["width"] else [])


def test_wide_tables_scroll_inside_themselves_and_by_keyboard(read_over_http: list[Visit]):
    expect_on_no_page(read_over_http, lambda visit: visit.narrow["cut"] + visit.narrow["unreachable"])


@pytest.mark.parametrize("flaw", ["useless", "pale", "dark", "lost", "folded"])
def test_prints_are_readable(read_over_http: list[Visit], flaw: str):
    chapters = [visit for visit in read_over_http if visit.page != "search.html"]
    expect_on_no_page(chapters, lambda visit: visit.paper[flaw])


def test_pages_end_with_where_their_numbers_come_from(visits: list[Visit], rendered_site: Path):
    def silent(visit: Visit) -> list[str]:
        if not (rendered_site / "_sources" / visit.page).with_suffix(".ipynb").is_file():
            return []
        ending, after = visit.facts["ending"], visit.facts["after"]
        if not ending.startswith("Where these numbers come from"):
            return [f"its last output is {ending[:60]!r}"]
        return [f"{after[:60]!r} follows"] if after else []

    expect_on_no_page(visits, silent)


def test_pages_are_light(rendered_site: Path, read_over_http: list[Visit], address: str):
    def size(name: str) -> int:
        file = rendered_site / unquote(urlsplit(name).path).lstrip("/")
        return file.stat().st_size if file.is_file() else 0  # missing files are another test's business

    heavy = []
    for visit in read_over_http:
        resources = {name for name in visit.facts["resources"] if name.startswith(address)}
        shared = sum(size(name) for name in resources if "/_static/" in name)
        own = size(visit.page) + sum(size(name) for name in resources if "/_static/" not in name)
        if own > OWN_WEIGHT or shared > SHARED_WEIGHT:
            heavy.append(f"{visit}: {own / 1e6:.1f} MB of its own, {shared / 1e6:.1f} MB shared")
    expect_none(heavy)


def test_both_notebooks_can_be_downloaded(documents: dict[Path, Document], rendered_site: Path):
    notebooks = (rendered_site / "_sources").rglob("*.ipynb")
    executed = [path for path in notebooks if not path.name.endswith(".clean.ipynb")]
    assert executed
    for path in executed:
        clean = path.with_name(f"{path.stem}.clean.ipynb")
        page = rendered_site / path.relative_to(rendered_site / "_sources").with_suffix(".html")
        linked = {Path(reference).name for reference in documents[page].references}
        assert {path.name, clean.name} <= linked
        assert any(cell.get("outputs") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
        assert not any(cell.get("outputs") for cell in json.loads(clean.read_text(encoding="utf-8"))["cells"])


@pytest.mark.parametrize("kind", ["source", "clean-notebook"])
def test_a_click_downloads_the_notebook(kind: str, browser: Browser, rendered_site: Path, address: str, tmp_path: Path):
    name = next(name for name in pages(rendered_site) if name.startswith("notebooks/"))
    page = browser.new_page()
    page.goto(address + name)
    page.get_by_label("Download this page").click()
    with page.expect_download() as started:
        page.locator(f".btn-download-{kind}-button").click()
    suffix = ".clean.ipynb" if kind == "clean-notebook" else ".ipynb"
    assert started.value.suggested_filename == Path(name).with_suffix(suffix).name
    started.value.save_as(tmp_path / "downloaded.ipynb")
    page.close()
    notebook = nbformat.read(tmp_path / "downloaded.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert any(cell.get("outputs") for cell in notebook.cells) == (kind == "source")


@pytest.mark.parametrize("served", ["http", "file"])
@pytest.mark.parametrize("word", [None, "Semi-NMF"], ids=["a word of a title", "a word with a hyphen"])
def test_search_finds_the_page(word: str | None, served: str, browser: Browser, rendered_site: Path, address: str):
    base = address if served == "http" else f"{rendered_site.as_uri()}/"
    visit, page = Visit("search.html", served), browser.new_page()
    listen(page, base, visit)
    if word is None:
        wanted = pages(rendered_site)[-1]
        page.goto(base + wanted)
        word = max(re.findall(r"[A-Za-z]+", page.locator("h1").first.inner_text()), key=len)
    else:
        wanted = next(name for name in pages(rendered_site) if _title(rendered_site / name).startswith(word))
    page.goto(f"{base}search.html?q={word}")
    page.wait_for_selector(f"#search-results li a[href*='{Path(wanted).name}']")
    page.close()
    expect_none(visit.console + visit.foreign + visit.failed)


def _title(path: Path) -> str:
    found = re.search(r"<title>\s*([^<]*)", path.read_text(encoding="utf-8"))
    return found[1] if found else ""


def test_paper_and_motion(browser: Browser, rendered_site: Path, address: str):
    page = browser.new_page(color_scheme="dark", reduced_motion="reduce")
    page.goto(address + pages(rendered_site)[0])
    theme = "document.documentElement.dataset.theme"
    page.wait_for_function(f"{theme} === 'dark'")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(theme) == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(theme) == "dark"
    moving = page.evaluate(MOTION)
    page.close()
    expect_none(moving)
