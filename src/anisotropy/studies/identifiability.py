"""Simulations of what a table of Semi-NMF concepts can and cannot show: planted, meaningless, pooled, dominated."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from anisotropy.concepts.matching import matched_pairs
from anisotropy.concepts.semi_nmf import SemiNMF, stability
from anisotropy.geometry.dimension import effective_rank, graph_dimension, pca_components, twonn


def planted_concepts(
    rows: int = 2_000, coordinates: int = 40, concepts: int = 12, noise: float = 0.1, seeds: int = 3, seed: int = 7
) -> pd.DataFrame:
    """Factorise data made of known concepts, from several seeds, none of which made the data.

    Rows are half-normal codes times random unit directions plus Gaussian noise of standard deviation ``noise``.

    Returns:
        A row per start, with columns ``start``, ``relative_loss``, ``true_loss`` (of the planted directions with their
        best codes), ``recovered`` (matched ``|cosine|`` with the planted directions) and ``agreement`` (with the other
        starts).
    """
    random = np.random.default_rng(seed)
    truth = random.standard_normal((concepts, coordinates))
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    data = np.abs(random.standard_normal((rows, concepts))) @ truth
    data += noise * random.standard_normal(data.shape)
    energy = float((data**2).sum())
    solver = SemiNMF(concepts)
    solver.components_, solver.n_features_in_ = truth, coordinates
    true_loss = float(((data - solver.transform(data) @ truth) ** 2).sum()) / energy
    models = [SemiNMF(concepts, tol=1e-5, max_iter=2_000, random_state=start).fit(data) for start in range(seeds)]
    return pd.DataFrame(
        [
            {
                "start": start,
                "relative_loss": model.reconstruction_err_**2 / energy,
                "true_loss": true_loss,
                "recovered": float(matched_pairs(np.abs(model.components_ @ truth.T))[2].mean()),
                "agreement": float(np.mean([stability([model, other]).mean for other in models if other is not model])),
            }
            for start, model in enumerate(models)
        ]
    )


def surrogate_agreement(rows: np.ndarray, concepts: int, number: int, tol: float, seed: int = 0) -> float:
    """How far two starts agree on Gaussian noise with the mean and covariance of the given rows.

    Such noise has the span and the ellipsoid of the data and nothing else, so this is the value that agreement has to
    exceed before it tells of concepts rather than of a covariance.

    Args:
        rows: activations, shape (n, d).
        concepts: number k of concepts.
        number: rows of noise.
        tol: of Semi-NMF.
        seed: of the noise; the starts are two others.

    Returns:
        Matched ``|cosine|``, mean over concepts.
    """
    data = rows.astype(np.float64)
    noise = np.random.default_rng(seed).multivariate_normal(data.mean(0), np.cov(data.T), size=number, method="eigh")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        starts = (seed + 101, seed + 102)
        models = [SemiNMF(concepts, tol=tol, random_state=start).fit(noise.astype(np.float32)) for start in starts]
    return stability(models).mean


def dominated_layer(
    rows: int = 3_000,
    coordinates: int = 96,
    concepts: int = 36,
    share: float = 0.01,
    length: float = 300.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Which reading of "effective rank" sees that one direction dominates a layer.

    Two layers of Gaussian activations with decreasing variances; in the second, a ``share`` of the tokens also has
    ``length`` along one direction, as the first token of a sequence often has in large decoders.

    Returns:
        A row per reading (``concepts``, directions of length 1; ``concepts, scaled by code``; ``codes times concepts``,
        the reconstruction ZD; ``activations``) with columns ``plain_rank``, ``dominated_rank``, ``plain_pca_70``,
        ``dominated_pca_70``.
    """
    random = np.random.default_rng(seed)
    plain = random.standard_normal((rows, coordinates)) * np.geomspace(1, 0.2, coordinates)
    dominated = plain.copy()
    dominated[random.permutation(rows)[: max(1, round(share * rows))], 0] += length
    found: dict[str, dict[str, float]] = {}
    for name, data in (("plain", plain), ("dominated", dominated)):
        model = SemiNMF(concepts, tol=1e-3, random_state=seed + 1).fit(data)
        directions = model.components_
        readings = {
            "concepts": directions,
            "concepts, scaled by code": directions * (model.code_mass_ / rows)[:, None],
            "codes times concepts": model.transform(data) @ directions,
            "activations": data,
        }
        for reading, matrix in readings.items():
            row = found.setdefault(reading, {})
            row[f"{name}_rank"] = effective_rank(matrix).estimate
            row[f"{name}_pca_70"] = pca_components(matrix).estimate
    columns = ["plain_rank", "dominated_rank", "plain_pca_70", "dominated_pca_70"]
    return pd.DataFrame([{"reading": reading, **{c: row[c] for c in columns}} for reading, row in found.items()])


def pooled_points(
    dimension: int = 40,
    coordinates: int = 128,
    points: int = 48,
    copies: int = 6,
    drift: float = 0.1,
    repetitions: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Intrinsic dimension of Gaussian points of a known dimension: one set, drifting copies of it, independent points.

    Copies stand for the concepts of successive checkpoints: from each to the next a point makes a random step in all
    ``coordinates``, whose length is ``drift`` times that of a point.

    Returns:
        Columns ``points`` (``one checkpoint``, ``pooled copies``, ``independent``), ``number``, ``id_twonn`` and
        ``id_graph`` (means over repetitions, missing where no repetition has an estimate), ``id_graph_estimates``.
    """
    random = np.random.default_rng(seed)
    found: dict[str, list[tuple[float, float]]] = {}
    number = {"one checkpoint": points, "pooled copies": points * copies, "independent": points * copies}
    for _ in range(repetitions):
        frame = np.linalg.qr(random.standard_normal((coordinates, dimension)))[0].T
        base = random.standard_normal((points, dimension)) @ frame
        steps = drift * np.sqrt(dimension / coordinates) * random.standard_normal((copies, points, coordinates))
        steps[0] = 0
        sets = {
            "one checkpoint": base,
            "pooled copies": (base + steps.cumsum(axis=0)).reshape(-1, coordinates),
            "independent": random.standard_normal((points * copies, dimension)) @ frame,
        }
        for name, rows in sets.items():
            found.setdefault(name, []).append((twonn(rows).estimate, graph_dimension(rows).estimate))
    table = []
    for name, values in found.items():
        nearest, paths = np.array(values).T
        known = paths[np.isfinite(paths)]
        table.append(
            {
                "points": name,
                "number": number[name],
                "id_twonn": float(nearest.mean()),
                "id_graph": float(known.mean()) if len(known) else np.nan,
                "id_graph_estimates": len(known),
            }
        )
    return pd.DataFrame(table)
