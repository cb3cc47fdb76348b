"""Semi-NMF: rows as non-negative mixtures of a few directions.

A ≈ ZD with codes Z ≥ 0 (n × k) and components D (k × d) of any sign, minimising ‖A − ZD‖²_F (Ding, Li & Jordan, *Convex
and Semi-Nonnegative Matrix Factorizations*, IEEE TPAMI 32, 2010). A row can only *add* concepts, never subtract them,
which is what makes a component readable as a concept; the data themselves may have any sign.

The factorisation is **not identifiable**. If ZD fits, so does (ZT)(T⁻¹D) for every invertible T ≥ 0: nothing in the
loss keeps the cone that the components span from being wider than the data need. The best loss is hardly above that of
the best signed approximation (it lies between those of rank k and of rank k − 1: Gillis & Kumar, *SIAM J. Matrix Anal.
Appl.* 36, 2015), the span of the components is as well determined as that of principal components, but the components
are not: other seeds give others at almost the same loss. Planted components are therefore not recovered in general, and
with noise the best fit is better than the truth. So what is said of concepts is said as a mean and spread over seeds,
and `stability` measures how far seeds agree.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from anisotropy.concepts import _least_squares as ls
from anisotropy.concepts._descent import descend, squared_norm
from anisotropy.concepts.matching import matched_pairs

__all__ = ["SemiNMF", "Stability", "stability"]


class SemiNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Semi-non-negative matrix factorisation, as a scikit-learn estimator that runs on torch.

    The algorithm is block coordinate descent. Each iteration sweeps once over the columns of Z, setting each to its
    exact non-negative minimum given all others, and then sets D to its exact minimum given Z. The sweep needs only DDᵀ
    and ADᵀ, the other step only ZᵀZ and ZᵀA. Between the two, Z is extrapolated along its last change wherever that
    lowers the loss further, so the loss never increases. Multiplicative updates, the method of the paper, take some
    twenty times longer to the same loss.

    A component whose codes are all zero is *dead*: it does not affect the loss, and no sweep would bring it back. It is
    given a new direction, the residual of the worst fitted row of a seeded sample, which can only lower the loss. Where
    the fit is already exact it stays dead, with a zero row in `components_`.

    Parameters
    ----------
    n_components : int or None
        Number of components k, at most min(n, d): with more, almost any data can be fitted exactly. None means
        min(n, d).
    tol : float
        Stop when two iterations in a row lower the loss by less than this share of it.
    max_iter : int
        Stop after this many iterations anyway, with a `ConvergenceWarning`.
    random_state : int, numpy.random.RandomState or None
        Seed of the initial codes (independent half-normal values) and of the sample for dead components. None takes a
        new seed from the system each time; NumPy's global random state is never used.
    device : str or None
        Where to compute, such as "cuda"; None computes where the data are (NumPy arrays: on the CPU).

    Attributes
    ----------
    components_ : numpy.ndarray of shape (k, d)
        Components with rows of length 1, in order of decreasing code mass.
    code_mass_ : numpy.ndarray of shape (k,)
        Sum of each component's codes over the rows, in the unit of the data: how much it is used.
    reconstruction_err_ : float
        ‖A − ZD‖_F at the last iteration (after `partial_fit`, of the last batch).
    loss_curve_ : list of float
        ‖A − ZD‖²_F after the initial D step and after each iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether `tol` was reached.

    Arrays are computed in their own precision, float32 or float64 (others become float64); sums over rows are kept in
    float64. Torch tensors give codes as tensors on the same device, NumPy arrays give arrays. `ValueError` is raised
    for values that are not finite, data that are zero everywhere, and parameters out of range.
    """

    components_: NDArray[Any]
    code_mass_: NDArray[np.float64]
    n_batches_seen_: int
    _s: Tensor
    _b: Tensor
    _mass: Tensor

    def __init__(
        self,
        n_components: int | None = None,
        *,
        tol: float = 1e-4,
        max_iter: int = 500,
        random_state: int | np.random.RandomState | None = 0,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: None = None) -> SemiNMF:
        """Factorise `X` of shape (n, d) and return the estimator."""
        self._fit(self._tensor(X, reset=True))
        return self

    def fit_transform(self, X: Any, y: None = None) -> Any:
        """Factorise `X` of shape (n, d) and return the codes that `transform` gives for it, of shape (n, k)."""
        a = self._tensor(X, reset=True)
        self._fit(a)
        return self._like_input(self._codes(a).T.contiguous(), X)

    def transform(self, X: Any) -> Any:
        """Return the codes Z ≥ 0, shape (n, k), that minimise `‖X − Z·components_‖²`: exact, row by row."""
        check_is_fitted(self)
        return self._like_input(self._codes(self._tensor(X, reset=False)).T.contiguous(), X)

    def inverse_transform(self, Z: Any) -> Any:
        """Return `Z·components_`, of shape (n, d), for codes of shape (n, k)."""
        check_is_fitted(self)
        codes = torch.as_tensor(Z)
        if codes.ndim != 2 or codes.shape[1] != len(self.components_):
            raise ValueError(f"Z has shape {tuple(codes.shape)}; it must be (n, {len(self.components_)})")
        components = torch.as_tensor(self.components_, device=codes.device)
        dtype = torch.promote_types(codes.dtype, components.dtype)
        return self._like_input(codes.to(dtype) @ components.to(dtype), Z)

    def partial_fit(self, X: Any, y: None = None) -> SemiNMF:
        """Take in one more batch of a stream, of shape (n, d), and return the estimator.

        The first batch is factorised by `fit` and needs at least k rows; so a fitted estimator is continued. For each
        further batch the codes are the best ones for the present components, their ZᵀZ and ZᵀA are added to those of
        all batches before, and D is set to its minimum for the sums (Mairal, Bach, Ponce & Sapiro 2010). Memory does
        not grow with the stream. Components without any code so far keep their direction.
        """
        if not hasattr(self, "components_"):
            return self.fit(X)
        a = self._tensor(X, reset=False)
        scale = _unit(a) or 1.0
        a = a / scale
        codes_t = self._codes(a)
        s, b = ls.code_products(codes_t, a)
        self._s, self._b = self._s.to(a.device) + s * scale**2, self._b.to(a.device) + b * scale**2
        d = ls.best_components(self._s, self._b)
        unused = self._s.diagonal() == 0
        d[unused] = torch.as_tensor(self.components_, device=a.device)[unused].to(torch.float64)
        self.reconstruction_err_ = ls.squared_error(squared_norm(a), d, s, b) ** 0.5 * scale
        self._mass = self._mass.to(a.device) + codes_t.to(torch.float64).sum(dim=1) * scale
        self.n_batches_seen_ += 1
        self._keep(d, self._s, self._b, self._mass, a.dtype)
        return self

    def _fit(self, a: Tensor) -> None:
        k = self._check_parameters(*a.shape)
        scale = _unit(a)
        if scale == 0:
            raise ValueError("X is zero everywhere; there is nothing to factorise")
        a = a / scale if scale != 1 else a
        # None means fresh entropy here, not NumPy's global generator as in scikit-learn: that state is not ours to
        # move.
        random = check_random_state(np.random.RandomState() if self.random_state is None else self.random_state)
        codes_t = torch.as_tensor(np.abs(random.standard_normal((k, len(a)))), dtype=a.dtype, device=a.device)
        found = descend(a, codes_t, self.tol, self.max_iter, random)
        losses = found.losses
        self.converged_ = found.converged
        self.n_iter_ = max(len(losses) - 1, 1)
        self.loss_curve_ = [loss * scale**2 for loss in losses]
        self.reconstruction_err_ = losses[-1] ** 0.5 * scale
        self.n_batches_seen_ = 1
        if not self.converged_:
            warnings.warn(
                f"Semi-NMF did not converge in {self.max_iter} iterations (the last lowered the loss by "
                f"{1 - losses[-1] / losses[-2]:.2e} of it, tol is {self.tol:.2e}); raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        mass = found.codes_t.to(torch.float64).sum(dim=1)
        order = torch.argsort(mass * found.d.norm(dim=1), descending=True, stable=True)
        self._keep(found.d[order] * scale, found.s[order][:, order], found.b[order] * scale, mass[order], a.dtype)

    def _keep(self, d: Tensor, s: Tensor, b: Tensor, mass: Tensor, dtype: torch.dtype) -> None:
        """Store components of length 1, and the sums of a stream in the same unit."""
        lengths = d.norm(dim=1)
        factor = torch.where(lengths > 0, lengths, 1.0)
        self._s, self._b, self._mass = s * factor[:, None] * factor, b * factor[:, None], mass * lengths
        self.components_ = (d / factor[:, None]).to(dtype).cpu().numpy()
        self.code_mass_ = self._mass.cpu().numpy()

    def _codes(self, a: Tensor) -> Tensor:
        return ls.best_codes(a, torch.as_tensor(self.components_, dtype=a.dtype, device=a.device))

    def _check_parameters(self, n: int, d: int) -> int:
        limit = min(n, d)
        k = limit if self.n_components is None else self.n_components
        if not isinstance(k, Integral) or not 1 <= k <= limit:
            raise ValueError(f"n_components is {k!r}; for {n} rows of {d} features it must be 1 … {limit}, or None")
        if not self.tol >= 0:
            raise ValueError(f"tol is {self.tol!r}; it must be a non-negative number")
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter!r}; it must be a positive integer")
        return int(k)

    def _tensor(self, X: Any, reset: bool) -> Tensor:
        if isinstance(X, Tensor):
            a = X.detach() if X.dtype in (torch.float32, torch.float64) else X.detach().to(torch.float64)
            # scikit-learn's checks would bring a tensor to the CPU; these are the same, and leave it where it is.
            if a.ndim != 2 or 0 in a.shape:
                raise ValueError(f"X has shape {tuple(a.shape)}; it must be (n, d) with n, d ≥ 1")
            if not bool(torch.isfinite(torch.stack(torch.aminmax(a))).all()):
                raise ValueError("X holds NaN or infinity; all values must be finite")
            if reset:
                self.n_features_in_ = a.shape[1]
            elif a.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {a.shape[1]} features, but SemiNMF is expecting {self.n_features_in_}")
        else:
            array = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=reset)
            a = torch.from_numpy(array if array.flags.writeable else array.copy())
        return a if self.device is None else a.to(self.device)

    @staticmethod
    def _like_input(result: Tensor, X: Any) -> Any:
        return result.to(X.device) if isinstance(X, Tensor) else result.cpu().numpy()

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True)
class Stability:
    """How far factorisations agree: `mean` matched `|cosine|`, its `lowest` and all `pairs`, one value a pair of
    models.
    """

    mean: float
    lowest: float
    pairs: NDArray[np.float64]


