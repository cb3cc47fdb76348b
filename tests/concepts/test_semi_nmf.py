import importlib
import importlib.util
import pickle
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from anisotropy.concepts import SemiNMF, _descent, stability


def planted(n, d, k, seed, sparsity=0.2, noise=0.0):
    """Sparse non-negative codes of random directions: A, Z, D."""
    rng = np.random.default_rng(seed)
    z = rng.exponential(size=(n, k)) * (rng.random((n, k)) < sparsity)
    directions = rng.standard_normal((k, d))
    return z @ directions + noise * rng.standard_normal((n, d)), z, directions


def heavy_tailed(n, d, seed):
    """Rows with a power-law spectrum, heavy tails and a mean, as embeddings have them."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_t(5, size=(n, d)) * np.arange(1, d + 1) ** -0.5
    return rows @ ortho_group.rvs(d, random_state=seed) + 0.3


def noise(n, d, seed):
    return np.random.default_rng(seed).standard_normal((n, d))


FIXTURES = {
    "planted": planted(1200, 40, 10, seed=0, noise=0.1)[0],
    "heavy tails": heavy_tailed(1200, 40, seed=1),
    "noise": noise(1200, 40, seed=2),
    "all negative": -np.abs(noise(800, 30, seed=3)) - 1,
    "wide": heavy_tailed(100, 200, seed=4),
}


def relative_loss(a, codes, components):
    return float(((a - codes @ components) ** 2).sum() / (a**2).sum())


@pytest.fixture(scope="module")
def reference():
    """overcomplete's Semi-NMF, imported without the package root, whose plotting breaks with matplotlib 3.11."""
    spec = importlib.util.find_spec("overcomplete")
    if spec is None:
        pytest.skip("overcomplete is not installed (pip install --no-deps overcomplete==0.3.0)")
    parent = types.ModuleType("overcomplete")
    parent.__path__ = list(spec.submodule_search_locations)
    saved = sys.modules.get("overcomplete")
    sys.modules["overcomplete"] = parent
    yield importlib.import_module("overcomplete.optimization.semi_nmf")
    for name in [m for m in sys.modules if m == "overcomplete" or m.startswith("overcomplete.")]:
        del sys.modules[name]
    if saved is not None:
        sys.modules["overcomplete"] = saved


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([SemiNMF(), SemiNMF(n_components=1, tol=1e-3)])
def test_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


