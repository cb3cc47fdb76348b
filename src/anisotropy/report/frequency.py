"""Pictures of the frequency chapter (Figure 1 of the paper); every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anisotropy.models.labels import names_of_controls
from anisotropy.report.figures import (
    CONTROL,
    DOTS,
    FREQUENT,
    INK,
    NULL,
    PAPER,
    RARE,
    WIDTH,
    model_colour,
    model_marker,
    plt,
    stacked,
    step_axis,
)
from anisotropy.report.rules.frequency import (
    C1_PRINTED,
    C1_THRESHOLD,
    READINGS,
    is_tied,
    reading_name,
)
from anisotropy.report.tables import signed

_RANGE = {"largest": ("maximum", "^", "--"), "median": ("median", "o", "-"), "smallest": ("minimum", "v", ":")}
_GROUPS = {"most frequent": (FREQUENT, "o"), "least frequent": (RARE, "s")}


def draw_training(training: pd.DataFrame, titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Validation loss over training, one panel a model, beside the loss of knowing frequencies only.

    Args:
        training: columns ``model``, ``step``, ``loss``, ``unigram`` (nats).
        titles: of the models.

    Returns:
        The figure and its alternative text.
    """
    models = list(dict.fromkeys(training["model"]))
    figure, axes = stacked(len(models), 1.6)
    words = []
    for axis, model in zip(axes, models, strict=True):
        rows = training[training["model"] == model]
        unigram = rows["unigram"].iloc[0]
        axis.plot(rows["step"], rows["loss"], color=INK, marker="o", markersize=4)
        axis.axhline(unigram, color=CONTROL, linestyle="--")
        axis.set(title=titles[model], ylabel="loss (nats)")
        step_axis(axis, rows["step"])
        words.append(
            f"{titles[model]} goes from {rows['loss'].iloc[0]:.2f} to {rows['loss'].iloc[-1]:.2f} nats "
            f"(unigram {unigram:.2f})"
        )
    axes[0].legend(
        handles=[
            Line2D([], [], color=INK, marker="o", markersize=4, label="validation loss"),
            Line2D([], [], color=CONTROL, linestyle="--", label="token frequencies alone"),
        ]
    )
    axes[-1].set_xlabel("training step (log scale)")
    return figure, f"Validation loss against training step, one panel per model: {'; '.join(words)}."


def draw_courses(
    courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str], matrix: str = "input"
) -> tuple[Figure, str]:
    """Figure 1, left: distance to the own centroid over training, most against least frequent tokens.

    Args:
        courses: by model, what :func:`anisotropy.studies.frequency.distance_courses` returned; none empty.
        titles: of the models.
        matrix: which embedding matrix, for the axis label.
    """
    figure, axes = stacked(len(courses))
    words = []
    for axis, (model, table) in zip(axes, courses.items(), strict=True):
        means = {}
        for group, (colour, marker) in _GROUPS.items():
            rows = table[table["group"] == group]
            for _, token in rows.groupby("token_id"):
                axis.plot(token["step"], token["distance"], color=colour, marker=marker, markersize=3, alpha=0.75)
            means[group] = rows["distance"].mean()
        step_axis(axis, table["step"])
        axis.set(title=titles[model], ylabel="distance to own mean")
        closer = min(means, key=lambda group: means[group])
        words.append(
            f"in {titles[model]} the {closer} tokens stay closer to their centroid on average over checkpoints"
        )
    axes[0].legend(
        handles=[
            Line2D([], [], color=colour, marker=marker, label=f"{group} tokens")
            for group, (colour, marker) in _GROUPS.items()
        ]
    )
    axes[-1].set_xlabel("training step (log scale)")
    return figure, (
        f"Distance of {matrix} embedding rows to their centroid over training, one line per token: {'; '.join(words)}."
    )


def draw_distance(
    tokens: Mapping[str, pd.DataFrame], titles: Mapping[str, str], centroid: str, value: str = "distance"
) -> tuple[Figure, str]:
    """Figure 1, middle: distance against log frequency under one reading, a panel per model and matrix.

    Args:
        tokens: by model, what :func:`anisotropy.studies.frequency.token_distances` returned.
        titles: of the models.
        centroid: ``"trajectory"``, ``"vocabulary"`` or ``"occurrences"``.
        value: ``"distance"`` or ``"relative"``.
    """
    panels = [
        (model, str(matrix), rows)
        for model, table in tokens.items()
        for matrix, rows in table[(table["centroid"] == centroid) & (table["stage"] == "trained")].groupby("matrix")
    ]
    figure, axes = stacked(len(panels), 1.8)
    words = []
    for axis, (model, matrix, rows) in zip(axes, panels, strict=True):
        rho = float(np.corrcoef(rows["log10_frequency"], rows[value])[0, 1])
        axis.scatter(rows["log10_frequency"], rows[value], s=5, color=DOTS, alpha=0.35, linewidths=0)
        medians = binned(rows, value)
        axis.plot(medians["centre"], medians["median"], color=INK, marker="o", markersize=4)
        of = "tied" if is_tied(tokens[model]) else f"{matrix} matrix"
        name = titles[model] if matrix == "contextual" else f"{titles[model]}, {of}"
        axis.set(
            title=f"{name}: ρ = {signed(rho)}",
            ylabel=f"distance ({centroid})" if value == "distance" else "distance / norm",
        )
        words.append(f"{name} Pearson {signed(rho)}")
    axes[0].legend(
        handles=[
            Line2D([], [], color=DOTS, marker="o", markersize=4, linestyle="", label="a token"),
            Line2D([], [], color=INK, marker="o", markersize=4, label="median"),
        ],
        ncols=2,
    )
    axes[-1].set_xlabel("log10 token frequency")
    return figure, f"Distance to the {centroid} centroid against log frequency, one dot per token: {'; '.join(words)}."


