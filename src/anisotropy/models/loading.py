"""Load a model or a tokenizer from a folder, whole and verified; nothing that a file holds is run."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from anisotropy.errors import UserError
from anisotropy.models.catalogue import Objective
from anisotropy.models.heads import objective_of_heads

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = ("float32", "bfloat16", "float16")


def check_dtype(dtype: str) -> str:
    """The name of a floating point type that models can be measured in.

    Raises:
        UserError: another name; the message lists them.
    """
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return dtype


def load_model(
    folder: str, objective: Objective, device: torch.device, dtype: str = "float32", where: str = ""
) -> PreTrainedModel:
    """Load a model for measuring: every parameter present and finite, eval mode, no gradients of weights.

    Safetensors are taken where there are any; ``pytorch_model.bin`` is read as tensors only, so that a pickle in it
    cannot run anything. Code beside the weights is not run either.

    Args:
        folder: as ``save_pretrained`` writes it.
        objective: which head to load.
        device: where to.
        dtype: one of ``DTYPES``, whatever the file holds.
        where: what messages call the folder.

    Raises:
        UserError: nothing loadable there, a damaged file, a parameter that is missing, has another shape or is not
            finite.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    loader = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    where = where or folder
    safetensors = any(Path(folder).glob("model*.safetensors"))
    try:
        model, report = loader.from_pretrained(
            folder,
            dtype=getattr(torch, check_dtype(dtype)),
            trust_remote_code=False,
            weights_only=True,
            use_safetensors=safetensors or None,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report
        )
    except (SafetensorError, json.JSONDecodeError) as error:
        raise UserError(f"{where} is damaged ({one_line(error)}); delete it and make or download it again") from None
    except UnpicklingError as error:
        raise _refused_pickle(where, error) from None
    except (EOFError, RuntimeError, OSError) as error:
        if safetensors or (isinstance(error, OSError) and error.errno != errno.EINVAL):
            raise loading_error(where, error) from None
        raise UserError(
            f"{where} is damaged (its pytorch_model.bin is cut off); delete it and make or download it again"
        ) from None
    except Exception as error:
        raise loading_error(where, error) from None
    for kind in ("missing_keys", "mismatched_keys"):
        if report[kind]:
            raise UserError(f"{where} is incomplete: {kind.replace('_', ' ')} {sorted(map(str, report[kind]))[:3]}")
    for parameter_name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(f"{where} is damaged: parameter {parameter_name} holds values that are not finite")
    return model.eval().requires_grad_(False).to(device)


def load_tokenizer(folder: str, where: str = "") -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder.

    Raises:
        UserError: none there, or none that knows more than special tokens.
    """
    from transformers import AutoTokenizer

    where = where or folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise loading_error(where, error, "its tokenizer") from None
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes up where there are no files
        raise UserError(f"{where} holds no tokenizer; save the model's own there with `tokenizer.save_pretrained`")
    if not tokenizer.is_fast:
        raise UserError(f"{where}: its tokenizer cannot be read as a tokenizer.json, which is needed here")
    return tokenizer


def objective_in(folder: Path, where: str = "") -> Objective:
    """The training objective that a configuration's head tells; torch is not imported.

    Raises:
        UserError: no configuration, one that is damaged, or no language model head in it.
    """
    where = where or str(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        heads = [str(head) for head in config.get("architectures") or []]
    except (OSError, ValueError, AttributeError) as error:
        raise loading_error(where, error) from None
    objective = objective_of_heads(heads)
    if objective is None:
        raise UserError(f"{where}: a language model head is needed, its configuration names {heads or 'none'}")
    return objective


def weight_hash(model: PreTrainedModel) -> str:
    """SHA-256 of all weights, by name and type: equal exactly when every stored value is equal."""
    import torch

    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(flat.view(torch.uint8).numpy().data)  # numpy has no bfloat16
    return total.hexdigest()


def quiet_transformers() -> None:
    """Keep transformers' own progress bars and hints off terminals and pages: errors still raise."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def loading_error(where: str, error: BaseException, what: str = "") -> UserError:
    """One sentence about a folder that cannot be loaded."""
    said = one_line(error)
    if "trust_remote_code" in said:
        return UserError(f"{where} needs program code of its own, which is not run here: use a model that needs none")
    return UserError(
        f"{where}{what and f': {what}'} cannot be loaded ({said}); expected the files that `save_pretrained` writes"
    )


def one_line(error: BaseException) -> str:
    """What an error says, without line breaks."""
    return " ".join(str(error).split())


def _refused_pickle(where: str, error: BaseException) -> UserError:
    return UserError(f"{where}: its weights file is a pickle that asks for more than tensors and was not run")
