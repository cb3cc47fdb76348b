"""Pictures and sentences of the alignment chapter say what their numbers say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from anisotropy.report import alignment as pictures
from anisotropy.report import alignment_words as words
from anisotropy.report.figures import plt, style
from anisotropy.report.rules.alignment import MATRIX_NAMES, METHOD_NAMES, METRIC_NAMES, SHUFFLED_RUN
from anisotropy.report.scorecard import Outcome, Verdict

STEPS = (0, 1, 16, 448)
TITLES = {"model": "Mini", "model@1": "Mini, seed 1", "run": "Mini, shuffled"}


def ranks_of(values, matrix="first"):
    """A rank table from ``values[method]``, arrays (ranks, steps)."""
    return pd.concat(
        pd.DataFrame(
            {"step": step, "matrix": matrix, "method": method, "rank": np.arange(len(table)), "correlation": column}
        )
        for method, table in values.items()
        for step, column in zip(STEPS, np.asarray(table).T, strict=True)
    )


@pytest.fixture
def ranks():
    falling = np.linspace(0.8, 0.2, 6)[:, None] * np.linspace(0.25, 1, 4)
    return pd.concat([ranks_of(dict.fromkeys(METHOD_NAMES, falling), matrix) for matrix in MATRIX_NAMES])


def curves_of(pca=0.1, semi_nmf=0.1, ica=0.3, shuffled=0.05):
    rows = []
    for step in STEPS:
        for source in ("gradient", "shuffled"):
            for method, last in (("pca", pca), ("semi_nmf", semi_nmf), ("ica", ica)):
                for metric in METRIC_NAMES:
                    excess = (last if source == "gradient" else shuffled) * step / 448
                    rows.append(
                        {
                            "model": "model",
                            "seed": 0,
                            "step": step,
                            "source": source,
                            "method": method,
                            "metric": metric,
                        }
                        | {"matched": 0.2 + excess, "baseline": 0.2, "baseline_low": 0.19, "baseline_high": 0.21}
                        | {"excess": excess, "excess_low": excess - 0.01, "excess_high": excess + 0.01, "pairs": 10.0}
                    )
    return pd.DataFrame(rows)


def groups_of(curves, model="model", noise=0.002):
    """The table behind such curves: five groups whose mean is the curve's."""
    parts = []
    for group, shift in enumerate(noise * np.array([-2, -1, 0, 1, 2])):
        parts.append(
            curves.assign(model=model, group=group, excess=curves["excess"] + shift * (curves["method"] == "pca"))
        )
    return pd.concat(parts)


def test_planted_correlations_have_the_planted_pixels():
    nothing = np.zeros((3, 4))
    red, green, blue = nothing.copy(), nothing.copy(), nothing.copy()
    red[0, 1], green[1, 2], blue[2, 3] = 0.5, 0.25, 0.8
    red[2, 0] = green[2, 0] = blue[2, 0] = 0.5
    pixels = pictures.rgb_map(ranks_of({"semi_nmf": blue, "pca": red, "ica": green}), limit=0.5)
    assert pixels.shape == (3, 4, 3)
    expected = np.zeros((3, 4, 3))
    expected[0, 1], expected[1, 2], expected[2, 3], expected[2, 0] = (1, 0, 0), (0, 0.5, 0), (0, 0, 1), (1, 1, 1)
    np.testing.assert_allclose(pixels, expected)


def test_rows_may_come_in_any_order_and_a_method_may_lack():
    table = ranks_of({"ica": np.arange(12).reshape(3, 4) / 12})
    mixed = table.sample(frac=1, random_state=1)
    pixels = pictures.rgb_map(mixed, limit=1)
    np.testing.assert_array_equal(pixels, pictures.rgb_map(table, limit=1))
    np.testing.assert_allclose(pixels[..., 1], np.arange(12).reshape(3, 4) / 12)
    assert not pixels[..., [0, 2]].any()
    with pytest.raises(ValueError, match="limit is 0"):
        pictures.rgb_map(table, limit=0)


def test_the_drawn_pictures_are_the_map_and_the_grid(ranks):
    with style():
        figure, alt = pictures.draw_rgb(ranks, "Mini")
        (image,) = figure.axes[1].get_images()
        expected = pictures.rgb_map(ranks[ranks["matrix"] == "second"], pictures.colour_limit(ranks))
        np.testing.assert_allclose(image.get_array(), expected)
        assert "full brightness means 0.8" in alt
        maps, _ = pictures.draw_maps(ranks, "Mini")
        panels = [axis for axis in maps.axes if axis.get_images()]
        assert len(panels) == 9
        grid = pictures.grid(ranks[ranks["matrix"] == "embedding"], "ica")
        np.testing.assert_allclose(panels[8].get_images()[0].get_array(), grid)
        assert len({panel.get_images()[0].get_clim() for panel in panels}) == 1
        plt.close("all")


