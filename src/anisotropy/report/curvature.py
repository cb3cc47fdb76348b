"""Pictures and sentences of the curvature chapter (Figure 2 of the paper); every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anisotropy.report.figures import CONTROL, FREQUENT, MARKERS, NULL, PALETTE, RARE, WIDTH, plt, stacked
from anisotropy.report.rules.curvature import C7_SLOPE, C7_WITHIN
from anisotropy.report.scorecard import Verdict
from anisotropy.report.tables import signed


def draw_surface(rays: pd.DataFrame, radius: float) -> tuple[Figure, str]:
    """A surface cut by an ambient ball, with the geodesics along its two principal directions.

    Args:
        rays: what :func:`anisotropy.studies.curvature.rays_table` returned.
        radius: of the ball.

    Returns:
        The figure and its alternative text.
    """
    figure = plt.figure(figsize=(WIDTH, 3.7))
    axis: Any = figure.add_subplot(projection="3d", computed_zorder=False)
    groups = [ray for _, ray in rays.groupby("angle")]
    x, y, z = (np.stack([ray[name] for ray in [*groups, groups[0]]]) for name in ("x", "y", "z"))
    axis.plot_surface(x, y, z, color=NULL, alpha=0.6, linewidth=0, rstride=1, cstride=1)
    axis.plot(x[:, -1], y[:, -1], z[:, -1], color=CONTROL, linestyle="--")
    handles = [Line2D([], [], color=CONTROL, linestyle="--", label=f"edge of the ball, t = {radius:g}")]
    words = []
    quarter = len(groups) // 4
    for place, colour, marker in ((0, RARE, "s"), (quarter, FREQUENT, "o")):
        for ray in (groups[place], groups[place + 2 * quarter]):
            axis.plot(ray["x"], ray["y"], ray["z"], color=colour, linewidth=2.5)
            axis.plot(*ray[["x", "y", "z"]].to_numpy()[-1:].T, marker, color=colour, markersize=6)
        ray = groups[place]
        text = f"κ = {ray['curvature'].iloc[0]:g}: r = {ray['arc'].max():.3f}"
        words.append(text)
        handles.append(Line2D([], [], color=colour, marker=marker, label=text))
    axis.plot([0], [0], [0], "o", color="black", markersize=5)
    axis.set_box_aspect(np.ptp([x.ravel(), y.ravel(), z.ravel()], axis=1), zoom=1.32)
    axis.set_axis_off()
    axis.view_init(elev=24, azim=-58)
    figure.legend(handles=handles, loc="outside lower center")
    return figure, (
        f"A surface that bends differently in two directions, cut by a ball of radius {radius:g} around its lowest "
        f"point. Arc length from the point to the ball's edge: {'; '.join(words)}."
    )


def draw_profiles(curves: pd.DataFrame, dots: pd.DataFrame, radius: float) -> tuple[Figure, str]:
    """Figure 2: one ambient ball, geodesics of several curvatures, and where each density puts its points.

    Args:
        curves, dots: what :func:`anisotropy.studies.curvature.profile_tables` returned, one panel a density.
        radius: of the ball.
    """
    densities = list(dict.fromkeys(dots["density"]))
    figure, axes = stacked(len(densities), 2.85, share_x=False)
    angle = np.linspace(0, np.pi / 2, 100)
    words = []
    for letter, axis, density in zip("abcdef", axes, densities, strict=False):
        axis.plot(radius * np.cos(angle), radius * np.sin(angle), color=CONTROL, linestyle="--", linewidth=1)
        handles, parts = [], []
        for number, (kappa, curve) in enumerate(curves.groupby("curvature")):
            colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
            here = dots[(dots["density"] == density) & (dots["curvature"] == kappa)]
            axis.plot(curve["along"], curve["normal"], color=colour, alpha=0.4)
            axis.scatter(here["along"], here["normal"], s=13, color=colour, marker=marker, linewidths=0, zorder=3)
            text = f"κ = {kappa:g}: {signed(100 * here['bias'].iloc[0])} %"
            parts.append(text)
            handles.append(Line2D([], [], color=colour, marker=marker, markersize=5, label=text))
        axis.legend(handles=handles, loc="center right", title="E[r]/E[t] − 1", title_fontsize=10)
        ticks = np.array([0, 0.5, 1]) * radius
        axis.set(title=f"({letter}) {density}", ylabel="normal", xticks=ticks, yticks=ticks, aspect="equal")
        axis.set(xlim=(-0.05 * radius, 1.95 * radius), ylim=(-0.05 * radius, 1.08 * radius))
        words.append(f"({letter}) {density}: {', '.join(parts)}")
    axes[-1].set_xlabel("along the tangent")
    return figure, (
        f"Geodesics of {curves['curvature'].nunique()} curvatures inside one ball of radius {radius:g}, with points "
        f"on them. How much longer the mean arc is than the mean chord: {'; '.join(words)}."
    )


def orders(series: pd.DataFrame) -> pd.Series:
    """Order of the series' remainder by place: the log–log slope of the error, plus one for the division by t."""
    return series.groupby("place", sort=False)[["chord", "error"]].apply(
        lambda rows: 1 + np.polyfit(np.log(rows["chord"]), np.log(rows["error"]), 1)[0]
    )


