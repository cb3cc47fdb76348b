"""Activations and loss gradients at the paper's probes, for every family the catalogue knows.

A probe is a place in the network. All but one are entries of ``hidden_states``: entry 0 is the first block's input,
entry i the output of block i, and the **last entry, after the final norm, is no probe**. Only ``E0_in``, the embedding
output before its dropout, needs a hook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from anisotropy.models.batch_size import fitting, in_pieces
from anisotropy.models.heads import objective_of_heads
from anisotropy.models.objectives import IGNORED
from anisotropy.models.sizes import Shape, pass_bytes

PROBES = ("E0_in", "E0_out", "T1_in", "T1_out", "Tm", "Tl")
_DROPOUTS = ("emb_dropout", "embeddings.drop", "drop")
_BLOCKS = ("layers", "h")
_HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Places:
    """Where the probes of one model are.

    Attributes:
        entries: for each available probe, its index into ``hidden_states``; ``None`` for the dropout's input.
        same_as: each probe that repeats the tensor of an earlier one in eval mode, with that probe.
        dropout: the embedding dropout, in families that have one.
    """

    entries: dict[str, int | None]
    same_as: dict[str, str]
    dropout: nn.Module | None

    def distinct(self, probes: Sequence[str] = PROBES) -> list[str]:
        """Those of ``probes`` that this family has, each tensor once."""
        first: dict[str, str] = {}
        for probe in probes:
            if probe in self.entries:
                first.setdefault(self.same_as.get(probe, probe), probe)
        return list(first.values())


@dataclass(frozen=True)
class Capture:
    """One batch at the probes.

    Attributes:
        activations: per probe, shape (sequences, length, d), float32, on the model's device.
        gradients: per probe, ∂loss/∂activation, same shapes; empty if not asked for.
        loss: mean cross-entropy of the batch in nats, or ``None`` without labels.
        positions: how many positions that mean is over; gradients times ``positions`` are those of the summed loss,
            which do not depend on how tokens were put into batches.
        reader_inputs: per probe of ``readers``, what its first linear maps are given, shape (sequences, length, d);
            and per name of ``watched``, what that module is given.
        reader_gradients: ∂loss/∂output of those maps side by side, where labels are given, shape (sequences, length,
            units); with rows flattened, reader_gradientsᵀ · reader_inputs is the gradient of their stacked weight.
    """

    activations: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    loss: float | None
    positions: int
    reader_inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    reader_gradients: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Weights may be in half precision; what is computed from activations and gradients never is.
        for tensors in (self.activations, self.gradients, self.reader_inputs, self.reader_gradients):
            for name, values in tensors.items():
                tensors[name] = values.float() if values.dtype in _HALF else values


def find_places(model: PreTrainedModel) -> Places:
    """Locate the probes of a model.

    Raises:
        ValueError: a family whose blocks this module does not know.
    """
    layers = len(blocks_of(model))
    dropout = next((found for name in _DROPOUTS if (found := _submodule(model.base_model, name)) is not None), None)
    entries: dict[str, int | None] = {"E0_in": None, "E0_out": 0} if dropout is not None else {}
    entries |= {"T1_in": 0, "T1_out": 1, "Tm": layers // 2, "Tl": layers - 1}
    if layers == 1:
        del entries["T1_out"]  # its only output is read after the final norm
    first: dict[int, str] = {}
    same_as = {}
    for probe, entry in entries.items():
        twin = first.setdefault(entry or 0, probe)
        if twin != probe:
            same_as[probe] = twin
    return Places(entries, same_as, dropout)


def blocks_of(model: PreTrainedModel) -> nn.ModuleList:
    """The blocks of a model, in order.

    Raises:
        ValueError: a family whose blocks this module does not know.
    """
    base = model.base_model
    blocks = next((found for name in _BLOCKS if isinstance(found := getattr(base, name, None), nn.ModuleList)), None)
    if blocks is None:
        raise ValueError(f"{type(model).__name__}: no list of blocks named {' or '.join(_BLOCKS)}")
    return blocks


def _submodule(base: nn.Module, path: str) -> nn.Module | None:
    try:
        return base.get_submodule(path)
    except AttributeError:
        return None


def capture(
    model: PreTrainedModel,
    inputs: torch.Tensor,
    labels: torch.Tensor | None = None,
    *,
    probes: Sequence[str],
    places: Places | None = None,
    readers: Mapping[str, Sequence[nn.Module]] | None = None,
    watched: Mapping[str, nn.Module] | None = None,
) -> Capture:
    """Run one batch and read activations, and gradients where labels are given.

    Args:
        model: in eval mode, any dtype of parameters that can be back-propagated (float32 is expected).
        inputs: token ids, shape (sequences, length).
        labels: as transformers takes them; ``None`` for activations only (no backward pass).
        probes: names, all of them available in this family.
        places: what :func:`find_places` returned, to save looking again.
        readers: linear maps by probe whose inputs, and output gradients where labels are given, are wanted too; see
            :func:`anisotropy.models.readers.find_readers`.
        watched: modules by name whose inputs are wanted, without gradients; no name is one of ``readers``.

    Raises:
        ValueError: a probe that this family lacks, or a model in training mode.
        UserError: not enough memory for a single sequence.
    """
    wanted = [] if labels is None else [labels]
    return capture_each(model, inputs, wanted, probes=probes, places=places, readers=readers, watched=watched)[0]


def capture_each(
    model: PreTrainedModel,
    inputs: torch.Tensor,
    labels: Sequence[torch.Tensor],
    *,
    probes: Sequence[str],
    places: Places | None = None,
    readers: Mapping[str, Sequence[nn.Module]] | None = None,
    watched: Mapping[str, nn.Module] | None = None,
) -> list[Capture]:
    """Captures of one batch under several labels, from one forward pass and a backward pass each.

    Where the batch does not fit into memory it goes through in pieces, see ``anisotropy.models.batch_size``; what is
    returned is that of the whole batch, up to rounding.

    Arguments and errors are those of :func:`capture`; without labels there is one capture, of activations only.
    """
    if model.training:
        raise ValueError("probes are read in eval mode: call model.eval() first")
    places = places or find_places(model)
    if missing := [probe for probe in probes if probe not in places.entries]:
        raise ValueError(f"{type(model).__name__} has no probe {missing[0]!r}; it has {', '.join(places.entries)}")
    readers, watched = readers or {}, watched or {}
    shape, (sequences, length) = Shape.of_config(model.config), inputs.shape
    per_sequence = pass_bytes(shape, length, len(labels), len(probes), len(readers) + len(watched))

    def run(place: slice) -> list[Capture]:
        return _captured(model, inputs[place], [asked[place] for asked in labels], probes, places, readers, watched)

    kind = (shape, str(model.device), length, len(labels), len(probes), len(readers), len(watched))
    whole: list[_Joined] = []
    for place, found in in_pieces(sequences, fitting(per_sequence, model.device), run, kind, model.device):
        if place == slice(0, sequences):
            return found
        whole = whole or [_Joined(sequences) for _ in found]
        for joined, piece in zip(whole, found, strict=True):
            joined.add(place, piece)
    return [joined.capture() for joined in whole]


class _Joined:
    """Captures of a batch's pieces, put together in tensors of the batch's size."""

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        self._parts: list[dict[str, torch.Tensor]] = [{}, {}, {}, {}]
        self._loss, self._positions, self._with_labels = 0.0, 0, False

    def add(self, place: slice, piece: Capture) -> None:
        """Add one piece; gradients and loss as sums over its positions, none where a piece has none."""
        tensors = (piece.activations, piece.reader_inputs, piece.gradients, piece.reader_gradients)
        for number, (parts, found) in enumerate(zip(self._parts, tensors, strict=True)):
            for name, values in found.items():
                if name not in parts:
                    parts[name] = values.new_zeros((self._sequences, *values.shape[1:]))
                if number < 2:
                    parts[name][place] = values
                elif piece.positions:  # a mean over no position is not a number
                    parts[name][place] = values * piece.positions
        if piece.loss is not None:
            self._with_labels = True
            self._loss += piece.loss * piece.positions if piece.positions else 0.0
            self._positions += piece.positions

    def capture(self) -> Capture:
        """The capture of the whole batch."""
        activations, inputs, gradients, of_outputs = self._parts
        if not self._with_labels:
            return Capture(activations, {}, None, 0, inputs)
        for found in (gradients, of_outputs):
            for values in found.values():
                values /= self._positions
        loss = self._loss / self._positions if self._positions else float("nan")
        return Capture(activations, gradients, loss, self._positions, inputs, of_outputs)


def _captured(
    model: PreTrainedModel,
    inputs: torch.Tensor,
    labels: Sequence[torch.Tensor],
    probes: Sequence[str],
    places: Places,
    readers: Mapping[str, Sequence[nn.Module]],
    watched: Mapping[str, nn.Module],
) -> list[Capture]:
    before_dropout: list[torch.Tensor] = []
    passed: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}
    read_by: dict[str, torch.Tensor] = {}

    def remember(module: nn.Module, arguments: tuple[Any, ...], output: torch.Tensor) -> None:
        passed[module] = (arguments[0], output)

    with ExitStack() as hooks, torch.set_grad_enabled(bool(labels)):
        if places.dropout is not None:
            hook = places.dropout.register_forward_pre_hook(lambda _, arguments: before_dropout.append(arguments[0]))
            hooks.callback(hook.remove)
        for module in {module for modules in readers.values() for module in modules}:
            hooks.callback(module.register_forward_hook(remember).remove)
        for name, module in watched.items():
            hook = module.register_forward_pre_hook(
                lambda _, arguments, name=name: read_by.update({name: arguments[0].detach()})
            )
            hooks.callback(hook.remove)
        # Gradients start at the embedding output, so frozen weights cost no backward work of their own.
        embedded = model.get_input_embeddings()(inputs).detach().requires_grad_(bool(labels))
        # The logits are the largest tensor of a pass; without labels nobody needs them.
        output = (model if labels else model.base_model)(inputs_embeds=embedded, output_hidden_states=True)
        losses = [
            model.loss_function(logits=output.logits, labels=asked, vocab_size=model.config.vocab_size)
            for asked in labels
        ]
    entries = {probe: places.entries[probe] for probe in probes}
    read = {
        probe: before_dropout[0] if entry is None else output.hidden_states[entry] for probe, entry in entries.items()
    }
    activations = {probe: tensor.detach() for probe, tensor in read.items()}
    given = {probe: passed[modules[0]][0].detach() for probe, modules in readers.items()} | read_by
    if not labels:
        return [Capture(activations, {}, None, 0, given)]
    outputs = {module: result for module, (_, result) in passed.items()}
    captures = []
    for number, (loss, asked) in enumerate(zip(losses, labels, strict=True), 1):
        found = torch.autograd.grad(loss, [*read.values(), *outputs.values()], retain_graph=number < len(labels))
        of_outputs = dict(zip(outputs, found[len(read) :], strict=True))
        shifted = asked[:, 1:] if is_causal(model) else asked
        captures.append(
            Capture(
                activations,
                dict(zip(read, found[: len(read)], strict=True)),
                float(loss.detach()),
                int((shifted != IGNORED).sum()),
                given,
                {probe: _beside([of_outputs[part] for part in parts]) for probe, parts in readers.items()},
            )
        )
    return captures


def _beside(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    # One part is by far the largest tensor here: no copy of it.
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)


def is_causal(model: PreTrainedModel) -> bool:
    """Whether the model predicts the next token: then the last position of a sequence has no loss."""
    return objective_of_heads([type(model).__name__]) == "causal"


def batches(blocks: Sequence[np.ndarray], size: int, device: torch.device) -> Iterator[tuple[int, slice, torch.Tensor]]:
    """Stream token blocks through a model.

    Args:
        blocks: token ids per block, shape (sequences, length) each.
        size: sequences a batch at most; no batch spans two blocks.

    Yields:
        The block's number, the sequences' place in it, and their ids on the device.
    """
    for number, block in enumerate(blocks):
        for start in range(0, len(block), size):
            place = slice(start, min(start + size, len(block)))
            yield number, place, torch.from_numpy(block[place]).to(device)
