"""Tables and sentences of the chapter on embedding updates, computed from its measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from anisotropy.errors import UserError
from anisotropy.models.labels import names_of_controls
from anisotropy.report.rules.updates import RANDOM_BASIS, SHUFFLED_LABELS, UNTRAINED_BASIS
from anisotropy.report.tables import run_title, signed
from anisotropy.report.updates import select

_READING_COLUMNS = {
    ("corrected", "measured"): "corrected",
    ("left out only", "measured"): "token left out only",
    ("w removed only", "measured"): "w removed only",
    ("naive", "measured"): "naive",
    ("naive", "decay"): "−w, naive",
}
_CORRECTIONS = {"left out only": "leaving the token out", "w removed only": "removing the component along w"}


def reading_table(summary: pd.DataFrame, titles: Mapping[str, str], rank: int) -> pd.DataFrame:
    """Correlation of tangent enrichment with log frequency under every reading, and the tokens that have none.

    Args:
        summary: what :func:`anisotropy.studies.updates.summarise` returned.
        titles: of the models.
        rank: of the subspace.
    """
    rows = []
    here = summary[(summary["basis"] == "start") & (summary["rank"] == rank)]
    for (model, seed, matrix, stage), group in here.groupby(["model", "seed", "matrix", "stage"], sort=False):
        found = group.set_index(["reading", "update"])
        row: dict[str, object] = {"model": run_title(titles, model, seed), "updates": f"{matrix}, {stage}"}
        for key, column in _READING_COLUMNS.items():
            estimate = float(found["estimate"].get(key, np.nan))
            row[f"{column} (ρ)"] = "–" if np.isnan(estimate) else signed(estimate)
        row["without (tokens)"] = int(found["missing"].get(("corrected", "measured"), 0))
        rows.append(row)
    return pd.DataFrame(rows)


def effect_of_corrections(summary: pd.DataFrame, titles: Mapping[str, str], rank: int, stage: str) -> str:
    """What the two corrections do to the correlation, a line per model and matrix (Markdown)."""
    lines = []
    here = summary[(summary["basis"] == "start") & (summary["rank"] == rank) & (summary["stage"] == stage)]
    here = here[here["update"] == "measured"]
    for (model, seed, matrix), group in here.groupby(["model", "seed", "matrix"], sort=False):
        found: dict[str, Any] = {str(row["reading"]): row for row in group.to_dict("records")}
        if any(np.isnan(found.get(name, {}).get("estimate", np.nan)) for name in ("naive", "corrected", *_CORRECTIONS)):
            continue
        naive, corrected = found["naive"], found["corrected"]
        ends = f"{signed(naive['estimate'])} → {signed(corrected['estimate'])}"
        if naive["low"] > 0 > corrected["high"] or naive["high"] < 0 < corrected["low"]:
            verb = "turns its sign"
        elif (naive["low"] > 0 or naive["high"] < 0) and corrected["low"] <= 0 <= corrected["high"]:
            verb = "can no longer be told from zero"
        elif naive["low"] <= corrected["estimate"] <= naive["high"]:
            verb = "hardly changes"
        else:
            verb = "changes"
        alone = {name: abs(found[name]["estimate"] - naive["estimate"]) for name in _CORRECTIONS}
        larger = _CORRECTIONS[max(alone, key=lambda name: alone[name])]
        lines.append(f"- {run_title(titles, model, seed)}, {matrix} matrix: ρ {verb} ({ends}), mostly by {larger}.")
    if not lines:
        return f"No model has {stage} updates to correct."
    return "\n".join([f"From the naive to the corrected reading of {stage} updates:", "", *lines])


def rank_sentence(summary: pd.DataFrame, models: Sequence[str], titles: Mapping[str, str]) -> str:
    """Whether the sign of the correlation hangs on the rank, a line per model, matrix and stage (Markdown)."""
    rows = select(summary).dropna(subset=["estimate"])
    lines = []
    for key, group in rows[rows["model"].isin(models)].groupby(["model", "seed", "matrix", "stage"], sort=False):
        model, seed, matrix, stage = key
        ordered = group.sort_values("rank")
        sides = {
            "positive": ordered.loc[ordered["low"] > 0, "rank"].tolist(),
            "negative": ordered.loc[ordered["high"] < 0, "rank"].tolist(),
            "not told from zero": ordered.loc[(ordered["low"] <= 0) & (ordered["high"] >= 0), "rank"].tolist(),
        }
        found = {name: ranks for name, ranks in sides.items() if ranks}
        if len(found) == 1:
            text = f"{next(iter(found))} at every rank"
        else:
            text = "; ".join(f"{name} at rank {', '.join(map(str, ranks))}" for name, ranks in found.items())
        lines.append(f"- {run_title(titles, model, seed)}, {matrix} matrix, {stage}: {text}.")
    return "\n".join(["The correlation is:", "", *lines]) if lines else "There is no correlation to compare."


def missing_tokens(summary: pd.DataFrame, titles: Mapping[str, str], rank: int, stage: str) -> str:
    """How many tokens moved along their own row only, or not at all, a line per model and matrix (Markdown)."""
    rows = select(summary, stage, rank=rank)
    lines = [
        f"- {run_title(titles, row['model'], row['seed'])}, {row['matrix']} matrix: {int(row['missing']):,} of "
        f"{int(row['n'] + row['missing']):,}"
        for row in rows.to_dict("records")
    ]
    if not lines:
        return f"No model has {stage} updates."
    return "\n".join([f"Tokens without any {stage} update beside one along their own row:", "", *lines])


def group_sentence(tokens: Mapping[str, pd.DataFrame], titles: Mapping[str, str], stage: str, rank: int) -> str:
    """Whether the most or the least frequent quarter has the more tangent updates, a line each (Markdown)."""
    lines = []
    for model, table in tokens.items():
        for matrix, rows in select(table, stage, rank=rank).groupby("matrix"):
            groups = {number: group["tangent"].dropna() for number, group in rows.groupby("group")}
            rare, frequent = groups.get(1, pd.Series(dtype=float)), groups.get(4, pd.Series(dtype=float))
            if rare.empty or frequent.empty:
                continue
            error = float(np.hypot(rare.std() / np.sqrt(len(rare)), frequent.std() / np.sqrt(len(frequent))))
            gap = float(frequent.mean() - rare.mean())
            if abs(gap) <= 1.96 * error or not np.isfinite(error):
                who = "the rarest and the most frequent quarter are not told apart"
            else:
                who = f"the {'most frequent' if gap > 0 else 'rarest'} quarter is the more tangent"
            lines.append(
                f"- {titles[model]}, {matrix} matrix, {stage}: {who} (mean enrichment {frequent.mean():.2f} for "
                f"frequent and {rare.mean():.2f} for rare tokens)."
            )
    return "\n".join(lines) or f"No model has {stage} updates."


def control_table(
    summary: pd.DataFrame, controls: Mapping[str, str], titles: Mapping[str, str], rank: int, stage: str
) -> pd.DataFrame:
    """Every control of claim C4 with its measured outcome, below the model it belongs to.

    Args:
        summary: what :func:`anisotropy.studies.updates.summarise` returned.
        controls: label of the shuffled-label run by label of the model.
        titles: of the models.
        rank: of the subspace.
        stage: ``"early"`` or ``"late"``.
    """
    rows = []
    controls = names_of_controls(controls)
    main = select(summary, stage, rank=rank)
    for own in main[~main["model"].isin(set(controls.values()))].to_dict("records"):
        same = {"seed": own["seed"], "matrix": own["matrix"]}
        found = {
            "the model itself": pd.DataFrame([own]),
            SHUFFLED_LABELS: _of(select(summary, stage, rank=rank), model=controls.get(own["model"]), **same),
            UNTRAINED_BASIS: _of(select(summary, stage, rank=rank, basis="untrained"), model=own["model"], **same),
            RANDOM_BASIS: _of(select(summary, stage, rank=rank, basis="random"), model=own["model"], **same),
            "pure weight decay": _of(select(summary, stage, rank=rank, update="decay"), model=own["model"], **same),
        }
        about = {"model": run_title(titles, own["model"], own["seed"]), "matrix": own["matrix"]}
        for name, table in found.items():
            rows.append({**about, "updates": name, **_outcome(table)})
        band = "–" if np.isnan(own["null_low"]) else f"{signed(own['null_low'])} … {signed(own['null_high'])}"
        rows.append({**about, "updates": "shuffled frequencies", "ρ [95 % over tokens]": band} | _NO_MEANS)
    return pd.DataFrame(rows)


_NO_MEANS = {"mean tangent (chance 1)": "–", "mean normal (chance 1)": "–"}


def _of(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def _outcome(table: pd.DataFrame) -> dict[str, str]:
    if table.empty:
        return {"ρ [95 % over tokens]": "not run", **_NO_MEANS}
    row = table.iloc[0]
    if not row["n"]:
        return {"ρ [95 % over tokens]": "no direction left", **_NO_MEANS}
    interval = f"{signed(row['estimate'])} [{signed(row['low'])}, {signed(row['high'])}]"
    return {
        "ρ [95 % over tokens]": "–" if np.isnan(row["estimate"]) else interval,
        "mean tangent (chance 1)": f"{row['tangent']:.2f}",
        "mean normal (chance 1)": f"{row['normal']:.2f}",
    }


def normal_table(summary: pd.DataFrame, titles: Mapping[str, str], rank: int) -> pd.DataFrame:
    """Three readings of "normal" beside the tangent mean; chance is 1 for each."""
    rows = select(summary, rank=rank)
    return pd.DataFrame(
        {
            "model": [run_title(titles, *key) for key in zip(rows["model"], rows["seed"], strict=True)],
            "updates": rows["matrix"] + ", " + rows["stage"],
            "tangent": rows["tangent"],
            "next directions, of what is left": rows["normal"],
            "next directions, of all": rows["normal_of_all"],
            "random directions outside, of all": rows["complement"],
        }
    )


def tracked_tokens(table: pd.DataFrame, rank: int, tokens: int = 5) -> dict[str, list[int]]:
    """Tokens that span the frequency range, chosen by their early updates, for every matrix.

    The targets are evenly spaced in log frequency from the most to the least frequent token with an early enrichment;
    each takes the nearest token that is not taken yet.

    Args:
        table: what :func:`anisotropy.studies.updates.stage_averages` returned.
        rank: of the subspace.
        tokens: how many, at least 2.

    Raises:
        UserError: fewer than two are asked for.
    """
    if tokens < 2:
        raise UserError(f"tracked_tokens: {tokens}; a range needs at least 2")
    chosen = {}
    for matrix, rows in select(table, "early", rank=rank).dropna(subset=["tangent"]).groupby("matrix"):
        left = rows.sort_values(["log10_frequency", "token_id"], ascending=[False, True])
        found: list[int] = []
        for target in np.linspace(left["log10_frequency"].max(), left["log10_frequency"].min(), tokens):
            if left.empty:
                break
            nearest = left.index[int((left["log10_frequency"] - target).abs().to_numpy().argmin())]
            found.append(int(left.loc[nearest, "token_id"]))
            left = left.drop(index=nearest)
        chosen[str(matrix)] = found
    return chosen


def token_table(table: pd.DataFrame, chosen: Mapping[str, Sequence[int]], rank: int) -> pd.DataFrame:
    """The paper's Table 3 for one model: chosen tokens, and their tangent and normal enrichment early and late.

    Returns:
        Columns ``matrix``, ``token_id``, ``frequency``, ``early tangent``, ``early normal``, ``late tangent``,
        ``late normal``; missing where a stage has no pair or the token did not move.
    """
    rows = []
    here = select(table, rank=rank)
    for matrix, tokens in chosen.items():
        for token in tokens:
            own = here[(here["matrix"] == matrix) & (here["token_id"] == token)].set_index("stage")
            row: dict[str, object] = {"matrix": matrix, "token_id": token}
            row["frequency"] = float(10 ** own["log10_frequency"].iloc[0])
            for stage in ("early", "late"):
                for value in ("tangent", "normal"):
                    row[f"{stage} {value}"] = float(own[value].get(stage, np.nan))
            rows.append(row)
    return pd.DataFrame(rows)


def printed_table(printed: pd.DataFrame) -> pd.DataFrame:
    """The paper's Table 3 in its own layout: a row per token, from the most frequent.

    Args:
        printed: what :func:`anisotropy.report.published.table3` returned.
    """
    names = ["model", "token", "frequency"]
    wide = printed.pivot(index=names, columns=["stage", "subspace"], values="enrichment")
    columns = [(stage, value) for stage in ("early", "stable") for value in ("tangent", "normal")]
    table = wide[columns].set_axis([" ".join(column) for column in columns], axis=1).reset_index()
    return table.sort_values("frequency", ascending=False, ignore_index=True)


@dataclass(frozen=True)
class PrintedPair:
    """What a printed pair of enrichments implies in a space of d dimensions.

    Attributes:
        tangent, normal: as printed.
        dimension: d.
        largest_rank: the largest k for which the tangent share, tangent·k/d, is at most 1.
        ceiling: the largest value that the mean over random directions outside the tangent subspace can have, over all
            ranks up to ``largest_rank``; the whole complement, per dimension, has the same value.
        ceiling_rank: the rank at which it is reached.
        digit: half of the last printed digit of ``normal``.
    """

    tangent: float
    normal: float
    dimension: int
    largest_rank: int
    ceiling: float
    ceiling_rank: int
    digit: float = 0.005

    @property
    def possible(self) -> bool:
        """Whether the printed normal value, up to its rounding, lies under the ceiling."""
        return self.normal - self.digit <= self.ceiling

    def remark(self) -> str:
        """The arithmetic in words."""
        share = self.tangent / self.dimension
        can = "can" if self.possible else "cannot"
        return (
            f"With $d = {self.dimension}$ the tangent share of the printed {self.tangent:g} is "
            f"${self.tangent:g}\\,k/{self.dimension} = {share:.4f}\\,k$. It is at most 1, so $k \\le "
            f"{self.largest_rank}$. What is left is shared by the {self.dimension} − k directions outside: their mean "
            f"enrichment is $(d - {self.tangent:g}\\,k)/(d - k)$, at most **{self.ceiling:.3f}** (at $k = "
            f"{self.ceiling_rank}$). The printed {self.normal:.2f} is "
            f"{self.normal - self.digit:.3f} or more before rounding, so it {can} be the full complement or a mean "
            "over random directions in it."
        )


def pairs_remark(printed: pd.DataFrame, dimensions: Mapping[str, int]) -> str:
    """How many printed pairs cannot be, if normal means random directions outside the tangent subspace.

    Args:
        printed: what :func:`anisotropy.report.published.table3` returned.
        dimensions: hidden size by printed model name.
    """
    names = ["model", "token", "stage"]
    pairs = printed.pivot(index=names, columns="subspace", values="enrichment").reset_index()
    ruled_out = [
        f"“{row['token']}” {row['stage']} ({row['tangent']:g}, {row['normal']:.2f})"
        for row in pairs.to_dict("records")
        if not printed_pair(row["tangent"], row["normal"], dimensions[row["model"]]).possible
    ]
    if not ruled_out:
        return f"No pair of the {len(pairs)} is ruled out at every rank."
    return f"Of the {len(pairs)} printed pairs, {len(ruled_out)} cannot be so at any rank: {'; '.join(ruled_out)}."


def printed_pair(tangent: float, normal: float, dimension: int) -> PrintedPair:
    """Hold a printed pair of tangent and normal enrichment against what the energies allow.

    Raises:
        UserError: a tangent enrichment that no rank below d allows.
    """
    largest = int(np.floor(dimension / tangent)) if tangent > 0 else dimension - 1
    ranks = np.arange(1, min(largest, dimension - 1) + 1)
    if not len(ranks):
        raise UserError(f"an enrichment of {tangent:g} is larger than d/k = {dimension} at rank 1")
    ceilings = (dimension - tangent * ranks) / (dimension - ranks)
    best = int(ceilings.argmax())
    return PrintedPair(tangent, normal, dimension, int(ranks[-1]), float(ceilings[best]), int(ranks[best]))
