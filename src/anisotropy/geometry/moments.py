"""Streaming, mergeable moments of row vectors: the one accumulator behind PCA, energies and IsoScore."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_ROWS_AT_A_TIME = 8_192  # bounds the float64 copy; larger parts are not faster


class Moments:
    """Count, mean and centred scatter of rows, in float64, updated and merged by the formulas of Chan et al. (1983).

    The scatter is kept about the mean, so a large common offset costs no precision. Memory is d × d, whatever the
    number of rows.

    Attributes:
        count: number of rows n.
        mean: shape (d,), float64.
        centred_scatter: Σ (x − mean)(x − mean)ᵀ, shape (d, d), float64.
    """

    def __init__(self, dimension: int, device: torch.device | str = "cpu") -> None:
        """Start empty.

        Raises:
            ValueError: ``dimension`` below 1.
        """
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension}")
        self.count = 0
        self.mean = torch.zeros(dimension, dtype=torch.float64, device=device)
        self.centred_scatter = torch.zeros(dimension, dimension, dtype=torch.float64, device=device)

    @property
    def dimension(self) -> int:
        """Length d of a row."""
        return len(self.mean)

    @classmethod
    def of(cls, rows: torch.Tensor) -> Moments:
        """Moments of one batch of rows, shape (n, d)."""
        moments = cls(rows.shape[-1], _home(rows.device))
        moments.update(rows)
        return moments

    @classmethod
    def from_sums(cls, count: int, mean: torch.Tensor, centred_scatter: torch.Tensor) -> Moments:
        """Moments that were kept elsewhere: ``mean`` (d,), ``centred_scatter`` (d, d), as this class holds them.

        Raises:
            ValueError: shapes that do not fit together, or a negative count.
        """
        d = len(mean)
        if mean.ndim != 1 or centred_scatter.shape != (d, d) or count < 0:
            raise ValueError(
                f"count {count}, mean {tuple(mean.shape)}, scatter {tuple(centred_scatter.shape)} are no moments"
            )
        moments = cls(d, _home(mean.device))
        moments._add(count, mean.to(torch.float64), centred_scatter.to(torch.float64))
        return moments

    @classmethod
    def merged(cls, parts: Iterable[Moments]) -> Moments:
        """Moments of all rows that the parts saw.

        Raises:
            ValueError: no parts, or parts of different dimension.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("nothing to merge")
        total = cls(parts[0].dimension, parts[0].mean.device)
        for part in parts:
            total._add(part.count, part.mean, part.centred_scatter)
        return total

    def update(self, rows: torch.Tensor) -> None:
        """Add rows of shape (n, d), or (…, n, d) as a model yields them; any float dtype, any device.

        Raises:
            ValueError: rows of another dimension, or values that are not finite.
        """
        if rows.shape[-1] != self.dimension:
            raise ValueError(f"rows have dimension {rows.shape[-1]}, these moments have {self.dimension}")
        rows = rows.detach().reshape(-1, self.dimension)
        if not len(rows):
            return
        parts = rows.split(_ROWS_AT_A_TIME)
        if len(parts) > 1 and not torch.isfinite(rows.sum(0, dtype=_widest(rows))).all():
            raise ValueError("rows hold values that are not finite")
        for part in parts:
            wide = part.to(self.mean.device).to(torch.float64)
            mean = wide.mean(0)
            if len(parts) == 1 and not torch.isfinite(mean).all():
                raise ValueError("rows hold values that are not finite")
            centred = wide - mean
            self._add(len(wide), mean, centred.T @ centred)

    def _add(self, count: int, mean: torch.Tensor, centred_scatter: torch.Tensor) -> None:
        if len(mean) != self.dimension:
            raise ValueError(f"cannot merge dimension {len(mean)} into {self.dimension}")
        if not count:
            return
        total = self.count + count
        shift = mean.to(self.mean.device) - self.mean
        self.centred_scatter += centred_scatter.to(self.mean.device)
        self.centred_scatter += torch.outer(shift, shift) * (self.count * count / total)
        self.mean += shift * (count / total)
        self.count = total

    @property
    def covariance(self) -> torch.Tensor:
        """Centred scatter over n − 1, shape (d, d).

        Raises:
            ValueError: fewer than two rows.
        """
        if self.count < 2:
            raise ValueError(f"a covariance needs at least 2 rows, got {self.count}")
        return self.centred_scatter / (self.count - 1)

    @property
    def scatter(self) -> torch.Tensor:
        """Uncentred second moment Σ xxᵀ, shape (d, d)."""
        return self.centred_scatter + self.count * torch.outer(self.mean, self.mean)


def _widest(rows: torch.Tensor) -> torch.dtype:
    return torch.float32 if rows.device.type == "mps" else torch.float64


def _home(device: torch.device) -> torch.device:
    """The device to accumulate on: Apple's has no float64."""
    return torch.device("cpu") if device.type == "mps" else device
