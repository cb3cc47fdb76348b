"""Tangent proxies: the low-rank bases that activations of a model suggest, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from anisotropy.concepts.decompositions import decompose
from anisotropy.errors import UserError
from anisotropy.geometry.block_moments import BlockMoments
from anisotropy.geometry.moments import Moments
from anisotropy.geometry.subspaces import principal_basis, project_out
from anisotropy.studies.course import Weighting, checkpoint_weights, stage_steps
from anisotropy.studies.results import Collection
from anisotropy.studies.tangents import Gradient, moments_of, probes_of

Basis = Literal["early", "own", "semi_nmf"]
BASES: tuple[Basis, ...] = get_args(Basis)
_POOLED_ROWS = 2_048


@dataclass(frozen=True)
class Proxy:
    """A basis and its matched-rank neighbour.

    Attributes:
        tangent: shape (d, k).
        normal: the k directions of largest activation variance orthogonal to it, shape (d, k). For a principal basis
            these are the principal directions k + 1 … 2k.
    """

    tangent: Tensor
    normal: Tensor


class Course:
    """One model over training: its moments, unpacked once, and the bases that follow from them.

    Attributes:
        collections: by step.
        steps: in increasing order.
        early: the steps that the pooled bases come from; empty for a model with one checkpoint.
    """

    def __init__(self, collections: Sequence[Collection], weighting: Weighting = "step", seed: int = 0) -> None:
        """Take the collections of one model, in the order of training.

        Args:
            collections: of :func:`anisotropy.studies.tangents.collect`, at least one.
            weighting: of the checkpoints in the pooled covariance, see
                :func:`anisotropy.studies.course.checkpoint_weights`.
            seed: of Semi-NMF.
        """
        self.collections: Mapping[int, Collection] = {collection.step: collection for collection in collections}
        self.steps = sorted(self.collections)
        self.early = stage_steps(self.steps, "early") if len(self.steps) > 1 else []
        self.weighting, self._seed = weighting, seed
        # One cache per course: a cached method would keep every course alive.
        self.blocks = cache(self._blocks)
        self.proxy = cache(self._proxy)
        self.moments = cache(self._moments)
        self._pooled_covariance = cache(self._pool)
        self._concepts = cache(self._semi_nmf)

    @property
    def label(self) -> str:
        """The model's label."""
        return self.collections[self.steps[0]].model

    def probes(self, gradient: Gradient) -> list[str]:
        """Probes that the model has for this reading, in the order of the network."""
        return probes_of(self.collections[self.steps[0]], gradient)

    def bases(self) -> list[Basis]:
        """The bases that exist for this model: those pooled over early checkpoints need one after step 0."""
        return list(BASES) if self.early else ["own"]

    def dimension(self) -> int:
        """Hidden size d."""
        return self.moments(self.steps[0], self.probes("activation")[0], "activation.fit").dimension

    def check_rank(self, rank: int) -> None:
        """Refuse a rank that leaves no room for the matched-rank control.

        Raises:
            UserError: twice the rank does not fit below d.
        """
        if not 1 <= rank < self.dimension() / 2:
            raise UserError(
                f"rank {rank} does not fit {self.label}: the basis and its matched-rank control need 2·rank < d = "
                f"{self.dimension()}"
            )

    def _moments(self, step: int, probe: str, role: str) -> Moments:
        return Moments.merged(moments_of(self.collections[step], probe, role))

    def _blocks(self, step: int, probe: str, role: str) -> BlockMoments:
        """Moments per block of one role, ready to be resampled."""
        return BlockMoments(moments_of(self.collections[step], probe, role))

    def _proxy(self, basis: Basis, gradient: Gradient, step: int, probe: str, rank: int) -> Proxy:
        """A basis of one kind for one reading, checkpoint and probe; ``early`` and ``semi_nmf`` ignore the step.

        Raises:
            UserError: a basis that does not exist for this model, or a rank that does not fit.
        """
        self.check_rank(rank)
        if basis not in self.bases():
            raise UserError(f"{self.label}: the basis {basis!r} needs a checkpoint in the first 3/10 of training")
        if basis == "own":
            covariance = self.moments(step, probe, f"{gradient}.fit").covariance
        else:
            covariance = self._pooled_covariance(gradient, probe)
        if basis == "semi_nmf":
            # Concepts are not orthogonal: their span is what counts.
            tangent = torch.linalg.qr(torch.from_numpy(self._concepts(gradient, probe, rank)).T).Q
        else:
            tangent = principal_basis(covariance, rank)
        return Proxy(tangent, principal_basis(project_out(covariance, tangent), rank))

    def _early_weights(self) -> np.ndarray:
        return checkpoint_weights(self.early, self.weighting)

    def _pool(self, gradient: Gradient, probe: str) -> Tensor:
        """Covariance about the common mean of the early checkpoints' activations, each with its weight."""
        parts = [self.moments(step, probe, f"{gradient}.fit") for step in self.early]
        weights = self._early_weights()
        mean = sum(weight * part.mean for weight, part in zip(weights, parts, strict=True))
        total = torch.zeros_like(parts[0].centred_scatter)
        for weight, part in zip(weights, parts, strict=True):
            shift = part.mean - mean
            total += weight * (part.centred_scatter / part.count + torch.outer(shift, shift))
        return total

    def _semi_nmf(self, gradient: Gradient, probe: str, rank: int) -> np.ndarray:
        """Components (k, d) of rows pooled from the early checkpoints' reservoirs in proportion to their weights."""
        reservoirs = [self.collections[step].arrays[f"{probe}.{gradient}.rows"] for step in self.early]
        weights = self._early_weights()
        total = min(_POOLED_ROWS, int(len(reservoirs[0]) / weights.max()))
        pooled = [
            # Evenly spaced: reservoirs are in the order of the text.
            rows[np.linspace(0, len(rows) - 1, round(weight * total)).astype(int)]
            for rows, weight in zip(reservoirs, weights, strict=True)
        ]
        rows = np.concatenate(pooled).astype(np.float64)
        if len(rows) < 2 * rank:
            raise UserError(
                f"{self.label}: {len(rows)} rows are too few for {rank} Semi-NMF concepts; raise `reservoir`"
            )
        return decompose(rows, "semi_nmf", rank, seed=self._seed).components
