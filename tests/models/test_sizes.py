"""Closed forms of sizes against real models made of configurations."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from families import FAMILIES, small_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from anisotropy.models import sizes
from anisotropy.models.catalogue import catalogue
from anisotropy.models.sizes import FLOAT32, Shape, captured_bytes, pass_bytes
from anisotropy.models.stored import more_of_hub_models, stored


def counted(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_of_every_family(family, tied):
    for layers, d, units in product((1, 3), (16, 40), (24, 56)):
        more = {"hidden_size": d, "tie_word_embeddings": tied, "num_attention_heads": 4, "num_key_value_heads": 2}
        more["intermediate_size"] = units
        if family in ("gpt_neox", "modernbert", "gpt2"):
            del more["num_key_value_heads"]
        if family == "gpt2":
            more["n_inner"] = more.pop("intermediate_size")
        with torch.device("meta"):
            model = small_model(family, layers, **more)
        shape = Shape.of_config(model.config)
        assert shape.tied == tied
        assert shape.parameters == counted(model)


def test_a_family_without_a_formula_is_counted_as_llama():
    llama = Shape.of_config(small_model("llama").config)
    other = Shape(**{**vars(llama), "family": "something-new"})
    assert other.parameters == llama.parameters
    assert set(FAMILIES) == set(sizes.FAMILIES)


@pytest.mark.parametrize("name", [name for name in catalogue().miniatures if "shuffled" not in name])
def test_miniatures(name):
    recipe = catalogue().miniatures[name].recipe
    loader = AutoModelForCausalLM if recipe.objective == "causal" else AutoModelForMaskedLM
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id"), 0)
    config = AutoConfig.for_model(recipe.architecture, vocab_size=recipe.vocabulary, **recipe.config, **special)
    with torch.device("meta"):
        model = loader.from_config(config)
    assert stored(name).shape.parameters == counted(model)


MILLIONS = {  # as the names and model cards of the models say; with both embeddings where they are not tied
    "pythia-160m": 162,
    "pythia-410m": 405,
    "pythia-1b": 1012,
    "pythia-1.4b": 1415,
    "smollm2-135m": 135,
    "smollm2-360m": 362,
    "smollm2-1.7b": 1711,
    "gaperon-1.5b": 1498,
    "moderncamembert": 136,
    "olmo-1b": 1177,
    "eurobert-210m": 212 + 98.5,
    "eurobert-610m": 608 + 147.8,
}


def test_models_of_the_hub_have_the_sizes_they_are_known_for():
    assert set(MILLIONS) == set(catalogue().hub) == set(more_of_hub_models())
    for name in catalogue().packages:
        assert stored(name).shape.parameters == stored("smollm2-135m").shape.parameters
    for name, millions in MILLIONS.items():
        assert stored(name).shape.parameters / 1e6 == pytest.approx(millions, rel=0.01), name


def test_passes_grow_as_they_should():
    shape = Shape("llama", 64, 4, 1000, 192, 4, 4, False)
    assert pass_bytes(shape, 200, 1) == 2 * pass_bytes(shape, 100, 1)
    assert pass_bytes(shape, 100) < pass_bytes(shape, 100, 1) < pass_bytes(shape, 100, 2)
    more = pass_bytes(shape, 100, 2) - pass_bytes(shape, 100, 1)
    assert more == FLOAT32 * 100 * shape.vocabulary
    assert captured_bytes(shape, 100, probes=2) == FLOAT32 * 100 * 64 * 2
    assert captured_bytes(shape, 100, 2, probes=2, readers=1) == FLOAT32 * 100 * 64 * (2 * 3 + 7)
