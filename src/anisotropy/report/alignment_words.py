"""Sentences and tables of the alignment chapter, computed from its measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from anisotropy.models.labels import join_label, split_label
from anisotropy.report.rules.alignment import C6_THRESHOLD, MATRIX_NAMES, METHOD_NAMES, METRIC_NAMES, SHUFFLED_RUN
from anisotropy.report.scorecard import Outcome, Verdict
from anisotropy.report.tables import signed
from anisotropy.studies.replicates import mean_interval


def order(curves: pd.DataFrame, title: str) -> str:
    """Which method's gradient concepts exceed their baseline most at the last checkpoint, mean over all concepts.

    Args:
        curves: one model's rows of :func:`anisotropy.studies.alignment_tables.curves`.
        title: of the model.
    """
    last = curves[(curves["step"] == curves["step"].max()) & (curves["source"] == "gradient")]
    last = last[last["metric"] == "mean"].sort_values("excess", ascending=False)
    listed = ", ".join(
        f"{METHOD_NAMES[row['method']]} {signed(row['excess'], 3)} [{signed(row['excess_low'], 3)}, "
        f"{signed(row['excess_high'], 3)}]"
        for row in last.to_dict("records")
    )
    ica, others = last[last["method"] == "ica"].iloc[0], last[last["method"] != "ica"]
    if (others["excess_low"] > ica["excess_high"]).all():
        comparison = "ICA comes last, as in the paper's caption"
    elif (others["excess_high"] < ica["excess_low"]).all():
        comparison = "ICA comes first, the reverse of the paper's caption"
    else:
        comparison = (
            "ICA comes neither first nor last beyond doubt: the intervals overlap or it lies between the others"
        )
    return f"{title}, excess over all concepts at the last checkpoint: {listed}. {comparison}."


def against_controls(table: pd.DataFrame, model: str, run: str | None, title: str) -> str:
    """Whether trained gradients align more than the controls do, a line per control (Markdown list).

    Args:
        table: what :func:`anisotropy.studies.alignment_tables.summarise` returned.
        model: whose lines.
        run: its run on shuffled labels, if there is one.
        title: of the model.
    """
    mean = table[table["metric"] == "mean"]
    own = _of_label(mean, model)
    last = own["step"].max()
    trained = _excess(own, "gradient", last)
    when = f"at step {last:,}" if own["step"].nunique() > 1 else "at its one checkpoint"
    lines = [f"For {title}, excess over all concepts {when} minus that of the control:", ""]
    compared = [("the same gradients at step 0 (untrained)", _excess(own, "gradient", 0))]
    compared += [("gradients of shuffled labels at the same step", _excess(own, "shuffled", last))]
    if run is not None:
        other = _of_label(mean, run)
        compared += [
            ("the last step of a run trained on shuffled labels", _excess(other, "gradient", other["step"].max()))
        ]
    for name, control in compared:
        if control.empty:
            lines.append(f"- {name}: not measured.")
            continue
        parts = []
        for method in METHOD_NAMES:
            found = mean_interval(trained[method] - control[method])
            word = "more" if found.low > 0 else "less" if found.high < 0 else "not told apart"
            parts.append(f"{METHOD_NAMES[method]} {signed(found.mean, 3)} ({word})")
        lines.append(f"- {name}: {', '.join(parts)}.")
    return "\n".join(lines)


def _of_label(table: pd.DataFrame, label: str) -> pd.DataFrame:
    name, training_seed = split_label(label)
    return table[(table["model"] == name) & (table["seed"] == training_seed)]


def _excess(table: pd.DataFrame, source: str, step: int) -> pd.DataFrame:
    here = table[(table["source"] == source) & (table["step"] == step)]
    return here.pivot(index="group", columns="method", values="excess")


TOKEN_LIKENESS = 0.8  # from here on a concept is called a token's


def token_shares(tokens: pd.DataFrame, text_of: Callable[[Iterable[int]], list[str]]) -> pd.DataFrame:
    """How many concepts are single tokens at the last checkpoint, and which come nearest, a row per part and method.

    Args:
        tokens: one model's :func:`anisotropy.studies.alignment_tables.token_table`.
        text_of: token ids to readable text.
    """
    last = tokens[tokens["step"] == tokens["step"].max()]
    rows = []
    for part in ("data", "gradient"):
        for method, name in METHOD_NAMES.items():
            own = last[(last["part"] == part) & (last["method"] == method)].sort_values("likeness", ascending=False)
            alike = int((own["likeness"] >= TOKEN_LIKENESS).sum())
            nearest = own.drop_duplicates("token_id")["token_id"].head(5)
            rows.append(
                {
                    "concepts of": part,
                    "method": name,
                    "median likeness |ρ|": own["likeness"].median(),
                    "by chance |ρ|": own["chance"].mean(),
                    f"a token's (|ρ| ≥ {TOKEN_LIKENESS:g})": f"{alike} of {len(own)}",
                    "nearest tokens": " ".join(text_of(nearest)),
                }
            )
    return pd.DataFrame(rows)


def token_sentence(tokens: pd.DataFrame, title: str) -> str:
    """Which method's data concepts are single tokens most often, at the last checkpoint and before training."""
    data = tokens[tokens["part"] == "data"]
    last = _token_shares_at(data, int(data["step"].max()))
    highest = max(last, key=lambda method: last[method])
    if last[highest] < 0.1:
        return f"{title}: with no method are more than a tenth of the data's concepts single tokens."
    others = ", ".join(f"{last[method]:.0%} with {name}" for method, name in METHOD_NAMES.items() if method != highest)
    before = ""
    if data["step"].min() == 0 < data["step"].max():
        before = f"; before training {_token_shares_at(data, 0)[highest]:.0%}"
    return (
        f"{title}: {last[highest]:.0%} of the data's concepts are a single frequent token's with "
        f"{METHOD_NAMES[highest]}{before} ({others} at the last checkpoint)."
    )


