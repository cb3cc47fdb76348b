"""Pictures of the alignment chapter (Figures 6 and 7 of the paper); every alternative text is computed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anisotropy.report.alignment_points import excess_points, matched_points, trend_points
from anisotropy.report.figures import CONTROL, ICA, INK, NULL, PCA, SEMI_NMF, WIDTH, plt, stacked, step_axis
from anisotropy.report.rules.alignment import MATRIX_NAMES, METHOD_NAMES, METRIC_NAMES, c6_threshold
from anisotropy.report.tables import signed

STYLES = {"pca": (PCA, "o"), "semi_nmf": (SEMI_NMF, "s"), "ica": (ICA, "^")}
CHANNELS = ("pca", "ica", "semi_nmf")  # red, green, blue, as in the paper


def draw_alignment(curves: pd.DataFrame, title: str) -> tuple[Figure, str]:
    """Figure 6: matched correlation over training under the three metrics, above the band of rotated concepts.

    Args:
        curves: one model's rows of :func:`anisotropy.studies.alignment_tables.curves`.
        title: of the model.

    Returns:
        The figure and its alternative text.
    """
    if curves["step"].nunique() == 1:
        return matched_points(curves, METRIC_NAMES, title, STYLES)
    rows = curves[curves["source"] == "gradient"]
    figure, axes = stacked(len(METRIC_NAMES), 1.9)
    words = []
    for axis, (metric, name) in zip(axes, METRIC_NAMES.items(), strict=True):
        here = rows[rows["metric"] == metric]
        band = here.groupby("step").agg(low=("baseline_low", "min"), high=("baseline_high", "max"))
        axis.fill_between(band.index, band["low"], band["high"], color=NULL, linewidth=0)
        for method, (colour, marker) in STYLES.items():
            own = here[here["method"] == method]
            axis.plot(own["step"], own["matched"], color=colour, marker=marker, markersize=5)
        axis.set(title=f"{title}: {name}", ylabel="|correlation|", ylim=(0, 1))
        step_axis(axis, rows["step"])
        words.append(f"{name}: {_ends(here, 'matched')}; rotated concepts {here['baseline'].mean():.2f}")
    axes[-1].set_xlabel("training step (log scale)")
    figure.legend(handles=[*_method_handles(), Patch(color=NULL, label="rotated concepts")], **_BELOW)
    return figure, f"Matched correlation of gradient with data concepts over training, {title}. {'. '.join(words)}."


def draw_excess(curves: pd.DataFrame, title: str) -> tuple[Figure, str]:
    """Figure 6 over its baseline: the excess with its interval over groups, beside gradients of shuffled labels.

    Args:
        curves: one model's rows of :func:`anisotropy.studies.alignment_tables.curves`.
        title: of the model.
    """
    if curves["step"].nunique() == 1:
        return excess_points(curves, METRIC_NAMES, title, STYLES)
    figure, axes = stacked(len(METRIC_NAMES), 1.9)
    words = []
    for axis, (metric, name) in zip(axes, METRIC_NAMES.items(), strict=True):
        here = curves[curves["metric"] == metric]
        axis.axhline(0, color=CONTROL, linewidth=1)
        for method, (colour, marker) in STYLES.items():
            own = here[(here["method"] == method) & (here["source"] == "gradient")]
            other = here[(here["method"] == method) & (here["source"] == "shuffled")]
            axis.fill_between(own["step"], own["excess_low"], own["excess_high"], color=colour, alpha=0.2, linewidth=0)
            axis.plot(own["step"], own["excess"], color=colour, marker=marker, markersize=5)
            axis.plot(other["step"], other["excess"], color=colour, linestyle="--", linewidth=1.2)
        axis.set(title=f"{title}: {name}", ylabel="excess")
        step_axis(axis, curves["step"])
        gradient, shuffled = (_ends(here[here["source"] == s], "excess") for s in ("gradient", "shuffled"))
        words.append(f"{name}: {gradient}; with shuffled labels {shuffled}")
    axes[-1].set_xlabel("training step (log scale)")
    extra: list[Artist] = [Line2D([], [], color=INK, linestyle="--", linewidth=1.2, label="shuffled labels")]
    figure.legend(handles=[*_method_handles(), *extra], **_BELOW)
    return figure, f"Matched correlation minus that of rotated concepts over training, {title}. {'. '.join(words)}."


_BELOW = {"loc": "outside lower center", "ncols": 2}


def _method_handles() -> list[Artist]:
    return [
        Line2D([], [], color=colour, marker=marker, markersize=5, label=METHOD_NAMES[method])
        for method, (colour, marker) in STYLES.items()
    ]


def _ends(rows: pd.DataFrame, column: str) -> str:
    """Each method's first and last value in words."""
    parts = []
    for method, name in METHOD_NAMES.items():
        own = rows[rows["method"] == method].sort_values("step")[column]
        if len(own):
            parts.append(f"{name} from {_plain(own.iloc[0])} to {_plain(own.iloc[-1])}")
    return ", ".join(parts)


