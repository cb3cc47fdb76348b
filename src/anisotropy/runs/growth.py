"""Measure what grows with what: studies on random models of growing size, on as much text as asked for.

Random weights cost as much as trained ones, except where an iteration stops by itself (Semi-NMF, ICA).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from anisotropy.models.sizes import Shape
from anisotropy.studies.costs import BLOCKS, LENGTH

BASE = Shape("gpt_neox", 128, 4, 4_096, 512, 4, 4, False)
_ZIPF = 1.1


def random_checkpoint(shape: Shape, seed: int = 0, device: str = "cpu") -> Any:
    """A loaded checkpoint with random weights; GPTNeoX, whatever the family of the shape."""
    import torch
    from transformers import AutoModelForCausalLM, GPTNeoXConfig

    from anisotropy.models.loaded import Checkpoint

    config = GPTNeoXConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate_size,
        tie_word_embeddings=shape.tied,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False).to(device)
    return Checkpoint(model, "random", 0, "causal", None, "random")


def random_text(tokens: int, vocabulary: int, seed: int = 0) -> Any:
    """Study text of about so many tokens, whose frequencies fall as a power of the rank, as those of words do."""
    from anisotropy.models.corpus import StudyText

    random = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, vocabulary + 1) ** _ZIPF
    sequences = max(1, -(-tokens // (BLOCKS * LENGTH)))
    shape = (BLOCKS, sequences, LENGTH)
    ids = random.choice(vocabulary, size=shape, p=share / share.sum()).astype(np.int64)
    return StudyText(tuple(ids), np.bincount(ids.ravel(), minlength=vocabulary) + 1, f"random {tokens} {seed}")


def measure(study: str, shape: Shape, parameters: Mapping[str, Any], tokens: int, device: str = "cpu") -> dict:
    """Run a study's ``collect`` once on a random model.

    Returns:
        ``seconds`` of the wall clock, ``cpu_seconds`` of all threads, ``result_bytes``.
    """
    import importlib

    module = importlib.import_module(f"anisotropy.studies.{study}")
    checkpoint, text = random_checkpoint(shape, device=device), random_text(tokens, shape.vocabulary)
    given = module.Parameters(**parameters)
    wall, used = time.perf_counter(), time.process_time()
    arrays = module.collect(checkpoint, text, given)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - used,
        "result_bytes": sum(array.nbytes for array in arrays.values()),
    }
