"""The Table 2 layout and the pictures of the concept chapter; every alternative text is computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import HTML, display
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anisotropy.report.figures import CONTROL, INK, NULL, model_colour, model_marker, stacked, step_axis

LAYER_ORDER = ("first", "middle", "last")
METRIC_NAMES = {
    "id_graph": "ID, graph",
    "id_twonn": "ID, TwoNN",
    "pca_70": "PCA 70 %",
    "effective_rank": "effective rank",
    "pca_similarity": "similarity to the window before",
    "sim_pca": "PCA similarity (the paper does not say of which two)",
    "pca_similarity_within": "similarity inside the window",
    "c_w": "c_w, match with the next weight",
}
READING_NAMES = {
    "per_checkpoint": "per checkpoint",
    "pooled": "pooled",
    "scaled": "scaled",
    "activations": "activations",
    "baseline": "chance",
    "printed": "printed",
}
Places = Mapping[tuple[str, str], Mapping[str, Any]]
_DIGITS = {"id_graph": 0, "id_twonn": 1, "pca_70": 0, "effective_rank": 1}
_BAR = "213,94,0"  # salmon on a light page, rust on a dark one; the number stays in the page's own colour
_LINE = "var(--pst-color-border, #888)"


def table_two(table: pd.DataFrame, caption: str) -> str:
    """One model's table as HTML: windows as columns, three layers a cell, a bar behind each number.

    The bar is the paper's shading: its length and strength go from the row's smallest to its largest value, so that
    it can be read without colour too.

    Args:
        table: columns ``window`` (in their order), ``layer``, ``metric``, ``reading``, ``value`` and, where known,
            ``spread``, ``estimates``, ``possible``.
        caption: of the table.
    """
    windows = list(dict.fromkeys(table["window"]))
    head = "".join(f'<th scope="col" style="text-align:right;padding:.2rem .4rem">{escape(w)}</th>' for w in windows)
    body = []
    for metric in (name for name in METRIC_NAMES if name in set(table["metric"])):
        own = table[table["metric"] == metric]
        body.append(
            f'<tr><th scope="rowgroup" colspan="{len(windows) + 1}" style="text-align:left;padding:.5rem .4rem .1rem;'
            f'border-top:1px solid {_LINE}">{escape(METRIC_NAMES[metric])}</th></tr>'
        )
        for reading in (name for name in READING_NAMES if name in set(own["reading"])):
            rows = _by_place(own[own["reading"] == reading])
            name = (
                f'<th scope="row" style="text-align:left;font-weight:400;padding:.2rem .4rem">{READING_NAMES[reading]}'
            )
            cells = "".join(_cell(rows, window, metric) for window in windows)
            body.append(f"<tr>{name}</th>{cells}</tr>")
    return (
        f'<div role="region" tabindex="0" aria-label="{escape(caption)}" style="overflow-x:auto;margin:1rem 0">'
        '<table class="dataframe" style="border-collapse:collapse;font-size:.85em;width:100%">'
        f'<caption style="text-align:left;caption-side:top">{escape(caption)}</caption>'
        f'<thead><tr><th scope="col" style="text-align:left;padding:.2rem .4rem">first / middle / last</th>{head}</tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _by_place(rows: pd.DataFrame) -> Places:
    """The rows of one metric and reading by window and layer; rows without a value are left out."""
    known = rows.dropna(subset=["value"])
    records = [dict(zip(known.columns, values, strict=True)) for values in known.itertuples(index=False, name=None)]
    return {(record["window"], record["layer"]): record for record in records}


def _cell(rows: Places, window: str, metric: str) -> str:
    values = [float(row["value"]) for row in rows.values()]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    lines = []
    for layer in LAYER_ORDER:
        row = rows.get((window, layer))
        text = "–" if row is None else cell_text(row, metric)
        strength = (float(row["value"]) - low) / (high - low) if row is not None and high > low else 0.0
        tint = f"rgba({_BAR},{0.12 + 0.33 * strength:.2f})"
        bar = f"background:linear-gradient(to left,{tint} {100 * strength:.0f}%,transparent 0)" if strength else ""
        lines.append(f'<div style="white-space:nowrap;padding:0 .2rem;{bar}">{text}</div>')
    return f'<td style="text-align:right;padding:.2rem .4rem;vertical-align:top">{"".join(lines)}</td>'


def cell_text(row: Mapping[str, Any], metric: str) -> str:
    """A value as the table prints it, with its spread; in brackets where only some of the estimates exist."""
    digits = _DIGITS.get(metric, 2)
    text = f"{row['value']:.{digits}f}"
    spread = row.get("spread")
    if spread is not None and np.isfinite(spread):
        text += f" <small>± {spread:.{max(1, digits)}f}</small>"
    return f"({text})" if row.get("estimates", 0) < row.get("possible", 0) else text


def show_table_two(table: pd.DataFrame, caption: str) -> None:
    """Put the table of one model on the page."""
    display(HTML(table_two(table, caption)))


def printed_table(printed: pd.DataFrame, model: str) -> pd.DataFrame:
    """One model of the printed table in the layout's columns."""
    own = printed[printed["model"] == model]
    own = own.rename(columns={"checkpoints": "window"}).assign(reading="printed").drop(columns="model")
    return own.replace({"metric": {"pca_similarity": "sim_pca"}})


