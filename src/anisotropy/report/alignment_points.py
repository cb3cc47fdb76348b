"""The concept alignment figures of a model with one checkpoint: a point a method where others have curves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anisotropy.report.figures import CONTROL, INK, NULL, stacked
from anisotropy.report.rules.alignment import METHOD_NAMES
from anisotropy.report.tables import signed

Styles = Mapping[str, tuple[str, str]]
_BELOW = {"loc": "outside lower center", "ncols": 2}
_WIDTH = 0.3


def matched_points(curves: pd.DataFrame, metrics: Mapping[str, str], title: str, styles: Styles) -> tuple[Figure, str]:
    """Matched correlation per method, over the range of rotated concepts; see :func:`draw_alignment`."""
    figure, axes = stacked(len(metrics), 1.7)
    words = []
    gradients = curves[curves["source"] == "gradient"]
    for axis, (metric, name) in zip(axes, metrics.items(), strict=True):
        here = gradients[gradients["metric"] == metric].set_index("method")
        for place, method in enumerate(here.index):
            row, (colour, marker) = here.loc[method], styles[str(method)]
            around = np.array([place - _WIDTH, place + _WIDTH])
            axis.fill_between(around, row["baseline_low"], row["baseline_high"], color=NULL, linewidth=0)
            axis.plot(place, row["matched"], color=colour, marker=marker, markersize=7)
        _name_places(axis, list(here.index))
        axis.set(title=f"{title}: {name}", ylabel="|correlation|", ylim=(0, 1))
        words.append(f"{name}: {_listed(here['matched'])}; rotated concepts {here['baseline'].mean():.2f}")
    figure.legend(handles=[Patch(color=NULL, label="rotated concepts")], **_BELOW)
    return figure, f"Matched correlation of gradient with data concepts, {title}, one checkpoint. {'. '.join(words)}."


def excess_points(curves: pd.DataFrame, metrics: Mapping[str, str], title: str, styles: Styles) -> tuple[Figure, str]:
    """Excess per method with its interval, filled for true and open for shuffled labels; see :func:`draw_excess`."""
    figure, axes = stacked(len(metrics), 1.7)
    words = []
    for axis, (metric, name) in zip(axes, metrics.items(), strict=True):
        here = curves[curves["metric"] == metric]
        axis.axhline(0, color=CONTROL, linewidth=1)
        parts = []
        for source, shift, fill in (("gradient", -0.1, "full"), ("shuffled", 0.1, "none")):
            own = here[here["source"] == source].set_index("method")
            for place, method in enumerate(own.index):
                row, (colour, marker) = own.loc[method], styles[str(method)]
                x = place + shift
                axis.plot([x, x], [row["excess_low"], row["excess_high"]], color=colour, linewidth=1.6)
                axis.plot(x, row["excess"], color=colour, marker=marker, markersize=7, fillstyle=fill)
            parts.append(f"{source} {_listed(own['excess'])}")
        _name_places(axis, list(dict.fromkeys(here["method"])))
        axis.set(title=f"{title}: {name}", ylabel="excess")
        words.append(f"{name}: {'; '.join(parts)}")
    handles: list[Artist] = [
        Line2D([], [], color=INK, marker="o", linestyle="", label="true labels"),
        Line2D([], [], color=INK, marker="o", linestyle="", fillstyle="none", label="shuffled labels"),
    ]
    figure.legend(handles=handles, **_BELOW)
    return figure, (
        f"Matched correlation minus that of rotated concepts, {title}, one checkpoint, with 95 % intervals over groups "
        f"of text. {'. '.join(words)}."
    )


def trend_points(
    trends: pd.DataFrame, matrices: Mapping[str, str], thresholds: Mapping[str, float], title: str, styles: Styles
) -> tuple[Figure, str]:
    """Spearman's ρ of rank with correlation per method, a panel a matrix; see :func:`draw_trends`."""
    figure, axes = stacked(len(matrices), 1.6)
    words = []
    for axis, (matrix, name) in zip(axes, matrices.items(), strict=True):
        here = trends[trends["matrix"] == matrix].set_index("method")
        axis.axhline(0, color=CONTROL, linewidth=1)
        axis.axhline(thresholds[matrix], color=CONTROL, linewidth=1, linestyle=":")
        for place, method in enumerate(here.index):
            colour, marker = styles[str(method)]
            axis.plot(place, float(here["rho"].loc[method]), color=colour, marker=marker, markersize=7)
        _name_places(axis, list(here.index))
        axis.set(title=f"{title}: {name}", ylabel="ρ", ylim=(-1.1, 1.1))
        words.append(f"{name}: {_listed(here['rho'])}")
    figure.legend(handles=[Line2D([], [], color=CONTROL, linestyle=":", label="the rule's threshold")], **_BELOW)
    return figure, f"Rank correlation of concept rank with alignment, {title}, one checkpoint. {'; '.join(words)}."


def _name_places(axis: Axes, methods: list[str]) -> None:
    axis.set_xticks(range(len(methods)), [METHOD_NAMES[method] for method in methods])
    axis.set_xlim(-0.6, len(methods) - 0.4)
    axis.tick_params(axis="x", length=0)


def _listed(values: pd.Series) -> str:
    return ", ".join(f"{METHOD_NAMES[str(method)]} {signed(value)}" for method, value in values.items())
