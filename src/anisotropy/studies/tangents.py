"""Gradient tangent alignment (Table 1): moments of activations and gradients per block, from one pass over the text.

Two readings of "the gradient at a probe", both [ours] since the paper's body was not available:

================  =====================================================================================================
``activation``    G = ∂loss/∂h, a row per token; the basis comes from the activations h.
``weight``        G = ∇W of the first linear map that reads the probe, summed over one block of fixed size, a row per
                  output unit; the basis comes from the inputs of that map, after its norm. A weight gradient is built
                  from those inputs, so alignment is partly built in.
================  =====================================================================================================

Bases are fitted on the even blocks of documents and gradients measured on the odd ones, so no document serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from anisotropy.geometry.moments import Moments
from anisotropy.models.corpus import StudyText, even_tokens, take_tokens
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.objectives import inputs_and_labels, shuffled
from anisotropy.models.probes import Capture, capture_each, find_places, is_causal
from anisotropy.models.readers import find_readers
from anisotropy.studies.held_out import held_out_groups
from anisotropy.studies.results import Collection

NAME = "tangents"
Gradient = Literal["activation", "weight"]
GRADIENTS: tuple[Gradient, ...] = get_args(Gradient)
# Where probes coincide, as embedding and first block do in eval mode, the block's name stands for them.
ORDER = ("T1_in", "T1_out", "Tm", "Tl", "E0_out", "E0_in")
_SEQUENCES_A_BATCH = 32


class Parameters(BaseModel):
    """What ``collect`` measures; all of it [ours].

    Attributes:
        tokens: tokens of validation text, spread evenly over the blocks, or as many as the corpus has.
        mask_share: share of masked positions for masked-language models.
        reservoir: rows kept per probe from the fitting blocks, for the Semi-NMF basis.
        groups: into how many groups the held-out blocks are merged; ``None`` for the rule of
            :func:`anisotropy.studies.held_out.held_out_groups`, which keeps every block apart up to d = 1,024.
        seed: of masks, shuffled labels and the reservoir; the same at every checkpoint.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: int = Field(8_192, gt=0)
    mask_share: float = Field(0.3, gt=0, lt=1)
    reservoir: int = Field(1_024, gt=0)
    groups: int | None = Field(None, ge=2)
    seed: int = 0


