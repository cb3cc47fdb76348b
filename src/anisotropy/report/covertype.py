"""Pictures, tables and sentences of the Forest Cover Type chapter (Figure 5); every alternative text is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Patch
from matplotlib.ticker import FuncFormatter, MultipleLocator

from anisotropy.report.figures import CONTROL, FREQUENT, NULL, PALETTE, RARE, stacked
from anisotropy.report.tables import signed
from anisotropy.studies.covertype import ClassStudy, Plane
from anisotropy.studies.covertype_data import SCALINGS, Dataset

METHOD_NAMES = {"pca": "principal", "semi_nmf": "Semi-NMF", "ica": "independent"}
MEASURE_NAMES = {"spread": "spread", "isoscore": "IsoScore", "effective_rank": "effective rank"}
_SCALING_COLOURS = dict(zip(SCALINGS, ((PALETTE[3], "o"), (PALETTE[5], "s")), strict=True))
_CLASS = PALETTE[3]
_DIGITS = {"spread": 2, "isoscore": 3, "effective_rank": 2}
_MOST_DOTS = 1500


def origin(dataset: Dataset) -> str:
    """What data the page shows, and whether they are a stand-in."""
    sizes = dataset.sizes()
    n, d = dataset.rows.shape
    first = (
        "**This page shows a stand-in, not the Covertype data.** " if dataset.stand_in else "**The Covertype data.** "
    )
    sample = "" if n == dataset.available else f", a uniform random subsample of {dataset.available:,}"
    left = f" ({_count(dataset.constant, 'constant column')} left out)" if dataset.constant else ""
    return (
        f"{first}{dataset.title}: {dataset.about}. Here are {n:,} rows{sample}, {d} features{left} and {len(sizes)} "
        f"classes, from {dataset.classes[sizes.index[0]]} ({sizes.iloc[0] / n:.1%} of the rows) to "
        f"{dataset.classes[sizes.index[-1]]} ({sizes.iloc[-1] / n:.1%})."
    )


def class_sizes(dataset: Dataset) -> pd.DataFrame:
    """Rows and frequency of every class, the most frequent first."""
    sizes = dataset.sizes()
    return pd.DataFrame(
        {
            "class": [dataset.classes[label] for label in sizes.index],
            "rows": sizes.to_numpy(),
            "frequency (%)": 100 * sizes.to_numpy() / len(dataset.rows),
        }
    )


def units(dataset: Dataset) -> str:
    """How unevenly the raw variance is spread over the features."""
    variances = np.sort(dataset.rows.var(0, ddof=1))[::-1]
    share = variances.cumsum() / variances.sum()
    most = dataset.features[int(dataset.rows.var(0).argmax())]
    return (
        f"Raw, the feature of largest variance (`{most}`) holds {share[0]:.1%} of the total variance, and "
        f"{int((share < 0.9).sum()) + 1} of {len(share)} features hold 90 % of it; the ratio of the largest variance "
        f"to the smallest is {variances[0] / variances[-1]:,.0f}."
    )


def draw_plane(seen: Plane, fits: pd.DataFrame, dataset: Dataset) -> tuple[Figure, str]:
    """The components of each method in the plane of largest variance, over the rows and beside permuted columns.

    Args:
        seen: what :func:`anisotropy.studies.covertype.plane` returned.
        fits: of the components, with the scaling of the plane only.
        dataset: the same data, for the classes.

    Returns:
        The figure and its alternative text.
    """
    sizes = dataset.sizes()
    common, rare = sizes.index[0], sizes.index[-1]
    step = max(1, len(seen.points) // _MOST_DOTS)
    others = ~np.isin(dataset.labels, (common, rare))
    radius = 3 * float(seen.deviations[0])
    figure, axes = stacked(len(seen.directions), 2.9)
    for axis, (method, directions) in zip(axes, seen.directions.items(), strict=True):
        for points, colour, size in (
            (seen.points[others][::step], PALETTE[5], 7),
            (seen.points[dataset.labels == common][::step], FREQUENT, 11),
            (seen.points[dataset.labels == rare], RARE, 18),
        ):
            axis.scatter(points[:, 0], points[:, 1], s=size, color=colour, linewidths=0, rasterized=True)
        axis.add_patch(_ellipse(seen.deviations, "-"))
        axis.add_patch(_ellipse(seen.null_deviations, "--"))
        for direction in directions * radius:
            _draw_direction(axis, direction, one_sided=method == "semi_nmf")
        axis.set(
            title=f"{METHOD_NAMES[method]} components",
            xlim=(-1.7 * radius, 1.7 * radius),
            ylim=(-1.1 * radius, 1.1 * radius),
            aspect="equal",
            ylabel="PC 2",
        )
    axes[-1].set_xlabel("PC 1")
    dots = (
        (f"{dataset.classes[common]} (most frequent)", FREQUENT),
        (f"{dataset.classes[rare]} (rarest)", RARE),
        ("other classes", PALETTE[5]),
    )
    handles: list[Artist] = [
        Line2D([], [], color=colour, marker="o", linestyle="", markersize=5, label=label) for label, colour in dots
    ]
    handles += [
        Line2D([], [], color="black", linewidth=1.6, label="a component"),
        Line2D([], [], color=CONTROL, label="2 SD of the rows"),
        Line2D([], [], color=CONTROL, linestyle="--", label="2 SD, permuted columns"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=1, title=dataset.title)
    overlaps = ", ".join(
        f"{number(row['overlap'], 2)} for the {METHOD_NAMES[row['method']]} ones (permuted columns "
        f"{number(row['overlap_null_low'], 2)}–{number(row['overlap_null_high'], 2)})"
        for _, row in fits.iterrows()
    )
    return figure, (
        f"{dataset.title} in the plane of its first two principal components, which holds {seen.share:.0%} of the "
        f"variance ({seen.null_share:.0%} for permuted columns), one panel per method with its components as lines. "
        f"The largest absolute cosine between two components is {overlaps}."
    )


def _ellipse(deviations: np.ndarray, line: str) -> Ellipse:
    width, height = 4 * deviations
    return Ellipse((0, 0), width, height, fill=False, edgecolor=CONTROL, linestyle=line, linewidth=1.4)


def _draw_direction(axis: Axes, direction: np.ndarray, one_sided: bool) -> None:
    """A line through the mean, or an arrow where the sign of a component has a meaning."""
    start = np.zeros(2) if one_sided else -direction
    outline = [patheffects.withStroke(linewidth=3.2, foreground="white")]
    arrow = {"arrowstyle": "-|>" if one_sided else "-", "color": "black", "linewidth": 1.5, "path_effects": outline}
    axis.annotate("", xy=tuple(direction), xytext=tuple(start), arrowprops=arrow | {"shrinkA": 0, "shrinkB": 0})


def draw_strengths(strengths: pd.DataFrame, dataset: Dataset) -> tuple[Figure, str]:
    """Strength by rank, a panel per method, raw and standardised, each over its permuted columns.

    Args:
        strengths: of what :func:`anisotropy.studies.covertype.components` returned.
        dataset: the same data, for the title.
    """
    methods = [method for method in METHOD_NAMES if method in set(strengths["method"])]
    figure, axes = stacked(len(methods), 2.1)
    words = []
    for axis, method in zip(axes, methods, strict=True):
        what, parts = "code mass" if method == "semi_nmf" else "variance", []
        for scaling, (colour, marker) in _SCALING_COLOURS.items():
            rows = strengths[(strengths["method"] == method) & (strengths["scaling"] == scaling)]
            axis.fill_between(rows["rank"], rows["null_low"], rows["null_high"], color=colour, alpha=0.25, linewidth=0)
            axis.plot(rows["rank"], rows["null_median"], color=colour, linestyle="--", linewidth=1.2)
            axis.plot(rows["rank"], rows["strength"], color=colour, marker=marker, markersize=5)
            first = rows.iloc[0]
            parts.append(f"{scaling} {first['strength']:.2f} ({first['null_median']:.2f} for permuted columns)")
        axis.set(title=METHOD_NAMES[method], ylabel=f"share of\n{what}", ylim=(0, None))
        axis.xaxis.set_major_locator(MultipleLocator(max(1, len(rows) // 6)))
        words.append(f"the strongest {METHOD_NAMES[method]} component holds {', '.join(parts)} of the {what}")
    axes[-1].set_xlabel("rank of the component")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, label=scaling)
        for scaling, (colour, marker) in _SCALING_COLOURS.items()
    ]
    handles.append(Line2D([], [], color=CONTROL, linestyle="--", label="permuted columns"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title=dataset.title)
    return figure, f"{dataset.title}: strength of the components by rank; {'; '.join(words)}."


def draw_classes(study: ClassStudy, dataset: Dataset) -> tuple[Figure, str]:
    """Spread, IsoScore and effective rank of each class against its frequency, over permuted labels.

    Args:
        study: what :func:`anisotropy.studies.covertype.per_class` returned.
        dataset: the same data, for the title.
    """
    table = study.table()
    figure, axes = stacked(len(MEASURE_NAMES), 1.9)
    words = []
    for axis, (measure, name) in zip(axes, MEASURE_NAMES.items(), strict=True):
        rows = table[table["measure"] == measure]
        axis.vlines(rows["frequency"], rows["null_low"], rows["null_high"], color=NULL, linewidth=9)
        axis.plot(rows["frequency"], rows["null_median"], color=CONTROL, marker="_", markersize=11, linestyle="")
        axis.plot(rows["frequency"], rows["value"], color=_CLASS, marker="o", markersize=6, linestyle="")
        axis.set(ylabel=name)
        _frequency_axis(axis, rows["frequency"])
        outside = int(((rows["value"] < rows["null_low"]) | (rows["value"] > rows["null_high"])).sum())
        first, last = rows.iloc[0], rows.iloc[-1]
        digits = _DIGITS[measure]
        words.append(
            f"{name} goes from {number(last['value'], digits)} in the rarest to "
            f"{number(first['value'], digits)} in the "
            f"most frequent class, and {outside} of {len(rows)} classes lie outside the band"
        )
    axes[-1].set_xlabel("class frequency (log scale)")
    handles = [
        Line2D([], [], color=_CLASS, marker="o", linestyle="", label="a class"),
        Patch(color=NULL, label="permuted labels, 95 %"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title=dataset.title)
    rows_used = f"{study.used.min():,} rows each" if len(set(study.used.tolist())) == 1 else "all rows of each class"
    return figure, (
        f"{dataset.title}: measures of each class against its frequency ({rows_used}), with the 95 % band of permuted "
        f"labels; {'; '.join(words)}."
    )


def _frequency_axis(axis: Axes, frequencies: pd.Series) -> None:
    axis.set_xscale("log")
    low, high = frequencies.min() / 1.4, frequencies.max() * 1.4
    ticks = [tick for tick in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if low <= tick <= high]
    axis.set_xlim(low, high)
    axis.set_xticks(ticks)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axis.minorticks_off()


def whole_table(whole: pd.DataFrame) -> pd.DataFrame:
    """What :func:`anisotropy.studies.covertype.whole` returned, for a reader."""
    return pd.DataFrame(
        {
            "scaling": whole["scaling"],
            "measure": [MEASURE_NAMES[measure] for measure in whole["measure"]],
            "all rows": _numbers(whole, "value"),
            "permuted columns, 95 %": _bands(whole, "null_low", "null_high"),
            "variances alone": _numbers(whole, "variances_alone"),
        }
    )


def fit_table(fits: pd.DataFrame) -> pd.DataFrame:
    """How well components fit and repeat, for a reader; in brackets the range of the refits to permuted columns."""
    names = {"unexplained": ("unexplained", 3), "halves": ("halves agree", 2), "overlap": ("largest overlap", 2)}
    columns = {"scaling": fits["scaling"], "components": [METHOD_NAMES[method] for method in fits["method"]]}
    for column, (name, digits) in names.items():
        bands = _bands(fits, f"{column}_null_low", f"{column}_null_high", digits)
        columns[f"{name} (permuted)"] = [
            f"{number(value, digits)} ({band})" for value, band in zip(fits[column], bands, strict=True)
        ]
    steps = zip(fits["iterations"], fits["converged"], strict=True)
    columns["iterations"] = [f"{count}" if converged else f"{count} (not converged)" for count, converged in steps]
    return pd.DataFrame(columns)


def class_table(study: ClassStudy) -> pd.DataFrame:
    """A row per class: each measure beside its band, for a reader."""
    table = study.table()
    first = table[table["measure"] == "spread"]
    columns: dict[str, object] = {
        "class": first["class"].to_numpy(),
        "rows used": first["used"].to_numpy(),
        "frequency (%)": 100 * first["frequency"].to_numpy(),
    }
    for measure, name in MEASURE_NAMES.items():
        rows = table[table["measure"] == measure]
        texts = zip(_numbers(rows, "value"), _bands(rows, "null_low", "null_high"), strict=True)
        columns[f"{name} (permuted labels)"] = [f"{value} ({band})" for value, band in texts]
    return pd.DataFrame(columns)


def correlation_table(readings: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Correlations with frequency, by the name of a reading, for a reader; no rows where there are none."""
    return pd.DataFrame(
        [
            {
                "reading": reading,
                "measure": MEASURE_NAMES[row["measure"]],
                "Spearman ρ": signed(row["rho"]),
                **{
                    name: f"{signed(row[f'{null}_low'])} … {signed(row[f'{null}_high'])} (p = {row[f'{null}_p']:.3f})"
                    for name, null in (("permuted labels, 95 %", "labels"), ("shuffled frequencies, 95 %", "shuffled"))
                },
            }
            for reading, found in readings.items()
            for _, row in found.iterrows()
        ],
        columns=["reading", "measure", "Spearman ρ", "permuted labels, 95 %", "shuffled frequencies, 95 %"],
    )


