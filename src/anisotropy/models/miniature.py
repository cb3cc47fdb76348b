"""Pretrain the embedded models with transformers' Trainer, keeping log-spaced checkpoints.

Every batch is laid out before training starts, so the data depend on corpus and seed alone and a resumed run reads on
where it stopped. There is no dropout: same seed, machine and thread count give identical weights.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from tqdm import tqdm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from anisotropy.errors import UserError
from anisotropy.files import locked, replacing, write_json
from anisotropy.models import corpus as text
from anisotropy.models.catalogue import Recipe
from anisotropy.models.checkpoints import (
    INDEX,
    TOKENIZER,
    load_model,
    quiet_transformers,
    read_index,
    step_folder,
    weight_hash,
)
from anisotropy.models.objectives import IGNORED, inputs_and_labels, shuffled
from anisotropy.provenance import code_hash, digest_of, provenance

# The modules whose code decides a miniature's weights; others that are imported only store or describe them.
DECIDING = ("anisotropy.models.miniature", "anisotropy.models.corpus", "anisotropy.models.objectives")
_RESUME = ".training"
_TRAINING, _VALIDATION = 0, 1


def identity(recipe: Recipe, corpus: text.Corpus, seed: int, variant: str = "") -> str:
    """What decides a miniature's weights: recipe, corpus, seed, variant and the code; a change of any retrains."""
    return digest_of(
        {
            "recipe": recipe.model_dump(),
            "checkpoints": recipe.checkpoint_steps(),
            "corpus": corpus.digest,
            "seed": seed,
            "variant": variant,
            "code": code_hash(*DECIDING),
        }
    )


def pretrain(
    recipe: Recipe,
    corpus: text.Corpus,
    folder: Path,
    *,
    seed: int = 0,
    label: str = "",
    variant: str = "",
    compute_loss: Callable[..., torch.Tensor] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> dict[str, Any]:
    """Train a miniature, or go on with a run that was killed; does nothing where all of it is there.

    A folder with another identity (see :func:`identity`) is replaced.

    Args:
        recipe: architecture and schedule.
        corpus: the text.
        folder: where the tokenizer, the step folders and ``index.json`` go.
        seed: of the initial weights, the order of the text, masks and shuffled labels.
        label: the model's name, for the progress bar.
        variant: names what ``compute_loss`` or ``callbacks`` change; part of the identity. A callback that only
            watches needs none.
        compute_loss: replaces the model's loss, ``f(outputs, labels, num_items_in_batch)`` (for interventions).
        callbacks: more Trainer callbacks; ``on_pre_optimizer_step`` sees the gradients.

    Returns:
        The index, with identity, unigram cross-entropy, and step, validation loss and weight hash per checkpoint.

    Raises:
        UserError: the corpus is too small for one batch, or the folder cannot be written or is somebody else's.
        ValueError: ``compute_loss`` without a ``variant`` to tell the run from the ordinary one.
    """
    if compute_loss and not variant:
        raise ValueError("compute_loss changes the training: name the variant")
    run = identity(recipe, corpus, seed, variant)
    with locked(folder.with_name(f".{folder.name}.lock")):
        index = read_index(folder)
        if index.get("identity") != run:
            index = {}
        if index.get("complete"):
            return index
        started = time.perf_counter()
        quiet_transformers()
        tokenizer = text.train_tokenizer(corpus.train, recipe.vocabulary)
        encoded = text.encode(tokenizer, corpus.train)
        training = _training_batches(recipe, encoded, tokenizer, seed)
        validation = _validation_batches(recipe, text.encode(tokenizer, corpus.validation), tokenizer)
        if not index:
            _clear(folder)
            with replacing(folder / TOKENIZER) as temporary:
                tokenizer.save_pretrained(temporary)
            index = {
                "identity": run,
                "recipe": recipe.model_dump(),
                "seed": seed,
                "corpus": {"source": corpus.source, "training_tokens": sum(map(len, encoded))},
                "unigram_cross_entropy": _unigram(recipe, encoded, validation),
                "checkpoints": [],
                "complete": False,
            }
        model = _initial_model(recipe, tokenizer, seed)
        resume = _newest_whole_state(folder / _RESUME)
        if resume:  # the Trainer's own loading skips weights whose names in files differ, such as GPTNeoX's output rows
            model.load_state_dict(load_model(str(resume), recipe.objective, torch.device("cpu")).state_dict())
        optimizer = _optimizer(model, recipe)
        trainer = Trainer(
            model=model,
            args=_arguments(recipe, folder / _RESUME, seed),
            train_dataset=training,
            optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))),
            compute_loss_func=compute_loss,
            callbacks=[_CheckpointWriter(recipe, folder, index, validation, label), *callbacks],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        seconds = time.perf_counter() - started
        index["provenance"] = provenance(
            str(model.device), seconds, threads=torch.get_num_threads(), resumed=resume is not None
        )
        index["complete"] = True
        write_json(folder / INDEX, index)
        shutil.rmtree(folder / _RESUME, ignore_errors=True)
        return index


def _clear(folder: Path) -> None:
    """Remove what an earlier run left; anything else in the folder stops this one."""
    if not folder.is_dir():
        return
    ours = re.compile(rf"\.?({TOKENIZER}|{re.escape(INDEX)}|training|step-\d+)(\..*)?")
    if foreign := sorted(path.name for path in folder.iterdir() if not ours.fullmatch(path.name)):
        raise UserError(f"{folder} holds {foreign[0]!r}, which no pretraining wrote; choose another folder")
    shutil.rmtree(folder)