def _plain(value: float) -> str:
    return signed(value).lstrip("+")


def rgb_map(ranks: pd.DataFrame, limit: float) -> np.ndarray:
    """Figure 7's pixels for one matrix: PCA red, ICA green, Semi-NMF blue, brighter for stronger correlations.

    Args:
        ranks: one matrix's rows of :func:`anisotropy.studies.alignment_tables.rank_table`.
        limit: the correlation shown at full brightness, above 0; larger ones are cut.

    Returns:
        Shape (ranks, checkpoints, 3), from 0 to 1; rank 0 is the first row. A method without rows is dark.

    Raises:
        ValueError: a limit that is not positive.
    """
    if not limit > 0:
        raise ValueError(f"limit is {limit}; it must be positive")
    steps = sorted(ranks["step"].unique())
    pixels = np.zeros((int(ranks["rank"].max()) + 1, len(steps), 3))
    for channel, method in enumerate(CHANNELS):
        table = grid(ranks, method).reindex(columns=steps)
        pixels[: len(table), :, channel] = np.clip(table.fillna(0) / limit, 0, 1)
    return pixels


def grid(ranks: pd.DataFrame, method: str) -> pd.DataFrame:
    """Correlations of one matrix and method: rows are ranks, columns checkpoints."""
    return ranks[ranks["method"] == method].pivot(index="rank", columns="step", values="correlation")


def colour_limit(ranks: pd.DataFrame) -> float:
    """What full brightness means: the correlation that one pixel in 200 exceeds, rounded up to a tenth."""
    return max(0.1, float(np.ceil(ranks["correlation"].quantile(0.995) * 10 - 1e-9) / 10))


