"""Table 1 and the sentences of the tangent alignment chapter: opposite outcomes give opposite sentences."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from made_up_tangents import PROBES, TITLES, course, stages

from anisotropy.report import tangent_doubts as doubts
from anisotropy.report import tangent_words as words
from anisotropy.report.rules.tangents import gradients_concentrate, proxy_carries_anisotropy

HIGH, LOW = (0.4, 0.3, 0.5), (-0.4, -0.5, -0.3)


def lines_of(table):
    return {line["quantity"]: line for line in table.to_dict("records")}


def plain(cell):
    return re.sub(r"<br><small[^>]*>(.*)</small>", r" \1", cell)


def test_table_one_has_stages_as_blocks_probes_as_columns_and_bold_effects():
    both = pd.concat([stages(), stages(stage="late", energy_ratio=(120.0, 99.0, 140.0))])
    other = stages(excess=(3.0, 2.0, 4.0))
    table = words.table_one(both, other, (0, 0.2), "early")
    assert list(table.columns) == ["quantity", "T1_in*", "T1_out", "Tm", "Tl"]
    early, late = (table.iloc[:14], table.iloc[14:])
    assert early["quantity"].iloc[0] == "<b>EARLY</b>"
    assert late["quantity"].iloc[0] == "<b>LATE</b>"
    found = lines_of(early)
    assert plain(found["E_r"]["T1_in*"]) == "<b>5.00</b> [4.00, 6.00]"
    assert found["E_r, random bases"]["Tm"] == "0.80 to 1.25"
    assert found["p, the paper's"]["Tm"] == "0.048"
    assert found["p, ΔT > ΔN"]["Tm"] == "< 0.001"
    assert plain(found["ΔN (%)"]["Tl"]) == "<b>−2.0</b> [−3.0, −1.0]"
    assert plain(found["Δ null (%)"]["Tl"]) == "−1.0 [−2.0, 0.0]"
    assert plain(found["ΔT − null (%), ζ = 0"]["Tl"]) == "<b>+9.0</b> [+8.0, +10]"
    assert plain(found["ΔT − null (%), ζ = 0.2"]["Tl"]) == "<b>+3.0</b> [+2.0, +4.0]"
    assert found["e_T / variance share"]["Tl"] == "0.75"
    assert plain(lines_of(late)["E_r"]["Tm"]) == "<b>120</b> [99.0, 140]"


def test_table_one_marks_what_was_not_measured():
    table = words.table_one(stages(excess=None), stages(stage="late"), (0, 0.2), "early")
    found = lines_of(table)
    assert found["ΔT − null (%), ζ = 0"]["Tm"] == "–"
    assert found["ΔT − null (%), ζ = 0.2"]["Tm"] == "–"


def test_sizes_say_rank_dimension_and_gradients():
    assert words.sizes({"a": course((1.0, 2, 3, 4))}, TITLES, 8) == (
        "Model A: rank k = 8 of d = 64 (k/d = 0.125), 4,000 gradients in 10 blocks of documents at each of 4 "
        "checkpoints."
    )
    one = course((1.0,), steps=(5,))
    assert "at one checkpoint" in words.sizes({"a": one}, TITLES, 8)


def test_a_course_has_a_start_a_peak_and_an_end():
    text = words.course_sentences({"a": course((1.0, 2, 30, 4))}, TITLES)
    assert "At step 0 E_r is 1." in text
    assert "30 at Tm (step 10)" in text
    assert text.endswith("At step 100 it is 4.")
    assert "no course" in words.course_sentences({"a": course((1.0,), steps=(5,))}, TITLES)


def test_untrained_alignment_of_the_early_basis_alone_is_explained():
    early, own = course((2.0, 2, 2, 2)), course((1.0, 1, 1, 1), basis="own")
    text = words.untrained_sentences({"a": pd.concat([early, own])}, TITLES)
    assert "the early basis gives 2 (above random bases at 4 of 4 probes)" in text
    assert "the own basis gives 1 (above random bases at 0 of 4 probes)" in text
    assert "from gradients to activations" in text
    chance = course((1.0, 2, 2, 2))
    assert "from gradients to activations" not in words.untrained_sentences({"a": pd.concat([chance, own])}, TITLES)
    assert "no untrained checkpoint" in words.untrained_sentences({"a": course((1.0,), steps=(7,))}, TITLES)


@pytest.mark.parametrize(
    ("advantage", "phrase"),
    [
        (LOW, "property of the network's Jacobian"),
        (HIGH, "belongs to what the labels teach"),
        ((0.1, -0.1, 0.3), "nor"),
    ],
)
def test_shuffled_labels_decide_what_the_alignment_is_a_property_of(advantage, phrase):
    table = stages(advantage__over__shuffled__labels=advantage)
    text = words.shuffled_sentences(table, TITLES)
    assert phrase in text
    assert ("as high or higher at no probe" in text) == (advantage[0] > 0)
    assert f"{pictures_short(np.exp(-advantage[0]))} times" in text


def pictures_short(value):
    return f"{value:.3g}"


def test_what_a_failure_does_not_mean_counts_the_other_controls():
    text = words.not_meant(stages(advantage__over__next__variance=LOW))
    assert "above 1 in 4 of 4 cases" in text
    assert "next variance at 0 of 4" in text
    assert "untrained at 4 of 4" in text
    weak = words.not_meant(stages(energy_ratio=(1.0, 0.9, 1.1)))
    assert "above 1 in 0 of 4 cases" in weak
    assert "residual stream" not in weak
    assert "(T1_in, T1_out, Tm, Tl), the directions belong to the residual stream" in words.not_meant(
        stages(advantage__over__other__probe=LOW)
    )


def test_anisotropy_names_the_comparison_that_stands_in_the_way():
    good = words.anisotropy_sentences(stages(), TITLES)
    assert "ΔT − null is +9 to +9 %. Clearly above every comparison at T1_in, T1_out, Tm, Tl." in good
    bad = words.anisotropy_sentences(stages(tangent__over__normal=(1.0, -1.0, 2.0)), TITLES)
    assert "above every comparison at no probe; not clearly above at T1_in (next variance)" in bad


@pytest.mark.parametrize(
    ("own", "phrase"), [(10.0, "has aged."), (2.0, "has not aged"), (None, "only one of the bases")]
)
def test_an_early_basis_may_age(own, phrase):
    table = stages(stage="late")
    if own:
        table = pd.concat([table, stages(stage="late", basis="own", energy_ratio=(own, own, own))])
    assert phrase in words.bases_sentence(table, TITLES)


def test_seeds_of_one_model_have_lines_of_their_own():
    table = pd.concat([stages(), stages(seed=1)])
    assert [label for label, _ in words.by_model(table)] == ["a", "a@1"]


@pytest.mark.parametrize(("share", "phrase"), [(0.9, "it is built in"), (0.1, "not merely built in")])
def test_the_unpaired_control_says_how_much_is_built_in(share, phrase):
    table = course((2.0, 2, 9, 10), basis="own", gradient="weight", energy_ratio_unpaired=10 * share)
    text = doubts.readings_sentences({"a": table}, TITLES)
    assert phrase in text
    assert f"which is {100 * share:.0f} % of it" in text


def test_readings_that_differ_between_probes_or_lack_a_weight():
    table = course((2.0, 2, 9, 10), basis="own", gradient="weight")
    table.loc[table["probe"] == "Tl", "energy_ratio_unpaired"] = 1.0
    assert "at others not" in doubts.readings_sentences({"a": table}, TITLES)
    assert "no weight reading" in doubts.readings_sentences({"a": course((1.0, 1, 1, 1))}, TITLES)


def test_gradients_may_be_more_or_less_concentrated_than_activations():
    assert "less concentrated" in words.against_variance(stages(), TITLES)
    assert "gradients are more concentrated" in words.against_variance(stages(energy_fraction=0.9), TITLES)
    mixed = stages(energy_fraction=0.9)
    mixed.loc[(mixed["quantity"] == "energy_fraction") & (mixed["probe"] == "Tl"), "estimate"] = 0.1
    assert "in 3 of 4 cases" in words.against_variance(mixed, TITLES)


def test_ranks_list_where_the_proxy_helps():
    rows = {"rank": [1, 2, 4], "energy_ratio": [3.0, 9.0, 2.0]}
    sweep = pd.concat(
        [
            pd.DataFrame({**rows, "probe": probe, "excess_low": low})
            for probe, low in (("T1_in", [1.0, 1, -1]), ("Tm", [1.0, 1, 1]), ("Tl", [-1.0, -1, -1]))
        ]
    )
    text = words.rank_sentences({"a": sweep}, TITLES)
    assert "T1_in 1, 2; Tm all; Tl none" in text
    assert "2 at T1_in" in text


def test_the_spectrum_says_first_direction_and_proxy():
    shares = {"gradient_energy": [0.5, 0.3, 0.2], "activation_variance": [0.7, 0.2, 0.1]}
    table = pd.DataFrame({"probe": "Tm", "step": 3, "direction": [1, 2, 3], **shares})
    text = words.spectrum_sentences({"a": table}, TITLES, "Tm", 2)
    assert "0.50 of the gradient energy and 0.70" in text
    assert "first 2 hold 0.80 and 0.90" in text


def test_the_primary_reading_is_said_or_said_to_be_missing():
    verdicts = gradients_concentrate(pd.concat([stages(), stages("b", basis="own")]))
    text = words.primary_sentences(verdicts, TITLES)
    assert "**C2, Model A, activation gradient, early basis, early: holds**" in text
    assert "Model B: the primary reading (activation gradient, early basis, early) is not among these" in text


def test_the_grid_has_outcomes_by_reading_and_stars_the_primary_one():
    table = pd.concat(
        [stages(), stages(stage="late", advantage__over__untrained=LOW), stages("b", basis="own", stage="only")]
    )
    grid = words.verdict_grid(gradients_concentrate(table), TITLES).set_index("reading")
    assert list(grid.columns) == ["Model A, early", "Model A, late", "Model B, only"]
    assert list(grid.loc["activation gradient, early basis"]) == ["holds*", "fails", "–"]
    assert list(grid.loc["activation gradient, own basis"]) == ["–", "–", "holds"]


# What could fool us.


def test_the_base_point_may_change_a_verdict_or_not():
    verdicts = gradients_concentrate(stages())
    same = doubts.base_point(stages(), stages(), verdicts, verdicts, False)
    assert "about the mean instead of zero, E_r is 1.00 to 1.00" in same
    assert "no verdict on C2 changes" in same
    moved = stages(energy_ratio=(0.5, 0.4, 0.6))
    text = doubts.base_point(stages(), moved, verdicts, gradients_concentrate(moved), True)
    assert "about zero instead of the mean, E_r is 0.10 to 0.10" in text
    assert "1 of 1 verdicts on C2 change" in text
    assert "No reading" in doubts.base_point(stages(), stages(stage="late"), verdicts, verdicts, False)


def test_means_of_weight_gradients():
    table = course((1.0, 1, 1, 4), gradient="weight")
    assert "0.5 times as large" in doubts.centred_weights({"a": table}, TITLES)
    assert "No weight reading" in doubts.centred_weights({"a": course((1.0, 1, 1, 4))}, TITLES)


def test_the_early_basis_is_held_against_the_untrained_model():
    text = doubts.early_basis(stages(advantage__over__untrained=(np.log(3), 0.9, 1.3)))
    assert "is 3 times that" in text
    assert "in 4 of 4 cases" in text
    assert "in 0 of 4 cases" in doubts.early_basis(stages(advantage__over__untrained=(0.1, -0.1, 0.3)))
    assert "no shared early basis" in doubts.early_basis(stages(basis="own"))


def test_removal_counts_both_sides_of_the_null_and_compares_it_with_theory():
    inside = doubts.removal({"a": course((1.0, 1, 1, 1), delta_normal=-1.5)}, 8, 0.0)
    assert "in 16 of 16 cases, below in 0, above in 0" in inside
    predicted = 100 * 8 * (1 + 0.1 * 63) / 64**2
    assert f"−100·k·PR/d² −{predicted:.2f} %" in inside
    outside = doubts.removal({"a": course((1.0, 1, 1, 1), delta_normal=-9.0)}, 8, 0.2)
    assert "in 0 of 16 cases, below in 16, above in 0" in outside
    assert "PR" not in outside


def test_the_floor_is_judged_by_its_standard_error():
    rates = pd.DataFrame(
        {"rank": [4, 1], "share": [0.25, 0.0625], "complement": [0.12, 0.01], "ambient": 0.05, "expected": 1 / 21}
    )
    text = doubts.floor(rates, 1000)
    assert "at k/d = 0.25 the paper's p is there for 0.120 (too often)" in text
    assert "0.010 (too rarely)" in text
    assert text.count("within two standard errors") == 2


def test_floors_of_the_page_are_counted():
    table = pd.concat([course((1.0,), steps=(0,)), course((1.0,), steps=(1,), p_energy_null=0.2)])
    assert "1/21 in 4 of 8 cases, the calibrated one at its floor of 1/100 in 8." in doubts.p_values({"a": table}, 99)


def test_some_and_all_are_different_rules():
    table = stages(advantage__over__shuffled__labels=LOW)
    text = doubts.testing(table, gradients_concentrate(table))
    assert "up to 16 comparisons" in text
    assert "it would hold in 1 of 1 readings" in text
    assert "it holds in 0 of 1." in text
    assert f"{1 - 0.975**16:.0%}".replace("%", " %") in text
    good = stages()
    assert "it holds in 1 of 1." in doubts.testing(good, gradients_concentrate(good))
    assert "nothing was tested" in doubts.testing(stages()[:4], [])


def test_intervals_that_miss_their_estimate_are_counted():
    table = pd.concat([course((1.0, 1, 1, 1)), course((1.0, 1, 1, 1), gradient="weight", delta_tangent=9.0)])
    text = doubts.intervals({"a": table})
    assert "activation reading 0 of 16 for E_r and 0 of 32 for Δ; weight reading 0 of 16 for E_r and 16 of 32" in text
    assert "is biased" in text
    assert "is biased" not in doubts.intervals({"a": course((1.0, 1, 1, 1))})


def test_with_random_bases_as_the_only_control_the_verdict_hangs_on_the_ratio_alone():
    table = pd.concat(
        [
            stages(advantage__over__shuffled__labels=LOW),
            stages(stage="late", energy_ratio=(1.1, 0.9, 1.3), advantage__over__other__probe=LOW),
        ]
    )
    assert [one.outcome.value for one in gradients_concentrate(table)] == ["fails", "fails"]
    weak = doubts.wrong_control(table)
    assert [one.outcome.value for one in gradients_concentrate(weak)] == ["holds", "inconclusive"]
    asked = weak[(weak["quantity"] == "advantage over untrained") & (weak["stage"] == "early")]
    assert asked["estimate"].to_numpy() == pytest.approx(np.log(5))
    assert len(asked) == len(PROBES)
    # The rest of the table is as it was: C3 does not change.
    before, after = proxy_carries_anisotropy(table), proxy_carries_anisotropy(weak)
    assert before == after