class _Batches(Dataset):
    """Inputs and labels, shape (sequences, length) each, in the order of training."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        self.inputs, self.labels = torch.from_numpy(inputs), torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.inputs[i], "labels": self.labels[i]}


def _training_batches(
    recipe: Recipe, encoded: list[np.ndarray], tokenizer: PreTrainedTokenizerBase, seed: int
) -> _Batches:
    available = sum(map(len, encoded))
    if available < recipe.tokens_per_step:
        raise UserError(f"corpus too small: {available:,} training tokens, one batch needs {recipe.tokens_per_step:,}")
    ids = text.training_stream(
        encoded, tokenizer.eos_token_id, recipe.sequence_length, recipe.steps * recipe.batch_size, seed
    )
    inputs, labels = _objective(recipe, ids, tokenizer, [seed, _TRAINING])
    return _Batches(inputs, shuffled(labels, seed) if recipe.shuffled_labels else labels)


def _validation_batches(recipe: Recipe, encoded: list[np.ndarray], tokenizer: PreTrainedTokenizerBase) -> _Batches:
    sequences = [
        ids[: len(ids) // recipe.sequence_length * recipe.sequence_length].reshape(-1, recipe.sequence_length)
        for ids in encoded
    ]
    ids = np.concatenate(sequences)
    if not len(ids):
        raise UserError(f"corpus too small: no validation document has {recipe.sequence_length} tokens")
    spread = np.linspace(0, len(ids) - 1, min(recipe.validation_sequences, len(ids))).round().astype(int)
    return _Batches(*_objective(recipe, ids[spread], tokenizer, [0, _VALIDATION]))


def _objective(
    recipe: Recipe, ids: np.ndarray, tokenizer: PreTrainedTokenizerBase, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    return inputs_and_labels(
        ids, recipe.objective, mask_id=tokenizer.mask_token_id, mask_share=recipe.mask_share, seed=seed
    )


def _unigram(recipe: Recipe, encoded: list[np.ndarray], validation: _Batches) -> float:
    labels = validation.labels.numpy()
    return text.unigram_cross_entropy(text.token_counts(encoded, recipe.vocabulary), labels[labels != IGNORED])


def _initial_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    config = AutoConfig.for_model(
        recipe.architecture,
        vocab_size=recipe.vocabulary,
        max_position_embeddings=recipe.sequence_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **({"mask_token_id": tokenizer.mask_token_id} if recipe.objective == "masked" else {}),
        **recipe.config,
    )
    loader = AutoModelForCausalLM if recipe.objective == "causal" else AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return loader.from_config(config)


def _optimizer(model: PreTrainedModel, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW with Pythia's betas; weight decay on matrices only."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95))


def _rate(step: int, recipe: Recipe) -> float:
    """Share of the peak learning rate; the first step already moves, so steps 0 and 1 are two different checkpoints."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def _arguments(recipe: Recipe, folder: Path, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch_size,
        train_sampling_strategy="sequential",
        max_grad_norm=1.0,
        seed=seed,
        logging_strategy="steps",
        logging_steps=8,
        save_strategy="no",
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )


def _newest_whole_state(folder: Path) -> Path | None:
    """The newest Trainer state that was written to its end (the Trainer writes ``trainer_state.json`` last)."""
    states = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]), reverse=True)
    for state in states:
        try:
            json.loads((state / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            shutil.rmtree(state)
        else:
            return state
    return None


class _CheckpointWriter(TrainerCallback):
    """At each scheduled step: validation loss, weights, one line in the index; then the Trainer saves its state."""

    def __init__(self, recipe: Recipe, folder: Path, index: dict[str, Any], validation: _Batches, label: str) -> None:
        self.recipe, self.folder, self.index, self.validation = recipe, folder, index, validation
        self.scheduled = set(recipe.checkpoint_steps())
        self.label = label or folder.name
        self.bar: tqdm | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.bar = tqdm(total=self.recipe.steps, initial=state.global_step, desc=self.label, unit="step", disable=None)
        if state.global_step == 0:
            self._write(kwargs["model"], 0)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        assert self.bar is not None
        self.bar.update()
        if state.global_step in self.scheduled:
            self._write(kwargs["model"], state.global_step)
            control.should_save = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def _write(self, model: PreTrainedModel, step: int) -> None:
        loss = validation_loss(model, self.validation.inputs, self.validation.labels, self.recipe.batch_size)
        with replacing(self.folder / step_folder(step)) as temporary:
            model.save_pretrained(temporary)
        entry = {"step": step, "validation_loss": loss, "weight_hash": weight_hash(model)}
        others = [other for other in self.index["checkpoints"] if other["step"] != step]
        self.index["checkpoints"] = sorted([*others, entry], key=lambda other: other["step"])
        write_json(self.folder / INDEX, self.index)
        tqdm.write(
            f"{self.label}: step {step}/{self.recipe.steps}, validation loss {loss:.3f} nats "
            f"(unigram {self.index['unigram_cross_entropy']:.3f})"
        )


@torch.no_grad()
def validation_loss(model: PreTrainedModel, inputs: torch.Tensor, labels: torch.Tensor, batch_size: int) -> float:
    """Mean cross-entropy in nats, each sequence with equal weight, in eval mode; the model's mode is restored.

    All sequences have the same number of labelled positions, so this is also the mean over positions.
    """
    training = model.training
    model.eval()
    total = 0.0
    for start in range(0, len(inputs), batch_size):
        batch = slice(start, start + batch_size)
        loss = model(input_ids=inputs[batch].to(model.device), labels=labels[batch].to(model.device)).loss
        total += float(loss) * len(inputs[batch])
    model.train(training)
    return total / len(inputs)