def draw_rgb(ranks: pd.DataFrame, title: str) -> tuple[Figure, str]:
    """Figure 7: rank against training time, the three methods in one colour picture per matrix.

    Args:
        ranks: one model's rows of :func:`anisotropy.studies.alignment_tables.rank_table`.
        title: of the model.
    """
    matrices, limit = _present(ranks), colour_limit(ranks)
    figure, axes = stacked(len(matrices), 1.9)
    for axis, matrix in zip(axes, matrices, strict=True):
        rows = ranks[ranks["matrix"] == matrix]
        axis.imshow(rgb_map(rows, limit), aspect="auto", interpolation="nearest")
        axis.set(title=f"{title}: {MATRIX_NAMES[matrix]}", ylabel="rank")
        _checkpoint_axis(axis, rows)
    steps = "training step (one column a checkpoint)\n" if ranks["step"].nunique() > 1 else ""
    axes[-1].set_xlabel(f"{steps}full brightness: |correlation| {limit:.1f}")
    colours = {
        "PCA": "#ff0000",
        "ICA": "#00ff00",
        "Semi-NMF": "#0000ff",
        "all three alike": "#ffffff",
        "none": "#000000",
    }
    handles = [Patch(facecolor=colour, edgecolor=INK, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure, (
        f"Colour maps of correlation by rank and training step, {title}; full brightness means {limit:.1f}. "
        f"{_halves(ranks)}"
    )


def draw_maps(ranks: pd.DataFrame, title: str) -> tuple[Figure, str]:
    """Figure 7 for everybody: one map per matrix and method, in one scale from dark to bright.

    Args:
        ranks: one model's rows of :func:`anisotropy.studies.alignment_tables.rank_table`.
        title: of the model.
    """
    matrices, limit = _present(ranks), colour_limit(ranks)
    figure, grid_of_axes = plt.subplots(
        len(matrices), len(METHOD_NAMES), figsize=(WIDTH, 1.9 * len(matrices) + 0.9), squeeze=False, sharey=True
    )
    picture = None
    for line, matrix in zip(grid_of_axes, matrices, strict=True):
        rows = ranks[ranks["matrix"] == matrix]
        for axis, (method, name) in zip(line, METHOD_NAMES.items(), strict=True):
            picture = axis.imshow(
                grid(rows, method), aspect="auto", interpolation="nearest", cmap="cividis", vmin=0, vmax=limit
            )
            axis.set_title(name)
            _checkpoint_axis(axis, rows, ticks=3)
        line[0].set_ylabel(f"{MATRIX_NAMES[matrix]}\nrank")
    if ranks["step"].nunique() > 1:
        grid_of_axes[-1, 1].set_xlabel("training step")
    if picture is not None:
        figure.colorbar(
            picture, ax=grid_of_axes, location="bottom", aspect=40, label="|correlation| with data concepts"
        )
    figure.suptitle(title, fontsize=11, fontweight="bold", x=0.02, ha="left")
    return figure, f"One map per matrix and method of correlation by rank and training step, {title}. {_halves(ranks)}"


def _present(ranks: pd.DataFrame) -> list[str]:
    return [matrix for matrix in MATRIX_NAMES if matrix in set(ranks["matrix"])]


def _checkpoint_axis(axis: Axes, rows: pd.DataFrame, ticks: int = 5) -> None:
    steps = sorted(rows["step"].unique())
    places = np.unique(np.linspace(0, len(steps) - 1, min(ticks, len(steps))).round().astype(int))
    names = [f"{steps[place]:,}" for place in places] if len(steps) > 1 else ["the one checkpoint"]
    axis.set_xticks(places, names)


def _halves(ranks: pd.DataFrame) -> str:
    """Mean correlation of the stronger and of the weaker half of the ranks at the last checkpoint, in words."""
    last = ranks[ranks["step"] == ranks["step"].max()]
    middle = (last["rank"].max() + 1) / 2
    parts = []
    for matrix in _present(last):
        of_methods = []
        for method, name in METHOD_NAMES.items():
            own = last[(last["matrix"] == matrix) & (last["method"] == method)]
            upper, lower = own[own["rank"] < middle]["correlation"], own[own["rank"] >= middle]["correlation"]
            of_methods.append(f"{name} {upper.mean():.2f} and {lower.mean():.2f}")
        parts.append(f"{MATRIX_NAMES[matrix]}: {', '.join(of_methods)}")
    return f"Last checkpoint, mean over the stronger and over the weaker half of the ranks: {'; '.join(parts)}."


def draw_trends(trends: pd.DataFrame, title: str) -> tuple[Figure, str]:
    """Spearman's ρ of rank with correlation over training, a panel per matrix; step 0 is the control.

    Args:
        trends: one model's rows of :func:`anisotropy.studies.alignment_tables.rank_trends`.
        title: of the model.
    """
    matrices = _present(trends)
    thresholds = {
        matrix: c6_threshold(int(trends.loc[trends["matrix"] == matrix, "ranks"].iloc[0])) for matrix in matrices
    }
    if trends["step"].nunique() == 1:
        names = {matrix: MATRIX_NAMES[matrix] for matrix in matrices}
        return trend_points(trends, names, thresholds, title, STYLES)
    figure, axes = stacked(len(matrices), 1.7)
    words = []
    for axis, matrix in zip(axes, matrices, strict=True):
        here = trends[trends["matrix"] == matrix]
        axis.axhline(0, color=CONTROL, linewidth=1)
        axis.axhline(thresholds[matrix], color=CONTROL, linewidth=1, linestyle=":")
        for method, (colour, marker) in STYLES.items():
            own = here[here["method"] == method]
            axis.plot(own["step"], own["rho"], color=colour, marker=marker, markersize=5)
        axis.set(title=f"{title}: {MATRIX_NAMES[matrix]}", ylabel="ρ", ylim=(-1, 1))
        step_axis(axis, trends["step"])
        ends = []
        for method, name in METHOD_NAMES.items():
            values = here[here["method"] == method].sort_values("step")["rho"].tolist()
            ends.append(f"{name} from {signed(values[0])} to {signed(values[-1])}")
        words.append(f"{MATRIX_NAMES[matrix]}: {', '.join(ends)}")
    axes[-1].set_xlabel("training step (log scale)")
    handles = [*_method_handles(), Line2D([], [], color=CONTROL, linestyle=":", label="the rule's threshold")]
    figure.legend(handles=handles, **_BELOW)
    return figure, f"Rank correlation of concept rank with alignment over training, {title}. {'; '.join(words)}."
