"""Stages of a tangent course belong to the whole course, whichever checkpoints a table is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from anisotropy.errors import UserError
from anisotropy.studies.results import Collection
from anisotropy.studies.tangent_bases import Course
from anisotropy.studies.tangent_cells import Choices, cells
from anisotropy.studies.tangent_tables import rank_table, stage_table

STEPS = (0, 1, 2, 4, 8, 16, 32, 64)
CHOICES = Choices(rank=2, draws=100, null_draws=19)


def packed(rows):
    """Count, mean and the scatter's upper triangle of blocks (b, n, d)."""
    centred = rows - rows.mean(1, keepdims=True)
    row, column = np.triu_indices(rows.shape[2])
    scatter = np.einsum("bni,bnj->bij", centred, centred)[:, row, column]
    return {"count": np.full(len(rows), rows.shape[1]), "mean": rows.mean(1), "scatter": scatter.astype(np.float32)}


def collection(step, d=8, blocks=5):
    random = np.random.default_rng([7, step])
    roles = {"fit": 1, "held_out": 1, "gradient": blocks, "shuffled": blocks}
    arrays = {
        f"T1_in.activation.{role}.{name}": array
        for role, parts in roles.items()
        for name, array in packed(random.normal(size=(parts, 30, d)) * np.geomspace(3, 1, d)).items()
    }
    return Collection("made-up", step, str(step), arrays)


@pytest.fixture(scope="module")
def course():
    return Course([collection(step) for step in STEPS])


def estimates(table, stage):
    rows = table[(table["stage"] == stage) & (table["quantity"] == "energy_ratio")]
    return rows["estimate"].to_numpy()


@pytest.mark.parametrize("stage", ["early", "late"])
def test_a_rank_sweep_over_one_stage_has_the_stage_of_the_whole_course(course, stage):
    whole = stage_table(course, cells(course, CHOICES, ["activation"], ["early"]), CHOICES)
    swept = rank_table(course, CHOICES, [1, 2, 3], "early", stage)
    assert list(swept["rank"]) == [1, 2, 3]
    assert swept.loc[swept["rank"] == 2, "energy_ratio"].to_numpy() == pytest.approx(estimates(whole, stage))


def test_a_stage_with_a_checkpoint_missing_is_left_out(course):
    table = stage_table(course, cells(course, CHOICES, ["activation"], ["own"], [1, 2, 64]), CHOICES)
    assert list(table["stage"].unique()) == ["late"]


def test_nulls_carry_the_average_of_their_intervals(course):
    found = cells(course, CHOICES, ["activation"], ["own"])
    rows = stage_table(course, found, CHOICES).set_index(["stage", "quantity"])
    last = found[-1].numbers
    assert rows.loc[("late", "energy_ratio_null"), "low"] == pytest.approx(np.exp(last["log_ratio_null_low"]))
    assert rows.loc[("late", "delta_null"), "high"] == pytest.approx(last["delta_null_high"])


@pytest.mark.parametrize("asked", [{"gradients": ["weights"]}, {"bases": ["late"]}])
def test_an_unknown_reading_or_basis_is_refused(course, asked):
    with pytest.raises(UserError, match="unknown"):
        cells(course, CHOICES, **asked)