def _numbers(rows: pd.DataFrame, column: str) -> list[str]:
    return [number(value, _DIGITS[measure]) for measure, value in zip(rows["measure"], rows[column], strict=True)]


def _bands(rows: pd.DataFrame, low: str, high: str, digits: int | None = None) -> list[str]:
    places = [digits] * len(rows) if digits is not None else [_DIGITS[measure] for measure in rows["measure"]]
    return [f"{number(a, p)}–{number(b, p)}" for a, b, p in zip(rows[low], rows[high], places, strict=True)]


def number(value: float, digits: int) -> str:
    """A number with ``digits`` decimals, and with more where it would not show as many significant digits."""
    if 1e-6 < abs(value) < 1:
        digits -= 1 + math.floor(math.log10(abs(value)))
    return f"{value:.{digits}f}"


def read_whole(whole: pd.DataFrame) -> str:
    """One sentence a scaling: do relations between features change how round the cloud is?"""
    sentences = []
    for scaling in SCALINGS:
        rows = whole[whole["scaling"] == scaling].set_index("measure")
        where = {measure: _place(rows.loc[measure]) for measure in rows.index}
        values, lows, highs = (
            {measure: number(float(rows[column][measure]), _DIGITS[measure]) for measure in rows.index}
            for column in ("value", "null_low", "null_high")
        )
        effect = {
            "below": "relations between features make the cloud less round than its variances alone would",
            "inside": "the cloud is as round as its variances alone make it",
            "above": "relations between features make the cloud rounder than its variances alone would",
        }[where["isoscore"]]
        sentences.append(
            f"{scaling.capitalize()}, IsoScore is {values['isoscore']} against {lows['isoscore']}–{highs['isoscore']} "
            f"for permuted columns: {effect}. The effective rank, {values['effective_rank']}, lies "
            f"{_PLACES[where['effective_rank']]} ({lows['effective_rank']}–{highs['effective_rank']})."
        )
    return " ".join(sentences)


