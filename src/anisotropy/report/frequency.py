"""Pictures and sentences of the frequency chapter (Figure 1 of the paper); every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anisotropy.report.figures import CONTROL, FREQUENT, MARKERS, NULL, PALETTE, PAPER, RARE, WIDTH, plt, stacked
from anisotropy.report.scorecard import C1_PRINTED, READINGS, Verdict, reading_name
from anisotropy.report.tables import signed

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
        axis.plot(rows["step"], rows["loss"], color=FREQUENT, marker="o", markersize=4)
        axis.axhline(unigram, color=CONTROL, linestyle="--")
        axis.set(title=titles[model], ylabel="loss (nats)")
        step_axis(axis)
        words.append(
            f"{titles[model]} goes from {rows['loss'].iloc[0]:.2f} to {rows['loss'].iloc[-1]:.2f} nats "
            f"(unigram {unigram:.2f})"
        )
    axes[0].legend(
        handles=[
            Line2D([], [], color=FREQUENT, marker="o", markersize=4, label="validation loss"),
            Line2D([], [], color=CONTROL, linestyle="--", label="token frequencies alone"),
        ]
    )
    axes[-1].set_xlabel("training step (log scale)")
    return figure, f"Validation loss against training step, one panel per model: {'; '.join(words)}."


def step_axis(axis: Axes) -> None:
    """A log axis of steps on which step 0 has a place too."""
    axis.set_xscale("symlog", linthresh=1, linscale=0.4)
    axis.set_xticks([0, 1, 4, 16, 64, 256], ["0", "1", "4", "16", "64", "256"])
    axis.minorticks_off()


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
        step_axis(axis)
        axis.set(title=titles[model], ylabel="distance")
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
        (model, matrix, rows)
        for model, table in tokens.items()
        for matrix, rows in table[(table["centroid"] == centroid) & (table["stage"] == "trained")].groupby("matrix")
    ]
    figure, axes = stacked(len(panels), 1.8)
    words = []
    for axis, (model, matrix, rows) in zip(axes, panels, strict=True):
        rho = float(np.corrcoef(rows["log10_frequency"], rows[value])[0, 1])
        axis.scatter(
            rows["log10_frequency"], rows[value], s=5, color=FREQUENT, alpha=0.3, linewidths=0, rasterized=True
        )
        medians = binned(rows, value)
        axis.plot(medians["centre"], medians["median"], color=RARE, marker="o", markersize=4)
        name = titles[model] if matrix == "contextual" else f"{titles[model]}, {matrix} matrix"
        axis.set(title=f"{name}: ρ = {signed(rho)}", ylabel="distance" if value == "distance" else "distance / norm")
        words.append(f"{name} Pearson {signed(rho)}")
    axes[0].legend(
        handles=[
            Line2D([], [], color=FREQUENT, marker="o", markersize=4, linestyle="", label="a token"),
            Line2D([], [], color=RARE, marker="o", markersize=4, label="median"),
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
        axis.plot(table["centre"], table["maximum"], color=RARE, marker="^", markersize=4)
        axis.plot(table["centre"], table["median"], color=CONTROL, marker="o", markersize=4)
        axis.plot(table["centre"], table["minimum"], color=FREQUENT, marker="v", markersize=4)
        axis.set(title=titles[model], ylabel="distance")
        first, last = table.iloc[0], table.iloc[-1]
        words.append(
            f"{titles[model]} from {first['minimum']:.2f}–{first['maximum']:.2f} among the rarest to "
            f"{last['minimum']:.2f}–{last['maximum']:.2f} among the most frequent tokens"
        )
    names = (("largest", RARE, "^"), ("median", CONTROL, "o"), ("smallest", FREQUENT, "v"))
    axes[0].legend(
        handles=[
            Line2D([], [], color=colour, marker=marker, markersize=4, label=name) for name, colour, marker in names
        ],
        ncols=3,
    )
    axes[-1].set_xlabel("log10 token frequency")
    return figure, f"Smallest and largest distance per frequency bin, a panel per model: {'; '.join(words)}."


def draw_readings(
    correlations: pd.DataFrame, controls: Mapping[str, str], titles: Mapping[str, str], kind: str = "pearson"
) -> tuple[Figure, str]:
    """Every reading's correlation with log frequency side by side, with interval, null and controls.

    Args:
        correlations: what :func:`anisotropy.studies.frequency.summarise` returned.
        controls: shuffled-label run by model.
        titles: of the models.
        kind: ``"pearson"`` or ``"spearman"``.
    """
    rows = correlations[(correlations["value"] == "distance") & (correlations["kind"] == kind)]
    models = [model for model in dict.fromkeys(rows["model"]) if model not in set(controls.values())]
    figure, axis = plt.subplots(figsize=(WIDTH, 1.2 + 0.42 * len(READINGS) * max(1, len(models) * 0.6)))
    axis.axvline(0, color=CONTROL, linewidth=1)
    axis.axvline(C1_PRINTED, color=PAPER, linestyle="--")
    words = []
    gap = 0.7 / max(1, len(models))
    for place, (centroid, matrix) in enumerate(READINGS):
        here = rows[(rows["centroid"] == centroid) & (rows["matrix"] == matrix)]
        for number, model in enumerate(models):
            y = place + (number - (len(models) - 1) / 2) * gap
            own = here[(here["model"] == model) & (here["stage"] == "trained")]
            for row in own.itertuples():
                axis.fill_betweenx([y - gap / 2.4, y + gap / 2.4], row.null_low, row.null_high, color=NULL, linewidth=0)
                axis.plot([row.low, row.high], [y, y], color=PALETTE[number])
                axis.plot(row.estimate, y, MARKERS[number], color=PALETTE[number], markersize=7)
                words.append(f"{titles[model]}, {reading_name(centroid, matrix)} {signed(row.estimate)}")
            references = {
                "x": here[(here["model"] == controls.get(model)) & (here["stage"] == "trained")],
                "|": here[(here["model"] == model) & (here["stage"] == "untrained")],
            }
            for marker, reference in references.items():
                axis.plot(reference["estimate"], [y] * len(reference), marker, color="black", markersize=8)
    axis.set_yticks(range(len(READINGS)), [reading_name(*reading).replace(", ", ",\n") for reading in READINGS])
    axis.invert_yaxis()
    axis.set(
        xlim=(-1, 1), xticks=[-1, -0.5, 0, 0.5, 1], xlabel=f"{kind.capitalize()} ρ of distance with log10 frequency"
    )
    axis.tick_params(axis="y", length=0)
    handles: list[Artist] = [
        Line2D([], [], color=PALETTE[number], marker=MARKERS[number], label=titles[model])
        for number, model in enumerate(models)
    ]
    handles += [
        Line2D([], [], color="black", marker="x", linestyle="", label="shuffled labels"),
        Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="untrained"),
        Patch(color=NULL, label="shuffled frequencies, 95 %"),
        Line2D([], [], color=PAPER, linestyle="--", label="the paper's decoders"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Correlation of distance with log frequency under each reading: {'; '.join(words)}."


def control_table(correlations: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Correlations of trained models as text: a row per model and reading, a column per value and kind."""
    trained = correlations[correlations["stage"] == "trained"]
    rows = trained.assign(
        model=[_run_title(titles, model, seed) for model, seed in zip(trained["model"], trained["seed"], strict=True)],
        reading=[reading_name(*reading) for reading in zip(trained["centroid"], trained["matrix"], strict=True)],
        column=[_COLUMNS[column] for column in zip(trained["value"], trained["kind"], strict=True)],
        text=[signed(estimate) for estimate in trained["estimate"]],
    )
    names = ["model", "reading"]
    wide = rows.pivot(index=names, columns="column", values="text").reindex(columns=list(_COLUMNS.values()))
    return rows[names].drop_duplicates().merge(wide.astype(object).fillna("–").reset_index(), on=names)


