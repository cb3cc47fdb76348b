import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from IsoScore.IsoScore import IsoScore, IsoScore_star
from scipy.stats import ortho_group

from anisotropy.geometry.isotropy import (
    cosine_by_coordinate,
    isoscore,
    isoscore_star,
    mean_cosine,
    participation_ratio,
)


def spectrum_covariance(eigenvalues, seed=0):
    """A covariance with the given eigenvalues along random directions."""
    rotation = ortho_group.rvs(len(eigenvalues), random_state=seed)
    return torch.from_numpy(rotation * np.asarray(eigenvalues, dtype=float) @ rotation.T)


def cloud(n, d, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.standard_normal(d)


eigenvalues = st.lists(st.floats(0.01, 100), min_size=2, max_size=8)


class TestParticipationRatio:
    @pytest.mark.parametrize("r", [1, 3, 7])
    def test_counts_equal_eigenvalues(self, r):
        assert float(participation_ratio(spectrum_covariance([5.0] * r + [0.0] * (7 - r)))) == pytest.approx(r)

    def test_by_hand(self):
        # (1 + 2 + 3)²/(1 + 4 + 9)
        assert float(participation_ratio(torch.diag(torch.tensor([1.0, 2.0, 3.0])))) == pytest.approx(
            36 / 14, rel=1e-15
        )

    def test_one_dimension(self):
        assert float(participation_ratio([[4.0]])) == 1


class TestIsoScore:
    @pytest.mark.parametrize("d", [2, 3, 50])
    def test_identity_is_one(self, d):
        assert float(isoscore(torch.eye(d))) == 1
        assert float(isoscore(spectrum_covariance([0.3] * d))) == pytest.approx(1, abs=1e-14)

    @pytest.mark.parametrize("d", [2, 3, 50])
    def test_rank_one_is_zero(self, d):
        assert float(isoscore(spectrum_covariance([2.0] + [0.0] * (d - 1)))) == pytest.approx(0, abs=1e-14)

    @pytest.mark.parametrize(("n", "d", "seed"), [(50, 3, 0), (400, 16, 1), (30, 40, 2), (2000, 64, 3)])
    def test_is_the_package(self, n, d, seed):
        x = cloud(n, d, seed)
        ours = isoscore(np.cov(x.T))
        # The package rounds √d to float32.
        assert float(ours) == pytest.approx(float(IsoScore(x)), abs=1e-7)
        assert float(ours) == pytest.approx((float(participation_ratio(np.cov(x.T))) - 1) / (d - 1), abs=1e-15)

    def test_sample_of_isotropic_source(self):
        # The documented finite-sample value n/(n + d).
        n, d = 500, 100
        scores = [float(isoscore(np.cov(np.random.default_rng(s).standard_normal((n, d)).T))) for s in range(10)]
        assert np.mean(scores) == pytest.approx(n / (n + d), abs=0.01)


class TestIsoScoreStar:
    @pytest.mark.parametrize(("n", "d", "zeta", "seed"), [(50, 3, 0.2, 0), (400, 16, 0.7, 1), (30, 40, 0.05, 2)])
    def test_is_the_package_for_any_target(self, n, d, zeta, seed):
        x, other = cloud(n, d, seed), np.cov(cloud(4 * d, d, seed + 10).T)
        theirs = float(IsoScore_star(x, torch.from_numpy(other), zeta))
        assert float(isoscore_star(np.cov(x.T), zeta, other)) == pytest.approx(theirs, abs=1e-7)

    @settings(deadline=None, max_examples=50)
    @given(eigenvalues, st.floats(0, 1))
    def test_default_target_follows_the_closed_form(self, spectrum, zeta):
        spectrum = np.array(spectrum)
        d, a = len(spectrum), (1 - zeta) ** 2
        pr = spectrum.sum() ** 2 / (spectrum**2).sum()
        expected = (1 / (a / pr + (1 - a) / d) - 1) / (d - 1)
        c = torch.diag(torch.from_numpy(spectrum))
        assert float(isoscore_star(c, zeta)) == pytest.approx(expected, abs=1e-12)
        explicit = torch.eye(d, dtype=torch.float64) * spectrum.mean()
        assert float(isoscore_star(c, zeta, explicit)) == pytest.approx(expected, abs=1e-12)

    @settings(deadline=None, max_examples=50)
    @given(eigenvalues, st.floats(0, 1), st.floats(-200, 200), st.integers(0, 99))
    def test_invariant_to_scale_and_rotation(self, spectrum, zeta, log_scale, seed):
        straight = float(isoscore_star(torch.diag(torch.tensor(spectrum, dtype=torch.float64)), zeta))
        assert float(isoscore_star(spectrum_covariance(spectrum, seed), zeta)) == pytest.approx(straight, abs=1e-12)
        scaled = spectrum_covariance(spectrum, seed) * 10.0**log_scale
        assert float(isoscore_star(scaled, zeta)) == pytest.approx(straight, abs=1e-12)

    def test_ends(self):
        c = spectrum_covariance([1, 2, 3, 9])
        assert float(isoscore_star(c, 0)) == pytest.approx(float(isoscore(c)), abs=1e-15)
        assert float(isoscore_star(c, 1)) == pytest.approx(1, abs=1e-15)

    def test_monotone_in_zeta(self):
        scores = [float(isoscore_star(spectrum_covariance([1, 2, 3, 9]), z)) for z in np.linspace(0, 1, 20)]
        assert np.all(np.diff(scores) > 0)

    def test_identity_target_hides_tiny_gradients(self):
        rank_one = spectrum_covariance([1e-12, 0, 0, 0])
        assert float(isoscore_star(rank_one, 0.1, torch.eye(4))) == pytest.approx(1, abs=1e-9)
        assert float(isoscore_star(rank_one, 0.1)) < 0.2

    @pytest.mark.parametrize("target", [None, spectrum_covariance([4, 1, 1, 2], seed=3)])
    def test_gradient_is_right(self, target):
        c = spectrum_covariance([1, 2, 3, 9]).requires_grad_()
        assert torch.autograd.gradcheck(lambda m: isoscore_star((m + m.T) / 2, 0.3, target), (c,))

    @pytest.mark.parametrize("zeta", [-0.1, 1.1, float("nan")])
    def test_refuses_zeta(self, zeta):
        with pytest.raises(ValueError, match="zeta is"):
            isoscore_star(torch.eye(3), zeta)

    def test_refuses_another_shape_of_target(self):
        with pytest.raises(ValueError, match=r"target has shape \(2, 2\) and covariance \(3, 3\)"):
            isoscore_star(torch.eye(3), 0.1, torch.eye(2))


class TestMeanCosine:
    @pytest.mark.parametrize(("n", "d", "seed"), [(2, 3, 0), (40, 5, 1), (5000, 4, 2)])
    def test_is_the_mean_over_pairs(self, n, d, seed):
        x = np.random.default_rng(seed).standard_normal((n, d)) + 0.3
        u = x / np.linalg.norm(x, axis=1, keepdims=True)
        gram = u @ u.T
        expected = (gram.sum() - np.trace(gram)) / (n * (n - 1))
        assert float(mean_cosine(x)) == pytest.approx(expected, abs=1e-13)

    def test_ends(self):
        assert float(mean_cosine(np.outer(np.arange(1, 6), [1.0, -2, 3]))) == pytest.approx(1, abs=1e-14)
        # The corners of a regular simplex are as far apart as n directions can be.
        simplex = np.eye(6) - 1 / 6
        assert float(mean_cosine(simplex)) == pytest.approx(-1 / 5, abs=1e-14)
        assert float(mean_cosine([[1.0, 0], [0, 1], [-1, 0], [0, -1]])) == pytest.approx(-1 / 3)

    @settings(deadline=None, max_examples=30)
    @given(st.integers(0, 999), st.floats(-150, 150))
    def test_invariant_to_row_scales_rotation_and_order(self, seed, log_scale):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((9, 4)) + 0.5
        rotated = x @ ortho_group.rvs(4, random_state=seed)
        scaled = rng.permutation(rotated * rng.uniform(0.1, 10, (9, 1))) * 10.0**log_scale
        assert float(mean_cosine(scaled)) == pytest.approx(float(mean_cosine(x)), abs=1e-12)

    def test_gradient_is_right(self):
        x = torch.from_numpy(cloud(6, 3, 0)).requires_grad_()
        assert torch.autograd.gradcheck(mean_cosine, (x,))

    def test_refuses_zero_rows(self):
        with pytest.raises(ValueError, match=r"x\[4500\] is zero"):
            mean_cosine(np.vstack([np.ones((4500, 2)), np.zeros((2, 2))]))

    def test_refuses_one_row(self):
        with pytest.raises(ValueError, match=r"x has shape \(1, 3\); at least 2 row"):
            mean_cosine(np.ones((1, 3)))

    def test_single_precision(self):
        x = cloud(300, 8, 0).astype(np.float32)
        assert float(mean_cosine(x)) == pytest.approx(float(mean_cosine(x.astype(np.float64))), abs=1e-14)


SCORES = [participation_ratio, isoscore, lambda c: isoscore_star(c, 0.2)]


class TestCovarianceInput:
    @pytest.mark.parametrize("score", SCORES)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_accumulates_in_float64_whatever_comes(self, score, dtype):
        c = spectrum_covariance([1, 2, 3, 9]).to(dtype)
        c = (c + c.T) / 2
        result = score(c)
        assert (result.shape, result.dtype) == ((), torch.float64)
        assert float(result) == pytest.approx(float(score(c.double())), abs=1e-15)

    @pytest.mark.parametrize("score", SCORES)
    def test_constant_columns_are_zero_eigenvalues(self, score):
        x = np.random.default_rng(0).standard_normal((100, 4))
        x[:, 2] = 7
        c = np.cov(x.T)
        kept = np.delete(np.delete(c, 2, 0), 2, 1)
        assert float(participation_ratio(c)) == pytest.approx(float(participation_ratio(kept)), rel=1e-14)
        assert np.isfinite(float(score(c)))

    @pytest.mark.parametrize("score", SCORES)
    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            (np.ones((2, 3)), r"covariance has shape \(2, 3\); it must be square"),
            (np.ones(3), r"covariance has shape \(3,\); it must be two-dimensional"),
            (np.ones((0, 0)), r"covariance has shape \(0, 0\)"),
            (np.zeros((3, 3)), "covariance is zero everywhere"),
            ([[1.0, np.nan], [np.nan, 1.0]], r"covariance\[0, 1\] is nan; .*\(2 are not\)"),
            ([[1.0, 0.0], [0.0, np.inf]], r"covariance\[1, 1\] is inf"),
            ([[1.0, 2.0], [0.0, 1.0]], "differs from its transpose by up to 2"),
            ([[1.0, 0.0], [0.0, -0.5]], "has -0.5 on its diagonal"),
            (np.eye(2) * 1j, "covariance is complex"),
        ],
    )
    def test_refuses(self, score, matrix, message):
        with pytest.raises(ValueError, match=message):
            score(matrix)

    @pytest.mark.parametrize("score", SCORES[1:])
    def test_refuses_one_dimension(self, score):
        with pytest.raises(ValueError, match="at least 2"):
            score([[1.0]])


