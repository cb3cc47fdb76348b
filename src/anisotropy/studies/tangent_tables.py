"""Gradient tangent alignment as tables: the course over training, the stages of Table 1, ranks and spectra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from anisotropy.models.labels import split_label
from anisotropy.statistics import sign_test
from anisotropy.studies.course import checkpoint_weights, stage_steps
from anisotropy.studies.results import Collection
from anisotropy.studies.tangent_bases import Basis, Course
from anisotropy.studies.tangent_cells import Cell, Choices, Vector, cells
from anisotropy.studies.tangents import GRADIENTS, Gradient

_STAGE_COLUMNS = ["model", "seed", "gradient", "basis", "stage", "probe", "rank", "quantity", "estimate", "low", "high"]
#: What a model's energy ratio is compared with.
CONTROLS = ("untrained", "shuffled labels", "other probe", "next variance")


def course_table(found: Sequence[Cell], draws: int) -> pd.DataFrame:
    """Every cell as a row: what Table 1 prints, at each checkpoint.

    Args:
        found: what :func:`~anisotropy.studies.tangent_cells.cells` returned.
        draws: resamples that were asked for there.

    Returns:
        Columns ``gradient``, ``basis``, ``step``, ``probe``; ``energy_ratio``, ``delta_tangent``, ``delta_normal`` (%)
        and ``excess`` (ΔT − null, percentage points) with ``…_low`` and ``…_high`` (95 % over blocks);
        ``energy_ratio_<control>``; ``energy_ratio_null_low`` and ``…_high`` (95 % of random bases); and the numbers
        beside them.
    """
    rows = []
    for cell in found:
        row: dict[str, Any] = {
            "gradient": cell.gradient,
            "basis": cell.basis,
            "step": cell.step,
            "probe": cell.probe,
        }
        vectors = {
            "energy_ratio": np.exp(cell.log_ratio),
            "delta_tangent": cell.tangent,
            "delta_normal": cell.normal,
            "excess": cell.tangent - cell.numbers["delta_null"],
        }
        for name, vector in vectors.items():
            row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(vector, draws)
        for control, vector in cell.controls.items():
            row[f"energy_ratio_{control.replace(' ', '_')}"] = float(np.exp(vector[0]))
        for name, number in cell.numbers.items():
            if name.startswith("log_ratio"):
                row[name.replace("log_ratio", "energy_ratio")] = float(np.exp(number))
            else:
                row[name] = number
        rows.append(row)
    return pd.DataFrame(rows)


def interval(vector: Vector, draws: int) -> tuple[float, float, float]:
    """Estimate and central 95 % of a cell's vector over the resamples of blocks."""
    low, high = np.quantile(vector[1 : 1 + draws], [0.025, 0.975])
    return float(vector[0]), float(low), float(high)


def stage_table(course: Course, found: Sequence[Cell], choices: Choices) -> pd.DataFrame:
    """Table 1: early and late averages with intervals, nulls and the advantage over each control.

    Ratios are averaged on the log scale, everything else as it is, checkpoints weighted by ``choices.weighting``. A
    model with one checkpoint has the single stage ``only``. A stage whose checkpoints are not all in ``found`` is left
    out.

    Returns:
        Columns ``model``, ``seed`` (of training), ``gradient``, ``basis``, ``stage``, ``probe``, ``rank``,
        ``quantity``, ``estimate``, ``low``, ``high`` (missing where there is no interval). Quantities:

        - ``energy_ratio``, ``energy_fraction``, ``variance_share``, ``p_energy_null``, ``p_energy_calibrated``;
        - ``delta_isoscore_star_tangent_percent``, ``delta_isoscore_star_normal_percent``, ``base_isoscore_star``,
          ``p_isoscore_sign``;
        - ``energy_ratio_null`` and ``delta_null``: of random bases, the ends averages of the checkpoints' 95 %;
        - ``advantage over <control>``: log E_r minus the control's log E_r, for each of :data:`CONTROLS` that exists;
        - ``excess`` (ΔT − null), ``excess of untrained``, ``excess over untrained`` and ``tangent over normal``
          (ΔT − ΔN), in percentage points.
    """
    name, training_seed = split_label(course.label)
    rows = []
    for (gradient, basis, probe), here in _grouped(found).items():
        untrained = here.get(0) if len(course.steps) > 1 else None
        # Stages of the whole course: cells of a few checkpoints alone would make up stages of their own.
        for stage, steps in _stages(course.steps).items():
            if not here.keys() >= set(steps):
                continue
            weights = checkpoint_weights(steps, choices.weighting)
            stage_rows = _stage_rows([here[step] for step in steps], weights, untrained, choices.draws)
            for quantity, (estimate, low, high) in stage_rows.items():
                rows.append(
                    {
                        "model": name,
                        "seed": training_seed,
                        "gradient": gradient,
                        "basis": basis,
                        "stage": stage,
                        "probe": probe,
                        "rank": choices.rank,
                        "quantity": quantity,
                        "estimate": estimate,
                        "low": low,
                        "high": high,
                    }
                )
    return pd.DataFrame(rows, columns=_STAGE_COLUMNS)


def _grouped(found: Sequence[Cell]) -> dict[tuple[Gradient, Basis, str], dict[int, Cell]]:
    groups: dict[tuple[Gradient, Basis, str], dict[int, Cell]] = {}
    for cell in found:
        groups.setdefault((cell.gradient, cell.basis, cell.probe), {})[cell.step] = cell
    return groups


