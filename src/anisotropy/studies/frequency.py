"""Frequency and variance: how far tokens are from their centroid, against how often they occur (Figure 1).

The paper's abstract and captions do not say which matrix and which centroid are meant, and the sign of the correlation
depends on it, so every reading is measured:

========================  =============================================================================
centroid                  distance of token i
========================  =============================================================================
``trajectory``            mean over steps of ‖W_s[i] − c_i‖, c_i the mean of W_s[i] over steps
``vocabulary``            ‖W_s[i] − mean row of W_s‖ at one checkpoint
``occurrences``           contextual vectors of i at a probe to their own mean (root mean square)
========================  =============================================================================

The first two are taken of the input and of the output embedding matrix (equal where they are tied).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedModel

from anisotropy.geometry.isotropy import mean_cosine
from anisotropy.models.corpus import StudyText, even_tokens, take_tokens
from anisotropy.models.labels import split_label
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.probes import batches, capture, find_places
from anisotropy.statistics import CorrelationKind, correlation, pearson, permutation_null
from anisotropy.studies.course import Weighting, checkpoint_weights
from anisotropy.studies.results import Collection

NAME = "frequency"
_SEQUENCES_A_BATCH = 32


class Parameters(BaseModel):
    """What ``collect`` measures; all of it [ours].

    Attributes:
        probe: where the contextual vectors of ``occurrences`` are read.
        occurrences: how many of them per token, the same for all; tokens with fewer are left out of that reading.
        text_tokens: tokens of validation text to look for occurrences in, or as many as the corpus has.
        max_tokens: where more tokens of the vocabulary occur than this, a sample spread evenly over frequency ranks.
        seed: of the choice of occurrences.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    probe: str = "Tm"
    occurrences: int = Field(8, ge=2)
    text_tokens: int = Field(32_768, gt=0)
    max_tokens: int = Field(8_192, ge=10)
    seed: int = 0


