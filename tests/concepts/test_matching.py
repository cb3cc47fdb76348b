from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import ortho_group

from anisotropy.concepts.matching import absolute_correlations, match, matched_pairs, rotated_baseline


def concepts(k, d, seed):
    return np.random.default_rng(seed).standard_normal((k, d))


def with_correlations(values, d=40, seed=0):
    """Two sets of concepts whose i-th members correlate at values[i], and others not at all."""
    frame = np.random.default_rng(seed).standard_normal((2 * len(values), d))
    frame -= frame.mean(axis=1, keepdims=True)
    first, second = np.split(np.linalg.qr(frame.T)[0].T, 2)
    r = np.array(values)[:, None]
    return first, r * first + np.sqrt(1 - r**2) * second


class TestAbsoluteCorrelations:
    def test_is_scipys_pearson(self):
        a, b = concepts(4, 12, 0) + 3, concepts(5, 12, 1)
        expected = [[abs(stats.pearsonr(x, y).statistic) for y in b] for x in a]
        assert absolute_correlations(a, b) == pytest.approx(np.array(expected), abs=1e-13)

    def test_constant_concepts_match_nothing(self):
        a = np.vstack([concepts(2, 9, 0), np.zeros((1, 9)), np.full((1, 9), 0.1)])
        assert not absolute_correlations(a, concepts(3, 9, 1))[2:].any()
        assert absolute_correlations(a, a)[0, 0] == pytest.approx(1)

    @settings(deadline=None, max_examples=25)
    @given(st.integers(0, 999), st.floats(-250, 250), st.floats(-100, 100))
    def test_invariant_to_scale_sign_and_shift(self, seed, log_scale, shift):
        a, b = concepts(3, 8, seed), concepts(4, 8, seed + 1)
        moved = -(a + shift) * 10.0**log_scale
        assert absolute_correlations(moved, b) == pytest.approx(absolute_correlations(a, b), abs=1e-10)

    def test_single_precision(self):
        a, b = concepts(3, 50, 0).astype(np.float32), concepts(3, 50, 1).astype(np.float32)
        wide = absolute_correlations(a.astype(np.float64), b.astype(np.float64))
        assert np.array_equal(absolute_correlations(a, b), wide)

    @pytest.mark.parametrize(
        ("a", "b", "message"),
        [
            (np.ones(3), np.ones((2, 3)), r"a has shape \(3,\)"),
            (np.ones((2, 3)), np.ones((0, 3)), r"b has shape \(0, 3\)"),
            (np.ones((2, 1)), np.ones((2, 1)), r"a has shape \(2, 1\); .* d ≥ 2"),
            (np.ones((2, 3)), np.ones((2, 4)), r"a lives in R\^3 and b in R\^4"),
            ([[1.0, np.nan], [0, 0]], np.ones((2, 2)), r"a\[0, 1\] is nan; .*\(1 are not\)"),
        ],
    )
    def test_refuses(self, a, b, message):
        with pytest.raises(ValueError, match=message):
            absolute_correlations(a, b)


class TestMatchedPairs:
    @settings(deadline=None, max_examples=30)
    @given(st.integers(0, 9999), st.integers(1, 5), st.integers(1, 5))
    def test_no_assignment_is_better(self, seed, rows, columns):
        table = np.random.default_rng(seed).random((rows, columns))
        first, second, values = matched_pairs(table)
        if rows > columns:
            table = table.T
        best = max(sum(table[i, j] for i, j in enumerate(p)) for p in permutations(range(table.shape[1]), len(table)))
        assert values.sum() == pytest.approx(best)
        assert len(set(first)) == len(set(second)) == min(rows, columns)
        assert (np.diff(values) <= 0).all()


