"""Tables and sentences of the frequency chapter, computed from its correlations and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from anisotropy.report.rules.frequency import frequent_tokens_confined, is_tied, reading_name
from anisotropy.report.scorecard import Verdict
from anisotropy.report.tables import run_title, signed

_COLUMNS = {
    ("distance", "pearson"): "distance",
    ("distance", "spearman"): "distance, ranks",
    ("relative", "pearson"): "distance / norm",
    ("relative", "spearman"): "distance / norm, ranks",
}


def control_table(correlations: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Correlations of trained models as text: a row per model and reading, a column per value and kind."""
    trained = correlations[correlations["stage"] == "trained"]
    rows = trained.assign(
        model=[run_title(titles, model, seed) for model, seed in zip(trained["model"], trained["seed"], strict=True)],
        reading=[reading_name(*reading) for reading in zip(trained["centroid"], trained["matrix"], strict=True)],
        column=[_COLUMNS[column] for column in zip(trained["value"], trained["kind"], strict=True)],
        text=[signed(estimate) for estimate in trained["estimate"]],
    )
    names = ["model", "reading"]
    wide = rows.pivot(index=names, columns="column", values="text").reindex(columns=list(_COLUMNS.values()))
    return rows[names].drop_duplicates().merge(wide.astype(object).fillna("–").reset_index(), on=names)


