"""Curvature bias in numbers: tidy tables of the curvature chapter, and the bridge from it to measured vectors.

The first half needs no model. The second takes what :mod:`anisotropy.studies.frequency` collected: the curvature of
real embeddings is unknown, but the ratio of two scales is measurable, and its square is the ratio of relative biases
that the law predicts *if* rare and frequent tokens bend alike and spread in the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from anisotropy.geometry.curvature import (
    RadialDensity,
    attenuation_slope,
    beta,
    curvature_bias,
    exponential,
    extrinsic_ball_volume,
    half_normal,
    normal_variance_share,
    quadrature_bias,
    sampled_ball_volume,
    sampled_bias,
    split_variance,
)
from anisotropy.geometry.manifolds import Circle, Manifold, ball_volume
from anisotropy.geometry.surfaces import QuadraticGraph
from anisotropy.statistics import bootstrap_blocks, permutation_null

Shapes = Mapping[str, Callable[[float], RadialDensity]]

#: The three shapes of claim C7; each is cut, if at all, at a fixed multiple of σ, so the cut is part of the shape.
SHAPES: Shapes = {
    "half-normal": lambda scale: half_normal(scale, 8 * scale),
    "Beta(2, 5)": lambda scale: beta(scale, 2, 5),
    "exponential": lambda scale: exponential(scale, 5 * scale),
}


def shape(name: str, scale: float) -> RadialDensity:
    """One of :data:`SHAPES` at a scale.

    Raises:
        ValueError: no such shape, or a scale that is not positive; the message names the shapes.
    """
    if name not in SHAPES:
        raise ValueError(f"density is {name!r}; it must be one of {', '.join(SHAPES)}")
    return SHAPES[name](scale)


def series_table(
    places: Mapping[str, tuple[Manifold, Sequence[float]]], reach: float = 0.5, points: int = 12
) -> pd.DataFrame:
    """Exact arcs beside the series t + κ²t³/24.

    Args:
        places: manifold and direction by name; κ is the normal curvature there.
        reach: largest chord in units of the smallest radius of curvature at the point.
        points: chords, log-spaced over a bit more than a decade.

    Returns:
        Columns ``place``, ``curvature`` (κ, 1/length), ``chord`` (in radii), ``arc`` and ``error`` (arc minus series,
        over the chord: a ratio).
    """
    tables = []
    for name, (manifold, direction) in places.items():
        kappa = abs(manifold.normal_curvature(direction))
        radius = 1 / float(np.abs(manifold.principal_curvatures).max())
        t = np.geomspace(reach / 16, reach, points) * radius
        arc = manifold.arc(t, direction)
        error = np.abs(arc - t - kappa**2 * t**3 / 24) / t
        tables.append(
            pd.DataFrame({"place": name, "curvature": kappa, "chord": t / radius, "arc": arc / radius, "error": error})
        )
    return pd.concat(tables, ignore_index=True)


def profile_tables(
    curvatures: Sequence[float], densities: Mapping[str, RadialDensity], radius: float, dots: int = 40
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Figure 2 in numbers: circles of several curvatures in one ambient ball, and where a density puts its points.

    Args:
        curvatures: of the circles, in 1/length.
        densities: of the ambient distance, by name; none reaches beyond the ball.
        radius: of the ball (length).
        dots: points of each density on each circle, at its evenly spaced quantiles.

    Returns:
        Curves (``curvature``, ``arc``, ``along``, ``normal``; up to the ball's edge) and dots (``density``,
        ``curvature``, ``chord``, ``arc``, ``along``, ``normal``, ``bias``: the exact relative bias).
    """
    curves, points = [], []
    for kappa in curvatures:
        circle = Circle.of_curvature(kappa)
        arc = np.linspace(0, circle.arc(radius), 60)
        curves.append(_profile(circle, arc).assign(curvature=kappa))
        for name, density in densities.items():
            levels = (np.arange(dots) + 0.5) / dots
            chord = density.quantile(levels)
            found = _profile(circle, circle.arc(chord))
            bias = quadrature_bias(circle, density)
            points.append(found.assign(density=name, curvature=kappa, chord=chord, bias=bias))
    return pd.concat(curves, ignore_index=True), pd.concat(points, ignore_index=True)


def _profile(manifold: Manifold, arc: np.ndarray) -> pd.DataFrame:
    local = (manifold.geodesic(arc) - manifold.point) @ manifold.frame.T
    return pd.DataFrame({"arc": arc, "along": local[:, 0], "normal": local[:, -1]})


