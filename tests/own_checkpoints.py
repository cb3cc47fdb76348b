"""Folders of checkpoints as other people's training leaves them: a hand-written loop, and transformers' Trainer."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    ModernBertConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Trainer,
    TrainingArguments,
)

from anisotropy.models.corpus import Corpus, encode, train_tokenizer

VOCABULARY, LENGTH = 400, 64


def _blocks(text: Corpus, tokenizer: PreTrainedTokenizerFast, count: int) -> torch.Tensor:
    ids = torch.cat([torch.as_tensor(document.astype("int64")) for document in encode(tokenizer, text.train)])
    return ids[: count * LENGTH].reshape(count, LENGTH)


def written_by_hand(folder: Path, text: Corpus) -> Path:
    """A Qwen2 with tied embeddings; `save_pretrained` into step-N, the tokenizer only beside the last weights."""
    torch.manual_seed(1)
    tokenizer = train_tokenizer(text.train, VOCABULARY)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=48,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = (0, 2, 8, 24)
    for step, batch in enumerate(_blocks(text, tokenizer, 25 * 8).split(8)):
        if step in steps:
            model.save_pretrained(folder / f"step-{step}")
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    tokenizer.save_pretrained(folder / f"step-{steps[-1]}")
    return folder


def _trained(folder: Path, text: Corpus, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Path:
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=24,
        save_steps=6,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_pin_memory=False,
        use_cpu=True,
    )
    masked = tokenizer.mask_token is not None and "Masked" in type(model).__name__
    Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": block} for block in _blocks(text, tokenizer, 8 * 24)],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=masked),
        processing_class=tokenizer,
    ).train()
    return folder


def written_by_trainer(folder: Path, text: Corpus) -> Path:
    """A GPT-2 with dropout; checkpoint-N with optimizer states and the tokenizer in each, as Trainer writes them."""
    torch.manual_seed(2)
    tokenizer = train_tokenizer(text.train, VOCABULARY)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=24,
        n_layer=3,
        n_head=2,
        n_positions=512,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=None,
    )
    return _trained(folder, text, AutoModelForCausalLM.from_config(config), tokenizer)


def masked_by_trainer(folder: Path, text: Corpus) -> Path:
    """A ModernBERT, tied, trained on masked tokens."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer(text.train, VOCABULARY)
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=None,
        cls_token_id=None,
        sep_token_id=None,
        global_attn_every_n_layers=2,
        local_attention=32,
    )
    return _trained(folder, text, AutoModelForMaskedLM.from_config(config), tokenizer)
