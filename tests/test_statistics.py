import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from anisotropy.statistics import (
    block_multiplicities,
    bootstrap_blocks,
    correlation,
    permutation_null,
    sign_test,
)


def gaussian_pairs(n, rho, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return x, rho * x + np.sqrt(1 - rho**2) * rng.standard_normal(n)


def pearson(x, y):
    return float(np.corrcoef(x, y)[0, 1])


class TestCorrelation:
    @pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
    @pytest.mark.parametrize("rho", [-0.7, 0.0, 0.95])
    def test_pearson_is_scipys(self, rho, confidence):
        x, y = gaussian_pairs(37, rho, 0)
        ours, theirs = correlation(x, y, confidence=confidence), stats.pearsonr(x, y)
        interval = theirs.confidence_interval(confidence)
        assert (ours.estimate, ours.n, ours.kind) == (pytest.approx(theirs.statistic), 37, "pearson")
        assert (ours.low, ours.high) == (pytest.approx(interval.low), pytest.approx(interval.high))

    def test_spearman_interval_is_bonett_and_wrights(self):
        # Ranks (1, 2, 3, 5, 4, 6) against 1…6: Σd² = 2, ρ = 1 − 6·2/(6·35) = 33/35.
        ours = correlation([1, 2, 3, 4, 5, 6], [1, 2, 3, 50, 40, 600], kind="spearman")
        rho = 33 / 35
        half = 1.959963984540054 * np.sqrt((1 + rho**2 / 2) / 3)
        assert ours.estimate == pytest.approx(rho, abs=1e-14)
        assert ours.low == pytest.approx(np.tanh(np.arctanh(rho) - half), abs=1e-12)
        assert ours.high == pytest.approx(np.tanh(np.arctanh(rho) + half), abs=1e-12)

    @pytest.mark.parametrize("kind", ["pearson", "spearman"])
    def test_intervals_cover(self, kind):
        rho = 0.6
        truth = rho if kind == "pearson" else 6 / np.pi * np.arcsin(rho / 2)
        covered = 0
        for seed in range(400):
            result = correlation(*gaussian_pairs(60, rho, seed), kind=kind)
            covered += result.low <= truth <= result.high
        # Binomial(400, 0.95) has SD 4.4: 95 % ± 3.3 SD, a little wider for the leading-order standard errors.
        assert 362 <= covered <= 396

    @settings(deadline=None, max_examples=50)
    @given(
        st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=4, max_size=30),
        st.sampled_from(["pearson", "spearman"]),
        st.floats(0.01, 100),
    )
    def test_symmetric_and_scale_free(self, pairs, kind, scale):
        x, y = np.array(pairs, dtype=float).T
        ours, swapped, scaled = (correlation(*p, kind=kind) for p in [(x, y), (y, x), (scale * x + 3, -y)])
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            assert all(np.isnan([ours.estimate, ours.low, ours.high]))
            return
        assert swapped.estimate == pytest.approx(ours.estimate, abs=1e-12)
        assert scaled.estimate == pytest.approx(-ours.estimate, abs=1e-9)
        assert -1 <= ours.low <= ours.estimate <= ours.high <= 1

    def test_perfect_association_has_no_width(self):
        x = np.array([0.1, 0.7, 0.2, 0.9, 0.5])
        rising, falling = correlation(x, 3 * x + 1), correlation(x, -(x**3), kind="spearman")
        assert (rising.low, rising.estimate, rising.high) == (1, 1, 1)
        assert (falling.low, falling.estimate, falling.high) == (-1, -1, -1)

    @pytest.mark.parametrize("kind", ["pearson", "spearman"])
    def test_constant_input_is_nan(self, kind):
        for pair in [([1, 2, 3, 4], [7, 7, 7, 7]), ([0.1] * 5, range(5))]:
            result = correlation(*pair, kind=kind)
            assert all(np.isnan([result.estimate, result.low, result.high]))
            assert result.n == len(pair[0])

    @pytest.mark.parametrize(
        ("x", "y", "options", "message"),
        [
            ([1, 2, 3], [1, 2, 4], {}, "got 3 pairs; .* at least 4"),
            ([1, 2, 3, 4], [1, 2, 3], {}, "x has 4 values and y has 3"),
            ([1, 2, np.nan, 4], [1, 2, 3, 4], {}, r"x\[2\] is nan"),
            ([1, 2, 3, 4], [1, 2, 3, -np.inf], {}, r"y\[3\] is -inf"),
            ([[1, 2], [3, 4]], [1, 2, 3, 4], {}, r"x has shape \(2, 2\)"),
            ([1, 2, 3, 4], [1, 2, 4, 3], {"kind": "kendall"}, "kind is 'kendall'"),
            ([1, 2, 3, 4], [1, 2, 4, 3], {"confidence": 95}, "confidence is 95"),
        ],
    )
    def test_refuses(self, x, y, options, message):
        with pytest.raises(ValueError, match=message):
            correlation(x, y, **options)