def shared_tokens(pairs: pd.DataFrame, method: str) -> str:
    """Whether concepts that are tokens align more than others, and with a gradient concept near the same token.

    Args:
        pairs: what :func:`anisotropy.studies.alignment_tables.token_pairs` returned.
        method: a key of ``METHOD_NAMES``.
    """
    tokens = pairs[pairs["data_likeness"] >= TOKEN_LIKENESS]
    others = pairs[pairs["data_likeness"] < TOKEN_LIKENESS]
    if tokens.empty:
        return f"None of {METHOD_NAMES[method]}'s data concepts is a single token's."
    same = int((tokens["data_token"] == tokens["gradient_token"]).sum())
    rest = f", the other {len(others)} at {others['correlation'].mean():.2f}" if len(others) else ""
    return (
        f"The {len(tokens)} {METHOD_NAMES[method]} concepts that are a token's align at "
        f"{tokens['correlation'].mean():.2f} on average{rest}; {same} of the {len(tokens)} have a partner that is "
        f"nearest to the same token."
    )


def _token_shares_at(data: pd.DataFrame, step: int) -> dict[str, float]:
    here = data[data["step"] == step]
    return {
        method: float((here[here["method"] == method]["likeness"] >= TOKEN_LIKENESS).mean()) for method in METHOD_NAMES
    }


def gap_sizes(table: pd.DataFrame, title: str) -> str:
    """How many pairs lie above the spectral gap at the last checkpoint, smallest to largest over groups."""
    last = table[(table["step"] == table["step"].max()) & (table["source"] == "gradient")]
    last = last[last["metric"] == "above_gap"]
    parts = [
        f"{name} {own.min()}–{own.max()}" if own.min() < own.max() else f"{name} {own.min()}"
        for method, name in METHOD_NAMES.items()
        if len(own := last[last["method"] == method]["pairs"])
    ]
    return f"{title}, pairs above the gap at the last checkpoint, over groups of text: {', '.join(parts)}."


def floor(curves: pd.DataFrame, concepts: int, dimensions: int, title: str) -> str:
    """The floor of matching, beside its rule of thumb where that applies (about 50 concepts), and after selection."""
    rows = curves[curves["source"] == "gradient"].groupby("metric")["baseline"].mean()
    rule = f" (2.3/√d = {2.3 / dimensions**0.5:.2f})" if 45 <= concepts <= 55 else ""
    return (
        f"{title} ({concepts} concepts, d = {dimensions:,}): rotated concepts reach {rows['mean']:.2f} on average over "
        f"all pairs{rule} and {rows['top']:.2f} over the ten best."
    )


