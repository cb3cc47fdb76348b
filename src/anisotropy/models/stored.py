"""How large the models of the catalogue are, before any of them is here; without torch and without a network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import yaml

from anisotropy.models.catalogue import Recipe, catalogue
from anisotropy.models.sizes import FLOAT32, Shape

_FIELDS = {field.name for field in fields(Shape)}


@dataclass(frozen=True)
class Stored:
    """A catalogue model as it is stored: shape, bytes of a weight, and how many checkpoints, where that is known."""

    shape: Shape
    bytes_per_weight: int
    checkpoints: int | None

    @property
    def bytes(self) -> int:
        """Size of one checkpoint's weights."""
        return self.bytes_per_weight * self.shape.parameters


def stored(name: str) -> Stored:
    """Sizes of a model of the catalogue.

    Raises:
        KeyError: no such model.
    """
    known = catalogue()
    if name in known.miniatures:
        recipe = known.miniatures[name].recipe
        return Stored(shape_of_recipe(recipe), FLOAT32, len(recipe.checkpoint_steps()))
    if name in known.packages:
        packaged = known.packages[name]
        return Stored(Shape(**packaged.model_dump(include=_FIELDS)), FLOAT32, 1)
    entry, more = known.hub[name], more_of_hub_models()[name]
    shape = Shape(
        family=entry.family,
        hidden_size=entry.hidden_size,
        layers=entry.layers,
        vocabulary=entry.vocabulary,
        intermediate_size=more["intermediate_size"],
        heads=more["heads"],
        key_values=more.get("key_values", more["heads"]),
        tied=entry.tied,
    )
    return Stored(shape, more["bytes"], more.get("checkpoints"))


def shape_of_recipe(recipe: Recipe) -> Shape:
    """The shape of a miniature."""
    given = recipe.config
    return Shape(
        family=recipe.architecture,
        hidden_size=given["hidden_size"],
        layers=given["num_hidden_layers"],
        vocabulary=recipe.vocabulary,
        intermediate_size=given["intermediate_size"],
        heads=given["num_attention_heads"],
        key_values=given.get("num_key_value_heads", given["num_attention_heads"]),
        tied=given["tie_word_embeddings"],
    )


@lru_cache(maxsize=1)
def more_of_hub_models() -> dict[str, dict[str, int]]:
    """What ``sizes.yml`` says of each hub model of the catalogue."""
    return yaml.safe_load(Path(__file__).with_name("sizes.yml").read_text(encoding="utf-8"))