def test_full_brightness_is_not_decided_by_one_pixel():
    table = ranks_of({"pca": np.full((50, 4), 0.35)})
    table.iloc[0, table.columns.get_loc("correlation")] = 1.0
    assert pictures.colour_limit(table) == pytest.approx(0.4)


def test_a_matrix_that_is_missing_has_no_panel(ranks):
    with style():
        figure, alt = pictures.draw_rgb(ranks[ranks["matrix"] == "embedding"], "Mini")
        assert len(figure.axes) == 1
        assert "first MLP map" not in alt
        plt.close(figure)


def test_alternative_texts_hold_the_ends_of_the_curves(ranks):
    with style():
        _, matched = pictures.draw_alignment(curves_of(), "Mini")
        _, excess = pictures.draw_excess(curves_of(ica=-0.3), "Mini")
        trends = pd.DataFrame(
            [
                {"step": step, "matrix": "first", "method": method, "rho": rho, "ranks": 51}
                for method in METHOD_NAMES
                for step, rho in ((0, 0.1), (448, -0.7))
            ]
        )
        _, trend = pictures.draw_trends(trends, "Mini")
        plt.close("all")
    assert "ICA from 0.20 to 0.50; rotated concepts 0.20" in matched
    assert "ICA from 0.00 to −0.30; with shuffled labels PCA from 0.00 to 0.05" in excess
    assert "first MLP map: PCA from +0.10 to −0.70" in trend
    _, alt = pictures.draw_maps(ranks, "Mini")
    assert "first MLP map: PCA 0.68 and 0.32" in alt
    plt.close("all")


def test_methods_differ_in_marker_and_in_lightness():
    lightness = [np.dot([0.299, 0.587, 0.114], to_rgb(colour)) for colour, _ in pictures.STYLES.values()]
    assert len({marker for _, marker in pictures.STYLES.values()}) == 3
    assert min(abs(np.diff(sorted(lightness)))) > 0.01


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"pca": 0.1, "semi_nmf": 0.2, "ica": 0.3}, "ICA comes first, the reverse of the paper's caption"),
        ({"pca": 0.2, "semi_nmf": 0.3, "ica": 0.1}, "ICA comes last, as in the paper's caption"),
        ({"pca": 0.1, "semi_nmf": 0.3, "ica": 0.2}, "ICA comes neither first nor last beyond doubt"),
        ({"pca": 0.1, "semi_nmf": 0.1, "ica": 0.105}, "the intervals overlap"),
    ],
)
def test_the_order_of_methods_in_words(values, expected):
    sentence = words.order(curves_of(**values), "Mini")
    assert expected in sentence
    assert "ICA +" in sentence


def test_controls_in_words():
    trained = groups_of(curves_of(0.3, 0.3, 0.3, shuffled=0.3))
    equal = words.against_controls(trained, "model", None, "Mini")
    assert "(untrained): PCA +0.300 (more), Semi-NMF +0.300" in equal
    assert "shuffled labels at the same step: PCA 0.000 (not told apart)" in equal
    assert "a run trained" not in equal
    table = pd.concat([groups_of(curves_of(0.1, 0.1, 0.1, 0)), groups_of(curves_of(0.4, 0.4, 0.4), "run")])
    less = words.against_controls(table[table["step"] > 0], "model", "run", "Mini")
    assert "(untrained): not measured." in less
    assert "run trained on shuffled labels: PCA −0.300" in less
    assert "(less)" in less


def test_the_gap_and_the_floor_in_words():
    table = groups_of(curves_of())
    table["pairs"] = table["group"] + 1
    assert "PCA 1–5, Semi-NMF 1–5" in words.gap_sizes(table, "Mini")
    table["pairs"] = 3
    assert "PCA 3, Semi-NMF 3" in words.gap_sizes(table, "Mini")
    usual = words.floor(curves_of(), 51, 128, "Mini")
    assert "rotated concepts reach 0.20 on average over all pairs (2.3/√d = 0.20)" in usual
    assert "2.3" not in words.floor(curves_of(), 16, 32, "Mini")


def token_table(likeness):
    """Concepts that are tokens 0, 1, … with the given likeness per method, the same at both steps and parts."""
    return pd.DataFrame(
        [
            {"step": step, "part": part, "method": method, "rank": i, "token_id": i, "likeness": value, "chance": 0.3}
            for step in (0, 448)
            for part in ("data", "gradient")
            for method, values in likeness.items()
            for i, value in enumerate(values)
        ]
    )


