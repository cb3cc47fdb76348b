"""How large a model is, and how much memory a pass through it takes: closed forms, without torch or weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FLOAT32 = 4  # bytes: what models are measured in
#: Families whose shape is known; others are counted as Llama.
FAMILIES = ("gpt_neox", "gpt2", "llama", "qwen2", "olmo", "olmo2", "eurobert", "modernbert")


@dataclass(frozen=True)
class Shape:
    """What decides the size of a model.

    Attributes:
        family: the transformers ``model_type``, one of :data:`FAMILIES`; any other is counted as Llama.
        hidden_size: d.
        layers: blocks L.
        vocabulary: rows of the embedding matrix V.
        intermediate_size: units of a block's MLP m (of one branch, where it is gated).
        heads: attention heads.
        key_values: heads of keys and values.
        tied: whether input and output embedding are one matrix.
        positions: learned positions, in families that have them (GPT-2).
    """

    family: str
    hidden_size: int
    layers: int
    vocabulary: int
    intermediate_size: int
    heads: int
    key_values: int
    tied: bool
    positions: int = 0

    @classmethod
    def of_config(cls, config: Any) -> Shape:
        """The shape that a transformers configuration describes."""
        d, heads = config.hidden_size, config.num_attention_heads
        # GPT-2 leaves it unset where it is four times d.
        units = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * d
        return cls(
            family=config.model_type,
            hidden_size=d,
            layers=config.num_hidden_layers,
            vocabulary=config.vocab_size,
            intermediate_size=units,
            heads=heads,
            key_values=getattr(config, "num_key_value_heads", None) or heads,
            tied=bool(config.tie_word_embeddings),
            positions=config.n_positions if config.model_type == "gpt2" else 0,
        )

    @classmethod
    def of_file(cls, config: Mapping[str, Any]) -> Shape:
        """The shape that a ``config.json`` describes, which may leave defaults out.

        Raises:
            KeyError: a size is missing.
        """
        old = config.get("model_type") == "gpt2"
        names = ("n_embd", "n_head", "n_layer") if old else ("hidden_size", "num_attention_heads", "num_hidden_layers")
        d, heads, layers = (config[name] for name in names)
        return cls(
            family=config["model_type"],
            hidden_size=d,
            layers=layers,
            vocabulary=config["vocab_size"],
            intermediate_size=config.get("intermediate_size") or config.get("n_inner") or 4 * d,
            heads=heads,
            key_values=config.get("num_key_value_heads") or heads,
            tied=bool(config.get("tie_word_embeddings", config["model_type"] in ("gpt2", "modernbert"))),
            positions=config.get("n_positions", 1_024) if old else 0,
        )

    @property
    def block_parameters(self) -> int:
        """Parameters of one block, all blocks alike (ModernBERT's first lacks one norm; see :attr:`parameters`)."""
        d, m = self.hidden_size, self.intermediate_size
        narrow = d * self.key_values // self.heads
        if self.family in ("gpt_neox", "gpt2"):
            return 4 * d * d + 2 * d * m + 9 * d + m  # with biases: 4 of d, one of m, one of d, two norms of 2 d
        if self.family == "modernbert":
            return 4 * d * d + 3 * d * m + 2 * d
        weights = 2 * d * d + 2 * d * narrow + 3 * d * m
        norms = {"olmo": 0, "olmo2": 3 * d + narrow, "qwen2": 3 * d + 2 * narrow}.get(self.family, 2 * d)
        return weights + norms

    @property
    def parameters(self) -> int:
        """All parameters, shared ones once."""
        d, v = self.hidden_size, self.vocabulary
        total = v * d * (1 if self.tied else 2) + self.layers * self.block_parameters
        if self.family == "modernbert":  # norms after embedding and blocks, none in block 1; a dense head and a bias
            return total + d + d - d + d * d + d + v
        final = {"gpt_neox": 2 * d, "gpt2": 2 * d, "olmo": 0}.get(self.family, d)
        return total + final + self.positions * d

    @property
    def computed_parameters(self) -> int:
        """Weights that every token is multiplied with, in blocks and output matrix; not the look-up of the input."""
        return self.layers * self.block_parameters + self.vocabulary * self.hidden_size


def pass_bytes(shape: Shape, tokens: int, labels: int = 0, probes: int = 0, readers: int = 0) -> int:
    """Memory that one pass takes beside the weights, in bytes: an upper estimate within a factor of two.

    Weights need no gradients, so a linear map keeps nothing for the backward pass; norms, activation functions and
    attention do. The coefficients were read off torch's own record of allocations on small models of every family.

    Args:
        shape: of the model, in float32.
        tokens: sequences times length.
        labels: backward passes; without any, no logits are computed.
        probes: activations read, and gradients where there are labels.
        readers: probes whose first linear maps are watched too.
    """
    d = shape.hidden_size
    one_buffer = shape.family == "gpt_neox"  # of the MLP's size; gates and GPT-2's own activation function need more
    floats = (3 * shape.layers + 3) * d + (3 if one_buffer else 4) * shape.intermediate_size
    if labels:
        kept = 9 * d + (1 if one_buffer else 3) * shape.intermediate_size
        floats = (3 + labels) * shape.vocabulary + shape.layers * kept + 2 * d
    floats += probes * d * (1 + labels) + readers * d * (4 + 3 * labels)
    return FLOAT32 * tokens * floats


def captured_bytes(shape: Shape, tokens: int, labels: int = 0, probes: int = 0, readers: int = 0) -> int:
    """Memory of what is kept of a pass: activations, gradients, and what the watched maps read."""
    d = shape.hidden_size
    return FLOAT32 * tokens * d * (probes * (1 + labels) + readers * (1 + 3 * labels))