def collect(checkpoint: Checkpoint, text: StudyText, parameters: Parameters) -> dict[str, np.ndarray]:
    """Measure one checkpoint.

    The even blocks take a forward pass; the odd ones a forward and a backward pass with the true labels, and another
    with labels permuted within the block. No matrix with a row per token outlives a batch.

    Returns:
        Per distinct probe of the family and role, ``<probe>.<role>.count`` (b,), ``.mean`` (b, d) and ``.scatter``
        (b, d(d + 1)/2): the upper triangles of the scatters about the means, summed in float64 and kept in float32,
        which halves the file. The roles:

        - ``activation.fit`` and ``activation.held_out``: activations of the even and of the odd blocks (b = 1);
        - ``activation.gradient`` and ``activation.shuffled``: gradients per group of odd blocks, under true and
          shuffled labels;
        - ``weight.fit``, ``weight.held_out``, ``weight.gradient``, ``weight.shuffled``: the same for the inputs and the
          weight gradient of the first map behind the probe;
        - ``weight.centred``: the weight gradient without the means of inputs and of upstream gradients, n·Cov(g, x),
          over all odd blocks (b = 1);
        - ``weight.unpaired``: the weight gradient when each block's upstream gradients are dealt out to its tokens at
          random (b = 1).

        ``<probe>.<gradient>.rows`` (r, d) are the reservoirs of the even blocks, ``loss`` (nats) is the mean over the
        odd blocks, ``weight_tokens`` how many tokens a weight gradient is summed over. A family whose first maps are
        not known has no ``weight`` roles.

    Raises:
        UserError: fewer tokens than one sequence per block.
    """
    model = checkpoint.model
    blocks = take_tokens(text.blocks, min(parameters.tokens, even_tokens(text.blocks)))
    places = find_places(model)
    probes = places.distinct(ORDER)
    readers = {probe: maps for probe, maps in find_readers(model, places).items() if probe in probes}
    # The last position of a causal sequence predicts nothing, so no gradient reaches it.
    usable = blocks[0].shape[1] - is_causal(model)
    fixed = min(len(block) for block in blocks)

    def passes(inputs: np.ndarray, *labels: np.ndarray) -> Iterator[tuple[int, list[Capture]]]:
        for start in range(0, len(inputs), _SEQUENCES_A_BATCH):
            place = slice(start, start + _SEQUENCES_A_BATCH)
            ids, *asked = (torch.from_numpy(array[place]).to(model.device) for array in (inputs, *labels))
            found = capture_each(model, ids, asked, probes=probes, places=places, readers=readers)
            yield start, [_usable(one, usable) for one in found]

    tally = _Tally()
    names = [f"{probe}.activation" for probe in probes] + [f"{probe}.weight" for probe in readers]
    to_fit = np.concatenate([_inputs(checkpoint, blocks, number, parameters)[0] for number in range(0, len(blocks), 2)])
    reservoirs = {name: _Reservoir(len(to_fit) * usable, parameters) for name in names}
    for _, (found,) in passes(to_fit):
        for name, values in _activations(found):
            tally.add(f"{name}.fit", 0, values)
            reservoirs[name].offer(values)

    held_out = range(1, len(blocks), 2)
    texts = [_inputs(checkpoint, blocks, number, parameters) for number in held_out]
    wrong = [shuffled(labels, parameters.seed + number) for number, (_, labels) in zip(held_out, texts, strict=True)]
    ends = np.cumsum([0, *(len(blocks[number]) for number in held_out)])
    groups = held_out_groups(model.config.hidden_size, len(held_out), parameters.groups)
    group_of = [position * groups // len(held_out) for position in range(len(held_out))]
    weights = {name: _WeightGradients() for name in readers}
    loss = positions = 0.0
    dealer = np.random.default_rng(parameters.seed)
    inputs, labels = (np.concatenate(arrays) for arrays in zip(*texts, strict=True))
    for start, (found, under_wrong) in passes(inputs, labels, np.concatenate(wrong)):
        loss += (found.loss or 0.0) * found.positions
        positions += found.positions
        for name, values in _activations(found):
            tally.add(f"{name}.held_out", 0, values)
        for block, (first, last) in enumerate(pairwise(ends - start)):
            here = slice(max(0, first), max(0, last))
            # Gradients of the summed loss do not depend on how tokens were put into batches.
            for role, one in (("gradient", found), ("shuffled", under_wrong)):
                for probe, gradients in one.gradients.items():
                    tally.add(f"{probe}.activation.{role}", group_of[block], gradients[here] * one.positions)
            # A weight gradient is a sum over tokens: every block gives the same number of them.
            here = slice(max(0, first), max(0, first + fixed))
            order = dealer.permutation(usable * len(inputs[start : start + _SEQUENCES_A_BATCH][here]))
            for probe in readers if len(order) else ():
                x, g = found.reader_inputs[probe][here], found.reader_gradients[probe][here]
                weights[probe].add(block, x, g, "gradient", found.positions)
                weights[probe].add(block, x, g, "unpaired", found.positions, order)
                wrong_g = under_wrong.reader_gradients[probe][here]
                weights[probe].add(block, x, wrong_g, "shuffled", under_wrong.positions)
    for probe, sums in weights.items():
        for role, parts in sums.totals().items():
            for part, rows in parts:
                tally.add(f"{probe}.weight.{role}", group_of[part], rows)
    arrays = {"loss": np.array(loss / positions), "weight_tokens": np.array(fixed * usable)}
    return arrays | tally.arrays() | {f"{name}.rows": kept.rows() for name, kept in reservoirs.items()}


def _inputs(
    checkpoint: Checkpoint, blocks: Sequence[np.ndarray], number: int, parameters: Parameters
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of one block, the same at every checkpoint."""
    return inputs_and_labels(
        blocks[number],
        checkpoint.objective,
        mask_id=checkpoint.mask_id,
        mask_share=parameters.mask_share,
        seed=[parameters.seed, number],
    )


def _usable(found: Capture, usable: int) -> Capture:
    """The same without the positions that no gradient reaches."""

    def cut(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {probe: tensor[:, :usable] for probe, tensor in tensors.items()}

    parts = (found.activations, found.gradients, found.reader_inputs, found.reader_gradients)
    activations, gradients, inputs, of_outputs = map(cut, parts)
    return Capture(activations, gradients, found.loss, found.positions, inputs, of_outputs)


def _activations(found: Capture) -> Iterator[tuple[str, torch.Tensor]]:
    for probe, values in found.activations.items():
        yield f"{probe}.activation", values
    for probe, values in found.reader_inputs.items():
        yield f"{probe}.weight", values


class _Tally:
    """Moments by name and part, a part being a group of blocks or, as 0, all of them."""

    def __init__(self) -> None:
        self._moments: dict[str, dict[int, Moments]] = {}

    def add(self, name: str, part: int, rows: torch.Tensor) -> None:
        if not len(rows):
            return
        parts = self._moments.setdefault(name, {})
        if part in parts:
            parts[part].update(rows)
        else:
            parts[part] = Moments.of(rows)

    def arrays(self) -> dict[str, np.ndarray]:
        found = {}
        for name, by_part in self._moments.items():
            parts = [by_part[part] for part in sorted(by_part)]
            row, column = np.triu_indices(parts[0].dimension)
            found[f"{name}.count"] = np.array([part.count for part in parts])
            found[f"{name}.mean"] = torch.stack([part.mean for part in parts]).cpu().numpy()
            scatters = [part.centred_scatter.cpu().numpy()[row, column] for part in parts]
            found[f"{name}.scatter"] = np.array(scatters, dtype=np.float32)
        return found


class _WeightGradients:
    """Σ g xᵀ over the tokens of each block, streamed, for several g."""

    def __init__(self) -> None:
        self._products: dict[str, dict[int, torch.Tensor]] = {}
        self._means: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}

    def add(
        self,
        block: int,
        inputs: torch.Tensor,
        gradients: torch.Tensor,
        role: str,
        scale: float,
        order: np.ndarray | None = None,
    ) -> None:
        """Add a batch (sequences, length, d), gradients times ``scale``; with ``order``, they go to other tokens."""
        x, g = inputs.flatten(0, 1), gradients.flatten(0, 1)
        if order is not None:  # the narrower of the two is moved
            x = x[torch.from_numpy(order).to(x.device)]
        product = scale * (g.T @ x)
        products = self._products.setdefault(role, {})
        products[block] = product + products[block] if block in products else product
        if role == "gradient":
            g_sum, x_sum, count = self._means.get(block, (torch.zeros_like(g[0]), torch.zeros_like(x[0]), 0))
            self._means[block] = (g_sum + scale * g.sum(0), x_sum + x.sum(0), count + len(x))

    def totals(self) -> dict[str, list[tuple[int, torch.Tensor]]]:
        """Weight gradients by role, with the part they belong to; the controls' blocks are all one part."""
        found = {role: list(self._products[role].items()) for role in ("gradient", "shuffled")}
        found["unpaired"] = [(0, torch.cat(list(self._products["unpaired"].values())))]
        pairs = zip(self._products["gradient"].values(), self._means.values(), strict=True)
        centred = [product - torch.outer(g_sum, x_sum) / count for product, (g_sum, x_sum, count) in pairs]
        found["centred"] = [(0, torch.cat(centred))]
        return found


class _Reservoir:
    """Rows at positions drawn in advance, the same at every checkpoint."""

    def __init__(self, rows: int, parameters: Parameters) -> None:
        chosen = np.random.default_rng(parameters.seed).permutation(rows)[: parameters.reservoir]
        self._chosen = np.sort(chosen)
        self._seen = 0
        self._kept: list[np.ndarray] = []

    def offer(self, values: torch.Tensor) -> None:
        flat = values.flatten(0, 1)
        first, last = np.searchsorted(self._chosen, [self._seen, self._seen + len(flat)])
        local = torch.from_numpy(self._chosen[first:last] - self._seen).to(flat.device)
        self._kept.append(flat[local].cpu().numpy())
        self._seen += len(flat)

    def rows(self) -> np.ndarray:
        return np.concatenate(self._kept)


def moments_of(collection: Collection, probe: str, role: str) -> list[Moments]:
    """Moments of one probe and role, a block each; empty where the family lacks the probe or the role."""
    name = f"{probe}.{role}"
    if f"{name}.count" not in collection.arrays:
        return []
    counts, means, packed = (collection.arrays[f"{name}.{part}"] for part in ("count", "mean", "scatter"))
    d = means.shape[1]
    row, column = np.triu_indices(d)
    found = []
    for count, mean, upper in zip(counts, means, packed, strict=True):
        scatter = np.zeros((d, d))
        scatter[row, column] = scatter[column, row] = upper
        found.append(Moments.from_sums(int(count), torch.from_numpy(mean), torch.from_numpy(scatter)))
    return found


def probes_of(collection: Collection, gradient: Gradient = "activation") -> list[str]:
    """The probes a collection holds for one reading, blocks in the order of the network, then embeddings."""
    return [probe for probe in ORDER if f"{probe}.{gradient}.gradient.count" in collection.arrays]
