"""Maths without the internet: MathJax copied into the site.

The package ``sphinx-mathjax-offline`` carries all of MathJax (24 MB). Its own extension copies everything, keeps stale
files and overrides ``mathjax_path`` too late; pages need only these three pieces (1.3 MB).
"""

import importlib.util
import shutil
from pathlib import Path

from sphinx.application import Sphinx

PIECES = ["tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2"]


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    source = Path(package.origin).parent / "static" / "mathjax"
    target = Path(app.outdir, "_static", "mathjax")
    for piece in PIECES:
        if (source / piece).is_dir():
            shutil.copytree(source / piece, target / piece, dirs_exist_ok=True)
        else:
            (target / piece).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / piece, target / piece)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
