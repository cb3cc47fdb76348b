"""One style for every figure, and how a figure gets onto a page with its alternative text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import PIL.Image
import seaborn as sns
from IPython.display import Image, display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 5.2  # inches; with fonts of 11 points, text is 10 pixels high on a phone
_PAGE_PIXELS_PER_INCH = 110
_DOTS_PER_INCH = 2 * _PAGE_PIXELS_PER_INCH

# Okabe and Ito's colours: told apart by people with any common colour vision. One meaning each, on every page.
FREQUENT, RARE = "#0072B2", "#D55E00"
CONTROL, NULL, PAPER = "#6b6b6b", "#d9d9d9", "#009E73"
TANGENT, NORMAL = "#332288", "#CC79A7"  # dark and light, so that grey prints keep them apart
INK, DOTS = "#222222", "#8a8a8a"
PCA, SEMI_NMF, ICA = "#EE6677", "#4477AA", "#228833"  # Tol's bright scheme, in the hues that the paper gives them
# For models and other kinds without a meaning of their own: blue and orange stay with frequent and rare.
PALETTE = ("#CC79A7", "#E69F00", "#56B4E9", "#8B6BB1", "#8A6A00", "#444444")
MARKERS = ("o", "s", "D", "^", "v", "P")

_STYLE = {
    "figure.constrained_layout.use": True,
    "figure.dpi": _PAGE_PIXELS_PER_INCH,
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.6,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in this book's style; global settings are left as they were."""
    with sns.axes_style("ticks"), mpl.rc_context(_STYLE):
        yield


def stacked(panels: int, height: float = 2.1, share_x: bool = True) -> tuple[Figure, list[Axes]]:
    """Panels one above the other, so that a phone can show them; ``height`` is one panel's, in inches."""
    figure, axes = plt.subplots(panels, 1, figsize=(WIDTH, height * panels + 0.3), sharex=share_x, squeeze=False)
    return figure, list(axes[:, 0])


def model_colour(number: int) -> str:
    """Colour of the model in this place of a page's list."""
    return PALETTE[number % len(PALETTE)]


def model_marker(number: int) -> str:
    """Marker of the model in this place of a page's list, so that colour is never the only difference."""
    return MARKERS[number % len(MARKERS)]


def step_axis(axis: Axes, steps: Iterable[int]) -> None:
    """A log axis of training steps on which step 0 has a place too; ticks at powers of a base that fits."""
    axis.set_xscale("symlog", linthresh=1, linscale=0.4)
    last = max([1, *steps])
    base = next(base for base in (4, 10, 100, 1000) if base**6 > last)
    ticks = [0, *(base**power for power in range(6) if base**power <= last)]
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()


def show(figure: Figure, alt: str, colours: int | None = 256) -> None:
    """Put a figure on the page as a picture with alternative text, and close it.

    Args:
        figure: drawn, in :func:`style`.
        alt: what a person who cannot see it should know; computed where it states a result.
        colours: how many the picture may have; ``None`` for a picture whose colours are its data.

    Raises:
        ValueError: an empty alternative text.
    """
    if not alt.strip():
        raise ValueError("a figure needs an alternative text that says what it shows")
    drawn, small = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=_DOTS_PER_INCH)
    plt.close(figure)
    # 256 colours are enough for most figures and a third of the size.
    with PIL.Image.open(drawn) as full:
        picture = full.convert("RGB")
        if colours is not None:
            picture = picture.quantize(colours, dither=PIL.Image.Dither.NONE)
        picture.save(small, format="png", optimize=True)
    width = round(figure.get_size_inches()[0] * _PAGE_PIXELS_PER_INCH)
    image = Image(data=small.getvalue(), format="png", width=width, alt=alt)
    display(image, metadata={"image/png": {"alt": alt, "width": width}})
