"""Find a model's checkpoints and load one of them: the door to everything about checkpoints.

A *source* knows a model's checkpoints in order and loads one of them. Two kinds exist: a folder of step folders (what
``anisotropy pretrain`` and ``save_pretrained`` write) and a hub repository whose branches are checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from anisotropy.errors import UnknownNameError, UserError
from anisotropy.models.catalogue import ModelName
from anisotropy.models.folders import (
    INDEX,
    TOKENIZER,
    FolderSource,
    expected_minutes,
    miniature_folder,
    read_index,
    step_folder,
)
from anisotropy.models.hub import HubSource
from anisotropy.models.hub_files import cached_revisions
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.loading import (
    DTYPES,
    check_dtype,
    load_model,
    load_tokenizer,
    quiet_transformers,
    weight_hash,
)
from anisotropy.models.packages import PackageSource
from anisotropy.models.records import UNKNOWN_STEP, CheckpointRecord, Source, select_steps

__all__ = [
    "DTYPES",
    "INDEX",
    "TOKENIZER",
    "UNKNOWN_STEP",
    "Checkpoint",
    "CheckpointRecord",
    "FolderSource",
    "HubSource",
    "PackageSource",
    "Source",
    "cached_revisions",
    "check_dtype",
    "check_names",
    "expected_minutes",
    "load_model",
    "load_tokenizer",
    "miniature_folder",
    "open_source",
    "quiet_transformers",
    "read_index",
    "select_steps",
    "step_folder",
    "weight_hash",
]


def open_source(
    name: ModelName,
    root: Path,
    *,
    dtype: str = "float32",
    evict: bool = False,
    report: Callable[[str], None] | None = None,
) -> Source:
    """Find a model's checkpoints without loading any; torch is not imported.

    Args:
        name: the parsed name.
        root: folder of the checkpoints made here.
        dtype: floating point type to load them in, one of ``DTYPES``.
        evict: delete weights from the hub's cache once they are loaded, unless they were there before.
        report: receives a line where a checkpoint has to be made first.

    Raises:
        UserError: a miniature that has not been pretrained, a package that is not installed, a folder without
            checkpoints, a hub that does not answer.
    """
    check_dtype(dtype)
    if name.kind == "package":
        return PackageSource(name, root, dtype=dtype, report=report)
    if name.kind == "hub":
        return HubSource(name, dtype=dtype, evict=evict)
    folder = miniature_folder(root, name) if name.kind == "miniature" else Path(name.name)
    return FolderSource(name, folder, dtype=dtype)


def check_names(names: Iterable[ModelName], choice: str | int | list[int], root: Path) -> None:
    """Find out about mistyped revisions and steps before anything slow is imported.

    What cannot be looked up here passes: results that are kept need no checkpoints.

    Raises:
        UserError: a repository or revision that does not exist, or a choice of checkpoints that a model does not have.
    """
    for name in names:
        try:
            steps = [record.step for record in open_source(name, root).records()]
        except UnknownNameError:
            raise
        except UserError:
            continue
        select_steps(steps, choice, name.label)
