"""Sentences on a page that are computed."""

from __future__ import annotations

from IPython.display import Markdown, display


def say(*lines: str) -> None:
    """Put Markdown on the page, lines joined as they are."""
    display(Markdown("\n".join(lines)))