class TestLoss:
    @pytest.mark.parametrize("name", FIXTURES)
    @pytest.mark.parametrize(("dtype", "rounding"), [(np.float64, 1e-13), (np.float32, 1e-6)])
    def test_never_increases_and_is_the_error(self, name, dtype, rounding):
        a = FIXTURES[name].astype(dtype)
        model = SemiNMF(10, tol=1e-5).fit(a)
        curve = np.array(model.loss_curve_)
        assert (np.diff(curve) <= rounding * curve[0]).all()
        assert model.reconstruction_err_ == pytest.approx(np.sqrt(curve[-1]), rel=1e-12)
        assert (model.n_iter_, model.converged_) == (len(curve) - 1, True)
        # The codes of transform are the best for the components, so they cannot do worse than those of the descent.
        wide = a.astype(np.float64)
        error = ((wide - model.transform(a).astype(np.float64) @ model.components_) ** 2).sum()
        assert curve[-1] * 0.99 <= error <= curve[-1] + rounding * (wide**2).sum()

    @pytest.mark.parametrize("name", FIXTURES)
    @pytest.mark.parametrize("solver", ["mu", "pgd"])
    def test_reaches_the_references(self, reference, name, solver):
        a = FIXTURES[name]
        torch.manual_seed(0)
        theirs = reference.SemiNMF(10, solver=solver, tol=0)
        codes, components = theirs.fit(torch.from_numpy(a).float(), max_iter=300)
        loss = relative_loss(a, codes.numpy().astype(float), components.numpy().astype(float))
        ours = SemiNMF(10, tol=1e-5).fit(a)
        assert ours.loss_curve_[-1] / (a**2).sum() <= loss

    @pytest.mark.parametrize("name", FIXTURES)
    def test_lies_between_two_truncated_svds(self, name):
        # Non-negative codes are a restriction of rank k, and need at most one component more than signed ones: the best
        # loss lies between those of rank k and rank k − 1 (Gillis & Kumar 2015).
        a, k = FIXTURES[name], 10
        squares = np.linalg.svd(a, compute_uv=False) ** 2
        loss = SemiNMF(k, tol=1e-6, max_iter=2000).fit(a).loss_curve_[-1]
        assert loss >= squares[k:].sum() * (1 - 1e-9)
        assert loss <= squares[k - 1 :].sum() * 1.05

    def test_one_component_is_a_closed_form_for_positive_rows(self):
        # For rows on one side of a plane the best rank one matrix has codes of one sign.
        a = FIXTURES["all negative"]
        squares = np.linalg.svd(a, compute_uv=False) ** 2
        model = SemiNMF(1, tol=1e-12).fit(a)
        assert model.loss_curve_[-1] == pytest.approx(squares[1:].sum(), rel=1e-9)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_exact_data(self, dtype):
        a = planted(400, 20, 3, seed=0, sparsity=0.5)[0].astype(dtype)
        model = SemiNMF(3, tol=0, max_iter=3000).fit(a)
        assert model.converged_
        assert model.loss_curve_[-1] / (a**2).sum() < 100 * np.finfo(dtype).eps


class TestRecovery:
    """What Semi-NMF recovers, and what it cannot.

    If ZD fits, so does (ZT)(T⁻¹D) for every invertible T ≥ 0: the cone of the components can always be wider.
    The span of planted components is determined, the components are not, and with noise the best fit is not the truth.
    """

    @pytest.mark.parametrize(("data_seed", "start_seed"), [(0, 101), (1, 57), (2, 33)])
    def test_span_of_planted_components(self, data_seed, start_seed):
        a, _, directions = planted(2000, 30, 6, data_seed)
        model = SemiNMF(6, tol=1e-6, random_state=start_seed).fit(a)
        assert model.loss_curve_[-1] / (a**2).sum() < 1e-14
        assert subspace_angles(model.components_.T, directions.T).max() < 1e-7
        noisy = planted(2000, 30, 6, data_seed, noise=0.1)[0]
        noisy_model = SemiNMF(6, tol=1e-6, random_state=start_seed).fit(noisy)
        assert subspace_angles(noisy_model.components_.T, directions.T).max() < 0.02

    def test_codes_of_planted_components(self):
        # Codes are a convex problem: given the components, the planted ones come back, zeros and all.
        a, z, directions = planted(2000, 30, 6, seed=0)
        model = SemiNMF(6).fit(a)
        lengths = np.linalg.norm(directions, axis=1)
        model.components_ = directions / lengths[:, None]
        codes = model.transform(a)
        assert codes == pytest.approx(z * lengths, abs=1e-9)
        assert (codes[z == 0] < 1e-9).all()

    @pytest.mark.parametrize("start_seed", [0, 7])
    def test_one_planted_component(self, start_seed):
        a, z, directions = planted(2000, 30, 1, seed=3, sparsity=0.5, noise=0.01)
        model = SemiNMF(1, tol=1e-10, random_state=start_seed)
        codes = model.fit_transform(a)
        length = np.linalg.norm(directions)
        assert model.components_[0] @ directions[0] / length > 0.9999
        assert np.linalg.norm(codes - z * length) / np.linalg.norm(z * length) < 0.01

    def test_a_wider_cone_fits_as_well(self):
        a, z, directions = planted(500, 30, 6, seed=0)
        widen = np.eye(6) + 0.8 * np.random.default_rng(1).random((6, 6))
        other = np.linalg.solve(widen, directions)
        assert (z @ widen >= 0).all()
        assert z @ widen @ other == pytest.approx(a, abs=1e-10)
        assert stability([directions, other]).mean < 0.95

    def test_low_loss_is_no_recovery(self):
        a, z, directions = planted(2000, 30, 6, seed=0, noise=0.1)
        best_given_planted_codes = np.linalg.lstsq(z, a, rcond=None)[0]
        model = SemiNMF(6, tol=1e-6, max_iter=2000, random_state=101).fit(a)
        assert model.loss_curve_[-1] < ((a - z @ best_given_planted_codes) ** 2).sum()
        assert stability([model, directions]).mean < 0.9

    def test_exact_zeros(self):
        a, _, _ = planted(2000, 30, 6, seed=0)
        codes = SemiNMF(6, random_state=9).fit_transform(a)
        assert (codes >= 0).all()
        assert (codes == 0).mean() > 0.2