def draw_series(series: pd.DataFrame) -> tuple[Figure, str]:
    """Error of t + κ²t³/24 against exact arcs, over the chord.

    Args:
        series: what :func:`anisotropy.studies.curvature.series_table` returned.
    """
    figure, axis = plt.subplots(figsize=(WIDTH, 4.2))
    found = orders(series)
    handles = []
    for number, (place, order) in enumerate(found.items()):
        rows = series[series["place"] == place]
        colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        line = "-" if number < len(PALETTE) else ":"
        # The first is large and hollow: places with equal arcs would hide it.
        look: dict[str, Any] = {"markersize": 8, "fillstyle": "none"} if number == 0 else {"markersize": 4}
        axis.loglog(rows["chord"], rows["error"], line, color=colour, marker=marker, **look)
        handles.append(
            Line2D([], [], color=colour, marker=marker, linestyle=line, label=f"{place}: {order:.1f}", **look)
        )
    axis.set_xticks(ticks := [0.03, 0.1, 0.3], [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set(xlabel="chord t / smallest radius of curvature", ylabel="|r − series| / t")
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=2, title="order of the remainder")
    legend.get_title().set_fontsize(10)
    text = ", ".join(f"{place} {order:.1f}" for place, order in found.items())
    return figure, f"Error of the series against the chord, log–log. Fitted order of the remainder: {text}."


def order_sentence(series: pd.DataFrame) -> str:
    """Whether each place's remainder has the order its symmetry predicts, computed."""
    found = orders(series)
    groups: dict[str, list[str]] = {"5": [], "4": [], "neither 4 nor 5": []}
    for place, order in found.items():
        key = next((name for name in ("5", "4") if abs(order - float(name)) < 0.3), "neither 4 nor 5")
        groups[key].append(f"{place} ({order:.2f})")
    text = "; ".join(f"{key} at {', '.join(places)}" for key, places in groups.items() if places)
    worst = series.groupby("place")["error"].max()
    return (
        f"Fitted orders of the remainder: {text}. "
        f"At the largest chord ({series['chord'].max():g} radii) the series is off by at most "
        f"{100 * worst.max():.2g} % of the chord, at {worst.idxmax()}."
    )


def draw_attenuation(bias: pd.DataFrame) -> tuple[Figure, str]:
    """Relative bias against κσ: Monte Carlo with its errors on top of the closed form.

    Args:
        bias: what :func:`anisotropy.studies.curvature.bias_table` returned.
    """
    figure, axis = plt.subplots(figsize=(WIDTH, 4.1))
    handles, words = [], []
    for number, (density, group) in enumerate(bias.groupby("density", sort=False)):
        colour = PALETTE[number]
        for marker, (_, rows) in zip(MARKERS, group.groupby("curvature"), strict=False):
            x = rows["scale"] * rows["curvature"]
            axis.plot(x, rows["closed"], color=colour, linewidth=1)
            axis.errorbar(
                x,
                rows["estimate"],
                1.96 * rows["standard_error"],
                fmt=marker,
                color=colour,
                markersize=5,
                fillstyle="none",
            )
        slopes = [
            np.polyfit(np.log(rows["scale"]), np.log(rows["estimate"]), 1)[0] for _, rows in group.groupby("curvature")
        ]
        text = f"slope {min(slopes):.3f}"
        if f"{min(slopes):.3f}" != f"{max(slopes):.3f}":
            text += f" … {max(slopes):.3f}"
        handles.append(Line2D([], [], color=colour, label=f"{density}: {text}"))
        words.append(f"{density} {text}")
    for marker, kappa in zip(MARKERS, sorted(bias["curvature"].unique()), strict=False):
        handles.append(
            Line2D([], [], color="black", marker=marker, linestyle="", fillstyle="none", label=f"κ = {kappa:g}")
        )
    axis.set(xscale="log", yscale="log", xlabel="κσ", ylabel="E[r − t] / E[t]")
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, (
        f"Relative curvature bias against κσ on log scales, Monte Carlo on the lines of the closed form: "
        f"{'; '.join(words)}, over {bias['curvature'].nunique()} curvatures."
    )


def place_sentence(slopes: pd.DataFrame) -> str:
    """Where the slope is 2 within the rule's tolerance, along one direction and along both, computed.

    Args:
        slopes: what :func:`anisotropy.studies.curvature.place_slopes` returned.
    """
    parts = []
    for column, words in (("one", "along one direction"), ("both", "averaged over a direction and its opposite")):
        off = (slopes[column] - C7_SLOPE).abs() > C7_WITHIN
        text = f"{words}, the slope is 2 within {C7_WITHIN:g} at {(~off).sum()} of {len(slopes)} places"
        if off.any():
            missed = ", ".join(f"{row.place} {getattr(row, column):.2f}" for row in slopes[off].itertuples())
            text += f" (not at {missed})"
        parts.append(text)
    first = parts[0]
    return f"{first[0].upper()}{first[1:]}; {parts[1]}."


def draw_cut(cuts: pd.DataFrame) -> tuple[Figure, str]:
    """The bias and its local slope, for shapes that differ in where they are cut.

    Args:
        cuts: what :func:`anisotropy.studies.curvature.cut_table` returned.
    """
    figure, (top, bottom) = stacked(2, 2.2)
    words = []
    bottom.axhspan(C7_SLOPE - C7_WITHIN, C7_SLOPE + C7_WITHIN, color=NULL)
    for number, (density, rows) in enumerate(cuts.groupby("density", sort=False)):
        look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 4}
        top.loglog(rows["scale"], rows["exact"], label=density, **look)
        bottom.semilogx(rows["scale"], rows["slope"], **look)
        last = rows.iloc[-1]
        words.append(f"{density} {rows['slope'].iloc[0]:.2f} at σ = {rows['scale'].iloc[0]:g} and {last['slope']:.2f} "
                     f"at σ = {last['scale']:g}")  # fmt: skip
    top.set(ylabel="E[r − t] / E[t]")
    top.legend(loc="upper left")
    bottom.set(xlabel="σ (length)", ylabel="local slope")
    return figure, f"Relative bias against σ and its local log–log slope; local slopes: {'; '.join(words)}."


