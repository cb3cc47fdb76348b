"""Visit every page of a rendered book once a way of serving it, and write down what a reader would meet."""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page
from questions import FACTS, NARROW, PAPER, UNFOLD

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_CHROMIUM = "the checks of the rendered pages need Chromium: apt-get install chromium"
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 800}
A4 = {"width": 717, "height": 1046}  # 210 × 297 mm at 96 dots an inch, less the margins of 1 cm that Chromium leaves


@dataclass
class Visit:
    """One page, served one way."""

    page: str
    served: str
    console: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    narrow: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page} ({self.served})"


def pages(site: Path) -> list[str]:
    """The book's own pages: not the search, nor the page that only leads to the first one."""
    found = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    return [name for name in found if name not in ("index.html", "search.html") and not name.startswith("_")]


@contextmanager
def http_server(site: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine; yields its address."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def listen(page: Page, base: str, visit: Visit) -> None:
    """Note what goes wrong on a page, and every request that leaves `base`."""

    def request(url: str) -> None:
        if not url.startswith((base, "data:", "blob:")):
            visit.foreign.append(url)

    page.on("console", lambda message: visit.console.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.console.append(str(error)))
    page.on("request", lambda sent: request(sent.url))
    page.on("response", lambda got: visit.failed.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    page.on("requestfailed", lambda sent: visit.failed.append(sent.url))


def visit_all(browser: Browser, names: list[str], base: str, served: str, thorough: bool) -> list[Visit]:
    """Open pages below `base`; `thorough` adds accessibility in both themes, a phone's width, and paper."""
    context = browser.new_context(viewport=DESKTOP, color_scheme="light")
    try:
        return [_visit(context, base, name, served, thorough) for name in names]
    finally:
        context.close()


def _visit(context: BrowserContext, base: str, name: str, served: str, thorough: bool) -> Visit:
    visit, page = Visit(name, served), context.new_page()
    listen(page, base, visit)
    page.goto(base + name)
    visit.facts = page.evaluate(FACTS)
    if thorough:
        visit.paper = on_paper(page)
        page.evaluate(UNFOLD)
        visit.violations += _axe(page, "light")
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        visit.violations += _axe(page, "dark")
        visit.narrow = on_a_phone(page)
    page.close()
    return visit


def on_a_phone(page: Page) -> dict[str, Any]:
    """What sticks out of the page at a phone's width, what is cut, and what scrolls but not by keyboard."""
    page.set_viewport_size(PHONE)
    return page.evaluate(NARROW)


def on_paper(page: Page) -> dict[str, Any]:
    """What a print of the page, started from the dark theme, shows that it should not, and what it loses."""
    before = page.viewport_size
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(A4)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    found = page.evaluate(PAPER)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="light")
    page.wait_for_function("document.documentElement.dataset.theme !== 'dark'")
    if before:
        page.set_viewport_size(before)
    return found


def _axe(page: Page, theme: str) -> list[str]:
    # A colour in transition is neither the old one nor the new one.
    page.add_style_tag(content="* { transition: none !important; animation: none !important; }")
    # Preloading makes axe fetch style sheets by wrong addresses, which would look like errors of the page.
    response = Axe().run(page, options={"resultTypes": ["violations"], "preload": False}).response
    return [
        f"{theme}: {found['id']} ({found['impact']}): {node['html'][:120]}"
        for found in response["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"]
    ]
