"""Claim C1: frequent tokens are confined."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.models.labels import names_of, names_of_controls
from anisotropy.report.scorecard import Outcome, Verdict, on_each_seed
from anisotropy.report.tables import signed

C1_THRESHOLD = -0.1
C1_PRINTED = -0.5
C1_NEAR = 0.15
READINGS = (
    ("trajectory", "input"),
    ("trajectory", "output"),
    ("vocabulary", "input"),
    ("vocabulary", "output"),
    ("occurrences", "contextual"),
)
_SHUFFLED, _UNTRAINED = "shuffled labels", "untrained"
_SUFFICIENT = {
    _SHUFFLED: "frequent tokens are closer, but frequency and optimisation suffice for it, without anything to learn",
    _UNTRAINED: "the initial weights show it too",
}


def reading_name(centroid: str, matrix: str) -> str:
    """A reading in words, the same on every page."""
    return centroid if centroid == "occurrences" else f"{centroid} ({matrix})"


@on_each_seed
def frequent_tokens_confined(
    table: pd.DataFrame, controls: Mapping[str, str], decoders: Collection[str] = (), kind: str = "pearson"
) -> list[Verdict]:
    """Claim C1: frequent tokens are confined, so distance falls with log frequency.

    The rule, per reading, in this order: it *fails* where the interval of a training seed lies wholly above −0.1; it
    is *inconclusive* where an interval holds −0.1, or a control was not run; it *fails* where a control is as low as
    the model, is *inconclusive* where the interval reaches a control, and else *holds*. Controls are the run trained on
    shuffled labels and, for ``vocabulary`` and ``occurrences``, the untrained model (a trajectory has no untrained
    value).

    Args:
        table: what :func:`anisotropy.studies.frequency.summarise` returned, controls' rows included.
        controls: label of the shuffled-label run by label of the model.
        decoders: labels of the causal models, of which the printed value speaks; only theirs can be near it.
        kind: ``"pearson"`` as the paper, or ``"spearman"``.

    Returns:
        One verdict per model and reading, models in the order of the table, controls left out.

    Raises:
        UserError: a column is missing.
    """
    needed = {"model", "seed", "centroid", "matrix", "stage", "value", "kind", "estimate", "low", "high"}
    if missing := needed - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")
    controls, decoders = names_of_controls(controls), names_of(decoders)
    rows = table[(table["value"] == "distance") & (table["kind"] == kind)]
    models = [model for model in dict.fromkeys(table["model"]) if model not in set(controls.values())]
    return [
        _judge(rows, model, controls.get(model), centroid, matrix, model in decoders)
        for model in models
        for centroid, matrix in READINGS
    ]


def _judge(
    rows: pd.DataFrame, model: str, control: str | None, centroid: str, matrix: str, is_decoder: bool
) -> Verdict:
    reading = reading_name(centroid, matrix)
    of_reading = rows[(rows["centroid"] == centroid) & (rows["matrix"] == matrix)]
    own = of_reading[(of_reading["model"] == model) & (of_reading["stage"] == "trained")].set_index("seed")
    if own.empty:
        return Verdict(
            "C1", model, reading, Outcome.NOT_APPLICABLE, _why_not(rows[rows["model"] == model], centroid, matrix)
        )
    estimate, low, high = float(own["estimate"].mean()), float(own["low"].min()), float(own["high"].max())
    shuffled = of_reading[(of_reading["model"] == control) & (of_reading["stage"] == "trained")].set_index("seed")
    untrained = of_reading[(of_reading["model"] == model) & (of_reading["stage"] == "untrained")].set_index("seed")
    found = [(_SHUFFLED, shuffled), (_UNTRAINED, untrained)]
    values = tuple((name, float(rows_["estimate"].mean())) for name, rows_ in found if not rows_.empty)
    expected = [_SHUFFLED] if centroid == "trajectory" else [_SHUFFLED, _UNTRAINED]
    outcome, reason = _decide(own, dict(found), expected)
    printed = C1_PRINTED if is_decoder and estimate < 0 else None
    near = abs(estimate - C1_PRINTED) <= C1_NEAR if printed else None
    return Verdict("C1", model, reading, outcome, reason, estimate, low, high, values, len(own), printed, near)


def _why_not(of_model: pd.DataFrame, centroid: str, matrix: str) -> str:
    """Why a model has no value for a reading, from those it has."""
    if centroid == "occurrences":
        return "no token occurs often enough in the text"
    if matrix == "output" and is_tied(of_model):
        return "the matrices are tied: the reading of the input matrix is this one too"
    return "it needs two checkpoints after step 0" if centroid == "trajectory" else "the model has no such matrix"


def is_tied(of_model: pd.DataFrame) -> bool:
    """Whether one matrix is input and output embedding, told from one model's distances or correlations."""
    matrices = set(of_model.loc[of_model["centroid"] == "vocabulary", "matrix"])
    return matrices == {"input"}


def _decide(own: pd.DataFrame, controls: Mapping[str, pd.DataFrame], expected: Sequence[str]) -> tuple[Outcome, str]:
    """Outcome and reason from the correlations of every seed and its controls."""
    if own["estimate"].isna().any():
        return Outcome.NOT_APPLICABLE, "the distances do not vary"
    if (own["low"] > C1_THRESHOLD).any():
        return Outcome.FAILS, f"the correlation lies above {signed(C1_THRESHOLD, 1)}: frequent tokens are not confined"
    if not (own["high"] <= C1_THRESHOLD).all():
        return Outcome.INCONCLUSIVE, f"the interval holds {signed(C1_THRESHOLD, 1)}"
    for name in expected:
        control = controls[name]
        if control.empty:
            return Outcome.INCONCLUSIVE, f"frequent tokens are closer, but the control ({name}) was not run"
        reference = control["estimate"].reindex(own.index).fillna(control["estimate"].min())
        if (reference <= own["estimate"]).any():
            return Outcome.FAILS, f"the control ({name}) is as low: {_SUFFICIENT[name]}"
        if (reference <= own["high"]).any():
            return Outcome.INCONCLUSIVE, f"the interval reaches the control ({name})"
    return Outcome.HOLDS, "frequent tokens are closer to their centroid than rare ones, and the controls do not show it"