def binned(rows: pd.DataFrame, value: str = "distance", bins: int = 12, at_least: int = 5) -> pd.DataFrame:
    """Minimum, median and maximum of a value in bins of log frequency of equal width.

    Returns:
        Columns ``centre``, ``minimum``, ``median``, ``maximum``, ``n``; without bins of fewer than ``at_least``.
    """
    edges = np.linspace(rows["log10_frequency"].min(), rows["log10_frequency"].max(), bins + 1)
    edges[-1] = np.inf
    place = np.digitize(rows["log10_frequency"], edges) - 1
    groups = rows.assign(bin=place).groupby("bin")[value]
    table = groups.agg(minimum="min", median="median", maximum="max", n="size").reset_index()
    edges[-1] = rows["log10_frequency"].max()
    table.insert(0, "centre", (edges[table["bin"]] + edges[table["bin"] + 1]) / 2)
    return table[table["n"] >= at_least].drop(columns="bin").reset_index(drop=True)


def draw_ranges(
    tokens: Mapping[str, pd.DataFrame], titles: Mapping[str, str], centroid: str, matrix: str
) -> tuple[Figure, str]:
    """Figure 1, right: smallest, median and largest distance in bins of frequency.

    Args:
        tokens: by model, what :func:`anisotropy.studies.frequency.token_distances` returned.
        titles: of the models.
        centroid: as for :func:`draw_distance`.
        matrix: ``"input"``, ``"output"`` or ``"contextual"``.
    """
    chosen = {}
    for model, table in tokens.items():
        here = (table["centroid"] == centroid) & (table["matrix"] == matrix) & (table["stage"] == "trained")
        if here.any():
            chosen[model] = binned(table[here])
    figure, axes = stacked(len(chosen))
    words = []
    for axis, (model, table) in zip(axes, chosen.items(), strict=True):
        axis.fill_between(table["centre"], table["minimum"], table["maximum"], color=NULL)
        for name, (column, marker, line) in _RANGE.items():
            axis.plot(table["centre"], table[column], line, color=INK, marker=marker, markersize=4, label=name)
        axis.set(title=titles[model], ylabel=f"distance ({centroid})")
        first, last = table.iloc[0], table.iloc[-1]
        words.append(
            f"{titles[model]} from {first['minimum']:.2f}–{first['maximum']:.2f} among the rarest to "
            f"{last['minimum']:.2f}–{last['maximum']:.2f} among the most frequent tokens"
        )
    axes[0].legend(ncols=3)
    axes[-1].set_xlabel("log10 token frequency")
    return figure, f"Smallest and largest distance per frequency bin, a panel per model: {'; '.join(words)}."