class TestPermutationNull:
    def test_agrees_with_the_exact_permutation_distribution(self):
        x, y = gaussian_pairs(6, 0.8, 3)
        exact = stats.permutation_test((y,), lambda z: pearson(x, z), permutation_type="pairings", n_resamples=np.inf)
        ours = permutation_null(pearson, x, y, draws=4000, seed=0)
        assert ours.estimate == pytest.approx(pearson(x, y))
        assert ours.p_value == pytest.approx(exact.pvalue, abs=4 * np.sqrt(exact.pvalue / 4000) * 2)
        assert ours.draws.shape == (4000,)

    def test_floor(self):
        x = np.arange(50.0)
        assert permutation_null(pearson, x, x, draws=19, seed=1).p_value == 2 / 20
        assert permutation_null(pearson, x, -x, draws=19, seed=1).p_value == 2 / 20

    def test_ties_count_on_both_sides(self):
        result = permutation_null(lambda a, b: float(b.sum()), np.arange(5), np.array([0.1, 0.2, 0.3, 1e9, 7]), 30, 0)
        assert result.p_value == 1

    def test_uniform_without_association(self):
        p_values = [permutation_null(pearson, *gaussian_pairs(20, 0, s), draws=99, seed=s).p_value for s in range(200)]
        assert stats.kstest(p_values, "uniform").pvalue > 0.01

    def test_interval_is_the_central_95_percent_of_the_null(self):
        # Under permutation Pearson's r has mean 0 and variance exactly 1/(n − 1).
        n = 101
        result = permutation_null(pearson, *gaussian_pairs(n, 0.9, 0), draws=4000, seed=5)
        assert result.draws.mean() == pytest.approx(0, abs=4 * 0.1 / np.sqrt(4000))
        assert result.draws.std() == pytest.approx(0.1, rel=0.05)
        assert (result.low, result.high) == (pytest.approx(-0.196, abs=0.012), pytest.approx(0.196, abs=0.012))

    def test_permutes_rows_whole(self):
        rows = np.arange(12.0).reshape(6, 2)
        seen = []
        permutation_null(lambda a, b: seen.append(b) or 0.0, rows, rows, draws=5, seed=0)
        assert all(np.array_equal(b[:, 1] - b[:, 0], np.ones(6)) for b in seen)
        assert all(sorted(b[:, 0]) == list(rows[:, 0]) for b in seen)

    @pytest.mark.parametrize(
        ("statistic", "x", "y", "draws", "message"),
        [
            (pearson, [1, 2, 3], [1, 2], 9, r"x has shape \(3,\) and y has shape \(2,\)"),
            (pearson, 1, 2, 9, r"x has shape \(\)"),
            (pearson, [1], [2], 9, "got 1 unit"),
            (pearson, [1, 2, 3], [1, 3, 2], 0, "draws is 0"),
            (lambda a, b: np.nan, [1, 2, 3], [1, 3, 2], 9, "the statistic is nan on the data"),
            (lambda a, b: b, [1, 2, 3], [1, 3, 2], 9, r"the statistic returned shape \(3,\)"),
        ],
    )
    def test_refuses(self, statistic, x, y, draws, message):
        with pytest.raises(ValueError, match=message):
            permutation_null(statistic, x, y, draws, 0)


