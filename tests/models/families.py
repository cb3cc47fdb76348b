"""Small random models of every family the probes know, built from configurations."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

VOCABULARY = 50
MASK = 2
# model type: where its blocks, its embedding dropout and its final norm are (the table of models.md), and its objective
FAMILIES: dict[str, tuple[str, str | None, str, str]] = {
    "gpt_neox": ("gpt_neox.layers", "gpt_neox.emb_dropout", "gpt_neox.final_layer_norm", "causal"),
    "llama": ("model.layers", None, "model.norm", "causal"),
    "qwen2": ("model.layers", None, "model.norm", "causal"),
    "olmo": ("model.layers", None, "model.norm", "causal"),
    "olmo2": ("model.layers", None, "model.norm", "causal"),
    "eurobert": ("model.layers", None, "model.norm", "masked"),
    "modernbert": ("model.layers", "model.embeddings.drop", "model.final_norm", "masked"),
    "gpt2": ("transformer.h", "transformer.drop", "transformer.ln_f", "causal"),
}


def small_model(family: str, layers: int = 4, **more: Any) -> PreTrainedModel:
    """A random model in eval mode: hidden size 16, 2 heads, float32, weights an order larger than usual."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 32,
        "initializer_range": 0.2,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 1,
    }
    if family == "gpt2":
        del settings["num_key_value_heads"], settings["intermediate_size"]
    if family == "modernbert":
        del settings["num_key_value_heads"]
        settings |= {"cls_token_id": 0, "sep_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 8}
    if family == "gpt_neox":
        del settings["num_key_value_heads"]
    if family == "eurobert":
        settings |= {"mask_token_id": MASK}
    objective = FAMILIES[family][3]
    loader = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = loader.from_config(AutoConfig.for_model(family, **settings | more))
    return model.eval()


def text_and_labels(family: str, sequences: int = 3, length: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids and labels with a different number of asked positions in each sequence."""
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (sequences, length), generator=random)
    asked = torch.rand(sequences, length, generator=random) < torch.linspace(0.3, 0.9, sequences).unsqueeze(1)
    asked[:, 1] = True
    labels = torch.where(asked, ids, -100)
    inputs = torch.where(asked, MASK, ids) if FAMILIES[family][3] == "masked" else ids
    return inputs, labels