def rays_table(curvatures: tuple[float, float], radius: float, rays: int = 48) -> pd.DataFrame:
    """Geodesics of the surface z = ½(κ_1 u_1² + κ_2 u_2²) from its vertex to the edge of an ambient ball.

    Returns:
        Columns ``angle`` (rad, from the first principal direction), ``curvature`` (of that direction), ``arc``,
        ``x``, ``y``, ``z`` (length); 30 points a ray.
    """
    surface = QuadraticGraph(curvatures)
    tables = []
    for angle in np.arange(rays) * 2 * np.pi / rays:
        direction = [np.cos(angle), np.sin(angle)]
        arc = np.linspace(0, surface.arc(radius, direction), 30)
        points = pd.DataFrame(surface.geodesic(arc, direction), columns=["x", "y", "z"])
        tables.append(points.assign(angle=angle, curvature=surface.normal_curvature(direction), arc=arc))
    return pd.concat(tables, ignore_index=True)


def bias_table(
    shapes: Shapes,
    curvatures: Sequence[float],
    ranges: Mapping[str, float],
    *,
    scales: int = 8,
    draws: int = 100_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Relative bias on circles over a decade of scales: closed form, exact arcs, Monte Carlo.

    Args:
        shapes: by name, what makes the density of a scale.
        curvatures: of the circles, in 1/length.
        ranges: largest κσ by density.
        scales: log-spaced scales of each decade.
        draws: Monte Carlo draws of each scale.
        seed: of the first scale; each has its own.

    Returns:
        Columns ``manifold``, ``density``, ``curvature``, ``scale`` (length), ``closed`` (leading order), ``exact``
        (quadrature), ``estimate``, ``standard_error`` (Monte Carlo); biases are ratios.
    """
    rows: list[dict[str, Any]] = []
    for name, make in shapes.items():
        for kappa in curvatures:
            circle = Circle.of_curvature(kappa)
            for scale in np.geomspace(0.1, 1, scales) * ranges[name] / kappa:
                density = make(float(scale))
                sampled = sampled_bias(circle, density, draws, seed + len(rows))
                rows.append(
                    {
                        "manifold": "circle",
                        "density": name,
                        "curvature": float(kappa),
                        "scale": float(scale),
                        "closed": curvature_bias(kappa, density),
                        "exact": quadrature_bias(circle, density),
                        "estimate": sampled.estimate,
                        "standard_error": sampled.standard_error,
                    }
                )
    return pd.DataFrame(rows)


def place_slopes(
    places: Mapping[str, tuple[Manifold, Sequence[float]]], density: str, top: float, scales: int = 4
) -> pd.DataFrame:
    """Log–log slopes of the exact bias on any manifold: along one direction, and averaged over it and its opposite.

    Where the curvature changes along the geodesic, the next order of the bias is one power of σ higher only; it changes
    sign with the direction, so the average of both loses it.

    Args:
        places: manifold and direction by name.
        density: one of :data:`SHAPES`.
        top: largest κσ; the scales span the decade below it.
        scales: how many, log-spaced.

    Returns:
        Columns ``place``, ``density``, ``one`` and ``both``.
    """
    rows = []
    for name, (manifold, direction) in places.items():
        kappa = abs(manifold.normal_curvature(direction))
        sigma = np.geomspace(0.1, 1, scales) * top / kappa
        opposite = [-component for component in direction]
        ahead, behind = (
            np.array([quadrature_bias(manifold, shape(density, float(scale)), way) for scale in sigma])
            for way in (direction, opposite)
        )
        one, both = (attenuation_slope(sigma, bias).estimate for bias in (ahead, (ahead + behind) / 2))
        rows.append({"place": name, "density": density, "one": one, "both": both})
    return pd.DataFrame(rows)


def slope_table(bias: pd.DataFrame) -> pd.DataFrame:
    """Log–log slopes of :func:`bias_table`, per density and curvature.

    Returns:
        Columns ``density``, ``curvature``, ``exact`` (slope of the exact bias), ``estimate``, ``low``, ``high`` (of
        Monte Carlo, 95 %).
    """
    rows = []
    for (density, curvature), group in bias.groupby(["density", "curvature"], sort=False):
        sampled = attenuation_slope(group["scale"], group["estimate"], group["standard_error"])
        exact = attenuation_slope(group["scale"], group["exact"]).estimate
        rows.append({"density": density, "curvature": curvature, "exact": exact, **vars(sampled)})
    return pd.DataFrame(rows)


def cut_table(shapes: Shapes, curvature: float, scales: Sequence[float]) -> pd.DataFrame:
    """Bias from exact arcs and its local slope, for shapes that differ in where they are cut.

    Returns:
        Columns ``density``, ``scale`` (length), ``exact`` (ratio) and ``slope``, the derivative of log bias by log
        scale.
    """
    circle = Circle.of_curvature(curvature)
    rows = []
    for name, make in shapes.items():
        for scale in scales:
            below, here, above = (quadrature_bias(circle, make(scale * factor)) for factor in (1 / 1.01, 1, 1.01))
            slope = float(np.log(above / below) / (2 * np.log(1.01)))
            rows.append({"density": name, "scale": float(scale), "exact": here, "slope": slope})
    return pd.DataFrame(rows)


def volume_table(manifolds: Mapping[str, Any], radii: Sequence[float], draws: int, seed: int) -> pd.DataFrame:
    """How much more of a manifold than of flat space lies within an ambient ball, in percent.

    Args:
        manifolds: with a ``volume``, by name.
        radii: of the balls (length).
        draws: points sampled on each manifold.
        seed: of the points on the first; each manifold has its own.

    Returns:
        Columns ``manifold``, ``radius``, ``predicted``, ``sampled``, ``standard_error`` (all % of flat space).
    """
    tables = []
    t = np.asarray(radii, dtype=np.float64)
    for number, (name, manifold) in enumerate(manifolds.items()):
        flat = ball_volume(manifold.dimension) * t**manifold.dimension
        volume, error = sampled_ball_volume(manifold, t, draws, seed + number)
        predicted = extrinsic_ball_volume(t, manifold.principal_curvatures)
        tables.append(
            pd.DataFrame(
                {
                    "manifold": name,
                    "radius": t,
                    "predicted": 100 * (predicted / flat - 1),
                    "sampled": 100 * (volume / flat - 1),
                    "standard_error": 100 * error / flat,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def split_table(curvatures: Sequence[float], scales: Sequence[float], draws: int, seed: int) -> pd.DataFrame:
    """Tangent and normal variance of x = (u, ½ II(u, u)), u Gaussian of standard deviation σ.

    Returns:
        Columns ``scale`` (length), ``tangent``, ``normal`` (length²), ``share`` (normal over tangent) and
        ``predicted`` (σ²‖II‖²/(2m)).
    """
    graph = QuadraticGraph(curvatures)
    u = np.random.default_rng(seed).standard_normal((draws, graph.dimension))
    rows = []
    for scale in scales:
        tangent, normal = split_variance(graph.lift(scale * u), graph.frame[:-1])
        predicted = normal_variance_share(curvatures, scale)
        rows.append(
            {"scale": scale, "tangent": tangent, "normal": normal, "share": normal / tangent, "predicted": predicted}
        )
    return pd.DataFrame(rows)


def scale_ratio(
    tokens: pd.DataFrame, share: float = 0.2, stage: str = "trained", draws: int = 999, seed: int = 0
) -> dict[str, Any]:
    """σ_rare/σ_frequent from the ``occurrences`` reading, and the ratio of relative biases it predicts.

    σ of a group is the root mean square of its tokens' spreads, so its square is the mean variance of a token.

    Args:
        tokens: one model's, from :func:`anisotropy.studies.frequency.token_distances`.
        share: of the tokens in each group: the rarest and the most frequent fifth.
        stage: ``"trained"`` or ``"untrained"``.
        draws: resamples of the interval and shuffles of the null.
        seed: of both.

    Returns:
        ``tokens`` in each group, ``rare`` and ``frequent`` (σ, in the units of the vectors), ``ratio`` with ``low`` and
        ``high`` (95 %, over tokens of one run: descriptive), ``null_low`` and ``null_high`` (95 % of the ratio when
        frequencies are shuffled), ``bias_ratio`` (the ratio squared). Empty with fewer than 5 tokens in a group.

    Raises:
        ValueError: ``share`` outside (0, ½].
    """
    if not 0 < share <= 0.5:
        raise ValueError(f"share is {share}; it must be above 0 and at most 0.5")
    rows = tokens[(tokens["centroid"] == "occurrences") & (tokens["stage"] == stage)]
    rows = rows.sort_values(["count", "token_id"], kind="stable")
    size = int(share * len(rows))
    if size < 5:
        return {}
    spread = rows["distance"].to_numpy()
    order = np.arange(len(rows))

    def ratio(_: Any, values: np.ndarray) -> float:
        return _rms(values[:size]) / _rms(values[-size:])

    # Both groups are resampled together: what is in one says nothing about the other.
    groups = np.stack([spread[:size], spread[-size:]], axis=1)
    found = bootstrap_blocks(groups, lambda pairs: _rms(pairs[:, 0]) / _rms(pairs[:, 1]), seed=seed, draws=draws)
    null = permutation_null(ratio, order, spread, draws, seed)
    estimate = ratio(order, spread)
    return {
        "tokens": size,
        "rare": _rms(spread[:size]),
        "frequent": _rms(spread[-size:]),
        "ratio": estimate,
        "low": found.low,
        "high": found.high,
        "null_low": null.low,
        "null_high": null.high,
        "bias_ratio": estimate**2,
    }


def local_shares(
    points: np.ndarray, rank: int, neighbours: Sequence[int], anchors: int = 48, seed: int = 0
) -> pd.DataFrame:
    """Local PCA: normal over tangent variance in neighbourhoods of growing size.

    On a manifold of dimension m = ``rank`` the share falls as σ²‖II‖²; in vectors that fill more than ``rank``
    dimensions it does not fall to zero, whatever bends.

    Args:
        points: (n, d).
        rank: of the tangent space.
        neighbours: sizes of the neighbourhoods, each above ``rank`` and at most n.
        anchors: points around which neighbourhoods are taken.
        seed: of their choice.

    Returns:
        Columns ``neighbours``, ``scale`` (σ, the root mean tangent variance per dimension), ``share`` (medians over
        anchors), and ``curvature``, √(2m·share)/σ, the ‖II‖ that would give this share if nothing else did (1/length;
        for Gaussian neighbourhoods, so up to a factor of shape).

    Raises:
        ValueError: sizes that do not fit.
    """
    n, d = points.shape
    if not 1 <= rank < min([d, *neighbours]) or max(neighbours) > n:
        raise ValueError(f"rank {rank} and neighbourhoods of {list(neighbours)} do not fit {n} points of R^{d}")
    points = points.astype(np.float64)
    chosen = np.random.default_rng(seed).choice(n, size=min(anchors, n), replace=False)
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in neighbours}
    for anchor in chosen:
        order = np.argsort(((points - points[anchor]) ** 2).sum(1), kind="stable")
        for size in neighbours:
            near = points[order[:size]]
            variances = np.linalg.svd(near - near.mean(0), compute_uv=False) ** 2 / size
            tangent = variances[:rank].sum()
            found[size].append((np.sqrt(tangent / rank), variances[rank:].sum() / tangent))
    rows = []
    for size, values in found.items():
        scale, share = np.median(values, axis=0)
        rows.append(
            {"neighbours": size, "scale": scale, "share": share, "curvature": np.sqrt(2 * rank * share) / scale}
        )
    return pd.DataFrame(rows)


def local_table(points: np.ndarray, rank: int, anchors: int = 48, seed: int = 0) -> pd.DataFrame:
    """:func:`local_shares` of the points and of their flat twin, at 4, 8, 16 and 32 neighbours per tangent direction.

    Returns:
        Columns of :func:`local_shares` and ``points`` (``data`` or ``flat twin``); empty with too few points.
    """
    sizes = [factor * rank for factor in (4, 8, 16, 32) if factor * rank <= len(points) // 2]
    if len(sizes) < 2 or rank >= points.shape[1]:
        return pd.DataFrame(columns=["neighbours", "scale", "share", "curvature", "points"])
    kinds = {"data": points, "flat twin": flat_twin(points, seed)}
    return pd.concat(
        [local_shares(those, rank, sizes, anchors, seed).assign(points=name) for name, those in kinds.items()],
        ignore_index=True,
    )


def flat_twin(points: np.ndarray, seed: int) -> np.ndarray:
    """Gaussian vectors with the mean and covariance of the points, as many: nothing in them bends."""
    mean = points.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(np.cov(points, rowvar=False, dtype=np.float64))
    draws = np.random.default_rng(seed).standard_normal(points.shape)
    return mean + draws * np.sqrt(np.maximum(variances, 0)) @ directions.T


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