class TestBootstrapBlocks:
    def test_spread_of_a_mean_is_the_closed_form(self):
        values = np.random.default_rng(0).exponential(size=20)
        result = bootstrap_blocks(values, seed=1, draws=8000)
        assert (result.estimate, result.blocks) == (pytest.approx(values.mean()), 20)
        # The resampled mean has variance Σ(v − v̄)²/B², without Bessel's correction.
        assert result.draws.std() == pytest.approx(values.std() / np.sqrt(20), rel=0.04)
        assert result.low < result.estimate < result.high

    def test_two_blocks_exactly(self):
        result = bootstrap_blocks([0.0, 1.0], seed=0, draws=4000)
        shares = [(result.draws == v).mean() for v in (0, 0.5, 1)]
        assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
        assert (result.low, result.high) == (0, 1)

    def test_covers(self):
        rng = np.random.default_rng(0)
        results = [bootstrap_blocks(rng.standard_normal(40), seed=s, draws=200) for s in range(300)]
        covered = sum(r.low <= 0 <= r.high for r in results)
        assert 263 <= covered <= 295

    def test_indices_and_values_are_the_same_resamples(self):
        values = np.random.default_rng(2).standard_normal((9, 3))
        by_value = bootstrap_blocks(values, lambda v: v.sum(), seed=4, draws=50)
        by_index = bootstrap_blocks(9, lambda i: values[i].sum(), seed=4, draws=50)
        assert np.array_equal(by_value.draws, by_index.draws)
        assert by_value.estimate == by_index.estimate

    def test_pairing_is_kept(self):
        a = np.random.default_rng(0).standard_normal(12)
        result = bootstrap_blocks(12, lambda i: (a[i] + 1).mean() - a[i].mean(), seed=0, draws=100)
        assert np.ptp(result.draws) < 1e-12

    def test_float32_blocks_are_averaged_in_float64(self):
        values = np.full(10, 0.1, dtype=np.float32)
        assert bootstrap_blocks(values, seed=0, draws=3).estimate == float(np.float32(0.1))

    @pytest.mark.parametrize(
        ("blocks", "statistic", "options", "message"),
        [
            ([1.0], None, {}, r"got 1 block\(s\)"),
            ([], None, {}, r"got 0 block\(s\)"),
            (1, lambda i: 0.0, {}, r"got 1 block\(s\)"),
            (5, None, {}, "a statistic of block indices is needed"),
            (2.5, None, {}, "blocks is 2.5"),
            ([[1.0, 2.0], [3.0, 4.0]], None, {}, r"shape \(2, 2\), whose mean is not one number"),
            ([[1.0, 2.0], [3.0, np.nan]], np.sum, {}, r"blocks\[\(1, 1\)\] is nan"),
            ([1.0, np.inf], None, {}, r"blocks\[1\] is inf"),
            ([1.0, 2.0], lambda v: np.nan, {}, "the statistic is nan on all blocks"),
            ([1.0, 2.0], lambda v: 0 if np.ptp(v) else np.inf, {}, "the statistic is inf on resample"),
            ([1.0, 2.0], None, {"draws": 0}, "draws is 0"),
            ([1.0, 2.0], None, {"confidence": 1}, "confidence is 1"),
        ],
    )
    def test_refuses(self, blocks, statistic, options, message):
        with pytest.raises(ValueError, match=message):
            bootstrap_blocks(blocks, statistic, seed=0, **options)


class TestSignTest:
    @pytest.mark.parametrize("n", [1, 5, 12])
    def test_all_positive(self, n):
        result = sign_test(np.arange(1, n + 1))
        assert (result.p_value, result.positive, result.n, result.ties) == (pytest.approx(2.0**-n), n, n, 0)

    def test_counts_by_hand(self):
        # P(Binomial(5, ½) ≥ 4) = (5 + 1)/32.
        result = sign_test([0.5, 1, 0, 2, -1, 3, 0])
        assert (result.p_value, result.positive, result.n, result.ties) == (pytest.approx(6 / 32), 4, 5, 2)

    def test_all_negative_is_one(self):
        assert sign_test([-1, -2, -3]).p_value == 1

    def test_only_ties_is_no_evidence(self):
        result = sign_test([0, 0, 0.0])
        assert (result.p_value, result.positive, result.n, result.ties) == (1, 0, 0, 3)

    @pytest.mark.parametrize(
        ("values", "message"), [([], "differences is empty"), ([1, np.nan], r"differences\[1\] is nan")]
    )
    def test_refuses(self, values, message):
        with pytest.raises(ValueError, match=message):
            sign_test(values)


class TestRandomness:
    def test_seeds_decide_and_global_state_is_left_alone(self):
        x, y = gaussian_pairs(15, 0.3, 0)
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        for call in [lambda s: permutation_null(pearson, x, y, 20, s), lambda s: bootstrap_blocks(x, seed=s, draws=20)]:
            assert np.array_equal(call(1).draws, call(1).draws)
            assert not np.array_equal(call(1).draws, call(2).draws)
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002

    def test_import_needs_numpy_only(self):
        code = "import sys, anisotropy.statistics; print([m for m in ('scipy', 'torch', 'pandas') if m in sys.modules])"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


class TestBlockMultiplicities:
    def test_first_row_is_the_sample_and_every_row_has_as_many_blocks(self) -> None:
        found = block_multiplicities(7, 400, seed=3)
        assert found.shape == (401, 7)
        assert (found[0] == 1).all()
        assert (found.sum(1) == 7).all()
        np.testing.assert_array_equal(found, block_multiplicities(7, 400, seed=3))
        assert (found != block_multiplicities(7, 400, seed=4)).any()

    def test_a_mean_has_the_bootstraps_spread(self) -> None:
        """The bootstrap's standard deviation of a mean is the population one over √B, whichever way it is drawn."""
        values = np.random.default_rng(0).normal(size=12)
        means = block_multiplicities(12, 20_000, seed=1)[1:] @ values / 12
        assert means.std() == pytest.approx(values.std() / np.sqrt(12), rel=0.03)
        other = bootstrap_blocks(values, seed=2, draws=4000)
        assert np.quantile(means, 0.975) == pytest.approx(other.high, abs=0.05)

    @pytest.mark.parametrize(("blocks", "draws", "message"), [(1, 10, "at least 2"), (5, 0, "draws is 0")])
    def test_too_few(self, blocks: int, draws: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            block_multiplicities(blocks, draws, seed=0)
