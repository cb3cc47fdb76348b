"""Pictures and sentences of the chapter on tangent amplification; every alternative text is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from anisotropy.geometry.patches import Patch
from anisotropy.report.figures import CONTROL, MARKERS, NORMAL, PALETTE, TANGENT, WIDTH, plt, stacked
from anisotropy.report.tables import signed

PARTS = ("tangent", "normal")
_LOOKS = {"tangent": (TANGENT, "o", "-"), "normal": (NORMAL, "s", "--")}
# A standard error of three is what chance exceeds once in 370.
_ERRORS_ALLOWED = 3


def draw_patch(patch: Patch, u: NDArray[np.float64], point: float) -> tuple[Figure, str]:
    """A plane curve with a base point, samples on it, and one of them taken apart.

    Args:
        patch: a plane curve.
        u: tangent coordinates of the samples, shape (n, 1).
        point: tangent coordinate of the point that is taken apart.
    """
    reach = 1.15 * max(float(np.abs(u).max()), abs(point))
    along = patch.points(np.linspace(-reach, reach, 201)[:, None])
    samples = patch.points(u)
    base, foot, end = patch.base, patch.base + np.array([point, 0.0]), patch.points([[point]])[0]
    figure, axis = plt.subplots(figsize=(WIDTH, 3.4))
    axis.plot(*along.T, color=CONTROL, linewidth=1)
    axis.plot(*samples.T, ".", color=CONTROL, alpha=0.35, markersize=5)
    for start, stop, colour, style, width in (
        (np.zeros(2), base, "black", ":", 1.6),
        (base, foot, TANGENT, "-", 2.6),
        (foot, end, NORMAL, "--", 2.6),
    ):
        axis.plot(*np.stack([start, stop]).T, color=colour, linestyle=style, linewidth=width)
    axis.plot(*np.zeros(2), "k+", markersize=9)
    axis.plot(*base, "ko", markersize=5)
    axis.plot(*end, "o", color=NORMAL, markeredgecolor="black", markersize=7)
    axis.set(xlabel="tangent coordinate", ylabel="normal coordinate")
    axis.set_aspect("equal", adjustable="datalim")
    figure.legend(
        handles=[
            Line2D([], [], color="black", linestyle=":", label="base point x₀"),
            Line2D([], [], color=TANGENT, linewidth=2.6, label="tangent u"),
            Line2D([], [], color=NORMAL, linestyle="--", linewidth=2.6, label="normal ½II(u, u)"),
            Line2D([], [], color=CONTROL, marker=".", linestyle="", label="samples"),
        ],
        loc="outside lower center",
        ncols=2,
    )
    return figure, (
        f"A parabola of curvature {patch.curvature:.2g} with samples around its base point. One point is reached in "
        f"three steps: from the origin to the base point, {abs(point):.2f} along the tangent, then "
        f"{end[1] - foot[1]:.2f} along the normal."
    )


def draw_bounds(sizes: pd.DataFrame) -> tuple[Figure, str]:
    """Sizes of the parts of a gradient against the scale, beside their Cauchy–Schwarz bounds.

    Args:
        sizes: columns ``scale``, ``part`` (``"base point"``, ``"tangent"``, ``"normal"``), ``size``, ``bound``
            (missing for the base point).
    """
    figure, axes = stacked(2, 2.4)
    base = sizes[sizes["part"] == "base point"]
    words = []
    for axis, part in zip(axes, PARTS, strict=True):
        rows = sizes[sizes["part"] == part]
        colour, marker, _ = _LOOKS[part]
        axis.plot(base["scale"], base["size"], color=CONTROL, linestyle=":")
        axis.plot(rows["scale"], rows["bound"], color="black", linestyle="-.", linewidth=1.2)
        axis.plot(rows["scale"], rows["size"], color=colour, marker=marker)
        axis.set(title=f"{part.capitalize()} part", ylabel="norm", xscale="log", yscale="log")
        used = rows["size"] / rows["bound"]
        words.append(
            f"the {part} part uses {_percent(used.iloc[0])} of its bound at σ = {rows['scale'].iloc[0]:g} and "
            f"{_percent(used.iloc[-1])} at σ = {rows['scale'].iloc[-1]:g}"
        )
    axes[-1].set_xlabel("scale σ")
    handles = [
        Line2D([], [], color=_LOOKS[part][0], marker=_LOOKS[part][1], label=f"{part} part") for part in PARTS
    ] + [
        Line2D([], [], color="black", linestyle="-.", label="its upper bound"),
        Line2D([], [], color=CONTROL, linestyle=":", label="base-point part"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Norms of the parts of a weight gradient against scale, beside upper bounds: {'; '.join(words)}."


def draw_counterexamples(parts: pd.DataFrame) -> tuple[Figure, str]:
    """Tangent and normal part of each counterexample as a share of its bound, with and without centring.

    Args:
        parts: columns ``example``, ``reading``, ``part``, ``share`` (value over Cauchy–Schwarz bound), ``error``
            (its standard error).
    """
    examples = list(dict.fromkeys(parts["example"]))
    readings = list(dict.fromkeys(parts["reading"]))
    figure, axes = stacked(len(examples), 2.2)
    words = []
    for axis, example in zip(axes, examples, strict=True):
        axis.axhline(0, color=CONTROL, linewidth=1)
        for number, part in enumerate(PARTS):
            rows = parts[(parts["example"] == example) & (parts["part"] == part)].set_index("reading").loc[readings]
            colour, marker, _ = _LOOKS[part]
            places = np.arange(len(readings)) + (number - 0.5) * 0.3
            axis.errorbar(
                places,
                rows["share"],
                _ERRORS_ALLOWED * rows["error"],
                fmt=marker,
                color=colour,
                capsize=4,
                markersize=8,
                markeredgecolor="black",
                label=f"{part} part",
            )
        axis.set(title=example, ylabel="share of bound", ylim=(-0.2, 1.15), xlim=(-0.6, len(readings) - 0.4))
        axis.set_xticks(range(len(readings)), readings)
        words.append(f"{example}: {', '.join(_shares(parts, example, reading) for reading in readings)}")
    axes[0].legend(loc="center right")
    return figure, f"Tangent and normal part as a share of the Cauchy–Schwarz bound; {'; '.join(words)}."


def _shares(parts: pd.DataFrame, example: str, reading: str) -> str:
    rows = parts[(parts["example"] == example) & (parts["reading"] == reading)].set_index("part")["share"]
    return f"with the {reading} tangent {signed(rows['tangent'])} and normal {signed(rows['normal'])}"


def counterexample_sentences(parts: pd.DataFrame) -> list[str]:
    """What the samples say about each counterexample: which parts differ from zero by more than chance would."""
    sentences = []
    for (example, reading), rows in parts.groupby(["example", "reading"], sort=False):
        beyond = rows["share"].abs() > _ERRORS_ALLOWED * rows["error"].clip(lower=1e-12)
        there = dict(zip(rows["part"], beyond, strict=True))
        finding = {
            (False, True): "only the normal part differs from zero, and no bound on the ratio can hold",
            (True, True): "both parts differ from zero",
            (True, False): "only the tangent part differs from zero",
            (False, False): "neither part differs from zero: nothing is left",
        }[(there["tangent"], there["normal"])]
        sentences.append(f"{example}, {reading}: {finding}.")
    return sentences


def draw_ratios(ratios: pd.DataFrame, titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Normal over tangent against the scale: simulated beside exact, a panel per repair.

    Args:
        ratios: columns ``repair``, ``example``, ``scale``, ``ratio`` (one row a seed), ``exact``.
        titles: of the repairs.
    """
    repairs = list(dict.fromkeys(ratios["repair"]))
    figure, axes = stacked(len(repairs), 3.0)
    words = []
    for axis, repair in zip(axes, repairs, strict=True):
        here = ratios[ratios["repair"] == repair]
        examples = list(dict.fromkeys(here["example"]))
        for number, example in enumerate(examples):
            rows = here[here["example"] == example]
            exact = rows.drop_duplicates("scale")
            colour, marker = PALETTE[number], MARKERS[number]
            axis.plot(exact["scale"], exact["exact"], color=colour, linewidth=1.2)
            axis.plot(rows["scale"], rows["ratio"], marker, color=colour, markersize=5, alpha=0.6, label=example)
            first, last = (rows[rows["scale"] == scale]["ratio"].mean() for scale in rows["scale"].agg(["min", "max"]))
            words.append(f"{example}: from {first:.2g} at the smallest to {last:.2g} at the largest σ")
        axis.set(title=titles[repair], ylabel="normal / tangent", xscale="log", yscale="log")
        _room_below(axis, len(examples))
        axis.legend(loc="lower right", handlelength=1, borderpad=0, labelspacing=0.3)
    axes[-1].set_xlabel("scale σ")
    return (
        figure,
        f"Ratio of normal to tangent part against scale, simulated on top of exact lines. {'; '.join(words)}.",
    )


