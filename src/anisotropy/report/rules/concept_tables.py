"""Claim C8: the last layer's effective rank collapses in decoders."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.models.labels import names_of
from anisotropy.report.scorecard import Outcome, Verdict, on_each_seed

C8_THRESHOLD = 0.1
C8_LATE = 0.7
READING_NAMES = {
    "per_checkpoint": "concepts, per checkpoint",
    "pooled": "concepts, pooled",
    "scaled": "concepts, scaled by code",
    "activations": "activations",
}


@on_each_seed
def last_layer_collapses(table: pd.DataFrame, decoders: Collection[str]) -> list[Verdict]:
    """Claim C8, per reading: late r_eff(last) ≤ 0.1 × late r_eff(first), and below the untrained model's ratio.

    The rule, in this order: it is *not applicable* to models that are no decoders, and *inconclusive* without late
    checkpoints; it *fails* where the interval of a training seed lies wholly above 0.1; it is *inconclusive* where an
    interval holds 0.1 or the untrained model was not measured; it *fails* where the untrained model's ratio is as low,
    is *inconclusive* where the interval reaches it, and else *holds*.

    Args:
        table: what :func:`anisotropy.studies.concept_collapse.collapse` returned.
        decoders: labels of the causal models.

    Returns:
        One verdict per model and reading.

    Raises:
        UserError: a column is missing.
    """
    needed = {"model", "seed", "reading", "stage", "ratio", "low", "high"}
    if missing := needed - set(table.columns):
        raise UserError(f"the table lacks the columns {', '.join(sorted(missing))}")
    names = names_of(decoders)
    return [
        _judge(table[(table["model"] == model) & (table["reading"] == reading)], model, reading, model in names)
        for model in dict.fromkeys(table["model"])
        for reading in READING_NAMES
    ]


def _judge(rows: pd.DataFrame, model: str, reading: str, is_decoder: bool) -> Verdict:
    late = rows[rows["stage"] == "late"].set_index("seed")
    untrained = rows[rows["stage"] == "untrained"].set_index("seed")
    name = READING_NAMES[reading]
    if not is_decoder:
        ratio = f" (here the ratio is {late['ratio'].mean():.2f})" if len(late) else ""
        return Verdict("C8", model, name, Outcome.NOT_APPLICABLE, f"the claim is about decoders{ratio}")
    if late.empty:
        return Verdict("C8", model, name, Outcome.INCONCLUSIVE, "no checkpoint is late in training")
    outcome, reason = _decide(late, untrained)
    controls = (("untrained", float(untrained["ratio"].mean())),) if len(untrained) else ()
    return Verdict(
        "C8",
        model,
        name,
        outcome,
        reason,
        float(late["ratio"].mean()),
        float(late["low"].min()),
        float(late["high"].max()),
        controls,
        len(late),
        quantity="ratio",
        digits=3,
    )


def _decide(late: pd.DataFrame, untrained: pd.DataFrame) -> tuple[Outcome, str]:
    if late[["ratio", "low", "high"]].isna().any(axis=None):
        return Outcome.NOT_APPLICABLE, "the effective rank is not defined"
    if (late["low"] > C8_THRESHOLD).any():
        return Outcome.FAILS, f"the last layer keeps more than {C8_THRESHOLD} of the first layer's effective rank"
    if (late["high"] > C8_THRESHOLD).any():
        return Outcome.INCONCLUSIVE, f"the interval holds {C8_THRESHOLD}"
    if untrained.empty:
        return Outcome.INCONCLUSIVE, "the ratio is small, but the untrained model was not measured"
    reference = untrained["ratio"].reindex(late.index).fillna(untrained["ratio"].min())
    if (reference <= late["ratio"]).any():
        return Outcome.FAILS, "the untrained model's ratio is as low: training is not what collapses the rank"
    if (reference <= late["high"]).any():
        return Outcome.INCONCLUSIVE, "the interval reaches the untrained model's ratio"
    return Outcome.HOLDS, "the last layer's effective rank is at most a tenth of the first's, and training made it so"


def printed_collapse(printed: pd.DataFrame, decoders: Sequence[str]) -> pd.DataFrame:
    """The rule's first half on the printed table: mean ratio over windows that begin at 0.7 of training or later.

    The paper prints no untrained model, so the second half cannot be applied.

    Args:
        printed: what :func:`anisotropy.report.published.table2` returned.
        decoders: printed names of the causal models.

    Returns:
        Columns ``model``, ``kind`` (``decoder`` or ``encoder``), ``windows``, ``first``, ``last``, ``ratio`` (of the
        means), ``lowest`` and ``highest`` (of the windows) and ``at_most_a_tenth``.
    """
    ranks = printed[printed["metric"] == "effective_rank"]
    rows = []
    for model, own in ranks.groupby("model", sort=False):
        wide = own.pivot(index="checkpoints", columns="layer", values="value")
        wide["start"], wide["end"] = zip(*map(window_ends, wide.index), strict=True)
        late = wide[wide["start"] >= C8_LATE * wide["end"].max()]
        ratios = late["last"] / late["first"]
        ratio = late["last"].mean() / late["first"].mean()
        rows.append(
            {
                "model": model,
                "kind": "decoder" if model in decoders else "encoder",
                "windows": ", ".join(late.sort_values("start").index),
                "first": late["first"].mean(),
                "last": late["last"].mean(),
                "ratio": ratio,
                "lowest": ratios.min(),
                "highest": ratios.max(),
                "at_most_a_tenth": bool(ratio <= C8_THRESHOLD),
            }
        )
    return pd.DataFrame(rows)


def printed_verdicts(table: pd.DataFrame) -> list[Verdict]:
    """Claim C8 on the printed numbers; without an untrained model it can fail, but it cannot hold.

    Args:
        table: what :func:`printed_collapse` returned.

    Returns:
        A verdict per printed model; its interval spans the windows.
    """
    verdicts = []
    for row in table.to_dict("records"):
        outcome, reason = Outcome.INCONCLUSIVE, "the ratio is at most a tenth, but no untrained model is printed"
        if row["kind"] != "decoder":
            outcome, reason = Outcome.NOT_APPLICABLE, "the claim is about decoders"
        elif not row["at_most_a_tenth"]:
            outcome, reason = Outcome.FAILS, f"the last layer keeps more than {C8_THRESHOLD} of the first layer's rank"
        numbers = {"estimate": row["ratio"], "low": row["lowest"], "high": row["highest"]}
        verdicts.append(
            Verdict(
                "C8",
                row["model"],
                "as printed, late windows",
                outcome,
                reason,
                **numbers,
                quantity="ratio",
                digits=3,
                of_printed=True,
            )
        )
    return verdicts


def window_ends(label: str) -> tuple[float, float]:
    """First and last step of a printed window such as ``800k-1.28M``."""
    factors = {"k": 1e3, "M": 1e6}
    start, end = (float(part[:-1]) * factors[part[-1]] for part in label.split("-"))
    return start, end
