"""Models with one checkpoint, and models with one matrix for both ends: what pages say and draw of them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from anisotropy.report import alignment, concept_words, frequency_words, tangent_words
from anisotropy.report.figures import plt, style
from anisotropy.report.rules.alignment import MATRIX_NAMES, METRIC_NAMES
from anisotropy.studies.concept_windows import ONLY, make_windows

TITLES = {"one": "One", "two": "Two", "shared": "Shared"}
METHODS = ("pca", "semi_nmf", "ica")


def curves() -> pd.DataFrame:
    rows = [
        {
            "step": 1,
            "source": source,
            "metric": metric,
            "method": method,
            "matched": 0.1 * place,
            "baseline": 0.1,
            "baseline_low": 0.05,
            "baseline_high": 0.15,
            "excess": 0.1 * place - 0.1,
            "excess_low": 0.1 * place - 0.12,
            "excess_high": 0.1 * place - 0.08,
        }
        for source in ("gradient", "shuffled")
        for metric in METRIC_NAMES
        for place, method in enumerate(METHODS, 1)
    ]
    return pd.DataFrame(rows)


def trends() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"step": 1, "matrix": matrix, "method": method, "rho": -0.1 * place, "ranks": 51}
            for matrix in MATRIX_NAMES
            for place, method in enumerate(METHODS, 1)
        ]
    )


@pytest.mark.parametrize(
    ("picture", "table", "panels"),
    [
        (alignment.draw_alignment, curves, len(METRIC_NAMES)),
        (alignment.draw_excess, curves, len(METRIC_NAMES)),
        (alignment.draw_trends, trends, len(MATRIX_NAMES)),
    ],
)
def test_one_checkpoint_is_drawn_as_points_and_named_without_a_step(picture, table, panels):
    with style():
        figure, alt = picture(table(), "One")
    assert "one checkpoint" in alt
    assert not re.search(r"step|training|from", alt)
    assert len(figure.axes) == panels
    for axis in figure.axes:
        markers = [line for line in axis.get_lines() if line.get_marker() not in ("None", "")]
        heights = {round(float(np.ravel(line.get_ydata())[0]), 6) for line in markers}
        assert len(markers) >= len(METHODS)
        assert len(heights) >= len(METHODS)
    assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == ["PCA", "Semi-NMF", "ICA"]
    plt.close(figure)


def test_the_window_of_one_checkpoint_names_no_step():
    assert [(window.label, window.steps) for window in make_windows([1])] == [(ONLY, (1,))]
    assert [window.label for window in make_windows([0, 1])] == ["1"]


def test_sentences_about_one_checkpoint_speak_of_no_course():
    course = pd.DataFrame({"reading": ["activations"], "step": [1], "ratio": [0.88]})
    said = concept_words.course_words({"one": course}, TITLES)
    assert said == "One: the ratio of the activations is 0.88 at its one checkpoint."
    stages = pd.DataFrame(
        [{"model": "one", "seed": 0, "gradient": "activation", "basis": "own", "stage": "only", "probe": "Tm"}]
    ).assign(quantity="energy_ratio", estimate=1.0)
    assert tangent_words.bases_sentence(stages, TITLES) == "One has one checkpoint, so no early basis beside its own."


def correlations(*entries: tuple[str, str, str, float]) -> pd.DataFrame:
    columns = ["model", "centroid", "matrix", "estimate"]
    return pd.DataFrame(entries, columns=columns).assign(seed=0, value="distance", kind="pearson", stage="trained")


def cosines(*entries: tuple[str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(entries, columns=["model", "matrix", "cosine"]).assign(group=1)


def test_tied_beside_untied():
    found = correlations(
        ("two", "trajectory", "input", 0.4),
        ("two", "trajectory", "output", -0.3),
        ("two", "vocabulary", "input", 0.7),
        ("two", "vocabulary", "output", 0.1),
        ("shared", "trajectory", "input", -0.2),
        ("shared", "vocabulary", "input", 0.6),
    )
    narrow = cosines(("two", "input", 0.0), ("two", "output", 0.8), ("shared", "input", 0.5))
    table = frequency_words.tied_table(found, narrow, TITLES)
    text = frequency_words.tied_as_text(table)
    assert text.loc[text["model"] == "Shared", "output matrix"].tolist() == ["the same matrix"] * 3
    assert text.loc[text["model"] == "Two", "output matrix"].tolist() == ["−0.30", "+0.10", "+0.80"]
    (said,) = frequency_words.tied_sentences(table)
    assert said == (
        "Shared beside Two: nearer to its input matrix in ρ, vocabulary (+0.60), and nearer to its output matrix in "
        "ρ, trajectory (−0.20); mean cosine, rarest fifth (+0.50)."
    )


def test_without_both_kinds_there_is_nothing_to_compare():
    found = correlations(("shared", "vocabulary", "input", 0.6))
    assert frequency_words.tied_table(found, cosines(("shared", "input", 0.5)), TITLES).empty


def test_a_reading_names_the_models_it_leaves_out():
    tokens = {
        "one": pd.DataFrame({"centroid": ["vocabulary", "occurrences"]}),
        "two": pd.DataFrame({"centroid": ["trajectory", "vocabulary", "occurrences"]}),
    }
    said = frequency_words.left_out(tokens, TITLES)
    assert said == "The reading `trajectory` does not apply to One: it needs two checkpoints after step 0."
    assert frequency_words.left_out({"two": tokens["two"]}, TITLES) == ""
