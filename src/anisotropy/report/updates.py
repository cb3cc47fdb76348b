"""Pictures of the chapter on embedding updates (Figures 3 and 4 of the paper); every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anisotropy.report.figures import (
    CONTROL,
    FREQUENT,
    INK,
    NORMAL,
    NULL,
    RARE,
    TANGENT,
    model_colour,
    model_marker,
    stacked,
    step_axis,
)
from anisotropy.report.tables import signed

# From the rarest quarter of the tokens to the most frequent: the book's two colours, and lighter steps between them.
GROUPS = {
    1: (RARE, "rarest quarter"),
    2: ("#EDA46D", "second quarter"),
    3: ("#74B3DA", "third quarter"),
    4: (FREQUENT, "most frequent quarter"),
}


class NothingToShow(ValueError):
    """The tables hold nothing for this picture: models with too few checkpoints, or with tied matrices."""


_STAGE_LINES = {"early": ("-", "o"), "late": ("--", "s")}


def select(
    table: pd.DataFrame,
    stage: str | None = None,
    *,
    matrix: str | None = None,
    rank: int | None = None,
    reading: str = "corrected",
    update: str = "measured",
    basis: str = "start",
) -> pd.DataFrame:
    """The rows of a table of tokens or of a summary that belong to one reading."""
    chosen = (table["reading"] == reading) & (table["update"] == update) & (table["basis"] == basis)
    for column, value in (("stage", stage), ("matrix", matrix), ("rank", rank)):
        if value is not None:
            chosen &= table[column] == value
    return table[chosen]


def running(rows: pd.DataFrame, value: str, at_least: int = 20) -> pd.DataFrame:
    """Median and quartiles of a value in a window that moves over the tokens from rare to frequent.

    The window holds one token in 16, and at least ``at_least``; near the ends it is shorter.

    Returns:
        Columns ``log10_frequency`` (median of the window), ``low``, ``median``, ``high``, for up to 60 places; empty
        with fewer than ``at_least`` tokens that have a value.
    """
    ordered = rows.dropna(subset=[value]).sort_values(["log10_frequency", "token_id"])
    if len(ordered) < at_least:
        return pd.DataFrame(columns=["log10_frequency", "low", "median", "high"])
    window = ordered[["log10_frequency", value]].rolling(
        max(at_least, len(ordered) // 16), center=True, min_periods=at_least // 2
    )
    table = pd.DataFrame(
        {
            "log10_frequency": window["log10_frequency"].median(),
            "low": window[value].quantile(0.25),
            "median": window[value].median(),
            "high": window[value].quantile(0.75),
        }
    )
    places = np.unique(np.linspace(0, len(table) - 1, 60).round().astype(int))
    return table.iloc[places].dropna().reset_index(drop=True)


def draw_enrichments(
    tokens: Mapping[str, pd.DataFrame], titles: Mapping[str, str], matrix: str, stage: str, rank: int
) -> tuple[Figure, str]:
    """Figures 3 and 4: tangent and normal enrichment against log frequency, two panels a model.

    Args:
        tokens: by model, what :func:`anisotropy.studies.updates.stage_averages` returned; models without rows of this
            matrix and stage are left out.
        titles: of the models.
        matrix: ``"input"`` or ``"output"``.
        stage: ``"early"`` or ``"late"``.
        rank: of the tangent subspace.

    Returns:
        The figure and its alternative text.

    Raises:
        NothingToShow: no model has such rows.
    """
    chosen = {
        model: rows
        for model, table in tokens.items()
        if (rows := select(table, stage, matrix=matrix, rank=rank))["tangent"].notna().any()
    }
    if not chosen:
        raise NothingToShow(f"no model has {stage} updates of its {matrix} matrix")
    figure, axes = stacked(2 * len(chosen), 1.9)
    words = []
    for number, (model, rows) in enumerate(chosen.items()):
        for axis, value in zip(axes[2 * number :], ("tangent", "normal"), strict=False):
            _scatter(axis, rows, value, float(rows["spread" if value == "tangent" else "normal_spread"].median()))
            axis.set(title=f"{titles[model]}: {value}", ylabel="enrichment")
        ends = rows.groupby("group")[["tangent", "normal"]].median()
        words.append(
            f"{titles[model]}, tangent {ends['tangent'].iloc[0]:.2f} for the rarest and "
            f"{ends['tangent'].iloc[-1]:.2f} for the most frequent quarter, normal {ends['normal'].iloc[0]:.2f} and "
            f"{ends['normal'].iloc[-1]:.2f}"
        )
    axes[-1].set_xlabel("log10 token frequency")
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour, marker="o", markersize=5, linestyle="", label=label)
        for colour, label in GROUPS.values()
    ]
    handles += [
        Line2D([], [], color=INK, label="running median"),
        Patch(color=TANGENT, alpha=0.35, label="middle half, tangent"),
        Patch(color=NORMAL, alpha=0.35, label="middle half, normal"),
        Patch(color=NULL, label="chance ± one token's SD"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    alt = f"Enrichment of {stage} updates of the {matrix} matrix against log frequency, one dot per token; medians: "
    return figure, f"{alt}{'; '.join(words)}."


def _scatter(axis: Axes, rows: pd.DataFrame, value: str, spread: float) -> None:
    axis.axhspan(max(0, 1 - spread), 1 + spread, color=NULL, linewidth=0)
    axis.axhline(1, color=CONTROL, linewidth=1)
    for group, (colour, _) in GROUPS.items():
        here = rows[rows["group"] == group]
        axis.scatter(here["log10_frequency"], here[value], s=6, color=colour, alpha=0.5, linewidths=0)
    line = running(rows, value)
    axis.fill_between(
        line["log10_frequency"],
        line["low"],
        line["high"],
        color=TANGENT if value == "tangent" else NORMAL,
        alpha=0.35,
        linewidth=0,
    )
    axis.plot(line["log10_frequency"], line["median"], color=INK)
    axis.set_ylim(bottom=0)


def draw_readings(
    tokens: Mapping[str, pd.DataFrame], titles: Mapping[str, str], stage: str, rank: int
) -> tuple[Figure, str]:
    """Running medians of the corrected and the naive reading, and of what pure weight decay looks like to the naive.

    Args:
        tokens: by model, what :func:`anisotropy.studies.updates.stage_averages` returned.
        titles: of the models.
        stage: ``"early"`` or ``"late"``.
        rank: of the tangent subspace.

    Raises:
        NothingToShow: no model has rows of this stage.
    """
    panels = [
        (model, matrix, rows)
        for model, table in tokens.items()
        for matrix, rows in table[(table["stage"] == stage) & (table["rank"] == rank)].groupby("matrix")
    ]
    if not panels:
        raise NothingToShow(f"no model has {stage} updates")
    lines = {
        "corrected": (("corrected", "measured"), INK, "-"),
        "naive": (("naive", "measured"), TANGENT, "--"),
        "−w instead of the update, naive": (("naive", "decay"), CONTROL, ":"),
    }
    figure, axes = stacked(len(panels), 1.8)
    words = []
    for axis, (model, matrix, rows) in zip(axes, panels, strict=True):
        axis.axhline(1, color=CONTROL, linewidth=1)
        medians = []
        for name, ((reading, update), colour, style) in lines.items():
            here = select(rows, reading=reading, update=update)
            line = running(here, "tangent")
            axis.plot(line["log10_frequency"], line["median"], color=colour, linestyle=style, linewidth=2)
            if here["tangent"].notna().any():
                medians.append(f"{name} {here['tangent'].median():.2f}")
        axis.set(title=f"{titles[model]}, {matrix} matrix", ylabel="enrichment")
        axis.set_ylim(bottom=0)
        words.append(f"{titles[model]}, {matrix} matrix {', '.join(medians)}")
    axes[-1].set_xlabel("log10 token frequency")
    handles = [
        Line2D([], [], color=colour, linestyle=style, linewidth=2, label=name)
        for name, (_, colour, style) in lines.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure, f"Running medians of {stage} tangent enrichment under each reading; medians: {'; '.join(words)}."


def draw_courses(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Mean tangent enrichment of every pair of checkpoints over training, frequent against rare tokens.

    Args:
        courses: by model, what :func:`anisotropy.studies.updates.courses` returned.
        titles: of the models.

    Raises:
        NothingToShow: no model has a pair.
    """
    panels = [(model, matrix, rows) for model, table in courses.items() for matrix, rows in table.groupby("matrix")]
    if not panels:
        raise NothingToShow("no model has a pair of checkpoints")
    figure, axes = stacked(len(panels), 1.8)
    words = []
    for axis, (model, matrix, rows) in zip(axes, panels, strict=True):
        axis.axhline(1, color=CONTROL, linewidth=1)
        for group, marker in ((1, "s"), (4, "o")):
            here = rows[rows["group"] == group]
            colour, _ = GROUPS[group]
            axis.plot(here["end"], here["tangent"], color=colour, marker=marker, markersize=5)
            axis.plot(here["end"], here["normal"], color=colour, linestyle=":", marker=marker, markersize=3)
        step_axis(axis, rows["end"])
        axis.set(title=f"{titles[model]}, {matrix} matrix", ylabel="enrichment")
        axis.set_ylim(bottom=0)
        peak = rows.sort_values("tangent").iloc[-1]
        words.append(
            f"{titles[model]}, {matrix} matrix from {rows['tangent'].iloc[0]:.2f}, highest {peak['tangent']:.2f} in "
            f"the pair that ends at step {int(peak['end']):,}"
        )
    axes[-1].set_xlabel("training step at the end of the pair (log scale)")
    handles = [
        Line2D([], [], color=GROUPS[group][0], marker=marker, markersize=5, label=GROUPS[group][1])
        for group, marker in ((4, "o"), (1, "s"))
    ]
    handles += [Line2D([], [], color=INK, label="tangent"), Line2D([], [], color=INK, linestyle=":", label="normal")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Mean enrichment over training, a panel per model and matrix; tangent: {'; '.join(words)}."


def draw_ranks(summary: pd.DataFrame, models: Sequence[str], titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Correlation with log frequency, and mean enrichments, against the rank of the subspace.

    Args:
        summary: what :func:`anisotropy.studies.updates.summarise` returned.
        models: to be shown, as in its ``model`` column.
        titles: of the models.

    Raises:
        NothingToShow: the summary has no rows of these models.
    """
    rows = select(summary).dropna(subset=["estimate"])
    panels = [(matrix, here) for matrix, here in rows[rows["model"].isin(models)].groupby("matrix")]
    if not panels:
        raise NothingToShow("there is nothing to show")
    figure, axes = stacked(2 * len(panels), 1.75)
    words = []
    for number, (matrix, here) in enumerate(panels):
        top, bottom = axes[2 * number : 2 * number + 2]
        top.axhline(0, color=CONTROL, linewidth=1)
        bottom.axhline(1, color=CONTROL, linewidth=1)
        for place, model in enumerate(models):
            for stage, (line, _) in _STAGE_LINES.items():
                own = here[(here["model"] == model) & (here["stage"] == stage)]
                own = own.groupby("rank", as_index=False)[["estimate", "low", "high", "tangent", "normal"]].mean()
                if own.empty:
                    continue
                look: dict[str, Any] = {
                    "color": model_colour(place),
                    "linestyle": line,
                    "marker": model_marker(place),
                    "markersize": 5,
                }
                top.plot(own["rank"], own["estimate"], **look)
                top.fill_between(
                    own["rank"], own["low"], own["high"], color=model_colour(place), alpha=0.2, linewidth=0
                )
                bottom.plot(own["rank"], own["tangent"], **look)
                ends = " to ".join(signed(value) for value in own["estimate"].iloc[[0, -1]])
                words.append(f"{titles[model]}, {matrix} matrix, {stage} from {ends}")
        top.set(title=f"{matrix} matrix: correlation", ylabel="ρ")
        bottom.set(title=f"{matrix} matrix: mean tangent enrichment", ylabel="enrichment")
        bottom.set_ylim(bottom=0)
    axes[-1].set_xscale("log", base=2)
    ticks = sorted(rows["rank"].unique())
    axes[-1].set_xticks(ticks, [str(tick) for tick in ticks])
    axes[-1].set_xlabel("rank of the subspaces")
    handles = [
        Line2D([], [], color=model_colour(place), marker=model_marker(place), markersize=5, label=titles[model])
        for place, model in enumerate(models)
    ]
    handles += [Line2D([], [], color=INK, linestyle=line, label=stage) for stage, (line, _) in _STAGE_LINES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Correlation of tangent enrichment with log frequency by rank: {'; '.join(words)}."