class TestMatch:
    def test_summaries_by_hand(self):
        a, b = with_correlations([0.9, 0.2, 0.8, 0.1])
        result = match(a, b, top=3)
        assert result.correlations == pytest.approx([0.9, 0.8, 0.2, 0.1])
        assert result.first.tolist() == result.second.tolist() == [0, 2, 1, 3]
        assert (result.mean, result.top) == (pytest.approx(0.5), pytest.approx(1.9 / 3))
        assert (result.above_gap, result.gap_count) == (pytest.approx(0.85), 2)

    @settings(deadline=None, max_examples=20)
    @given(st.integers(0, 999))
    def test_invariant_to_order_and_sign(self, seed):
        rng = np.random.default_rng(seed)
        a, b = concepts(6, 15, seed), concepts(6, 15, seed + 1)
        moved = rng.permutation(b) * rng.choice([-1, 1], (6, 1))
        assert match(a, moved).correlations == pytest.approx(match(a, b).correlations, abs=1e-12)

    def test_itself(self):
        a = concepts(7, 20, 0)
        result = match(a, a[::-1])
        assert result.correlations == pytest.approx(np.ones(7))
        assert (result.first + result.second == 6).all()

    def test_different_numbers(self):
        a, b = concepts(3, 20, 0), concepts(8, 20, 1)
        assert len(match(a, b).correlations) == 3
        assert match(b, a).mean == pytest.approx(match(a, b).mean)

    def test_one_pair(self):
        result = match(concepts(1, 9, 0), concepts(1, 9, 1))
        assert result.mean == result.top == result.above_gap == result.correlations[0]
        assert result.gap_count == 1

    def test_top_takes_ten_or_all(self):
        a, b = concepts(12, 30, 0), concepts(12, 30, 1)
        result = match(a, b)
        assert result.top == pytest.approx(result.correlations[:10].mean())
        assert match(a[:4], b).top == match(a[:4], b).mean

    def test_refuses_top(self):
        with pytest.raises(ValueError, match="top is 0"):
            match(concepts(2, 5, 0), concepts(2, 5, 1), top=0)


class TestRotatedBaseline:
    @pytest.mark.parametrize("d", [128, 768])
    def test_floor(self, d):
        # The documented 2.3/√d for 50 concepts, raised by looking at the best ten.
        baseline = rotated_baseline(concepts(50, d, 0), concepts(50, d, 1), draws=5, seed=0)
        assert baseline.mean.mean() * np.sqrt(d) == pytest.approx(2.3, abs=0.1)
        assert (baseline.top > baseline.mean).all()
        assert (baseline.above_gap >= baseline.mean).all()

    def test_is_matching_with_a_rotated_copy(self):
        # Of concepts that differ by known lengths and angles a rotation keeps every inner product.
        a, b = concepts(4, 9, 0), concepts(3, 9, 1)
        rotations = ortho_group.rvs(9, size=400, random_state=0)
        plain = np.array([match(a, b @ r).mean for r in rotations])
        ours = rotated_baseline(a, b, draws=400, seed=1).mean
        assert stats.ks_2samp(plain, ours).pvalue > 0.01

    def test_one_against_one_is_the_distribution_of_a_correlation(self):
        # b stays orthogonal to no direction in particular, so r² ~ Beta(1/2, (d − 2)/2) for its part across the mean.
        d = 6
        draws = rotated_baseline(concepts(1, d, 0), concepts(1, d, 1), draws=800, seed=0).mean
        assert stats.kstest(draws**2, stats.beta(0.5, (d - 2) / 2).cdf).pvalue > 0.01

    def test_aligned_concepts_exceed_it(self):
        a, b = with_correlations([0.9] * 12, d=80)
        baseline = rotated_baseline(a, b, draws=20, seed=0)
        found = match(a, b)
        assert found.mean > baseline.mean.max()
        assert found.top > baseline.top.max()
        assert found.above_gap > baseline.above_gap.max()

    def test_more_concepts_than_dimensions(self):
        baseline = rotated_baseline(concepts(5, 3, 0), concepts(6, 3, 1), draws=3, seed=0)
        assert baseline.mean.shape == (3,)

    def test_seed_decides(self):
        a, b = concepts(3, 9, 0), concepts(3, 9, 1)
        one, again, other = (rotated_baseline(a, b, draws=4, seed=s).mean for s in (1, 1, 2))
        assert np.array_equal(one, again)
        assert not np.array_equal(one, other)

    def test_refuses_draws(self):
        with pytest.raises(ValueError, match="draws is 0"):
            rotated_baseline(concepts(2, 5, 0), concepts(2, 5, 1), draws=0, seed=0)
