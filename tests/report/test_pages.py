"""What reaches a page: pictures with alternative text, tables, sentences."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from anisotropy.report import figures, frequency, frequency_words, prose, tables
from anisotropy.report.rules.frequency import READINGS, reading_name
from anisotropy.report.scorecard import Outcome, Verdict

TITLES = {"a": "Model A", "b": "Model B", "c": "Control"}


@pytest.fixture
def shown(monkeypatch):
    seen = []
    for module in (figures, tables, prose):
        monkeypatch.setattr(module, "display", lambda *objects, **options: seen.append((objects, options)))
    return seen


def token_table(slope, seed=0, matrix="input", centroid="trajectory"):
    random = np.random.default_rng(seed)
    x = random.uniform(-6, -1, size=300)
    distance = 3 + slope * x + random.normal(size=300) * 0.1
    columns = {"centroid": centroid, "matrix": matrix, "stage": "trained", "token_id": np.arange(300), "count": 5}
    return pd.DataFrame({**columns, "log10_frequency": x, "distance": distance, "relative": distance / 2})


def readings(estimate):
    kinds = [("distance", "pearson"), ("distance", "spearman"), ("relative", "pearson")]
    return pd.DataFrame(
        [
            {"model": model, "seed": 0, "centroid": centroid, "matrix": matrix, "stage": stage, "value": value}
            | {"kind": kind, "estimate": estimate, "low": estimate - 0.1, "high": estimate + 0.1, "n": 100}
            | {"null_low": -0.2, "null_high": 0.2, "p_value": 0.01}
            for model in ("a", "c")
            for centroid, matrix in READINGS
            for stage in ("trained", "untrained")
            for value, kind in kinds
            if not (centroid == "trajectory" and stage == "untrained")
        ]
    )


def test_a_picture_carries_its_alternative_text_and_is_sharp_on_any_screen(shown):
    with figures.style():
        figure, _ = figures.stacked(1)
        width = figure.get_size_inches()[0]
        figures.show(figure, "A flat line that says nothing.")
    (picture,), options = shown[0]
    assert options["metadata"]["image/png"]["alt"] == "A flat line that says nothing."
    pixels = int.from_bytes(picture.data[16:20], "big")
    assert pixels == pytest.approx(2 * options["metadata"]["image/png"]["width"], abs=2)
    assert options["metadata"]["image/png"]["width"] == round(width * 110)


def test_a_picture_without_alternative_text_is_refused(shown):
    figure, _ = figures.stacked(1)
    with pytest.raises(ValueError, match="alternative text"):
        figures.show(figure, "  ")
    figures.plt.close(figure)
    assert not shown


def test_the_same_picture_has_the_same_bytes(shown):
    for _ in range(2):
        with figures.style():
            figures.show(*frequency.draw_distance({"a": token_table(-1)}, TITLES, "trajectory"))
    assert shown[0][0][0].data == shown[1][0][0].data


def test_style_leaves_global_settings_alone():
    before = dict(mpl.rcParams)
    with figures.style():
        assert mpl.rcParams["font.size"] == 11
    assert dict(mpl.rcParams) == before


def test_text_is_readable_on_a_phone():
    """At 330 pixels of picture width, an 11-point letter is at least 9 pixels high."""
    assert 11 / 72 / figures.WIDTH * 330 >= 9


@pytest.mark.parametrize(("slope", "sign"), [(-1.0, "−"), (1.0, "+")])
def test_alternative_texts_state_what_the_picture_shows(slope, sign):
    with figures.style():
        figure, alt = frequency.draw_distance({"a": token_table(slope)}, TITLES, "trajectory")
        figures.plt.close(figure)
    assert f"Model A, input matrix Pearson {sign}" in alt


def test_courses_say_which_group_stays_closer():
    def table(frequent, rare):
        return pd.DataFrame(
            [
                {"step": step, "group": group, "token_id": token, "count": 1, "distance": distance}
                for step in (1, 2, 4)
                for group, token, distance in (("most frequent", 1, frequent), ("least frequent", 2, rare))
            ]
        )

    with figures.style():
        figure, alt = frequency.draw_courses({"a": table(1.0, 2.0), "b": table(2.0, 1.0)}, TITLES)
    assert "in Model A the most frequent tokens stay closer" in alt
    assert "in Model B the least frequent tokens stay closer" in alt
    assert len(figure.axes) == 2
    figures.plt.close(figure)


def test_ranges_skip_models_without_the_reading():
    with figures.style():
        both = {"a": token_table(-1), "b": token_table(1, centroid="vocabulary")}
        figure, alt = frequency.draw_ranges(both, TITLES, "trajectory", "input")
    assert "Model A" in alt
    assert "Model B" not in alt
    figures.plt.close(figure)


def test_bins_hold_minimum_median_and_maximum():
    table = token_table(-1)
    found = frequency.binned(table, bins=4, at_least=1)
    assert found["n"].sum() == len(table)
    assert found["minimum"].min() == table["distance"].min()
    assert found["maximum"].max() == table["distance"].max()
    first = table[table["log10_frequency"] < table["log10_frequency"].min() + np.ptp(table["log10_frequency"]) / 4]
    assert found["median"].iloc[0] == pytest.approx(first["distance"].median())
    assert frequency.binned(table, bins=4, at_least=1000).empty


def test_readings_draw_the_control_but_not_as_a_model():
    with figures.style():
        figure, alt = frequency.draw_readings(readings(-0.4), {"a": "c"}, TITLES)
    assert "Model A, occurrences −0.40" in alt
    assert "Control" not in alt
    figures.plt.close(figure)


def test_training_names_loss_and_unigram():
    rows = [{"model": "a", "step": step, "loss": 6.0 - step, "unigram": 5.5} for step in (0, 1)]
    with figures.style():
        figure, alt = frequency.draw_training(pd.DataFrame(rows), TITLES)
    assert "Model A goes from 6.00 to 5.00 nats (unigram 5.50)" in alt
    figures.plt.close(figure)


def test_control_table_has_a_row_per_model_and_reading():
    table = frequency_words.control_table(readings(-0.4), TITLES)
    assert len(table) == 2 * len(READINGS)
    assert set(table["model"]) == {"Model A", "Control"}
    assert (table["distance"] == "−0.40").all()
    assert (table["distance / norm, ranks"] == "–").all()


def verdict(reading, low, high):
    return Verdict("C1", "a", reading, Outcome.FAILS, "of a test", (low + high) / 2, low, high, (), 1, False)


def test_disagreement_is_computed():
    names = [reading_name(*reading) for reading in READINGS]
    agree = [verdict(name, -0.5, -0.3) for name in names]
    assert "every reading agrees: the correlation is negative" in frequency_words.disagreement(agree, TITLES)
    mixed = [verdict(names[0], 0.3, 0.5), verdict(names[1], -0.5, -0.3), verdict(names[2], -0.1, 0.1)]
    sentence = frequency_words.disagreement(mixed, TITLES)
    assert "the reading decides" in sentence
    assert f"negative under {names[1]}" in sentence
    assert f"positive under {names[0]}" in sentence
    assert f"not told apart from zero under {names[2]}" in sentence
    nothing = [Verdict("C1", "a", names[0], Outcome.NOT_APPLICABLE, "of a test")]
    assert frequency_words.disagreement(nothing, TITLES) == "For Model A no reading applies."


def test_tables_align_words_and_numbers_and_never_change_by_themselves(shown):
    table = pd.DataFrame({"model": ["a", "b"], "tokens": [1200, 3], "ρ": [0.5, np.nan]})
    for _ in range(2):
        tables.show_table(table, "Tokens.", {"ρ": "{:.2f}"})
    (first,), (second,) = shown[0][0], shown[1][0]
    assert first == second
    assert "1,200" in first["text/html"]
    assert "0.50" in first["text/html"]
    assert "–" in first["text/html"]
    assert 'class="dataframe"' in first["text/html"]
    assert "<caption>Tokens.</caption>" in first["text/html"]
    assert first["text/html"].count("text-align: left") == 1


@pytest.mark.parametrize(("value", "text"), [(0.5, "+0.50"), (-0.5, "−0.50"), (0.0, "0.00"), (-0.004, "0.00")])
def test_signed(value, text):
    assert tables.signed(value) == text


def test_say_joins_lines(shown):
    prose.say("- one", "- two")
    assert shown[0][0][0].data == "- one\n- two"


def cut_offs(*estimates):
    """Tables by cut-off in which every reading of model a has the given estimate, and its control 0."""
    found = {}
    for minimum, estimate in zip((1, 10, 100), estimates, strict=True):
        table = readings(estimate)
        table.loc[table["model"] == "c", ["estimate", "low", "high"]] = [0.0, -0.1, 0.1]
        table.loc[table["stage"] == "untrained", ["estimate", "low", "high"]] = [0.0, -0.1, 0.1]
        found[minimum] = table
    return found


def test_robustness_is_computed():
    steady = frequency_words.robustness(cut_offs(-0.5, -0.6, -0.4), {"a": "c"}, TITLES)
    assert steady == "For Model A no verdict depends on the cut-off."
    moving = frequency_words.robustness(cut_offs(0.4, -0.5, -0.6), {"a": "c"}, TITLES)
    assert "the cut-off decides under" in moving
    assert "- trajectory (input): fails at 1; holds at 10, 100" in moving


def test_cut_offs_draw_every_reading():
    with figures.style():
        figure, alt = frequency.draw_cut_offs(cut_offs(0.4, 0.1, -0.6), {"a": "c"}, TITLES)
    assert len(figure.axes) == len(READINGS)
    assert "Model A, trajectory (input) from +0.40 to −0.60" in alt
    assert "Control" not in alt
    figures.plt.close(figure)


@pytest.mark.parametrize(("relative", "flips"), [(0.3, True), (-0.3, False)])
def test_sign_changes_under_the_norm_are_named(relative, flips):
    table = readings(-0.4)
    table.loc[table["value"] == "relative", "estimate"] = relative
    sentence = frequency_words.norm_flips(table, TITLES)
    assert ("Model A, trajectory (input) (−0.40 → +0.30)" in sentence) == flips
    assert sentence.startswith("Readings that change" if flips else "No reading changes")