def draw_population(volumes: pd.DataFrame) -> tuple[Figure, str]:
    """How many more neighbours than in flat space lie within an ambient ball: sampled and to second order.

    Args:
        volumes: what :func:`anisotropy.studies.curvature.volume_table` returned.
    """
    figure, axis = plt.subplots(figsize=(WIDTH, 3.7))
    axis.axhline(0, color=CONTROL, linewidth=1)
    words = []
    for number, (name, rows) in enumerate(volumes.groupby("manifold", sort=False)):
        colour, marker = PALETTE[number], MARKERS[number]
        axis.plot(rows["radius"], rows["predicted"], color=colour)
        axis.errorbar(
            rows["radius"], rows["sampled"], 1.96 * rows["standard_error"], fmt=marker, color=colour, markersize=5,
            label=name,
        )  # fmt: skip
        words.append(f"{name} {signed(rows['sampled'].iloc[-1], 1)} %")
    axis.set(xlabel="ambient radius t (radii of curvature)", ylabel="more than flat (%)")
    figure.legend(loc="outside lower center", ncols=2)
    return figure, (
        f"Volume within an ambient ball, in percent above flat space, against its radius. At the largest radius "
        f"({volumes['radius'].max():g}): {', '.join(words)}."
    )


def population_sentence(volumes: pd.DataFrame) -> str:
    """What the sampled volumes say of each manifold: more, fewer or as many neighbours as in flat space, computed."""
    groups: dict[str, list[str]] = {"more": [], "fewer": [], "as many, within three standard errors,": []}
    worst = 0.0
    for name, rows in volumes.groupby("manifold", sort=False):
        last = rows.iloc[-1]
        half = 3 * last["standard_error"]
        key = list(groups)[0 if last["sampled"] > half else 1 if last["sampled"] < -half else 2]
        groups[key].append(f"the {name} ({signed(last['sampled'], 1)} % ± {half:.1f}, predicted "
                           f"{signed(last['predicted'], 1)} %)")  # fmt: skip
        worst = max(worst, float((rows["sampled"] - rows["predicted"]).abs().max()))
    text = "; ".join(f"{key} on {', '.join(names)}" for key, names in groups.items() if names)
    return (
        f"Neighbours within t = {volumes['radius'].max():g}, against flat space: {text}. Sampling and the second-order "
        f"volume differ by at most {worst:.1f} percentage points at any radius."
    )


