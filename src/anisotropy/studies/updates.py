"""Embedding updates: in which directions rows move between checkpoints, against how often their tokens occur.

Figures 3 and 4 and Table 3 of the paper. For a pair of checkpoints, row w of a token and its update dw,

    enrichment = (share of ‖dw‖² in a subspace) / (the share that an update of random direction has on average).

The paper's abstract and captions do not say how the tangent subspace is made; what follows is [ours].

- *Tangent*: the leading principal directions of the embedding matrix at the start of the pair, all tokens alike, the
  token's own row left out. *Normal*: as many directions that follow. It is measured on the part of dw outside the
  tangent subspace, so that a large tangent share does not make it small by itself.
- Two corrections: the component of dw along w is removed, since pure weight decay, dw = −w, would otherwise look
  tangent; and the token is left out, since its row is part of the matrix. Without them a reading is ``naive``.
- Chance after the removal: a random direction orthogonal to w has the mean share (k − c)/(d − 1) in a subspace of rank
  k that holds the share c of ‖w‖², instead of k/d.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anisotropy.errors import UserError
from anisotropy.geometry.left_out import left_out_shares, subspace_shares
from anisotropy.geometry.moments import Moments
from anisotropy.geometry.subspaces import principal_basis
from anisotropy.models.corpus import StudyText
from anisotropy.models.labels import split_label
from anisotropy.models.loaded import Checkpoint
from anisotropy.statistics import correlation, pearson, permutation_null
from anisotropy.studies.course import Weighting, stage_steps
from anisotropy.studies.frequency import embedding_matrices, matrices, study_tokens
from anisotropy.studies.results import Collection

NAME = "updates"
#: The corrected reading, each correction alone, and neither.
READINGS = ("corrected", "left out only", "w removed only", "naive")
Basis = Literal["start", "untrained", "random"]
Array = NDArray[np.float64]

# An update whose part off w is smaller than this share of ‖w‖ has no direction that float32 rows could tell: each step
# rounds a row by up to 6e-8 of itself.
_ROUNDING = 1e-5


class Parameters(BaseModel):
    """What ``collect`` keeps; [ours].

    Attributes:
        max_tokens: where more tokens of the vocabulary occur than this, a sample spread evenly over frequency ranks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(1_024, ge=10)


