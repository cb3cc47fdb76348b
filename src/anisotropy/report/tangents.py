"""Pictures of the tangent alignment chapter (Table 1 over training); every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.ticker import FuncFormatter

from anisotropy.report.figures import (
    CONTROL,
    INK,
    NULL,
    PALETTE,
    TANGENT,
    WIDTH,
    model_colour,
    model_marker,
    plt,
    stacked,
    step_axis,
)
from anisotropy.report.tables import signed

_ACTIVATIONS = PALETTE[2]
_BASES = {"early": ("early basis", TANGENT, "o"), "own": ("own basis", _ACTIVATIONS, "s")}
_NAMES = {"energy_ratio": "E_r", "excess": "ΔT − null (%)"}
# The weight reading and what imitates it without any signal: column, label, marker, colour.
_WEIGHT = (
    ("energy_ratio", "weight gradient", "s", TANGENT),
    ("energy_ratio_unpaired", "upstream gradients dealt out at random", "x", PALETTE[1]),
    ("energy_ratio_noise", "noise for upstream gradients", "|", INK),
    ("energy_ratio_centred", "means taken out", "D", CONTROL),
)


def draw_probes() -> tuple[Figure, str]:
    """Where in a network the probes are, and which way activations and gradients run."""
    figure, axis = plt.subplots(figsize=(WIDTH, 4.0))
    parts = ["tokens → embedding", "block 1", "…", "middle block", "…", "last block", "head → loss"]
    places = {0.5: "T1_in*", 1.5: "T1_out", 2.5: "Tm", 4.5: "Tl"}
    for place, name in enumerate(parts):
        height = float(place)
        if name == "…":
            axis.text(0, height, "⋮", ha="center", va="center", fontsize=14)
            continue
        box = FancyBboxPatch((-1.15, height - 0.27), 2.3, 0.54, boxstyle="round,pad=0.02", fc=NULL, ec="none")
        axis.add_patch(box)
        axis.text(0, height, name, ha="center", va="center")
    for height, probe in places.items():
        axis.plot([-1.15, 1.25], [height, height], color=TANGENT, linewidth=2.5)
        axis.text(1.35, height, probe, ha="left", va="center", color=TANGENT, weight="bold")
    for x, start, end, text, colour in (
        (-1.6, 0.0, 6.0, "activations h", _ACTIVATIONS),
        (-2.2, 6.0, 0.0, "gradients ∂loss/∂h", INK),
    ):
        axis.add_patch(
            FancyArrowPatch((x, start), (x, end), arrowstyle="-|>", mutation_scale=16, color=colour, linewidth=1.6)
        )
        axis.text(x - 0.12, 3, text, rotation=90, ha="right", va="center", color=INK)
    axis.set(xlim=(-2.75, 2.3), ylim=(-0.45, 6.45))
    axis.set_axis_off()
    return figure, (
        "A network as a stack: embedding, first block, more blocks, middle block, last block, loss. The probe T1_in "
        "lies before the first block, T1_out behind it, Tm before the middle block, Tl before the last. Activations "
        "run up through them, gradients of the loss run down."
    )


def chosen_basis(table: pd.DataFrame) -> str:
    """The primary basis where a course has it, else the model's own."""
    return "early" if (table["basis"] == "early").any() else str(table["basis"].iloc[0])


