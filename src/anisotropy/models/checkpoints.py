"""Load one checkpoint whole and verified, and drop it after use.

A *source* knows a model's checkpoints in order and loads one of them. Two kinds exist: a folder of step folders (what
``anisotropy pretrain`` and ``save_pretrained`` write) and a hub repository whose branches are checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from anisotropy.errors import UserError
from anisotropy.models.catalogue import HubModel, ModelName, Objective, catalogue

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

INDEX = "index.json"
TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class CheckpointRecord:
    """What is known of a checkpoint before it is loaded."""

    step: int
    weight_hash: str | None = None
    validation_loss: float | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: the model in eval mode on its device, and what it is."""

    model: PreTrainedModel
    name: str
    step: int
    objective: Objective
    mask_id: int | None
    weight_hash: str


class Source(Protocol):
    """A model with its checkpoints in the order of training."""

    name: ModelName
    objective: Objective
    unigram: float | None  # validation cross-entropy of the training frequencies, where it is known

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint, by step."""

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer shared by all checkpoints."""

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One checkpoint, verified, in float32."""


def miniature_folder(root: Path, name: ModelName) -> Path:
    """Where a miniature's checkpoints are kept."""
    return root / name.name / f"seed-{name.seed}"


def step_folder(step: int) -> str:
    """Name of a checkpoint's folder; zero-padded so that folders sort by step."""
    return f"step-{step:06d}"


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a folder of checkpoints; empty where there is none.

    Raises:
        UserError: an index that is not JSON.
    """
    file = folder / INDEX
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); delete {folder} and pretrain again") from None


def open_source(name: ModelName, root: Path, report: Callable[[str], None] | None = None) -> Source:
    """Find a model's checkpoints without loading any.

    Args:
        name: the parsed name.
        root: folder of the checkpoints made here.
        report: receives a line where something has to be made first.

    Raises:
        UserError: a miniature that has not been pretrained, a package that is not installed, a folder without
            checkpoints, a hub that does not answer.
    """
    if name.kind == "package":
        from anisotropy.models.packages import PackageSource

        return PackageSource(name, root, report)
    if name.kind == "hub":
        return HubSource(name)
    return FolderSource(name, miniature_folder(root, name) if name.kind == "miniature" else Path(name.name))


class FolderSource:
    """Step folders in one folder, with the index that pretraining wrote where there is one."""

    def __init__(self, name: ModelName, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.index = read_index(folder)
        if name.kind == "miniature" and not self.index.get("complete"):
            missing = "its pretraining has not finished" if self.index else "it has not been pretrained here"
            recipe = catalogue().miniatures[name.name].recipe
            raise UserError(
                f"{name.label}: {missing}; run `anisotropy pretrain {name.label}` "
                f"(about {expected_minutes(recipe.steps * recipe.tokens_per_step):.2g} minutes on two cores)"
            )
        self.unigram: float | None = self.index.get("unigram_cross_entropy")
        self._folders = {
            int(match[1]): path for path in folder.iterdir() if (match := _STEP.fullmatch(path.name)) and path.is_dir()
        }
        if not self._folders:
            raise UserError(f"{folder} holds no checkpoints: expected folders named step-N or checkpoint-N")
        self.objective = _objective_of(next(iter(self._folders.values())))

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint by step, with loss and hash where the index knows them."""
        if self.index:
            return [
                CheckpointRecord(entry["step"], entry["weight_hash"], entry["validation_loss"])
                for entry in self.index["checkpoints"]
            ]
        return [CheckpointRecord(step) for step in sorted(self._folders)]

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer beside the steps, else the one saved with the last step."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        shared = self.folder / TOKENIZER
        return load_tokenizer(str(shared if shared.is_dir() else self._folders[max(self._folders)]))

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One checkpoint; its hash must be the one the index recorded."""
        if step not in self._folders:
            raise UserError(f"{self.name.label} has no checkpoint {step}; it has {_listing(self._folders)}")
        folder = self._folders[step]
        model = load_model(str(folder), self.objective, device)
        found = weight_hash(model)
        recorded = next((record.weight_hash for record in self.records() if record.step == step), None)
        if recorded is not None and recorded != found:
            raise UserError(f"{folder}: weights differ from those recorded in {INDEX}; delete the folder and pretrain")
        return Checkpoint(model, self.name.label, step, self.objective, self.tokenizer().mask_token_id, found)


class HubSource:
    """Branches of a hub repository that match the catalogue's pattern; without such branches, ``main`` alone."""

    def __init__(self, name: ModelName) -> None:
        self.name = name
        self.unigram: float | None = None
        self.entry: HubModel | None = catalogue().hub.get(name.name)
        self.repository = self.entry.hub if self.entry else name.name
        pattern = re.compile(self.entry.branch if self.entry else r"step-?(\d+)(?:-tokens\d+B)?")
        matches = ((pattern.fullmatch(branch), branch) for branch in _branches(self.repository))
        self.revisions = {int(match[1]): branch for match, branch in matches if match} or {0: "main"}
        self.objective = self.entry.objective if self.entry else _objective_of(self.repository, self._last)

    @property
    def _last(self) -> str:
        return self.revisions[max(self.revisions)]

    def records(self) -> list[CheckpointRecord]:
        """Every checkpoint branch, by step; hashes are known only after loading."""
        return [CheckpointRecord(step) for step in sorted(self.revisions)]

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the final model; where that cannot be had, the one at the last checkpoint."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        try:
            return load_tokenizer((self.entry.tokenizer if self.entry else None) or self.repository)
        except UserError:
            if self._last == "main":
                raise
            return load_tokenizer(self.repository, self._last)

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """One branch, downloaded or from the cache."""
        if step not in self.revisions:
            raise UserError(f"{self.name.label} has no checkpoint {step}; it has {_listing(self.revisions)}")
        model = load_model(self.repository, self.objective, device, revision=self.revisions[step])
        return Checkpoint(
            model, self.name.label, step, self.objective, self.tokenizer().mask_token_id, weight_hash(model)
        )


