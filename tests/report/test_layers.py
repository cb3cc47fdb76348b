"""The first chapter's pictures and sentences, on made-up courses with known answers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.report import layers as pictures
from anisotropy.report import layers_words as words
from anisotropy.report.figures import plt, style
from anisotropy.studies.layers import MEASURES, REPLICATED, summarise
from anisotropy.studies.results import Collection

TITLES = {"a": "Model A", "b": "Model B"}
REFERENCES = {"a": 0.9, "b": 0.8}


def collection(step, cosine, *, share=None, without=None, isoscore=0.5, layers=5, groups=3):
    values = dict.fromkeys(MEASURES, 1.0) | {"cosine": cosine, "cosine_centred": 0.0, "isoscore": isoscore}
    values |= {
        "mean_share": cosine if share is None else share,
        "cosine_without": cosine if without is None else without,
    }
    arrays = {name: np.full(layers, value) for name, value in values.items()}
    spread = np.linspace(-0.01, 0.01, groups)[:, None]
    arrays |= {f"without_{name}": values[name] + spread * np.ones(layers) for name in REPLICATED}
    random = np.random.default_rng(step)
    return Collection("a", step, "hash", arrays | {"angles": random.uniform(0, 3, size=(layers, 40))})


def course(*cosines, **more):
    return [collection(step, cosine, **more) for step, cosine in zip((0, 8, 64), cosines, strict=False)]


def table(**courses):
    return summarise(courses)


class TestSentences:
    @pytest.mark.parametrize(
        ("cosines", "said"),
        [
            ((0.1, 0.9, 0.2), "starts at +0.10, rises to +0.90 at step 8 of 64 and ends at +0.20"),
            ((0.1, 0.2, 0.9), "starts at +0.10 and is largest at the end, +0.90"),
            ((0.9, 0.2, 0.1), "starts at +0.90, its largest value, and ends at +0.10"),
            ((0.9,), "None of these models has a second checkpoint"),
        ],
    )
    def test_course(self, cosines, said):
        assert said in words.course_sentence(table(a=course(*cosines)), TITLES)

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({}, "in 4 of 4 layers with a cone the mean cosine is within 0.1 of the share of the mean"),
            ({"share": 0.1}, "in 0 of 4 layers"),
            ({"without": 0.1}, "takes away more than half of the cosine in 4 of 4"),
            ({"without": 0.5}, "takes away more than half of the cosine in 0 of 4"),
        ],
    )
    def test_make_up(self, more, said):
        assert said in words.make_up_sentence(table(a=course(0.6, **more)), TITLES, 3)

    def test_no_cone_no_explanation(self):
        assert "there is no cone to explain" in words.make_up_sentence(table(a=course(0.01)), TITLES, 3)

    @pytest.mark.parametrize(("scores", "count"), [((0.5, 0.4, 0.3), 0), ((0.3, 0.4, 0.5), 2)])
    def test_disagreement_counts_steps_where_the_cone_narrows_and_the_cloud_fills(self, scores, count):
        found = [
            collection(step, cosine, isoscore=score)
            for step, cosine, score in zip((0, 8, 64), (0.1, 0.2, 0.3), scores, strict=True)
        ]
        assert f"in {count} of 2 steps" in words.disagreement_sentence(table(a=found), TITLES)

    def test_steps_worth_drawing(self):
        tables = table(a=course(0.1, 0.9, 0.2), b=course(0.5, 0.4, 0.3))
        assert words.telling_steps(tables) == {"a": [0, 8, 64], "b": [0, 64]}

    def test_table_names_each_layer_once(self):
        shown = words.layer_table(table(a=course(0.1), b=course(0.2, layers=2)), TITLES, REFERENCES)
        assert list(shown["layer"]) == [
            "0 (input)",
            "2",
            "3",
            "4 (after the final norm)",
            "0 (input)",
            "1 (after the final norm)",
        ]
        assert set(shown["IsoScore, round"]) == {0.9, 0.8}


class TestPictures:
    def drawn(self, drawing):
        figure, alt = drawing
        figure.canvas.draw()
        plt.close(figure)
        return alt

    def test_four_clouds_say_that_cones_and_flatness_are_two_things(self):
        with style():
            alt = self.drawn(pictures.draw_clouds())
        assert "round, away from 0: mean cosine +0.9, IsoScore 1.0" in alt
        assert "flat, around 0: mean cosine 0.0, IsoScore 0.0" in alt

    @pytest.mark.parametrize("cosines", [(0.1, 0.9, 0.2), (0.4,)])
    def test_all_pictures_draw_for_many_checkpoints_and_for_one(self, cosines):
        courses = {"a": course(*cosines), "b": course(0.3, 0.2, 0.1)}
        found = table(**courses)
        with style():
            fans = self.drawn(pictures.draw_fans(courses, TITLES, words.telling_steps(found)))
            depth = self.drawn(pictures.draw_depth(found, TITLES, REFERENCES))
            over = self.drawn(pictures.draw_course(found, TITLES))
            made = self.drawn(pictures.draw_make_up(found, TITLES, 3))
        when = "step 0" if len(cosines) > 1 else "one checkpoint"
        assert f"Model A, mean cosine +{cosines[0]:.2f} at {when}" in fans
        assert f"Model A: mean cosine from +{cosines[-1]:.2f}" in depth
        assert f"largest, +{max(cosines):.2f}" in over
        assert f"Model A, average over layers after the input: +{cosines[-1]:.2f} as measured" in made

    def test_fans_keep_every_angle(self):
        figure, axis = plt.subplots()
        angles = np.array([0.1, 0.5, 2.0])
        pictures.draw_fan(axis, angles)
        ends = np.array([line.get_xydata()[1] for line in axis.lines[:-1]])
        assert np.arctan2(np.abs(ends[:, 0]), ends[:, 1]) == pytest.approx(angles)
        plt.close(figure)


def test_an_interval_is_centred_on_its_value():
    found = table(a=course(0.5))
    rows = found[(found["measure"] == "cosine")]
    assert ((rows["low"] + rows["high"]) / 2).tolist() == pytest.approx([0.5] * 5)
    assert isinstance(found, pd.DataFrame)