_PLACES = {"below": "below its band", "inside": "inside its band", "above": "above its band"}


def _place(row: pd.Series, value: str = "value", low: str = "null_low", high: str = "null_high") -> str:
    if row[value] < row[low]:
        return "below"
    return "above" if row[value] > row[high] else "inside"


def read_fits(fits: pd.DataFrame) -> str:
    """Which components explain more, and repeat better, than those of permuted columns."""
    sentences = []
    for scaling in SCALINGS:
        rows = fits[fits["scaling"] == scaling]
        better = [
            METHOD_NAMES[row["method"]]
            for _, row in rows.iterrows()
            if _place(row, "unexplained", "unexplained_null_low", "unexplained_null_high") == "below"
        ]
        stable = [
            METHOD_NAMES[row["method"]]
            for _, row in rows.iterrows()
            if _place(row, "halves", "halves_null_low", "halves_null_high") == "above"
        ]
        best = rows.iloc[int(rows["halves"].argmax())]
        sentences.append(
            f"{scaling.capitalize()}, {_list(better)} components leave less unexplained than any refit to permuted "
            f"columns, and {_list(stable)} components agree better between halves; the best agreement is that of the "
            f"{METHOD_NAMES[best['method']]} ones ({best['halves']:.2f})."
        )
    return " ".join(sentences)


