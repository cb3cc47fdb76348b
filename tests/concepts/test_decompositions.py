import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.stats import ortho_group
from sklearn.decomposition import PCA, FastICA

from anisotropy.concepts import METHODS, SemiNMF, decompose


def sources(n, d, seed):
    """Uniform independent sources along random directions, off the origin: rows, sources, directions."""
    rng = np.random.default_rng(seed)
    s = rng.uniform(-1, 1, (n, 3)) * [3, 2, 1]
    directions = rng.standard_normal((3, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return s @ directions + rng.standard_normal(d), s, directions


def cloud(n, d, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_t(6, size=(n, d)) * np.arange(1, d + 1) ** -0.7 @ ortho_group.rvs(d, random_state=seed) + 0.2


@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    def test_shapes_order_and_loss(self, method):
        x = cloud(300, 12, 0)
        result = decompose(x, method, 4)
        assert result.method == method
        assert (result.components.shape, result.codes.shape) == ((4, 12), (300, 4))
        assert (result.mean.shape, result.strength.shape) == ((12,), (4,))
        assert np.linalg.norm(result.components, axis=1) == pytest.approx(np.ones(4), abs=1e-12)
        assert (np.diff(result.strength) <= 1e-15).all()
        residual = x - result.mean - result.codes @ result.components
        assert result.relative_loss == pytest.approx((residual**2).sum() / (x**2).sum(), rel=1e-9)
        assert result.converged
        assert result.iterations >= 1

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_precision_is_kept(self, method, dtype):
        result = decompose(cloud(300, 12, 0).astype(dtype), method, 3)
        assert result.components.dtype == result.codes.dtype == result.mean.dtype == dtype
        assert result.relative_loss == pytest.approx(decompose(cloud(300, 12, 0), method, 3).relative_loss, rel=1e-2)

    def test_integers_are_numbers(self, method):
        assert decompose(np.arange(20).reshape(5, 4) ** 2 % 7, method, 1).codes.dtype == np.float64

    def test_global_random_state_is_left_alone(self, method):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        x = cloud(200, 8, 0)
        first, again = decompose(x, method, 3, seed=1), decompose(x, method, 3, seed=1)
        assert np.array_equal(first.components, again.components)
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002

    @pytest.mark.parametrize(
        ("x", "k", "message"),
        [
            (np.ones(5), 1, r"x has shape \(5,\)"),
            (np.ones((1, 5)), 1, r"x has shape \(1, 5\); it must be \(n, d\) with at least 2 rows"),
            ([[1.0, np.nan], [0, 1]], 1, "x holds 1 values that are not finite"),
            (cloud(30, 5, 0), 0, "n_components is 0"),
            (cloud(30, 5, 0), 6, "n_components is 6"),
            (cloud(4, 9, 0), 5, "n_components is 5"),
        ],
    )
    def test_refuses(self, method, x, k, message):
        with pytest.raises(ValueError, match=message):
            decompose(x, method, k)


class TestPCA:
    def test_is_scikit_learns(self):
        x = cloud(300, 12, 0)
        ours, theirs = decompose(x, "pca", 5), PCA(5, svd_solver="full").fit(x)
        assert np.abs(np.sum(ours.components * theirs.components_, axis=1)) == pytest.approx(np.ones(5), abs=1e-10)
        assert ours.strength == pytest.approx(theirs.explained_variance_ratio_, rel=1e-10)
        assert np.abs(ours.codes) == pytest.approx(np.abs(theirs.transform(x)), abs=1e-8)

    def test_constant_columns_and_few_rows_have_fewer_directions(self):
        x = cloud(30, 5, 0)
        x[:, 2] = 3
        assert decompose(x, "pca", 4).strength.sum() == pytest.approx(1)
        with pytest.raises(ValueError, match=r"the centred x has 4 direction\(s\), so it must be 1 … 4"):
            decompose(x, "pca", 5)
        with pytest.raises(ValueError, match=r"the centred x has 3 direction\(s\)"):
            decompose(cloud(4, 9, 0), "pca", 4)
        with pytest.raises(ValueError, match=r"the centred x has 0 direction\(s\)"):
            decompose(np.ones((4, 9)), "pca", 1)

    @settings(deadline=None, max_examples=20)
    @given(st.integers(0, 999), st.floats(-100, 100))
    def test_equivariant_to_rotation_and_scale(self, seed, log_scale):
        x, turn = cloud(40, 5, seed), ortho_group.rvs(5, random_state=seed + 1)
        plain, moved = decompose(x, "pca", 2), decompose(x @ turn * 10.0**log_scale, "pca", 2)
        assert moved.strength == pytest.approx(plain.strength, rel=1e-8)
        cosines = np.sum(moved.components @ turn.T * plain.components, axis=1)
        assert np.abs(cosines) == pytest.approx(np.ones(2), abs=1e-6)


class TestICA:
    @pytest.mark.parametrize(("data_seed", "seed"), [(0, 5), (1, 6)])
    def test_finds_independent_sources(self, data_seed, seed):
        # Directions that are not orthogonal: PCA cannot find them, independence does.
        x, s, directions = sources(4000, 10, data_seed)
        result = decompose(x, "ica", 3, seed=seed)
        cosines = np.abs(result.components @ directions.T)
        ours, theirs = linear_sum_assignment(-cosines)
        assert cosines[ours, theirs].min() > 0.997
        found = result.codes[:, ours]
        correlations = [abs(np.corrcoef(found[:, i], s[:, j])[0, 1]) for i, j in enumerate(theirs)]
        assert min(correlations) > 0.997
        assert result.relative_loss < 1e-20
        principal = np.abs(decompose(x, "pca", 3).components @ directions.T)
        assert principal.max(axis=1).min() < 0.99

    def test_same_subspace_and_loss_as_pca(self):
        x = cloud(500, 9, 0)
        ica, pca = decompose(x, "ica", 4), decompose(x, "pca", 4)
        assert ica.relative_loss == pytest.approx(pca.relative_loss, rel=1e-9)
        assert np.linalg.svd(ica.components @ pca.components.T)[1].max() <= 2

    @pytest.mark.parametrize(("contrast", "same"), [("logcosh", True), ("exp", False), ("cube", False)])
    def test_contrast_is_scikit_learns_default(self, contrast, same):
        x, _, _ = sources(4000, 10, 0)
        ours = decompose(x, "ica", 3, tol=1e-10)
        theirs = FastICA(3, fun=contrast, whiten="unit-variance", tol=1e-10, max_iter=500, random_state=0).fit(x)
        mixing = theirs.mixing_.T / np.linalg.norm(theirs.mixing_.T, axis=1, keepdims=True)
        cosines = np.abs(ours.components @ mixing.T).max(axis=1)
        assert (cosines.min() > 1 - 1e-10) == same

    def test_strength_is_explained_variance(self):
        x = cloud(500, 9, 0)
        result = decompose(x, "ica", 4)
        assert result.strength == pytest.approx(
            result.codes.var(axis=0, ddof=1) / x.var(axis=0, ddof=1).sum(), rel=1e-6
        )

    def test_not_converged_is_reported_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = decompose(np.random.default_rng(0).standard_normal((300, 12)), "ica", 10, tol=1e-12, max_iter=2)
        assert (result.converged, result.iterations) == (False, 2)


class TestSemiNMF:
    def test_is_the_estimator(self):
        x = cloud(300, 12, 0)
        result, model = decompose(x, "semi_nmf", 4, seed=3), SemiNMF(4, random_state=3)
        assert np.array_equal(result.codes, model.fit_transform(x))
        assert np.array_equal(result.components, model.components_)
        assert not result.mean.any()
        assert result.strength.sum() == pytest.approx(1)

    def test_not_converged_is_reported_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = decompose(cloud(300, 12, 0), "semi_nmf", 4, tol=1e-12, max_iter=2)
        assert (result.converged, result.iterations) == (False, 2)


def test_refuses_method():
    with pytest.raises(ValueError, match="method is 'nmf'; it must be one of pca, semi_nmf, ica"):
        decompose(cloud(30, 5, 0), "nmf", 2)