class TestOutput:
    def test_components_have_length_one_in_order_of_mass(self):
        a = FIXTURES["planted"]
        model = SemiNMF(10, tol=1e-4)
        codes = model.fit_transform(a)
        assert np.linalg.norm(model.components_, axis=1) == pytest.approx(np.ones(10), abs=1e-12)
        assert (np.diff(model.code_mass_) <= 0).all()
        # The mass belongs to the last codes of the descent, which are near those of transform.
        assert model.code_mass_ == pytest.approx(codes.sum(axis=0), rel=0.05)

    def test_transform_and_its_inverse(self):
        a, components = FIXTURES["planted"], SemiNMF(10).fit(FIXTURES["planted"])
        codes = components.transform(a[:50])
        assert (codes >= 0).all()
        assert components.inverse_transform(codes) == pytest.approx(codes @ components.components_, abs=1e-12)
        assert components.transform(components.inverse_transform(codes)) == pytest.approx(codes, abs=1e-9)
        with pytest.raises(ValueError, match=r"Z has shape \(3, 4\); it must be \(n, 10\)"):
            components.inverse_transform(np.ones((3, 4)))

    def test_fit_transform_is_fit_then_transform(self):
        a = FIXTURES["heavy tails"]
        model = SemiNMF(5)
        assert np.array_equal(model.fit_transform(a), model.transform(a))
        assert np.array_equal(model.components_, SemiNMF(5).fit(a).components_)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_tensors_give_tensors(self, dtype):
        a = torch.from_numpy(FIXTURES["planted"]).to(dtype)
        model = SemiNMF(4)
        codes = model.fit_transform(a)
        assert isinstance(codes, torch.Tensor)
        assert (codes.dtype, codes.shape) == (dtype, (1200, 4))
        assert np.array_equal(codes.numpy(), SemiNMF(4).fit_transform(a.numpy()))
        assert isinstance(model.inverse_transform(codes), torch.Tensor)

    def test_other_precisions_become_float64(self):
        a = torch.from_numpy(FIXTURES["planted"][:100]).half()
        assert SemiNMF(4).fit_transform(a).dtype == torch.float64
        assert SemiNMF(2).fit_transform(np.arange(12).reshape(6, 2)).dtype == np.float64

    def test_single_precision_finds_the_same_components(self):
        a = FIXTURES["heavy tails"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            single, double = (SemiNMF(6, tol=0, max_iter=15).fit(x) for x in (a.astype(np.float32), a))
        assert single.components_.dtype == np.float32
        assert stability([single, double]).lowest > 0.9999

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_gpu(self):
        a = torch.from_numpy(FIXTURES["planted"])
        codes = SemiNMF(6).fit_transform(a.cuda())
        assert codes.is_cuda
        assert codes.cpu().numpy() == pytest.approx(SemiNMF(6).fit_transform(a.numpy()), abs=1e-5)
        moved = SemiNMF(6, device="cuda").fit_transform(a.numpy())
        assert isinstance(moved, np.ndarray)

    def test_device_is_where_it_computes(self):
        a = FIXTURES["planted"][:100]
        assert np.array_equal(SemiNMF(3, device="cpu").fit_transform(a), SemiNMF(3).fit_transform(a))

    def test_survives_pickling(self):
        model = SemiNMF(3).fit(FIXTURES["planted"])
        again = pickle.loads(pickle.dumps(model))
        assert np.array_equal(again.transform(FIXTURES["planted"]), model.transform(FIXTURES["planted"]))
        assert list(model.get_feature_names_out()) == ["seminmf0", "seminmf1", "seminmf2"]


class TestInvariance:
    @settings(deadline=None, max_examples=10)
    @given(st.integers(0, 999), st.floats(-25, 25), st.sampled_from([np.float32, np.float64]))
    def test_scale(self, seed, log_scale, dtype):
        a = heavy_tailed(60, 8, seed)
        scale = dtype(2.0) ** np.round(log_scale * np.log2(10))
        plain, scaled = SemiNMF(3).fit(a.astype(dtype)), SemiNMF(3).fit((a * scale).astype(dtype))
        assert scaled.loss_curve_ == pytest.approx(np.array(plain.loss_curve_) * float(scale) ** 2, rel=1e-3)
        assert stability([plain, scaled]).mean > 0.99

    @settings(deadline=None, max_examples=10)
    @given(st.integers(0, 999))
    def test_rotation(self, seed):
        a, turn = heavy_tailed(60, 8, seed), ortho_group.rvs(8, random_state=seed + 1)
        straight, turned = SemiNMF(3, max_iter=20, tol=0), SemiNMF(3, max_iter=20, tol=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            straight.fit(a)
            turned.fit(a @ turn)
        assert turned.loss_curve_ == pytest.approx(straight.loss_curve_, rel=1e-6)
        assert turned.components_ @ turn.T == pytest.approx(straight.components_, abs=1e-5)

    def test_no_seed_is_a_new_one_each_time(self):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        one, other = (SemiNMF(4, random_state=None).fit(FIXTURES["noise"]).components_ for _ in range(2))
        assert not np.allclose(one, other)
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002

    def test_seed_decides_and_global_state_is_left_alone(self):
        a = FIXTURES["noise"]
        torch.manual_seed(0)
        numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
        first, again, other = (SemiNMF(4, random_state=s).fit(a).components_ for s in (1, 1, 2))
        assert np.array_equal(first, again)
        assert not np.allclose(first, other)
        assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), torch_before)