def _run_title(titles: Mapping[str, str], model: str, seed: int) -> str:
    return titles.get(f"{model}@{seed}" if seed else model, model)


_COLUMNS = {
    ("distance", "pearson"): "distance",
    ("distance", "spearman"): "distance, ranks",
    ("relative", "pearson"): "distance / norm",
    ("relative", "spearman"): "distance / norm, ranks",
}


def disagreement(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> str:
    """One sentence a model on whether the readings agree in sign, computed from the verdicts."""
    sentences = []
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.model == model and verdict.estimate is not None]
        negative = [verdict.reading for verdict in own if verdict.high is not None and verdict.high < 0]
        positive = [verdict.reading for verdict in own if verdict.low is not None and verdict.low > 0]
        unclear = [verdict.reading for verdict in own if verdict.reading not in negative + positive]
        parts = [
            f"{label} under {'; '.join(readings)}"
            for label, readings in (
                ("negative", negative),
                ("positive", positive),
                ("not told apart from zero", unclear),
            )
            if readings
        ]
        if not own:
            sentences.append(f"For {titles[model]} no reading applies.")
        elif len(parts) == 1:
            sentences.append(f"For {titles[model]} every reading agrees: the correlation is {parts[0]}.")
        else:
            sentences.append(f"For {titles[model]} the reading decides: the correlation is {', '.join(parts)}.")
    return " ".join(sentences)
