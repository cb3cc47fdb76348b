"""The page on costs: exponents of known laws, computed words, and what is measured against what is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from anisotropy.report import costs as pictures
from anisotropy.report.figures import plt
from anisotropy.runs import growth
from anisotropy.runs.live_memory import LiveBytes
from anisotropy.runs.paper_costs import paper_costs
from anisotropy.runs.project import find_project

LAWS = {"seconds": {"tokens": 1, "d": 2, "layers": 0.5}, "memory": {"tokens": 0, "d": 1, "layers": 1}}
LAWS["result"] = {"tokens": 0, "d": 2, "layers": 0}


def table():
    rows = []
    for quantity, laws in LAWS.items():
        for axis, power in laws.items():
            rows += [[axis, size, quantity, 3.0 * size**power, 7.0 * size ** (power + 0.1)] for size in (64, 128, 256)]
    return pd.DataFrame(rows, columns=["axis", "size", "quantity", "measured", "foretold"])


def test_exponents_of_power_laws_are_found():
    found = pictures.exponents(table()).set_index(["quantity", "axis"])
    for quantity, laws in LAWS.items():
        for axis, power in laws.items():
            assert found.loc[(quantity, axis), "measured"] == pytest.approx(power, abs=1e-5)
            assert found.loc[(quantity, axis), "closed form"] == pytest.approx(power + 0.1, abs=1e-5)
    assert "-0" not in pictures.exponent_table(pictures.exponents(table())).to_string()


def test_the_figure_says_what_it_shows():
    figure, alt = pictures.draw_growth(table())
    plt.close(figure)
    assert "processor time grows with exponent 1.0 in tokens of text, 2.0 in hidden size d, 0.5 in layers" in alt
    assert len(figure.axes) == 3


def test_sentences_name_the_worst():
    found = pictures.exponents(table())
    found.loc[(found["quantity"] == "memory") & (found["axis"] == "d"), "measured"] = 4.0
    assert "memory: 4.00 measured in hidden size d, 1.10 by the closed form" in pictures.growth_sentence(found)


def test_sentences_about_records():
    assert "Nothing of a catalogue model" in pictures.record_sentence(pd.DataFrame())
    records = pd.DataFrame(
        [["tangents", "mini-pythia", 3, 4.0, 2.0], ["updates", "mini-pythia", 3, 1.0, 2.0]],
        columns=["study", "model", "checkpoints", "measured", "estimated"],
    )
    said = pictures.record_sentence(records)
    assert "0.5 to 2 times the estimates" in said
    assert "that of tangents on mini-pythia" in said
    assert list(pictures.record_table(records)["measured / estimated"]) == [2.0, 0.5]


def test_live_memory_counts_what_is_alive_at_once():
    before = torch.ones(1_000)
    with LiveBytes() as live:
        for _ in range(3):
            one = before * 2  # 4,000 bytes, freed before the next
            del one
        assert live.peak == 4_000
        kept = [before + number for number in range(3)]
        view = kept[0].view(10, 100)
        view += 1
    assert live.peak == 12_000
    weights = torch.ones(50, 50, requires_grad=True)
    with LiveBytes() as live:
        (before.view(20, 50) @ weights).square().sum().backward()
    assert live.peak >= 20 * 50 * 4 + 50 * 50 * 4  # the gradient of the weights, and what it was made of


def test_measured_growth_is_near_what_is_foretold():
    found = growth.sweep("tangents", [2_560], [32, 64], [4])
    of = found.set_index(["axis", "size", "quantity"])
    for (axis, size, quantity), row in of.iterrows():
        if quantity == "result":
            assert row["measured"] == pytest.approx(row["foretold"], rel=0.01), (axis, size)
        if quantity == "memory":
            assert 0.4 < row["measured"] / row["foretold"] < 1.3, (axis, size)
    assert (found["measured"] > 0).all()
    assert np.isfinite(found["foretold"]).all()


def test_the_papers_models_in_a_table():
    table, sentence = paper_costs(find_project())
    assert len(table) == 11
    assert list(table.columns)[-2:] == ["time here", "time, A100"]
    assert "to download" in sentence