def read_correlations(found: pd.DataFrame, reading: str) -> str:
    """One sentence a measure: is there an association with frequency beyond class size and beyond chance?"""
    if found.empty:
        return f"{reading}: with fewer than four classes there is no correlation with frequency to speak of."
    sentences = []
    for _, row in found.iterrows():
        size = {
            "below": "less than class size alone gives",
            "inside": "what class size alone gives",
            "above": "more than class size alone gives",
        }[_place(row, "rho", "labels_low", "labels_high")]
        inside = _place(row, "rho", "shuffled_low", "shuffled_high") == "inside"
        chance = "within" if inside else "beyond"
        sentences.append(f"{MEASURE_NAMES[row['measure']]} {signed(row['rho'])}, {size} and {chance} chance")
    return f"{reading} ({int(found['classes'].iloc[0])} classes): {'; '.join(sentences)}."


def known_truth(dataset: Dataset) -> str:
    """What the answer about frequency has to be, where it is known."""
    if dataset.stand_in:
        return (
            "In the stand-in the answer is known: ranks were dealt out to digits at random. With raw features and "
            "equal rows, whatever the table shows is chance; what the other readings add is class size, and the unit "
            "that frequent classes set."
        )
    return "In these data the answer is not known: common cover types may differ from rare ones for many reasons."


def _list(names: list[str]) -> str:
    if not names:
        return "no"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
