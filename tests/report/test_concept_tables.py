"""The Table 2 layout and the pictures of the concept chapter."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from conceptcase import collection

from anisotropy.report import concept_tables, published
from anisotropy.report.figures import plt
from anisotropy.studies import concept_collapse, concept_windows


def cells(html):
    """Text of the cells, a list of lines each, row by row."""
    return [
        [re.sub(r"<[^>]+>", "", line) for line in re.findall(r"<div[^>]*>(.*?)</div>", cell)]
        for cell in re.findall(r"<td.*?</td>", html)
    ]


def simple(values, metric="effective_rank", **more):
    rows = [
        {"window": window, "layer": layer, "metric": metric, "reading": "per_checkpoint", "value": value, **more}
        for window, of_window in values.items()
        for layer, value in of_window.items()
    ]
    return pd.DataFrame(rows)


def test_three_layers_a_cell_from_top_to_bottom_and_a_dash_where_nothing_is():
    html = concept_tables.table_two(
        simple({"1–2": {"last": 3.0, "first": 1.0}, "4–8": {"first": 5.0, "middle": np.nan, "last": 7.0}}), "a caption"
    )
    assert cells(html) == [["1.0", "–", "3.0"], ["5.0", "–", "7.0"]]
    assert "<caption" in html
    assert "a caption" in html


def test_bars_go_from_the_smallest_to_the_largest_of_their_row():
    html = concept_tables.table_two(
        simple(
            {"a": {"first": 0.0, "middle": 5.0, "last": 10.0}, "b": dict.fromkeys(("first", "middle", "last"), 2.5)}
        ),
        "c",
    )
    lines = re.findall(r'<div style="white-space[^"]*"', html)
    lengths = [int(found[1]) if (found := re.search(r"\) (\d+)%", line)) else 0 for line in lines]
    assert lengths == [0, 50, 100, 25, 25, 25]
    strengths = [float(found[1]) for line in lines if (found := re.search(r"94,0,([\d.]+)", line))]
    assert max(strengths) <= 0.45  # the text stays readable on it
    assert strengths == [0.28, 0.45, 0.2, 0.2, 0.2] or len(strengths) == 5


def test_equal_values_have_no_bar():
    html = concept_tables.table_two(simple({"a": dict.fromkeys(("first", "middle", "last"), 2.0)}), "c")
    assert "gradient" not in html


def test_spread_and_missing_estimates_are_shown():
    row = {"value": 12.34, "spread": 0.567, "estimates": 2, "possible": 3}
    assert concept_tables.cell_text(row, "id_twonn") == "(12.3 <small>± 0.6</small>)"
    assert concept_tables.cell_text({"value": 0.517, "spread": np.nan}, "pca_similarity") == "0.52"
    assert concept_tables.cell_text({"value": 101.0}, "pca_70") == "101"


def test_labels_are_escaped():
    html = concept_tables.table_two(simple({"<b>": {"first": 1.0}}), '"quoted" & <i>')
    assert "<b>" not in html
    assert "<i>" not in html


def test_the_printed_table_keeps_its_numbers():
    printed = published.table2()
    html = concept_tables.table_two(concept_tables.printed_table(printed, "Pythia-410M"), "Pythia")
    assert ["141.5", "261.4", "4.4"] in cells(html)
    assert ["88", "101", "1"] in cells(html)
    assert "printed" in html
    # It prints a similarity for the first window too, so it cannot be one with a window before that is printed.
    assert "similarity to the window before" not in html


def test_ours_has_every_metric_and_reading():
    table = concept_windows.window_table([collection(step) for step in (0, 1, 2, 4, 8)], windows=2, similarity_rank=4)
    html = concept_tables.table_two(table, "ours")
    metrics = [name for metric, name in concept_tables.METRIC_NAMES.items() if metric != "sim_pca"]
    for name in (*metrics, "per checkpoint", "pooled", "scaled", "activations", "chance"):
        assert name in html


def test_models_that_were_not_run_come_with_their_command():
    table = concept_tables.not_run(["Pythia-410M", "EuroBERT-210M"], published.CATALOGUE_NAMES, ["pythia-410m"])
    assert table["measured"].tolist() == ["run", "not run here"]
    assert table["command"].tolist() == ["–", "anisotropy measure --model eurobert-210m --studies concept_tables"]


def test_pictures_say_what_they_show():
    members = [collection(step) for step in (0, 1, 80, 100)]
    titles = {"m": "Model M"}
    agreement = concept_windows.agreement(members)
    figure, alt = concept_tables.draw_agreement({"m": agreement}, titles, "middle")
    last = agreement[(agreement["layer"] == "middle") & (agreement["step"] == 100)].set_index("comparison")["value"]
    assert f"{last['seeds']:.2f} for two starts" in alt
    plt.close(figure)
    figure, alt = concept_tables.draw_matches({"m": np.array([0.95, 0.2])}, {"m": np.array([0.3, 0.1])}, titles)
    assert "1 of 2 pairs above 0.9, lowest 0.20" in alt
    plt.close(figure)
    figure, alt = concept_tables.draw_ratios({"m": concept_collapse.ratio_courses(members)}, titles, 0.1)
    assert "Model M, activations from 1.00 to 1.00" in alt
    plt.close(figure)


def test_one_checkpoint_has_no_checkpoint_before():
    figure, alt = concept_tables.draw_agreement(
        {"m": concept_windows.agreement([collection(5)])}, {"m": "Model M"}, "middle"
    )
    assert "checkpoint before" not in alt
    plt.close(figure)
