"""The two linear maps of an MLP, found in every family the probes know, and not guessed elsewhere."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, VOCABULARY, small_model
from torch import nn

from anisotropy.models.probes import capture
from anisotropy.studies.first_block import find_linear_maps

# Parameters of the first block's MLP, by the names that each family gives them.
NAMES = {
    "gpt_neox": (("dense_h_to_4h",), "dense_4h_to_h"),
    "modernbert": (("Wi",), "Wo"),
    "gpt2": (("c_fc",), "c_proj"),
} | dict.fromkeys(("llama", "qwen2", "olmo", "olmo2", "eurobert"), (("gate_proj", "up_proj"), "down_proj"))


def first_mlp(model):
    return model.get_submodule(FAMILIES[model.config.model_type][0])[0].mlp


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_the_units_of_the_named_layers(family):
    model = small_model(family)
    maps, mlp = find_linear_maps(model), first_mlp(model)
    first, second = NAMES[family]

    def weight(name):
        layer = getattr(mlp, name)
        return layer.weight if isinstance(layer, nn.Linear) else layer.weight.T

    assert list(maps) == ["first", "second"]
    torch.testing.assert_close(maps["first"].rows, torch.cat([weight(name) for name in first]))
    torch.testing.assert_close(maps["second"].rows, weight(second))
    assert maps["first"].rows.shape[1] == model.config.hidden_size
    assert maps["second"].rows.shape[0] == model.config.hidden_size


@pytest.mark.parametrize("family", ["gpt_neox", "llama", "gpt2", "modernbert"])
def test_what_a_map_reads_gives_what_its_layer_writes(family):
    model = small_model(family)
    maps = find_linear_maps(model)
    written = []
    layer = maps["second"].layers[0]
    hook = layer.register_forward_hook(lambda _, arguments, output: written.append(output.detach()))
    ids = torch.randint(3, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(0))
    watched = {name: linear.layers[0] for name, linear in maps.items()}
    read = capture(model, ids, probes=["T1_in"], watched=watched).reader_inputs
    hook.remove()
    assert read["first"].shape[:2] == (2, 7)
    bias = 0 if layer.bias is None else layer.bias.detach()
    torch.testing.assert_close(read["second"] @ maps["second"].rows.T + bias, written[0], atol=1e-5, rtol=1e-4)


def test_hooks_are_gone_afterwards():
    model = small_model("llama")
    find_linear_maps(model)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_square_mlp_is_told_apart_by_what_it_reads():
    model = small_model("llama", intermediate_size=16)
    maps = find_linear_maps(model)
    torch.testing.assert_close(maps["second"].rows, first_mlp(model).down_proj.weight)
    assert maps["first"].rows.shape == (32, 16)


def test_a_structure_that_is_not_known_gives_nothing():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 16))

        def forward(self, x):
            return self.layers(x)

    model = small_model("llama")
    model.model.layers[0].mlp = Deep()
    assert find_linear_maps(model) == {}
    model.model.layers[0].mlp = nn.Identity()
    assert find_linear_maps(model) == {}