def stopped(convergence: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """A note on decompositions that reached their last iteration; says so too if there are none."""
    totals = convergence.groupby(["model", "method"], sort=False)[["converged", "fits"]].sum().reset_index()
    late = totals[totals["converged"] < totals["fits"]]
    if late.empty:
        return f"All {int(totals['fits'].sum()):,} decompositions converged."
    parts = [
        f"{row['fits'] - row['converged']:,} of {row['fits']:,} by {METHOD_NAMES[row['method']]} in "
        f"{titles[row['model']]}"
        for row in late.to_dict("records")
    ]
    return f"**Note.** Some decompositions stopped at their last iteration before converging: {'; '.join(parts)}."


def without_meaning(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> str:
    """How many of C6's verdicts that hold would pass the same threshold in the run trained on shuffled labels."""
    lines = []
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        count = sum(verdict.model == model for verdict in verdicts)
        held = [verdict for verdict in verdicts if verdict.model == model and verdict.outcome is Outcome.HOLDS]
        values = [value for verdict in held for name, value in verdict.controls if name == SHUFFLED_RUN]
        if not held:
            lines.append(f"{titles[model]}: no verdict holds.")
        elif not values:
            lines.append(f"{titles[model]}: no run on shuffled labels stands beside it.")
        else:
            also = sum(value <= C6_THRESHOLD for value in values)
            lines.append(
                f"{titles[model]}: {len(held)} of {count} verdicts hold. In {also} of these {len(held)}, ρ is at most "
                f"{signed(C6_THRESHOLD)} in the run on shuffled labels too, which could learn how often words occur "
                f"and nothing else."
            )
    return " ".join(lines)


def missing_matrices(trends: pd.DataFrame, models: Sequence[str], titles: Mapping[str, str]) -> str:
    """Which matrices could not be found in which model."""
    lines = []
    for model in models:
        lacking = [name for matrix, name in MATRIX_NAMES.items() if matrix not in _matrices_of(trends, model)]
        if lacking:
            lines.append(f"{titles[model]}: {' and '.join(lacking)} not found in this family, so not applicable.")
    return " ".join(lines) or "All three matrices were found in every model."


def _matrices_of(trends: pd.DataFrame, model: str) -> set[str]:
    return set(_of_label(trends, model)["matrix"])


def curve_table(curves: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Matched value, baseline and excess at the last checkpoint, a row per model, metric and method."""
    rows = []
    for _, own in curves.groupby(["model", "seed"], sort=False):
        last = own[(own["step"] == own["step"].max()) & (own["source"] == "gradient")]
        for row in last.to_dict("records"):
            label = join_label(row["model"], row["seed"])
            rows.append(
                {
                    "model": titles.get(label, label),
                    "metric": METRIC_NAMES[row["metric"]],
                    "method": METHOD_NAMES[row["method"]],
                    "pairs": f"{row['pairs']:.0f}",
                    "matched |ρ|": row["matched"],
                    "rotated |ρ|": row["baseline"],
                    "excess [95 % over groups]": f"{signed(row['excess'])} [{signed(row['excess_low'])}, "
                    f"{signed(row['excess_high'])}]",
                }
            )
    return pd.DataFrame(rows)


def trend_table(trends: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Mean correlation over ranks beside its floor, and ρ untrained and trained, a row per model, matrix and method."""
    rows = []
    for _, group in trends.groupby(["model", "seed", "matrix", "method"], sort=False):
        own = group.sort_values("step").to_dict("records")
        first, last = own[0], own[-1]
        label = join_label(last["model"], last["seed"])
        rows.append(
            {
                "model": titles.get(label, label),
                "matrix": MATRIX_NAMES[last["matrix"]],
                "method": METHOD_NAMES[last["method"]],
                "mean |ρ|": last["mean"],
                "rotated |ρ|": last["floor"],
                "trend, untrained (ρ)": signed(first["rho"]) if first["step"] == 0 else "–",
                "trend, last step (ρ)": signed(last["rho"]),
            }
        )
    return pd.DataFrame(rows)
