"""The picture of the first page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.report.figures import plt, style
from anisotropy.report.story import draw_story, hardest_control, most_moved
from anisotropy.studies.results import Collection

TITLES = {"a": "A", "b": "B"}


def collection(step, cosine):
    arrays = {"cosine": np.array([0.0, cosine, 0.0]), "angles": np.tile(np.linspace(0.1, 2, 20), (3, 1))}
    return Collection("a", step, f"w{step}", arrays, {})


def course(*values):
    rows = [
        {
            "probe": probe,
            "step": step,
            "energy_ratio": value,
            "energy_ratio_untrained": 2.0,
            "energy_ratio_other_probe": 3,
        }
        for probe in ("T1_in", "Tl")
        for step, value in zip((8, 0, 1), values, strict=True)
    ]
    return pd.DataFrame(rows)


COSINES = pd.DataFrame({"model": ["a", "a", "a", "b"], "step": [0, 1, 8, 1], "value": [0.1, 0.9, 0.2, 0.95]})


def test_the_hardest_control_is_the_largest_at_the_first_probe():
    found = hardest_control(course(5.0, 1.0, 4.0))
    assert found["step"].tolist() == [0, 1, 8]
    assert found["energy_ratio"].tolist() == [1.0, 4.0, 5.0]
    assert found["control"].tolist() == [3.0] * 3
    assert set(found["probe"]) == {"T1_in"}


def test_the_model_that_is_drawn_is_the_one_that_moves():
    assert most_moved(COSINES) == "a"


def test_rays_and_courses_say_their_numbers():
    with style():
        figure, alt = draw_story(
            [collection(0, 0.1), collection(1, 0.9), collection(8, 0.2)],
            [0, 1, 8],
            COSINES,
            {"a": hardest_control(course(5.0, 1.0, 4.0))},
            TITLES,
        )
    assert len(figure.axes) == 5
    assert "mean cosine +0.90 at step 1" in alt
    assert "energy ratio from 1 at step 0, highest 5 at step 8, to 5 at step 8" in alt
    assert "B:" not in alt  # one checkpoint is no course
    plt.close(figure)


def test_one_checkpoint_is_drawn_without_a_course():
    with style():
        figure, alt = draw_story([collection(1, 0.4)], [1], COSINES[COSINES["model"] == "b"], {}, TITLES)
    assert len(figure.axes) == 1
    assert alt.endswith("mean cosine +0.40 at one checkpoint.")
    plt.close(figure)


def test_a_figure_of_a_step_that_was_not_measured_is_an_error():
    with style(), pytest.raises(KeyError):
        draw_story([collection(0, 0.1)], [3], COSINES, {}, TITLES)
    plt.close("all")
