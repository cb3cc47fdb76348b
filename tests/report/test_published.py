"""The printed numbers: complete, and equal to what the paper prints where it is quoted elsewhere."""

from __future__ import annotations

import pytest

from anisotropy.models.catalogue import catalogue
from anisotropy.report.published import CATALOGUE_NAMES, table1, table2, table3


def test_table1_has_every_cell_once():
    table = table1()
    cells = table.pivot(index=["model", "probe"], columns="metric", values="value")
    assert cells.shape == (20, 4)
    assert not cells.isna().any().any()
    assert cells.loc[("OLMo-1B", "T1_out"), "energy_ratio"] == 1200
    # 20 draws have a floor of 1/21: nothing printed lies below it.
    assert cells["p_energy_null"].min() == pytest.approx(1 / 21, abs=5e-4)


def test_table2_has_every_cell_once():
    table = table2()
    cells = table.pivot(index=["model", "checkpoints", "layer"], columns="metric", values="value")
    assert cells.shape == (20 * 3, 5)
    assert not cells.isna().any().any()


def test_table3_has_five_tokens_of_one_model():
    table = table3()
    cells = table.pivot(index=["model", "token"], columns=["stage", "subspace"], values="enrichment")
    assert cells.shape == (5, 4)
    assert cells.loc[("EuroBERT-210m", "of"), ("early", "tangent")] == 33.27


def test_every_printed_model_is_in_the_catalogue():
    printed = {*table1()["model"], *table2()["model"], *table3()["model"]}
    assert printed == set(CATALOGUE_NAMES)
    assert set(CATALOGUE_NAMES.values()) <= set(catalogue().hub)
