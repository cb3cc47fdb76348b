"""What is anisotropy, layer by layer: do vectors of different tokens point the same way, and how many directions share
their variance?

Two properties go by the name. *Cones*: the mean cosine between vectors of different tokens (Ethayarajh 2019), which a
common mean or a few large coordinates can drive to 1 by themselves. *Flatness*: few directions hold most of the
variance (IsoScore, participation ratio, effective rank), which a common mean cannot change. This study takes both at
every entry of ``hidden_states``, together with what separates them: the share of the mean in the mean squared length
and what single coordinates add to the cosine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field

from anisotropy.errors import UserError
from anisotropy.geometry.dimension import effective_rank
from anisotropy.geometry.isotropy import cosine_by_coordinate, isoscore, participation_ratio
from anisotropy.geometry.moments import Moments
from anisotropy.models.batch_size import fitting, in_pieces
from anisotropy.models.corpus import StudyText, even_tokens, take_tokens
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.probes import batches
from anisotropy.models.sizes import Shape, pass_bytes
from anisotropy.studies.results import Collection

NAME = "layers"
#: Measures that come with an interval.
REPLICATED = ("cosine", "cosine_centred", "cosine_without", "mean_share", "isoscore", "isoscore_without")
#: Everything that is measured at a layer.
MEASURES = (*REPLICATED, "coordinate_share", "participation_ratio", "effective_rank", "length")
_SEQUENCES_A_BATCH = 32


class Parameters(BaseModel):
    """What ``collect`` measures; all of it [ours].

    Attributes:
        rows: tokens whose vectors are kept, a seeded sample; the same ones at every layer and checkpoint.
        text_tokens: tokens of held-out text they are drawn from, or as many as the corpus has.
        coordinates: how many of the coordinates that add most to the mean cosine are left out for the ``…_without``
            measures; they are chosen anew at each layer and checkpoint.
        groups: groups of documents; leaving out one after the other gives the intervals.
        angles: vectors whose angle with the mean direction is kept for a picture.
        seed: of the sample.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = Field(2_048, ge=64)
    text_tokens: int = Field(8_192, gt=0)
    coordinates: int = Field(3, ge=1)
    groups: int = Field(8, ge=2)
    angles: int = Field(300, ge=1)
    seed: int = 0