def _room_below(axis: Axes, lines: int) -> None:
    """Space for a legend under the curves of a log axis."""
    low, high = axis.get_ylim()
    axis.set_ylim(low / (high / low) ** (0.14 + 0.11 * lines), high)


def exponent_table(exponents: pd.DataFrame) -> pd.DataFrame:
    """Measured against predicted exponents, as text.

    Args:
        exponents: columns ``repair``, ``example``, ``predicted``, ``measured``, ``error`` (of the mean over seeds),
            ``exact`` (slope of the exact ratios over the same scales).
    """
    return pd.DataFrame(
        {
            "repair": exponents["repair"],
            "example": exponents["example"],
            "power of σ, predicted": [f"{value:g}" for value in exponents["predicted"]],
            "exact, over these σ": [f"{abs(value):.2f}" for value in exponents["exact"]],
            "simulated": [
                f"{signed(value).lstrip('+')} ± {error:.2f}"
                for value, error in zip(exponents["measured"], exponents["error"], strict=True)
            ],
        }
    )


def exponent_sentence(exponents: pd.DataFrame) -> str:
    """Whether the simulations agree with the exact slopes within three standard errors."""
    off = (exponents["measured"] - exponents["exact"]).abs() > _ERRORS_ALLOWED * exponents["error"] + 0.005
    if not off.any():
        return (
            f"All {len(exponents)} simulated slopes agree with the exact ones within {_ERRORS_ALLOWED} standard errors."
        )
    names = ", ".join(f"{row.example} ({row.repair})" for row in exponents[off].itertuples())
    return (
        f"{len(exponents) - int(off.sum())} of {len(exponents)} simulated slopes agree with the exact ones within "
        f"{_ERRORS_ALLOWED} standard errors; not so: {names}."
    )


