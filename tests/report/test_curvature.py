"""Pictures and sentences of the curvature chapter: what they state is computed, so made-up tables change it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.geometry.curvature import uniform
from anisotropy.report import curvature as pictures
from anisotropy.report.figures import plt, style
from anisotropy.report.rules.curvature import C7_RANGES, concentration_attenuates
from anisotropy.studies import curvature

TITLES = {"a": "Model A", "b": "Model B"}


def drawn(pair):
    figure, alt = pair
    panels = len(figure.axes)
    figure.canvas.draw()
    plt.close(figure)
    return panels, alt


@pytest.fixture(autouse=True)
def in_style():
    with style():
        yield


def series(**powers):
    t = np.geomspace(0.03, 0.5, 8)
    return pd.concat([pd.DataFrame({"place": name, "chord": t, "error": t**power}) for name, power in powers.items()])


def volumes(**percent):
    radii = np.array([0.5, 1.0])
    return pd.concat(
        [
            pd.DataFrame(
                {"manifold": name, "radius": radii, "predicted": value * radii**2, "sampled": value * radii**2}
                | {"standard_error": 0.2}
            )
            for name, value in percent.items()
        ]
    )


def ratio(value, half=0.1, null=0.05, model="a", stage="trained"):
    return {
        "model": model,
        "stage": stage,
        "tokens": 50,
        "rare": value,
        "frequent": 1.0,
        "ratio": value,
        "low": value - half,
        "high": value + half,
        "null_low": 1 - null,
        "null_high": 1 + null,
        "bias_ratio": value**2,
    }


def local(data, twin, model="a"):
    return pd.concat(
        [
            pd.DataFrame({"neighbours": [32, 64], "scale": [1.0, 1.1], "share": share, "curvature": [0.7, 0.6]})
            .assign(points=points, model=model)
            for points, share in (("data", data), ("flat twin", twin))
        ]
    )  # fmt: skip


def test_surface_names_both_arcs():
    rays = curvature.rays_table((1.8, 0.3), 1.0, rays=8)
    _, alt = drawn(pictures.draw_surface(rays, 1.0))
    for kappa in ("1.8", "0.3"):
        assert f"κ = {kappa}: r = 1.0" in alt


def test_profiles_have_a_panel_a_density_and_say_each_bias():
    densities = {"uniform density": uniform(1.0), "small": curvature.shape("half-normal", 0.1)}
    panels, alt = drawn(pictures.draw_profiles(*curvature.profile_tables([0.5, 1.8], densities, 1.0), 1.0))
    assert panels == 2
    assert "(a) uniform density: κ = 0.5: +0.53 %, κ = 1.8: +9.55 %" in alt
    assert "(b) small" in alt


def test_series_states_the_orders():
    table = series(circle=4, ellipse=3, odd=2)
    _, alt = drawn(pictures.draw_series(table))
    assert "circle 5.0, ellipse 4.0, odd 3.0" in alt
    sentence = pictures.order_sentence(table)
    assert "5 at circle (5.00)" in sentence
    assert "4 at ellipse (4.00)" in sentence
    assert "neither 4 nor 5 at odd (3.00)" in sentence
    assert "off by at most 25 % of the chord, at odd" in sentence


def test_attenuation_states_the_slopes():
    table = curvature.bias_table(curvature.SHAPES, [0.5, 1.0], C7_RANGES, scales=3, draws=500)
    table["estimate"] = table["scale"] ** 1.5
    panels, alt = drawn(pictures.draw_attenuation(table))
    assert panels == 1
    assert alt.count("slope 1.500") == 3
    verdicts = pictures.attenuation_verdicts(concentration_attenuates(table))
    assert list(verdicts["verdict"]) == ["fails"] * 6
    assert verdicts["slope [95 %, Monte Carlo]"].str.startswith("+1.500").all()
    exact = table.assign(estimate=table["exact"], standard_error=1e-4 * table["exact"])
    assert {verdict.outcome for verdict in concentration_attenuates(exact)} == {"holds"}


def test_places_off_the_law_are_named():
    rows = [("circle", 2.0, 2.0), ("torus", 1.8, 2.01)]
    table = pd.DataFrame([{"place": name, "density": "d", "one": one, "both": both} for name, one, both in rows])
    sentence = pictures.place_sentence(table)
    assert "Along one direction, the slope is 2 within 0.05 at 1 of 2 places (not at torus 1.80)" in sentence
    assert sentence.endswith("opposite, the slope is 2 within 0.05 at 2 of 2 places.")


def test_cut_states_the_local_slopes():
    rows = [{"density": "d", "scale": s, "exact": s**2, "slope": slope} for s, slope in ((0.01, 2.0), (0.3, 1.26))]
    panels, alt = drawn(pictures.draw_cut(pd.DataFrame(rows)))
    assert panels == 2
    assert "d 2.00 at σ = 0.01 and 1.26 at σ = 0.3" in alt


def test_population_sorts_by_sign():
    table = volumes(circle=4.0, flat=0.1, ball=-7.5)
    _, alt = drawn(pictures.draw_population(table))
    assert "circle +4.0 %, flat +0.1 %, ball −7.5 %" in alt
    sentence = pictures.population_sentence(table)
    assert "more on the circle" in sentence
    assert "fewer on the ball" in sentence
    assert "as many, within three standard errors, on the flat" in sentence
    assert "more" not in pictures.population_sentence(volumes(ball=-7.5))


def test_split_states_the_slopes():
    scale = np.array([0.01, 0.1])
    table = pd.DataFrame({"scale": scale, "tangent": scale**2, "normal": scale**4, "share": scale**2})
    _, alt = drawn(pictures.draw_split(table.assign(predicted=1.1 * table["share"])))
    assert "tangent variance has slope 2.00; normal variance has slope 4.00" in alt
    assert "within 9.1 %" in alt


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ratio(1.5), ["frequent tokens are the concentrated ones", "factor 2.25"]),
        (ratio(0.5), ["*rare* tokens are the concentrated ones", "factor 4.00"]),
        (ratio(1.02), ["no more than shuffled frequencies give"]),
    ],
)
def test_ratio_sentences_follow_the_numbers(row, words):
    sentence = pictures.ratio_sentence(row, "Model A")
    for word in words:
        assert word in sentence


def test_ratios_as_table_and_picture():
    rows = [ratio(1.5), ratio(0.5, model="b", stage="untrained")]
    table = pictures.ratio_table(rows, TITLES)
    assert list(table["ratio [95 % over tokens]"]) == ["1.50 [1.40, 1.60]", "0.50 [0.40, 0.60]"]
    _, alt = drawn(pictures.draw_ratios(rows, TITLES))
    assert "Model A, trained 1.50; Model B, untrained 0.50" in alt


@pytest.mark.parametrize(
    ("data", "twin", "words"),
    [
        ([0.9, 0.5], [0.5, 0.9], "here it does not, so no curvature"),
        ([0.1, 0.5], [0.5, 0.9], "but so does the flat twin's"),
        ([0.1, 0.5], [0.9, 0.5], "and the flat twin's does not"),
    ],
)
def test_local_sentences_follow_the_numbers(data, twin, words):
    assert words in pictures.local_sentence(local(data, twin), "a", "Model A")


def test_local_picture_says_which_way_the_share_goes():
    table = pd.concat([local([0.1, 0.5], [0.9, 0.5]), local([0.1, 0.5], [0.9, 0.5], "b")])
    panels, alt = drawn(pictures.draw_local(table, TITLES))
    assert panels == 2
    assert "Model A, data from 0.50 down to" in alt
    assert "Model B, flat twin from 0.50 up to" in alt