class TestDeadComponents:
    def test_are_revived(self):
        a = torch.from_numpy(FIXTURES["planted"])
        codes = torch.from_numpy(np.abs(noise(10, 1200, seed=5)))
        codes[3:] = 0
        found = _descent.descend(a, codes, 1e-4, 500, np.random.RandomState(0))
        assert (found.codes_t.sum(dim=1) > 0).all()
        assert np.all(np.diff(found.losses) <= 0)
        healthy = SemiNMF(10).fit(FIXTURES["planted"]).loss_curve_[-1]
        assert found.losses[-1] <= 1.1 * healthy

    def test_reviving_does_not_change_the_loss(self):
        a, d = torch.from_numpy(FIXTURES["planted"]), torch.from_numpy(noise(4, 40, seed=0))
        codes = torch.from_numpy(np.abs(noise(4, 1200, seed=1)))
        codes[2] = 0
        s = codes @ codes.T
        before = (a - codes.T @ d).square().sum()
        kept = d.clone()
        _descent.revive(d, codes, s, a, np.random.RandomState(0), 0.0)
        assert not torch.equal(d[2], kept[2])
        assert torch.equal(d[[0, 1, 3]], kept[[0, 1, 3]])
        assert torch.equal((a - codes.T @ d).square().sum(), before)

    def test_stay_dead_where_the_fit_is_exact(self):
        a = np.outer(np.abs(noise(50, 1, 0)), noise(1, 6, 1))
        model = SemiNMF(3, tol=0).fit(a)
        assert model.converged_
        assert model.reconstruction_err_ / np.linalg.norm(a) < 1e-6
        assert np.isfinite(model.components_).all()
        assert (model.transform(a) >= 0).all()