def _stages(steps: Sequence[int]) -> dict[str, list[int]]:
    if len(steps) == 1:
        return {"only": list(steps)}
    stages = {"early": stage_steps(steps, "early"), "late": stage_steps(steps, "late")}
    return {stage: chosen for stage, chosen in stages.items() if chosen}


def _stage_rows(
    of_stage: Sequence[Cell], weights: Vector, untrained: Cell | None, draws: int
) -> dict[str, tuple[float, float, float]]:
    def average(vectors: Iterable[Vector | float]) -> Any:
        return sum(weight * vector for weight, vector in zip(weights, vectors, strict=True))

    def with_interval(vector: Vector) -> tuple[float, float, float]:
        return interval(vector, draws)

    def number(name: str) -> tuple[float, float, float]:
        return float(average(cell.numbers[name] for cell in of_stage)), np.nan, np.nan

    def ends(name: str) -> tuple[float, float]:
        return number(f"{name}_low")[0], number(f"{name}_high")[0]

    log_ratio = average(cell.log_ratio for cell in of_stage)
    tangent = average(cell.tangent for cell in of_stage)
    normal = average(cell.normal for cell in of_stage)
    excess = tangent - number("delta_null")[0]
    by_block = (tangent - normal)[1 + draws :]
    rows = {
        "energy_ratio": tuple(np.exp(with_interval(log_ratio))),
        **{name: number(name) for name in ("energy_fraction", "variance_share", "p_energy_null")},
        "p_energy_calibrated": number("p_energy_calibrated"),
        "delta_isoscore_star_tangent_percent": with_interval(tangent),
        "delta_isoscore_star_normal_percent": with_interval(normal),
        "delta_null": (number("delta_null")[0], *ends("delta_null")),
        "energy_ratio_null": (1.0, *np.exp(ends("log_ratio_null"))),
        "base_isoscore_star": number("base_isoscore_star"),
        "p_isoscore_sign": (sign_test(by_block).p_value, np.nan, np.nan),
        "excess": with_interval(excess),
        "tangent over normal": with_interval(tangent - normal),
    }
    controls = {
        name: average(cell.controls[name] for cell in of_stage) for name in CONTROLS if name in of_stage[0].controls
    }
    if untrained is not None:
        controls["untrained"] = untrained.log_ratio
        before = untrained.tangent - untrained.numbers["delta_null"]
        rows["excess of untrained"] = with_interval(before)
        rows["excess over untrained"] = with_interval(excess - before)
    for name, control in controls.items():
        rows[f"advantage over {name}"] = with_interval(log_ratio - control)
    return rows


def rank_table(course: Course, choices: Choices, ranks: Sequence[int], basis: Basis, stage: str) -> pd.DataFrame:
    """E_r and ΔT − null of the activation reading against the rank, averaged over a stage.

    Ranks that do not fit the model are left out; a stage that the model does not have gives an empty table.

    Returns:
        Columns ``rank``, ``probe``, ``energy_ratio``, ``excess`` and their ``…_low`` and ``…_high``.
    """
    steps = _stages(course.steps).get(stage, [])
    rows = []
    for rank in (rank for rank in ranks if steps and rank < course.dimension() / 2):
        at_rank = choices.model_copy(update={"rank": rank})
        table = stage_table(course, cells(course, at_rank, ["activation"], [basis], steps), at_rank)
        for probe, here in table[table["stage"] == stage].groupby("probe", sort=False):
            values = here.set_index("quantity")[["estimate", "low", "high"]]
            row: dict[str, Any] = {"rank": rank, "probe": probe}
            for name in ("energy_ratio", "excess"):
                row |= {name: values.at[name, "estimate"]}
                row |= {f"{name}_{end}": values.at[name, end] for end in ("low", "high")}
            rows.append(row)
    return pd.DataFrame(rows)


def spectrum_table(course: Course, step: int, gradient: Gradient = "activation") -> pd.DataFrame:
    """How gradient energy is spread over the principal directions of the activations at one checkpoint.

    Returns:
        Columns ``probe``, ``direction`` (1 has the largest variance), ``gradient_energy`` and ``activation_variance``,
        shares of the total that sum to 1, both on the held-out blocks.
    """
    parts = []
    for probe in course.probes(gradient):
        _, vectors = torch.linalg.eigh(course.moments(step, probe, f"{gradient}.fit").covariance)
        vectors = vectors.flip(1)
        shares = {
            "gradient_energy": course.blocks(step, probe, f"{gradient}.gradient").total.scatter,
            "activation_variance": course.moments(step, probe, f"{gradient}.held_out").covariance,
        }
        columns = {
            name: ((vectors.T @ matrix) * vectors.T).sum(1).numpy() / float(matrix.diagonal().sum())
            for name, matrix in shares.items()
        }
        parts.append(pd.DataFrame({"probe": probe, "direction": np.arange(1, len(vectors) + 1), **columns}))
    return pd.concat(parts, ignore_index=True)


def summarise(
    collections: Mapping[str, Sequence[Collection]],
    choices: Choices,
    gradients: Sequence[Gradient] = GRADIENTS,
    bases: Sequence[Basis] | None = None,
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """The course of every model by label, and the stage tables of all in one.

    Arguments are those of :func:`anisotropy.studies.tangent_cells.cells`, results those of :func:`course_table` and
    :func:`stage_table`. A model for which none of ``bases`` exists has an empty course and no stages.
    """
    courses, stages = {}, []
    for label, of_model in collections.items():
        course = Course(of_model, choices.weighting, choices.seed)
        found = cells(course, choices, gradients, bases)
        courses[label] = course_table(found, choices.draws)
        stages.append(stage_table(course, found, choices))
    return courses, pd.concat(stages, ignore_index=True)
