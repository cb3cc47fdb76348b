import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from minibook import write_mini_book
from observe import CHROMIUM, NO_CHROMIUM, Visit, http_server, pages, visit_all
from playwright.sync_api import Browser, sync_playwright

from anisotropy.runs.publish import publish
from anisotropy.runs.site import build_site

# Quiet: no updates, no crash reports, and no name but this machine's resolves.
OFFLINE = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@pytest.fixture(scope="session", params=["given"] if os.environ.get("ANISOTROPY_SITE") else ["mini", "smoke"])
def rendered_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sites under test: the folder that ANISOTROPY_SITE names, or else a miniature book and the smoke book."""
    if request.param == "given":
        return Path(os.environ["ANISOTROPY_SITE"]).absolute()
    if request.param == "smoke":
        return request.getfixturevalue("smoke_project").site
    folder = tmp_path_factory.mktemp("mini")
    sources, executed = write_mini_book(folder)
    return build_site(sources, executed, folder / "build").parent


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail(NO_CHROMIUM)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=OFFLINE)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def address(rendered_site: Path) -> Iterator[str]:
    with http_server(rendered_site) as base:
        yield base


@pytest.fixture(scope="session")
def read_over_http(browser: Browser, rendered_site: Path, address: str) -> list[Visit]:
    return visit_all(browser, [*pages(rendered_site), "search.html"], address, "http", thorough=True)


@pytest.fixture(scope="session")
def read_from_disk(browser: Browser, rendered_site: Path) -> list[Visit]:
    names = [*pages(rendered_site), "search.html"]
    return visit_all(browser, names, f"{rendered_site.as_uri()}/", "file", thorough=False)


@pytest.fixture(scope="session")
def read_below_a_path(browser: Browser, rendered_site: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Visit]:
    """A few pages of the published copy, on a server on which the book is not at the top."""
    top = tmp_path_factory.mktemp("server")
    publish(rendered_site, top / "some" / "where")
    found = pages(rendered_site)
    with http_server(top) as base:
        names = [found[0], found[len(found) // 2], found[-1], "search.html"]
        return visit_all(browser, names, f"{base}some/where/", "below a path", thorough=False)


@pytest.fixture(scope="session")
def visits(read_over_http: list[Visit], read_from_disk: list[Visit], read_below_a_path: list[Visit]) -> list[Visit]:
    return read_over_http + read_from_disk + read_below_a_path