class TestPartialFit:
    def test_stream_approaches_the_fit(self):
        a = heavy_tailed(6000, 30, seed=0)
        stream = SemiNMF(8)
        for batch in np.split(a, 12):
            stream.partial_fit(batch)
        assert stream.n_batches_seen_ == 12
        losses = [
            relative_loss(a, model.transform(a), model.components_)
            for model in (SemiNMF(8).fit(a[:500]), stream, SemiNMF(8).fit(a))
        ]
        first_batch_only, streamed, whole = losses
        assert streamed < first_batch_only
        assert streamed - whole < 0.5 * (first_batch_only - whole)

    def test_first_batch_is_a_fit(self):
        a = FIXTURES["planted"]
        assert np.array_equal(SemiNMF(4).partial_fit(a).components_, SemiNMF(4).fit(a).components_)

    def test_d_step_is_exact_for_the_sums(self):
        a = FIXTURES["planted"]
        model = SemiNMF(4).fit(a[:600])
        before = model.components_.copy()
        s, b = model._s.clone().numpy(), model._b.clone().numpy()
        codes = model.transform(a[600:])
        model.partial_fit(a[600:])
        expected = np.linalg.solve(s + codes.T @ codes, b + codes.T @ a[600:])
        lengths = np.linalg.norm(expected, axis=1, keepdims=True)
        assert model.components_ == pytest.approx(expected / lengths, abs=1e-9)
        assert not np.allclose(model.components_, before, atol=1e-6)
        error = np.linalg.norm(a[600:] - codes @ expected)
        assert model.reconstruction_err_ == pytest.approx(error, rel=1e-9)

    def test_unit_does_not_matter(self):
        a = FIXTURES["planted"].astype(np.float32)
        plain, tiny = SemiNMF(4), SemiNMF(4)
        for batch in np.split(a, 3):
            plain.partial_fit(batch)
            tiny.partial_fit(batch * np.float32(2.0**-80))
        assert stability([plain, tiny]).mean > 0.999
        assert tiny.reconstruction_err_ * 2.0**80 == pytest.approx(plain.reconstruction_err_, rel=1e-3)

    def test_unused_components_keep_their_direction(self):
        a = np.abs(noise(40, 3, seed=0))
        model = SemiNMF(2).fit(a)
        model._s[1], model._s[:, 1], model._b[1] = 0, 0, 0
        kept = model.components_[1].copy()
        model.partial_fit(-100 * kept[None] + 0 * a[:5])
        assert model.components_[1] == pytest.approx(kept, abs=1e-12)

    def test_zero_batch_changes_nothing(self):
        model = SemiNMF(3).fit(FIXTURES["planted"])
        before = model.components_.copy()
        model.partial_fit(np.zeros((5, 40)))
        assert model.components_ == pytest.approx(before, abs=1e-9)


