"""Claim C4: embedding updates of frequent tokens are the most tangent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.models.labels import names_of, names_of_controls
from anisotropy.report.scorecard import Outcome, Verdict, on_each_seed
from anisotropy.report.tables import signed

C4_THRESHOLD = 0.1
C4_NORMAL = (0.9, 1.1)
_TIED = "the matrices are tied: the reading of the input matrix is this one too"
MATRICES = ("input", "output")
SHUFFLED_LABELS, UNTRAINED_BASIS, RANDOM_BASIS = "shuffled labels", "untrained basis", "random basis"
_SUFFICIENT = {
    SHUFFLED_LABELS: "frequency and optimisation suffice for it, without anything to learn",
    UNTRAINED_BASIS: "the principal directions of the initial weights show it too",
    RANDOM_BASIS: "random directions show it too",
}


def reading_name(matrix: str, stage: str) -> str:
    """A matrix and a stage in words, the same on every page."""
    return f"{matrix} matrix, {stage}"


@on_each_seed
def frequent_updates_most_tangent(
    table: pd.DataFrame,
    controls: Mapping[str, str],
    rank: int,
    stage: Literal["early", "late"] = "early",
    models: Sequence[str] = (),
) -> list[Verdict]:
    """Claim C4: the more frequent a token, the more tangent its update; normal directions get what chance gives.

    The rule, per model and matrix, on the ``corrected`` reading; what fails the claim outweighs what leaves it open.
    ρ is Spearman's correlation of tangent enrichment with log frequency.

    1. It *fails* where the 95 % interval of a training seed lies wholly below 0.1, and is *inconclusive* where one
       holds 0.1.
    2. It *fails* where the 90 % interval of the mean normal enrichment lies wholly outside 0.9 … 1.1 in a seed, and is
       *inconclusive* where it reaches beyond (two one-sided tests at 5 %).
    3. It is *inconclusive* where the shuffled-label run is missing; it *fails* where a control has as high a ρ as the
       model, and is *inconclusive* where the interval reaches one. Controls are the shuffled-label run and, where they
       were measured, the model's own updates in the untrained and in a random basis.

    The early stage is the primary one [ours]: the paper's Figures 3 and 4 do not name theirs.

    Args:
        table: what :func:`anisotropy.studies.updates.summarise` returned, controls' rows included.
        controls: label of the shuffled-label run by label of the model.
        rank: of the tangent subspace.
        stage: ``"early"`` or, to be shown beside it, ``"late"``.
        models: labels of models to be judged even without rows: one checkpoint gives no updates.

    Returns:
        A verdict per model and matrix, models as given and then in the order of the table, controls left out.

    Raises:
        UserError: a column is missing.
    """
    needed = {"model", "seed", "matrix", "stage", "basis", "update", "reading", "rank", "estimate", "low", "high"}
    needed |= {"normal", "normal_low", "normal_high"}
    if missing := needed - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")
    controls = names_of_controls(controls)
    models = [
        model for model in dict.fromkeys([*names_of(models), *table["model"]]) if model not in set(controls.values())
    ]
    chosen = (table["reading"] == "corrected") & (table["update"] == "measured")
    rows = table[chosen & (table["rank"] == rank) & (table["stage"] == stage)]
    return [_judge(rows, model, controls.get(model), matrix, stage) for model in models for matrix in MATRICES]


def _judge(rows: pd.DataFrame, model: str, control: str | None, matrix: str, stage: str) -> Verdict:
    reading = reading_name(matrix, stage)
    here = rows[rows["matrix"] == matrix].set_index("seed")
    own = here[(here["model"] == model) & (here["basis"] == "start")]
    if own.empty:
        other = rows[(rows["model"] == model) & (rows["matrix"] != matrix)]
        # Both matrices are measured at the same checkpoints, so where only one has rows they are tied.
        tied = matrix == "output" and not other.empty
        why = "it needs a pair of checkpoints in the stage" if not tied else _TIED
        return Verdict("C4", model, reading, Outcome.NOT_APPLICABLE, why)
    found = {
        SHUFFLED_LABELS: here[(here["model"] == control) & (here["basis"] == "start")],
        UNTRAINED_BASIS: here[(here["model"] == model) & (here["basis"] == "untrained")],
        RANDOM_BASIS: here[(here["model"] == model) & (here["basis"] == "random")],
    }
    if own["estimate"].isna().any():
        why = "no update has a direction that varies between tokens"
        return Verdict("C4", model, reading, Outcome.NOT_APPLICABLE, why)
    outcome, reason = _decide(own, found)
    values = tuple((name, float(control["estimate"].mean())) for name, control in found.items() if not control.empty)
    values += (("mean normal", float(own["normal"].mean())),)
    estimate, low, high = float(own["estimate"].mean()), float(own["low"].min()), float(own["high"].max())
    return Verdict("C4", model, reading, outcome, reason, estimate, low, high, values, len(own))


def _decide(own: pd.DataFrame, controls: Mapping[str, pd.DataFrame]) -> tuple[Outcome, str]:
    """Outcome and reason from every seed's correlation and normal enrichment, and from the controls.

    What fails the claim outweighs what leaves it open; all findings are named in the reason.
    """
    findings = [*_correlation(own), *_normal(own), *_controls(own, controls)]
    findings.sort(key=lambda finding: finding[0] is not Outcome.FAILS)
    if not findings:
        reason = "frequent tokens' updates are more tangent, normal ones at chance, and no control shows it"
        return Outcome.HOLDS, reason
    (outcome, reason), *others = findings
    besides = "; ".join(other for _, other in others)
    return outcome, f"{reason}; besides, {besides}" if others else reason


def _correlation(own: pd.DataFrame) -> Iterator[tuple[Outcome, str]]:
    threshold = signed(C4_THRESHOLD, 1)
    if (own["high"] < C4_THRESHOLD).any():
        yield Outcome.FAILS, f"the correlation lies below {threshold}: frequent tokens' updates are not more tangent"
    elif not (own["low"] >= C4_THRESHOLD).all():
        yield Outcome.INCONCLUSIVE, f"the interval of the correlation holds {threshold}"


def _normal(own: pd.DataFrame) -> Iterator[tuple[Outcome, str]]:
    low, high = C4_NORMAL
    span = f"{low:g} … {high:g}"
    if ((own["normal_high"] < low) | (own["normal_low"] > high)).any():
        yield Outcome.FAILS, f"the mean normal enrichment lies outside {span}: the next directions are not at chance"
    elif not ((own["normal_low"] >= low) & (own["normal_high"] <= high)).all():
        yield Outcome.INCONCLUSIVE, f"the interval of the mean normal enrichment reaches an end of {span}"


def _controls(own: pd.DataFrame, controls: Mapping[str, pd.DataFrame]) -> Iterator[tuple[Outcome, str]]:
    if controls[SHUFFLED_LABELS].empty:
        yield Outcome.INCONCLUSIVE, f"the control was not run ({SHUFFLED_LABELS})"
    for name, rows in controls.items():
        if rows.empty or rows["estimate"].isna().all():
            continue
        reference = rows["estimate"].reindex(own.index).fillna(rows["estimate"].max())
        if (reference >= own["estimate"]).any():
            yield Outcome.FAILS, f"a control has as high a correlation ({name}): {_SUFFICIENT[name]}"
        elif (reference >= own["low"]).any():
            yield Outcome.INCONCLUSIVE, f"the interval reaches a control ({name})"


def printed_verdicts(printed: pd.DataFrame) -> list[Verdict]:
    """The rule on the printed numbers of Table 3, five tokens of one model; their control was not printed.

    Args:
        printed: what :func:`anisotropy.report.published.table3` returned.

    Returns:
        A verdict per model and stage, in the order of the table; which matrix it is, the table does not say.
    """
    verdicts = []
    for (model, stage), rows in printed.groupby(["model", "stage"], sort=False):
        verdicts.append(_printed_verdict(str(model), str(stage), rows))
    return verdicts


def _printed_verdict(model: str, stage: str, rows: pd.DataFrame) -> Verdict:
    from anisotropy.studies.updates import summarise_tokens  # loads torch, which judging a table does not need

    wide = rows.pivot(index=["token", "frequency"], columns="subspace", values="enrichment").reset_index()
    found = summarise_tokens(wide.rename(columns={"frequency": "log10_frequency"}), draws=0)
    own = pd.DataFrame([found])
    empty: dict[str, pd.DataFrame] = dict.fromkeys(_SUFFICIENT, own.iloc[:0])
    outcome, reason = _decide(own, empty)
    reading = f"printed Table 3, {stage}, {len(wide)} tokens"
    beside = (("mean normal", found["normal"]),)
    return Verdict(
        "C4",
        model,
        reading,
        outcome,
        reason,
        found["estimate"],
        found["low"],
        found["high"],
        beside,
        seeds=1,
        of_printed=True,
    )