def test_concepts_that_are_tokens_are_counted_and_named():
    tokens = token_table({"pca": [0.2, 0.3], "semi_nmf": [0.5, 0.9], "ica": [0.85, 0.95]})
    sentence = words.token_sentence(tokens, "Mini")
    assert "100% of the data's concepts are a single frequent token's with ICA; before training 100%" in sentence
    assert "0% with PCA, 50% with Semi-NMF" in sentence
    table = words.token_shares(tokens, lambda ids: [f"t{i}" for i in ids])
    row = table[(table["method"] == "ICA") & (table["concepts of"] == "data")].iloc[0]
    assert row["a token's (|ρ| ≥ 0.8)"] == "2 of 2"
    assert row["nearest tokens"] == "t1 t0"
    assert row["median likeness |ρ|"] == pytest.approx(0.9)
    none = words.token_sentence(token_table({method: [0.2, 0.3] for method in METHOD_NAMES}), "Mini")
    assert "with no method are more than a tenth" in none


def test_partners_that_share_a_token_are_counted():
    pairs = pd.DataFrame(
        {
            "correlation": [0.9, 0.7, 0.5, 0.3],
            "data_token": [1, 2, 3, 4],
            "gradient_token": [1, 5, 3, 4],
            "data_likeness": [0.9, 0.85, 0.1, 0.2],
        }
    )
    assert words.shared_tokens(pairs, "ica") == (
        "The 2 ICA concepts that are a token's align at 0.80 on average, the other 2 at 0.40; 1 of the 2 have a "
        "partner that is nearest to the same token."
    )
    assert "None of PCA's" in words.shared_tokens(pairs.assign(data_likeness=0.5), "pca")
    assert "other" not in words.shared_tokens(pairs.assign(data_likeness=0.9), "ica")


def test_fits_that_did_not_converge_are_a_note():
    table = pd.DataFrame(
        [{"model": "model", "part": "data", "method": method, "converged": 7, "fits": 7} for method in METHOD_NAMES]
    )
    assert words.stopped(table, TITLES) == "All 21 decompositions converged."
    table.loc[table["method"] == "ica", "converged"] = 4
    note = words.stopped(table, TITLES)
    assert note.startswith("**Note.**")
    assert "3 of 7 by ICA in Mini" in note


def test_missing_matrices_are_named():
    trends = pd.DataFrame({"model": "model", "seed": [0, 0, 0, 1], "matrix": [*MATRIX_NAMES, "embedding"]})
    assert words.missing_matrices(trends, ["model"], TITLES) == "All three matrices were found in every model."
    assert words.missing_matrices(trends, ["model", "model@1"], TITLES) == (
        "Mini, seed 1: first MLP map and second MLP map not found in this family, so not applicable."
    )


def test_what_a_run_on_shuffled_labels_shows_too():
    def verdict(outcome, *controls):
        return Verdict("C6", "model", "reading", outcome, "why", -0.7, -0.8, -0.6, controls, 1)

    both = [verdict(Outcome.HOLDS, (SHUFFLED_RUN, -0.9)), verdict(Outcome.HOLDS, (SHUFFLED_RUN, 0.1))]
    assert "Mini: 2 of 2 verdicts hold. In 1 of these 2, ρ is at most −0.24" in words.without_meaning(both, TITLES)
    assert "no run on shuffled labels" in words.without_meaning([verdict(Outcome.HOLDS)], TITLES)
    assert words.without_meaning([verdict(Outcome.FAILS)], TITLES) == "Mini: no verdict holds."


def test_tables_show_the_last_checkpoint():
    table = words.curve_table(curves_of(), TITLES)
    assert len(table) == 9
    assert table[table["method"] == "ICA"]["excess [95 % over groups]"].iloc[0] == "+0.30 [+0.29, +0.31]"
    trends = pd.DataFrame(
        [
            {"model": "model", "seed": seed, "step": step, "matrix": "first", "method": "pca", "rho": rho}
            | {"mean": 0.4, "floor": 0.2}
            for seed, step, rho in ((0, 448, -0.7), (0, 0, 0.1), (1, 16, -0.2))
        ]
    )
    found = words.trend_table(trends, TITLES)
    assert found["model"].tolist() == ["Mini", "Mini, seed 1"]
    assert found["trend, untrained (ρ)"].tolist() == ["+0.10", "–"]
    assert found["trend, last step (ρ)"].tolist() == ["−0.70", "−0.20"]


def test_a_picture_whose_colours_are_data_keeps_them_all(monkeypatch):
    from io import BytesIO

    import PIL.Image

    from anisotropy.report import figures

    shown = []
    monkeypatch.setattr(figures, "display", lambda image, **_: shown.append(image.data))
    for colours in (256, None):
        with style():
            figure, axis = plt.subplots()
            axis.imshow(np.random.default_rng(0).uniform(size=(40, 40, 3)), interpolation="nearest")
            figures.show(figure, "noise", colours)
    few, all_of_them = (len(PIL.Image.open(BytesIO(data)).convert("RGB").getcolors(2**24)) for data in shown)
    assert few <= 256
    assert all_of_them > 1500