class TestStability:
    def test_same_components_in_any_order_and_sign(self):
        components = noise(5, 12, seed=0)
        shuffled = -3 * components[[2, 0, 4, 1, 3]]
        result = stability([components, shuffled])
        assert (result.mean, result.lowest) == (pytest.approx(1), pytest.approx(1))

    def test_pairs(self):
        base = np.eye(4)
        turned = np.eye(4)
        turned[:2] = [[np.cos(0.3), np.sin(0.3), 0, 0], [-np.sin(0.3), np.cos(0.3), 0, 0]]
        result = stability([base, turned, base])
        expected = (2 * np.cos(0.3) + 2) / 4
        assert result.pairs == pytest.approx([expected, 1, expected])
        assert (result.mean, result.lowest) == (pytest.approx((2 * expected + 1) / 3), pytest.approx(expected))

    def test_seeds_do_not_agree_whatever_the_loss(self):
        a = planted(2000, 30, 6, seed=0)[0]
        models = [SemiNMF(6, random_state=s).fit(a) for s in range(3)]
        assert max(m.loss_curve_[-1] for m in models) / (a**2).sum() < 1e-10
        assert stability(models).mean < 0.95

    def test_dead_components_agree_with_nothing(self):
        assert stability([np.eye(2), np.array([[1.0, 0], [0, 0]])]).mean == pytest.approx(0.5)

    @pytest.mark.parametrize(
        ("models", "message"),
        [([np.eye(2)], r"got 1 model\(s\)"), ([np.eye(2), np.eye(3)], r"shapes \[\(2, 2\), \(3, 3\)\]")],
    )
    def test_refuses(self, models, message):
        with pytest.raises(ValueError, match=message):
            stability(models)


class TestInput:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_components": 0}, r"n_components is 0; for 6 rows of 4 features it must be 1 … 4"),
            ({"n_components": 5}, "n_components is 5"),
            ({"n_components": 2.0}, "n_components is 2.0"),
            ({"tol": -1}, "tol is -1"),
            ({"tol": float("nan")}, "tol is nan"),
            ({"max_iter": 0}, "max_iter is 0"),
            ({"max_iter": 1.5}, "max_iter is 1.5"),
        ],
    )
    def test_refuses_parameters(self, parameters, message):
        with pytest.raises(ValueError, match=message):
            SemiNMF(**parameters).fit(noise(6, 4, 0))

    def test_refuses_more_components_than_rows(self):
        with pytest.raises(ValueError, match="for 3 rows of 9 features it must be 1 … 3"):
            SemiNMF(4).fit(noise(3, 9, 0))

    @pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
    @pytest.mark.parametrize(
        ("a", "message"),
        [
            (np.zeros((5, 3)), "X is zero everywhere"),
            (np.array([[1.0, np.nan], [0, 1]]), "NaN"),
            (np.array([[1.0, np.inf], [0, 1]]), "infinity"),
            (np.ones(4), r"1D array|X has shape \(4,\)"),
            (np.ones((0, 4)), r"0 sample|X has shape \(0, 4\)"),
        ],
    )
    def test_refuses_data(self, kind, a, message):
        with pytest.raises(ValueError, match=message):
            SemiNMF(1).fit(kind(a))

    @pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
    def test_refuses_other_features(self, kind):
        model = SemiNMF(2).fit(kind(noise(10, 4, 0)))
        with pytest.raises(ValueError, match="X has 3 features, but SemiNMF is expecting 4"):
            model.transform(kind(noise(5, 3, 0)))

    def test_refuses_to_transform_before_fit(self):
        with pytest.raises(NotFittedError):
            SemiNMF(2).transform(noise(5, 3, 0))
        with pytest.raises(NotFittedError):
            clone(SemiNMF(2).fit(noise(5, 3, 0))).inverse_transform(noise(5, 2, 0))

    def test_zero_rows_get_zero_codes_and_constant_columns_are_data(self):
        a = np.vstack([noise(30, 5, 0), np.zeros((2, 5))])
        a[:30, 2] = 4.0
        codes = SemiNMF(3).fit_transform(a)
        assert not codes[30:].any()
        assert np.isfinite(codes).all()

    def test_warns_when_not_converged(self):
        with pytest.warns(ConvergenceWarning, match=r"did not converge in 3 iterations .* tol is 1.00e-12"):
            model = SemiNMF(5, tol=1e-12, max_iter=3).fit(FIXTURES["noise"])
        assert (model.n_iter_, model.converged_, len(model.loss_curve_)) == (3, False, 4)
