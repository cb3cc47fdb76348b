"""The three least-squares problems inside Semi-NMF, each from k × k and k × d products only.

Notation, as everywhere in this room: A (n × d) holds rows, Z (n × k) their non-negative codes, D (k × d) the
components, and A ≈ ZD. Codes are kept transposed, as rows of Zᵀ, because the sweep visits one component at a time and
should read contiguous memory. The products are S = ZᵀZ and B = ZᵀA for D; G = DDᵀ and P = DAᵀ for Z.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 4096
_SUPPORT_VALUES = 2**21  # 16 MiB of float64 per batch of k × k systems
_GUESSING_SWEEPS = 20
_LAST_SWEEPS = 2000
_MAX_ROUNDS = 200
_PATIENCE = 3


def code_products(codes_t: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return S = ZᵀZ of shape (k, k) and B = ZᵀA of shape (k, d), in float64.

    Products run block by block in the precision of the data and are added up in float64, so that the rounding of a
    float32 sum does not grow with n.
    """
    k, d = len(codes_t), a.shape[1]
    s = torch.zeros((k, k), dtype=torch.float64, device=a.device)
    b = torch.zeros((k, d), dtype=torch.float64, device=a.device)
    for start in range(0, a.shape[0], _BLOCK):
        z = codes_t[:, start : start + _BLOCK]
        wide = z.to(torch.float64)
        s += wide @ wide.T
        b += z @ a[start : start + _BLOCK]
    return s, b


def best_components(s: Tensor, b: Tensor) -> Tensor:
    """Return the D that minimises ‖A − ZD‖² for given codes: S⁻¹B, the shortest one where S is singular.

    A component without any code (S_jj = 0) gets a zero row.
    """
    # Unit diagonal: components in very different units must not look like linear dependence.
    scale = s.diagonal().sqrt()
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    scaled = s * inverse[:, None] * inverse
    right = b * inverse[:, None]
    factor, info = torch.linalg.cholesky_ex(scaled)
    if int(info) == 0 and float(factor.diagonal().min()) > 1e-5:
        solution = torch.cholesky_solve(right, factor)
    else:
        values, vectors = torch.linalg.eigh(scaled)
        kept = values > values[-1].clamp_min(0) * len(s) * torch.finfo(values.dtype).eps
        reciprocal = torch.where(kept, 1 / torch.where(kept, values, 1), 0)
        solution = vectors @ (reciprocal[:, None] * (vectors.T @ right))
    return solution * inverse[:, None]


def squared_error(norm: float, d: Tensor, s: Tensor, b: Tensor) -> float:
    """Return ‖A − ZD‖²_F = ‖A‖² − 2⟨D, B⟩ + ⟨D, SD⟩ without forming the residual; `norm` is ‖A‖²_F."""
    d = d.to(torch.float64)
    return max(norm - 2 * float((d * b).sum()) + float((d * (s @ d)).sum()), 0.0)


def sweep_codes(codes_t: Tensor, g: Tensor, p: Tensor) -> None:
    """Improve Zᵀ of shape (k, n) in place: minimise over one component's codes after another, all others fixed.

    Along one coordinate the problem is a parabola over z ≥ 0, so its minimum is the clipped vertex, z_j ← max(0, z_j +
    (p_j − Gⱼ·z)/G_jj): exact, monotone, and with exact zeros. Components with G_jj = 0 are passed by.
    """
    diagonal = g.diagonal().tolist()
    for j, curvature in enumerate(diagonal):
        if curvature > 0:
            slope = torch.addmv(p[j], codes_t.T, g[j], alpha=-1)
            codes_t[j].add_(slope, alpha=1 / curvature).clamp_(min=0)


def best_codes(a: Tensor, d: Tensor) -> Tensor:
    """Return Zᵀ of shape (k, n) with the Z ≥ 0 that minimises ‖A − ZD‖² for given components: exact, row by row.

    A convex problem, solved once the support of the codes is known: then they satisfy a linear system. Sweeps give a
    first guess of the support; block principal pivoting (Kim & Park, *SIAM J. Sci. Comput.* 33, 2011) corrects it until
    the codes are positive on it and no other code would lower the error (the Karush–Kuhn–Tucker conditions). Where
    components are linearly dependent the minimiser is not unique, and the one that the sweeps tend to is returned.
    """
    norms = d.to(torch.float64).norm(dim=1)
    alive = norms > 0
    units = d[alive].to(torch.float64) / norms[alive, None]
    codes_t = torch.zeros((len(d), len(a)), dtype=a.dtype, device=a.device)
    if not len(units):
        return codes_t
    gram = units @ units.T
    for start in range(0, len(a), _BLOCK):
        products = (units.to(a.dtype) @ a[start : start + _BLOCK].T).to(torch.float64)
        block = _solve_block(gram, products) / norms[alive, None]
        codes_t[alive, start : start + _BLOCK] = block.to(a.dtype)
    return codes_t