def collect(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> dict[str, np.ndarray]:
    """Measure one checkpoint.

    Returns:
        ``token_ids`` and ``counts`` (m,); for each matrix (``output`` only where untied) ``…_rows`` (m, d) float32,
        ``…_vocabulary`` (m,) distances to the mean row over the whole vocabulary, ``…_norm`` (m,);
        ``occurrence_ids`` and ``occurrence_distance`` (k,).

    Raises:
        ValueError: the family has no such probe.
    """
    model = checkpoint.model
    tokens = study_tokens(text.counts, parameters.max_tokens)
    arrays = {"token_ids": tokens, "counts": text.counts[tokens]}
    for name, matrix in embedding_matrices(model).items():
        centroid = matrix.mean(0, dtype=torch.float64)
        rows = matrix[torch.from_numpy(tokens).to(matrix.device)]
        arrays[f"{name}_rows"] = rows.float().cpu().numpy()
        arrays[f"{name}_vocabulary"] = torch.linalg.vector_norm(rows.double() - centroid, dim=1).cpu().numpy()
        arrays[f"{name}_norm"] = torch.linalg.vector_norm(rows.double(), dim=1).cpu().numpy()
    blocks = take_tokens(text.blocks, min(parameters.text_tokens, even_tokens(text.blocks)))
    chosen = choose_occurrences(np.concatenate([block.ravel() for block in blocks]), parameters)
    vectors = _contextual_vectors(checkpoint, blocks, chosen, parameters.probe)
    arrays["occurrence_ids"] = np.array(sorted(chosen), dtype=np.int64)
    arrays["occurrence_distance"] = np.array([_spread(vectors[token]) for token in sorted(chosen)])
    return arrays


def embedding_matrices(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The input matrix, and the output matrix where it is another one; shape (vocabulary, d) each."""
    inputs = model.get_input_embeddings().weight.detach()
    head = model.get_output_embeddings()
    if head is None or head.weight.data_ptr() == inputs.data_ptr():
        return {"input": inputs}
    return {"input": inputs, "output": head.weight.detach()}


def study_tokens(counts: np.ndarray, limit: int) -> np.ndarray:
    """Ids of the tokens that occur, from most to least frequent; at most ``limit``, spread evenly over the ranks."""
    seen = np.flatnonzero(counts)
    ranked = seen[np.lexsort((seen, -counts[seen]))]
    if len(ranked) <= limit:
        return ranked
    ends = 5
    middle = np.linspace(ends, len(ranked) - ends - 1, limit - 2 * ends).round().astype(int)
    return ranked[np.unique(np.concatenate([np.arange(ends), middle, np.arange(len(ranked) - ends, len(ranked))]))]


def choose_occurrences(ids: np.ndarray, parameters: Parameters) -> dict[int, np.ndarray]:
    """Positions of ``occurrences`` random occurrences of every token that has as many in ``ids`` (one long stream)."""
    wanted = parameters.occurrences
    order = np.random.default_rng(parameters.seed).permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    tokens, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
    return {
        int(token): np.sort(order[start : start + wanted])
        for token, start, count in zip(tokens, starts, counts, strict=True)
        if count >= wanted
    }


def _contextual_vectors(
    checkpoint: Checkpoint, blocks: Sequence[np.ndarray], chosen: Mapping[int, np.ndarray], probe: str
) -> dict[int, np.ndarray]:
    """The activations at the chosen positions, (occurrences, d) float32 per token; nothing else is kept."""
    if not chosen:
        return {}
    positions = np.concatenate(list(chosen.values()))
    order = np.argsort(positions)
    found: list[np.ndarray] = []
    offset = done = 0
    places = find_places(checkpoint.model)
    for _, _, inputs in batches(blocks, _SEQUENCES_A_BATCH, checkpoint.model.device):
        upto = int(np.searchsorted(positions[order], offset + inputs.numel()))
        local = torch.from_numpy(positions[order[done:upto]] - offset)
        activations = capture(checkpoint.model, inputs, probes=[probe], places=places).activations[probe]
        found.append(activations.reshape(-1, activations.shape[-1])[local.to(inputs.device)].float().cpu().numpy())
        offset, done = offset + inputs.numel(), upto
    vectors = np.empty((len(positions), found[0].shape[1]), dtype=np.float32)
    vectors[order] = np.concatenate(found)
    splits = np.cumsum([len(rows) for rows in chosen.values()])[:-1]
    return dict(zip(chosen, np.split(vectors, splits), strict=True))


def _spread(vectors: np.ndarray) -> float:
    """Root mean square distance to the mean, times √(n/(n − 1)): without it few occurrences look confined."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    return float(np.sqrt((centred**2).sum() / (len(vectors) - 1)))


def token_distances(
    collections: Sequence[Collection], weighting: Weighting = "step", minimum_count: int = 1
) -> pd.DataFrame:
    """Distances per token under every reading.

    Args:
        collections: one model's, by step. Step 0 is the untrained control and takes no part in trajectories.
        weighting: how checkpoints are weighted in trajectory averages.
        minimum_count: leave out tokens that occur less often.

    Returns:
        Columns ``centroid``, ``matrix`` (``input``, ``output`` or ``contextual``), ``stage`` (``trained`` is the last
        checkpoint or, for trajectories, the whole run; ``untrained`` is step 0), ``token_id``, ``count``,
        ``log10_frequency``, ``distance``, and ``relative`` (distance over the row's own norm; over its mean norm for
        trajectories; missing for occurrences). A trajectory needs two checkpoints after step 0.
    """
    trained = [collection for collection in collections if collection.step > 0] or list(collections[-1:])
    untrained = next((collection for collection in collections if collection.step == 0), None)
    parts: list[pd.DataFrame] = []
    if len(trained) > 1:
        parts.extend(_trajectory(trained, matrix, weighting) for matrix in matrices(trained[-1]))
    stages = [
        ("trained", trained[-1]),
        *([("untrained", untrained)] if untrained and untrained is not trained[-1] else []),
    ]
    for stage, collection in stages:
        parts.extend(_vocabulary(collection, matrix, stage) for matrix in matrices(collection))
        parts.append(_occurrences(collection, stage))
    table = pd.concat(parts, ignore_index=True)
    return table[table["count"] >= minimum_count].reset_index(drop=True)


def matrices(collection: Collection) -> list[str]:
    """The embedding matrices a collection holds."""
    return [name for name in ("input", "output") if f"{name}_rows" in collection.arrays]


def _frame(collection: Collection, ids: np.ndarray, **columns: object) -> pd.DataFrame:
    counts = pd.Series(collection.arrays["counts"], index=collection.arrays["token_ids"])
    here = counts.reindex(ids).to_numpy()
    frame = pd.DataFrame({**columns, "token_id": ids, "count": here})
    frame["log10_frequency"] = np.log10(here / counts.sum())
    return frame.dropna(subset=["count"]).astype({"count": np.int64})


def _trajectory(trained: Sequence[Collection], matrix: str, weighting: Weighting) -> pd.DataFrame:
    weights = checkpoint_weights([collection.step for collection in trained], weighting)
    centroid = _centroid(trained, matrix, weights)
    distance = np.zeros(len(centroid))
    norm = np.zeros(len(centroid))
    for weight, collection in zip(weights, trained, strict=True):
        distance += weight * np.linalg.norm(collection.arrays[f"{matrix}_rows"] - centroid, axis=1)
        norm += weight * collection.arrays[f"{matrix}_norm"]
    return _frame(
        trained[-1],
        trained[-1].arrays["token_ids"],
        centroid="trajectory",
        matrix=matrix,
        stage="trained",
        distance=distance,
        relative=distance / norm,
    )


def _centroid(trained: Sequence[Collection], matrix: str, weights: np.ndarray) -> np.ndarray:
    total = np.zeros(trained[0].arrays[f"{matrix}_rows"].shape, dtype=np.float64)
    for weight, collection in zip(weights, trained, strict=True):
        total += weight * collection.arrays[f"{matrix}_rows"]
    return total


def _vocabulary(collection: Collection, matrix: str, stage: str) -> pd.DataFrame:
    distance = collection.arrays[f"{matrix}_vocabulary"]
    return _frame(
        collection,
        collection.arrays["token_ids"],
        centroid="vocabulary",
        matrix=matrix,
        stage=stage,
        distance=distance,
        relative=distance / collection.arrays[f"{matrix}_norm"],
    )


def _occurrences(collection: Collection, stage: str) -> pd.DataFrame:
    return _frame(
        collection,
        collection.arrays["occurrence_ids"],
        centroid="occurrences",
        matrix="contextual",
        stage=stage,
        distance=collection.arrays["occurrence_distance"],
        relative=np.nan,
    )


def distance_courses(
    collections: Sequence[Collection], matrix: str = "input", tokens: int = 5, weighting: Weighting = "step"
) -> pd.DataFrame:
    """Distance to the own centroid over training, for the most and the least frequent tokens (Figure 1, left).

    Returns:
        Columns ``step``, ``group`` (``most frequent`` or ``least frequent``), ``token_id``, ``count``, ``distance``;
        empty with fewer than two checkpoints after step 0.
    """
    trained = [collection for collection in collections if collection.step > 0]
    if len(trained) < 2 or matrix not in matrices(trained[-1]):
        return pd.DataFrame(columns=["step", "group", "token_id", "count", "distance"])
    weights = checkpoint_weights([collection.step for collection in trained], weighting)
    centroid = _centroid(trained, matrix, weights)
    ids, counts = trained[-1].arrays["token_ids"], trained[-1].arrays["counts"]
    rows = []
    for group, chosen in (("most frequent", slice(0, tokens)), ("least frequent", slice(len(ids) - tokens, len(ids)))):
        for collection in trained:
            distance = np.linalg.norm(collection.arrays[f"{matrix}_rows"][chosen] - centroid[chosen], axis=1)
            rows.append(
                pd.DataFrame(
                    {
                        "step": collection.step,
                        "group": group,
                        "token_id": ids[chosen],
                        "count": counts[chosen],
                        "distance": distance,
                    }
                )
            )
    return pd.concat(rows, ignore_index=True)


def correlations(tokens: pd.DataFrame, *, draws: int = 999, seed: int = 0) -> pd.DataFrame:
    """Correlation of distance with log10 frequency under every reading, beside its null.

    The interval is over tokens of one run: descriptive, since tokens of one run are not replicates. The null shuffles
    frequencies among tokens.

    Args:
        tokens: what :func:`token_distances` returned.
        draws: shuffles of the null.
        seed: of the shuffles.

    Returns:
        One row per reading, stage, ``value`` (``distance`` or ``relative``) and ``kind`` (``pearson`` or
        ``spearman``): ``estimate``, ``low``, ``high``, ``n``, ``null_low``, ``null_high``, ``p_value``.
    """
    rows = []
    for (centroid, matrix, stage), group in tokens.groupby(["centroid", "matrix", "stage"], sort=False):
        for value in ("distance", "relative"):
            usable = group.dropna(subset=[value])
            if len(usable) < 4:
                continue
            x, y = usable["log10_frequency"].to_numpy(), usable[value].to_numpy()
            pairs: dict[CorrelationKind, tuple[np.ndarray, np.ndarray]] = {
                "pearson": (x, y),
                "spearman": (_ranks(x), _ranks(y)),
            }
            for kind, pair in pairs.items():
                found = correlation(x, y, kind)
                null = permutation_null(pearson, *pair, draws, seed)
                rows.append(
                    {
                        "centroid": centroid,
                        "matrix": matrix,
                        "stage": stage,
                        "value": value,
                        "kind": kind,
                        "estimate": found.estimate,
                        "low": found.low,
                        "high": found.high,
                        "n": found.n,
                        "null_low": null.low,
                        "null_high": null.high,
                        "p_value": null.p_value,
                    }
                )
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = ["centroid", "matrix", "stage", "value", "kind", "estimate", "low", "high", "n"]
_COLUMNS += ["null_low", "null_high", "p_value"]


def _ranks(values: np.ndarray) -> np.ndarray:
    return pd.Series(values).rank().to_numpy()


def summarise(
    collections: Mapping[str, Sequence[Collection]],
    *,
    weighting: Weighting = "step",
    minimum_count: int = 1,
    draws: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlations of every model, ``model`` and ``seed`` (of training) in front; see :func:`correlations`."""
    frames = []
    for label, of_model in collections.items():
        table = correlations(token_distances(of_model, weighting, minimum_count), draws=draws, seed=seed)
        name, training_seed = split_label(label)
        table.insert(0, "model", name)
        table.insert(1, "seed", training_seed)
        frames.append(table)
    return pd.concat(frames, ignore_index=True)


def by_minimum_count(
    collections: Mapping[str, Sequence[Collection]], minimum_counts: Sequence[int], weighting: Weighting = "step"
) -> dict[int, pd.DataFrame]:
    """The summary under several cut-offs of the rare tail; cut-offs that leave fewer than 4 tokens are left out.

    Returns:
        What :func:`summarise` returns, without a null worth the name, by ``minimum_count``.
    """
    found = {}
    for minimum in minimum_counts:
        table = summarise(collections, weighting=weighting, minimum_count=minimum, draws=1)
        if not table.empty:
            found[minimum] = table
    return found


def group_cosines(collection: Collection, groups: int = 5) -> pd.DataFrame:
    """Mean cosine between rows of tokens of similar frequency: how narrow a cone each group lies in.

    Args:
        collection: one checkpoint.
        groups: how many groups of equal size, from the rarest to the most frequent tokens.

    Returns:
        Columns ``matrix``, ``group`` (1 the rarest), ``tokens``, ``count`` (median) and ``cosine``, which is 0 for
        directions drawn at random.
    """
    from_rarest = np.argsort(collection.arrays["counts"], kind="stable")
    rows = []
    for matrix in matrices(collection):
        for number, members in enumerate(np.array_split(from_rarest, groups), 1):
            vectors = collection.arrays[f"{matrix}_rows"][members]
            rows.append(
                {
                    "matrix": matrix,
                    "group": number,
                    "tokens": len(members),
                    "count": float(np.median(collection.arrays["counts"][members])),
                    "cosine": float(mean_cosine(vectors)),
                }
            )
    return pd.DataFrame(rows)
