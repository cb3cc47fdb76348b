"""Semi-NMF concepts of activations at the first, middle and last layer of one checkpoint (Table 2, the heavy half).

A concept is a direction: a row of D in A ≈ ZD, of length 1, with a code Z ≥ 0 per token. ``collect`` finds them, once
per Semi-NMF seed, and keeps the directions; what is said of their geometry is cheap and made of them later, in
:mod:`anisotropy.studies.concept_windows`. The same measures on the activations themselves, PCA and ICA for comparison,
and what a card needs to show a concept of the middle layer (tokens in context, nearest unembedding rows) are taken
here too, because they need the activations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from transformers import PreTrainedModel

from anisotropy.concepts.decompositions import decompose
from anisotropy.concepts.matching import match, rotated_baseline
from anisotropy.concepts.semi_nmf import SemiNMF
from anisotropy.errors import UserError
from anisotropy.geometry.dimension import effective_rank, graph_dimension, pca_components, twonn
from anisotropy.geometry.moments import Moments
from anisotropy.models.corpus import StudyText, even_tokens, take_tokens
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.probes import batches, blocks_of, capture, find_places
from anisotropy.process import side_by_side

NAME = "concept_tables"
LAYERS = {"first": "T1_in", "middle": "Tm", "last": "Tl"}
CARD_LAYER = "middle"
RAW_MEASURES = ("id_graph", "id_twonn", "pca_70", "effective_rank")
_SEQUENCES_A_BATCH = 32
_POINTS, _SOURCES = 2_000, 500  # neighbour graphs of more points say the same at a cost that grows with their square
_TRACKED = 1_024
_TOP_SHARE, _TOP_LEAST = 0.01, 20
CONTEXT_CENTRE, _RIGHT = 12, 6  # tokens to the left and to the right of the one that is shown
_LISTED = 8


class Parameters(BaseModel):
    """What ``collect`` measures; all of it [ours].

    Attributes:
        concepts: number k of concepts per layer; where a layer has few coordinates d, three quarters of them at most
            (with k = d any activations fit exactly). Estimates of intrinsic dimension have k points per checkpoint, and
            the effective rank cannot exceed k − 1.
        rows: size n of the seeded reservoir of activations, the same tokens at every checkpoint.
        text_tokens: tokens of held-out text that the reservoir is drawn from, or as many as the corpus has.
        seeds: Semi-NMF starts, 0 … seeds − 1.
        tol, max_iter: when Semi-NMF stops; see :class:`anisotropy.concepts.semi_nmf.SemiNMF`.
        ica_rows: rows of the reservoir that independent components are found on.
        card_rows: rows of the reservoir that a concept's tokens are looked for among.
        draws: random rotations behind each baseline of ``c_w``.
        examples: tokens in context kept per concept.
        seed: of the reservoir, of the points that neighbours are looked for among, and of the baselines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    concepts: int = Field(48, ge=12)
    rows: int = Field(8_192, ge=40)
    text_tokens: int = Field(12_288, gt=0)
    seeds: int = Field(3, ge=2)
    tol: float = Field(1e-3, gt=0)
    max_iter: int = Field(500, ge=1)
    ica_rows: int = Field(2_048, ge=40)
    card_rows: int = Field(4_096, ge=40)
    draws: int = Field(10, ge=1)
    examples: int = Field(5, ge=1)
    seed: int = 0


