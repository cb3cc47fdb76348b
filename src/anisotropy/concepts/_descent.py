"""Block coordinate descent for Semi-NMF: the loop around the least-squares problems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anisotropy.concepts import _least_squares as ls

_REVIVAL_SAMPLE = 1024
_BLOCK = 4096


@dataclass
class Descent:
    """Where a descent ended: Zᵀ (k, n), D (k, d), S = ZᵀZ, B = ZᵀA, the losses ‖A − ZD‖² and whether `tol` was
    reached.
    """

    codes_t: Tensor
    d: Tensor
    s: Tensor
    b: Tensor
    losses: list[float]
    converged: bool


def descend(a: Tensor, codes_t: Tensor, tol: float, max_iter: int, random: np.random.RandomState) -> Descent:
    """Minimise ‖A − ZD‖² from initial codes Zᵀ, for A of shape (n, d) of moderate size.

    An iteration sweeps over the codes and then follows the change of Z a little further than the sweep went, before D
    is set to its minimum (Ang & Gillis, *Neural Computation* 31, 2019, who set the step as is done here). Where that
    would raise the loss the plain sweep is kept, so the loss never increases; twice as many plain iterations would be
    needed. The descent stops when two iterations in a row lower the loss by less than `tol` of it, as one step may be
    cut short.
    """
    norm = squared_norm(a)
    # Below this the loss is made of rounding errors, and its relative decrease is noise.
    floor = norm * 10 * torch.finfo(a.dtype).eps

    def settle(codes_t: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        s, b = ls.code_products(codes_t, a)
        d = ls.best_components(s, b)
        return s, b, d, ls.squared_error(norm, d.to(a.dtype), s, b)

    s, b, d, loss = settle(codes_t)
    losses = [loss]
    swept_before, momentum, momentum_limit, small_steps = codes_t, 0.5, 1.0, 0
    while loss > floor and small_steps < 2 and len(losses) <= max_iter:
        revive(d, codes_t, s, a, random, floor)
        components = d.to(a.dtype)
        swept = codes_t.clone()
        ls.sweep_codes(swept, components @ components.T, components @ a.T)
        codes_t = torch.sub(swept, swept_before).mul_(momentum).add_(swept).clamp_(min=0)
        s, b, d, loss = settle(codes_t)
        if loss <= losses[-1]:
            momentum, momentum_limit = min(momentum_limit, momentum * 1.05), min(1.0, momentum_limit * 1.01)
        else:
            momentum, momentum_limit = momentum / 1.5, momentum
            codes_t = swept
            s, b, d, loss = settle(codes_t)
        swept_before = swept
        small_steps = small_steps + 1 if losses[-1] - loss < tol * losses[-1] else 0
        losses.append(loss)
    return Descent(codes_t, d, s, b, losses, small_steps == 2 or loss <= floor)


def revive(d: Tensor, codes_t: Tensor, s: Tensor, a: Tensor, random: np.random.RandomState, floor: float) -> None:
    """Give each dead component (in place) the residual of a badly fitted row as its direction.

    Its codes are zero, so the loss stays, and the next sweep can only use the new direction to lower it.
    """
    dead = (s.diagonal() == 0).nonzero().flatten()
    if not len(dead):
        return
    rows = torch.as_tensor(random.choice(len(a), min(len(a), _REVIVAL_SAMPLE), replace=False), device=a.device)
    residuals = a[rows].to(torch.float64) - codes_t[:, rows].T.to(torch.float64) @ d
    errors = residuals.square().sum(dim=1)
    worst = errors.argsort(descending=True)[: len(dead)]
    worst = worst[errors[worst] > floor / len(a)]
    d[dead[: len(worst)]] = residuals[worst]


def squared_norm(a: Tensor) -> float:
    """Return ‖A‖²_F, added up in float64."""
    return sum(float(block.to(torch.float64).square().sum()) for block in a.split(_BLOCK))
