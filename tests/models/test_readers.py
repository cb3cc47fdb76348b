"""The first linear maps behind a probe: what they are given, and the gradient of their weights."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, small_model, text_and_labels
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from anisotropy.models.objectives import shuffled
from anisotropy.models.probes import capture, capture_each, find_places
from anisotropy.models.readers import find_readers

families = pytest.mark.parametrize("family", FAMILIES)


@families
def test_rows_of_the_weight_gradient_are_what_autograd_gives(family):
    model = small_model(family)
    places = find_places(model)
    readers = find_readers(model, places)
    assert list(readers) == list(places.entries)
    inputs, labels = text_and_labels(family)
    found = capture(model, inputs, labels, probes=["Tm"], places=places, readers=readers)
    model.requires_grad_(True)
    model(input_ids=inputs, labels=labels).loss.backward()
    for probe, maps in readers.items():
        expected = torch.cat([part.weight.grad.T if isinstance(part, Conv1D) else part.weight.grad for part in maps])
        gradient = found.reader_gradients[probe].flatten(0, 1).T @ found.reader_inputs[probe].flatten(0, 1)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()) + 1e-7)
        assert gradient.shape[1] == 16


@families
def test_a_reader_is_given_what_its_block_makes_of_the_probe(family):
    """Change the block's input: the reader behind it sees another input, the readers before it do not."""
    model = small_model(family)
    places = find_places(model)
    readers = find_readers(model, places)
    inputs, _ = text_and_labels(family)
    before = capture(model, inputs, probes=["Tm"], places=places, readers=readers).reader_inputs
    block = model.get_submodule(FAMILIES[family][0])[places.entries["Tm"]]

    def changed(_, arguments, keywords):
        if arguments:
            return (arguments[0] * torch.linspace(0.5, 2, 16), *arguments[1:]), keywords
        return arguments, keywords | {"hidden_states": keywords["hidden_states"] * torch.linspace(0.5, 2, 16)}

    hook = block.register_forward_pre_hook(changed, with_kwargs=True)
    after = capture(model, inputs, probes=["Tm"], places=places, readers=readers).reader_inputs
    hook.remove()
    assert torch.equal(before["T1_in"], after["T1_in"])
    assert torch.equal(before["T1_out"], after["T1_out"])
    assert not torch.allclose(before["Tm"], after["Tm"], atol=1e-3)


@families
def test_several_labels_share_one_forward_pass(family):
    model = small_model(family)
    places = find_places(model)
    readers = find_readers(model, places)
    inputs, labels = text_and_labels(family)
    other = torch.from_numpy(shuffled(labels.numpy(), 5))
    calls = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    both = capture_each(model, inputs, [labels, other], probes=list(places.entries), places=places, readers=readers)
    assert len(calls) == 1
    hook.remove()
    for together, asked in zip(both, (labels, other), strict=True):
        alone = capture(model, inputs, asked, probes=list(places.entries), places=places, readers=readers)
        assert together.loss == pytest.approx(alone.loss, rel=1e-6)
        assert together.loss == pytest.approx(float(model(input_ids=inputs, labels=asked).loss.detach()), rel=1e-5)
        assert together.positions == alone.positions
        for probe in places.entries:
            torch.testing.assert_close(together.gradients[probe], alone.gradients[probe])
            torch.testing.assert_close(together.reader_gradients[probe], alone.reader_gradients[probe])


def test_a_family_whose_attention_is_not_known_has_no_readers():
    config = AutoConfig.for_model("bloom", vocab_size=50, hidden_size=16, n_layer=2, n_head=2)
    model = AutoModelForCausalLM.from_config(config).eval()
    assert find_readers(model, find_places(model)) == {}


def test_no_hook_stays():
    model = small_model("llama")
    places = find_places(model)
    readers = find_readers(model, places)
    inputs, labels = text_and_labels("llama")
    capture(model, inputs, labels, probes=["Tm"], places=places, readers=readers)
    assert not any(part._forward_hooks for parts in readers.values() for part in parts)