def collect(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> dict[str, np.ndarray]:
    """Keep one checkpoint's embedding rows of the study's tokens, and the moments of the whole matrices.

    Returns:
        ``token_ids`` and ``counts`` (m,), ``tokens_counted`` (1,); for each matrix (``output`` only where untied)
        ``…_rows`` (m, d) float32, ``…_count`` (1,), ``…_mean`` (d,) and ``…_scatter`` (d, d), centred, float64. For
        128,256 × 2,048 that is 42 MB a matrix, whatever the size of the vocabulary.
    """
    tokens = study_tokens(text.counts, parameters.max_tokens)
    arrays = {
        "token_ids": tokens,
        "counts": text.counts[tokens],
        "tokens_counted": np.array([text.counts.sum()], dtype=np.int64),
    }
    for name, matrix in embedding_matrices(checkpoint.model).items():
        moments = Moments.of(matrix)
        arrays[f"{name}_rows"] = matrix[torch.from_numpy(tokens).to(matrix.device)].float().cpu().numpy()
        arrays[f"{name}_count"] = np.array([moments.count], dtype=np.int64)
        arrays[f"{name}_mean"] = moments.mean.cpu().numpy()
        arrays[f"{name}_scatter"] = moments.centred_scatter.cpu().numpy()
    return arrays


@dataclass(frozen=True)
class Pair:
    """Two checkpoints of one run; the update goes from ``start`` to ``end``."""

    start: Collection
    end: Collection
    stage: str

    @property
    def steps(self) -> int:
        """Steps the pair covers."""
        return self.end.step - self.start.step


def checkpoint_pairs(collections: Sequence[Collection], lag: int = 1) -> list[Pair]:
    """Pairs of checkpoints ``lag`` places apart, by start.

    A pair belongs to the stage (``early``, ``late``) in which the middle of its steps lies, else to ``between``; a pair
    that starts at step 0 is the control's, ``from untrained``.

    Raises:
        UserError: a lag below 1.
    """
    if lag < 1:
        raise UserError(f"lag: {lag} checkpoints; an update needs at least 1")
    ends = list(zip(collections, collections[lag:], strict=False))
    # Twice the middle, against twice the last step: whole numbers.
    middles = [start.step + end.step for start, end in ends if start.step > 0]
    last = [2 * collection.step for collection in collections[-1:]]
    found = []
    for start, end in ends:
        twice = start.step + end.step
        stage = next((name for name in ("early", "late") if twice in stage_steps([*middles, *last], name)), "between")
        found.append(Pair(start, end, stage if start.step > 0 else "from untrained"))
    return found


def pair_enrichments(
    collections: Sequence[Collection],
    *,
    ranks: Sequence[int] = (16,),
    lag: int = 1,
    bases: Sequence[Basis] = ("start",),
    minimum_count: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Enrichment of every token's update in every pair of checkpoints.

    Args:
        collections: one model's, by step.
        ranks: of the tangent subspace, each at most half the dimension; the first one is the main one, for which all
            :data:`READINGS` are returned, for the others ``corrected`` only.
        lag: how many checkpoints a pair is apart.
        bases: where the subspaces come from: the pair's ``start``; as controls, the ``untrained`` matrix of step 0
            (nothing if it is missing) or ``random`` directions. Controls come at the main rank, in the ``corrected``
            reading, and for pairs of a stage only.
        minimum_count: leave out tokens that occur less often.
        seed: of the random directions.

    Returns:
        Columns ``matrix``, ``start``, ``end`` (steps), ``stage``, ``basis``, ``update`` (``measured``, or ``decay``, −w
        in the place of every update, as pure weight decay would), ``reading``, ``rank``, ``token_id``, ``count``,
        ``log10_frequency``; and, relative to chance, ``tangent``, ``normal`` (next directions, of what lies
        outside the tangent subspace), ``normal_of_all`` (of the whole update) and ``complement`` (the mean over random
        directions outside the tangent subspace, of the whole update); ``spread`` and ``normal_spread`` are the
        standard deviations of ``tangent`` and ``normal`` for an update of random direction. An update that is zero has
        missing values.

    Raises:
        UserError: a rank or lag that does not fit.
    """
    ranks = list(dict.fromkeys(ranks))
    frames = []
    for basis, pair in product(bases, checkpoint_pairs(collections, lag)):
        source = collections[0] if basis == "untrained" else pair.start
        if basis != "start" and (pair.stage not in _STAGES or (basis == "untrained" and source.step > 0)):
            continue
        keep = pair.start.arrays["counts"] >= minimum_count
        token_ids, counts = (pair.start.arrays[name][keep] for name in ("token_ids", "counts"))
        frequency = np.log10(counts / pair.start.arrays["tokens_counted"][0])
        about = {"token_id": token_ids, "count": counts, "log10_frequency": frequency}
        for matrix in matrices(pair.start):
            _check_ranks(ranks, pair.start.arrays[f"{matrix}_mean"].size)
            wanted = ranks if basis == "start" else ranks[:1]
            for update, reading, rank, values in _readings(pair, source, matrix, wanted, basis, keep, seed):
                labels = (matrix, pair.start.step, pair.end.step, pair.stage, basis, update, reading, rank)
                frames.append(pd.DataFrame({**dict(zip(_LABELS, labels, strict=True)), **about, **values}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_PAIR_COLUMNS)


_LABELS = ["matrix", "start", "end", "stage", "basis", "update", "reading", "rank"]
_STAGES = ("early", "late")
_GROUPS = ["matrix", "stage", "basis", "update", "reading", "rank"]
_TOKEN = ["token_id", "count", "log10_frequency"]
_VALUES = ["tangent", "normal", "normal_of_all", "complement", "spread", "normal_spread"]
_PAIR_COLUMNS = [*_LABELS, *_TOKEN, *_VALUES]


def _check_ranks(ranks: Sequence[int], dimension: int) -> None:
    for rank in ranks:
        if not 1 <= 2 * rank < dimension:
            raise UserError(
                f"rank: {rank} tangent and {rank} normal directions do not fit into {dimension} dimensions; "
                f"the largest rank is {(dimension - 1) // 2}"
            )


def _readings(
    pair: Pair,
    source: Collection,
    matrix: str,
    ranks: Sequence[int],
    basis: Basis,
    keep: np.ndarray,
    seed: int,
) -> Iterator[tuple[str, str, int, dict[str, Array]]]:
    w = pair.start.arrays[f"{matrix}_rows"][keep].astype(np.float64)
    dw = pair.end.arrays[f"{matrix}_rows"][keep] - w
    off = remove_component(dw, w)
    dimension, main, wanted = w.shape[1], ranks[0], 2 * max(ranks)
    if basis == "random":
        of_off, of_w = (subspace_shares(vectors, _random_basis(dimension, wanted, seed)) for vectors in (off, w))
    else:
        count, mean, scatter = (source.arrays[f"{matrix}_{name}"] for name in ("count", "mean", "scatter"))
        own = source.arrays[f"{matrix}_rows"][keep]
        of_off, of_w, of_dw = left_out_shares(int(count[0]), mean, scatter, own, [off, w, dw], wanted)
    for rank in ranks:
        yield "measured", "corrected", rank, _enrichments(of_off, rank, dimension, of_w)
    if basis != "start":
        return
    everything = principal_basis(scatter, 2 * main).numpy()
    all_off, all_w, all_dw = (subspace_shares(vectors, everything) for vectors in (off, w, dw))
    yield "measured", "left out only", main, _enrichments(of_dw, main, dimension)
    yield "measured", "w removed only", main, _enrichments(all_off, main, dimension, all_w)
    yield "measured", "naive", main, _enrichments(all_dw, main, dimension)
    # −w has the shares of w; with the component along w removed nothing is left of it.
    nothing = subspace_shares(remove_component(-w, w), everything)
    yield "decay", "corrected", main, _enrichments(nothing, main, dimension, of_w)
    yield "decay", "left out only", main, _enrichments(of_w, main, dimension)
    yield "decay", "naive", main, _enrichments(all_w, main, dimension)


def remove_component(dw: Array, w: Array) -> Array:
    """Each dw without its component along w, shape (n, d); zero where nothing but rounding is left."""
    squares = np.einsum("nd,nd->n", w, w)
    along = np.einsum("nd,nd->n", dw, w) / np.where(squares > 0, squares, 1)
    off = dw - along[:, None] * w
    # Once more: after one pass an error relative to what was removed is left.
    off -= (np.einsum("nd,nd->n", off, w) / np.where(squares > 0, squares, 1))[:, None] * w
    off[np.einsum("nd,nd->n", off, off) <= _ROUNDING**2 * squares] = 0
    return off


def _random_basis(dimension: int, rank: int, seed: int) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, rank)))[0]


def _enrichments(shares: Array, rank: int, dimension: int, of_w: Array | None = None) -> dict[str, Array]:
    """Enrichments from shares of the update, and of w where its component was removed, by rank: shape (n, ≥ 2·rank)."""
    inside, following = shares[:, rank - 1], shares[:, 2 * rank - 1] - shares[:, rank - 1]
    room = np.full(len(shares), float(dimension))
    taken, taken_next = np.zeros(len(shares)), np.zeros(len(shares))
    if of_w is not None:
        has_direction = ~np.isnan(of_w[:, 0])
        room -= has_direction
        taken = np.where(has_direction, of_w[:, rank - 1], 0)
        taken_next = np.where(has_direction, of_w[:, 2 * rank - 1], 0) - taken
    chance, chance_next = (rank - taken) / room, (rank - taken_next) / room
    with np.errstate(divide="ignore", invalid="ignore"):
        normal = (following / (1 - inside)) / (chance_next / (1 - chance))
    return {
        "tangent": inside / chance,
        "normal": np.where(np.isfinite(normal), normal, np.nan),
        "normal_of_all": following / chance_next,
        "complement": (1 - inside) / (1 - chance),
        "spread": np.where(np.isnan(inside), np.nan, _spread(rank, taken, room)),
        "normal_spread": np.where(np.isnan(inside), np.nan, _spread(rank, np.zeros_like(room), room - rank)),
    }


def _spread(rank: int, taken: Array, room: Array) -> Array:
    # The quadratic form of a uniformly random unit vector in `room` dimensions: rank − 1 eigenvalues 1 and one 1 − c.
    trace, squares = rank - taken, rank - 1 + (1 - taken) ** 2
    return np.sqrt(2 * (squares - trace**2 / room) / (room * (room + 2))) / (trace / room)


def chance_spread(dimension: int, rank: int) -> float:
    """Standard deviation of the enrichment of a vector of random direction: √(2(d − k)/(k(d + 2))); its mean is 1."""
    return float(_spread(rank, np.zeros(1), np.full(1, float(dimension)))[0])


def stage_averages(pairs: pd.DataFrame, weighting: Weighting = "step") -> pd.DataFrame:
    """Each token's enrichment in the early and in the late stage.

    Args:
        pairs: what :func:`pair_enrichments` returned.
        weighting: of the pairs: by the steps they cover, or all equal. Pairs in which a token did not move take no
            part in its average.

    Returns:
        Columns ``matrix``, ``stage``, ``basis``, ``update``, ``reading``, ``rank``, ``token_id``, ``count``,
        ``log10_frequency``, ``group`` (1 the rarest quarter of the tokens … 4 the most frequent), ``tangent``,
        ``normal``, ``normal_of_all``, ``complement``, ``spread``, ``normal_spread``. A token that never moved has
        missing values.
    """
    rows = pairs[pairs["stage"].isin(_STAGES)]
    names = [*_GROUPS, *_TOKEN]
    weights = (rows["end"] - rows["start"]).astype(float) if weighting == "step" else pd.Series(1.0, index=rows.index)
    parts = rows[names].copy()
    for value in _VALUES:
        parts[value] = rows[value] * weights
        parts[f"{value} weight"] = weights.where(rows[value].notna())
    sums = parts.groupby(names, sort=False, as_index=False).sum(min_count=1)
    table = sums[names].copy()
    table["group"] = rarity_groups(table["count"].to_numpy(), table["token_id"].to_numpy())
    for value in _VALUES:
        table[value] = (sums[value] / sums[f"{value} weight"]).astype(float)
    return table


def rarity_groups(counts: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    """Quarter of the distinct tokens each row belongs to, 1 the rarest … 4 the most frequent."""
    tokens, first = np.unique(token_ids, return_index=True)
    place = np.empty(len(tokens), dtype=np.int64)
    place[np.argsort(counts[first], kind="stable")] = np.arange(len(tokens))
    return (4 * place // max(1, len(tokens)) + 1)[np.searchsorted(tokens, token_ids)]


def courses(pairs: pd.DataFrame) -> pd.DataFrame:
    """Mean enrichment over training, of the rarest and the most frequent quarter of the tokens.

    Args:
        pairs: what :func:`pair_enrichments` returned; the main rank's ``corrected`` reading is used.

    Returns:
        Columns ``matrix``, ``start``, ``end``, ``group`` (1 or 4), ``tangent``, ``normal``, ``n`` (tokens that moved).
    """
    rows = pairs[(pairs["reading"] == "corrected") & (pairs["basis"] == "start") & (pairs["update"] == "measured")]
    rows = rows[rows["rank"] == pairs["rank"].iloc[0]] if len(pairs) else rows
    rows = rows.assign(group=rarity_groups(rows["count"].to_numpy(), rows["token_id"].to_numpy()))
    groups = rows[rows["group"].isin([1, 4])].groupby(["matrix", "start", "end", "group"], as_index=False)
    return groups.agg(tangent=("tangent", "mean"), normal=("normal", "mean"), n=("tangent", "count"))


def summarise(tokens: Mapping[str, pd.DataFrame], *, draws: int = 999, seed: int = 0) -> pd.DataFrame:
    """Rank correlation of tangent enrichment with log frequency, and mean enrichments, by model.

    Intervals are over the tokens of one run: descriptive, since tokens of one run are not replicates. The null shuffles
    frequencies among tokens.

    Args:
        tokens: by label, what :func:`stage_averages` returned.
        draws: shuffles of the null.
        seed: of the shuffles.

    Returns:
        Columns ``model``, ``seed`` (of training), ``matrix``, ``stage``, ``basis``, ``update``, ``reading``, ``rank``;
        ``estimate`` (Spearman's ρ), ``low``, ``high`` (95 %), and for measured updates in the ``start`` basis
        ``null_low``, ``null_high``, ``p_value``; ``n`` tokens with a value and ``missing`` without; the means
        ``tangent``, ``normal`` with ``normal_low`` and ``normal_high`` (90 %), ``normal_of_all``, ``complement``.
        Fewer than four tokens give missing values.
    """
    rows = []
    for label, table in tokens.items():
        name, training_seed = split_label(label)
        for key, group in table.groupby(_GROUPS, sort=False):
            labels = dict(zip(_GROUPS, key, strict=True))
            wants_null = (labels["basis"], labels["update"], labels["reading"]) == ("start", "measured", "corrected")
            found = summarise_tokens(group, draws=draws if wants_null else 0, seed=seed)
            rows.append({"model": name, "seed": training_seed, **labels, **found})
    return pd.DataFrame(rows, columns=_SUMMARY_COLUMNS)


_STATISTICS = ["estimate", "low", "high", "null_low", "null_high", "p_value", "n", "missing", "tangent"]
_STATISTICS += ["normal", "normal_low", "normal_high", "normal_of_all", "complement"]
_SUMMARY_COLUMNS = ["model", "seed", *_GROUPS, *_STATISTICS]


def summarise_tokens(tokens: pd.DataFrame, *, draws: int = 999, seed: int = 0) -> dict[str, float]:
    """The numbers of :func:`summarise` for one table of tokens; without a null for ``draws`` 0."""
    usable = tokens.dropna(subset=["tangent"])
    found: dict[str, float] = dict.fromkeys(_STATISTICS, np.nan)
    found |= {"n": len(usable), "missing": len(tokens) - len(usable)}
    for name in ("tangent", "normal", "normal_of_all", "complement"):
        if name in usable and len(usable):
            found[name] = float(usable[name].mean())
    if len(usable) < 4:
        return found
    normal = usable["normal"].dropna()
    half_width = _NORMAL_QUANTILE * float(normal.std()) / np.sqrt(max(1, len(normal)))
    found |= {"normal_low": found["normal"] - half_width, "normal_high": found["normal"] + half_width}
    x, y = (usable[name].rank().to_numpy() for name in ("log10_frequency", "tangent"))
    result = correlation(x, y, "spearman")
    found |= {"estimate": result.estimate, "low": result.low, "high": result.high}
    if draws and np.isfinite(result.estimate):
        null = permutation_null(pearson, x, y, draws, seed)
        found |= {"null_low": null.low, "null_high": null.high, "p_value": null.p_value}
    return found


_NORMAL_QUANTILE = 1.6448536269514722  # 95 % one-sided, for a central 90 % interval of a mean
