"""The check of a GPU against the CPU; where there is no GPU, the check of that check."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

_SPEC = importlib.util.spec_from_file_location("gpu_check", Path(__file__).with_name("check.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
check = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_measures_what_the_cpu_does():
    assert check.main(["--device", "cuda"]) == 0


@pytest.mark.slow
def test_the_check_passes_on_the_cpu():
    assert check.main(["--device", "cpu"]) == 0


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check.main([]) == 2
    assert "no GPU that torch can use is here" in capsys.readouterr().err


def test_what_differs_is_found():
    arrays = {"a": np.array([1.0, 2.0]), "first_loss": np.array([0.5])}
    changed = {"a": np.array([1.0, 2.1]), "first_loss": np.array([0.51])}
    assert [apart > most for _, apart, most in check.differences("frequency", arrays, changed)] == [True, True]
    found = list(check.differences("concept_tables", arrays, changed))
    assert [name for name, _, _ in found] == ["first_loss"]
    assert found[0][1] == pytest.approx(0.02)
    with pytest.raises(AssertionError):
        list(check.differences("frequency", arrays, {"a": arrays["a"]}))
