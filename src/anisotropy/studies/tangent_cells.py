"""Gradient tangent alignment at one checkpoint and probe: energies, isotropy, nulls and controls.

Every number of one model is computed under the same resamples of its held-out blocks, so differences between a basis
and a control, or between a checkpoint and the untrained model, are paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anisotropy.errors import UserError
from anisotropy.geometry.moments import Moments
from anisotropy.geometry.subspaces import energy_fraction, isoscore_removal_null, null_energies
from anisotropy.statistics import block_multiplicities
from anisotropy.studies.course import Weighting
from anisotropy.studies.tangent_bases import BASES, Basis, Course, Proxy
from anisotropy.studies.tangents import GRADIENTS, Gradient

Vector = NDArray[np.float64]
_PAPER_DRAWS = 20


class Choices(BaseModel):
    """How alignment is summarised; all of it [ours] but the 20 draws of the paper's p-value.

    Attributes:
        rank: k, of every basis.
        weighting: of checkpoints in a stage and in the pooled bases.
        centre: measure energy about the mean gradient, not about zero.
        zeta: shrinkage of IsoScore*.
        draws: resamples of blocks behind an interval.
        null_draws: random bases behind a null.
        seed: of resamples, random bases and Semi-NMF.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(16, ge=1)
    weighting: Weighting = "step"
    centre: bool = False
    zeta: float = Field(0.0, ge=0, lt=1)
    draws: int = Field(1_000, ge=100)
    null_draws: int = Field(99, ge=19)
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """One reading, basis, checkpoint and probe.

    ``log_ratio`` (of E_r), ``tangent`` and ``normal`` (Δ Iso* in percent) and the values of ``controls`` (log E_r) are
    arrays (1 + draws + blocks,): on the held-out blocks as they are, on each resample, and on each block alone.
    ``numbers`` are the rest, by name.
    """

    gradient: Gradient
    basis: Basis
    step: int
    probe: str
    log_ratio: Vector
    tangent: Vector
    normal: Vector
    controls: Mapping[str, Vector]
    numbers: Mapping[str, float]


def cells(
    course: Course,
    choices: Choices,
    gradients: Iterable[Gradient] = GRADIENTS,
    bases: Iterable[Basis] | None = None,
    steps: Iterable[int] | None = None,
) -> list[Cell]:
    """Measure one model.

    Args:
        course: the model.
        choices: see there.
        gradients: readings, of which those without moments give no cells.
        bases: all that exist for the model by default.
        steps: all by default.

    Raises:
        UserError: a rank that does not fit the model, a reading or basis that is unknown.
    """
    gradients = list(gradients)
    bases = BASES if bases is None else list(bases)
    for name, known in [*((gradient, GRADIENTS) for gradient in gradients), *((basis, BASES) for basis in bases)]:
        if name not in known:
            raise UserError(f"unknown {name!r}: expected some of {', '.join(known)}")
    course.check_rank(choices.rank)
    wanted = [basis for basis in course.bases() if basis in bases]
    places = [
        _Place(course, choices, gradient, step, probe)
        for gradient in gradients
        for step in (course.steps if steps is None else steps)
        for probe in course.probes(gradient)
    ]
    return [place.cell(basis) for basis in wanted for place in places]


class _Place:
    """One reading, checkpoint and probe: what does not depend on the basis, once."""

    def __init__(self, course: Course, choices: Choices, gradient: Gradient, step: int, probe: str) -> None:
        self._course, self._choices = course, choices
        self._gradient, self._step, self._probe = gradient, step, probe
        self._blocks = course.blocks(step, probe, f"{gradient}.gradient")
        blocks = len(self._blocks.counts)
        resamples = block_multiplicities(blocks, choices.draws, choices.seed)
        # The sample, the resamples, and each block alone.
        self._weights = torch.from_numpy(np.vstack([resamples, np.eye(blocks, dtype=np.int64)])).double()
        self._base = self._blocks.isoscore_star(self._weights, choices.zeta)
        covariance = self._blocks.total.covariance
        removal = isoscore_removal_null(covariance, choices.rank, choices.zeta, choices.null_draws, choices.seed)
        self._removal = {
            "base_isoscore_star": removal.base,
            "delta_null": removal.mean,
            "delta_null_low": float(np.quantile(removal.deltas, 0.025)),
            "delta_null_high": float(np.quantile(removal.deltas, 0.975)),
        }

    def cell(self, basis: Basis) -> Cell:
        probes, rank = self._course.probes(self._gradient), self._choices.rank
        proxy = self._course.proxy(basis, self._gradient, self._step, self._probe, rank)
        controls = {
            "shuffled labels": self._log_ratios(proxy.tangent, "shuffled"),
            "next variance": self._log_ratios(proxy.normal),
        }
        if len(probes) > 1:
            other = probes[(probes.index(self._probe) + 1) % len(probes)]
            elsewhere = self._course.proxy(basis, self._gradient, self._step, other, rank)
            controls["other probe"] = self._log_ratios(elsewhere.tangent)
        return Cell(
            self._gradient,
            basis,
            self._step,
            self._probe,
            self._log_ratios(proxy.tangent),
            self._deltas(proxy.tangent),
            self._deltas(proxy.normal),
            controls,
            self._numbers(proxy),
        )

    def _log_ratios(self, q: torch.Tensor, role: str = "gradient") -> Vector:
        blocks = self._course.blocks(self._step, self._probe, f"{self._gradient}.{role}")
        return _log_ratio(blocks.energy_fraction(q, self._weights, self._choices.centre), q).numpy()

    def _deltas(self, q: torch.Tensor) -> Vector:
        return (100 * (self._blocks.isoscore_star(self._weights, self._choices.zeta, q) / self._base - 1)).numpy()

    def _numbers(self, proxy: Proxy) -> dict[str, float]:
        total, choices = self._blocks.total, self._choices
        scatter = total.centred_scatter if choices.centre else total.scatter
        paper = null_energies(scatter, proxy.tangent, _PAPER_DRAWS, choices.seed, "complement")
        calibrated = null_energies(scatter, proxy.tangent, choices.null_draws, choices.seed, "ambient")
        by_chance = _log_ratio(calibrated.energies, proxy.tangent).numpy()
        inputs = self._moments(f"{self._gradient}.held_out")
        numbers = {
            **self._removal,
            "energy_fraction": float(energy_fraction(scatter, proxy.tangent)),
            "variance_share": float(energy_fraction(inputs.covariance, proxy.tangent)),
            "p_energy_null": paper.p_value,
            "p_energy_calibrated": calibrated.p_value,
            "log_ratio_null_low": float(np.quantile(by_chance, 0.025)),
            "log_ratio_null_high": float(np.quantile(by_chance, 0.975)),
            "n": float(total.count),
            "blocks": float(len(self._blocks.counts)),
            "d": float(total.dimension),
        }
        if self._gradient == "weight":
            # Upstream gradients that are independent noise give E[∇Wᵀ∇W] ∝ Σ x xᵀ: the ratio of the inputs themselves.
            others = {"noise": inputs, **{name: self._moments(f"weight.{name}") for name in ("unpaired", "centred")}}
            for name, moments in others.items():
                share = energy_fraction(moments.scatter, proxy.tangent)
                numbers[f"log_ratio_{name}"] = float(_log_ratio(share, proxy.tangent))
        return numbers

    def _moments(self, role: str) -> Moments:
        return self._course.moments(self._step, self._probe, role)


def _log_ratio(shares: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """log E_r of energy fractions in a basis (d, k)."""
    d, k = basis.shape
    return torch.logit(shares) + np.log((d - k) / k)
