"""Every displayed formula of the theory page that can be checked, and that the tests it names exist."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from scipy import integrate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "theory.md").read_text(encoding="utf-8")

r, t, s, x = sp.symbols("r t s x", positive=True)
kappa, sigma, T, tau = sp.symbols("kappa sigma T tau", positive=True)


def expectation(expression):
    """E over x ~ N(0, σ²)."""
    density = sp.exp(-(x**2) / (2 * sigma**2)) / (sigma * sp.sqrt(2 * sp.pi))
    even = sp.expand(expression + expression.subs(x, -x)) / 2
    return sp.simplify(2 * sp.integrate(even * density, (x, 0, sp.oo)))


def test_the_tests_that_the_page_names_exist():
    files = [
        ROOT / "tests" / name for name in ("book/test_theory.py", "geometry/test_patches.py", "geometry/test_flows.py")
    ]
    defined = {
        name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 25
    assert named <= defined


def test_every_statement_says_whose_it_is():
    headings = re.findall(r"^`{3}\{prf:(?:definition|lemma|proposition|theorem|example)\} (.+)$", PAGE, re.M)
    assert len(headings) >= 18
    for heading in headings:
        assert re.search(r" · (literature|ours)\b", heading), heading


# Chord and arc


def test_chord_and_arc_of_a_curve():
    """A plane curve with κ(r) = k₀ + k₁r + k₂r²/2; plane curves have every κ(r), and κ is all the formula holds."""
    k0, k1, k2 = sp.symbols("k0 k1 k2", positive=True)
    angle = k0 * s + k1 * s**2 / 2 + k2 * s**3 / 6
    # The chord to order 5 needs the curve to order 5, hence its tangent to order 4.
    parts = [sp.integrate(sp.series(f(angle), s, 0, 6).removeO(), (s, 0, r)) for f in (sp.cos, sp.sin)]
    squared = sp.expand(sum(part**2 for part in parts))
    chord = sp.series(r * sp.sqrt(sp.expand(squared / r**2)), r, 0, 5).removeO()
    slope = 2 * k0 * k1  # (κ²)'
    assert sp.simplify(chord - (r - k0**2 * r**3 / 24 - slope * r**4 / 48)) == 0
    arc = t + k0**2 * t**3 / 24 + slope * t**4 / 48
    back = sp.expand(chord.subs(r, arc))
    assert [sp.simplify(back.coeff(t, order)) for order in range(5)] == [0, 1, 0, 0, 0]


def test_arc_of_a_circle():
    arc = 2 / kappa * sp.asin(kappa * t / 2)
    assert sp.simplify(arc.subs(t, 2 / kappa * sp.sin(kappa * r / 2)).subs({kappa: sp.Rational(1, 2), r: 1}) - 1) == 0
    series = sp.series(arc, t, 0, 6).removeO()
    assert sp.simplify(series - t - kappa**2 * t**3 / 24).coeff(t, 4) == 0
    assert sp.expand(series).coeff(t, 3) == kappa**2 / 24


# Curvature bias


def test_bias_under_uniform_chords():
    bias = sp.integrate(kappa**2 * t**3 / 24 / T, (t, 0, T))
    assert sp.simplify(bias - kappa**2 * T**3 / 96) == 0
    assert sp.simplify(bias / (T / 2) - kappa**2 * T**2 / 48) == 0


def test_bias_coefficients_of_densities():
    def coefficient(density, end):
        m1, m3 = (sp.integrate(t**order * density, (t, 0, end)) for order in (1, 3))
        return sp.simplify(m3 / (24 * m1))

    assert coefficient(sp.exp(-(t**2) / 2), sp.oo) == sp.Rational(1, 12)
    assert coefficient(sp.exp(-t), sp.oo) == sp.Rational(1, 4)
    assert float(coefficient(sp.exp(-t), 5)) == pytest.approx(0.1915, abs=5e-5)
    for a, b in ((2, 5), (1, 1), (3, 2)):
        expected = sp.Rational((a + 1) * (a + 2), 24 * (a + b + 1) * (a + b + 2))
        assert coefficient(t ** (a - 1) * (1 - t) ** (b - 1), 1) == expected


def test_a_fixed_cut_spoils_the_slope():
    c = sp.symbols("c", positive=True)
    fourth, second = (sp.integrate(t**power * sp.exp(-t), (t, 0, c)) for power in (3, 1))
    with_c = sp.log((T / c) ** 2 * fourth / second)
    local = -c * sp.diff(with_c, c)  # σ = T/c, so d/d log σ = −d/d log c
    stated = 2 - c**4 * sp.exp(-c) / fourth + c**2 * sp.exp(-c) / second
    assert sp.simplify(local - stated) == 0
    assert float(stated.subs(c, 5)) == pytest.approx(1.22, abs=0.005)
    assert float(stated.subs(c, 60)) == pytest.approx(2, abs=1e-6)
    assert sp.limit(stated, c, 0) == 0

    def mean(f, scale):
        return integrate.quad(lambda t: f(t) * np.exp(-t / scale), 0, 1, epsabs=1e-14)[0]

    def relative_bias(scale):
        return mean(lambda t: 2 * np.arcsin(t / 2) - t, scale) / mean(lambda t: t, scale)

    exact = np.log(relative_bias(0.201) / relative_bias(0.199)) / np.log(0.201 / 0.199)
    assert exact == pytest.approx(1.26, abs=0.005)


# Volume


def test_sphere_averages():
    """⟨θ_aθ_b⟩ and ⟨θ_aθ_bθ_cθ_d⟩ from Gaussian moments: E‖z‖² = m, E‖z‖⁴ = m(m + 2), and z/‖z‖ ⊥ ‖z‖."""
    one, phi = sp.symbols("theta phi", real=True)
    circle = (sp.cos(phi), sp.sin(phi))
    sphere = (sp.sin(one) * sp.cos(phi), sp.sin(one) * sp.sin(phi), sp.cos(one))

    def average(expression, m):
        if m == 2:
            return sp.integrate(expression, (phi, 0, 2 * sp.pi)) / (2 * sp.pi)
        inner = sp.integrate(expression * sp.sin(one), (phi, 0, 2 * sp.pi))
        return sp.integrate(inner, (one, 0, sp.pi)) / (4 * sp.pi)

    for m, v in ((2, circle), (3, sphere)):
        for a, b in product(range(m), repeat=2):
            assert sp.simplify(average(v[a] * v[b], m) - sp.Rational(int(a == b), m)) == 0
            expected = sp.Rational(3 if a == b else 1, m * (m + 2))
            assert sp.simplify(average(v[a] ** 2 * v[b] ** 2, m) - expected) == 0


def test_volume_coefficient():
    m, form, trace = sp.symbols("m II H", positive=True)  # ‖II‖², ‖H‖²
    bracket = form / m / (2 * (m + 2)) - (trace + 2 * form) / (m * (m + 2)) / 8
    assert sp.simplify(m * bracket - (2 * form - trace) / (8 * (m + 2))) == 0
    coefficient = (2 * form - trace) / (8 * (m + 2))
    assert coefficient.subs({m: 1, form: 1, trace: 1}) == sp.Rational(1, 24)
    assert coefficient.subs({m: 2, form: 1, trace: 1}) == sp.Rational(1, 32)  # cylinder
    assert coefficient.subs({m: 2, form: 2, trace: 4}) == 0
    assert coefficient.subs({m: 3, form: 3, trace: 9}) == sp.Rational(-3, 40)
    assert sp.simplify(coefficient.subs({form: m, trace: m**2}) + m * (m - 2) / (8 * (m + 2))) == 0


def test_volumes_of_surfaces_with_known_balls():
    angle = 2 * sp.asin(t / 2)  # of the cap of a unit sphere that a ball of radius t cuts out
    circle = sp.series(2 * angle, t, 0, 5).removeO()
    assert sp.simplify(circle - 2 * t * (1 + t**2 / 24)) == 0
    cap = sp.simplify(sp.integrate(2 * sp.pi * sp.sin(s), (s, 0, angle)) - sp.pi * t**2)
    assert cap == 0
    third = sp.integrate(4 * sp.pi * sp.sin(s) ** 2, (s, 0, r)).subs(r, angle)
    series = sp.series(sp.expand_trig(third), t, 0, 7).removeO()
    assert sp.simplify(sp.expand(series - sp.Rational(4, 3) * sp.pi * t**3 * (1 - 3 * t**2 / 40))) == 0

    def cylinder(radius):
        half = 2 * np.arcsin(radius / 2)
        height = lambda a: 2 * np.sqrt(max(radius**2 - 4 * np.sin(a / 2) ** 2, 0))  # noqa: E731
        return integrate.quad(height, -half, half, epsabs=1e-13, epsrel=1e-12)[0]

    for radius in (0.1, 0.2):
        relative = cylinder(radius) / (np.pi * radius**2) - 1
        assert relative == pytest.approx(radius**2 / 32, rel=radius**2)


# Gradients on curves: moments of a Gaussian u, and of the other laws


def test_counterexamples():
    assert (expectation(x), expectation(x**2)) == (0, sigma**2)
    assert (expectation(x**3), expectation(x**4)) == (0, 3 * sigma**4)
    assert expectation(x**4) - expectation(x**2) ** 2 == 2 * sigma**4  # (K − 1)σ⁴ with K = 3


def test_relu_gradient():
    half = {
        order: sp.integrate(x**order * sp.exp(-(x**2) / (2 * sigma**2)) / (sigma * sp.sqrt(2 * sp.pi)), (x, 0, sp.oo))
        for order in (2, 3)
    }
    assert sp.simplify(half[2] - expectation(x**2) / 2) == 0
    ratio = kappa * half[3] / 2 / half[2]
    assert sp.simplify(ratio - sp.sqrt(2 / sp.pi) * kappa * sigma) == 0
    strength = sp.sqrt(half[2])  # g² = max(u, 0)²
    assert sp.simplify(half[2] / (strength * sigma) - 1 / sp.sqrt(2)) == 0
    two_point = {order: sigma / 2 * sp.sqrt(sigma) ** order for order in (2, 3)}
    assert sp.simplify(two_point[2] - sigma**2 / 2) == 0
    assert sp.simplify(kappa * two_point[3] / 2 - kappa * sigma ** sp.Rational(5, 2) / 4) == 0
    assert sp.simplify(kappa * two_point[3] / 2 / two_point[2] - kappa * sp.sqrt(sigma) / 2) == 0
    bound = sp.sqrt(1 / sigma) * kappa * sigma / (2 / sp.sqrt(2))
    assert sp.simplify(bound - kappa * sp.sqrt(sigma / 2)) == 0


def test_smooth_gradient():
    tangent, normal = expectation((1 + 2 * x) * x), kappa / 2 * expectation((1 + 2 * x) * x**2)
    assert sp.simplify(tangent - 2 * sigma**2) == 0
    assert sp.simplify(normal / tangent - kappa / 4) == 0
    alignment = tangent / (sp.sqrt(expectation((1 + 2 * x) ** 2)) * sigma)
    assert sp.simplify(alignment - 2 * sigma / sp.sqrt(1 + 4 * sigma**2)) == 0
    energy = expectation(x**4) / expectation(x**2)  # g = 1 on x = (u, u²)
    assert sp.simplify(energy - 3 * sigma**2) == 0


def test_skewed_covariances():
    second, third = (sp.integrate((sigma * (x - 1)) ** k * sp.exp(-x), (x, 0, sp.oo)) for k in (2, 3))
    assert sp.simplify(second - sigma**2) == 0
    assert sp.simplify(third - 2 * sigma**3) == 0
    assert sp.simplify(kappa / 2 * 2 * third / (2 * second) - kappa * sigma) == 0


# Flows


def test_one_layer_flow():
    rate = sp.symbols("lambda", positive=True)
    w = sp.Function("w")
    solved = sp.dsolve(sp.Eq(w(tau).diff(tau), rate * (1 - w(tau))), ics={w(0): 0})
    assert sp.simplify(solved.rhs - (1 - sp.exp(-rate * tau))) == 0
    big, small = sp.symbols("lambda_T lambda_N", positive=True)
    crossing = sp.log(big / small) / (big - small)
    gradients = [sp.log(value) - value * crossing for value in (big, small)]
    assert sp.simplify(sp.expand_log(gradients[0] - gradients[1])) == 0
    variances = expectation(x**2), kappa**2 / 4 * (expectation(x**4) - expectation(x**2) ** 2)
    assert sp.simplify(variances[0] / variances[1] - 2 / (kappa * sigma) ** 2) == 0


def test_two_layer_flow():
    rate, start = sp.symbols("lambda a_0", positive=True)
    a = 1 / (1 + (1 / start - 1) * sp.exp(-2 * rate * tau))
    assert sp.simplify(a.diff(tau) - 2 * rate * a * (1 - a)) == 0
    assert sp.simplify(a.subs(tau, 0) - start) == 0
    q, ratio, speed = sp.symbols("Q rho lambda_T", positive=True)
    half = sp.log(q) / (2 * speed)
    strengths = [1 / (1 + q * sp.exp(-2 * value * half)) for value in (speed, ratio * speed)]
    assert sp.simplify(strengths[0]) == sp.Rational(1, 2)
    assert sp.simplify(sp.powsimp(strengths[0] / strengths[1] - (1 + q ** (1 - ratio)) / 2)) == 0
