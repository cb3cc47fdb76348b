"""Pictures of the first chapter, what anisotropy is; every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anisotropy.geometry.isotropy import isoscore, mean_cosine
from anisotropy.report.figures import (
    CONTROL,
    DOTS,
    INK,
    NULL,
    WIDTH,
    model_colour,
    model_marker,
    plt,
    stacked,
    step_axis,
)
from anisotropy.report.tables import signed
from anisotropy.studies.results import Collection

_NAMES = {"cosine": "mean cosine", "isoscore": "IsoScore"}
_CLOUDS = {
    "round, around 0": ((1.0, 1.0), 0.0),
    "round, away from 0": ((1.0, 1.0), 4.0),
    "flat, around 0": ((2.0, 0.15), 0.0),
    "flat, away from 0": ((2.0, 0.15), 4.0),
}


def middle(layers: int) -> int:
    """The layer half-way: output of block L/2 of L, as probe ``Tm``."""
    return (layers - 1) // 2


def draw_clouds(seed: int = 0) -> tuple[Figure, str]:
    """Four clouds in the plane: a cone and flatness are different things, and either comes without the other."""
    random = np.random.default_rng(seed)
    base = random.standard_normal((400, 2))
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, WIDTH * 0.95), sharex=True, sharey=True)
    words = []
    for axis, (name, (spread, shift)) in zip(axes.flat, _CLOUDS.items(), strict=True):
        cloud = base * spread + (0.0, shift)
        cosine = float(mean_cosine(torch.from_numpy(cloud)))
        score = float(isoscore(torch.from_numpy(np.cov(cloud.T))))
        axis.scatter(*cloud.T, s=4, color=DOTS, linewidths=0)
        axis.plot(0, 0, marker="+", color=INK, markersize=12, markeredgewidth=2)
        if shift:
            axis.annotate("", (0, shift), (0, 0), arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.6})
        axis.set_title(f"{name}\ncosine {signed(cosine, 1)}, IsoScore {score:.1f}")
        axis.set(aspect="equal", xticks=[], yticks=[])
        words.append(f"{name}: mean cosine {signed(cosine, 1)}, IsoScore {score:.1f}")
    axes[0, 0].set(xlim=(-7, 7), ylim=(-4.5, 8.5))
    return figure, f"Four clouds of points in the plane, the origin marked by a cross. {'; '.join(words)}."


def draw_fans(
    collections: Mapping[str, Sequence[Collection]], titles: Mapping[str, str], steps: Mapping[str, Sequence[int]]
) -> tuple[Figure, str]:
    """Each vector as a ray from the origin, drawn at its angle with the mean vector: a narrow fan is a cone.

    Args:
        collections: of the layers study, by model.
        titles: of the models.
        steps: by model, which checkpoints, each a panel of its row.
    """
    columns = max(len(chosen) for chosen in steps.values())
    figure, axes = plt.subplots(
        len(steps), columns, figsize=(WIDTH, 2.0 * len(steps) + 0.2), squeeze=False, sharex=True, sharey=True
    )
    words = []
    for row, (model, chosen) in zip(axes, steps.items(), strict=True):
        by_step = {collection.step: collection.arrays for collection in collections[model]}
        said = []
        for axis, step in zip(row, chosen, strict=False):
            layer = middle(len(by_step[step]["cosine"]))
            angles = by_step[step]["angles"][layer]
            cosine = float(by_step[step]["cosine"][layer])
            draw_fan(axis, angles)
            when = f"step {step:,}" if len(by_step) > 1 else "one checkpoint"
            axis.set_title(f"{when}\ncosine {signed(cosine)}", fontweight="normal")
            said.append(f"{signed(cosine)} at {when}")
        for axis in row[len(chosen) :]:
            axis.set_axis_off()
        row[0].set_ylabel(fill(titles[model], 16), fontweight="bold")
        words.append(f"{titles[model]}, mean cosine {', '.join(said)}")
    return figure, f"Vectors of the middle layer as rays at their angle with the mean vector: {'; '.join(words)}."


def draw_fan(axis: Axes, angles: np.ndarray) -> None:
    """Rays at angles (radians) with the vertical line, alternately to the left and to the right."""
    # Sides alternate by rank: the sign of an angle means nothing in more than two dimensions.
    ordered = np.sort(angles)
    side = np.where(np.arange(len(ordered)) % 2, 1, -1)
    x, y = np.sin(ordered) * side, np.cos(ordered)
    zeros = np.zeros_like(x)
    axis.plot(np.stack([zeros, x]), np.stack([zeros, y]), color=DOTS, linewidth=0.4, alpha=0.5)
    axis.plot([0, 0], [0, 1.12], color=INK, linewidth=1.6)
    axis.set(xlim=(-1.1, 1.1), ylim=(-0.6, 1.2), aspect="equal", xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw_depth(table: pd.DataFrame, titles: Mapping[str, str], references: Mapping[str, float]) -> tuple[Figure, str]:
    """Mean cosine and IsoScore against depth, last checkpoint and untrained.

    Args:
        table: what :func:`anisotropy.studies.layers.summarise` returned.
        titles: of the models.
        references: by model, the IsoScore of as many round Gaussian rows.
    """
    figure, axes = stacked(2, 2.4)
    words = []
    for number, (model, rows) in enumerate(table.groupby("model", sort=False)):
        last, colour = rows["step"].max(), model_colour(number)
        said = []
        for axis, measure in zip(axes, _NAMES, strict=True):
            own = rows[rows["measure"] == measure]
            trained, untrained = own[own["step"] == last], own[own["step"] == 0]
            axis.fill_between(trained["depth"], trained["low"], trained["high"], color=colour, alpha=0.2, linewidth=0)
            axis.plot(trained["depth"], trained["value"], color=colour, marker=model_marker(number), markersize=5)
            if last > 0 and len(untrained):
                axis.plot(untrained["depth"], untrained["value"], color=colour, linestyle="--", linewidth=1)
            first, final = trained["value"].iloc[0], trained["value"].iloc[-1]
            said.append(f"{_NAMES[measure]} from {signed(first)} at the input to {signed(final)} after the last norm")
        axes[1].axhline(references[str(model)], color=NULL, linewidth=4, zorder=0)
        words.append(f"{titles[str(model)]}: {', '.join(said)}")
    for axis, name in zip(axes, _NAMES.values(), strict=True):
        axis.set(ylabel=name, ylim=(min(0, axis.get_ylim()[0]), 1))
    axes[1].set(xlabel="depth (0 first block's input, 1 after the final norm)")
    handles = _model_handles(table, titles)
    if (table["step"] > 0).any() and (table["step"] == 0).any():
        handles.append(Line2D([], [], color=CONTROL, linestyle="--", linewidth=1, label="untrained"))
    handles.append(Line2D([], [], color=NULL, linewidth=4, label="round Gaussian (IsoScore)"))
    figure.legend(handles=handles, loc="outside upper center", ncols=1)
    return figure, f"Mean cosine and IsoScore against depth at the last checkpoint. {'. '.join(words)}."


def draw_course(table: pd.DataFrame, titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Mean cosine and IsoScore of the middle layer over training, with 95 % intervals over documents."""
    figure, axes = stacked(2, 2.2)
    words = []
    for number, (model, rows) in enumerate(table.groupby("model", sort=False)):
        rows = rows[rows["layer"] == middle(rows["layer"].max() + 1)]
        colour, marker = model_colour(number), model_marker(number)
        for axis, measure in zip(axes, _NAMES, strict=True):
            own = rows[rows["measure"] == measure]
            axis.fill_between(own["step"], own["low"], own["high"], color=colour, alpha=0.2, linewidth=0)
            axis.plot(own["step"], own["value"], color=colour, marker=marker, markersize=5)
        cosine = rows[rows["measure"] == "cosine"]
        peak = cosine.iloc[int(cosine["value"].argmax())]
        words.append(
            f"in {titles[str(model)]} the mean cosine is largest, {signed(peak['value'])}, at step "
            f"{int(peak['step']):,} and {signed(cosine['value'].iloc[-1])} at the last checkpoint"
        )
    for axis, name in zip(axes, _NAMES.values(), strict=True):
        axis.set(ylabel=name, ylim=(min(0, axis.get_ylim()[0]), 1), xlim=(-0.4, 1.15 * max(1, table["step"].max())))
        step_axis(axis, table["step"])
    axes[-1].set_xlabel("training step (log scale)")
    axes[0].legend(handles=_model_handles(table, titles))
    return figure, f"Mean cosine and IsoScore of the middle layer over training: {'; '.join(words)}."


