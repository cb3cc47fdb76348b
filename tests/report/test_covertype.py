"""Pictures, tables and sentences of the Forest Cover Type chapter say what their numbers say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anisotropy.report import covertype as report
from anisotropy.report.figures import plt, style
from anisotropy.studies import covertype
from anisotropy.studies.covertype_data import SCALINGS, Dataset, load


@pytest.fixture(scope="module")
def data():
    """Five classes with the longest names of the real data, and one strong direction."""
    random = np.random.default_rng(5)
    sizes = [80, 40, 30, 20, 15]
    rows = random.normal(size=(185, 6)) + 2 * random.exponential(size=(185, 1))
    classes = {2: "Lodgepole Pine", 1: "Spruce/Fir", 3: "Ponderosa Pine", 6: "Douglas-fir", 4: "Cottonwood/Willow"}
    labels, features = np.repeat(list(classes), sizes), tuple(f"x{i}" for i in range(6))
    return Dataset("Forest Cover Type", "made here", False, rows, labels, features, classes, 400, constant=1)


@pytest.fixture(scope="module")
def components(data):
    return covertype.components(data, k=3, refits=3)


@pytest.fixture(scope="module")
def study(data):
    return covertype.per_class(data, draws=19)


def text_of(figure):
    texts = [text.get_text() for legend in figure.legends for text in [legend.get_title(), *legend.get_texts()]]
    return " ".join([*texts, *(axis.get_title(loc="left") for axis in figure.axes)])


def test_the_origin_tells_data_from_stand_in(data):
    sentence = report.origin(data)
    assert "The Covertype data." in sentence
    assert (
        "185 rows, a uniform random subsample of 400, 6 features (1 constant column left out) and 5 classes" in sentence
    )
    assert "Lodgepole Pine (43.2% of the rows) to Cottonwood/Willow (8.1%)" in sentence
    digits = load()
    assert "This page shows a stand-in, not the Covertype data" in report.origin(digits)
    assert "subsample" not in report.origin(digits)
    assert "dealt out to digits at random" in report.known_truth(digits)
    assert "not known" in report.known_truth(data)


def test_class_sizes_add_up(data):
    table = report.class_sizes(data)
    assert table["class"].tolist()[0] == "Lodgepole Pine"
    assert table["rows"].sum() == 185
    assert table["frequency (%)"].sum() == pytest.approx(100)


def test_units_are_computed(data):
    rows = np.concatenate([np.diag([30.0, 1.0]), -np.diag([30.0, 1.0])])
    small = Dataset("t", "", False, rows, np.array([0, 0, 1, 1]), ("metres", "flag"), {0: "a", 1: "b"}, 4)
    sentence = report.units(small)
    assert "`metres`) holds 99.9% of the total variance, and 1 of 2 features hold 90 %" in sentence
    assert "to the smallest is 900." in sentence


def test_pictures_name_their_data_and_compute_their_alternative_text(data, components, study):
    fits = components.fits[components.fits["scaling"] == "standardised"]
    with style():
        drawn = [
            report.draw_plane(covertype.plane(data, components), fits, data),
            report.draw_strengths(components.strengths, data),
            report.draw_classes(study, data),
        ]
    for figure, alt in drawn:
        assert alt.startswith("Forest Cover Type")
        assert "Forest Cover Type" in text_of(figure)
        assert len(figure.axes) == 3
        assert figure.get_size_inches()[0] == pytest.approx(5.2)
        # Nothing is cut off at the sides, not even a legend with long names.
        figure.canvas.draw()
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert box.x0 >= 0
            assert box.x1 <= figure.bbox.width
        plt.close(figure)
    alts = [alt for _, alt in drawn]
    share = covertype.plane(data, components).share
    assert f"which holds {share:.0%} of the variance" in alts[0]
    assert "0.00 for the principal ones" in alts[0]
    first = components.strengths.iloc[0]
    assert f"principal component holds raw {first['strength']:.2f} ({first['null_median']:.2f} for permuted" in alts[1]
    assert f"in the rarest to {report.number(study.values[0, 1], 3)} in the most frequent class" in alts[2]
    assert "all rows of each class" in alts[2]


def test_the_picture_of_equal_rows_says_how_many(data):
    with style():
        figure, alt = report.draw_classes(covertype.per_class(data, equal=True, draws=3, resamples=1), data)
    plt.close(figure)
    assert "15 rows each" in alt


def test_tables_put_every_number_beside_its_null(data, components, study):
    table = report.whole_table(covertype.whole(data, draws=5))
    assert table["measure"].tolist() == ["IsoScore", "effective rank"] * 2
    assert table["permuted columns, 95 %"].str.fullmatch(r"[\d.]+–[\d.]+").all()
    fits = report.fit_table(components.fits)
    assert fits["components"].tolist() == ["principal", "Semi-NMF", "independent"] * 2
    for column in ("unexplained", "halves agree", "largest overlap"):
        assert fits[f"{column} (permuted)"].str.fullmatch(r"[\d.]+ \([\d.]+–[\d.]+\)").all()
    unfinished = report.fit_table(components.fits.assign(converged=False, iterations=500))
    assert (unfinished["iterations"] == "500 (not converged)").all()
    classes = report.class_table(study)
    assert classes["rows used"].tolist() == [80, 40, 30, 20, 15]
    assert f"{study.values[0, 0]:.2f} (" in classes["spread (permuted labels)"][0]
    found = study.correlations(draws=99)
    both = report.correlation_table({"all": found, "none": found.iloc[:0]})
    assert both["reading"].tolist() == ["all"] * 3
    assert report.correlation_table({}).empty


def whole_rows(value, low, high):
    row = {"value": value, "null_low": low, "null_median": (low + high) / 2, "null_high": high, "variances_alone": 1.0}
    return pd.DataFrame(
        [
            {"scaling": scaling, "measure": measure, **row}
            for scaling in SCALINGS
            for measure in ("isoscore", "effective_rank")
        ]
    )


@pytest.mark.parametrize(
    ("value", "words"), [(0.1, "less round than"), (0.5, "as round as its variances"), (0.9, "rounder than")]
)
def test_the_sentence_on_all_rows_follows_the_band(value, words):
    sentence = report.read_whole(whole_rows(value, 0.4, 0.6))
    assert sentence.count(words) == 2
    assert "0.400–0.600 for permuted columns" in sentence


def test_the_sentence_on_components_names_those_that_beat_their_null():
    def rows(unexplained, halves):
        return {"unexplained": unexplained, "unexplained_null_low": 0.5, "unexplained_null_high": 0.6} | {
            "halves": halves,
            "halves_null_low": 0.2,
            "halves_null_high": 0.3,
        }

    fits = pd.DataFrame(
        [
            {"scaling": scaling, "method": method, **row}
            for scaling in SCALINGS
            for method, row in (("pca", rows(0.4, 0.9)), ("semi_nmf", rows(0.55, 0.25)), ("ica", rows(0.4, 0.25)))
        ]
    )
    sentence = report.read_fits(fits)
    assert "Raw, principal and independent components leave less unexplained" in sentence
    assert "and principal components agree better between halves" in sentence
    assert "principal ones (0.90)" in sentence
    nothing = report.read_fits(fits.assign(unexplained=0.55, halves=0.25))
    assert "no components leave less" in nothing


@pytest.mark.parametrize(
    ("rho", "words"),
    [
        (0.9, "what class size alone gives and beyond chance"),
        (0.5, "less than class size alone gives and within chance"),
        (0.99, "more than class size alone gives and beyond chance"),
    ],
)
def test_the_sentence_on_frequency_weighs_both_nulls(rho, words):
    row = {"measure": "isoscore", "rho": rho, "classes": 7, "labels_low": 0.8, "labels_high": 0.95}
    found = pd.DataFrame([row | {"shuffled_low": -0.6, "shuffled_high": 0.6}])
    sentence = report.read_correlations(found, "All rows")
    assert sentence.startswith("All rows (7 classes): IsoScore +")
    assert words in sentence


def test_too_few_classes_are_no_correlation():
    assert "fewer than four classes" in report.read_correlations(pd.DataFrame(), "All rows")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.164, 3, "0.164"), (0.0192, 3, "0.0192"), (0.00012345, 3, "0.000123"), (34.9, 2, "34.90"), (1e-17, 2, "0.00")],
)
def test_small_numbers_keep_their_significant_digits(value, digits, text):
    assert report.number(value, digits) == text
