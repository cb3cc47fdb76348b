"""How often the paper's energy p-value is at its floor when there is nothing to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch

from anisotropy.geometry.subspaces import null_energies

Space = Literal["complement", "ambient"]


def floor_rates(
    scatter: torch.Tensor, ranks: Sequence[int], bases: int = 400, draws: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Share of random bases whose p-value is the smallest possible, 1/(draws + 1), under each of the two nulls.

    A random basis is no better than a random basis, so a valid p-value is at its floor with probability 1/(draws + 1).
    With comparison bases drawn in the complement it is there more often: what the basis catches, they cannot.

    Args:
        scatter: of the rows, shape (d, d).
        ranks: k, each with 2k ≤ d.
        bases: random bases that play the part of the tangent proxy, per rank.
        draws: comparison bases per p-value; 20 in the paper.
        seed: of both.

    Returns:
        Columns ``rank``, ``share`` (k/d), ``complement``, ``ambient`` (shares of bases at the floor), ``expected``.
    """
    d = len(scatter)
    floor = 1 / (draws + 1)
    rows = []
    for rank in ranks:
        random = np.random.default_rng([seed, rank])
        hits = dict.fromkeys(get_args(Space), 0)
        for _ in range(bases):
            basis = torch.linalg.qr(torch.from_numpy(random.standard_normal((d, rank)))).Q
            own = int(random.integers(2**31))
            for space in hits:
                hits[space] += null_energies(scatter, basis, draws, own, space).p_value <= floor * 1.001
        shares = {space: count / bases for space, count in hits.items()}
        rows.append({"rank": rank, "share": rank / d, **shares, "expected": floor})
    return pd.DataFrame(rows)
