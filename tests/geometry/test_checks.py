import warnings

import numpy as np
import pytest
import torch

from anisotropy.geometry._checks import rows_matrix


def test_takes_what_holds_numbers():
    x = np.arange(6.0).reshape(2, 3)
    for same in (x, x.tolist(), torch.from_numpy(x), np.asfortranarray(x), x.astype(int), x[::-1][::-1]):
        assert torch.equal(rows_matrix(same, "x").double(), torch.from_numpy(x))
    assert torch.equal(rows_matrix(x[::-1], "x"), torch.tensor([[3.0, 4, 5], [0, 1, 2]], dtype=torch.float64))
    assert torch.equal(rows_matrix(x > 2, "x"), torch.tensor([[0.0, 0, 0], [1, 1, 1]], dtype=torch.float64))


def test_read_only_memory_is_no_reason_to_warn():
    x = np.ones((2, 3))
    x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows_matrix(x, "x").shape == (2, 3)


def test_refuses_what_does_not():
    with pytest.raises(ValueError, match="x holds <U1, not numbers"):
        rows_matrix([["a", "b"]], "x")
    with pytest.raises(ValueError, match="x holds object, not numbers"):
        rows_matrix(np.array([[None, 1]]), "x")
