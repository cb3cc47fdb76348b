"""Pictures of the tangent alignment chapter: made-up tables change what they draw and what their texts say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_up_tangents import PROBES, TITLES, course

from anisotropy.report import tangents as pictures
from anisotropy.report.figures import plt, style


@pytest.fixture(autouse=True)
def in_style():
    with style():
        yield


def drawn(pair):
    figure, alt = pair
    figure.canvas.draw()
    panels = list(figure.axes)
    plt.close(figure)
    return panels, alt


def losses(*models):
    return pd.concat([pd.DataFrame({"model": m, "step": [0, 1, 10, 100], "loss": [8.0, 8, 6, 4]}) for m in models])


def both(early=(2.0, 2, 30, 10), own=(1.0, 1, 20, 15)):
    return pd.concat([course(early), course(own, basis="own")], ignore_index=True)


def test_the_network_names_every_probe():
    _, alt = drawn(pictures.draw_probes())
    assert all(probe in alt for probe in PROBES)


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.123"), (12.34, "12.3"), (1976.4, "1,976"), (-3.3, "−3.3")])
def test_short_numbers_have_no_exponent(value, text):
    assert pictures.short(value) == text


def test_the_course_says_start_peak_and_end_of_each_basis():
    panels, alt = drawn(pictures.draw_course({"a": both(), "b": both()}, losses("a", "b"), TITLES))
    assert len(panels) == 4
    assert "Model A, early basis: 2 at step 0, highest 30 at step 10, 10 at step 100" in alt
    assert "Model B, own basis: 1 at step 0, highest 20 at step 10, 15 at step 100" in alt


def test_the_course_dashes_shuffled_labels_and_shades_the_null_of_the_primary_basis():
    table = both()
    panels, _ = drawn(pictures.draw_course({"a": table}, losses("a"), TITLES))
    dashed = [line for line in panels[1].get_lines() if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [[1.0, 1.0, 15.0, 5.0], [0.5, 0.5, 10.0, 7.5]]
    (band,) = panels[1].collections
    assert band.get_paths()[0].get_extents().intervaly == pytest.approx([0.8, 1.25])


def test_a_model_without_an_early_basis_shows_its_own():
    table = course((1.0, 1, 5, 3), basis="own")
    _, alt = drawn(pictures.draw_course({"a": table}, losses("a"), TITLES))
    assert "own basis" in alt
    assert "early basis" not in alt
    assert pictures.chosen_basis(table) == "own"
    assert pictures.chosen_basis(both()) == "early"


def test_all_probes_have_a_panel_each_and_a_model_may_lack_one():
    tables = {"a": both(), "b": course((1.0, 1, 2, 9), probes=PROBES[:2])}
    panels, alt = drawn(pictures.draw_all_probes(tables, TITLES, "energy_ratio", "early"))
    assert [panel.get_title(loc="left") for panel in panels] == list(PROBES)
    assert "Model B at T1_out 1 at step 0, highest 9 at step 100, 9 at step 100" in alt
    assert "Model B at Tm" not in alt


def test_the_excess_shows_its_interval_and_the_null_about_zero():
    table = course((1.0, 1, 2, 3))
    panels, alt = drawn(pictures.draw_all_probes({"a": table}, TITLES, "excess", "early"))
    heights = sorted(tuple(band.get_paths()[0].get_extents().intervaly) for band in panels[0].collections)
    assert heights == [pytest.approx((-1, 1)), pytest.approx((4, 6))]
    assert alt.startswith("ΔT − null (%)")
    assert not [line for line in panels[0].get_lines() if line.get_linestyle() == "--"]


def test_readings_take_the_last_checkpoint_of_models_that_have_both():
    table = pd.concat(
        [course((1.0, 1, 5, 3), basis="own"), course((2.0, 2, 9, 8), basis="own", gradient="weight")],
        ignore_index=True,
    )
    panels, alt = drawn(pictures.draw_readings({"a": table, "b": both()}, TITLES, "own"))
    assert len(panels) == 1
    assert "Model A at Tm activation 3, weight 8, dealt out at random 4" in alt
    assert "Model B" not in alt


def ranks(ratio, excess):
    numbers = {"energy_ratio": ratio, "excess": excess, "excess_low": np.array(excess) - 1}
    return pd.DataFrame({"rank": [1, 4, 16], "probe": "T1_in", **numbers})


def test_ranks_say_the_ends_of_the_sweep():
    panels, alt = drawn(pictures.draw_ranks({"a": ranks([9.0, 5, 2], [30.0, 20, -4])}, TITLES, 4))
    assert len(panels) == 2
    assert "E_r from 9 at rank 1 to 2 at rank 16, ΔT − null from +30 to −4 %" in alt


def spectrum(d=8, step=100, slope=1.0):
    shares = np.arange(1, d + 1.0) ** -slope
    columns = {"gradient_energy": shares / shares.sum(), "activation_variance": 1 / d}
    return pd.DataFrame({"probe": "T1_in", "direction": np.arange(1, d + 1), "step": step, **columns})


def test_spectra_are_cumulated_and_the_first_checkpoint_is_dotted():
    table = pd.concat([spectrum(step=0), spectrum(slope=2)])
    panels, alt = drawn(pictures.draw_spectra({"a": table}, TITLES, "T1_in", 2))
    share = 1.25 / (1 / np.arange(1, 9) ** 2).sum()
    assert f"step 100, first 2 directions: {share:.2f} of the gradient energy" in alt
    assert "0.25 of the activation variance" in alt
    assert "step 0," not in alt
    ends = [line.get_ydata()[-1] for line in panels[0].get_lines() if len(line.get_ydata()) == 8]
    assert ends == pytest.approx([1.0] * 5)
