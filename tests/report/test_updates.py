"""Pictures, tables and sentences of the chapter on embedding updates, on measurements with known answers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.errors import UserError
from anisotropy.report import figures, updates, updates_words
from anisotropy.report.published import table3

TITLES = {"a": "Model A", "b": "Model B", "c": "Control"}


@pytest.fixture(autouse=True)
def _in_the_books_style():
    with figures.style():
        yield


def tokens(slope=1.0, matrix="input", stage="early", rank=16, n=240, **labels):
    """Tangent enrichment 3 + slope · (log10 f + 3), normal 1."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-6, -1, size=n))
    kind = {"basis": "start", "update": "measured", "reading": "corrected"} | labels
    columns = {"matrix": matrix, "stage": stage, **kind, "rank": rank, "token_id": np.arange(n)}
    table = pd.DataFrame({**columns, "count": np.arange(1, n + 1), "log10_frequency": x})
    table["group"] = 4 * np.arange(n) // n + 1
    table["tangent"] = 3 + slope * (x + 3) + 0.05 * random.normal(size=n)
    table["normal"] = 1 + 0.05 * random.normal(size=n)
    return table.assign(spread=0.3, normal_spread=0.31)


def numbers(model="a", estimate=0.3, half_width=0.05, **labels):
    kind = {"seed": 0, "matrix": "input", "stage": "early", "basis": "start", "update": "measured"}
    kind |= {"reading": "corrected", "rank": 16} | labels
    values = {"estimate": estimate, "low": estimate - half_width, "high": estimate + half_width, "n": 200}
    values |= {"null_low": -0.1, "null_high": 0.1, "missing": 7, "tangent": 3.0, "normal": 1.2}
    return {"model": model, **kind, **values, "normal_of_all": 1.1, "complement": 0.7}


def summary(*rows):
    return pd.DataFrame([numbers(), *rows])


def close(drawn):
    figure, alt = drawn
    figure.canvas.draw()
    figures.plt.close(figure)
    return figure, alt


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_the_alternative_text_names_the_ends(slope):
    table = tokens(slope)
    figure, alt = close(updates.draw_enrichments({"a": table}, TITLES, "input", "early", 16))
    ends = [table.loc[table["group"] == group, "tangent"].median() for group in (1, 4)]
    assert (ends[0] < ends[1]) == (slope > 0)
    assert f"tangent {ends[0]:.2f} for the rarest and {ends[1]:.2f} for the most frequent quarter" in alt
    assert "Model A" in alt
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["Model A: tangent", "Model A: normal"]


def test_models_without_the_matrix_or_stage_have_no_panel():
    both = {"a": tokens(), "b": tokens(matrix="output")}
    figure, alt = close(updates.draw_enrichments(both, TITLES, "input", "early", 16))
    assert len(figure.axes) == 2
    assert "Model B" not in alt
    with pytest.raises(updates.NothingToShow, match="no model has late updates"):
        updates.draw_enrichments(both, TITLES, "input", "late", 16)


def test_the_band_is_chance_and_its_spread():
    figure, _ = close(updates.draw_enrichments({"a": tokens()}, TITLES, "input", "early", 16))
    band = figure.axes[0].patches[0]
    assert (band.get_y(), band.get_y() + band.get_height()) == (pytest.approx(0.7), pytest.approx(1.3))


def test_the_running_median_follows_the_tokens():
    table = tokens(2.0, n=2000)
    line = updates.running(table, "tangent")
    np.testing.assert_allclose(line["median"], 3 + 2 * (line["log10_frequency"] + 3), atol=0.1)
    assert (line["low"] <= line["median"]).all()
    assert (line["median"] <= line["high"]).all()
    assert len(line) <= 60
    assert updates.running(table.head(10), "tangent").empty
    assert updates.running(table.assign(tangent=np.nan), "tangent").empty


