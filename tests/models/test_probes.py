from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, VOCABULARY, small_model, text_and_labels
from torch import nn
from transformers import PreTrainedModel

from anisotropy.models.probes import PROBES, batches, capture, find_places

WITH_DROPOUT = sorted(family for family, (_, dropout, _, _) in FAMILIES.items() if dropout)
families = pytest.mark.parametrize("family", FAMILIES)


def all_probes(model: PreTrainedModel) -> list[str]:
    return list(find_places(model).entries)


def blocks_of(model: PreTrainedModel, family: str) -> nn.ModuleList:
    return model.get_submodule(FAMILIES[family][0])


def first_argument(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> torch.Tensor:
    return arguments[0] if arguments else keywords["hidden_states"]


def first_result(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def changed_before(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A hook that changes what a module is given."""

    def hook(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if arguments:
            return (change(arguments[0]), *arguments[1:]), keywords
        return arguments, keywords | {"hidden_states": change(keywords["hidden_states"])}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def entrance(model: PreTrainedModel, family: str, probe: str) -> nn.Module:
    """The module whose input is the probe's tensor, by the definitions of methods.md, section 0."""
    layers, dropout = blocks_of(model, family), FAMILIES[family][1]
    if probe == "E0_in":
        assert dropout is not None
        return model.get_submodule(dropout)
    place = {"E0_out": 0, "T1_in": 0, "T1_out": 1, "Tm": len(layers) // 2, "Tl": len(layers) - 1}[probe]
    return layers[place]


def cross_entropy(model: PreTrainedModel, inputs: torch.Tensor, labels: torch.Tensor, objective: str) -> float:
    """Mean cross-entropy at the asked positions from the logits, in float64, written out."""
    with torch.no_grad():
        log_p = model(input_ids=inputs).logits.double().log_softmax(-1)
    if objective == "causal":
        log_p, labels = log_p[:, :-1], labels[:, 1:]
    asked = labels != -100
    return float(-log_p[asked].gather(1, labels[asked].unsqueeze(1)).mean())


def derivative(f: Callable[[float], float], ε: float = 3e-4) -> float:
    """f′(0) by central differences with steps ε and 2ε, extrapolated: the error is of order ε⁴."""
    once, twice = ((f(step) - f(-step)) / (2 * step) for step in (ε, 2 * ε))
    return (4 * once - twice) / 3


class TestActivations:
    @families
    def test_equal_the_hidden_states(self, family: str) -> None:
        model = small_model(family)
        inputs, _ = text_and_labels(family)
        with torch.no_grad():
            hidden = model(input_ids=inputs, output_hidden_states=True).hidden_states
        found = capture(model, inputs, probes=all_probes(model)).activations
        assert len(hidden) == 5
        for probe, entry in {"T1_in": 0, "T1_out": 1, "Tm": 2, "Tl": 3}.items():
            assert torch.equal(found[probe], hidden[entry]), probe
            assert found[probe].shape == (3, 10, 16)
            assert found[probe].dtype == torch.float32
            assert not found[probe].requires_grad

    @families
    @pytest.mark.parametrize("layers", [2, 3, 4])
    def test_equal_a_hook_on_the_block(self, family: str, layers: int) -> None:
        """Inputs by a hook before the block, outputs by one after it."""
        model = small_model(family, layers)
        inputs, _ = text_and_labels(family)
        blocks, seen = blocks_of(model, family), {}
        for probe in all_probes(model):
            entrance(model, family, probe).register_forward_pre_hook(
                lambda _, arguments, keywords, probe=probe: seen.update({probe: first_argument(arguments, keywords)}),
                with_kwargs=True,
            )
        outputs: dict[int, torch.Tensor] = {}
        for i, block in enumerate(blocks):
            block.register_forward_hook(lambda *call, i=i: outputs.update({i: first_result(call[2])}))
        with torch.no_grad():
            model(input_ids=inputs)
        expected, by_output = dict(seen), dict(outputs)
        found = capture(model, inputs, probes=all_probes(model)).activations
        assert set(found) == set(expected)
        for probe in found:
            assert torch.equal(found[probe], expected[probe]), probe
        assert torch.equal(found["T1_out"], by_output[0])
        assert torch.equal(found["Tm"], by_output[layers // 2 - 1])
        assert torch.equal(found["Tl"], by_output[layers - 2])

    @families
    @pytest.mark.parametrize("layers", [1, 2, 3, 5])
    def test_nothing_is_read_after_the_final_norm(self, family: str, layers: int) -> None:
        model = small_model(family, layers)
        inputs, _ = text_and_labels(family)
        before = capture(model, inputs, probes=all_probes(model)).activations
        entries = [entry for entry in find_places(model).entries.values() if entry is not None]
        assert max(entries) <= layers - 1
        with torch.no_grad():
            for parameter in model.get_submodule(FAMILIES[family][2]).parameters():
                parameter.mul_(3).add_(1)
        after = capture(model, inputs, probes=all_probes(model)).activations
        assert all(torch.equal(before[probe], after[probe]) for probe in before)

    @pytest.mark.parametrize("family", WITH_DROPOUT)
    def test_e0_in_is_what_the_dropout_is_given(self, family: str) -> None:
        """With a dropout that doubles its input in eval mode, E0_in stays and E0_out is twice as large."""
        model = small_model(family)
        inputs, _ = text_and_labels(family)
        plain = capture(model, inputs, probes=["E0_in", "E0_out"]).activations
        dropout = FAMILIES[family][1]
        assert dropout is not None
        model.get_submodule(dropout).register_forward_hook(lambda *call: 2 * call[2])
        doubled = capture(model, inputs, probes=["E0_in", "E0_out"]).activations
        assert torch.equal(doubled["E0_in"], plain["E0_in"])
        assert torch.equal(doubled["E0_out"], 2 * plain["E0_in"])


class TestGradients:
    @families
    @pytest.mark.parametrize("frozen", [False, True])
    def test_equal_central_differences_of_the_loss(self, family: str, frozen: bool) -> None:
        """Along random directions and along the gradient itself; the loss is computed anew from the logits.

        Many norms compute in float32 even inside a float64 model: the steps balance their noise (below 6e-4 of the
        gradient's size) against curvature. A wrong place or reduction is off by 3e-2 or more.
        """
        model = small_model(family).double().requires_grad_(not frozen)
        objective = FAMILIES[family][3]
        inputs, labels = text_and_labels(family)
        found = capture(model, inputs, labels, probes=all_probes(model))
        assert found.loss == pytest.approx(cross_entropy(model, inputs, labels, objective), rel=1e-6)
        random = torch.Generator().manual_seed(2)
        for probe, gradient in found.gradients.items():
            assert gradient.shape == (3, 10, 16)
            size = float(gradient.norm())
            assert size > 1e-3
            directions = [torch.randn(gradient.shape, generator=random, dtype=torch.float64) for _ in range(2)]
            directions = [*directions, gradient / gradient.abs().max()]
            for v in directions:

                def loss(shift: float, probe: str = probe, v: torch.Tensor = v) -> float:
                    hook = changed_before(entrance(model, family, probe), lambda x: x + shift * v)
                    try:
                        return cross_entropy(model, inputs, labels, objective)
                    finally:
                        hook.remove()

                exact = float((gradient * v).sum())
                assert derivative(loss) == pytest.approx(exact, rel=1e-3, abs=3e-3 * size), probe

    @families
    def test_times_positions_do_not_depend_on_batching(self, family: str) -> None:
        model = small_model(family)
        inputs, labels = text_and_labels(family, sequences=5)
        whole = capture(model, inputs, labels, probes=all_probes(model))
        parts = [
            capture(model, inputs[place], labels[place], probes=all_probes(model))
            for place in (slice(0, 1), slice(1, 3), slice(3, 5))
        ]
        assert whole.positions == sum(part.positions for part in parts)
        asked = labels[:, 1:] if FAMILIES[family][3] == "causal" else labels
        assert whole.positions == int((asked != -100).sum())
        losses = [part.loss for part in parts]
        assert whole.loss is not None
        assert None not in losses
        total = sum((loss or 0.0) * part.positions for loss, part in zip(losses, parts, strict=True))
        assert total == pytest.approx(whole.loss * whole.positions, rel=1e-5)
        for probe in all_probes(model):
            summed = torch.cat([part.gradients[probe] * part.positions for part in parts])
            expected = whole.gradients[probe] * whole.positions
            torch.testing.assert_close(summed, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
            activations = torch.cat([part.activations[probe] for part in parts])
            torch.testing.assert_close(activations, whole.activations[probe], rtol=1e-5, atol=1e-5)

    def test_a_causal_position_moves_no_loss_before_it(self) -> None:
        """Only the last label is asked for: gradients reach every position; only the second label: the first alone."""
        model = small_model("llama")
        inputs, _ = text_and_labels("llama")
        labels = torch.full_like(inputs, -100)
        labels[:, 1] = inputs[:, 1]
        gradient = capture(model, inputs, labels, probes=["Tm"]).gradients["Tm"]
        assert gradient[:, 0].abs().sum() > 0
        assert not gradient[:, 1:].any()

    def test_parameters_get_no_gradients(self) -> None:
        model = small_model("gpt_neox")
        capture(model, *text_and_labels("gpt_neox"), probes=["Tm"])
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_without_labels_there_is_no_loss_and_no_graph(self) -> None:
        model = small_model("gpt_neox")
        found = capture(model, text_and_labels("gpt_neox")[0], probes=["E0_in", "Tm"])
        assert (found.gradients, found.loss, found.positions) == ({}, None, 0)
        assert list(found.activations) == ["E0_in", "Tm"]


class TestPlaces:
    @families
    @pytest.mark.parametrize("layers", [1, 2, 3, 4])
    def test_probes_that_coincide_are_recognised(self, family: str, layers: int) -> None:
        """Two probes hold the same tensor exactly when ``same_as`` says so."""
        model = small_model(family, layers)
        places = find_places(model)
        found = capture(model, text_and_labels(family)[0], probes=all_probes(model)).activations
        probes = list(found)
        for i, probe in enumerate(probes):
            earlier = [other for other in probes[:i] if torch.equal(found[other], found[probe])]
            assert places.same_as.get(probe) == (earlier[0] if earlier else None), probe
        distinct = places.distinct()
        assert len(distinct) == len({tensor.numpy().tobytes() for tensor in found.values()})
        assert distinct == [probe for probe in probes if probe not in places.same_as]

    @families
    def test_probes_that_a_family_lacks_are_absent(self, family: str) -> None:
        model = small_model(family)
        places = find_places(model)
        if FAMILIES[family][1]:
            assert list(places.entries) == list(PROBES)
            assert places.dropout is model.get_submodule(FAMILIES[family][1] or "")
        else:
            assert list(places.entries) == ["T1_in", "T1_out", "Tm", "Tl"]
            assert places.dropout is None
            with pytest.raises(ValueError, match="has no probe 'E0_in'; it has T1_in, T1_out, Tm, Tl"):
                capture(model, text_and_labels(family)[0], probes=["Tm", "E0_in"])

    @families
    def test_one_layer_has_no_output_before_the_norm(self, family: str) -> None:
        model = small_model(family, layers=1)
        places = find_places(model)
        assert "T1_out" not in places.entries
        assert {places.entries[probe] for probe in ("T1_in", "Tm", "Tl")} == {0}
        assert places.distinct() == list(places.entries)[:1]
        found = capture(model, *text_and_labels(family), probes=["T1_in", "Tl"])
        assert torch.equal(found.gradients["T1_in"], found.gradients["Tl"])

    def test_two_layers_have_one_boundary(self) -> None:
        places = find_places(small_model("llama", layers=2))
        assert places.entries == {"T1_in": 0, "T1_out": 1, "Tm": 1, "Tl": 1}
        assert places.same_as == {"Tm": "T1_out", "Tl": "T1_out"}
        assert places.distinct() == ["T1_in", "T1_out"]

    def test_distinct_keeps_the_asked_for_name(self) -> None:
        places = find_places(small_model("gpt_neox"))
        assert places.distinct(["T1_in", "Tm"]) == ["T1_in", "Tm"]
        assert places.distinct(["Tm", "E0_out", "T1_in", "E0_in"]) == ["Tm", "E0_out"]
        assert find_places(small_model("llama")).distinct(["E0_in", "Tl"]) == ["Tl"]

    def test_an_unknown_probe_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no probe 'Tx'; it has E0_in"):
            capture(small_model("gpt_neox"), text_and_labels("gpt_neox")[0], probes=["Tx"])

    def test_a_family_with_other_blocks_is_refused(self) -> None:
        from transformers import AutoConfig, AutoModelForMaskedLM

        config = AutoConfig.for_model(
            "bert", vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
        )
        with pytest.raises(ValueError, match="BertForMaskedLM: no list of blocks named layers or h"):
            find_places(AutoModelForMaskedLM.from_config(config))


class TestModeAndHooks:
    @families
    def test_training_mode_is_refused(self, family: str) -> None:
        model = small_model(family).train()
        with pytest.raises(ValueError, match=r"eval mode: call model\.eval\(\) first"):
            capture(model, *text_and_labels(family), probes=["Tm"])

    def test_no_hook_stays_even_after_a_failure(self) -> None:
        model = small_model("gpt_neox")
        places = find_places(model)
        inputs, labels = text_and_labels("gpt_neox")
        capture(model, inputs, labels, probes=["E0_in"], places=places)
        with pytest.raises(IndexError):
            capture(model, inputs + VOCABULARY, labels, probes=["E0_in"], places=places)
        with pytest.raises((ValueError, RuntimeError)):
            capture(model, inputs, labels[:1], probes=["E0_in"], places=places)
        assert places.dropout is not None
        assert not places.dropout._forward_pre_hooks


class TestBatches:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
    def test_covers_every_sequence_once_and_spans_no_two_blocks(self, size: int) -> None:
        blocks = [1000 * i + np.arange(n * 4).reshape(n, 4) for i, n in enumerate((5, 1, 6))]
        seen: dict[int, list[torch.Tensor]] = {0: [], 1: [], 2: []}
        for number, place, ids in batches(blocks, size, torch.device("cpu")):
            assert 1 <= len(ids) <= size
            assert torch.equal(ids, torch.from_numpy(blocks[number][place]))
            seen[number].append(ids)
        for number, block in enumerate(blocks):
            assert torch.equal(torch.cat(seen[number]), torch.from_numpy(block))
            assert len(seen[number]) == -(-len(block) // size)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_float32_numbers_near_those_of_float32(dtype: torch.dtype) -> None:
    inputs, labels = text_and_labels("llama")
    probes = ["T1_in", "Tm", "Tl"]
    full, model = small_model("llama"), small_model("llama").to(dtype)
    expected, found = (capture(one, inputs, labels, probes=probes) for one in (full, model))
    for probe in probes:
        for name in ("activations", "gradients"):
            values, exact = getattr(found, name)[probe], getattr(expected, name)[probe]
            assert values.dtype == torch.float32
            assert (values - exact).norm() < 0.1 * exact.norm()
