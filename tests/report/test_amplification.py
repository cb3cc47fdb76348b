"""Pictures and sentences of the amplification chapter: they state what the numbers are, whatever those are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.geometry.patches import Patch, sample
from anisotropy.report import amplification as pictures
from anisotropy.report.figures import plt, style


@pytest.fixture(autouse=True)
def in_style():
    with style():
        yield
    plt.close("all")


def legible(figure):
    """Stacked, as wide as a phone shows letters of 9 pixels, and every panel with its axes named."""
    assert figure.get_size_inches()[0] == pytest.approx(5.2)
    assert all(axis.get_ylabel() for axis in figure.axes)
    assert figure.axes[-1].get_xlabel() or len(figure.axes[-1].get_xticklabels())


def test_patch_says_how_long_its_parts_are():
    patch = Patch.curve(2.0, base=[1.0, 0.5])
    figure, alt = pictures.draw_patch(patch, sample("gaussian", 20, 1, 0.5, 0), 0.8)
    legible(figure)
    assert "curvature 2 " in alt
    assert "0.80 along the tangent, then 0.64 along the normal" in alt


def test_bounds_say_how_much_of_them_is_used():
    rows = [
        {"scale": scale, "part": part, "size": size * scale, "bound": None if part == "base point" else scale}
        for scale in (0.1, 0.2)
        for part, size in (("base point", 1.0), ("tangent", 0.25), ("normal", 0.999))
    ]
    figure, alt = pictures.draw_bounds(pd.DataFrame(rows))
    legible(figure)
    assert "the tangent part uses 25.0 % of its bound at σ = 0.1 and 25.0 % at σ = 0.2" in alt
    assert "the normal part uses 99.90 %" in alt


def parts(tangent, normal, error=0.01):
    return pd.DataFrame(
        [
            {"example": "Target", "reading": reading, "part": part, "share": share, "error": error}
            for reading in ("mean", "covariance")
            for part, share in (("tangent", tangent), ("normal", normal))
        ]
    )


@pytest.mark.parametrize(
    ("tangent", "normal", "finding"),
    [
        (0.02, 0.5, "only the normal part"),
        (0.5, 0.5, "both parts"),
        (-0.5, 0.02, "only the tangent part"),
        (0.02, -0.02, "neither part"),
    ],
)
def test_counterexamples_say_which_part_is_there(tangent, normal, finding):
    sentences = pictures.counterexample_sentences(parts(tangent, normal))
    assert len(sentences) == 2
    assert sentences[0].startswith(f"Target, mean: {finding}")
    figure, alt = pictures.draw_counterexamples(parts(tangent, normal))
    legible(figure)
    assert f"with the mean tangent {pictures.signed(tangent)} and normal {pictures.signed(normal)}" in alt


def test_rounding_of_an_exact_zero_is_not_a_finding():
    assert "neither part" in pictures.counterexample_sentences(parts(1e-17, 1e-17, error=0.0))[0]


def test_ratios_have_a_panel_per_repair_and_name_every_example():
    rows = [
        {
            "repair": repair,
            "example": f"example {repair}",
            "scale": scale,
            "ratio": scale**repair,
            "exact": scale**repair,
        }
        for repair in (1, 2)
        for scale in (0.1, 0.2)
        for _ in range(2)
    ]
    figure, alt = pictures.draw_ratios(pd.DataFrame(rows), {1: "One", 2: "Two"})
    legible(figure)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["One", "Two"]
    assert "example 2: from 0.01 at the smallest to 0.04 at the largest σ" in alt


def exponents(measured):
    return pd.DataFrame(
        [
            {"repair": "1", "example": "a", "predicted": 1.0, "exact": 1.0, "measured": 1.0, "error": 0.01},
            {"repair": "1", "example": "b", "predicted": 0.0, "exact": -0.0, "measured": measured, "error": 0.01},
        ]
    )


def test_exponents_are_compared_with_the_exact_ones():
    assert pictures.exponent_sentence(exponents(-0.02)).startswith("All 2 simulated slopes agree")
    assert pictures.exponent_sentence(exponents(0.5)).endswith("standard errors; not so: b (1).")
    table = pictures.exponent_table(exponents(-0.02))
    assert list(table["simulated"]) == ["1.00 ± 0.01", "−0.02 ± 0.01"]
    assert list(table["exact, over these σ"]) == ["1.00", "0.00"]
    assert list(table["power of σ, predicted"]) == ["1", "0"]


TIMES = np.linspace(0, 10, 21)
MILESTONES = {"tangent": 2.0, "normal": 8.0, "crossover": 4.0}


def test_course_names_its_milestones():
    strengths = pd.concat(
        pd.DataFrame({"time": TIMES, "part": part, "solution": TIMES / 10, "simulated": TIMES / 10})
        for part in pictures.PARTS
    )
    gradients = strengths[["time", "part"]].assign(size=np.exp(-strengths["time"]))
    figure, alt = pictures.draw_course(strengths, gradients, MILESTONES)
    legible(figure)
    assert "half learned at τ = 2 and 8" in alt
    assert "equal at τ = 4" in alt
    sentence = pictures.course_sentence(MILESTONES, 0.0123)
    assert "4 times as late" in sentence
    assert "within 0.012 of" in sentence


def course(two_lead, last_share):
    share = np.concatenate([np.linspace(0.5, 0.9, 20), [last_share]])
    one = {"time": TIMES, "layers": 1, "tangent": 0.4, "normal": 0.2, "tangent_solution": 0.4, "normal_solution": 0.2}
    two = one | {"layers": 2, "tangent_solution": 0.1 * two_lead, "normal_solution": 0.1}
    return pd.concat([pd.DataFrame(one), pd.DataFrame(two | {"share": share, "share_solution": share})])


@pytest.mark.parametrize(
    ("two_lead", "last_share", "words"),
    [
        (8, 0.6, ("a larger lead with the loop", "fallen again by the end, at 60.0 %")),
        (1, 0.95, ("no larger lead", "not fallen")),
    ],
)
def test_loop_says_whether_the_lead_grows_and_the_share_lasts(two_lead, last_share, words):
    table = course(two_lead, last_share)
    figure, alt = pictures.draw_loop(table, 3.0)
    legible(figure)
    assert f"at most {two_lead:.3g} with two layers and 2 with one" in alt
    for word in words:
        assert word in pictures.loop_sentence(table)
