import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anisotropy.geometry.moments import Moments

seeds = st.integers(0, 2**32 - 1)


def gaussian(seed: int, rows: int, d: int, offset: float = 0.0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(offset + random.standard_normal((rows, d)) @ random.standard_normal((d, d)))


def assert_same(left: Moments, right: Moments, scale: float) -> None:
    assert left.count == right.count
    torch.testing.assert_close(left.mean, right.mean, rtol=1e-12, atol=1e-12 * scale)
    torch.testing.assert_close(left.centred_scatter, right.centred_scatter, rtol=1e-9, atol=1e-9 * scale)


@given(seeds, st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 5), st.sampled_from([0.0, 100.0]))
def test_merging_any_split_equals_one_pass(seed: int, sizes: list[int], d: int, offset: float) -> None:
    x = gaussian(seed, sum(sizes), d, offset)
    whole, parts = Moments.of(x), x.split(sizes)
    scale = 1.0 + offset + float(whole.centred_scatter.abs().max())

    streamed = Moments(d)
    for part in parts:
        streamed.update(part)
    assert_same(streamed, whole, scale)

    assert_same(Moments.merged([Moments.of(part) for part in parts]), whole, scale)

    order = np.random.default_rng(seed).permutation(len(parts))
    tree = [Moments.of(parts[i]) for i in order]
    while len(tree) > 1:
        tree = [Moments.merged(tree[:2]), *tree[2:]]
    assert_same(tree[0], whole, scale)


@given(seeds, st.integers(2, 60), st.integers(1, 6))
def test_against_numpy(seed: int, n: int, d: int) -> None:
    x = gaussian(seed, n, d, offset=3.0)
    moments = Moments.of(x)
    assert moments.count == n
    np.testing.assert_allclose(moments.mean, x.numpy().mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(x.numpy().T).reshape(d, d), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moments.scatter, x.numpy().T @ x.numpy(), rtol=1e-10, atol=1e-9)


def test_a_million_rows_with_mean_a_million_keep_the_variance() -> None:
    """Column j cycles through 0 … m−1 (in steps of 2⁻¹⁰), so its variance is (m² − 1)/12 · 2⁻²⁰ exactly."""
    n, mean, periods = 1_000_000, 1e6, (1000, 625, 250, 8)
    k = torch.arange(n).unsqueeze(1) % torch.tensor(periods)
    x = mean + k.to(torch.float64) / 1024  # exact: 20 bits before the point, 10 after
    σ2 = torch.tensor([(m**2 - 1) / 12 / 2**20 for m in periods], dtype=torch.float64)

    halves = [Moments(4), Moments(4)]
    for number, chunk in enumerate(x.split(7_919)):
        halves[number % 2].update(chunk)
    moments = Moments.merged(halves)

    assert moments.count == n
    torch.testing.assert_close(moments.centred_scatter.diagonal() / n, σ2, rtol=1e-6, atol=0)
    torch.testing.assert_close(moments.covariance.diagonal(), σ2 * n / (n - 1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_accumulates_in_float64_whatever_the_rows_are(dtype: torch.dtype) -> None:
    """100,000 times a value and its neighbour: their squares do not fit the dtype, the moments are exact."""
    x = torch.tensor([[1024.0], [1032.0]]).to(dtype).repeat(50_000, 1)
    moments = Moments.of(x)
    assert moments.mean.dtype == moments.centred_scatter.dtype == torch.float64
    assert float(moments.mean) == 1028.0
    assert float(moments.centred_scatter) == 100_000 * 16.0
    assert float(moments.scatter) == 50_000 * (1024.0**2 + 1032.0**2)


def test_rows_may_come_as_a_model_yields_them_and_carry_a_graph() -> None:
    x = gaussian(0, 24, 3)
    flat = Moments.of(x)
    for shaped in (x.reshape(2, 3, 4, 3), x.clone().requires_grad_()):
        assert_same(Moments.of(shaped), flat, 1.0)
    assert not Moments.of(x.clone().requires_grad_()).mean.requires_grad


def test_a_single_vector_is_one_row() -> None:
    moments = Moments.of(torch.tensor([1.0, 2.0, 3.0]))
    assert moments.count == 1
    assert moments.mean.tolist() == [1.0, 2.0, 3.0]
    assert not moments.centred_scatter.any()


def test_empty_updates_change_nothing() -> None:
    x = gaussian(1, 10, 3)
    moments = Moments.of(x)
    moments.update(torch.zeros(0, 3))
    moments.update(torch.zeros(4, 0, 3))
    assert_same(moments, Moments.of(x), 1.0)
    assert_same(Moments.merged([Moments(3), Moments.of(x), Moments(3)]), Moments.of(x), 1.0)
    assert Moments.of(torch.zeros(0, 3)).count == 0
    assert Moments.merged([Moments(3), Moments(3)]).count == 0


def test_merging_leaves_the_parts_alone() -> None:
    parts = [Moments.of(gaussian(seed, 5, 2)) for seed in range(3)]
    before = [(part.count, part.mean.clone(), part.centred_scatter.clone()) for part in parts]
    total = Moments.merged(parts)
    total.update(gaussian(9, 5, 2))
    for part, (count, mean, scatter) in zip(parts, before, strict=True):
        assert part.count == count
        assert torch.equal(part.mean, mean)
        assert torch.equal(part.centred_scatter, scatter)


def test_nothing_is_added_when_rows_are_refused() -> None:
    moments = Moments.of(gaussian(2, 10, 3))
    untouched = Moments.of(gaussian(2, 10, 3))
    for bad in (float("nan"), float("inf"), float("-inf")):
        rows = gaussian(3, 10, 3)
        rows[4, 1] = bad
        with pytest.raises(ValueError, match="not finite"):
            moments.update(rows)
    both = gaussian(3, 2, 3)
    both[0, 0], both[1, 0] = float("inf"), float("-inf")
    with pytest.raises(ValueError, match="not finite"):
        moments.update(both)
    assert_same(moments, untouched, 0.0)


@pytest.mark.parametrize("shape", [(5, 2), (5, 4), (5, 0), (0,), (0, 2)])
def test_rows_of_another_dimension_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"dimension {shape[-1]}, these moments have 3"):
        Moments(3).update(torch.zeros(shape))


def test_errors() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Moments(0)
    with pytest.raises(ValueError, match="nothing to merge"):
        Moments.merged([])
    with pytest.raises(ValueError, match="dimension 2 into 3"):
        Moments.merged([Moments(3), Moments.of(torch.zeros(1, 2))])
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        _ = Moments.of(torch.zeros(1, 3)).covariance


def test_moments_that_were_kept_elsewhere_go_on_as_before():
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 3)))
    whole, half = Moments.of(rows), Moments.of(rows[:25])
    back = Moments.from_sums(half.count, half.mean, half.centred_scatter)
    back.update(rows[25:])
    assert back.count == 40
    torch.testing.assert_close(back.covariance, whole.covariance)
    torch.testing.assert_close(back.mean, whole.mean)


@pytest.mark.parametrize(("count", "mean", "scatter"), [(-1, (3,), (3, 3)), (2, (3,), (2, 2)), (2, (3, 1), (3, 3))])
def test_sums_that_are_no_moments(count, mean, scatter):
    with pytest.raises(ValueError, match="are no moments"):
        Moments.from_sums(count, torch.zeros(mean), torch.zeros(scatter))
