import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from anisotropy.concepts import _least_squares as ls


def gaussian(*shape, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def scipys(a, d):
    return np.stack([nnls(d.numpy().T, row)[0] for row in a.numpy()])


class TestBestComponents:
    def test_is_least_squares(self):
        z, a = gaussian(40, 5).abs(), gaussian(40, 8, seed=1)
        s, b = ls.code_products(z.T.contiguous(), a)
        assert torch.allclose(ls.best_components(s, b), torch.linalg.lstsq(z, a).solution, atol=1e-10)

    def test_units_of_components_do_not_matter(self):
        z, a = gaussian(40, 4).abs(), gaussian(40, 6, seed=1)
        units = torch.tensor([1e-9, 1.0, 1e9, 1e3], dtype=torch.float64)
        plain = ls.best_components(*ls.code_products(z.T.contiguous(), a))
        scaled = ls.best_components(*ls.code_products((z * units).T.contiguous(), a))
        assert torch.allclose(scaled * units[:, None], plain, rtol=1e-9)

    def test_dependent_and_empty_codes(self):
        z = gaussian(40, 4).abs()
        z[:, 2], z[:, 3] = z[:, 1], 0
        a = gaussian(40, 6, seed=1)
        d = ls.best_components(*ls.code_products(z.T.contiguous(), a))
        assert torch.allclose(d, torch.from_numpy(np.linalg.pinv(z.numpy()) @ a.numpy()), atol=1e-8)
        assert not d[3].any()


class TestSquaredError:
    def test_without_the_residual(self):
        z, d, a = gaussian(50, 4).abs(), gaussian(4, 7, seed=1), gaussian(50, 7, seed=2)
        s, b = ls.code_products(z.T.contiguous(), a)
        expected = float((a - z @ d).square().sum())
        assert ls.squared_error(float(a.square().sum()), d, s, b) == pytest.approx(expected, rel=1e-12)

    def test_float32_products_are_added_in_float64(self):
        z, a = gaussian(1, 300_000, dtype=torch.float32).abs(), gaussian(300_000, 1, seed=1, dtype=torch.float32).abs()
        s, b = ls.code_products(z, a)
        assert float(s) == pytest.approx(float(z.double().square().sum()), rel=1e-13)
        assert float(b) == pytest.approx(float(z.double() @ a.double()), rel=1e-6)


class TestSweep:
    @settings(deadline=None, max_examples=25)
    @given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 6))
    def test_never_raises_the_error_and_stays_non_negative(self, seed, k, d):
        components, a = gaussian(k, d, seed=seed), gaussian(10, d, seed=seed + 1)
        codes = gaussian(k, 10, seed=seed + 2).abs()
        errors = []
        for _ in range(5):
            errors.append(float((a - codes.T @ components).square().sum()))
            ls.sweep_codes(codes, components @ components.T, components @ a.T)
            assert (codes >= 0).all()
        assert (np.diff(errors) <= 1e-12 * float(a.square().sum())).all()

    def test_zero_components_are_passed_by(self):
        codes = gaussian(2, 5).abs()
        before = codes[1].clone()
        d = torch.stack([gaussian(3)[0:3], torch.zeros(3, dtype=torch.float64)])
        ls.sweep_codes(codes, d @ d.T, d @ gaussian(5, 3).T)
        assert torch.equal(codes[1], before)


class TestBestCodes:
    @pytest.mark.parametrize(("n", "k", "d"), [(30, 1, 4), (200, 6, 9), (60, 20, 25), (100, 8, 8)])
    def test_is_scipys_nnls(self, n, k, d):
        components, a = gaussian(k, d, seed=1), gaussian(n, d, seed=2)
        assert ls.best_codes(a, components).T.numpy() == pytest.approx(scipys(a, components), abs=1e-10)

    @pytest.mark.parametrize("condition", [1e2, 1e4])
    def test_nearly_dependent_components(self, condition):
        shared = gaussian(1, 12)
        components, a = shared + gaussian(8, 12, seed=1) / condition**0.5, gaussian(80, 12, seed=2)
        # What is exact is the optimality of the codes, not their digits: check the error, and the KKT conditions.
        codes = ls.best_codes(a, components)
        ours = (a - codes.T @ components).square().sum(dim=1)
        theirs = ((a.numpy() - scipys(a, components) @ components.numpy()) ** 2).sum(axis=1)
        assert ours.numpy() == pytest.approx(theirs, rel=1e-9)

    @settings(deadline=None, max_examples=25)
    @given(st.integers(0, 999), st.floats(-100, 100), st.floats(-100, 100))
    def test_units(self, seed, log_a, log_d):
        components, a = gaussian(4, 6, seed=seed), gaussian(20, 6, seed=seed + 1)
        scaled = ls.best_codes(a * 10.0**log_a, components * 10.0**log_d)
        assert torch.allclose(scaled * 10.0 ** (log_d - log_a), ls.best_codes(a, components), rtol=1e-8, atol=1e-12)

    def test_exact_zeros(self):
        codes = ls.best_codes(-torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
        assert torch.equal(codes, torch.zeros(3, 3, dtype=torch.float64))

    def test_rows_are_solved_alone(self):
        components, a = gaussian(5, 9), gaussian(5000, 9, seed=1)
        whole = ls.best_codes(a, components)
        assert torch.allclose(whole[:, 4090:4100], ls.best_codes(a[4090:4100], components), atol=1e-13)

    def test_zero_components_and_rows_get_zero_codes(self):
        components = torch.cat([gaussian(2, 5), torch.zeros(1, 5, dtype=torch.float64)])
        a = torch.cat([gaussian(3, 5, seed=1), torch.zeros(1, 5, dtype=torch.float64)])
        codes = ls.best_codes(a, components)
        assert not codes[2].any()
        assert not codes[:, 3].any()
        assert not ls.best_codes(a, torch.zeros(2, 5, dtype=torch.float64)).any()

    def test_dependent_components_still_minimise(self):
        base = gaussian(3, 6)
        components, a = torch.cat([base, base[:1], base[1:2] + base[2:]]), gaussian(50, 6, seed=1)
        codes = ls.best_codes(a, components)
        theirs = ((a.numpy() - scipys(a, components) @ components.numpy()) ** 2).sum()
        assert float((a - codes.T @ components).square().sum()) == pytest.approx(theirs, rel=1e-9)

    def test_more_components_than_dimensions(self):
        components, a = gaussian(9, 4), gaussian(40, 4, seed=1)
        codes = ls.best_codes(a, components)
        theirs = ((a.numpy() - scipys(a, components) @ components.numpy()) ** 2).sum()
        assert (codes >= 0).all()
        assert float((a - codes.T @ components).square().sum()) == pytest.approx(theirs, abs=1e-9)

    def test_single_precision(self):
        components, a = gaussian(6, 9), gaussian(100, 9, seed=1)
        single = ls.best_codes(a.float(), components.float())
        assert single.dtype == torch.float32
        assert torch.allclose(single.double(), ls.best_codes(a, components), atol=1e-5)