def stability(models: Sequence[Any]) -> Stability:
    """Compare the components of models that differ in their seed only.

    `models` are at least two fitted estimators with `components_` of one shape (k, d), or such arrays. For each pair
    the components are matched one to one so that the sum of `|cosine|` is largest (the Hungarian method), and its
    mean over the k matches is taken. 1 means the same components whatever the seed. The matching has a positive
    floor: random directions reach about 2.3/√d for k = 50, see `anisotropy.concepts.matching`.

    Raises `ValueError` for fewer than two models or shapes that differ. A dead component (a zero row) has cosine 0 with
    all others.
    """
    if len(models) < 2:
        raise ValueError(f"got {len(models)} model(s); agreement needs at least 2")
    units: list[NDArray[np.float64]] = []
    for model in models:
        components = np.asarray(getattr(model, "components_", model), dtype=np.float64)
        if components.ndim != 2 or (units and components.shape != units[0].shape):
            shapes = [np.shape(getattr(m, "components_", m)) for m in models]
            raise ValueError(f"components have shapes {shapes}; all must be the same (k, d)")
        lengths = np.linalg.norm(components, axis=1, keepdims=True)
        units.append(components / np.where(lengths > 0, lengths, 1))
    pairs = np.array([matched_pairs(np.abs(a @ b.T))[2].mean() for a, b in combinations(units, 2)])
    return Stability(float(pairs.mean()), float(pairs.min()), pairs)


def _unit(a: Tensor) -> float:
    """Return the power of two by which to divide so that products of float32 values stay in range; 1 where they do."""
    largest = float(torch.stack(torch.aminmax(a)).abs().max())
    if largest == 0:
        return 0.0
    return 1.0 if 1e-6 < largest < 1e6 else float(2.0 ** np.round(np.log2(largest)))