def collect(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> dict[str, np.ndarray]:
    """Measure one checkpoint.

    Returns:
        With L + 1 layers (``hidden_states``, so the first block's input and each block's output, the last one after the
        final norm), g groups and d coordinates, one array (L + 1,) per name of :data:`MEASURES`; ``without_<name>``
        (g, L + 1) for those of :data:`REPLICATED`, with one group of documents left out; ``contributions`` (L + 1, d),
        what each coordinate adds to ``cosine``; ``angles`` (L + 1, a) in radians between single vectors and the mean;
        ``rows`` (1,), ``dimensions`` (1,).

    Raises:
        UserError: fewer coordinates than are to be left out, more groups than blocks of documents, or vectors that are
            not finite or all the same; the message names checkpoint and layer.
    """
    blocks = take_tokens(text.blocks, min(parameters.text_tokens, even_tokens(text.blocks)))
    if parameters.groups > len(blocks):
        raise UserError(f"groups is {parameters.groups}, but the text has {len(blocks)} blocks of documents")
    tokens = np.concatenate([block.ravel() for block in blocks])
    of_block = np.repeat(np.arange(len(blocks)), [block.size for block in blocks])
    chosen = np.sort(np.random.default_rng(parameters.seed).permutation(len(tokens))[: parameters.rows])
    group = of_block[chosen] * parameters.groups // len(blocks)
    labels = torch.from_numpy(tokens[chosen])
    layers = _hidden_states(checkpoint, blocks, chosen)
    d = layers[0].shape[1]
    if d <= parameters.coordinates:
        raise UserError(f"coordinates is {parameters.coordinates}, but the vectors of {checkpoint.name} have only {d}")
    found: dict[str, list] = {}
    for number, rows in enumerate(layers):
        where = f"{checkpoint.name}, step {checkpoint.step}, layer {number}"
        try:
            of_layer = _measure(rows, labels, group, parameters)
        except ValueError as error:
            raise UserError(f"{where}: {error}") from None
        for name, value in of_layer.items():
            found.setdefault(name, []).append(value)
    arrays = {name: np.array(values) for name, values in found.items()}
    return {name: values.T if name.startswith("without_") else values for name, values in arrays.items()} | {
        "rows": np.array([len(chosen)]),
        "dimensions": np.array([d]),
    }


def _hidden_states(checkpoint: Checkpoint, blocks: Sequence[np.ndarray], chosen: np.ndarray) -> list[torch.Tensor]:
    """The chosen tokens' vectors at every layer, shape (n, d) float32 each; nothing else is kept."""
    model, shape = checkpoint.model, Shape.of_config(checkpoint.model.config)
    parts: list[list[torch.Tensor]] = []
    offset = 0
    for _, _, inputs in batches(blocks, _SEQUENCES_A_BATCH, model.device):
        upto = offset + inputs.numel()
        wanted = torch.zeros(inputs.numel(), dtype=torch.bool)
        wanted[torch.from_numpy(chosen[(chosen >= offset) & (chosen < upto)] - offset)] = True
        wanted = wanted.reshape(inputs.shape).to(model.device)
        offset = upto

        @torch.no_grad()
        def run(place: slice, inputs: torch.Tensor = inputs, wanted: torch.Tensor = wanted) -> list[torch.Tensor]:
            states = model.base_model(input_ids=inputs[place], output_hidden_states=True).hidden_states
            return [state[wanted[place]].float().cpu() for state in states]

        sequences, length = inputs.shape
        guess = fitting(pass_bytes(shape, length, 0, 1, 0), model.device)
        kind = (NAME, shape, str(model.device), length)
        parts += [found for _, found in in_pieces(sequences, guess, run, kind, model.device)]
    return [torch.cat(of_layer) for of_layer in zip(*parts, strict=True)]


def _measure(
    rows: torch.Tensor, labels: torch.Tensor, group: np.ndarray, parameters: Parameters
) -> dict[str, float | np.ndarray]:
    contributions = cosine_by_coordinate(rows, labels)
    largest = torch.topk(contributions, parameters.coordinates).indices
    kept = torch.ones(rows.shape[1], dtype=torch.bool)
    kept[largest] = False
    parts = [Moments.of(rows[torch.from_numpy(group == number)]) for number in range(parameters.groups)]
    moments = Moments.merged(parts)
    whole = _replicated(rows, labels, kept, moments)
    direction = moments.mean / moments.mean.norm().clamp_min(torch.finfo(torch.float64).tiny)
    some = rows[
        torch.randperm(len(rows), generator=torch.Generator().manual_seed(parameters.seed))[: parameters.angles]
    ]
    wide = some.double()
    found: dict[str, float | np.ndarray] = {
        **whole,
        "coordinate_share": float(contributions[largest].sum() / contributions.sum()),
        "participation_ratio": float(participation_ratio(moments.covariance)),
        "effective_rank": effective_rank(rows).estimate,
        "length": float(rows.double().norm(dim=1).mean()),
        "contributions": contributions.numpy().astype(np.float32),
        "angles": torch.arccos((wide @ direction / wide.norm(dim=1)).clamp(-1, 1)).numpy().astype(np.float32),
    }
    left_out = []
    for number in range(parameters.groups):
        members = torch.from_numpy(group != number)
        others = Moments.merged([part for place, part in enumerate(parts) if place != number])
        left_out.append(_replicated(rows[members], labels[members], kept, others))
    return found | {f"without_{name}": np.array([one[name] for one in left_out]) for name in REPLICATED}


def _replicated(rows: torch.Tensor, labels: torch.Tensor, kept: torch.Tensor, moments: Moments) -> dict[str, float]:
    """The measures of :data:`REPLICATED` for one set of rows."""
    covariance = moments.covariance
    squares = float(moments.mean.square().sum())
    centred = rows.double() - moments.mean
    return {
        "cosine": float(cosine_by_coordinate(rows, labels).sum()),
        "cosine_centred": float(cosine_by_coordinate(centred, labels).sum()),
        "cosine_without": float(cosine_by_coordinate(rows[:, kept], labels).sum()),
        "mean_share": squares / (squares + float(moments.centred_scatter.trace()) / moments.count),
        "isoscore": float(isoscore(covariance)),
        "isoscore_without": float(isoscore(covariance[kept][:, kept])),
    }


def summarise(collections: Mapping[str, Sequence[Collection]]) -> pd.DataFrame:
    """One row per model, step, layer and measure.

    Returns:
        Columns ``model`` (label), ``step``, ``layer`` (0 is the first block's input), ``depth`` (layer over the number
        of blocks, 0 to 1), ``normed`` (the last layer, after the final norm), ``measure``, ``value``, ``low``, ``high``
        (95 % over groups of documents by the jackknife; missing for measures without one).
    """
    rows = []
    for label, of_model in collections.items():
        for collection in of_model:
            arrays = collection.arrays
            layers = len(arrays["cosine"])
            for measure in MEASURES:
                for layer in range(layers):
                    value = float(arrays[measure][layer])
                    half = _half_width(arrays[f"without_{measure}"][:, layer]) if measure in REPLICATED else np.nan
                    rows.append(
                        {
                            "model": label,
                            "step": collection.step,
                            "layer": layer,
                            "depth": layer / (layers - 1),
                            "normed": layer == layers - 1,
                            "measure": measure,
                            "value": value,
                            "low": value - half,
                            "high": value + half,
                        }
                    )
    return pd.DataFrame(rows)


def _half_width(left_out: np.ndarray) -> float:
    """Half of the 95 % interval of the delete-one-group jackknife, t with g − 1 degrees of freedom (Efron 1982)."""
    from scipy import stats

    g = len(left_out)
    variance = (g - 1) / g * float(np.square(left_out - left_out.mean()).sum())
    return float(stats.t.ppf(0.975, g - 1)) * variance**0.5


def gaussian_isoscore(rows: int, dimensions: int) -> float:
    """IsoScore that round Gaussian rows have on average, n′/(n′ + d + 1) with n′ = n − 1 degrees of freedom.

    For a Wishart matrix E(tr C)² ≈ d² and E‖C‖² = d + d(d + 1)/n′, so PR ≈ d·n′/(n′ + d + 1) and (PR − 1)/(d − 1)
    follows: the score a sample of this size can reach, to hold a measured one against.
    """
    degrees = rows - 1
    return (dimensions * degrees / (degrees + dimensions + 1) - 1) / (dimensions - 1)