def draw_course(
    strengths: pd.DataFrame, gradients: pd.DataFrame, milestones: Mapping[str, float]
) -> tuple[Figure, str]:
    """One layer: what has been learned over time, and what the gradient still holds.

    Args:
        strengths: columns ``time``, ``part``, ``solution``, ``simulated`` (1 is the teacher).
        gradients: columns ``time``, ``part``, ``size`` (of the known solution).
        milestones: times: ``tangent`` and ``normal``, when the part is half learned; ``crossover``, when both
            gradients are equal.
    """
    figure, axes = stacked(2, 2.3)
    for part in PARTS:
        colour, marker, line = _LOOKS[part]
        rows = strengths[strengths["part"] == part]
        axes[0].plot(rows["time"], rows["solution"], color=colour, linestyle=line)
        axes[0].plot(rows["time"], rows["simulated"], marker, color=colour, label=part, **_dots(rows))
        rows = gradients[gradients["part"] == part]
        axes[1].plot(rows["time"], rows["size"], color=colour, linestyle=line, label=part)
    axes[1].axvline(milestones["crossover"], color=CONTROL, linestyle=":", label="crossover")
    axes[0].set(title="Learned (1 = teacher)", ylabel="strength", ylim=(-0.05, 1.12))
    axes[1].set(title="Gradient that is left", ylabel="norm", yscale="log", xlabel="time τ (learning rate × steps)")
    axes[0].legend(loc="lower right")
    axes[1].legend(loc="lower left")
    return figure, (
        f"Strength of tangent and normal weights over training time, simulation on top of the known solution: half "
        f"learned at τ = {milestones['tangent']:.3g} and {milestones['normal']:.3g}. Below, their gradients, which are "
        f"equal at τ = {milestones['crossover']:.3g}."
    )


