"""Computed sentences of the concept chapter, on opposite outcomes, and the bounds behind the remarks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisotropy.report import concept_words as words
from anisotropy.report import published
from anisotropy.report.scorecard import Outcome, Verdict

TITLES = {"m": "Model M"}


def rank_of(shares):
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def test_convergence():
    fits = pd.DataFrame({"model": ["m", "m"], "fits": [6, 6], "not_converged": [0, 0], "iterations": [9, 30]})
    assert "all 12 factorisations settled, after at most 30" in words.convergence_note(fits, TITLES)
    note = words.convergence_note(fits.assign(not_converged=[0, 2]), TITLES)
    assert note.startswith("**Note.**")
    assert "2 of 12" in note


def random_table(value):
    return pd.DataFrame({"metric": ["effective_rank"], "value": [value], "spread": [0.1]})


def test_against_random_directions():
    table = pd.DataFrame(
        [
            {"model": "m", "window": window, "layer": layer, "metric": "effective_rank", "reading": "per_checkpoint"}
            | {"value": value}
            for window in ("a", "b")
            for layer, value in (("first", 10.0), ("last", 5.0))
        ]
    )
    assert "at: last" in words.against_random(table, {"m": random_table(10.0)}, TITLES)
    assert "at every layer" in words.against_random(table, {"m": random_table(20.0)}, TITLES)
    assert "at no layer" in words.against_random(table, {"m": random_table(4.0)}, TITLES)


def agreement(same, other):
    return pd.DataFrame(
        [
            {"layer": layer, "step": 5, "comparison": name, "value": value}
            for layer in ("first", "last")
            for name, value in (("seeds", 0.4), ("random", 0.2), ("next, same seed", same), ("next, other seed", other))
        ]
    )


def test_memory_of_the_start():
    assert "memory of the start" in words.agreement_words({"m": agreement(0.9, 0.4)}, TITLES)
    assert "no better than others" in words.agreement_words({"m": agreement(0.4, 0.4)}, TITLES)
    alone = agreement(0.4, 0.4)
    alone = alone[~alone["comparison"].str.startswith("next")]
    assert "checkpoint before" not in words.agreement_words({"m": alone}, TITLES)


@pytest.mark.parametrize(
    ("noise", "expected"), [(0.2, "more than its covariance"), (0.41, "no more than"), (0.6, "less than on noise")]
)
def test_surrogate(noise, expected):
    assert expected in words.surrogate_words({"m": 0.4}, {"m": noise}, {"m": 0.3}, TITLES)
    assert "untrained" not in words.surrogate_words({"m": 0.4}, {"m": noise}, {}, TITLES)


def test_planted_and_pooled():
    planted = pd.DataFrame({"relative_loss": [0.02], "true_loss": [0.03], "recovered": [0.6], "agreement": [0.5]})
    assert "below the 3.00 %" in words.planted_words(planted)
    assert "above the 1.00 %" in words.planted_words(planted.assign(true_loss=0.01))
    pooled = pd.DataFrame({"points": ["pooled copies", "independent", "one checkpoint"], "id_twonn": [5.0, 25.0, 21.0]})
    assert "Pooling, not the number" in words.pooling_words(pooled, 40)
    assert "no such difference" in words.pooling_words(pooled.assign(id_twonn=[24.0, 25.0, 21.0]), 40)


def test_course():
    def course(*ratios):
        return {"m": pd.DataFrame({"step": range(len(ratios)), "reading": "activations", "ratio": ratios})}

    assert "widens again" in words.course_words(course(0.9, 0.1, 0.6), TITLES)
    assert "stays narrow" in words.course_words(course(0.9, 0.5, 0.1), TITLES)
    assert "does not fall" in words.course_words(course(0.5, 0.6, 0.9), TITLES)


def test_dominated():
    table = pd.DataFrame({"reading": ["concepts", "activations"], "dominated_pca_70": [18.0, 1.0]})
    assert "speaks for a measure that keeps lengths" in words.dominated_words(table)
    assert "No reading" in words.dominated_words(table.assign(dominated_pca_70=9.0))
    assert "Every reading" in words.dominated_words(table.assign(dominated_pca_70=1.0))


def test_graph_note_counts_estimates():
    table = pd.DataFrame({"metric": "id_graph", "reading": "per_checkpoint", "estimates": [1, 2], "possible": [3, 3]})
    assert "in 3 of 6 cases" in words.graph_note(table)


def test_readings_of_the_verdict():
    def verdict(reading, outcome):
        return Verdict("C8", "m", reading, outcome, "because")

    assert "every reading says: fails" in words.collapse_words(
        [verdict("a", Outcome.FAILS), verdict("b", Outcome.FAILS)], TITLES
    )
    assert "the reading decides: a fails; b holds" in words.collapse_words(
        [verdict("a", Outcome.FAILS), verdict("b", Outcome.HOLDS)], TITLES
    )
    assert "no decoder" in words.collapse_words([verdict("a", Outcome.NOT_APPLICABLE)], TITLES)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), power=st.floats(0.1, 8), needed=st.integers(2, 12))
def test_no_spectrum_breaks_the_bounds(seed, power, needed):
    shares = np.sort(np.random.default_rng(seed).random(40) ** power + 1e-9)[::-1]
    shares /= shares.sum()
    if shares[0] >= 0.7:
        assert rank_of(shares) <= words.most_rank_if_one_component_holds(0.7, 40) + 1e-9
    if shares[: needed - 1].sum() < 0.7:
        least = words.least_rank_if_components_needed(needed, 0.7, 40)
        assert rank_of(shares) >= least - 1e-9
        # Not squaring the singular values flattens the spectrum and raises the rank.
        plain = np.sqrt(shares)
        assert rank_of(plain / plain.sum()) >= rank_of(shares) - 1e-9


def test_bounds_are_reached():
    top = np.array([0.7, *[0.3 / 39] * 39])
    assert rank_of(top) == pytest.approx(words.most_rank_if_one_component_holds(0.7, 40))
    # One large share and equal others, the tail as long as suits entropy: a search over the tail's level.
    levels = np.geomspace(0.3 / 752, 0.7 / 16, 20_000)
    heads = 0.7 - 15 * levels
    entropy = -heads * np.log(heads) - (1 - heads) * np.log(levels)
    assert words.least_rank_if_components_needed(17, 0.7, 768) == pytest.approx(np.exp(entropy.min()), rel=0.01)


def test_remarks_find_the_two_cells_and_no_consistent_one():
    sizes = {"EuroBERT-210M": 768, "Pythia-410M": 1024, "SmolLM2-360M": 960}
    found = words.printed_remarks(published.table2(), sizes)
    pairs = set(zip(found["pca_70"], found["effective_rank"], strict=True))
    assert {(1, 18.9), (17, 4.1)} <= pairs
    assert "squared" in found[found["effective_rank"] == 18.9]["remark"].iloc[0]
    assert "not of one matrix" in found[found["effective_rank"] == 4.1]["remark"].iloc[0]
    lines = words.remark_lines(found)
    assert any("17 components, rank 4.1" in line for line in lines)
    assert any("(1 component, rank 18.9)" in line for line in lines)
    assert "No printed cell" in words.remark_lines(found.iloc[:0])[0]
    consistent = published.table2().assign(value=lambda t: np.where(t["metric"] == "pca_70", 10, 100.0))
    assert words.printed_remarks(consistent, sizes).empty


def test_rows_behind_the_largest_rank():
    assert "at least 263 directions" in words.rows_needed(published.table2())


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [(0.1, 0.6, "has the paper's direction"), (0.6, 0.2, "the reverse"), (0.5, 0.6, "no clear contrast")],
)
def test_contrast(own, other, expected):
    ratios = pd.DataFrame({"model": ["d", "e"], "stage": "late", "reading": "activations", "ratio": [own, other]})
    assert expected in words.contrast_words(ratios, ["d"])
    assert "cannot be looked at" in words.contrast_words(ratios, ["d", "e"])


def test_repeated_activations():
    text = words.repeated_words({"m": {"first": 1145, "last": 5}}, TITLES)
    assert "1,145 at the first layer, 5 at the last layer equal another" in text


def test_printed_collapse_on_both_outcomes():
    rows = pd.DataFrame(
        {"model": ["d", "e"], "kind": ["decoder", "encoder"], "ratio": [0.02, 0.6], "at_most_a_tenth": [True, False]}
    )
    assert "in every decoder and in no encoder" in words.printed_collapse_words(rows)
    assert "do not divide" in words.printed_collapse_words(rows.assign(at_most_a_tenth=[False, False]))
