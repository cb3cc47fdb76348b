"""Concept alignment: do the concepts of gradients and of weights look like the concepts of the data? (Figures 6 and 7.)

**Gradients against data** (Figure 6). At one probe, activations h and gradients ∂loss/∂h of the same tokens are
decomposed separately by the same method, and the two sets of concepts are matched one to one on ``|Pearson|``. The
pairing of a token's activation with its gradient takes no part in it.

**Weights against data** (Figure 7). A weight matrix is taken as a data matrix whose rows are vectors in the space that
the map reads: units of the first block's two MLP maps (:mod:`anisotropy.studies.first_block`), tokens of the embedding.
The caption passes the data's concepts "through the model" first. [ours] The *image* of a concept where a map reads is
its least-squares effect there, D′ = argmin ‖H − ZD′‖ for the codes Z of the data's concepts and the vectors H that the
map reads for the same tokens. For the embedding itself D′ = D.

Tokens come in groups of blocks that share no document. Each group has its own decompositions with its own seeds, so
groups are replicates of both [ours]: their spread holds what other text and other seeds would change, not what another
training run would.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from sklearn.exceptions import ConvergenceWarning

from anisotropy.concepts.decompositions import METHODS, Decomposition, Method, decompose
from anisotropy.concepts.matching import Matching, RotatedBaseline, absolute_correlations, match, rotated_baseline
from anisotropy.concepts.semi_nmf import SemiNMF
from anisotropy.models.corpus import StudyText, even_tokens, take_tokens
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.objectives import inputs_and_labels, shuffled
from anisotropy.models.probes import batches, capture_each, find_places
from anisotropy.process import side_by_side
from anisotropy.studies.first_block import LinearMap, find_linear_maps

NAME = "alignment"
SOURCES = ("gradient", "shuffled")
#: Summaries of a matching, over all pairs, the ten best, and those above the spectral gap.
METRICS = ("mean", "top", "above_gap")
MATRICES = ("first", "second", "embedding")
_SEQUENCES_A_BATCH = 32
_FLOOR_DRAWS = 5


class Parameters(BaseModel):
    """What ``collect`` measures; all of it [ours] unless said otherwise.

    Attributes:
        probe: where activations and gradients are read; the paper names the embedding layer.
        components: concepts per method, 51 as in the paper's Figure 7 (ranks 0 … 50); at most half of the dimensions.
        text_tokens: tokens of held-out text that are read, spread evenly over the blocks.
        tokens: rows kept of them, a seeded sample where there are more.
        groups: groups of blocks that share no document, each decomposed by itself.
        weight_seeds: how many of the groups' concepts are held against the weights, each with its own seed.
        weight_rows: rows of the embedding matrix at most, a seeded sample.
        tolerance: of Semi-NMF and ICA, see :func:`anisotropy.concepts.decompositions.decompose`.
        iterations: of Semi-NMF and ICA at most.
        rotations: random rotations behind each baseline.
        named_tokens: how many of the most frequent tokens are held against each concept.
        seed: of samples, labels, decompositions and rotations; each draws from a stream of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    probe: str = "T1_in"
    components: int = Field(51, ge=4)
    text_tokens: int = Field(8_448, gt=0)
    tokens: int = Field(8_192, gt=0)
    groups: int = Field(5, ge=2)
    weight_seeds: int = Field(3, ge=1)
    weight_rows: int = Field(1_024, ge=16)
    tolerance: float = Field(1e-3, gt=0)
    iterations: int = Field(100, ge=1)
    rotations: int = Field(10, ge=1)
    named_tokens: int = Field(200, ge=1)
    seed: int = 0


@dataclass(frozen=True)
class Group:
    """The tokens of one group of blocks: rows of shape (n, d), and (n, inputs) for what each linear map reads."""

    data: np.ndarray
    gradient: np.ndarray
    shuffled: np.ndarray
    read: Mapping[str, np.ndarray]