def test_readings_and_courses_and_ranks_say_what_they_show():
    decay = tokens(0.0, reading="naive", update="decay")
    table = pd.concat([tokens(), tokens(-1.0, reading="naive"), decay])
    _, alt = close(updates.draw_readings({"a": table}, TITLES, "early", 16))
    medians = tokens()["tangent"].median(), tokens(-1.0)["tangent"].median(), decay["tangent"].median()
    assert "corrected {:.2f}, naive {:.2f}, −w instead of the update, naive {:.2f}".format(*medians) in alt
    with pytest.raises(updates.NothingToShow, match="late"):
        updates.draw_readings({"a": table}, TITLES, "late", 16)
    course = pd.DataFrame(
        {"matrix": "input", "start": [0, 1, 2] * 2, "end": [1, 2, 8] * 2, "group": [1] * 3 + [4] * 3}
        | {"tangent": [1.0, 2.0, 1.5, 1.0, 5.0, 3.0], "normal": 1.0, "n": 9}
    )
    _, alt = close(updates.draw_courses({"a": course}, TITLES))
    assert "highest 5.00 in the pair that ends at step 2" in alt
    with pytest.raises(updates.NothingToShow, match="no model has a pair"):
        updates.draw_courses({"a": course.iloc[:0]}, TITLES)
    ranks = summary(numbers(estimate=-0.2, rank=4), numbers("b", 0.5), numbers(estimate=0.1, stage="late"))
    figure, alt = close(updates.draw_ranks(ranks, ["a", "b"], TITLES))
    assert "Model A, input matrix, early from −0.20 to +0.30" in alt
    assert len(figure.axes) == 2
    with pytest.raises(updates.NothingToShow, match="nothing to show"):
        updates.draw_ranks(ranks, ["other"], TITLES)


def readings(naive, left_out, removed, corrected, width=0.05):
    names = {"naive": naive, "left out only": left_out, "w removed only": removed, "corrected": corrected}
    return pd.DataFrame([numbers(estimate=value, half_width=width, reading=name) for name, value in names.items()])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (readings(0.3, 0.3, -0.2, -0.2), "turns its sign (+0.30 → −0.20), mostly by removing the component along w"),
        (readings(-0.3, 0.01, -0.3, 0.01), "can no longer be told from zero (−0.30 → +0.01), mostly by leaving"),
        (readings(0.3, 0.3, 0.31, 0.31), "hardly changes"),
        (readings(0.3, 0.3, 0.6, 0.6), "changes (+0.30 → +0.60)"),
    ],
)
def test_what_the_corrections_do_is_computed(table, words):
    assert words in updates_words.effect_of_corrections(table, TITLES, 16, "early")


def test_nothing_to_correct():
    assert "No model has late updates" in updates_words.effect_of_corrections(summary(), TITLES, 16, "late")
    # A reading without a value says nothing about the corrections.
    empty = readings(0.3, 0.3, np.nan, np.nan)
    assert "No model has early updates" in updates_words.effect_of_corrections(empty, TITLES, 16, "early")


def test_the_reading_table_has_a_column_per_reading():
    table = updates_words.reading_table(pd.concat([readings(0.3, 0.2, 0.1, -0.2)]), TITLES, 16)
    row = table.iloc[0]
    assert (row["naive (ρ)"], row["corrected (ρ)"], row["−w, naive (ρ)"]) == ("+0.30", "−0.20", "–")
    assert row["without (tokens)"] == 7


def test_missing_tokens_are_counted():
    assert "- Model A, input matrix: 7 of 207" in updates_words.missing_tokens(summary(), TITLES, 16, "early")
    assert "No model has late updates" in updates_words.missing_tokens(summary(), TITLES, 16, "late")


def test_whether_the_sign_hangs_on_the_rank():
    same = updates_words.rank_sentence(summary(numbers(rank=4)), ["a"], TITLES)
    assert "Model A, input matrix, early: positive at every rank." in same
    other = summary(numbers(rank=4, estimate=-0.3), numbers(rank=8, estimate=0.0))
    text = updates_words.rank_sentence(other, ["a"], TITLES)
    assert "positive at rank 16; negative at rank 4; not told from zero at rank 8" in text
    assert "no correlation" in updates_words.rank_sentence(other, ["b"], TITLES)


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        (1.0, "the most frequent quarter is the more tangent"),
        (-1.0, "the rarest quarter is the more tangent"),
        (0.0, "are not told apart"),
    ],
)
def test_which_quarter_is_more_tangent(slope, words):
    assert words in updates_words.group_sentence({"a": tokens(slope)}, TITLES, "early", 16)
    assert "No model" in updates_words.group_sentence({"a": tokens(slope)}, TITLES, "late", 16)


def test_every_control_has_its_row():
    decay = numbers(estimate=np.nan, update="decay") | {"n": 0}
    rows = summary(numbers("c", 0.2), numbers(estimate=0.02, basis="random"), decay)
    table = updates_words.control_table(rows, {"a": "c"}, TITLES, 16, "early").set_index("updates")
    column = table["ρ [95 % over tokens]"]
    assert column["the model itself"] == "+0.30 [+0.25, +0.35]"
    assert column["shuffled labels"] == "+0.20 [+0.15, +0.25]"
    assert column["untrained basis"] == "not run"
    assert column["random basis"] == "+0.02 [−0.03, +0.07]"
    assert column["pure weight decay"] == "no direction left"
    assert column["shuffled frequencies"] == "−0.10 … +0.10"
    assert set(table["model"]) == {"Model A"}
    assert updates_words.control_table(rows, {"a": "c"}, TITLES, 16, "late").empty