def draw_course(
    courses: Mapping[str, pd.DataFrame], losses: pd.DataFrame, titles: Mapping[str, str], gradient: str = "activation"
) -> tuple[Figure, str]:
    """The course of E_r at the first probe, under each model's loss: early basis, own basis, shuffled labels, null.

    Args:
        courses: by model, what :func:`anisotropy.studies.tangent_tables.course_table` returned; with two steps or more.
        losses: columns ``model``, ``step``, ``loss`` (nats).
        titles: of the models.
        gradient: which reading.

    Returns:
        The figure and its alternative text.
    """
    heights = [0.5, 1.0] * len(courses)
    figure, axes = plt.subplots(
        len(heights), 1, figsize=(WIDTH, 3.1 * len(courses) + 0.6), height_ratios=heights, squeeze=False
    )
    words = []
    for number, (model, table) in enumerate(courses.items()):
        above, axis = axes[2 * number, 0], axes[2 * number + 1, 0]
        above.sharex(axis)
        loss = losses[losses["model"] == model]
        above.plot(loss["step"], loss["loss"], color=INK, marker="o", markersize=3)
        above.set(title=titles[model], ylabel="loss (nats)")
        above.tick_params(labelbottom=False)
        rows = table[(table["gradient"] == gradient)]
        probe = rows["probe"].iloc[0]
        rows = rows[rows["probe"] == probe]
        first = rows[rows["basis"] == chosen_basis(rows)]
        axis.fill_between(
            first["step"], first["energy_ratio_null_low"], first["energy_ratio_null_high"], color=NULL, linewidth=0
        )
        for basis, (name, colour, marker) in _BASES.items():
            here = rows[rows["basis"] == basis]
            if here.empty:
                continue
            axis.plot(here["step"], here["energy_ratio"], color=colour, marker=marker, markersize=4)
            axis.plot(here["step"], here["energy_ratio_shuffled_labels"], "--", color=colour, linewidth=1.2)
            words.append(f"{titles[model]}, {name}: {_ends(here, 'energy_ratio')}")
        ratio_axis(axis, f"E_r at {probe}")
        _steps(axis, rows["step"])
    axes[-1, 0].set_xlabel("training step (log scale)")
    present = {basis for table in courses.values() for basis in table["basis"]}
    handles: list[Any] = [
        Line2D([], [], color=colour, marker=marker, markersize=4, label=name)
        for basis, (name, colour, marker) in _BASES.items()
        if basis in present
    ]
    handles += [
        Line2D([], [], color=CONTROL, linestyle="--", linewidth=1.2, label="shuffled labels"),
        Patch(color=NULL, label="random bases, 95 %"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Loss and energy ratio over training, one pair of panels a model: {'; '.join(words)}."


def short(value: float) -> str:
    """A number with about three digits and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}".replace("-", "−")


def _steps(axis: Axes, steps: pd.Series) -> None:
    step_axis(axis, steps)
    axis.set_xlim(-0.4, 1.25 * max(1, steps.max()))


def ratio_axis(axis: Axes, label: str) -> None:
    """A log axis of ratios to chance, with a line at 1; call it when everything is drawn."""
    axis.set_yscale("log")
    axis.axhline(1, color=CONTROL, linewidth=0.8)
    low, high = axis.get_ylim()
    # Two ticks a decade where they have room.
    every = (1, 3) if high / low < 2_000 else (1,)
    ticks = [digit * 10.0**power for power in range(-4, 7) for digit in every]
    axis.set_yticks([tick for tick in ticks if low <= tick <= high])
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.minorticks_off()
    axis.set_ylim(low, high * 1.25)
    axis.set_ylabel(label)


def _ends(rows: pd.DataFrame, quantity: str) -> str:
    """First, highest and last value of a course, in words."""
    rows = rows.sort_values("step")
    first, top, last = rows.iloc[0], rows.sort_values(quantity).iloc[-1], rows.iloc[-1]
    return (
        f"{short(first[quantity])} at step {first['step']}, highest {short(top[quantity])} at step {top['step']}, "
        f"{short(last[quantity])} at step {last['step']}"
    )


def draw_all_probes(
    courses: Mapping[str, pd.DataFrame],
    titles: Mapping[str, str],
    quantity: str,
    basis: str,
    gradient: str = "activation",
) -> tuple[Figure, str]:
    """A course at every probe, a panel each, models side by side in it.

    Args:
        courses: as for :func:`draw_course`; at least one has this reading and basis.
        titles: of the models.
        quantity: ``energy_ratio``, with shuffled labels dashed, or ``excess`` (ΔT − null).
        basis: of the proxy.
        gradient: which reading.
    """
    chosen = {
        model: table[(table["basis"] == basis) & (table["gradient"] == gradient)] for model, table in courses.items()
    }
    chosen = {model: table for model, table in chosen.items() if not table.empty}
    probes = list(dict.fromkeys(probe for table in chosen.values() for probe in table["probe"]))
    figure, axes = stacked(len(probes), 1.55)
    words = []
    for axis, probe in zip(axes, probes, strict=True):
        for number, (model, table) in enumerate(chosen.items()):
            here = table[table["probe"] == probe]
            if here.empty:
                continue
            colour = model_colour(number)
            if quantity == "energy_ratio":
                null = here["energy_ratio_null_low"], here["energy_ratio_null_high"]
                axis.plot(here["step"], here["energy_ratio_shuffled_labels"], "--", color=colour, linewidth=1.2)
            else:
                null = tuple(here[f"delta_null_{end}"] - here["delta_null"] for end in ("low", "high"))
                axis.fill_between(
                    here["step"], here["excess_low"], here["excess_high"], color=colour, alpha=0.3, linewidth=0
                )
            axis.fill_between(here["step"], *null, color=NULL, linewidth=0, zorder=0)
            axis.plot(here["step"], here[quantity], color=colour, marker=model_marker(number), markersize=4)
            words.append(f"{titles[model]} at {probe} {_ends(here, quantity)}")
        if quantity == "energy_ratio":
            ratio_axis(axis, "E_r")
        else:
            axis.set_yscale("symlog", linthresh=10, linscale=0.6)
            axis.set_yticks(ticks := [-10, 0, 10, 100, 1000], [f"{tick:,}".replace("-", "−") for tick in ticks])
            axis.minorticks_off()
            top = max(table[f"{quantity}_high"].max() for table in chosen.values())
            bottom = min(table[f"{quantity}_low"].min() for table in chosen.values())
            axis.set_ylim(min(-12, 1.2 * bottom), max(12, 1.3 * top))
            axis.axhline(0, color=CONTROL, linewidth=0.8)
            axis.set_ylabel("ΔT − null (%)")
        axis.set_title(probe)
    _steps(axes[-1], pd.concat([table["step"] for table in chosen.values()]))
    axes[-1].set_xlabel("training step (log scale)")
    handles: list[Any] = [
        Line2D([], [], color=model_colour(number), marker=model_marker(number), markersize=4, label=titles[model])
        for number, model in enumerate(chosen)
    ]
    if quantity == "energy_ratio":
        handles.append(Line2D([], [], color=CONTROL, linestyle="--", linewidth=1.2, label="shuffled labels"))
    handles.append(Patch(color=NULL, label="random directions, 95 %"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"{_NAMES[quantity]} over training with the {basis} basis, a panel per probe: {'; '.join(words)}."


def draw_readings(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str], basis: str) -> tuple[Figure, str]:
    """Both readings of the gradient at the last checkpoint, and what imitates the weight reading.

    Args:
        courses: as for :func:`draw_course`; at least one has the weight reading.
        titles: of the models.
        basis: of the proxy.
    """
    last = {}
    for model, table in courses.items():
        rows = table[(table["basis"] == basis) & (table["step"] == table["step"].max())]
        if (rows["gradient"] == "weight").any():
            last[model] = rows
    figure, axes = stacked(len(last), 2.2)
    words = []
    for axis, (model, rows) in zip(axes, last.items(), strict=True):
        probes = list(dict.fromkeys(rows["probe"]))
        by_activation = rows[rows["gradient"] == "activation"].set_index("probe")["energy_ratio"]
        by_weight = rows[rows["gradient"] == "weight"].set_index("probe")
        for place, probe in enumerate(probes):
            axis.axhline(place, color=NULL, linewidth=0.8, zorder=0)
            if probe in by_activation:
                axis.plot(by_activation[probe], place, "o", color=_ACTIVATIONS, markersize=8)
            if probe not in by_weight.index:
                continue
            for column, _, marker, colour in _WEIGHT:
                look: dict[str, Any] = {"fillstyle": "none"} if marker == "D" else {}
                size = 11 if marker == "|" else 7
                axis.plot(by_weight.at[probe, column], place, marker, color=colour, markersize=size, mew=1.8, **look)
            words.append(
                f"{titles[model]} at {probe} activation {short(by_activation.get(probe, np.nan))}, weight "
                f"{short(by_weight.at[probe, 'energy_ratio'])}, dealt out at random "
                f"{short(by_weight.at[probe, 'energy_ratio_unpaired'])}"
            )
        axis.set_xscale("log")
        axis.axvline(1, color=CONTROL, linewidth=0.8)
        axis.set_yticks(range(len(probes)), probes)
        axis.set_ylim(len(probes) - 0.5, -0.5)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_title(titles[model])
    axes[-1].set_xlabel("E_r at the last checkpoint (log scale)")
    handles = [Line2D([], [], color=_ACTIVATIONS, marker="o", linestyle="", markersize=8, label="activation gradient")]
    handles += [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linestyle="",
            markeredgewidth=1.8,
            fillstyle="none" if marker == "D" else "full",
            label=name,
        )
        for _, name, marker, colour in _WEIGHT
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure, f"E_r under both readings of the gradient, last checkpoint: {'; '.join(words)}."


def draw_ranks(tables: Mapping[str, pd.DataFrame], titles: Mapping[str, str], rank: int) -> tuple[Figure, str]:
    """E_r and ΔT − null against the rank of the proxy, two panels a model, a line per probe.

    Args:
        tables: by model, what :func:`anisotropy.studies.tangent_tables.rank_table` returned; none empty.
        titles: of the models.
        rank: the rank of the rest of the page, marked.
    """
    figure, axes = stacked(2 * len(tables), 1.75)
    words = []
    for number, (model, table) in enumerate(tables.items()):
        pair = axes[2 * number : 2 * number + 2]
        for place, (probe, rows) in enumerate(table.groupby("probe", sort=False)):
            for axis, quantity in zip(pair, _NAMES, strict=True):
                axis.plot(
                    rows["rank"], rows[quantity], color=model_colour(place), marker=model_marker(place), markersize=5
                )
            ends = rows.sort_values("rank").iloc[[0, -1]]
            words.append(
                f"{titles[model]} at {probe} E_r from {short(ends['energy_ratio'].iloc[0])} at rank "
                f"{ends['rank'].iloc[0]} to {short(ends['energy_ratio'].iloc[1])} at rank {ends['rank'].iloc[1]}, ΔT − "
                f"null from {signed(ends['excess'].iloc[0], 0)} to {signed(ends['excess'].iloc[1], 0)} %"
            )
        ranks = sorted(set(table["rank"]))
        for axis in pair:
            axis.axvline(rank, color=CONTROL, linewidth=0.8, linestyle=":")
            axis.set_xscale("log", base=2)
            axis.set_xticks(ranks, [str(one) for one in ranks])
            axis.minorticks_off()
        ratio_axis(pair[0], "E_r")
        pair[0].set_title(titles[model])
        pair[1].axhline(0, color=CONTROL, linewidth=0.8)
        pair[1].set_ylabel("ΔT − null (%)")
    axes[-1].set_xlabel("rank k of the proxy")
    probes = list(dict.fromkeys(probe for table in tables.values() for probe in table["probe"]))
    handles = [
        Line2D([], [], color=model_colour(place), marker=model_marker(place), markersize=5, label=probe)
        for place, probe in enumerate(probes)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure, f"The rank sweep, two panels per model: {'; '.join(words)}."


def draw_spectra(
    spectra: Mapping[str, pd.DataFrame], titles: Mapping[str, str], probe: str, rank: int
) -> tuple[Figure, str]:
    """Cumulated gradient energy and activation variance over the principal directions of activations.

    Args:
        spectra: by model, what :func:`anisotropy.studies.tangent_tables.spectrum_table` returned, with a column
            ``step``; of the last checkpoint and, where there is another, of the first, dotted.
        titles: of the models.
        probe: which one.
        rank: the rank of the rest of the page, marked.
    """
    figure, axes = stacked(len(spectra), 2.1, share_x=False)
    words = []
    for axis, (model, table) in zip(axes, spectra.items(), strict=True):
        rows = table[table["probe"] == probe]
        last = rows["step"].max()
        when = f" step {last}" if rows["step"].nunique() > 1 else ""
        d = rows["direction"].max()
        axis.plot(np.arange(1, d + 1), np.arange(1, d + 1) / d, color=CONTROL, linewidth=1)
        for step, here in rows.groupby("step"):
            here = here.sort_values("direction")
            line = "-" if step == last else ":"
            for column, colour in (("gradient_energy", INK), ("activation_variance", _ACTIVATIONS)):
                shares = here[column].cumsum()
                axis.plot(here["direction"], shares, line, color=colour)
                if step == last and rank <= d:
                    words.append(
                        f"{titles[model]}{when}, first {rank} directions: "
                        f"{shares.iloc[rank - 1]:.2f} of the {column.replace('_', ' ')}"
                    )
        axis.axvline(rank, color=CONTROL, linewidth=0.8, linestyle=":")
        axis.set_xscale("log", base=2)
        ticks = [2**power for power in range(0, 15, 2 if d > 256 else 1) if 2**power <= d]
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        axis.set(title=titles[model], ylabel="share up to here", ylim=(0, 1.02))
    axes[-1].set_xlabel("principal directions of the activations")
    handles = [
        Line2D([], [], color=INK, label="gradient energy"),
        Line2D([], [], color=_ACTIVATIONS, label="activation variance"),
        Line2D([], [], color=CONTROL, linewidth=1, label="isotropic"),
    ]
    if first := {int(table["step"].min()) for table in spectra.values() if table["step"].nunique() > 1}:
        steps = " or ".join(f"{step:,}" for step in sorted(first))
        handles.append(Line2D([], [], color=INK, linestyle=":", label=f"the same at step {steps}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Cumulated shares over principal directions at {probe}: {'; '.join(words)}."
