"""The local tangent model: closed forms, bounds, both counterexamples, the repairs and where they stop."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from anisotropy.geometry.gradients import (
    Example,
    Upstream,
    cauchy_schwarz,
    energies,
    exact_energies,
    exact_gradient,
    scaling_exponents,
    standard_errors,
    weight_gradient,
)
from anisotropy.geometry.patches import Patch, kurtosis, moment, patch_covariance, positive_moment, sample

LAWS = ("gaussian", "bounded", "skewed", "two-point")
SYMMETRIC = ("gaussian", "bounded", "two-point")
N = 200_000
PARABOLA = Patch.curve(2.0)  # x = (u, u²), the curve of both counterexamples
RELU = Upstream(relu=1.0)


def slope(scales, ratios):
    found = scaling_exponents(scales, ratios)
    assert found == pytest.approx(np.polyfit(np.log(scales), np.log(ratios), 1)[0])
    return float(found)


SCALES = np.geomspace(0.003, 0.1, 6)


# Laws and patches


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("dimension", [1, 3])
def test_every_law_has_the_scale_and_the_kurtosis_it_says(law, dimension):
    scale = 0.4
    u = sample(law, N, dimension, scale, seed=1)
    squares = (u**2).sum(1)
    for values, expected in (
        (squares, scale**2),
        (squares**2, kurtosis(law, dimension, scale) * scale**4),
    ):
        assert abs(values.mean() - expected) < 4.5 * values.std() / sqrt(N)
    off = np.cov(u.T).reshape(dimension, dimension) - np.eye(dimension) * scale**2 / dimension
    assert np.abs(off).max() < 0.02 * scale**2
    assert np.abs(u.mean(0)).max() < 4.5 * scale / sqrt(N)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_moments_of_the_laws(law, order):
    u = sample(law, N, 1, 0.5, seed=2)[:, 0]
    for values, expected in (
        (u**order, moment(law, order, 0.5)),
        (np.maximum(u, 0) ** order, positive_moment(law, order, 0.5)),
    ):
        assert abs(values.mean() - expected) < 4.5 * values.std() / sqrt(N) + 1e-15


def test_skewed_moments_are_those_of_a_centred_exponential():
    assert [moment("skewed", order, 1.0) for order in range(7)] == [1, 0, 1, 2, 9, 44, 265]


def test_one_dimensional_kurtosis_is_the_fourth_moment():
    for law in LAWS:
        assert kurtosis(law, 1, 0.3) * 0.3**4 == pytest.approx(moment(law, 4, 0.3))


def test_draws_depend_on_the_seed_alone():
    assert np.array_equal(sample("gaussian", 5, 2, 1.0, 3), sample("gaussian", 5, 2, 1.0, 3))
    assert not np.array_equal(sample("gaussian", 5, 2, 1.0, 3), sample("gaussian", 5, 2, 1.0, 4))


def test_a_circle_has_its_curvature_as_patch():
    """The parabola with II = 1/R leaves the circle of radius R at order u⁴/8R³."""
    radius, u = 2.0, np.linspace(-0.2, 0.2, 9)[:, None]
    height = radius - np.sqrt(radius**2 - u**2)
    assert np.abs(Patch.curve(1 / radius).bend(u) - height).max() <= 0.2**4 / (8 * radius**3) * 1.05


def test_curvature_is_the_largest_normal_curvature():
    assert Patch([np.diag([1.0, -3.0])]).curvature == 3
    patch = Patch.random(3, 2, 1.7, seed=0)
    v = np.random.default_rng(1).standard_normal((50_000, 3))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    reached = np.linalg.norm(2 * patch.bend(v), axis=1).max()
    assert patch.curvature == pytest.approx(1.7)
    assert 1.7 * 0.995 < reached <= 1.7 * (1 + 1e-9)


def test_two_normals_share_a_rotated_curvature():
    """II(v, v) = (cos 2θ, sin 2θ) has length 1 in every direction v."""
    patch = Patch([[[1.0, 0], [0, -1]], [[0, 1.0], [1, 0]]])
    assert patch.curvature == pytest.approx(1)


@pytest.mark.parametrize("law", LAWS)
def test_mean_and_covariance_of_a_patch(law):
    patch = Patch.random(3, 2, 1.0, seed=5)
    patch = Patch(patch.forms, base=[1.0, 2, 3, 4, 5])
    x = patch.points(sample(law, N, 3, 0.6, seed=6))
    assert np.abs(x.mean(0) - patch.mean(0.6)).max() < 5 * x.std(0).max() / sqrt(N)
    expected, found = patch_covariance(patch, law, 0.6), np.cov(x.T)
    centred = x - x.mean(0)
    error = np.sqrt(np.maximum(((centred**2).T @ centred**2) / N - found**2, 0) / N)
    assert (np.abs(found - expected) < 5 * error + 1e-12).all()


def test_share_of_normal_variance_of_a_gaussian_curve():
    for curvature, scale in ((1.0, 0.1), (3.0, 0.5)):
        cov = patch_covariance(Patch.curve(curvature), "gaussian", scale)
        assert cov[1, 1] / cov[0, 0] == pytest.approx(curvature**2 * scale**2 / 2)


# The split and its bounds


def test_the_parts_add_up_to_the_gradient():
    patch = Patch(Patch.random(3, 2, 1.0, seed=0).forms, base=[1.0, -1, 0, 2, 0.5])
    u = sample("skewed", 500, 3, 0.3, seed=1)
    g = np.random.default_rng(2).standard_normal((500, 4))
    x = patch.points(u)
    assert np.allclose(weight_gradient(g, u, patch).matrix, g.T @ x / 500)
    centred = weight_gradient(g, u, patch, centred=True)
    assert not centred.base.any()
    assert np.allclose(centred.matrix, (g - g.mean(0)).T @ (x - x.mean(0)) / 500)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.01, 0.5])
def test_the_two_bounds_hold_on_every_sample(law, scale):
    patch = Patch.random(3, 2, 2.0, seed=3)
    u = sample(law, 400, 3, scale, seed=4)
    random = np.random.default_rng(5)
    for g in (random.standard_normal((400, 2)), u @ random.standard_normal((3, 2)), np.abs(u), np.exp(u)):
        found, bounds = weight_gradient(g, u, patch), cauchy_schwarz(g, u, patch)
        assert np.linalg.norm(found.tangent) <= bounds.tangent * (1 + 1e-12)
        assert np.linalg.norm(found.normal) <= bounds.normal * (1 + 1e-12)
        assert 0 <= bounds.alignment <= 1 + 1e-12
        assert found.ratio <= bounds.ratio * (1 + 1e-9)


def test_both_bounds_are_reached():
    """g = u fills the tangent one, g = u² the normal one."""
    patch = Patch.curve(1.3)
    u = sample("gaussian", 300, 1, 0.4, seed=0)
    assert weight_gradient(u, u, patch).tangent.item() == pytest.approx(cauchy_schwarz(u, u, patch).tangent)
    assert weight_gradient(u**2, u, patch).normal.item() == pytest.approx(cauchy_schwarz(u**2, u, patch).normal)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(
    "upstream",
    [Upstream((1.0,)), Upstream((0.0, 0.0, 1.0)), Upstream((1.0, 2.0)), RELU, Upstream((0.5, -1.0, 0.3), relu=2.0)],
    ids=["1", "u²", "1+2u", "relu", "all"],
)
def test_closed_forms_agree_with_samples(law, centred, upstream):
    patch = Patch.curve(1.4, base=[0.7, -0.2])
    u = sample(law, N, 1, 0.5, seed=7)
    g = upstream(u)
    found, expected = weight_gradient(g, u, patch, centred), exact_gradient(upstream, law, 0.5, patch, centred)
    error = standard_errors(g, u, patch, centred)
    for part in ("base", "tangent", "normal"):
        assert (np.abs(getattr(found, part) - getattr(expected, part)) < 4.5 * getattr(error, part) + 1e-4).all(), part
    for part, values in (("tangent", g**2 * u**2), ("normal", g**2 * patch.bend(u) ** 2)):
        assert getattr(energies(g, u, patch), part) == pytest.approx(values.mean())
        error = values.std() / sqrt(N)
        assert abs(values.mean() - getattr(exact_energies(upstream, law, 0.5, patch), part)) < 5 * error


def test_standard_errors_are_the_spread_over_seeds():
    patch, upstream = Patch.curve(1.0, base=[1.0, 0.0]), Upstream((1.0, 2.0))
    for centred in (False, True):
        runs = [sample("gaussian", 400, 1, 0.5, seed=seed) for seed in range(400)]
        found = [weight_gradient(upstream(u), u, patch, centred) for u in runs]
        stated = [standard_errors(upstream(u), u, patch, centred) for u in runs]
        for part in ("tangent", "normal"):
            spread = np.std([getattr(f, part) for f in found])
            assert np.mean([getattr(s, part) for s in stated]) == pytest.approx(spread, rel=0.12)


# Counterexamples


@pytest.mark.parametrize("law", SYMMETRIC)
def test_first_counterexample(law):
    """x = (u, u²), W = 0, loss ½(y + 1)²: g = 1. No tangent gradient, a normal one, and centring removes it."""
    u = sample(law, N, 1, 0.3, seed=8)
    g = np.zeros((N, 1)) - np.full((N, 1), -1.0)  # Wx − target
    found, error = weight_gradient(g, u, PARABOLA), standard_errors(g, u, PARABOLA)
    assert abs(found.tangent.item()) < 4 * error.tangent.item()
    assert found.normal.item() > 20 * error.normal.item()
    assert exact_gradient(Upstream((1.0,)), law, 0.3, PARABOLA).ratio == np.inf
    centred = weight_gradient(g, u, PARABOLA, centred=True)
    assert np.abs(centred.matrix).max() < 1e-12
    assert np.isnan(exact_gradient(Upstream((1.0,)), law, 0.3, PARABOLA, centred=True).ratio)


@pytest.mark.parametrize("law", SYMMETRIC)
@pytest.mark.parametrize("centred", [False, True])
def test_second_counterexample_survives_centring(law, centred):
    """Target −u²: g = u²."""
    u = sample(law, N, 1, 0.3, seed=9)
    g = 0 * u - (-1) * u**2  # Wx − target
    found, error = weight_gradient(g, u, PARABOLA, centred), standard_errors(g, u, PARABOLA, centred)
    assert abs(found.tangent.item()) < 4 * error.tangent.item()
    assert found.normal.item() > 20 * error.normal.item()
    assert exact_gradient(Upstream((0.0, 0.0, 1.0)), law, 0.3, PARABOLA, centred).ratio == np.inf


def test_skewed_tangents_have_a_counterexample_too():
    """g = u² − 2σu: Cov(g, u) = E[u³] − 2σE[u²] = 0 under the skewed law."""
    upstream = Upstream((0.0, -2 * 0.3, 1.0))
    found = exact_gradient(upstream, "skewed", 0.3, PARABOLA, centred=True)
    assert found.tangent.item() == pytest.approx(0, abs=1e-15)
    assert found.normal.item() > 0


# Repairs


@pytest.mark.parametrize("law", ["gaussian", "bounded", "skewed"])
def test_repair_1_alignment_and_moments(law):
    """g = max(u, 0) keeps its alignment γ at every σ: the ratio is of order σ, below √K κσ/2γ."""
    patch, ratios = Patch.curve(1.5), []
    for scale in SCALES:
        u = sample(law, N, 1, scale, seed=10)
        found, bounds = weight_gradient(RELU(u), u, patch), cauchy_schwarz(RELU(u), u, patch)
        ratios.append(found.ratio)
        assert found.ratio <= bounds.ratio
        assert bounds.alignment > 0.7
        exact = exact_gradient(RELU, law, scale, patch).ratio
        strength = sqrt(RELU.energy(0, law, scale))
        c = exact_gradient(RELU, law, scale, patch).tangent.item() / (strength * scale)
        assert exact <= sqrt(kurtosis(law, 1, scale)) * 1.5 * scale / (2 * c)
        assert found.ratio == pytest.approx(exact, rel=0.03)
    assert slope(SCALES, ratios) == pytest.approx(1, abs=0.02)
    if law == "gaussian":
        assert ratios == pytest.approx(1.5 * SCALES * sqrt(2 / np.pi), rel=0.03)


def test_repair_1_needs_bounded_kurtosis():
    """With two points, K = 1/σ, the alignment is the same and the ratio ½κ√σ."""
    patch, ratios = Patch.curve(1.5), []
    for scale in SCALES:
        u = sample("two-point", N, 1, scale, seed=11)
        ratios.append(weight_gradient(RELU(u), u, patch).ratio)
        assert exact_gradient(RELU, "two-point", scale, patch).ratio == pytest.approx(0.75 * sqrt(scale))
        strength = sqrt(RELU.energy(0, "two-point", scale))
        assert exact_gradient(RELU, "two-point", scale, patch).tangent.item() / (strength * scale) == pytest.approx(
            sqrt(1 / 2)
        )
    assert slope(SCALES, ratios) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("law", SYMMETRIC)
def test_repair_1_needs_alignment(law):
    """g = 1 + 2u is smooth with g(x₀) ≠ 0: both blocks are O(σ²) and their ratio κ/4 at every σ."""
    patch, upstream = Patch.curve(1.0), Upstream((1.0, 2.0))
    for scale in SCALES:
        exact = exact_gradient(upstream, law, scale, patch)
        assert exact.ratio == pytest.approx(0.25)
        c = exact.tangent.item() / (sqrt(upstream.energy(0, law, scale)) * scale)
        assert c == pytest.approx(2 * scale / sqrt(1 + 4 * scale**2))
    u = sample(law, N, 1, 0.1, seed=12)
    found, error = weight_gradient(upstream(u), u, patch), standard_errors(upstream(u), u, patch)
    assert found.ratio == pytest.approx(
        0.25, abs=4 * error.tangent.item() * 0.25 / 0.02 + 4 * error.normal.item() / 0.02
    )


@pytest.mark.parametrize(("law", "expected"), [("gaussian", 2), ("bounded", 2), ("skewed", 2), ("two-point", 1)])
def test_repair_2_per_sample_energies(law, expected):
    """κ²σ² where ‖g‖² does not concentrate far out; with two points every energy sits at ‖u‖ = √σ, and it is κ²σ/4."""
    patch, upstream = Patch.curve(2.0), Upstream((1.0, 2.0))
    for scale in SCALES:
        u = sample(law, N, 1, scale, seed=13)
        exact = exact_energies(upstream, law, scale, patch)
        assert energies(upstream(u), u, patch).ratio == pytest.approx(exact.ratio, rel=0.2 if law == "skewed" else 0.05)
        condition = upstream.energy(4, law, scale) / (scale**2 * upstream.energy(2, law, scale))
        assert exact.ratio <= condition * 2.0**2 * scale**2 / 4 * (1 + 1e-12)
        if law == "bounded":
            assert exact.ratio <= 3 * 2.0**2 * scale**2 / 4  # ‖u‖ ≤ √3 σ
        if law == "two-point":
            assert exact.ratio == pytest.approx(scale)
    small = SCALES / 30
    ratios = [exact_energies(upstream, law, scale, patch).ratio for scale in small]
    assert slope(small, ratios) == pytest.approx(expected, abs=0.01)


def test_repair_2_has_no_cancellation():
    for upstream in (Upstream((1.0,)), Upstream((0.0, 0.0, 1.0))):
        ratios = [exact_energies(upstream, "gaussian", scale, PARABOLA).ratio for scale in SCALES]
        assert slope(SCALES, ratios) == pytest.approx(2)
    assert exact_energies(Upstream((1.0,)), "gaussian", 0.1, PARABOLA).ratio == pytest.approx(3 * 0.1**2)


def test_repair_3_covariance():
    """Order κσ in general, κσ² under symmetric laws, where the third moments vanish."""
    patch, upstream = Patch.curve(1.0), Upstream((1.0, 2.0, 1.0))
    small = SCALES / 10
    ratios = {
        law: [exact_gradient(upstream, law, scale, patch, centred=True).ratio for scale in small]
        for law in ("skewed", "gaussian", "bounded")
    }
    assert slope(small, ratios["skewed"]) == pytest.approx(1, abs=0.02)
    assert slope(small, ratios["gaussian"]) == pytest.approx(2, abs=0.02)
    assert slope(small, ratios["bounded"]) == pytest.approx(2, abs=0.02)
    assert exact_gradient(Upstream((1.0, 2.0)), "skewed", 0.01, patch, centred=True).ratio == pytest.approx(0.01)
    measured = []
    for scale in SCALES:
        u = sample("skewed", N, 1, scale, seed=14)
        measured.append(weight_gradient(upstream(u), u, patch, centred=True).ratio)
    expected = [exact_gradient(upstream, "skewed", scale, patch, centred=True).ratio for scale in SCALES]
    assert measured == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("law", ["bounded", "symmetric"])
def test_repair_3_bound_in_several_dimensions(law):
    """g = Ju + ½H(u, u): ratio ≤ √K κLσ/(2α‖J‖ − B√Kσ), for a symmetric law also ≤ ½BKκσ²/(2α‖J‖ − B√Kσ)."""
    m, scale = 3, 0.02
    patch = Patch.random(m, 2, 1.0, seed=2)
    random = np.random.default_rng(3)
    jacobian, hessian = random.standard_normal((2, m)), random.standard_normal((2, m, m))
    hessian = hessian + hessian.transpose(0, 2, 1)
    u = sample("bounded", 1000, m, scale, seed=4)
    u = np.concatenate([u, -u]) if law == "symmetric" else u - u.mean(0)
    g = u @ jacobian.T + 0.5 * np.einsum("aij,ni,nj->na", hessian, u, u)
    squares = (u**2).sum(1)
    sigma, k = sqrt(squares.mean()), (squares**2).mean() / squares.mean() ** 2
    alpha = np.linalg.eigvalsh(np.cov(u.T, bias=True))[0] / sigma**2
    b = np.linalg.norm(hessian)
    lipschitz = np.linalg.norm(jacobian, 2) + 0.5 * b * sqrt(squares.max())
    below = 2 * alpha * np.linalg.norm(jacobian) - b * sqrt(k) * sigma
    assert below > 0
    found = weight_gradient(g, u, patch, centred=True)
    assert found.ratio <= sqrt(k) * lipschitz * sigma / below
    if law == "symmetric":
        assert found.ratio <= b * k * sigma**2 / (2 * below)


def test_examples_know_their_exact_ratio_and_exponent():
    for example, expected in (
        (Example("", RELU, "gaussian", "mean", 1), sqrt(2 / np.pi) * 0.1),
        (Example("", Upstream((1.0,)), "gaussian", "energy", 2), 0.75 * 0.1**2),
        (Example("", Upstream((1.0, 2.0)), "skewed", "covariance", 1), 0.1),
    ):
        patch, u = Patch.curve(1.0), sample(example.law, N, 1, 0.1, seed=15)
        assert example.exact_ratio(0.1, patch) == pytest.approx(expected)
        assert example.ratio(u, patch) == pytest.approx(expected, rel=0.05)
        assert slope([0.01, 0.1], [example.exact_ratio(scale, patch) for scale in (0.01, 0.1)]) == pytest.approx(
            example.exponent
        )


def test_exponents_of_several_series_at_once():
    scales = np.array([0.1, 0.2, 0.5])
    assert scaling_exponents(scales, np.stack([3 * scales, scales**2])) == pytest.approx([1, 2])


def test_the_base_point_outweighs_both_blocks_only_if_the_mean_gradient_is_not_zero():
    patch = Patch.curve(1.0, base=[3.0, 4.0])
    constant, odd = Upstream((1.0, 2.0)), Upstream((0.0, 2.0))
    for scale in SCALES:
        assert np.linalg.norm(exact_gradient(constant, "gaussian", scale, patch).base) == 5
        assert not exact_gradient(odd, "gaussian", scale, patch).base.any()


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Patch(np.zeros((2, 2))), "normal, tangent, tangent"),
        (lambda: Patch([[[0.0, 1], [0, 0]]]), "symmetric"),
        (lambda: Patch([[[np.nan]]]), "not finite"),
        (lambda: Patch([[[1.0]]], base=[1.0]), r"R\^2"),
        (lambda: Patch.curve(-1), "must not be negative"),
        (lambda: Patch.random(0, 1, 1, 0), "at least 1"),
        (lambda: Patch.random(2, 1, 0, 0), "must be positive"),
        (lambda: sample("cauchy", 5, 1, 1.0, 0), "must be one of gaussian"),
        (lambda: sample("gaussian", 0, 1, 1.0, 0), "at least 1"),
        (lambda: sample("gaussian", 5, 0, 1.0, 0), "dimension is 0"),
        (lambda: sample("gaussian", 5, 1, 0.0, 0), "must be positive"),
        (lambda: sample("gaussian", 5, 1, float("nan"), 0), "must be positive"),
        (lambda: sample("two-point", 5, 1, 1.5, 0), "at most 1"),
        (lambda: moment("gaussian", -1, 1.0), "must not be negative"),
        (lambda: positive_moment("gaussian", 0, 1.0), "at least 1"),
        (lambda: PARABOLA.bend(np.zeros((3, 2))), "one point a row"),
        (lambda: PARABOLA.bend(np.zeros((0, 1))), "one point a row"),
        (lambda: weight_gradient(np.zeros((3, 1)), np.zeros((4, 1)), PARABOLA), "one row a point"),
        (lambda: weight_gradient(np.full((3, 1), np.inf), np.zeros((3, 1)), PARABOLA), "not finite"),
        (lambda: standard_errors(np.ones((1, 1)), np.ones((1, 1)), PARABOLA), "at least 2 rows"),
        (lambda: exact_gradient(RELU, "gaussian", 1.0, Patch.random(2, 1, 1, 0)), "plane curves"),
        (lambda: scaling_exponents([1.0], [1.0]), "two different scales"),
        (lambda: scaling_exponents([1.0, 2.0], [1.0, -2.0]), "must be positive"),
        (lambda: exact_energies(RELU, "gaussian", 1.0, Patch.random(2, 1, 1, 0)), "plane curves"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