def _branches(repository: str) -> list[str]:
    """Branches of a hub repository; without a network, those the cache holds."""
    from huggingface_hub import list_repo_refs
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return [branch.name for branch in list_repo_refs(repository).branches]
    except RepositoryNotFoundError as error:
        raise hub_error(repository, error) from None
    except Exception as error:  # offline mode, no network, rate limits: each library below has its own class
        if cached := cached_revisions(repository):
            return cached
        raise hub_error(repository, error) from None


def cached_revisions(repository: str) -> list[str]:
    """Branches of a repository that are in the hub's cache on this machine."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return sorted(branch for found in repositories if found.repo_id == repository for branch in found.refs)


_STEP = re.compile(r"(?:step|checkpoint)-?(\d+)")
_TRAINING_TOKENS_PER_SECOND = 12_000


def expected_minutes(tokens: int) -> float:
    """Minutes to train a miniature on so many tokens with two cores, from the speed measured on one machine."""
    return tokens / _TRAINING_TOKENS_PER_SECOND / 60


def select_steps(available: list[int], choice: str | int | list[int], label: str) -> list[int]:
    """Which checkpoints to use.

    Args:
        available: existing steps.
        choice: ``"all"``, a list of steps, or a number: that many steps, log-spaced, the first and last among them.
        label: the model's name, for messages.

    Raises:
        UserError: a step that does not exist, or a number below 1.
    """
    steps = sorted(available)
    if choice == "all":
        return steps
    if isinstance(choice, list):
        if missing := [step for step in choice if step not in steps]:
            raise UserError(f"{label} has no checkpoint {missing[0]}; it has {_listing(steps)}")
        return sorted(set(choice))
    if not isinstance(choice, int) or choice < 1:
        raise UserError(f"checkpoints: {choice!r} is neither 'all', nor a list of steps, nor a number of checkpoints")
    if choice >= len(steps):
        return steps
    if choice == 1:
        return steps[-1:]
    positions = [math.log1p(step) for step in steps]
    targets = [positions[0] + i * (positions[-1] - positions[0]) / (choice - 1) for i in range(1, choice - 1)]
    chosen = {steps[0], steps[-1]}
    for target in targets:  # the nearest step that is still free: sparse steps are nearest to several targets
        chosen.add(min(set(steps) - chosen, key=lambda step: (abs(math.log1p(step) - target), step)))
    return sorted(chosen)


def _listing(steps: Any) -> str:
    ordered = sorted(steps)
    if len(ordered) <= 16:
        return ", ".join(map(str, ordered))
    return f"{', '.join(map(str, ordered[:8]))}, … {ordered[-1]} ({len(ordered)} in all)"


def load_model(place: str, objective: Objective, device: torch.device, revision: str | None = None) -> PreTrainedModel:
    """Load a model in float32 for measuring: every parameter present and finite, eval mode.

    Raises:
        UserError: nothing loadable there, a damaged file, a parameter that is missing, has another shape or is not
            finite.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    loader = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    where = f"{place}@{revision}" if revision else place
    try:
        model, report = loader.from_pretrained(
            place,
            revision=revision,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report
        )
    except (SafetensorError, json.JSONDecodeError) as error:
        raise UserError(f"{where} is damaged ({error}); delete it and make or download it again") from None
    except Exception as error:
        raise _loading_error(place, error, revision) from None
    for kind in ("missing_keys", "mismatched_keys"):
        if report[kind]:
            raise UserError(f"{where} is incomplete: {kind.replace('_', ' ')} {sorted(map(str, report[kind]))[:3]}")
    for parameter_name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(f"{where} is damaged: parameter {parameter_name} holds values that are not finite")
    return model.eval().requires_grad_(False).to(device)