def draw_split(split: pd.DataFrame) -> tuple[Figure, str]:
    """Tangent and normal variance as the scale shrinks, and their ratio.

    Args:
        split: what :func:`anisotropy.studies.curvature.split_table` returned.
    """
    figure, (top, bottom) = stacked(2, 2.1)
    words = []
    for name, colour, marker in (("tangent", FREQUENT, "o"), ("normal", RARE, "s")):
        slope = np.polyfit(np.log(split["scale"]), np.log(split[name]), 1)[0]
        top.loglog(split["scale"], split[name], color=colour, marker=marker, label=f"{name}: slope {slope:.2f}")
        words.append(f"{name} variance has slope {slope:.2f}")
    top.set(ylabel="variance (length²)")
    top.legend()
    bottom.loglog(split["scale"], split["predicted"], color=CONTROL, label="σ²‖II‖²/(2m)")
    bottom.loglog(split["scale"], split["share"], "o", color="black", label="sampled")
    bottom.set(xlabel="σ (length)", ylabel="normal / tangent")
    bottom.legend()
    gap = (split["share"] / split["predicted"] - 1).abs().max()
    return figure, (
        f"Variance along and across the tangent space against σ, log–log: {'; '.join(words)}. Their ratio follows the "
        f"prediction within {100 * gap:.1f} %."
    )


