"""Table 1 as printed beside Table 1 as recomputed, and what can be read from printed numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anisotropy.models.catalogue import catalogue
from anisotropy.report.figures import CONTROL, PAPER, model_colour, model_marker, stacked
from anisotropy.report.published import CATALOGUE_NAMES
from anisotropy.report.rules.tangents import PRIMARY
from anisotropy.report.tables import signed

PROBES = ("T1_in", "T1_out", "Tm", "Tl")
STARRED = "T1_in*"  # the paper marks the primary transformer-layer test so
METRICS = {
    "energy_ratio": "energy ratio E_r",
    "p_energy_null": "p of E_r (20 draws)",
    "delta_isoscore_star_tangent_percent": "ΔT of Iso* (%)",
    "delta_isoscore_star_normal_percent": "ΔN of Iso* (%)",
}
_DIGITS = {"energy_ratio": 3, "p_energy_null": 2}


def comparison_table(
    printed: pd.DataFrame, stages: pd.DataFrame, metric: str, titles: Mapping[str, str]
) -> pd.DataFrame:
    """One metric of Table 1: the paper's models as printed and as run here, then the models of this page.

    Args:
        printed: what :func:`anisotropy.report.published.table1` returned.
        stages: stage tables of all models that were run, catalogue names for the paper's ones; only the primary reading
            is used.
        metric: one of :data:`METRICS`.
        titles: of the models of this page.

    Returns:
        Columns ``model``, ``source`` (``printed``, ``printed, not run here`` or ``run here``), and the probes, as text.
    """
    ours = primary(stages)
    ours = ours[ours["quantity"] == metric]
    rows = []
    for name, cells in printed[printed["metric"] == metric].groupby("model", sort=False):
        values = cells.set_index("probe")["value"]
        own = ours[ours["model"] == CATALOGUE_NAMES[str(name)]].set_index("probe")["estimate"]
        source = "printed, not run here" if own.empty else "printed"
        rows.append({"model": str(name), "source": source, **_cells(values, metric)})
        if len(own):
            rows.append({"model": str(name), "source": "run here", **_cells(own, metric)})
    for label in dict.fromkeys(ours["model"]):
        if label not in CATALOGUE_NAMES.values():
            own = ours[ours["model"] == label].set_index("probe")["estimate"]
            rows.append({"model": titles[label], "source": "run here", **_cells(own, metric)})
    return pd.DataFrame(rows)


def primary(stages: pd.DataFrame) -> pd.DataFrame:
    """The rows of the reading that is closest to the printed block."""
    gradient, basis, stage = PRIMARY
    return stages[(stages["gradient"] == gradient) & (stages["basis"] == basis) & (stages["stage"] == stage)]


def _cells(values: pd.Series, metric: str) -> dict[str, str]:
    return {
        STARRED if probe == PROBES[0] else probe: _text(values[probe], metric) if probe in values.index else "–"
        for probe in PROBES
    }


def _text(value: float, metric: str) -> str:
    if metric in _DIGITS:
        return f"{value:,.{_DIGITS[metric]}g}" if abs(value) < 1000 else f"{value:,.0f}"
    return signed(value, 3 if abs(value) < 1 else 1)


def not_run(stages: pd.DataFrame) -> list[str]:
    """Catalogue names of the paper's models of Table 1 that have no numbers here."""
    models = ["eurobert-210m", "eurobert-610m", "gaperon-1.5b", "moderncamembert", "olmo-1b"]
    return [model for model in models if model not in set(stages["model"])]


