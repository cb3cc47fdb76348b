"""Data that our notebooks carry for programs, such as verdicts, is no part of a page.

It stands in an output beside what a reader sees, under a media type of this project; myst-nb would warn of it, and
warnings fail the build. See ``anisotropy.report.verdict_data``.
"""

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

_OWN = "application/vnd.anisotropy."
_render_unhandled = NbElementRenderer.render_unhandled


def render_unhandled(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
    return [] if data.mime_type.startswith(_OWN) else _render_unhandled(self, data)


def setup(app: Sphinx) -> dict[str, bool]:
    NbElementRenderer.render_unhandled = render_unhandled
    return {"parallel_read_safe": True, "parallel_write_safe": True}