def ratio_table(ratios: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> pd.DataFrame:
    """Scale ratios as text for a page: one row per model and stage.

    Args:
        ratios: what :func:`anisotropy.studies.curvature.scale_ratio` returned, with ``model`` and ``stage``.
        titles: of the models.
    """
    return pd.DataFrame(
        [
            {
                "model": titles[row["model"]],
                "stage": row["stage"],
                "tokens a group": row["tokens"],
                "σ rare": f"{row['rare']:.3g}",
                "σ frequent": f"{row['frequent']:.3g}",
                "ratio [95 % over tokens]": f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
                "shuffled, 95 %": f"{row['null_low']:.2f} … {row['null_high']:.2f}",
                "bias ratio": f"{row['bias_ratio']:.2f}",
            }
            for row in ratios
        ]
    )


def draw_ratios(ratios: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> tuple[Figure, str]:
    """σ_rare/σ_frequent per model and stage, beside shuffled frequencies; arguments as for :func:`ratio_table`."""
    figure, axis = plt.subplots(figsize=(WIDTH, 1.5 + 0.55 * len(ratios)))
    axis.axvline(1, color=CONTROL, linewidth=1)
    words = []
    for y, row in enumerate(ratios):
        trained = row["stage"] == "trained"
        axis.fill_betweenx([y - 0.3, y + 0.3], row["null_low"], row["null_high"], color=NULL, linewidth=0)
        axis.plot([row["low"], row["high"]], [y, y], color=FREQUENT if trained else CONTROL)
        axis.plot(row["ratio"], y, "o" if trained else "s", color=FREQUENT if trained else CONTROL, markersize=7)
        words.append(f"{titles[row['model']]}, {row['stage']} {row['ratio']:.2f}")
    axis.set_yticks(range(len(ratios)), [f"{titles[row['model']]},\n{row['stage']}" for row in ratios])
    axis.invert_yaxis()
    axis.set_xlabel("σ of rare tokens / σ of frequent tokens")
    axis.tick_params(axis="y", length=0)
    figure.legend(handles=[Patch(color=NULL, label="shuffled frequencies, 95 %")], loc="outside lower center")
    return figure, f"Spread of rare over spread of frequent tokens at the probe: {'; '.join(words)}."


def ratio_sentence(row: Mapping[str, Any], title: str) -> str:
    """What a model's scale ratio predicts, and whether shuffled frequencies give as much, computed."""
    ratio, bias = f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]", f"{row['bias_ratio']:.2f}"
    head = f"**{title}, {row['stage']}**: σ_rare/σ_frequent = {ratio}"
    if row["null_low"] <= row["ratio"] <= row["null_high"]:
        return f"{head}, no more than shuffled frequencies give: no difference of scales, so none of biases."
    if row["ratio"] > 1:
        return (
            f"{head}: frequent tokens are the concentrated ones, and their relative bias should be smaller by the "
            f"factor {bias}, if both groups bend alike."
        )
    return (
        f"{head}: here *rare* tokens are the concentrated ones, and the attenuation would work in their favour, by the "
        f"factor {1 / row['bias_ratio']:.2f}, if both groups bend alike."
    )


def draw_local(local: pd.DataFrame, titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Local PCA: normal over tangent variance against the size of the neighbourhood, beside a flat twin.

    Args:
        local: what :func:`anisotropy.studies.curvature.local_table` returned, with ``model``.
        titles: of the models.
    """
    models = list(dict.fromkeys(local["model"]))
    figure, axes = stacked(len(models), 2.0)
    looks = {"data": (FREQUENT, "o", "-"), "flat twin": (CONTROL, "s", "--")}
    words = []
    for axis, model in zip(axes, models, strict=True):
        for points, (colour, marker, line) in looks.items():
            rows = _local(local, model, points)
            axis.plot(rows["neighbours"], rows["share"], line, color=colour, marker=marker, label=points)
            words.append(
                f"{titles[model]}, {points} from {rows['share'].iloc[-1]:.2f} down to the smallest neighbourhood's "
                f"{rows['share'].iloc[0]:.2f}"
                if rows["share"].iloc[0] < rows["share"].iloc[-1]
                else f"{titles[model]}, {points} from {rows['share'].iloc[-1]:.2f} up to the smallest neighbourhood's "
                f"{rows['share'].iloc[0]:.2f}"
            )
        sizes = sorted(local["neighbours"].unique())
        axis.margins(y=0.15)
        axis.set(title=titles[model], ylabel="normal / tangent", xscale="log", ylim=(0, None))
        axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axis.minorticks_off()
    axes[0].legend(loc="lower right")
    axes[-1].set_xlabel("neighbours (log scale)")
    return figure, f"Normal over tangent variance in neighbourhoods of several sizes: {'; '.join(words)}."


def local_sentence(local: pd.DataFrame, model: str, title: str) -> str:
    """Whether the local-PCA estimate can tell curvature from flatness here, computed."""
    found = {points: _local(local, model, points) for points in ("data", "flat twin")}
    kappa = {points: float(rows["curvature"].iloc[0]) for points, rows in found.items()}
    falls = {points: bool(rows["share"].iloc[0] < rows["share"].iloc[-1]) for points, rows in found.items()}
    text = (
        f"**{title}**: read as curvature, the smallest neighbourhoods would give ‖II‖ ≈ {kappa['data']:.3g} per unit "
        f"of length, and those of the flat twin {kappa['flat twin']:.3g}"
    )
    if not falls["data"]:
        return (
            f"{text}. On a smooth manifold the share would fall in smaller neighbourhoods; here it does not, so no "
            "curvature can be read off."
        )
    if falls["flat twin"]:
        return (
            f"{text}. The share falls in smaller neighbourhoods, but so does the flat twin's: no evidence of bending."
        )
    return f"{text}. The share falls in smaller neighbourhoods, as on a curved manifold, and the flat twin's does not."


def _local(local: pd.DataFrame, model: str, points: str) -> pd.DataFrame:
    return local[(local["model"] == model) & (local["points"] == points)].sort_values("neighbours")


def attenuation_verdicts(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Claim C7's verdicts as a table for a page; narrow, reasons are left to the sentences."""
    return pd.DataFrame(
        [
            {
                "density and curvature": verdict.reading,
                "verdict": verdict.outcome.value,
                "slope [95 %, Monte Carlo]": verdict.interval,
            }
            for verdict in verdicts
        ]
    )
