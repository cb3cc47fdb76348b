"""Alt text that a notebook computes.

``display(fig, metadata={"image/png": {"alt": "…"}})`` stores the text beside the picture. Cell metadata
(``mystnb: {image: {alt: …}}``) is fixed before the notebook runs, so it can describe but never state a result.
A picture with neither is a warning, and warnings fail the build: Sphinx would use the file's hash as the text.
"""

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

_render_image = NbElementRenderer.render_image


def render_image(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
    rendered = _render_image(self, data)
    computed = data.output_metadata.get(data.mime_type, {}).get("alt", "").strip()
    for image in rendered:
        if computed:
            image["alt"] = computed
        elif not image.get("alt", "").strip():
            self.logger.warning(
                'a picture without alt text: display(fig, metadata={"image/png": {"alt": "…"}})',
                subtype="alt",
                line=data.line,
            )
    return rendered


def setup(app: Sphinx) -> dict[str, bool]:
    NbElementRenderer.render_image = render_image
    return {"parallel_read_safe": True, "parallel_write_safe": True}