def draw_agreement(tables: Mapping[str, pd.DataFrame], titles: Mapping[str, str], layer: str) -> tuple[Figure, str]:
    """Matched |cosine| over training at one layer, a panel per model.

    Args:
        tables: by model, what :func:`anisotropy.studies.concept_windows.agreement` returned.
        titles: of the models.
        layer: ``"first"``, ``"middle"`` or ``"last"``.
    """
    looks = {
        "seeds": ("two starts, same checkpoint", model_colour(4), "o", "-"),
        "next, other seed": ("checkpoint before, other start", model_colour(3), "D", "-"),
        "next, same seed": ("checkpoint before, same start", INK, "^", "--"),
        "random": ("random directions", CONTROL, "", ":"),
    }
    figure, axes = stacked(len(tables), 2.3)
    words = []
    for axis, (model, table) in zip(axes, tables.items(), strict=True):
        rows = table[table["layer"] == layer]
        for name, (_, colour, marker, line) in looks.items():
            own = rows[rows["comparison"] == name]
            axis.plot(own["step"], own["value"], line, color=colour, marker=marker, markersize=4)
        axis.set(title=titles[model], ylabel="matched |cosine|", ylim=(0, 1.05))
        step_axis(axis, rows["step"])
        last = rows[rows["step"] == rows["step"].max()].set_index("comparison")["value"]
        words.append(
            f"{titles[model]} ends at "
            + ", ".join(f"{last[name]:.2f} for {looks[name][0]}" for name in looks if name in last.index)
        )
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=4, label=label)
        for label, colour, marker, line in looks.values()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    axes[-1].set_xlabel("training step (log scale)")
    return figure, f"Agreement of Semi-NMF concepts at the {layer} layer over training: {'; '.join(words)}."


def draw_matches(
    matches: Mapping[str, np.ndarray], chance: Mapping[str, np.ndarray], titles: Mapping[str, str]
) -> tuple[Figure, str]:
    """Sorted matched |cosines| of two seeds' concepts at one checkpoint, beside those of random directions.

    Args:
        matches: by model, best first.
        chance: by model, the same for directions drawn at random.
        titles: of the models.
    """
    figure, axes = stacked(len(matches), 2.0, share_x=False)
    words = []
    for number, (axis, (model, values)) in enumerate(zip(axes, matches.items(), strict=True)):
        ranks = np.arange(1, len(values) + 1)
        axis.fill_between(ranks, 0, chance[model], color=NULL, linewidth=0)
        axis.plot(ranks, values, color=model_colour(number), marker=model_marker(number), markersize=4)
        axis.set(title=titles[model], ylabel="|cosine|", ylim=(0, 1.05))
        words.append(
            f"{titles[model]}: {int((values > 0.9).sum())} of {len(values)} pairs above 0.9, lowest {values.min():.2f}"
        )
    axes[-1].set_xlabel("pair, best first")
    return figure, f"Matched |cosine| between the concepts of two starts, grey: random directions. {'; '.join(words)}."


def draw_ratios(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str], threshold: float) -> tuple[Figure, str]:
    """Effective rank of the last layer over the first's over training, concepts and activations, a panel per model.

    Args:
        courses: by model, what :func:`anisotropy.studies.concept_windows.ratio_courses` returned.
        titles: of the models.
        threshold: the rule's.
    """
    looks = {
        "per_checkpoint": ("concepts", INK, "o", "-"),
        "activations": ("activations", model_colour(4), "s", "--"),
    }
    figure, axes = stacked(len(courses), 1.9)
    words = []
    for axis, (model, table) in zip(axes, courses.items(), strict=True):
        for reading, (label, colour, marker, line) in looks.items():
            rows = table[table["reading"] == reading]
            axis.plot(rows["step"], rows["ratio"], line, color=colour, marker=marker, markersize=4)
            words.append(
                f"{titles[model]}, {label} from {rows['ratio'].iloc[0]:.2f} to {rows['ratio'].iloc[-1]:.2f}, lowest "
                f"{rows['ratio'].min():.2f}"
            )
        axis.axhline(threshold, color=CONTROL, linestyle=":")
        axis.set(title=titles[model], ylabel="last / first", ylim=(0, None))
        step_axis(axis, table["step"])
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=4, label=label)
        for label, colour, marker, line in looks.values()
    ]
    handles.append(Line2D([], [], color=CONTROL, linestyle=":", label=f"the rule's {threshold}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    axes[-1].set_xlabel("training step (log scale)")
    return figure, f"Ratio of effective ranks over training: {'; '.join(words)}."


def not_run(printed: Sequence[str], catalogue_names: Mapping[str, str], run: Collection[str]) -> pd.DataFrame:
    """Which printed models were run, and the command that measures the others.

    Args:
        printed: names as the paper writes them.
        catalogue_names: the catalogue's by the paper's.
        run: labels of the models that were measured.
    """
    rows = []
    for name in printed:
        label = catalogue_names.get(name, name)
        here = label in run
        rows.append(
            {
                "printed model": name,
                "measured": "run" if here else "not run here",
                "command": "–" if here else f"anisotropy measure --model {label} --studies concept_tables",
            }
        )
    return pd.DataFrame(rows)