def collect(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> dict[str, np.ndarray]:
    """Measure one checkpoint.

    Returns:
        Per layer (``first``, ``middle``, ``last``), with s seeds, k concepts, n rows and d coordinates,
        ``…_directions`` (s, k, d) float32 of length 1, by decreasing code mass; ``…_mean_code`` (s, k) in the unit of
        the activations; ``…_loss`` (relative), ``…_iterations``, ``…_converged`` (s,); ``…_raw`` (4,) the measures
        named in ``RAW_MEASURES`` of the activations themselves, ``…_raw_duplicates`` (1,); ``…_principal`` (k, d)
        principal directions; ``…_rank_without_block`` (blocks,) effective ranks that leave one block of documents out;
        and, except for the last layer, ``…_c_w`` (s,) and ``…_c_w_baseline`` (s, draws). For the middle layer also
        ``ica`` (k, d), ``ica_converged`` (1,), ``tracked`` (t, d) activations of the first t reservoir tokens, and the
        ``card_…`` arrays of :func:`card_arrays`. ``reservoir`` (n,) are places in the text.

    Raises:
        UserError: fewer rows than concepts, or activations that are constant or not finite; the message
            names checkpoint, layer and probe.
    """
    blocks = take_tokens(text.blocks, min(parameters.text_tokens, even_tokens(text.blocks)))
    reservoir = choose_rows(sum(block.size for block in blocks), parameters.rows, parameters.seed)
    layers = read_layers(checkpoint, blocks, reservoir)
    for layer, rows in layers.items():
        _check(rows, parameters, f"{checkpoint.name}, step {checkpoint.step}, {layer} layer ({LAYERS[layer]})")
    device = checkpoint.model.device
    weights = {layer: weight for layer in LAYERS if (weight := next_weight(checkpoint.model, layer)) is not None}
    jobs = {("activations", layer): rows for layer, rows in layers.items()}
    jobs |= {("weight", layer): weight for layer, weight in weights.items()}
    fits = _factorise(jobs, parameters, device)
    of_block = np.searchsorted(np.cumsum([block.size for block in blocks]), reservoir, side="right")
    arrays: dict[str, np.ndarray] = {"reservoir": reservoir}
    for layer, rows in layers.items():
        found = fits["activations", layer]
        arrays[f"{layer}_directions"] = np.stack([fit.components_ for fit in found]).astype(np.float32)
        arrays[f"{layer}_mean_code"] = np.stack([fit.code_mass_ for fit in found]) / len(rows)
        energy = float((rows.astype(np.float64) ** 2).sum())
        arrays[f"{layer}_loss"] = np.array([fit.reconstruction_err_**2 / energy for fit in found])
        arrays[f"{layer}_iterations"] = np.array([fit.n_iter_ for fit in found])
        arrays[f"{layer}_converged"] = np.array([fit.converged_ for fit in found])
        if layer in weights:
            arrays |= _weight_correlation(layer, found, fits["weight", layer], parameters)
    rows = layers[CARD_LAYER]
    arrays["tracked"] = rows[:_TRACKED]
    shown = slice(0, parameters.card_rows)
    fit = fits["activations", CARD_LAYER][0]

    def cards() -> dict[str, np.ndarray]:
        ids = np.concatenate([block.ravel() for block in blocks])
        return card_arrays(fit.transform(rows[shown]), ids, reservoir[shown], blocks[0].shape[1], parameters.examples)

    tasks: list[Callable[[], dict[str, np.ndarray]]] = [cards, partial(_independent, rows, parameters)]
    tasks += [partial(_raw_measures, layer, each, of_block, parameters) for layer, each in layers.items()]
    for found_arrays in side_by_side(lambda task: task(), tasks):
        arrays |= found_arrays
    head = checkpoint.model.get_output_embeddings()
    if head is not None and head.weight.shape[1] == rows.shape[1]:
        matrix = head.weight.detach().double().cpu().numpy()
        arrays |= nearest_unembeddings(fit.components_, matrix, text.counts)
    return arrays


def choose_rows(tokens: int, rows: int, seed: int) -> np.ndarray:
    """Places of ``rows`` tokens out of ``tokens``, drawn without replacement; all of them where there are fewer.

    They come in random order, so that any first part of them is a random sample too.
    """
    return np.random.default_rng(seed).permutation(tokens)[:rows].astype(np.int64)


def concept_count(parameters: Parameters, coordinates: int) -> int:
    """Number of concepts of a layer with so many coordinates."""
    return max(1, min(parameters.concepts, 3 * coordinates // 4))


def read_layers(checkpoint: Checkpoint, blocks: Sequence[np.ndarray], reservoir: np.ndarray) -> dict[str, np.ndarray]:
    """Activations of the reservoir's tokens at the three layers, shape (n, d) float32; nothing else is kept."""
    places = find_places(checkpoint.model)
    order = np.argsort(reservoir)
    ordered = reservoir[order]
    found: dict[str, list[np.ndarray]] = {layer: [] for layer in LAYERS}
    offset = done = 0
    for _, _, inputs in batches(blocks, _SEQUENCES_A_BATCH, checkpoint.model.device):
        upto = int(np.searchsorted(ordered, offset + inputs.numel()))
        local = torch.from_numpy(ordered[done:upto] - offset).to(inputs.device)
        activations = capture(checkpoint.model, inputs, probes=list(LAYERS.values()), places=places).activations
        for layer, probe in LAYERS.items():
            flat = activations[probe].reshape(-1, activations[probe].shape[-1])
            found[layer].append(flat[local].float().cpu().numpy())
        offset, done = offset + inputs.numel(), upto
    back = np.argsort(order)
    return {layer: np.concatenate(parts)[back] for layer, parts in found.items()}


def _check(rows: np.ndarray, parameters: Parameters, where: str) -> None:
    n, d = rows.shape
    concepts = concept_count(parameters, d)
    if bad := int((~np.isfinite(rows)).sum()):
        raise UserError(f"{where}: {bad} of {rows.size} activations are not finite")
    if n <= concepts:
        raise UserError(f"{where}: {n} rows for {concepts} concepts; raise rows and text_tokens, or lower concepts")
    if not np.ptp(rows, axis=0).any():
        raise UserError(f"{where}: the activations are the same for all {n} tokens; there is nothing to factorise")


def next_weight(model: PreTrainedModel, layer: str) -> np.ndarray | None:
    """The first linear map of the block after the layer's, shape (outputs, d): its rows are directions it reads.

    ``None`` for the last layer, which no block follows (as in the paper).

    Raises:
        ValueError: a block without such a map.
    """
    entry = find_places(model).entries[LAYERS[layer]] or 0
    following = list(blocks_of(model))[entry + 1 :]
    if layer == "last" or not following:
        return None
    size = model.get_input_embeddings().weight.shape[1]
    for module in following[0].modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.ndim == 2:
            # GPT-2 keeps its linear maps transposed.
            matrix = weight if isinstance(module, nn.Linear) else weight.T
            if matrix.shape[1] == size:
                return matrix.detach().float().cpu().numpy()
    raise ValueError(f"{type(model).__name__}: block {entry + 1} has no linear map that reads {size} coordinates")


def _factorise(
    jobs: Mapping[tuple[str, str], np.ndarray], parameters: Parameters, device: torch.device
) -> dict[tuple[str, str], list[SemiNMF]]:
    """Semi-NMF of every matrix from every seed; side by side on a CPU, where one alone does not fill the cores."""
    from sklearn.exceptions import ConvergenceWarning

    def fit(job: tuple[tuple[str, str], int]) -> SemiNMF:
        key, seed = job
        matrix = jobs[key]
        model = SemiNMF(
            min(concept_count(parameters, matrix.shape[1]), len(matrix)),
            tol=parameters.tol,
            max_iter=parameters.max_iter,
            random_state=seed,
            device=str(device) if device.type == "cuda" else None,
        )
        return model.fit(matrix)

    tasks = [(key, seed) for key in jobs for seed in range(parameters.seeds)]
    # Whether a fit converged is kept and shown on the page.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = side_by_side(fit, tasks, 1 if device.type == "cuda" else None)
    fitted = dict(zip(tasks, found, strict=True))
    return {key: [fitted[key, seed] for seed in range(parameters.seeds)] for key in jobs}


def _independent(rows: np.ndarray, parameters: Parameters) -> dict[str, np.ndarray]:
    """Independent components of the first rows, for comparison."""
    found = decompose(
        rows[: parameters.ica_rows].astype(np.float64),
        "ica",
        concept_count(parameters, rows.shape[1]),
        tol=parameters.tol,
        max_iter=100,
    )
    return {"ica": found.components.astype(np.float32), "ica_converged": np.array([found.converged])}


def _raw_measures(layer: str, rows: np.ndarray, of_block: np.ndarray, parameters: Parameters) -> dict[str, np.ndarray]:
    points = rows[:_POINTS]
    nearest = _estimate_or_nan(lambda: twonn(points).estimate)
    paths = _estimate_or_nan(
        lambda: graph_dimension(points, all_pairs_up_to=0, sources=_SOURCES, seed=parameters.seed).estimate
    )
    measures = [paths, nearest, pca_components(rows).estimate, effective_rank(rows).estimate]
    principal = decompose(rows.astype(np.float64), "pca", concept_count(parameters, rows.shape[1]))
    return {
        f"{layer}_raw": np.array(measures),
        f"{layer}_raw_duplicates": np.array([len(points) - len(np.unique(points, axis=0))]),
        f"{layer}_principal": principal.components.astype(np.float32),
        f"{layer}_rank_without_block": _ranks_without_a_block(rows, of_block),
    }


def _estimate_or_nan(estimate: Callable[[], float]) -> float:
    """An intrinsic dimension; missing where a layer has too few different points for it (a tiny vocabulary)."""
    try:
        return estimate()
    except ValueError:
        return float("nan")


def _ranks_without_a_block(rows: np.ndarray, of_block: np.ndarray) -> np.ndarray:
    """Effective rank of the activations, each block of documents left out once: the replicates of a jackknife."""
    parts = [Moments.of(torch.from_numpy(rows[of_block == block])) for block in np.unique(of_block)]
    ranks = []
    for left_out in range(len(parts)):
        scatter = Moments.merged(parts[:left_out] + parts[left_out + 1 :]).centred_scatter
        values = torch.linalg.eigvalsh(scatter).clamp_min(0).sqrt()
        shares = values / values.sum()
        ranks.append(float((-torch.special.xlogy(shares, shares).sum()).exp()))
    return np.array(ranks)


def _weight_correlation(
    layer: str, found: Sequence[SemiNMF], of_weight: Sequence[SemiNMF], parameters: Parameters
) -> dict[str, np.ndarray]:
    pairs = list(zip(found, of_weight, strict=True))
    seeds = range(parameters.seed, parameters.seed + len(pairs))
    return {
        f"{layer}_c_w": np.array([match(a.components_, b.components_).mean for a, b in pairs]),
        f"{layer}_c_w_baseline": np.stack(
            [
                rotated_baseline(a.components_, b.components_, parameters.draws, seed).mean
                for (a, b), seed in zip(pairs, seeds, strict=True)
            ]
        ),
    }


def card_arrays(
    codes: np.ndarray, ids: np.ndarray, reservoir: np.ndarray, length: int, examples: int
) -> dict[str, np.ndarray]:
    """What the cards of one factorisation show of the text.

    Tokens are ranked by how far their code exceeds what is expected of them, see :func:`code_excess` [ours]: a token
    whose activation is long has large codes of every concept, and would head most cards.

    Args:
        codes: (n, k) of the reservoir's tokens.
        ids: token ids of the whole text, one long stream of sequences.
        reservoir: places of the n tokens in it.
        length: of a sequence; no context leaves its sequence.
        examples: contexts per concept, from different sequences.

    Returns:
        ``card_active`` (k,) share of tokens with a positive code; ``card_contexts`` (k, examples, 19) token ids, the
        token itself at place 12, −1 where there is none; ``card_ratios`` (k, examples), the code over the
        expected one; ``card_tokens`` and ``card_token_shares`` (k, 8): the most common
        tokens among the highest hundredth (at least 20).
    """
    n, k = codes.shape
    excess, expected = code_excess(codes)
    top = min(n, max(_TOP_LEAST, round(_TOP_SHARE * n)))
    contexts = np.full((k, examples, CONTEXT_CENTRE + 1 + _RIGHT), -1, dtype=np.int64)
    strengths = np.zeros((k, examples))
    tokens, shares = np.full((k, _LISTED), -1, dtype=np.int64), np.zeros((k, _LISTED))
    for concept in range(k):
        order = np.argsort(-excess[:, concept], kind="stable")
        order = order[codes[order, concept] > 0]
        if not len(order):
            continue
        values, counts = np.unique(ids[reservoir[order[:top]]], return_counts=True)
        common = np.argsort(-counts, kind="stable")[:_LISTED]
        tokens[concept, : len(common)] = values[common]
        shares[concept, : len(common)] = counts[common] / counts.sum()
        _, firsts = np.unique(reservoir[order] // length, return_index=True)
        for place, row in enumerate(order[np.sort(firsts)[:examples]]):
            contexts[concept, place] = _context(ids, int(reservoir[row]), length)
            strengths[concept, place] = codes[row, concept] / expected[row, concept]
    return {
        "card_active": (codes > 0).mean(axis=0),
        "card_contexts": contexts,
        "card_ratios": strengths,
        "card_tokens": tokens,
        "card_token_shares": shares,
    }


def code_excess(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each code exceeds the one expected of its token and its concept, as in correspondence analysis.

    The expected code e is the token's sum of codes times the concept's share of all codes. Returns (z − e)/√e and e,
    both (n, k); for a token or a concept without any code both are 0.
    """
    values = codes.astype(np.float64)
    total = values.sum()
    expected = values.sum(axis=1, keepdims=True) * values.sum(axis=0) / (total if total > 0 else 1)
    return np.where(expected > 0, (values - expected) / np.sqrt(np.where(expected > 0, expected, 1)), 0), expected


def _context(ids: np.ndarray, place: int, length: int) -> np.ndarray:
    start = place - place % length
    around = np.arange(place - CONTEXT_CENTRE, place + _RIGHT + 1)
    inside = (around >= start) & (around < min(start + length, len(ids)))
    return np.where(inside, ids[around.clip(0, len(ids) - 1)], -1)


def nearest_unembeddings(directions: np.ndarray, matrix: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    """Tokens whose unembedding rows point most nearly along each direction.

    Rows are taken about the mean of the rows of all tokens that occur in training: that mean is common to all tokens,
    so it says nothing about any. Tokens that never occur are left out.

    Returns:
        ``card_unembeddings`` (k, 8) token ids and ``card_cosines`` (k, 8), largest first.
    """
    seen = np.flatnonzero(counts)
    centred = matrix[seen] - matrix[seen].mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = directions.astype(np.float64) @ (centred / np.where(lengths > 0, lengths, 1)).T
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :_LISTED]
    return {"card_unembeddings": seen[best], "card_cosines": np.take_along_axis(cosines, best, axis=1)}
