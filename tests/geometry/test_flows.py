"""Gradient flow on a patch: known solutions against an ODE solver and against simulated training."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from anisotropy.geometry.flows import (
    balanced_start,
    crossover_time,
    descend,
    linear_flow,
    logistic_strength,
    peak_lead,
    tangent_share,
)
from anisotropy.geometry.patches import Patch, patch_covariance

CURVE = Patch.curve(1.0)
COVARIANCE = patch_covariance(CURVE, "gaussian", 0.5)
TANGENT, NORMAL = np.diag(COVARIANCE)


@pytest.mark.parametrize("rank", [2, 5])
def test_linear_flow_solves_its_equation(rank):
    random = np.random.default_rng(0)
    root = random.standard_normal((5, rank))
    moment, cross, start = root @ root.T, random.standard_normal((3, 5)), random.standard_normal((3, 5))
    times = np.linspace(0, 3, 7)
    solved = solve_ivp(
        lambda _, w: (cross - w.reshape(3, 5) @ moment).ravel(),
        (0, 3),
        start.ravel(),
        t_eval=times,
        rtol=1e-10,
        atol=1e-12,
    )
    assert np.allclose(linear_flow(moment, cross, start, times), solved.y.T.reshape(-1, 3, 5), rtol=1e-7, atol=1e-8)


def test_each_direction_is_learned_at_its_own_speed():
    times = np.array([0.0, 1.0, 10.0])
    found = linear_flow(COVARIANCE, COVARIANCE, np.zeros((2, 2)), times)
    for mode, variance in enumerate((TANGENT, NORMAL)):
        assert found[:, mode, mode] == pytest.approx(1 - np.exp(-variance * times))
    assert pytest.approx(0.5 * 0.5**2) == NORMAL / TANGENT  # κ²σ²/2


def test_one_layer_never_leads_by_more_than_the_ratio_of_variances():
    times = np.geomspace(1e-4, 1e3, 200)
    found = linear_flow(COVARIANCE, COVARIANCE, np.zeros((2, 2)), times)
    lead = found[:, 0, 0] / found[:, 1, 1]
    assert (lead <= TANGENT / NORMAL * (1 + 1e-9)).all()
    assert lead[0] == pytest.approx(TANGENT / NORMAL, rel=1e-3)
    assert lead[-1] == pytest.approx(1)


def test_crossover_is_where_the_gradients_are_equal():
    time = crossover_time(TANGENT, NORMAL)
    assert TANGENT * np.exp(-TANGENT * time) == pytest.approx(NORMAL * np.exp(-NORMAL * time))


def test_two_layers_follow_the_logistic_curve():
    """The matrix equations dW/dt = Vᵀ(M − VW)A, dV/dt = (M − VW)AWᵀ from a balanced start, by an ODE solver."""
    w, v = balanced_start(4, 2, 0.01, seed=0)
    assert np.allclose(v @ w, 0.01 * np.eye(2))
    assert np.allclose(v.T @ v, w @ w.T)
    times = np.linspace(0, 60, 13)

    def change(_, both):
        w, v = both[:8].reshape(4, 2), both[8:].reshape(2, 4)
        error = (np.eye(2) - v @ w) @ COVARIANCE
        return np.concatenate([(v.T @ error).ravel(), (error @ w.T).ravel()])

    solved = solve_ivp(change, (0, 60), np.concatenate([w.ravel(), v.ravel()]), t_eval=times, rtol=1e-10, atol=1e-12)
    maps = np.stack([both[8:].reshape(2, 4) @ both[:8].reshape(4, 2) for both in solved.y.T])
    for mode, variance in enumerate((TANGENT, NORMAL)):
        assert maps[:, mode, mode] == pytest.approx(logistic_strength(0.01, variance, times), rel=1e-6)
    assert np.abs(maps[:, 0, 1]).max() < 1e-8


@pytest.mark.parametrize("start", [1e-1, 1e-3, 1e-6])
def test_the_lead_of_two_layers_when_the_tangent_mode_is_half_learned(start):
    half = np.log(1 / start - 1) / (2 * TANGENT)
    assert logistic_strength(start, TANGENT, half) == pytest.approx(0.5)
    lead = 0.5 / logistic_strength(start, NORMAL, half)
    assert peak_lead(start, TANGENT, NORMAL) == pytest.approx(float(lead))
    assert (lead > TANGENT / NORMAL) == (start < 1e-2)


def test_one_layer_training_follows_the_flow():
    course = descend(
        CURVE, "gaussian", 0.5, np.eye(2), np.zeros((2, 2)), rate=0.05, steps=1200, batch=256, seed=0, every=40
    )
    expected = linear_flow(COVARIANCE, COVARIANCE, np.zeros((2, 2)), course.times)
    assert np.abs(course.maps - expected).max() < 0.03
    assert course.readouts is None
    assert course.times[-1] == pytest.approx(60)


def test_two_layer_training_follows_the_logistic_curve():
    start, readout = balanced_start(6, 2, 0.02, seed=1)
    course = descend(
        CURVE, "gaussian", 0.5, np.eye(2), start, readout, rate=0.05, steps=1600, batch=256, seed=2, every=40
    )
    for mode, variance in enumerate((TANGENT, NORMAL)):
        assert np.abs(course.maps[:, mode, mode] - logistic_strength(0.02, variance, course.times)).max() < 0.05
    shares = tangent_share(course.weights, COVARIANCE, 1)
    assert shares[0] == pytest.approx(TANGENT / (TANGENT + NORMAL))
    assert shares.max() > shares[0]


def test_without_centring_the_mean_is_learned_too():
    patch = Patch.curve(1.0, base=[1.0, 2.0])
    course = descend(
        patch,
        "bounded",
        0.5,
        np.ones((1, 2)),
        np.zeros((1, 2)),
        rate=0.02,
        steps=300,
        batch=64,
        seed=0,
        every=300,
        centred=False,
    )
    mean = patch.mean(0.5)
    moment = patch_covariance(patch, "bounded", 0.5) + np.outer(mean, mean)
    expected = linear_flow(moment, np.ones((1, 2)) @ moment, np.zeros((1, 2)), course.times)
    assert np.abs(course.maps[-1] - expected[-1]).max() < 0.05


def test_training_is_reproducible():
    options = {"rate": 0.1, "steps": 5, "batch": 8, "seed": 3}
    first, second = (descend(CURVE, "gaussian", 0.5, np.eye(2), np.zeros((2, 2)), **options) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)


GOOD = {"rate": 0.1, "steps": 5, "batch": 8, "seed": 3}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_flow(np.eye(2), np.zeros((1, 3)), np.zeros((1, 3)), [0.0]), r"must be \(d, d\)"),
        (lambda: linear_flow([[1.0, 1], [0, 1]], np.zeros((1, 2)), np.zeros((1, 2)), [0.0]), "symmetric"),
        (lambda: linear_flow(-np.eye(2), np.zeros((1, 2)), np.zeros((1, 2)), [0.0]), "eigenvalue"),
        (lambda: linear_flow(np.eye(2), np.zeros((1, 2)), np.zeros((1, 2)), [-1.0]), "not negative"),
        (lambda: descend(CURVE, "gaussian", 1.0, np.eye(3), np.zeros((3, 3)), **GOOD), r"must be \(q, 2\)"),
        (lambda: descend(CURVE, "gaussian", 1.0, np.eye(2), np.zeros((1, 2)), **GOOD), "p = q"),
        (lambda: descend(CURVE, "gaussian", 1.0, np.eye(2), np.ones((3, 2)), np.ones((2, 2)), **GOOD), r"\(q, p\)"),
        (lambda: descend(CURVE, "gaussian", 1.0, np.eye(2), np.zeros((2, 2)), **GOOD | {"rate": 0}), "positive"),
        (
            lambda: descend(CURVE, "gaussian", 1.0, np.eye(2), np.zeros((2, 2)), **GOOD | {"rate": 50, "steps": 300}),
            "without bound",
        ),
        (lambda: balanced_start(1, 2, 0.1, 0), "at least the dimension"),
        (lambda: balanced_start(2, 2, 0.0, 0), "must be positive"),
        (lambda: logistic_strength(1.5, 1.0, [0.0]), "between 0 and 1"),
        (lambda: peak_lead(0.1, 1.0, 0.0), "must be positive"),
        (lambda: crossover_time(1.0, 2.0), "normal < tangent"),
        (lambda: tangent_share(np.ones((2, 2)), np.eye(3), 1), "fit together"),
        (lambda: tangent_share(np.ones((2, 2)), np.ones((2, 2)), 1), "correlated"),
        (lambda: tangent_share(np.zeros((2, 2)), np.eye(2), 1), "do not vary"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
