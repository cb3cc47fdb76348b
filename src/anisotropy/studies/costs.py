"""What one checkpoint costs a study: closed forms in the model's shape and the study's parameters, without torch.

Sizes of results are exact where every array's shape is known beforehand; operations and memory are estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anisotropy.models.sizes import Shape, captured_bytes, pass_bytes
from anisotropy.studies.held_out import held_out_groups

LENGTH, BLOCKS = 128, 20  # of the study text, see `anisotropy.models.corpus.study_text`
BATCH = 32  # sequences a batch, where memory allows
FLOAT, DOUBLE = 4, 8
PROBES = 4  # that differ, in a model of four layers or more
_TRACKED = 1_024
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """Of one study at one checkpoint.

    Attributes:
        result_bytes: what is kept in ``results/``.
        model_operations: multiplications and additions in passes through the model, float32.
        device_operations: the same in float64 linear algebra where the model is.
        host_operations: the same in decompositions, which run on the CPU.
        device_bytes: memory beside the weights where the model is, with full batches.
        least_device_bytes: the same with a single sequence a batch.
        host_bytes: memory on the CPU beside the weights.
        fixed_seconds: of a CPU, what does not depend on the model.
    """

    result_bytes: float
    model_operations: float = 0.0
    device_operations: float = 0.0
    host_operations: float = 0.0
    device_bytes: float = 0.0
    least_device_bytes: float = 0.0
    host_bytes: float = 0.0
    fixed_seconds: float = 0.0


def cost(study: str, shape: Shape, parameters: Parameters) -> Cost:
    """Of a study with these parameters, all of them given.

    Raises:
        KeyError: an unknown study.
    """
    return _COSTS[study](shape, parameters)


def seconds(work: Cost, model_speed: float, device_speed: float, host_speed: float) -> float:
    """Estimated time of a study at one checkpoint.

    Args:
        work: its cost.
        model_speed: float32 operations a second where the model is.
        device_speed: float64 operations a second there.
        host_speed: float64 operations a second of the CPU.
    """
    on_device = work.model_operations / model_speed + work.device_operations / device_speed
    return on_device + work.host_operations / host_speed + work.fixed_seconds


def _passes(shape: Shape, tokens: int, labels: int = 0) -> float:
    """Operations of passes: two per weight and token, as many again backwards (weights need no gradients).

    What is not a matrix product is limited by memory; it takes as long as so many multiplications and additions.
    """
    body = shape.layers * shape.block_parameters
    weights = body + shape.vocabulary * shape.hidden_size if labels else body
    attention = 2 * shape.layers * LENGTH * shape.hidden_size
    elementwise = _ELEMENTWISE * shape.layers * shape.hidden_size
    return tokens * (2.0 * (weights + attention) + elementwise) * (1 + labels)


def _matrices(shape: Shape) -> int:
    return 1 if shape.tied else 2


def _batch(shape: Shape, tokens: int, labels: int, probes: int, readers: int = 0) -> tuple[float, float]:
    """Memory of a full batch, and with a single sequence at a time: what is kept of the batch stays whole."""
    full = min(BATCH * LENGTH, tokens)
    kept = captured_bytes(shape, full, labels, probes, readers)
    return pass_bytes(shape, full, labels, probes, readers), kept + pass_bytes(shape, LENGTH, labels, probes, readers)


def _reader_width(shape: Shape) -> int:
    """Outputs of the first maps behind a probe: queries, keys and values."""
    return round(shape.hidden_size * (1 + 2 * shape.key_values / shape.heads))


def _tangents(shape: Shape, parameters: Parameters) -> Cost:
    d, probes = shape.hidden_size, min(PROBES, shape.layers)
    width, half = _reader_width(shape), parameters["tokens"] // 2
    groups = held_out_groups(d, BLOCKS // 2, parameters["groups"])
    sums = 4 * groups + 6
    rows = min(parameters["reservoir"], half)
    result = probes * (sums * (d * (d + 1) / 2 * FLOAT + d * DOUBLE) + 2 * rows * d * FLOAT)
    products = 3 * probes * half * 2.0 * d * width
    moments = probes * 2.0 * d * d * (6 * half + 4 * BLOCKS // 2 * width)
    kept = probes * (sums * d * d * DOUBLE + 3 * BLOCKS // 2 * width * d * FLOAT)
    full, least = _batch(shape, half, 2, probes, probes)
    return Cost(
        result,
        _passes(shape, half) + _passes(shape, half, 2) + products,
        moments,
        0.0,
        kept + full,
        kept + least,
        2 * result,
        0.3,
    )


def _layers(shape: Shape, parameters: Parameters) -> Cost:
    d, tokens, layers = shape.hidden_size, parameters["text_tokens"], shape.layers + 1
    n, groups = min(parameters["rows"], tokens), parameters["groups"]
    result = layers * ((d + min(parameters["angles"], n)) * FLOAT + (10 + 6 * groups) * DOUBLE) + 2 * DOUBLE
    scatters = layers * (2.0 * n * d * d + 3 * groups * d * d + 10.0 * d**3)
    cosines = layers * (groups + 2) * 3 * 8.0 * n * d
    full, least = _batch(shape, tokens, 0, 1)
    host = layers * n * d * FLOAT + 4 * n * d * DOUBLE
    return Cost(result, _passes(shape, tokens), 0.0, scatters + cosines, full, least, host, 0.1)


def _frequency(shape: Shape, parameters: Parameters) -> Cost:
    d, tokens = shape.hidden_size, parameters["text_tokens"]
    rows = min(parameters["max_tokens"], shape.vocabulary)
    often = min(rows, tokens // parameters["occurrences"])
    result = _matrices(shape) * rows * (d * FLOAT + 2 * DOUBLE) + (rows + often) * 2 * DOUBLE
    full, least = _batch(shape, tokens, 0, 1)
    chosen = rows * d * DOUBLE
    host = 2 * result + tokens * d * FLOAT
    return Cost(result, _passes(shape, tokens), 0.0, 0.0, chosen + full, chosen + least, host, 0.1)


def _updates(shape: Shape, parameters: Parameters) -> Cost:
    d, rows = shape.hidden_size, min(parameters["max_tokens"], shape.vocabulary)
    result = _matrices(shape) * (rows * d * FLOAT + d * d * DOUBLE + d * DOUBLE) + rows * 2 * DOUBLE
    moments = _matrices(shape) * 2.0 * shape.vocabulary * d * d
    device = 2 * d * d * DOUBLE + 3 * 8_192 * d * DOUBLE
    return Cost(result, 0.0, moments, 0.0, device, device, 2 * result)


def _concept_tables(shape: Shape, parameters: Parameters) -> Cost:
    d, tokens, seeds = shape.hidden_size, parameters["text_tokens"], parameters["seeds"]
    n, k = min(parameters["rows"], tokens), min(parameters["concepts"], 3 * shape.hidden_size // 4)
    shown = parameters["examples"] * (19 + 3) * DOUBLE
    result = (3 * (seeds + 1) + 1) * k * d * FLOAT + min(_TRACKED, n) * d * FLOAT + k * shown + n * DOUBLE
    factorising = seeds * _ITERATIONS * 2.4 * k * d * (3 * n + 2 * _reader_width(shape))
    ranks = 3 * (BLOCKS + 2) * 2.0 * d**3 + 3 * 6.0 * n * d * d
    nearest = 2.0 * k * shape.vocabulary * d
    full, least = _batch(shape, tokens, 0, 3)
    host = 3 * n * d * DOUBLE + 4 * n * d * DOUBLE + 2 * shape.vocabulary * d * DOUBLE
    return Cost(result, _passes(shape, tokens), 0.0, factorising + ranks + nearest, full, least, host, 1.7)


def _alignment(shape: Shape, parameters: Parameters) -> Cost:
    d, tokens, groups = shape.hidden_size, parameters["text_tokens"], parameters["groups"]
    k, kept = min(parameters["components"], d // 2), min(parameters["tokens"], tokens)
    seeds, rows = parameters["weight_seeds"], min(parameters["weight_rows"], shape.vocabulary)
    m, matrices = shape.intermediate_size, 3
    result = 6 * k * d * FLOAT + matrices * 3 * seeds * k * k * FLOAT + 6 * groups * (k + 3) * DOUBLE
    result += 6 * groups * parameters["rotations"] * 3 * DOUBLE
    of_tokens = 3 * _ITERATIONS * 8.0 * k * d * kept
    of_weights = seeds * _ITERATIONS * 8.0 * k * d * (m + m + rows)
    images = 3 * seeds * 4.0 * (kept / groups) * k * (k + 2 * d + m)
    full, least = _batch(shape, tokens, 2, 1, 1)
    read = tokens * (4 * d + m) * FLOAT
    host = 3 * read + (2 * m * d + rows * d) * DOUBLE
    decompositions = of_tokens + of_weights + images
    return Cost(result, _passes(shape, tokens, 2), 0.0, decompositions, read + full, read + least, host, 0.7)


# Fitted to processor times of `collect` on models of d = 64 … 512; the page on costs shows how well they hold.
_ELEMENTWISE = 2_000
_ITERATIONS = 100  # of an alternating factorisation until its tolerance, about
_COSTS: dict[str, Callable[[Shape, Parameters], Cost]] = {
    "layers": _layers,
    "tangents": _tangents,
    "frequency": _frequency,
    "updates": _updates,
    "concept_tables": _concept_tables,
    "alignment": _alignment,
}
