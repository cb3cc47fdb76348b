"""The two linear maps of the first block's MLP, found by what they read rather than by what they are called.

Names differ between families (``dense_h_to_4h``, ``gate_proj``, ``Wi``, ``c_fc`` …), so one token is sent through the
model and watched: the **first** map is made of the linear layers whose input *is* the MLP's input; the **second** is
the one linear layer left. A gated MLP has two layers of the first kind, the gate and the branch it multiplies; both
read the same vectors, so their rows are taken together, which is also how ModernBERT stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

_BLOCKS = ("layers", "h")


@dataclass(frozen=True)
class LinearMap:
    """One linear map of the MLP.

    Attributes:
        layers: the layers it is made of, all reading the same input.
        rows: shape (units, inputs): row u is what unit u reads, a vector in the space of the map's input.
    """

    layers: tuple[nn.Module, ...]
    rows: Tensor


def find_linear_maps(model: PreTrainedModel) -> Mapping[str, LinearMap]:
    """The ``first`` and ``second`` linear map of the first block's MLP; empty where the structure is another one.

    A family without a module ``mlp`` in its blocks, or one whose MLP has no layer that reads its input or not exactly
    one other (a mixture of experts, say), gives nothing rather than a guess.
    """
    blocks = next((b for n in _BLOCKS if isinstance(b := getattr(model.base_model, n, None), nn.ModuleList)), None)
    mlp = getattr(blocks[0], "mlp", None) if blocks else None
    if not isinstance(mlp, nn.Module):
        return {}
    linears = [module for module in mlp.modules() if isinstance(module, nn.Linear | Conv1D)]
    inputs: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        inputs[module] = arguments[0]

    hooks = [module.register_forward_pre_hook(note) for module in (mlp, *linears)]
    try:
        with torch.no_grad():
            model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device))
    finally:
        for hook in hooks:
            hook.remove()
    if mlp not in inputs:
        return {}
    first = [module for module in linears if module in inputs and _same(inputs[module], inputs[mlp])]
    second = [module for module in linears if module not in first]
    if not first or len(second) != 1:
        return {}
    return {"first": _as_map(first), "second": _as_map(second)}


def _as_map(layers: list[nn.Module]) -> LinearMap:
    return LinearMap(tuple(layers), torch.cat([_rows(layer) for layer in layers]))


def _same(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape


def _rows(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    weight = weight.detach()
    # GPT-2 keeps its weights as (inputs, units), torch's own layer as (units, inputs).
    return weight.T if isinstance(module, Conv1D) else weight