def quiet_transformers() -> None:
    """Keep transformers' own progress bars and hints off terminals and pages: errors still raise."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_tokenizer(place: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Raises:
        UserError: none there, or none that knows more than special tokens.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision or "main", trust_remote_code=False)
    except Exception as error:
        raise _loading_error(place, error, revision, "its tokenizer") from None
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes up where there are no files
        raise UserError(f"{place} holds no tokenizer; save the model's own there with `tokenizer.save_pretrained`")
    return tokenizer


def _objective_of(place: Path | str, revision: str | None = None) -> Objective:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(place), revision=revision, trust_remote_code=False)
    except Exception as error:
        raise _loading_error(str(place), error, revision) from None
    heads = config.architectures or []
    if any(head.endswith(("ForMaskedLM", "ForPreTraining")) for head in heads):
        return "masked"
    if any(head.endswith(("ForCausalLM", "LMHeadModel")) for head in heads):
        return "causal"
    raise UserError(f"{place}: a language model head is needed, its configuration names {heads or 'none'}")


def weight_hash(model: PreTrainedModel) -> str:
    """SHA-256 of all weights, by name: equal exactly when every stored value is equal."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def _loading_error(place: str, error: Exception, revision: str | None, what: str = "") -> UserError:
    if not Path(place).is_dir():
        return hub_error(place, error, revision)
    return UserError(
        f"{place}{what and f': {what}'} cannot be loaded ({_one_line(error)}); "
        "expected the files that `save_pretrained` writes"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def hub_error(repository: str, error: BaseException, revision: str | None = None) -> UserError:
    """Turn the hub's failures, bare or as transformers wraps them, into one sentence that says what to do."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    where = f"{repository}@{revision}" if revision else repository
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    error = next((cause for cause in causes if type(cause) is not OSError), error)
    if isinstance(error, GatedRepoError):
        return UserError(f"{where} is gated: accept its terms on the hub and log in with `hf auth login`")
    if isinstance(error, RevisionNotFoundError):
        return UserError(f"{where}: no such revision on the hub")
    if isinstance(error, RepositoryNotFoundError):
        return UserError(f"{where}: no such repository on the hub, or it is private and you are not logged in")
    if isinstance(error, ValueError) or type(error) is OSError:  # it was reached, and is not what is needed
        return UserError(f"{where} cannot be loaded ({_one_line(error)})")
    return UserError(
        f"{where} cannot be reached ({type(error).__name__}); hub models need a network or a filled cache, "
        "the miniatures (`anisotropy models`) need neither"
    )