def collect(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> dict[str, np.ndarray]:
    """Measure one checkpoint.

    Returns:
        With k concepts, g groups, s weight seeds and r rotations, arrays by name.

        - ``rows`` (g,) tokens per group, and ``dimensions`` (1,);
        - per source (``gradient``, or ``shuffled`` for labels permuted over the whole text) and method
          (``pca``, ``semi_nmf``, ``ica``): ``…_correlations`` (g, k) matched ``|correlations|`` with the data's
          concepts, best first; ``…_matched`` (g, 3), the three metrics in the order of :data:`METRICS`;
          ``…_rotated`` (g, r, 3) the same of rotated concepts; ``…_gap`` (g,) how many pairs lie above the gap;
        - per method ``data_…`` and ``gradient_…`` (k, d), the concepts of the first group, strongest first;
        - of these, ``…_token`` (k,), among the most frequent tokens the one whose embedding is most like the concept,
          and ``…_likeness`` (k,), their ``|Pearson|``; ``chance_likeness`` (1,), the mean of random directions;
        - per part (``data``, ``gradient``, ``shuffled``) and method ``…_converged`` (g,) and ``…_loss`` (g,), the
          share of ‖A‖² not reconstructed;
        - per matrix (``first``, ``second`` where :func:`~anisotropy.studies.first_block.find_linear_maps` finds them,
          ``embedding``) and method ``weight_…`` (s, k, k), ``|Pearson|`` of the weight concept of each rank (rows,
          strongest first) with the image of each data concept; ``floor_…`` (s, draws), the mean
          matched value of rotated weight concepts.

    Raises:
        ValueError: the family has no such probe; or data that cannot be decomposed (not finite, constant, fewer rows
            than concepts), with what and where.
    """
    maps = find_linear_maps(checkpoint.model)
    groups = list(_groups(checkpoint, text, parameters, maps))
    d = groups[0].data.shape[1]
    k = min(parameters.components, d // 2)
    where = f"{checkpoint.name}, step {checkpoint.step}"
    arrays: dict[str, np.ndarray] = {
        "rows": np.array([len(group.data) for group in groups]),
        "dimensions": np.array([d]),
    }
    streams = {part: stream for stream, part in enumerate(("data", *SOURCES))}

    def concepts(task: tuple[Method, str, int]) -> Decomposition:
        method, part, number = task
        return _concepts(
            getattr(groups[number], part),
            method,
            k,
            parameters,
            streams[part],
            number,
            f"{where}, {part}",
            with_codes=part == "data" and number < parameters.weight_seeds,
        )

    tasks = [(method, part, number) for method in METHODS for part in streams for number in range(len(groups))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported by `converged`
        found = dict(zip(tasks, side_by_side(concepts, tasks), strict=True))
    of_data = {}
    for method in METHODS:
        by_part = {part: [found[method, part, number] for number in range(len(groups))] for part in streams}
        of_data[method] = by_part["data"]
        for part, each in by_part.items():
            arrays[f"{part}_{method}_converged"] = np.array([one.converged for one in each])
            arrays[f"{part}_{method}_loss"] = np.array([one.relative_loss for one in each])
        for part in SOURCES:
            pairs = zip(by_part["data"], by_part[part], strict=True)
            arrays |= compare([(a.components, b.components) for a, b in pairs], f"{part}_{method}", parameters)
        for part in ("data", "gradient"):
            arrays[f"{part}_{method}"] = by_part[part][0].components.astype(np.float32)
    matrices = _matrices(checkpoint, maps, parameters)

    def weights(task: tuple[Method, str]) -> dict[str, np.ndarray]:
        method, matrix = task
        read = [group.data if matrix == "embedding" else group.read[matrix] for group in groups]
        return _weights(matrices[matrix], matrix, method, of_data[method], read, parameters, where)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for each_matrix in side_by_side(weights, [(method, matrix) for method in METHODS for matrix in matrices]):
            arrays |= each_matrix
    return arrays | _likest_tokens(arrays, *_frequent_tokens(checkpoint, text, parameters), parameters)


def compare(pairs: Sequence[tuple[np.ndarray, np.ndarray]], name: str, parameters: Parameters) -> dict[str, np.ndarray]:
    """Match two sets of concepts per group, and rotated copies of the second with the first.

    Args:
        pairs: one a group, concepts (k, d) of the data and of what is held against them.
        name: prefix of the arrays.
        parameters: ``rotations`` and ``seed``.

    Returns:
        ``…_correlations`` (groups, k), ``…_matched`` (groups, 3), ``…_rotated`` (groups, rotations, 3), ``…_gap``
        (groups,).
    """
    matchings = [match(a, b) for a, b in pairs]
    baselines = [
        rotated_baseline(a, b, parameters.rotations, _seed(parameters, 9, number))
        for number, (a, b) in enumerate(pairs)
    ]
    return {
        f"{name}_correlations": np.array([matching.correlations for matching in matchings]),
        f"{name}_matched": np.array([_metrics(matching) for matching in matchings]),
        f"{name}_rotated": np.array([np.transpose(_metrics(baseline)) for baseline in baselines]),
        f"{name}_gap": np.array([matching.gap_count for matching in matchings]),
    }


def _frequent_tokens(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the most frequent tokens (and the mask token, where there is one), and their embeddings less the mean."""
    ids = np.argsort(-text.counts, kind="stable")[: parameters.named_tokens]
    if checkpoint.mask_id is not None:
        ids = np.append(ids[ids != checkpoint.mask_id], checkpoint.mask_id)
    embedding = checkpoint.model.get_input_embeddings().weight.detach()
    assert isinstance(embedding, torch.Tensor)
    rows = embedding[torch.from_numpy(ids).to(embedding.device)].double() - embedding.mean(0, dtype=torch.float64)
    return ids, rows.cpu().numpy()


def _likest_tokens(
    arrays: Mapping[str, np.ndarray], ids: np.ndarray, rows: np.ndarray, parameters: Parameters
) -> dict[str, np.ndarray]:
    """For each kept concept the token whose embedding is most like it, and the same for random directions."""
    random = np.random.default_rng(_seed(parameters, 5)).standard_normal((200, rows.shape[1]))
    found = {"chance_likeness": absolute_correlations(random, rows).max(1).mean(keepdims=True)}
    for name in (f"{part}_{method}" for part in ("data", "gradient") for method in METHODS):
        likeness = absolute_correlations(arrays[name], rows)
        found |= {f"{name}_token": ids[likeness.argmax(1)], f"{name}_likeness": likeness.max(1)}
    return found


def _metrics(found: Matching | RotatedBaseline) -> list:
    return [getattr(found, metric) for metric in METRICS]


def _seed(parameters: Parameters, *stream: int) -> int:
    """A seed of its own for every use: equal seeds for data and start would look like recovery."""
    return int(np.random.SeedSequence([parameters.seed, *stream]).generate_state(1)[0])


def _concepts(
    rows: np.ndarray,
    method: Method,
    k: int,
    parameters: Parameters,
    stream: int,
    number: int,
    what: str,
    with_codes: bool = False,
) -> Decomposition:
    if len(rows) <= k:
        raise ValueError(f"{what}: {len(rows)} rows are too few for {k} concepts; raise tokens or lower components")
    try:
        if method == "semi_nmf" and not with_codes:
            return _directions_only(rows, k, parameters, _seed(parameters, stream, number))
        return decompose(
            rows, method, k, _seed(parameters, stream, number), parameters.tolerance, parameters.iterations
        )
    except ValueError as error:
        raise ValueError(f"{what}, {method}: {error}") from None


def _directions_only(rows: np.ndarray, k: int, parameters: Parameters, seed: int) -> Decomposition:
    """Semi-NMF without the exact codes of every row, which cost twice as much as the directions."""
    model = SemiNMF(k, tol=parameters.tolerance, max_iter=parameters.iterations, random_state=seed)
    model.fit(rows)
    energy = float((rows.astype(np.float64) ** 2).sum())
    nothing = np.empty((0, k), dtype=rows.dtype)
    mean, strength = np.zeros(rows.shape[1], dtype=rows.dtype), model.code_mass_ / model.code_mass_.sum()
    loss = float(model.reconstruction_err_) ** 2 / energy
    return Decomposition("semi_nmf", model.components_, nothing, mean, strength, loss, model.n_iter_, model.converged_)


def _groups(
    checkpoint: Checkpoint, text: StudyText, parameters: Parameters, maps: Mapping[str, LinearMap]
) -> Iterator[Group]:
    """Activations, gradients under true and under shuffled labels, and what the maps read, group by group."""
    if parameters.groups > len(text.blocks):
        raise ValueError(f"groups is {parameters.groups}, but the text has {len(text.blocks)} blocks")
    blocks = take_tokens(text.blocks, min(parameters.text_tokens, even_tokens(text.blocks)))
    drawn = [
        inputs_and_labels(block, checkpoint.objective, mask_id=checkpoint.mask_id, seed=(parameters.seed, number))
        for number, block in enumerate(blocks)
    ]
    inputs, labels = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    block_of = np.repeat(np.arange(len(blocks)), [block.size for block in blocks])
    data, (gradient, other), read = _run(
        checkpoint, inputs, [labels, shuffled(labels, _seed(parameters, 8))], parameters.probe, maps
    )
    # The last token of a causal sequence has no label and reaches no other: its gradient is exactly zero.
    usable = np.flatnonzero(gradient.any(1))
    wanted = -(-parameters.tokens // parameters.groups)
    for number in range(parameters.groups):
        # Every so many blocks, because the first of them give a sequence more than the last.
        own = usable[block_of[usable] % parameters.groups == number]
        generator = np.random.default_rng(_seed(parameters, 7, number))
        chosen = np.sort(generator.permutation(own)[:wanted])
        yield Group(
            data[chosen],
            _unit_scale(gradient[chosen]),
            _unit_scale(other[chosen]),
            {name: rows[chosen] for name, rows in read.items()},
        )


def _run(
    checkpoint: Checkpoint,
    inputs: np.ndarray,
    labels: Sequence[np.ndarray],
    probe: str,
    maps: Mapping[str, LinearMap],
) -> tuple[np.ndarray, list[np.ndarray], dict[str, np.ndarray]]:
    """Activations, gradients of the summed loss under each labels, (tokens, d) float32, and what each map reads."""
    model, places = checkpoint.model, find_places(checkpoint.model)
    data: list[torch.Tensor] = []
    gradients: list[list[torch.Tensor]] = [[] for _ in labels]
    read: dict[str, list[torch.Tensor]] = {name: [] for name in maps}
    watched = {name: linear.layers[0] for name, linear in maps.items()}
    for _, place, ids in batches([inputs], _SEQUENCES_A_BATCH, model.device):
        asked = [torch.from_numpy(each[place]).to(model.device) for each in labels]
        found = capture_each(model, ids, asked, probes=[probe], places=places, watched=watched)
        data.append(found[0].activations[probe])
        for kept, one in zip(gradients, found, strict=True):
            kept.append(one.gradients[probe] * one.positions)
        for name, parts in read.items():
            parts.append(found[0].reader_inputs[name])
    return _flat(data), [_flat(each) for each in gradients], {name: _flat(parts) for name, parts in read.items()}


def _flat(parts: Sequence[torch.Tensor]) -> np.ndarray:
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts]).float().cpu().numpy()


def _unit_scale(rows: np.ndarray) -> np.ndarray:
    """Rows over their root mean square: gradients can be tiny, and no concept depends on their scale."""
    size = float(np.sqrt(np.mean(rows.astype(np.float64) ** 2)))
    return rows / np.float32(size) if size > 0 else rows


def _matrices(checkpoint: Checkpoint, maps: Mapping[str, LinearMap], parameters: Parameters) -> dict[str, np.ndarray]:
    """The weight matrices as data: rows are vectors in the space that the map reads."""
    embedding = checkpoint.model.get_input_embeddings().weight.detach()
    assert isinstance(embedding, torch.Tensor)
    order = np.random.default_rng(_seed(parameters, 6)).permutation(len(embedding))[: parameters.weight_rows]
    sample = embedding[torch.from_numpy(np.sort(order)).to(embedding.device)]
    tensors = {name: linear.rows for name, linear in maps.items()} | {"embedding": sample}
    return {name: rows.float().cpu().numpy() for name, rows in tensors.items()}


def _weights(
    rows: np.ndarray,
    matrix: str,
    method: Method,
    concepts: Sequence[Decomposition],
    read: Sequence[np.ndarray],
    parameters: Parameters,
    where: str,
) -> dict[str, np.ndarray]:
    """Correlations of a matrix's concepts, by rank, with the images of the data's concepts, one set a seed."""
    tables, floors = [], []
    stream = 10 + MATRICES.index(matrix)
    for number in range(min(parameters.weight_seeds, len(concepts))):
        k = len(concepts[number].components)
        found = _concepts(rows, method, k, parameters, stream, number, f"{where}, {matrix} matrix")
        images = image(concepts[number], read[number])
        tables.append(absolute_correlations(found.components, images))
        floors.append(
            rotated_baseline(images, found.components, _FLOOR_DRAWS, _seed(parameters, 20 + stream, number)).mean
        )
    return {
        f"weight_{matrix}_{method}": np.array(tables, dtype=np.float32),
        f"floor_{matrix}_{method}": np.array(floors),
    }


def image(concepts: Decomposition, read: np.ndarray) -> np.ndarray:
    """The concepts where another part of the model reads: D′ = argmin ‖H − ZD′‖ for their codes Z.

    Args:
        concepts: of the data, codes (n, k). Where the method takes the mean away, it is taken from H too.
        read: H, (n, inputs), what the map reads for the same tokens.

    Returns:
        D′, shape (k, inputs), float64; the shortest one where codes are linearly dependent.
    """
    codes, target = concepts.codes.astype(np.float64), read.astype(np.float64)
    if concepts.mean.any():
        codes, target = codes - codes.mean(0), target - target.mean(0)
    return np.linalg.lstsq(codes, target, rcond=None)[0]
