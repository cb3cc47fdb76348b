"""Table 1, printed beside recomputed: what fills a cell, and what printed numbers imply."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.geometry.subspaces import energy_ratio, isoscore_removal_null
from anisotropy.report.published import table1
from anisotropy.report.side_by_side import (
    METRICS,
    PROBES,
    baseline_sentence,
    comparison_table,
    draw_comparison,
    implied_energies,
    implied_energy,
    implied_participation,
    not_run,
    p_value_remark,
    size_sentence,
)

TITLES = {"mini": "Mini"}


def stages(*models, value=10.0, basis="early", stage="early"):
    quantities = [*METRICS, "delta_null"]
    return pd.DataFrame(
        [
            {"model": model, "seed": 0, "gradient": "activation", "basis": basis, "stage": stage, "probe": probe}
            | {"rank": 4, "quantity": quantity, "estimate": value, "low": value - 1, "high": value + 1}
            for model in models
            for probe in PROBES
            for quantity in quantities
        ],
        columns=[
            *("model", "seed", "gradient", "basis", "stage", "probe", "rank", "quantity", "estimate", "low", "high")
        ],
    )


def test_a_model_of_the_paper_is_said_not_to_be_run_until_it_is():
    table = comparison_table(table1(), stages("mini"), "energy_ratio", TITLES)
    assert table["source"].tolist() == ["printed, not run here"] * 5 + ["run here"]
    assert table.iloc[0].tolist() == ["EuroBERT-210m", "printed, not run here", "7.42", "53.1", "20.6", "18.6"]
    assert table.iloc[-1].tolist() == ["Mini", "run here", "10", "10", "10", "10"]
    both = comparison_table(table1(), stages("mini", "olmo-1b"), "energy_ratio", TITLES)
    assert both["source"].tolist() == ["printed, not run here"] * 4 + ["printed", "run here", "run here"]
    assert both.iloc[5].tolist() == ["OLMo-1B", "run here", "10", "10", "10", "10"]
    assert not_run(stages("mini", "olmo-1b")) == ["eurobert-210m", "eurobert-610m", "gaperon-1.5b", "moderncamembert"]


def test_only_the_reading_of_the_printed_block_fills_cells():
    other = pd.concat([stages("mini", basis="own"), stages("mini", stage="late")])
    assert "run here" not in comparison_table(table1(), other, "energy_ratio", TITLES)["source"].tolist()
    assert size_sentence(table1(), other, TITLES) == "No model of this page has an early block."
    assert baseline_sentence(other, TITLES) == ""


def test_a_probe_that_is_missing_is_a_dash():
    some = stages("mini")
    table = comparison_table(table1(), some[some["probe"] != "Tm"], "p_energy_null", TITLES)
    assert table.iloc[-1]["Tm"] == "–"
    assert table.iloc[-1]["T1_in*"] == "10"


@pytest.mark.parametrize(("value", "inside"), [(10.0, 4), (2.0, 0), (5000.0, 0)])
def test_the_size_sentence_counts_probes_within_the_printed_range(value, inside):
    sentence = size_sentence(table1(), stages("mini", value=value), TITLES)
    assert f"{inside} of 4 probes within the printed range (7.42 to 1,400)" in sentence


def test_the_picture_says_ranges_in_words():
    figure, alt = draw_comparison(table1(), stages("mini"), TITLES)
    assert "E_r printed 7.42 to 1,400; Mini 10 to 10" in alt
    assert len(figure.axes) == 3
    assert figure.axes[0].get_yscale() == "log"


def test_an_implied_share_gives_its_ratio_back():
    for ratio, k, d in ((7.42, 16, 768), (1400.0, 1, 2048), (1.0, 3, 10)):
        e = implied_energy(ratio, k, d)
        spectrum = np.r_[np.full(k, e / k), np.full(d - k, (1 - e) / (d - k))]
        assert float(energy_ratio(np.diag(spectrum), np.eye(d)[:, :k])) == pytest.approx(ratio)
    assert implied_energy(1.0, 3, 10) == pytest.approx(0.3)
    table = implied_energies(table1(), [1, 16])
    assert len(table) == 20
    assert (table["k = 1"] < table["k = 16"]).all()


def test_an_implied_participation_ratio_gives_its_delta_back():
    table = implied_participation(table1(), 16)
    row = table[(table["model"] == "EuroBERT-210m") & (table["probe"] == "Tm")].iloc[0]
    r = round(row["PR"])
    flat = np.diag(np.r_[np.ones(r), np.zeros(row["d"] - r)])
    null = isoscore_removal_null(flat, 16, 0.0, 20, seed=0)
    assert null.mean == pytest.approx(row["ΔN (%)"], rel=0.1)


def test_printed_p_values_that_no_test_with_20_draws_gives():
    remark = p_value_remark(table1())
    assert remark.startswith("18 of 20 printed p-values are multiples of 1/21")
    assert "0.091 (the fewest draws that could give it are 10)" in remark
    assert "0.087 (the fewest draws that could give it are 22)" in remark
    clean = table1().assign(value=0.048)
    assert p_value_remark(clean).startswith("Every printed p-value is a multiple of 1/21")


def test_delta_n_stands_beside_its_null():
    sentence = baseline_sentence(stages("mini", value=-1.5), TITLES)
    assert sentence == "Mini: ΔN −1.5 to −1.5 %, random bases of the same rank −1.5 to −1.5 %."