def _solve_block(gram: Tensor, products: Tensor) -> Tensor:
    codes = _sweep_until_still(torch.zeros_like(products), gram, products, _GUESSING_SWEEPS)
    n = products.shape[1]
    settled = torch.zeros(n, dtype=torch.bool, device=products.device)
    pending = torch.arange(n, device=products.device)
    support, p = codes > 0, products
    fewest = torch.full_like(pending, len(gram) + 1)
    patience = torch.full_like(pending, _PATIENCE)
    for _ in range(_MAX_ROUNDS):
        z, slope, regular = _solve_on_support(gram, p, support)
        slack = -1e-10 * p.abs().amax(dim=0)
        wrong = torch.where(support, z < slack, slope < slack)
        count = wrong.sum(dim=0)
        done = regular & (count == 0)
        codes[:, pending[done]] = torch.where(support, z, 0.0)[:, done].clamp(min=0)
        settled[pending[done]] = True
        patience = torch.where(count < fewest, _PATIENCE, patience - 1)
        fewest = torch.minimum(fewest, count)
        # Exchanging all wrong entries at once is fast but may cycle; exchanging only the last one always ends.
        last = len(gram) - 1 - wrong.flip(0).to(torch.uint8).argmax(dim=0)
        single = torch.zeros_like(wrong).scatter_(0, last[None], True) & wrong
        support = support ^ torch.where(patience > 0, wrong, single)
        left = regular & ~done
        pending, support, p, fewest, patience = (
            pending[left],
            support[:, left],
            p[:, left],
            fewest[left],
            patience[left],
        )
        if not len(pending):
            break
    if not bool(settled.all()):
        rest = ~settled
        codes[:, rest] = _sweep_until_still(codes[:, rest], gram, products[:, rest], _LAST_SWEEPS)
    return codes


def _sweep_until_still(codes: Tensor, gram: Tensor, p: Tensor, sweeps: int) -> Tensor:
    """Sweep at most `sweeps` times, and stop a column once a sweep no longer moves it."""
    result = codes.clone()
    moving = torch.arange(codes.shape[1], device=codes.device)
    codes, size = result.clone(), p.abs().amax(dim=0)
    for done in range(0, sweeps, 10):
        for _ in range(min(10, sweeps - done) - 1):
            sweep_codes(codes, gram, p)
        before = codes.clone()
        sweep_codes(codes, gram, p)
        result[:, moving] = codes
        still = (codes - before).abs().amax(dim=0) <= 1e-13 * size
        if bool(still.all()):
            break
        if bool(still.any()):
            moving, codes, p, size = (
                moving[~still],
                codes[:, ~still].contiguous(),
                p[:, ~still].contiguous(),
                size[~still],
            )
    return result


def _solve_on_support(gram: Tensor, p: Tensor, support: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solve for codes on the given support, shape (k, n); return them, their slopes, and where the system is
    regular.
    """
    k, n = support.shape
    z = torch.empty_like(p)
    regular = torch.empty(n, dtype=torch.bool, device=p.device)
    step = max(1, _SUPPORT_VALUES // k**2)
    for start in range(0, n, step):
        batch = slice(start, start + step)
        mine = support[:, batch].T
        # Rows often share their support (all codes positive, say); one factorisation then serves them all.
        patterns, pattern = torch.unique(mine, dim=0, return_inverse=True)
        systems = torch.where(patterns[:, :, None] & patterns[:, None, :], gram, 0.0)
        # Codes off the support get an equation of their own, z = 0, so that all systems have one shape.
        systems.diagonal(dim1=1, dim2=2).masked_fill_(~patterns, 1.0)
        factors, info = torch.linalg.cholesky_ex(systems)
        pivots = factors.diagonal(dim1=1, dim2=2).amin(dim=1)
        factors, regular[batch] = factors[pattern], ((info == 0) & (pivots > 1e-7))[pattern]
        right = torch.where(mine, p[:, batch].T, 0.0)[:, :, None]
        half = torch.linalg.solve_triangular(factors, right, upper=False)
        z[:, batch] = torch.linalg.solve_triangular(factors.mT, half, upper=True)[:, :, 0].T
    return z, gram @ z - p, regular