def draw_make_up(table: pd.DataFrame, titles: Mapping[str, str], coordinates: int) -> tuple[Figure, str]:
    """What the cosine is made of: as measured, without its largest coordinates, and with the mean taken away."""
    kinds = {
        "cosine": ("as measured", INK, "o"),
        "cosine_without": (f"without the {coordinates} largest coordinates", CONTROL, "s"),
        "cosine_centred": ("mean taken away", DOTS, "D"),
    }
    models = list(dict.fromkeys(table["model"]))
    layers = table.groupby("model")["layer"].max()
    heights = [0.26 * (layers[model] + 1) + 0.5 for model in models]
    figure, axes = plt.subplots(
        len(models), 1, figsize=(WIDTH, sum(heights) + 0.8), height_ratios=heights, sharex=True, squeeze=False
    )
    words = []
    for axis, model in zip(axes[:, 0], models, strict=True):
        rows = table[(table["model"] == model) & (table["step"] == table[table["model"] == model]["step"].max())]
        means = {}
        for kind, (_, colour, marker) in kinds.items():
            own = rows[rows["measure"] == kind]
            axis.plot(own["value"], own["layer"], color=colour, marker=marker, linestyle="", markersize=6)
            means[kind] = own.loc[own["layer"] > 0, "value"].mean()
        axis.axvline(0, color=NULL, zorder=0)
        axis.set(title=titles[model], ylabel="layer")
        axis.set_yticks(range(0, layers[model] + 1, 1 + layers[model] // 10))
        axis.invert_yaxis()
        words.append(
            f"{titles[model]}, average over layers after the input: {signed(means['cosine'])} as measured, "
            f"{signed(means['cosine_without'])} without those coordinates, "
            f"{signed(means['cosine_centred'])} with the mean taken away"
        )
    axes[-1, 0].set_xlabel("mean cosine")
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=name) for name, colour, marker in kinds.values()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=1)
    return figure, f"Mean cosine by layer at the last checkpoint, measured in three ways. {'; '.join(words)}."


def _model_handles(table: pd.DataFrame, titles: Mapping[str, str]) -> list[Line2D]:
    return [
        Line2D([], [], color=model_colour(number), marker=model_marker(number), label=titles[model])
        for number, model in enumerate(dict.fromkeys(table["model"]))
    ]
