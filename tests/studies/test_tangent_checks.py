"""The floor of a p-value for bases that are nothing but chance."""

from __future__ import annotations

import numpy as np
import torch

from anisotropy.studies.tangent_checks import floor_rates

SPECTRUM = torch.diag(1 / torch.arange(1, 33, dtype=torch.float64))


def test_bases_from_the_whole_space_keep_the_rate_and_those_from_the_complement_do_not():
    bases = 800
    rates = floor_rates(SPECTRUM, [8], bases=bases, draws=9).iloc[0]
    assert rates["expected"] == 0.1
    error = np.sqrt(0.1 * 0.9 / bases)
    assert abs(rates["ambient"] - 0.1) < 3.5 * error
    assert rates["complement"] > 0.1 + 3.5 * error
    assert rates["share"] == 0.25


def test_isotropic_rows_give_ties_never_the_floor():
    rates = floor_rates(torch.eye(16, dtype=torch.float64), [2, 4], bases=20, draws=5)
    assert (rates[["complement", "ambient"]] == 0).all(axis=None)
    assert list(rates["rank"]) == [2, 4]


def test_a_seed_decides():
    first, again, other = (floor_rates(SPECTRUM, [4], bases=60, draws=4, seed=seed) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
