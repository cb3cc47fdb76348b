"""Table 1 as text, and the sentences of the tangent alignment chapter; all computed from its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from anisotropy.models.labels import join_label
from anisotropy.report.rules.tangents import PRIMARY, reading_name
from anisotropy.report.scorecard import Verdict
from anisotropy.report.tables import signed
from anisotropy.report.tangents import chosen_basis, short
from anisotropy.studies.tangent_tables import CONTROLS

_TANGENT, _NORMAL = "delta_isoscore_star_tangent_percent", "delta_isoscore_star_normal_percent"
# Of Table 1: what a line is called (with ζ where it matters), which quantity it holds, how it is written.
_LINES = (
    ("E_r", "energy_ratio", "ratio"),
    ("E_r, random bases", "energy_ratio_null", "band"),
    ("p, the paper's", "p_energy_null", "p"),
    ("p, calibrated", "p_energy_calibrated", "p"),
    ("ΔT (%)", _TANGENT, "percent"),
    ("ΔN (%)", _NORMAL, "percent"),
    ("Δ null (%)", "delta_null", "null"),
    ("ΔT − null (%), ζ = {:g}", "excess", "percent"),
    ("ΔT − null (%), ζ = {:g}", "excess", "other"),
    ("p, ΔT > ΔN", "p_isoscore_sign", "p"),
    ("base Iso*", "base_isoscore_star", "number"),
    ("e_T", "energy_fraction", "number"),
)


def table_one(
    stages: pd.DataFrame, other: pd.DataFrame, zetas: tuple[float, float], basis: str, gradient: str = "activation"
) -> pd.DataFrame:
    """The layout of the paper's Table 1 for one model and training seed, nulls beside.

    Args:
        stages: one model's rows of what :func:`anisotropy.studies.tangent_tables.stage_table` returned.
        other: the same with the other ζ.
        zetas: ζ of ``stages`` and of ``other``.
        basis: of the proxy.
        gradient: which reading.

    Returns:
        A first column of quantities with their units and one per probe, the primary one starred; effect sizes bold, an
        interval (95 % over blocks) under its estimate, p-values plain (HTML).
    """
    chosen = [rows[(rows["gradient"] == gradient) & (rows["basis"] == basis)] for rows in (stages, other)]
    here, there = ({_place(row): row for row in rows.to_dict("records")} for rows in chosen)
    probes = list(dict.fromkeys(chosen[0]["probe"]))
    names = {probe: f"{probe}*" if place == 0 else probe for place, probe in enumerate(probes)}
    lines: list[dict[str, str]] = []
    for stage in dict.fromkeys(chosen[0]["stage"]):
        lines.append({"quantity": f"<b>{stage.upper()}</b>", **dict.fromkeys(names.values(), "")})
        for label, quantity, kind in _LINES:
            rows = there if kind == "other" else here
            line = {"quantity": label.format(zetas[1] if kind == "other" else zetas[0])}
            for probe, name in names.items():
                row = rows.get((stage, quantity, probe))
                line[name] = "–" if row is None else _cell(row, kind)
            lines.append(line)
        line = {"quantity": "e_T / variance share"}
        for probe, name in names.items():
            share, own = (
                here[stage, quantity, probe]["estimate"] for quantity in ("energy_fraction", "variance_share")
            )
            line[name] = f"{share / own:.2f}"
        lines.append(line)
    return pd.DataFrame(lines)


def _place(row: Mapping[Any, Any]) -> tuple[str, str, str]:
    return row["stage"], row["quantity"], row["probe"]


def _cell(row: Mapping[Any, Any], kind: str) -> str:
    estimate, low, high = (float(row[name]) for name in ("estimate", "low", "high"))
    if kind == "band":
        return f"{low:.2f} to {high:.2f}"
    if kind in ("number", "p"):
        return f"{estimate:#.2g}" if estimate >= 0.001 else "< 0.001"
    if kind == "ratio":
        texts = [f"{value:#.3g}" if value < 99.5 else short(value) for value in (estimate, low, high)]
    else:
        texts = [signed(value, 0 if abs(value) >= 9.95 else 1) for value in (estimate, low, high)]
    first = texts[0] if kind == "null" else f"<b>{texts[0]}</b>"
    return f'{first}<br><small style="white-space: nowrap">[{texts[1]}, {texts[2]}]</small>'


def sizes(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str], rank: int) -> str:
    """Ranks, dimensions and sample sizes behind the tables, one sentence a model."""
    lines = []
    for model, table in courses.items():
        rows = table[table["gradient"] == "activation"]
        d, blocks, steps = int(rows["d"].max()), int(rows["blocks"].max()), rows["step"].nunique()
        n = sorted({int(value) for value in rows["n"]})
        counted = f"{n[0]:,}" if len(n) == 1 else f"{n[0]:,} to {n[-1]:,}"
        lines.append(
            f"{titles[model]}: rank k = {rank} of d = {d} (k/d = {rank / d:.3f}), {counted} gradients in {blocks} "
            f"blocks of documents at {f'each of {steps} checkpoints' if steps > 1 else 'one checkpoint'}."
        )
    return " ".join(lines)


def course_sentences(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """Where E_r starts, peaks and ends, an item per model and basis (Markdown)."""
    lines = []
    for model, table in courses.items():
        rows = table[(table["gradient"] == "activation") & (table["basis"] != "semi_nmf")]
        if rows["step"].nunique() < 2:
            lines.append(f"- **{titles[model]}** has one checkpoint here: it has no course.")
            continue
        lines += [
            f"- **{titles[model]}, {basis} basis.** {_of_basis(here)}"
            for basis, here in rows.groupby("basis", sort=False)
        ]
    return "\n".join(lines)


def _of_basis(rows: pd.DataFrame) -> str:
    first, last = rows["step"].min(), rows["step"].max()
    tops = rows.loc[rows.groupby("probe", sort=False)["energy_ratio"].idxmax()]
    start = f"At step {first} E_r is {between(rows.loc[rows['step'] == first, 'energy_ratio'])}"
    peaks = ", ".join(
        f"{short(value)} at {probe} (step {step})"
        for value, probe, step in zip(tops["energy_ratio"], tops["probe"], tops["step"], strict=True)
    )
    end = between(rows.loc[rows["step"] == last, "energy_ratio"])
    return f"{start}. Its highest values: {peaks}. At step {last} it is {end}."


def between(values: Iterable[float]) -> str:
    """The smallest and the largest of some numbers, in words."""
    low, high = min(values := list(values)), max(values)
    return short(low) if short(low) == short(high) else f"{short(low)} to {short(high)}"


def untrained_sentences(courses: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """What the bases give before any training, an item per model (Markdown)."""
    lines, ahead = [], 0
    for model, table in courses.items():
        rows = table[(table["step"] == 0) & (table["gradient"] == "activation") & (table["basis"] != "semi_nmf")]
        if rows.empty or table["step"].nunique() < 2:
            lines.append(f"- **{titles[model]}** has no untrained checkpoint beside trained ones here.")
            continue
        above, parts = {}, []
        for basis, here in rows.groupby("basis", sort=False):
            above[basis] = int((here["energy_ratio_low"] > here["energy_ratio_null_high"]).sum())
            parts.append(
                f"the {basis} basis gives {between(here['energy_ratio'])} (above random bases at {above[basis]} of "
                f"{len(here)} probes)"
            )
        lines.append(f"- **{titles[model]}**, step 0: {'; '.join(parts)}.")
        ahead += above.get("early", 0) > above.get("own", 0)
    if ahead:
        lines += [
            "",
            "Where the early basis alone is above chance, training did not make this alignment in the usual direction. "
            "The basis comes from *later* activations, and by then activations may have moved along these very "
            "gradients: alignment can run from gradients to activations as well.",
        ]
    return "\n".join(lines)


def shuffled_sentences(stages: pd.DataFrame, titles: Mapping[str, str], gradient: str = "activation") -> str:
    """Whether gradients of shuffled labels lie in the proxy as well, and what follows (Markdown)."""
    lines, reached, ahead = [], 0, 0
    for label, rows in by_model(stages):
        rows = rows[(rows["gradient"] == gradient) & (rows["basis"] == chosen_basis(rows))]
        parts = []
        for stage, here in rows.groupby("stage", sort=False):
            found = here[here["quantity"] == "advantage over shuffled labels"]
            as_high, higher = found["estimate"] <= 0, found["low"] > 0
            reached, ahead = reached + int(as_high.sum()), ahead + int(higher.sum())
            ratio = np.exp(-found["estimate"])
            parts.append(
                f"{stage}, shuffled labels give {between(ratio)} times the E_r of true ones: as high or higher at "
                f"{_listed(found.loc[as_high, 'probe'])}, clearly lower at {_listed(found.loc[higher, 'probe'])}"
            )
        lines.append(f"- **{titles[label]}**: {'; '.join(parts)}.")
    if reached > ahead:
        lines += [
            "",
            "**What this means.** A gradient with wrong labels lies in the same directions. Every gradient reaches a "
            "probe through the same layers behind it, whatever the labels: the alignment is then a property of the "
            "network's Jacobian and of its activations, more than of what the labels teach.",
        ]
    elif ahead and not reached:
        lines += [
            "",
            "**What this means.** Gradients lie in the proxy more with true labels than with wrong ones: a part of the "
            "alignment belongs to what the labels teach.",
        ]
    else:
        lines += ["", "**What this means.** Probes differ, so labels neither explain the alignment nor are ruled out."]
    return "\n".join(lines)


def not_meant(stages: pd.DataFrame, gradient: str = "activation") -> str:
    """What a failed comparison with shuffled labels does not mean, from the other controls."""
    rows = pd.concat(
        [here[(here["gradient"] == gradient) & (here["basis"] == chosen_basis(here))] for _, here in by_model(stages)]
    )
    parts = []
    for control in CONTROLS:
        found = rows[rows["quantity"] == f"advantage over {control}"]
        if control != "shuffled labels" and len(found):
            parts.append(f"{control} at {int((found['low'] > 0).sum())} of {len(found)}")
    ratios = rows[rows["quantity"] == "energy_ratio"]
    elsewhere = rows[(rows["quantity"] == "advantage over other probe") & (rows["estimate"] <= 0)]
    shared = (
        f" Where the basis of another probe does as well ({_listed(elsewhere['probe'])}), the directions belong to the "
        "residual stream, which all probes share, more than to one place in it."
    )
    return (
        "A comparison that fails does not mean that there is no alignment. Over models, stages and probes, E_r lies "
        f"clearly above 1 in {int((ratios['low'] > 1).sum())} of {len(ratios)} cases, and clearly above these "
        f"controls: {', '.join(parts)}.{shared if len(elsewhere) else ''}"
    )


_AGAINST = {
    "excess": "random directions",
    "tangent over normal": "next variance",
    "excess over untrained": "untrained",
}


def anisotropy_sentences(stages: pd.DataFrame, titles: Mapping[str, str], gradient: str = "activation") -> str:
    """Where the proxy carries the gradient's anisotropy, an item per model and stage (Markdown)."""
    lines = []
    for label, rows in by_model(stages):
        rows = rows[(rows["gradient"] == gradient) & (rows["basis"] == chosen_basis(rows))]
        for stage, here in rows.groupby("stage", sort=False):
            excess = here.loc[here["quantity"] == "excess", "estimate"]
            missing: dict[str, list[str]] = {probe: [] for probe in here["probe"]}
            for quantity, name in _AGAINST.items():
                found = here[here["quantity"] == quantity]
                for probe in found.loc[found["low"] <= 0, "probe"]:
                    missing[probe].append(name)
            passed = [probe for probe, names in missing.items() if not names]
            text = f"ΔT − null is {signed(excess.min(), 0)} to {signed(excess.max(), 0)} %. "
            text += f"Clearly above every comparison at {_listed(passed)}"
            rest = [f"{probe} ({', '.join(names)})" for probe, names in missing.items() if names]
            text += f"; not clearly above at {', '.join(rest)}." if rest else "."
            lines.append(f"- **{titles[label]}, {stage}.** {text}")
    return "\n".join(lines)


