"""The Forest Cover Type study on data with known answers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from anisotropy.errors import UserError
from anisotropy.studies import covertype
from anisotropy.studies.covertype import measure, per_class, whole
from anisotropy.studies.covertype_data import SCALINGS, Dataset, load

SEED = 11


def dataset(rows, labels):
    rows = np.asarray(rows, dtype=float)
    names = {int(label): f"class {label}" for label in np.unique(labels)}
    features = tuple(f"x{i}" for i in range(rows.shape[1]))
    return Dataset("Synthetic", "made here", False, rows, np.asarray(labels), features, names, len(rows))


def gaussian(sizes, d=6, seed=SEED, scale=1.0):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return dataset(np.random.default_rng(seed).normal(size=(len(labels), d)) * scale, labels)


# all rows


def test_measures_in_closed_form():
    # 2d points ±s_i e_i have covariance diag(2 s_i²/(2d − 1)) and singular values proportional to s_i.
    scales = np.array([4.0, 2.0, 1.0, 1.0])
    found = measure(np.concatenate([np.diag(scales), -np.diag(scales)]))
    variances, shares = scales**2, scales / scales.sum()
    assert found["spread"] == pytest.approx(np.sqrt(2 * variances.sum() / 7))
    assert found["isoscore"] == pytest.approx((variances.sum() ** 2 / (variances**2).sum() - 1) / 3)
    assert found["effective_rank"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))


def test_permuting_columns_keeps_every_feature_and_its_variance():
    rows = load().rows
    shuffled = covertype.permuted(rows, np.random.default_rng(0))
    assert_array_equal(np.sort(rows, axis=0), np.sort(shuffled, axis=0))
    assert not np.array_equal(rows, shuffled)
    assert float(covertype.covariance(shuffled).trace()) == pytest.approx(float(covertype.covariance(rows).trace()))


def test_the_null_of_permuted_columns_in_closed_form():
    # Off the diagonal a permuted covariance has mean 0 and variance s_i² s_j²/(n − 1), whatever the values are.
    random = np.random.default_rng(SEED)
    rows = random.exponential(size=(30, 5)) * np.array([5.0, 3.0, 2.0, 1.0, 1.0])
    variances = rows.var(0, ddof=1)
    expected = (variances**2).sum() + (variances.sum() ** 2 - (variances**2).sum()) / 29
    draws = [float(covertype.covariance(covertype.permuted(rows, random)).square().sum()) for _ in range(1000)]
    assert abs(np.mean(draws) - expected) < 4 * np.std(draws) / np.sqrt(1000)


def test_independent_features_lie_inside_the_band_and_related_ones_below():
    unrelated = gaussian([200, 200], scale=np.array([9.0, 3, 1, 1, 1, 1]))
    table = whole(unrelated, draws=199)
    assert ((table["null_low"] <= table["value"]) & (table["value"] <= table["null_high"])).all()
    standardised = table[table["scaling"] == "standardised"].set_index("measure")["variances_alone"]
    assert standardised["isoscore"] == pytest.approx(1)
    assert standardised["effective_rank"] == pytest.approx(6)
    raw = table[table["scaling"] == "raw"].set_index("measure")["variances_alone"]
    v = unrelated.rows.var(0, ddof=1)
    assert raw["isoscore"] == pytest.approx((v.sum() ** 2 / (v**2).sum() - 1) / 5)
    related = dataset(unrelated.rows + 5 * unrelated.rows[:, :1], unrelated.labels)
    table = whole(related, draws=19)
    assert (table["value"] < table["null_low"]).all()


# components


@pytest.fixture(scope="module")
def planted():
    """Two non-negative, non-Gaussian sources in eight dimensions, with little noise."""
    random = np.random.default_rng(SEED)
    sources = random.exponential(size=(300, 2))
    rows = sources @ random.normal(size=(2, 8)) + 0.1 * random.normal(size=(300, 8))
    return dataset(rows, np.repeat([0, 1], 150))


@pytest.fixture(scope="module")
def found(planted):
    return covertype.components(planted, k=2, refits=4, seed=3)


def test_principal_components_are_those_of_the_covariance(planted, found):
    fits = found.fits.set_index(["scaling", "method"])
    for scaling in SCALINGS:
        eigenvalues = np.linalg.eigvalsh(np.cov(planted.scaled(scaling).T))[::-1]
        rows = found.strengths[(found.strengths["scaling"] == scaling) & (found.strengths["method"] == "pca")]
        assert_allclose(rows["strength"], eigenvalues[:2] / eigenvalues.sum())
        left = 1 - eigenvalues[:2].sum() / eigenvalues.sum()
        assert fits.loc[(scaling, "pca"), "unexplained"] == pytest.approx(left)
        assert fits.loc[(scaling, "ica"), "unexplained"] == pytest.approx(left)
        assert fits.loc[(scaling, "pca"), "overlap"] == pytest.approx(0, abs=1e-9)
    # Standardised rows have mean 0, and then no two directions explain more than the principal ones.
    assert fits.loc[("standardised", "semi_nmf"), "unexplained"] >= fits.loc[("standardised", "pca"), "unexplained"]


def test_planted_components_repeat_and_permuted_columns_have_none(found):
    for _, row in found.fits.iterrows():
        if row["method"] != "semi_nmf":
            assert row["halves"] > 0.95
            assert row["unexplained"] < 0.5 * row["unexplained_null_low"]
    assert (found.fits["unexplained_null_low"] <= found.fits["unexplained_null_median"]).all()
    assert (found.fits["halves_null_median"] <= found.fits["halves_null_high"]).all()
    assert (found.fits["overlap"] <= 1 + 1e-9).all()


def test_components_of_unrelated_features_explain_what_permuted_ones_do():
    fits = covertype.components(gaussian([150, 150]), k=2, refits=9).fits
    for name in ("unexplained", "overlap", "halves"):
        width = fits[f"{name}_null_high"] - fits[f"{name}_null_low"] + 1e-9
        assert ((fits[name] - fits[f"{name}_null_median"]).abs() < 2 * width).all(), name


def test_more_components_than_directions_are_refused(planted):
    with pytest.raises(UserError, match="components: n_components is 9"):
        covertype.components(planted, k=9, refits=1)


def test_the_plane_holds_the_two_largest_variances(planted, found):
    seen = covertype.plane(planted, found)
    eigenvalues = np.linalg.eigvalsh(np.cov(planted.scaled("standardised").T))[::-1]
    assert_allclose(seen.deviations**2, eigenvalues[:2])
    assert seen.share == pytest.approx(eigenvalues[:2].sum() / eigenvalues.sum())
    assert seen.null_share < seen.share
    assert_allclose(np.abs(seen.directions["pca"]), np.eye(2), atol=1e-9)
    assert all((np.linalg.norm(d, axis=1) <= 1 + 1e-9).all() for d in seen.directions.values())


# classes


def test_classes_are_measured_one_by_one_the_most_frequent_first():
    data = gaussian([20, 60, 35])
    study = per_class(data, "raw", draws=3)
    assert study.counts.tolist() == [60, 35, 20]
    assert study.labels.tolist() == [1, 2, 0]
    for i, label in enumerate(study.labels):
        assert_allclose(study.values[i], list(measure(data.rows[data.labels == label]).values()))
    table = study.table()
    assert table["frequency"].sum() == pytest.approx(len(covertype.MEASURES))
    assert study.null.shape == (3, 3, 3)


def test_standardised_means_by_the_variances_of_all_rows():
    data = gaussian([50, 50])
    study = per_class(data, draws=1)
    assert_allclose(study.values[0, 0], measure(data.scaled("standardised")[:50])["spread"])
    assert abs(study.values[0, 0] - np.sqrt(6)) > 1e-6


def test_classes_that_are_alike_lie_in_the_band_and_a_wider_one_above():
    data = gaussian([100, 80, 60, 40])
    table = per_class(data, draws=199).table()
    inside = (table["null_low"] <= table["value"]) & (table["value"] <= table["null_high"])
    assert inside.mean() >= 10 / 12
    rows = data.rows.copy()
    rows[data.labels == 3] *= 4
    table = per_class(dataset(rows, data.labels), draws=99).table()
    wide = table[(table["class"] == "class 3") & (table["measure"] == "spread")].iloc[0]
    assert wide["value"] > wide["null_high"]


def test_class_size_alone_correlates_with_frequency_unless_rows_are_equal():
    data = gaussian([200, 100, 60, 40, 30, 25, 20], d=20)
    everything = per_class(data, draws=49).correlations(draws=99).set_index("measure")
    assert everything.loc["effective_rank", "labels_low"] > 0.9
    assert everything.loc["isoscore", "labels_median"] > 0.9
    equal = per_class(data, equal=True, draws=99, resamples=2)
    assert set(equal.used) == {20}
    found = equal.correlations(draws=99).set_index("measure")
    for name in covertype.MEASURES:
        assert found.loc[name, "labels_low"] < -0.3
        assert found.loc[name, "labels_high"] > 0.3
        assert found.loc[name, "labels_p"] > 0.01


def test_with_equal_rows_the_smallest_class_takes_part_whole():
    data = gaussian([60, 30, 12])
    study = per_class(data, "raw", equal=True, draws=1, resamples=3)
    assert_allclose(study.values[2], list(measure(data.rows[data.labels == 2]).values()))


def test_a_planted_relation_to_frequency_is_found_beyond_both_nulls():
    sizes = [160, 120, 90, 70, 50, 40, 30, 20]
    scale = np.repeat(np.arange(1.0, 9.0), sizes)[:, None]
    study = per_class(gaussian(sizes, scale=scale), equal=True, draws=99, resamples=3)
    row = study.correlations().set_index("measure").loc["spread"]
    assert row["rho"] < -0.95
    assert row["rho"] < row["labels_low"]
    assert row["rho"] < row["shuffled_low"]
    assert row["labels_p"] == pytest.approx(0.02)


def test_small_classes_are_left_out_and_named():
    study = per_class(gaussian([40, 30, 9, 3]), draws=2, minimum_rows=10)
    assert study.names == ("class 0", "class 1")
    assert study.left_out == ("class 2", "class 3")
    assert study.total == 82
    assert study.correlations().empty


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ([40, 3], {}, "minimum_rows: 1 of 2 classes have 10 rows"),
        ([40, 40], {"draws": 0}, "draws: 0 is too small"),
        ([40, 40], {"resamples": 0}, "resamples: 0 is too small"),
        ([40, 40], {"minimum_rows": 1}, "minimum_rows: 1 is too small"),
    ],
)
def test_what_classes_cannot_give(sizes, options, message):
    with pytest.raises(UserError, match=message):
        per_class(gaussian(sizes), **options)


def test_a_class_of_equal_rows_is_named_as_such():
    data = gaussian([20, 20])
    rows = data.rows.copy()
    rows[:20] = 1.0
    with pytest.raises(UserError, match="a class cannot be measured"):
        per_class(dataset(rows, data.labels), draws=1)


def test_rank_correlation_is_scipys():
    x, y = np.array([3, 1, 4, 1, 5, 9]), np.array([2.0, 7, 1, 8, 2, 8])
    assert covertype.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert covertype.spearman(x, np.ones(6)) == 0


def test_the_same_seed_gives_the_same_tables_and_another_seed_other_nulls():
    def tables(seed):
        data = gaussian([40, 30, 25, 20])
        found = covertype.components(data, k=2, refits=2, seed=seed)
        study = per_class(data, equal=True, draws=5, seed=seed)
        return [whole(data, draws=5, seed=seed), found.fits, found.strengths, study.table(), study.correlations(20)]

    for one, same, other in zip(tables(1), tables(1), tables(2), strict=True):
        pd.testing.assert_frame_equal(one, same)
        assert not one.equals(other)
