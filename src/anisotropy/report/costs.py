"""Pictures, tables and sentences of the page on costs; alternative texts and sentences are computed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anisotropy.report.figures import CONTROL, MARKERS, PALETTE, stacked

QUANTITIES = {"seconds": "processor time", "memory": "memory", "result": "size of results"}
AXES = {"tokens": "tokens of text", "d": "hidden size d", "layers": "layers"}
# Of the tangent study, for sizes without end: moments of d × d of results, products of d × d per token and layer.
_WITHOUT_END = {
    ("seconds", "tokens"): 1,
    ("seconds", "d"): 3,
    ("seconds", "layers"): 1,
    ("memory", "tokens"): 0,
    ("memory", "d"): 2,
    ("memory", "layers"): 1,
    ("result", "tokens"): 0,
    ("result", "d"): 2,
    ("result", "layers"): 0,
}


def slope(sizes: np.ndarray, values: np.ndarray) -> float:
    """Exponent p of values ∝ sizesᵖ, by least squares of the logarithms."""
    found = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
    return round(found, 6) + 0.0  # no negative zero


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Exponents of growth, measured and of the closed forms over the same sizes.

    Args:
        table: columns ``axis``, ``size``, ``quantity``, ``measured``, ``foretold``.

    Returns:
        Columns ``quantity``, ``axis``, ``measured``, ``closed form``, ``without end`` (for ever larger sizes).
    """
    rows = []
    for (quantity, axis), group in table.groupby(["quantity", "axis"], sort=False):
        sizes = group["size"].to_numpy(float)
        found = [slope(sizes, group[column].to_numpy(float)) for column in ("measured", "foretold")]
        rows.append([quantity, axis, *found, _WITHOUT_END[str(quantity), str(axis)]])
    return pd.DataFrame(rows, columns=["quantity", "axis", "measured", "closed form", "without end"])


def exponent_table(found: pd.DataFrame) -> pd.DataFrame:
    """The same for a reader."""
    named = found.assign(quantity=found["quantity"].map(QUANTITIES), axis=found["axis"].map(AXES))
    return named.rename(
        columns={"axis": "grows with", "measured": "exponent, measured", "closed form": "exponent, closed form"}
    ).rename(columns={"without end": "exponent, ever larger"})


def draw_growth(table: pd.DataFrame) -> tuple[Figure, str]:
    """How time, memory and results grow, relative to the smallest size, as each size grows (log axes).

    Args:
        table: as for :func:`exponents`.
    """
    figure, axes = stacked(len(QUANTITIES), 2.2)
    found = exponents(table).set_index(["quantity", "axis"])["measured"]
    words = []
    for panel, (quantity, title) in zip(axes, QUANTITIES.items(), strict=True):
        for number, axis in enumerate(AXES):
            group = table[(table["quantity"] == quantity) & (table["axis"] == axis)]
            times = group["size"] / group["size"].iloc[0]
            panel.plot(
                times,
                group["measured"] / group["measured"].iloc[0],
                color=PALETTE[number],
                marker=MARKERS[number],
            )
            panel.plot(times, group["foretold"] / group["foretold"].iloc[0], color=PALETTE[number], linestyle=":")
        panel.set(title=title.capitalize(), ylabel="times the first", xscale="log", yscale="log")
        panel.set_xticks([1, 2, 4], ["1", "2", "4"])
        largest = panel.get_ylim()[1]
        doublings = [2**n for n in range(12) if 2**n <= max(2.0, largest)]
        panel.set_yticks(doublings, [str(n) for n in doublings])
        panel.minorticks_off()
        slopes = ", ".join(f"{found[quantity, axis]:.1f} in {name}" for axis, name in AXES.items())
        words.append(f"{title} grows with exponent {slopes}")
    axes[-1].set_xlabel("size over the first size")
    handles = [
        Line2D([], [], color=PALETTE[number], marker=MARKERS[number], label=name)
        for number, name in enumerate(AXES.values())
    ]
    handles.append(Line2D([], [], color=CONTROL, linestyle=":", label="closed forms"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Growth of the tangent study when one size is multiplied: {'; '.join(words)}."


def growth_sentence(found: pd.DataFrame) -> str:
    """How well the closed forms hold, by the exponent that is furthest off, time and the exact sizes apart."""
    lines = []
    for quantity, title in QUANTITIES.items():
        rows = found[found["quantity"] == quantity]
        off = (rows["measured"] - rows["closed form"]).abs().to_numpy()
        worst = rows.iloc[int(off.argmax())]
        lines.append(
            f"{title}: {worst['measured']:.2f} measured in {AXES[worst['axis']]}, {worst['closed form']:.2f} by the "
            f"closed form"
        )
    return f"Where measured and closed form differ most: {'; '.join(lines)}."


def record_table(records: pd.DataFrame) -> pd.DataFrame:
    """Measured and estimated seconds a checkpoint, and their ratio."""
    return records.assign(ratio=records["measured"] / records["estimated"]).rename(
        columns={
            "measured": "measured (s)",
            "estimated": "estimated (s)",
            "ratio": "measured / estimated",
        }
    )


def record_sentence(records: pd.DataFrame) -> str:
    """How far the plan's times are from what was measured."""
    if records.empty:
        return (
            "Nothing of a catalogue model is kept in `results/` yet, so there is nothing to hold the estimates against."
        )
    ratios = records["measured"] / records["estimated"]
    factor = np.exp(np.abs(np.log(ratios)))
    slow = records.iloc[int(ratios.to_numpy().argmax())]
    return (
        f"Over {len(records)} pairs of study and model, measured times are {ratios.min():.2g} to {ratios.max():.2g} "
        f"times the estimates; half of them are within a factor of {np.median(factor):.2g}. The largest ratio is that "
        f"of {slow['study']} on {slow['model']}. A machine that was busy with other work when it measured, or is busy "
        "now, shows in these ratios."
    )