def robustness(tables: Mapping[int, pd.DataFrame], controls: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Which readings change their verdict with the cut-off of the rare tail, a list per model (Markdown)."""
    outcomes: dict[tuple[str, str], dict[str, list[int]]] = {}
    for minimum, table in tables.items():
        for verdict in frequent_tokens_confined(table, controls):
            if verdict.estimate is not None:
                places = outcomes.setdefault((verdict.model, verdict.reading), {})
                places.setdefault(verdict.outcome.value, []).append(minimum)
    lines: list[str] = []
    for model in dict.fromkeys(model for model, _ in outcomes):
        changing = [
            f"- {reading}: " + "; ".join(f"{outcome} at {_listed(minima)}" for outcome, minima in places.items())
            for (other, reading), places in outcomes.items()
            if other == model and len(places) > 1
        ]
        if changing:
            lines += [f"For {titles[model]} the cut-off decides under:", "", *changing, ""]
        else:
            lines += [f"For {titles[model]} no verdict depends on the cut-off.", ""]
    return "\n".join(lines).strip()


def _listed(minima: Sequence[int]) -> str:
    return ", ".join(f"{minimum:,}" for minimum in minima)


def norm_flips(correlations: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """One sentence on the readings whose correlation changes its sign when distances are divided by norms."""
    trained = correlations[(correlations["stage"] == "trained") & (correlations["kind"] == "pearson")]
    names = ["model", "seed", "centroid", "matrix"]
    wide = trained.pivot(index=names, columns="value", values="estimate").dropna().reset_index()
    flips = [
        f"{run_title(titles, row['model'], row['seed'])}, {reading_name(row['centroid'], row['matrix'])} "
        f"({signed(row['distance'])} → {signed(row['relative'])})"
        for row in wide[wide["distance"] * wide["relative"] < 0].to_dict("records")
    ]
    if not flips:
        return "No reading changes its sign when distances are divided by norms."
    return f"Readings that change their sign when distances are divided by norms: {'; '.join(flips)}."


def disagreement(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> str:
    """One sentence a model on whether the readings agree in sign, computed from the verdicts."""
    sentences = []
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.model == model and verdict.estimate is not None]
        negative = [verdict.reading for verdict in own if verdict.high is not None and verdict.high < 0]
        positive = [verdict.reading for verdict in own if verdict.low is not None and verdict.low > 0]
        unclear = [verdict.reading for verdict in own if verdict.reading not in negative + positive]
        parts = [
            f"{label} under {' and '.join(readings)}"
            for label, readings in (
                ("negative", negative),
                ("positive", positive),
                ("not told apart from zero", unclear),
            )
            if readings
        ]
        if not own:
            sentences.append(f"For {titles[model]} no reading applies.")
        elif len(parts) == 1:
            sentences.append(f"For {titles[model]} every reading agrees: the correlation is {parts[0]}.")
        else:
            sentences.append(f"For {titles[model]} the reading decides. The correlation is {'; '.join(parts)}.")
    return " ".join(sentences)


_WHY_NOT = {
    "trajectory": "it needs two checkpoints after step 0",
    "vocabulary": "it needs an embedding matrix",
    "occurrences": "no token occurs often enough in the text that was read",
}


def left_out(tokens: Mapping[str, pd.DataFrame], titles: Mapping[str, str]) -> str:
    """One sentence a reading on the models it does not apply to, with the reason; empty where it applies to all.

    Args:
        tokens: by model, what :func:`anisotropy.studies.frequency.token_distances` returned.
        titles: of the models.
    """
    sentences = []
    for centroid, why in _WHY_NOT.items():
        without = [titles[model] for model, table in tokens.items() if not (table["centroid"] == centroid).any()]
        if without:
            sentences.append(f"The reading `{centroid}` does not apply to {' and '.join(without)}: {why}.")
    return " ".join(sentences)


_TIED_QUANTITIES = ("ρ, trajectory", "ρ, vocabulary", "mean cosine, rarest fifth")


def tied_table(correlations: pd.DataFrame, cosines: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """What input and output matrix show, where a page has models with one matrix for both and models with two.

    Args:
        correlations: what :func:`anisotropy.studies.frequency.summarise` returned, controls' rows left out.
        cosines: what :func:`anisotropy.studies.frequency.group_cosines` returned, with a column ``model``.
        titles: of the models.

    Returns:
        Columns ``quantity``, ``model`` (label), ``title``, ``tied``, ``input``, ``output`` (missing where tied), a row
        per quantity and model that has it, of training seed 0; empty unless both kinds are there.
    """
    chosen = (correlations["value"] == "distance") & (correlations["kind"] == "pearson")
    found = correlations[chosen & (correlations["stage"] == "trained") & (correlations["seed"] == 0)]
    tied = {model: is_tied(rows) for model, rows in found.groupby("model", sort=False)}
    rows = []
    for quantity in _TIED_QUANTITIES:
        for model in tied:
            if quantity.startswith("ρ"):
                own = found[(found["model"] == model) & (found["centroid"] == quantity.removeprefix("ρ, "))]
                values = own.set_index("matrix")["estimate"]
            else:
                own = cosines[(cosines["model"] == model) & (cosines["group"] == 1)]
                values = own.set_index("matrix")["cosine"]
            if "input" in values:
                row = {"quantity": quantity, "model": model, "title": titles[str(model)], "tied": tied[model]}
                rows.append(row | {"input": values["input"], "output": values.get("output", float("nan"))})
    both_kinds = len(set(tied.values())) == 2
    return pd.DataFrame(rows if both_kinds else [], columns=["quantity", "model", "title", "tied", "input", "output"])


def tied_as_text(table: pd.DataFrame) -> pd.DataFrame:
    """What :func:`tied_table` returned, ready to be shown: a tied model's number stands once."""
    return pd.DataFrame(
        {
            "quantity": table["quantity"],
            "model": table["title"],
            "input matrix": [signed(value) for value in table["input"]],
            "output matrix": [
                "the same matrix" if tied else signed(value)
                for tied, value in zip(table["tied"], table["output"], strict=True)
            ],
        }
    )


def tied_sentences(table: pd.DataFrame) -> list[str]:
    """For each tied model and each untied one, whose numbers those of the shared matrix are nearer to."""
    sentences = []
    for shared, one in table[table["tied"]].groupby("title", sort=False):
        mine = one.set_index("quantity")["input"]
        for other, two in table[~table["tied"]].groupby("title", sort=False):
            theirs = two.set_index("quantity")
            nearer: dict[str, list[str]] = {"input": [], "output": []}
            for quantity in [name for name in mine.index if name in theirs.index]:
                gaps = {matrix: abs(mine[quantity] - theirs.at[quantity, matrix]) for matrix in nearer}
                nearer[min(gaps, key=lambda matrix: gaps[matrix])].append(f"{quantity} ({signed(mine[quantity])})")
            parts = [
                f"nearer to its {matrix} matrix in {'; '.join(names)}" for matrix, names in nearer.items() if names
            ]
            if parts:
                sentences.append(f"{shared} beside {other}: {', and '.join(parts)}.")
    return sentences