def draw_comparison(printed: pd.DataFrame, stages: pd.DataFrame, titles: Mapping[str, str]) -> tuple[Figure, str]:
    """Printed and recomputed values, probe by probe: E_r, ΔT and ΔN.

    Args:
        printed, stages, titles: as for :func:`comparison_table`.

    Returns:
        The figure and its alternative text.
    """
    ours = primary(stages)
    figure, axes = stacked(3, 2.0)
    words = []
    labels = list(dict.fromkeys(ours["model"]))
    for axis, metric in zip(axes, (name for name in METRICS if name != "p_energy_null"), strict=True):
        cells = printed[printed["metric"] == metric]
        for place, probe in enumerate(PROBES):
            values = cells.loc[cells["probe"] == probe, "value"]
            axis.plot(np.full(len(values), place - 0.15), values, "o", color=PAPER, markersize=6, alpha=0.8)
            for number, label in enumerate(labels):
                own = ours[(ours["model"] == label) & (ours["quantity"] == metric) & (ours["probe"] == probe)]
                x = place + 0.1 + 0.12 * number
                for row in own.to_dict("records"):
                    axis.plot([x, x], [row["low"], row["high"]], color=model_colour(number))
                    axis.plot(x, row["estimate"], model_marker(number), color=model_colour(number), markersize=7)
        axis.set_ylabel(METRICS[metric].replace("E_r", "$E_r$"))
        if metric == "energy_ratio":
            axis.set_yscale("log")
            axis.axhline(1, color=CONTROL, linestyle=":")
        else:
            # Printed and recomputed values differ by orders of magnitude.
            axis.set_yscale("symlog", linthresh=1 if "tangent" in metric else 0.01)
            axis.axhline(0, color=CONTROL, linestyle=":")
        words.append(f"{METRICS[metric]} printed {_range(cells['value'], metric)}")
        for label in labels:
            own = ours[(ours["model"] == label) & (ours["quantity"] == metric)]
            words.append(f"{titles.get(label, label)} {_range(own['estimate'], metric)}")
    axes[-1].set_xticks(range(len(PROBES)), [STARRED if probe == PROBES[0] else probe for probe in PROBES])
    axes[-1].set_xlabel("probe (* the paper's primary test)")
    handles = [Line2D([], [], color=PAPER, marker="o", linestyle="", label="printed, five models")]
    handles += [
        Line2D([], [], color=model_colour(number), marker=model_marker(number), label=titles.get(label, label))
        for number, label in enumerate(labels)
    ]
    handles.append(Line2D([], [], color=CONTROL, linestyle=":", label="chance (E_r), no change (Δ)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, f"Table 1, early block, printed and recomputed, range over probes: {'; '.join(words)}."


def _range(values: pd.Series, metric: str) -> str:
    return f"{_text(values.min(), metric)} to {_text(values.max(), metric)}" if len(values) else "–"


def implied_energy(energy_ratio: float, rank: int, dimension: int) -> float:
    """The energy fraction behind an energy ratio: E_r = e(d − k)/((1 − e)k) solved for e."""
    return energy_ratio * rank / (dimension - rank + energy_ratio * rank)


def implied_energies(printed: pd.DataFrame, ranks: Sequence[int]) -> pd.DataFrame:
    """Energy fractions (%) that the printed energy ratios stand for, if the rank had been so much.

    The rank is not printed where we could read it; the hidden sizes are the catalogue's.

    Returns:
        Columns ``model``, ``d``, ``probe``, ``E_r`` and one per rank.
    """
    rows = []
    for row in printed[printed["metric"] == "energy_ratio"].to_dict("records"):
        d = catalogue().hub[CATALOGUE_NAMES[row["model"]]].hidden_size
        shares = {f"k = {k}": 100 * implied_energy(row["value"], k, d) for k in ranks}
        rows.append({"model": row["model"], "d": d, "probe": row["probe"], "E_r": row["value"], **shares})
    return pd.DataFrame(rows)


def implied_participation(printed: pd.DataFrame, rank: int) -> pd.DataFrame:
    """The participation ratio at which removing random directions alone would give the printed ΔN.

    Removing k random directions changes Iso* by about −100·k·PR/d² %, so PR ≈ −ΔN·d²/(100k).

    Returns:
        Columns ``model``, ``d``, ``probe``, ``ΔN (%)``, ``PR`` and ``PR / d``.
    """
    rows = []
    for row in printed[printed["metric"] == "delta_isoscore_star_normal_percent"].to_dict("records"):
        d = catalogue().hub[CATALOGUE_NAMES[row["model"]]].hidden_size
        ratio = -row["value"] * d**2 / (100 * rank)
        rows.append(
            {
                "model": row["model"],
                "d": d,
                "probe": row["probe"],
                "ΔN (%)": row["value"],
                "PR": ratio,
                "PR / d": ratio / d,
            }
        )
    return pd.DataFrame(rows)


def p_value_remark(printed: pd.DataFrame, draws: int = 20, most_draws: int = 50) -> str:
    """Which printed p-values cannot come from one test with so many draws, and how many draws could give them."""
    values = printed.loc[printed["metric"] == "p_energy_null", "value"]
    odd = sorted({value for value in values if not _is_multiple(value, draws)}, reverse=True)
    if not odd:
        return f"Every printed p-value is a multiple of 1/{draws + 1}, as one test with {draws} draws gives."
    parts = []
    for value in odd:
        counts = [n for n in range(1, most_draws + 1) if _is_multiple(value, n)]
        first = counts[0] if counts else None
        could = (
            f"the fewest draws that could give it are {first}" if first else f"no test with up to {most_draws} draws"
        )
        parts.append(f"{value:.3f} ({could})")
    return (
        f"{len(values) - sum(value in odd for value in values)} of {len(values)} printed p-values are multiples of "
        f"1/{draws + 1}, and none is below that floor. The others cannot come from one test with {draws} draws: "
        f"{', '.join(parts)}. They may be averages over checkpoints."
    )


def _is_multiple(value: float, draws: int) -> bool:
    """Whether a p-value printed with three decimals can be (1 + count)/(draws + 1)."""
    return abs(round(value * (draws + 1)) / (draws + 1) - value) <= 5.0001e-4


def size_sentence(printed: pd.DataFrame, stages: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """How the recomputed energy ratios lie against the printed ones, one sentence a model."""
    ours = primary(stages)
    ours = ours[ours["quantity"] == "energy_ratio"]
    values = printed.loc[printed["metric"] == "energy_ratio", "value"]
    sentences = []
    for label in dict.fromkeys(ours["model"]):
        own = ours.loc[ours["model"] == label, "estimate"]
        inside = int(((own >= values.min()) & (own <= values.max())).sum())
        sentences.append(
            f"{titles.get(label, label)}: $E_r$ from {_range(own, 'energy_ratio')}, {inside} of {len(own)} probes "
            f"within the printed range ({_range(values, 'energy_ratio')})"
        )
    return ". ".join(sentences) + "." if sentences else "No model of this page has an early block."


def baseline_sentence(stages: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """How far ΔN lies from what removing random directions does, one sentence a model."""
    ours = primary(stages)
    sentences = []
    for label in dict.fromkeys(ours["model"]):
        values = ours[ours["model"] == label].pivot(index="probe", columns="quantity", values="estimate")
        normal, null = values["delta_isoscore_star_normal_percent"], values["delta_null"]
        sentences.append(
            f"{titles.get(label, label)}: ΔN {_range(normal, 'delta')} %, random bases of the same rank "
            f"{_range(null, 'delta')} %"
        )
    return ". ".join(sentences) + "." if sentences else ""