def against_variance(stages: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Whether the proxy holds more of the gradient's energy than of the activations' variance, a sentence a model."""
    lines = []
    for label, rows in by_model(stages):
        rows = rows[(rows["gradient"] == "activation") & (rows["basis"] == chosen_basis(rows))]
        wide = rows.pivot(index=["stage", "probe"], columns="quantity", values="estimate")
        energy, variance = wide["energy_fraction"], wide["variance_share"]
        more = int((energy > variance).sum())
        if more == len(wide):
            text = "gradients are more concentrated in the proxy than the activations it was made from"
        elif more == 0:
            text = "gradients are less concentrated in the proxy than the activations it was made from"
        else:
            text = f"gradients are more concentrated in it than activations in {more} of {len(wide)} cases"
        lines.append(
            f"{titles[label]}: the proxy holds {between(energy)} of the gradient energy and {between(variance)} of the "
            f"variance of held-out activations; {text}."
        )
    return " ".join(lines)


def by_model(stages: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Rows by label: a model and its training seed."""
    return [(join_label(model, seed), rows) for (model, seed), rows in stages.groupby(["model", "seed"], sort=False)]


def _listed(probes: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(probes)) or "no probe"


def bases_sentence(stages: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """How far the early basis still fits late, against the model's own, a sentence per model."""
    lines = []
    for label, rows in by_model(stages):
        late = rows[
            (rows["gradient"] == "activation") & (rows["stage"] == "late") & (rows["quantity"] == "energy_ratio")
        ]
        ratios = late.pivot(index="probe", columns="basis", values="estimate")
        if not {"early", "own"} <= set(ratios.columns):
            only = set(rows["stage"]) == {"only"}
            why = "one checkpoint, so no early basis beside its own" if only else "only one of the bases late"
            lines.append(f"{titles[label]} has {why}.")
            continue
        ratio = ratios["early"] / ratios["own"]
        if (ratio < 1).all():
            end = "the early basis has aged"
        else:
            end = "it has not aged" if (ratio >= 1).all() else "it has aged at some probes only"
        lines.append(
            f"{titles[label]}, late: the early basis has {between(ratio)} times the E_r of the own one; {end}."
        )
    return " ".join(lines)


def spectrum_sentences(spectra: Mapping[str, pd.DataFrame], titles: Mapping[str, str], probe: str, rank: int) -> str:
    """Shares of the first direction and of the proxy, a sentence per model."""
    lines = []
    for model, table in spectra.items():
        rows = table[(table["probe"] == probe) & (table["step"] == table["step"].max())].sort_values("direction")
        energy, variance = rows["gradient_energy"].cumsum(), rows["activation_variance"].cumsum()
        lines.append(
            f"{titles[model]} at {probe}, last checkpoint: the first direction holds {energy.iloc[0]:.2f} of the "
            f"gradient energy and {variance.iloc[0]:.2f} of the activations' variance, the first {rank} hold "
            f"{energy.iloc[rank - 1]:.2f} and {variance.iloc[rank - 1]:.2f}."
        )
    return " ".join(lines)


def rank_sentences(tables: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """At which ranks the proxy carries anisotropy beyond chance, an item per model (Markdown)."""
    lines = []
    for model, table in tables.items():
        above, best = [], []
        for probe, rows in table.groupby("probe", sort=False):
            good = list(rows.loc[rows["excess_low"] > 0, "rank"])
            above.append(f"{probe} {_ranks(good, len(rows))}")
            best.append(f"{rows.sort_values('energy_ratio')['rank'].iloc[-1]} at {probe}")
        lines.append(
            f"- **{titles[model]}.** Ranks at which ΔT − null is clearly above 0: {'; '.join(above)}. Rank with the "
            f"highest E_r: {', '.join(best)}."
        )
    return "\n".join(lines)


def _ranks(good: Sequence[int], tried: int) -> str:
    return "all" if len(good) == tried else ", ".join(map(str, good)) or "none"


def primary_sentences(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> str:
    """The verdict under the primary reading, an item per model (Markdown)."""
    lines = []
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        found = [one for one in verdicts if one.model == model and one.reading == reading_name(*PRIMARY)]
        if found:
            lines.append(f"- {found[0].sentence(titles[model])}")
        else:
            lines.append(f"- {titles[model]}: the primary reading ({reading_name(*PRIMARY)}) is not among these.")
    return "\n".join(["Under the primary reading:", "", *lines])


def verdict_grid(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> pd.DataFrame:
    """Outcomes at a glance: a row per gradient and basis, a column per model and stage, the primary reading starred."""
    rows: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        name, _, stage = verdict.reading.rpartition(", ")
        star = "*" if verdict.reading == reading_name(*PRIMARY) else ""
        row = rows.setdefault(name, {"reading": name})
        row[f"{titles[verdict.model]}, {stage}"] = f"{verdict.outcome.value}{star}"
    return pd.DataFrame(rows.values()).fillna("–")
