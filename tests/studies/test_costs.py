"""What studies cost in closed form, against what they really keep and how long they really take."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch
from families import small_model

from anisotropy.models.checkpoints import Checkpoint
from anisotropy.models.corpus import study_text
from anisotropy.models.sizes import Shape
from anisotropy.runs.declared import declared, with_defaults
from anisotropy.runs.growth import random_checkpoint, random_text
from anisotropy.studies import costs, tangents
from anisotropy.studies.costs import Cost, cost, seconds

SMALL = Shape("gpt_neox", 48, 4, 200, 96, 4, 4, False)
PARAMETERS = {
    "layers": {"rows": 256, "text_tokens": 5_120},
    "frequency": {"occurrences": 4, "text_tokens": 5_120},
    "tangents": {"tokens": 5_120, "reservoir": 64},
    "updates": {},
    "concept_tables": {"concepts": 12, "rows": 512, "text_tokens": 5_120, "ica_rows": 128, "card_rows": 256},
    "alignment": {"components": 8, "text_tokens": 5_120, "tokens": 512, "rotations": 3},
}


@pytest.mark.parametrize("study", PARAMETERS)
@pytest.mark.parametrize("tied", [True, False])
def test_results_are_as_large_as_foretold(study, tied):
    if tied and study in ("layers", "concept_tables", "alignment", "tangents"):
        pytest.skip("one or two embedding matrices make no difference here")
    shape = replace(SMALL, tied=tied)
    module = importlib.import_module(f"anisotropy.studies.{study}")
    parameters = with_defaults(study, PARAMETERS[study])
    text = random_text(5_120, shape.vocabulary)
    arrays = module.collect(random_checkpoint(shape), text, module.Parameters(**PARAMETERS[study]))
    kept = sum(array.nbytes for array in arrays.values())
    assert cost(study, shape, parameters).result_bytes == pytest.approx(
        kept, rel=0.15 if study == "alignment" else 0.05
    )


@pytest.mark.parametrize("groups", [None, 2])
def test_grouped_queries_make_narrow_readers(groups):
    model = small_model("llama", num_key_value_heads=1)
    text = random_text(2_560, 50)
    given = {"tokens": 2_560, "reservoir": 64, "groups": groups}
    arrays = tangents.collect(Checkpoint(model, "small", 0, "causal", None, "hash"), text, tangents.Parameters(**given))
    kept = sum(array.nbytes for array in arrays.values())
    found = cost("tangents", Shape.of_config(model.config), with_defaults("tangents", given))
    assert found.result_bytes == pytest.approx(kept, rel=0.01)


def test_declared_parameters_are_those_of_the_studies():
    for study in PARAMETERS:
        module = importlib.import_module(f"anisotropy.studies.{study}")
        assert declared(study) == module.Parameters().model_dump(), study
    assert with_defaults("updates", {"max_tokens": 7, "draws": 3}) == {"max_tokens": 7}


def test_the_text_is_cut_as_the_costs_assume():
    defaults = inspect.signature(study_text).parameters
    assert (defaults["length"].default, defaults["blocks"].default) == (costs.LENGTH, costs.BLOCKS)
    for study in ("layers", "frequency", "tangents", "concept_tables", "alignment"):
        assert importlib.import_module(f"anisotropy.studies.{study}")._SEQUENCES_A_BATCH == costs.BATCH


def test_growth_is_linear_in_text_and_quadratic_in_width():
    given = declared("tangents")
    wide = replace(SMALL, hidden_size=512, intermediate_size=2_048)
    wider = replace(SMALL, hidden_size=1_024, intermediate_size=4_096)
    assert cost("tangents", wider, given).result_bytes / cost("tangents", wide, given).result_bytes == pytest.approx(
        4, rel=0.1
    )
    longer = cost("frequency", SMALL, {**declared("frequency"), "text_tokens": 65_536})
    assert longer.model_operations == 2 * cost("frequency", SMALL, declared("frequency")).model_operations
    grouped = cost("tangents", replace(wide, hidden_size=2_048), given).result_bytes
    apart = cost("tangents", replace(wide, hidden_size=2_048), {**given, "groups": 10}).result_bytes
    assert 1.6 < apart / grouped < 1.8  # 46 matrices a probe against 26


def test_a_large_model_in_small_batches_needs_less():
    found = cost("alignment", Shape("llama", 2_048, 24, 49_152, 8_192, 32, 32, True), declared("alignment"))
    assert found.least_device_bytes < found.device_bytes / 4


def test_seconds_add_up():
    work = Cost(0, model_operations=100, device_operations=20, host_operations=6, fixed_seconds=0.5)
    assert seconds(work, 50, 10, 3) == 2 + 2 + 2 + 0.5


def test_random_text_has_frequent_and_rare_tokens():
    text = random_text(10_000, 300)
    assert len(text.blocks) == costs.BLOCKS
    assert text.blocks[0].shape[1] == costs.LENGTH
    counts = np.sort(text.counts)[::-1]
    assert counts[0] > 20 * counts[150]
    assert torch.from_numpy(text.blocks[0]).max() < 300