def draw_readings(
    correlations: pd.DataFrame, controls: Mapping[str, str], titles: Mapping[str, str], kind: str = "pearson"
) -> tuple[Figure, str]:
    """Every reading's correlation with log frequency side by side, with interval, null and controls.

    Args:
        correlations: what :func:`anisotropy.studies.frequency.summarise` returned.
        controls: label of the shuffled-label run by label of the model.
        titles: of the models.
        kind: ``"pearson"`` or ``"spearman"``.
    """
    rows = correlations[(correlations["value"] == "distance") & (correlations["kind"] == kind)]
    controls = names_of_controls(controls)
    models = _judged(rows, controls)
    figure, axis = plt.subplots(figsize=(WIDTH, 1.8 + 0.42 * len(READINGS) * max(1, len(models) * 0.6)))
    axis.axvline(0, color=CONTROL, linewidth=1)
    axis.axvline(C1_THRESHOLD, color=CONTROL, linewidth=1, linestyle=":")
    axis.axvline(C1_PRINTED, color=PAPER, linestyle="--")
    words = []
    gap = 0.7 / max(1, len(models))
    for place, (centroid, matrix) in enumerate(READINGS):
        here = rows[(rows["centroid"] == centroid) & (rows["matrix"] == matrix)]
        for number, model in enumerate(models):
            y, colour = place + (number - (len(models) - 1) / 2) * gap, model_colour(number)
            own = here[(here["model"] == model) & (here["stage"] == "trained")]
            references = {
                "x": here[(here["model"] == controls.get(model)) & (here["stage"] == "trained")],
                "|": here[(here["model"] == model) & (here["stage"] == "untrained")],
            }
            for row in own.to_dict("records"):
                axis.fill_betweenx(
                    [y - gap / 2.4, y + gap / 2.4], row["null_low"], row["null_high"], color=NULL, linewidth=0
                )
                axis.plot([row["low"], row["high"]], [y, y], color=colour)
                axis.plot(row["estimate"], y, model_marker(number), color=colour, markersize=8, markeredgecolor="white")
                words.append(f"{titles[model]}, {reading_name(centroid, matrix)} {signed(row['estimate'])}")
            for marker, reference in references.items():
                axis.plot(
                    reference["estimate"], [y] * len(reference), marker, color=colour, markersize=9, markeredgewidth=2
                )
    axis.set_yticks(range(len(READINGS)), [reading_name(*reading).replace(" (", "\n(") for reading in READINGS])
    axis.invert_yaxis()
    axis.set(xlim=(-1, 1), xticks=[-1, -0.5, 0, 0.5, 1])
    axis.set_xlabel(f"← frequent closer      {kind.capitalize()} ρ      frequent further →")
    axis.tick_params(axis="y", length=0)
    handles: list[Artist] = [
        Line2D([], [], color=model_colour(number), marker=model_marker(number), label=titles[model])
        for number, model in enumerate(models)
    ]
    handles += [
        Line2D([], [], color=INK, marker="x", markeredgewidth=2, linestyle="", label="shuffled labels"),
        Line2D([], [], color=INK, marker="|", markeredgewidth=2, linestyle="", markersize=9, label="untrained"),
        Patch(color=NULL, label="shuffled frequencies"),
        Line2D([], [], color=PAPER, linestyle="--", label="paper's decoders"),
        Line2D([], [], color=CONTROL, linestyle=":", label="the rule's threshold"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Correlation of distance with log frequency under each reading: {'; '.join(words)}."


def _judged(rows: pd.DataFrame, controls: Mapping[str, str]) -> list[str]:
    return [model for model in dict.fromkeys(rows["model"]) if model not in set(controls.values())]


def draw_cut_offs(
    tables: Mapping[int, pd.DataFrame], controls: Mapping[str, str], titles: Mapping[str, str]
) -> tuple[Figure, str]:
    """Pearson's ρ under each reading when rarer tokens are left out, a panel per reading.

    Args:
        tables: by cut-off, what :func:`anisotropy.studies.frequency.by_minimum_count` returned.
        controls: label of the shuffled-label run by label of the model; drawn dashed.
        titles: of the models.
    """
    table = pd.concat([rows.assign(minimum=minimum) for minimum, rows in tables.items()])
    table = table[(table["value"] == "distance") & (table["kind"] == "pearson") & (table["stage"] == "trained")]
    controls = names_of_controls(controls)
    models = _judged(table, controls)
    present = [
        reading for reading in READINGS if ((table["centroid"] == reading[0]) & (table["matrix"] == reading[1])).any()
    ]
    figure, axes = stacked(len(present), 1.5)
    words = []
    for axis, (centroid, matrix) in zip(axes, present, strict=True):
        here = table[(table["centroid"] == centroid) & (table["matrix"] == matrix)]
        axis.axhline(0, color=CONTROL, linewidth=1)
        axis.axhline(C1_THRESHOLD, color=CONTROL, linewidth=1, linestyle=":")
        for number, model in enumerate(models):
            own = here[here["model"] == model].groupby("minimum")["estimate"].mean()
            control = here[here["model"] == controls.get(model)].groupby("minimum")["estimate"].mean()
            axis.plot(own.index, own, color=model_colour(number), marker=model_marker(number), markersize=5)
            axis.plot(control.index, control, color=model_colour(number), linestyle="--")
            if len(own):
                ends = f"from {signed(own.iloc[0])} to {signed(own.iloc[-1])}"
                words.append(f"{titles[model]}, {reading_name(centroid, matrix)} {ends}")
        axis.set(title=reading_name(centroid, matrix), ylabel="ρ", ylim=(-1, 1), xscale="log")
    axes[-1].set_xlabel("tokens that occur at least so often")
    handles = [
        Line2D([], [], color=model_colour(number), marker=model_marker(number), label=titles[model])
        for number, model in enumerate(models)
    ]
    handles.append(Line2D([], [], color=INK, linestyle="--", label="shuffled labels"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Correlation when rarer tokens are left out, a panel per reading: {'; '.join(words)}."
