"""Leave out what the theme ships and no page uses.

``fontawesome.js`` (1.5 MB) redraws as SVG the icons that the theme's icon font already shows. Pages name the script, so
an empty one takes its place. Source maps and translation sources serve the theme's developers only.
"""

import shutil
from pathlib import Path

from sphinx.application import Sphinx


def slim(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    (static / "scripts" / "fontawesome.js").write_text("/* Icons come from the icon font. */\n", encoding="utf-8")
    for source_map in static.rglob("*.map"):
        source_map.unlink()
    shutil.rmtree(static / "locales", ignore_errors=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", slim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
