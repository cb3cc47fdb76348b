"""Measure what grows with what: studies on random models of growing size, on as much text as asked for.

Random weights cost as much as trained ones, except where an iteration stops by itself (Semi-NMF, ICA).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from anisotropy.models.labels import split_label
from anisotropy.models.sizes import Shape
from anisotropy.models.stored import stored
from anisotropy.runs.declared import with_defaults
from anisotropy.runs.machine import cpu_speeds
from anisotropy.runs.project import Project
from anisotropy.studies.costs import BLOCKS, LENGTH, cost
from anisotropy.studies.costs import seconds as estimate
from anisotropy.studies.results import ResultStore

BASE = Shape("gpt_neox", 128, 4, 4_096, 512, 4, 4, False)
_ZIPF, _VOCABULARY = 1.1, 1_024


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


def measure(study: str, shape: Shape, parameters: Mapping[str, Any], tokens: int) -> dict[str, float]:
    """Run a study's ``collect`` on a random model on the CPU, once for time and once for memory.

    Returns:
        ``seconds`` of processor time of all threads, ``memory`` of the tensors alive at the peak beside the weights,
        and ``result`` in bytes.
    """
    module = importlib.import_module(f"anisotropy.studies.{study}")
    checkpoint, text = random_checkpoint(shape), random_text(tokens, shape.vocabulary)
    given = module.Parameters(**parameters)
    seconds = []
    for _ in range(2):
        started = time.process_time()
        arrays = module.collect(checkpoint, text, given)
        seconds.append(time.process_time() - started)
    from anisotropy.runs.live_memory import LiveBytes

    with LiveBytes() as live:
        module.collect(checkpoint, text, given)
    kept = sum(array.nbytes for array in arrays.values())
    return {"seconds": min(seconds), "memory": float(live.peak), "result": float(kept)}


def sweep(study: str, tokens: Sequence[int], widths: Sequence[int], layers: Sequence[int]) -> pd.DataFrame:
    """Measure a study while one size grows and the others stay at their first value.

    Args:
        study: one whose text is its parameter ``tokens``.
        tokens: of text.
        widths: d.
        layers: blocks.

    Returns:
        Columns ``axis`` (``tokens``, ``d``, ``layers``), ``size``, ``quantity`` (``seconds``, ``memory``, ``result``),
        ``measured``, ``foretold`` by the closed forms (seconds on this processor).
    """
    speeds = cpu_speeds()
    rows = []
    for axis, sizes in (("tokens", tokens), ("d", widths), ("layers", layers)):
        for size in sizes:
            d, blocks, text = (
                size if axis == name else sizes_of[0]
                for name, sizes_of in (("d", widths), ("layers", layers), ("tokens", tokens))
            )
            shape = replace(BASE, hidden_size=d, intermediate_size=4 * d, layers=blocks, vocabulary=_VOCABULARY)
            parameters = with_defaults(study, {"tokens": text})
            work = cost(study, shape, parameters)
            foretold = {
                "seconds": estimate(work, *speeds, speeds[1]),
                "memory": work.device_bytes,
                "result": work.result_bytes,
            }
            for quantity, value in measure(study, shape, parameters, text).items():
                rows.append([axis, size, quantity, value, foretold[quantity]])
    return pd.DataFrame(rows, columns=["axis", "size", "quantity", "measured", "foretold"])


def against_records(project: Project) -> pd.DataFrame:
    """Measured seconds of everything kept of catalogue models, beside what the plan would have said on this machine.

    Returns:
        Columns ``study``, ``model``, ``checkpoints``, ``measured`` (median seconds a checkpoint), ``estimated``.
    """
    speeds = cpu_speeds()
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    store = ResultStore(project.results)
    for record in store.records() if store.root.is_dir() else ():
        try:
            shape = stored(split_label(record["model"])[0]).shape
            parameters = with_defaults(record["key"]["study"], record["key"]["parameters"])
            work = cost(record["key"]["study"], shape, parameters)
        except KeyError:  # a model or a study that has no closed form
            continue
        if record["provenance"]["device"] == "cpu":
            pair = (record["provenance"]["seconds"], estimate(work, *speeds, speeds[1]))
            found.setdefault((record["key"]["study"], record["model"]), []).append(pair)
    rows = [[study, model, len(pairs), *np.median(pairs, axis=0)] for (study, model), pairs in sorted(found.items())]
    return pd.DataFrame(rows, columns=["study", "model", "checkpoints", "measured", "estimated"])
