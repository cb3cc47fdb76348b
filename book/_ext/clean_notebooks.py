"""Offer the notebook without outputs beside the executed one that the theme already offers.

The clean notebooks lie in ``_clean/``, at the path of their page; `anisotropy.runs.site` puts them there.
"""

import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

CLEAN = "_clean"
# The theme labels its buttons with bare file suffixes; two notebooks need words.
WORDS = {
    "download-source-button": "Notebook with its outputs",
    "download-pdf-button": "Print or save as PDF",
}


def offer(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    groups = [b for b in context.get("header_buttons", []) if b.get("label") == "download-buttons"]
    clean = Path(app.srcdir, CLEAN, f"{pagename}.ipynb")
    if not groups or not clean.is_file():
        return
    name = f"{pagename}.clean.ipynb"
    target = Path(app.outdir, "_sources", name)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(clean, target)
    buttons = groups[0]["buttons"]
    for button in buttons:
        button["text"] = WORDS.get(button["label"], button["text"])
    buttons.insert(
        1,
        {
            "type": "link",
            "url": f"{context['pathto']('_sources', 1)}/{name}",
            "text": "Notebook to run yourself",
            "icon": "fas fa-code",
            "tooltip": "Download the notebook without outputs",
            "label": "download-clean-notebook-button",
        },
    )


def setup(app: Sphinx) -> dict[str, bool]:
    # The theme makes its buttons at priority 501.
    app.connect("html-page-context", offer, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