class TestCosineByCoordinate:
    def brute_force(self, x, labels):
        units = x / x.norm(dim=1, keepdim=True)
        pairs = [(i, j) for i in range(len(x)) for j in range(len(x)) if labels[i] != labels[j]]
        return torch.stack([units[i] * units[j] for i, j in pairs]).mean(dim=0)

    @settings(deadline=None, max_examples=20)
    @given(st.integers(0, 999), st.integers(2, 12), st.integers(1, 5), st.integers(2, 4))
    def test_is_the_mean_over_pairs_with_different_labels(self, seed, n, d, kinds):
        random = torch.Generator().manual_seed(seed)
        x = torch.randn(n, d, generator=random, dtype=torch.float64)
        labels = torch.randint(kinds, (n,), generator=random)
        labels[0], labels[1] = 0, 1
        assert torch.allclose(cosine_by_coordinate(x, labels), self.brute_force(x, labels), atol=1e-12)

    def test_with_all_labels_different_it_sums_to_the_mean_cosine(self):
        x = torch.randn(9000, 7, generator=torch.Generator().manual_seed(0)) + 0.5
        total = cosine_by_coordinate(x, torch.arange(9000)).sum()
        assert float(total) == pytest.approx(float(mean_cosine(x)), rel=1e-12)

    def test_scale_of_a_row_does_not_count(self):
        x = torch.tensor([[1e-200, 0.0], [3e150, 3e150]], dtype=torch.float64)
        assert cosine_by_coordinate(x, torch.tensor([0, 1])).tolist() == pytest.approx([0.5**0.5, 0])

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (torch.tensor([1, 1]), "all 2 rows have the label 1"),
            (torch.tensor([1, 2, 3]), r"labels must be 2 integers, one a row; got torch.int64 of shape \(3,\)"),
            (torch.tensor([1.0, 2.0]), "labels must be 2 integers"),
        ],
    )
    def test_refuses_labels(self, labels, message):
        with pytest.raises(ValueError, match=message):
            cosine_by_coordinate(torch.eye(2), labels)