def course_sentence(milestones: Mapping[str, float], deviation: float) -> str:
    """How far apart the two parts are learned, and how close simulation and solution are.

    Args:
        milestones: as for :func:`draw_course`.
        deviation: largest difference of a strength from the known solution.
    """
    return (
        f"The tangent weight is half learned at τ = {milestones['tangent']:.3g}, the normal one at τ = "
        f"{milestones['normal']:.3g}: {milestones['normal'] / milestones['tangent']:.3g} times as late. From τ = "
        f"{milestones['crossover']:.3g} on the normal gradient is the larger one. The simulation stays within "
        f"{deviation:.3f} of the known solution."
    )


def draw_loop(course: pd.DataFrame, bound: float) -> tuple[Figure, str]:
    """Two layers beside one: what is learned, by how much the tangent part leads, and what becomes of the activations.

    Args:
        course: columns ``time``, ``layers`` (1 or 2), ``tangent``, ``normal`` (strengths, simulated),
            ``tangent_solution``, ``normal_solution``, and for two layers ``share``, ``share_solution`` (tangent share
            of the variance of h = Wx).
        bound: the largest lead that one layer can have from a start at 0, λ_T/λ_N.
    """
    figure, axes = stacked(3, 2.2)
    two, one = course[course["layers"] == 2], course[course["layers"] == 1]
    for part in PARTS:
        colour, marker, line = _LOOKS[part]
        axes[0].plot(two["time"], two[f"{part}_solution"], color=colour, linestyle=line)
        axes[0].plot(two["time"], two[part], marker, color=colour, label=part, **_dots(two))
    for rows, colour, line, name in ((two, "black", "-", "two layers"), (one, CONTROL, "--", "one layer")):
        axes[1].plot(rows["time"], _lead(rows), color=colour, linestyle=line, label=name)
    axes[1].axhline(bound, color=CONTROL, linestyle=":", label="bound, one layer")
    axes[2].plot(two["time"], two["share_solution"], color=TANGENT)
    axes[2].plot(two["time"], two["share"], "o", color=TANGENT, **_dots(two))
    axes[0].set(title="Learned by two layers (1 = teacher)", ylabel="strength", ylim=(-0.05, 1.12))
    axes[1].set(title="Lead of the tangent part", ylabel="tangent / normal", yscale="log")
    axes[2].set(title="Tangent share of activations", ylabel="share of variance", ylim=(None, 1.02))
    axes[2].set_xlabel("time τ (learning rate × steps)")
    axes[0].legend(loc="lower right")
    axes[1].legend(loc="upper right")
    share = two["share_solution"]
    return figure, (
        f"Strengths in a two-layer map over time; the lead of the tangent part, at most {_lead(two).max():.3g} with "
        f"two layers and {_lead(one).max():.3g} with one; and the tangent share of the activations' variance, from "
        f"{_percent(share.iloc[0])} over at most {_percent(share.max())} to {_percent(share.iloc[-1])}."
    )


def loop_sentence(course: pd.DataFrame) -> str:
    """Whether a second layer sharpens the lead, and whether the share of the activations lasts.

    Args:
        course: as for :func:`draw_loop`.
    """
    two, one = (course[course["layers"] == layers] for layers in (2, 1))
    double, single, share = _lead(two).max(), _lead(one).max(), two["share_solution"]
    more = "a larger lead with the loop" if double > single else "no larger lead with the loop"
    fate = "fallen again" if share.iloc[-1] < share.max() - 0.001 else "not fallen"
    return (
        f"The largest lead is {double:.3g} with two layers and {single:.3g} with one: {more}. The tangent share of "
        f"the activations' variance begins at {_percent(share.iloc[0])}, reaches {_percent(share.max())}, and has "
        f"{fate} by the end, at {_percent(share.iloc[-1])}."
    )


def _dots(rows: pd.DataFrame) -> dict[str, Any]:
    """Looks of simulated values: at most about forty dots, so that the line under them shows."""
    return {"markersize": 5, "alpha": 0.6, "markevery": max(1, len(rows) // 40)}


def _lead(rows: pd.DataFrame) -> pd.Series:
    return rows["tangent_solution"] / rows["normal_solution"]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.995 else f"{100 * share:.2f} %"