def test_normal_readings_side_by_side():
    row = updates_words.normal_table(summary(), TITLES, 16).iloc[0]
    assert row["next directions, of what is left"] == 1.2
    assert row["random directions outside, of all"] == 0.7


def test_tracked_tokens_span_the_range_and_are_reused_late():
    early = tokens()
    early.loc[early["token_id"] == 239, "tangent"] = np.nan  # the most frequent did not move
    late = tokens(2.0, stage="late")
    table = pd.concat([early, late], ignore_index=True)
    chosen = updates_words.tracked_tokens(table, 16, 5)["input"]
    assert (chosen[0], chosen[-1]) == (238, 0)
    steps = np.diff(table.set_index("token_id").loc[chosen, "log10_frequency"].drop_duplicates())
    np.testing.assert_allclose(steps, steps.mean(), atol=0.15)
    found = updates_words.token_table(table, {"input": chosen}, 16)
    for stage, rows in (("early", early), ("late", late)):
        expected = rows.set_index("token_id").loc[chosen, "tangent"]
        np.testing.assert_allclose(found[f"{stage} tangent"], expected)
    assert np.isnan(updates_words.token_table(early, {"input": [0]}, 16)["late tangent"][0])
    with pytest.raises(UserError, match="at least 2"):
        updates_words.tracked_tokens(table, 16, 1)


def test_fewer_tokens_than_asked_for():
    assert sorted(updates_words.tracked_tokens(tokens(n=3), 16, 5)["input"]) == [0, 1, 2]


def test_the_printed_table_has_the_papers_layout():
    table = updates_words.printed_table(table3())
    assert table.columns.tolist()[3:] == ["early tangent", "early normal", "stable tangent", "stable normal"]
    assert table.iloc[0].tolist() == ["EuroBERT-210m", "of", 0.024, 33.27, 0.99, 3.72, 1.0]
    assert table["token"].tolist() == ["of", "her", "lines", "jam", "chat"]


def test_the_printed_pair_cannot_be_the_complement():
    pair = updates_words.printed_pair(33.27, 0.99, 768)
    assert (pair.largest_rank, pair.ceiling_rank) == (23, 1)
    assert pair.ceiling == pytest.approx((768 - 33.27) / 767)
    assert round(pair.ceiling, 3) == 0.958
    assert not pair.possible
    assert "cannot be the full complement" in pair.remark()
    assert "k \\le 23" in pair.remark()


def test_a_modest_pair_can():
    pair = updates_words.printed_pair(2.79, 1.00, 768)
    assert pair.possible
    assert "so it can be the full complement" in pair.remark()
    with pytest.raises(UserError, match="larger than"):
        updates_words.printed_pair(900, 1, 768)


def test_the_ceiling_holds_for_real_bases():
    """The mean over random bases outside is (d − E·k)/(d − k), from drawn bases."""
    from anisotropy.geometry.left_out import subspace_shares
    from anisotropy.geometry.subspaces import random_normal_basis

    random = np.random.default_rng(1)
    d, k = 40, 5
    basis = np.linalg.qr(random.normal(size=(d, k)))[0]
    update = basis @ random.normal(size=k) * 2 + random.normal(size=d)
    tangent = subspace_shares(update[None], basis)[0, -1] * d / k
    outside = [
        subspace_shares(update[None], random_normal_basis(basis, seed).numpy())[0, -1] * d / k for seed in range(400)
    ]
    expected = (d - tangent * k) / (d - k)
    assert np.mean(outside) == pytest.approx(expected, abs=4 * np.std(outside) / 20)


def test_which_printed_pairs_are_ruled_out():
    text = updates_words.pairs_remark(table3(), {"EuroBERT-210m": 768})
    assert text.startswith("Of the 10 printed pairs, 2 cannot be so at any rank")
    assert "“of” early (33.27, 0.99)" in text
    assert "“her” early (7.4, 1.00)" in text
    mild = table3().assign(enrichment=1.0)
    assert "No pair of the 10" in updates_words.pairs_remark(mild, {"EuroBERT-210m": 768})
