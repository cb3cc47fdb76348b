import math
import os
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors
from transformers import PreTrainedTokenizerBase

from anisotropy.errors import UserError
from anisotropy.models import corpus as subject
from anisotropy.models.corpus import Corpus, Document

LENGTHS = st.lists(st.integers(0, 200), min_size=1, max_size=30)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def tokenizer(small_text: Corpus) -> PreTrainedTokenizerBase:
    return subject.train_tokenizer(small_text.train, 512)


def numbered(lengths: list[int]) -> list[np.ndarray]:
    """Documents whose every token is unique: token j of document i is 1000 (i + 1) + j."""
    return [1000 * (i + 1) + np.arange(n, dtype=np.int64) for i, n in enumerate(lengths)]


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


class TestDocuments:
    def test_a_folder_gives_its_text_files_by_relative_name(self, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "b.txt").write_text("é b", encoding="utf-8")
        (tmp_path / "deep" / "a.txt").write_text("a")
        (tmp_path / "empty.txt").write_text(" \n\n")
        (tmp_path / "picture.png").write_bytes(b"\xff\xd8")
        documents = subject.load_documents(str(tmp_path))
        assert {document.name: document.text for document in documents} == {"b.txt": "é b", "deep/a.txt": "a"}

    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    def test_a_single_file_is_cut_at_blank_lines(self, tmp_path: Path, newline: str) -> None:
        paragraphs = [f"Paragraph {i}.\nIt has two lines." + " More." * (i * 37 % 400) for i in range(300)]
        text = "\n\n".join(paragraphs)
        (tmp_path / "book.txt").write_bytes(text.replace("\n", newline).encode())
        for source in (tmp_path / "book.txt", tmp_path):
            pieces = subject.load_documents(str(source))
            assert "\n\n".join(piece.text for piece in pieces).replace("\r\n", "\n") == text
            assert all(2_000 <= len(piece.text) < 2_000 + 2_500 for piece in pieces[:-1])
            assert len({piece.name for piece in pieces}) == len(pieces) > 50
            assert all(piece.text.startswith("Paragraph") for piece in pieces)

    def test_a_long_file_gives_some_hundreds_of_pieces(self, tmp_path: Path) -> None:
        (tmp_path / "long.txt").write_text("\n\n".join(["word " * 100] * 5_000))
        assert 300 < len(subject.load_documents(str(tmp_path / "long.txt"))) <= 401

    def test_the_embedded_corpus(self) -> None:
        corpus = subject.load_corpus()
        assert len(corpus.train) + len(corpus.validation) > 240
        assert 20 <= len(corpus.validation) <= 30
        assert sum(len(document.text.encode()) for document in (*corpus.train, *corpus.validation)) > 12_000_000
        assert all(document.text.strip() for document in (*corpus.train, *corpus.validation))

    def test_no_such_path(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"nowhere'?: no such file or folder .*'sotu'") as error:
            subject.load_documents(str(tmp_path / "nowhere"))
        one_line(error)

    def test_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "notes.md").write_text("not a .txt file")
        with pytest.raises(UserError, match=r"holds no text: expected UTF-8 text, in a folder as \*\.txt files"):
            subject.load_documents(str(tmp_path))
        (tmp_path / "blank.txt").write_text(" \n \n")
        for source in (tmp_path, tmp_path / "blank.txt"):
            with pytest.raises(UserError, match="holds no text") as error:
                subject.load_documents(str(source))
            one_line(error)

    @pytest.mark.parametrize("where", [".", "latin.txt"])
    def test_a_file_that_is_not_utf_8_is_named_with_the_byte(self, tmp_path: Path, where: str) -> None:
        (tmp_path / "fine.txt").write_text("fine")
        (tmp_path / "latin.txt").write_bytes(b"caf" + "é".encode("latin-1") + b" au lait")
        with pytest.raises(UserError, match=r"latin\.txt is not UTF-8 \(byte 3\).*iconv") as error:
            subject.load_documents(str(tmp_path / where))
        one_line(error)

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").mkdir()
        with pytest.raises(UserError, match=r"a\.txt cannot be read: Is a directory") as error:
            subject.load_documents(str(tmp_path))
        one_line(error)


class TestSplit:
    def test_disjoint_complete_and_the_same_on_each_call(self, small_corpus: Path) -> None:
        first, second = subject.load_corpus(str(small_corpus)), subject.load_corpus(str(small_corpus))
        assert first == second
        train, validation = ({document.name for document in part} for part in (first.train, first.validation))
        assert not train & validation
        assert train | validation == {path.name for path in small_corpus.iterdir()}
        assert len(validation) == 24

    def test_does_not_depend_on_where_the_files_are_or_in_which_order_they_were_made(
        self, small_corpus: Path, tmp_path: Path
    ) -> None:
        for path in sorted(small_corpus.iterdir(), reverse=True):
            shutil.copy(path, tmp_path)
        here, there = subject.load_corpus(str(small_corpus)), subject.load_corpus(str(tmp_path))
        assert (there.train, there.validation, there.digest) == (here.train, here.validation, here.digest)

    def test_is_not_the_alphabetical_order(self, small_text: Corpus) -> None:
        """Held-out documents come from everywhere: from each half at least 4 of 24 (chance of fewer: 0.0001)."""
        early = sum(document.name < "document-120" for document in small_text.validation)
        assert 4 <= early <= 20

    @pytest.mark.parametrize(("share", "held_out"), [(0.0, 1), (0.1, 24), (0.25, 60), (0.5, 120)])
    def test_share(self, small_corpus: Path, share: float, held_out: int) -> None:
        corpus = subject.load_corpus(str(small_corpus), validation_share=share)
        assert (len(corpus.train), len(corpus.validation)) == (240 - held_out, held_out)

    def test_the_digest_sees_texts_names_and_the_split(self, tmp_path: Path) -> None:
        def write(folder: str, **texts: str) -> str:
            (tmp_path / folder).mkdir()
            for name, text in texts.items():
                (tmp_path / folder / f"{name}.txt").write_text(text)
            return str(tmp_path / folder)

        base = write("base", a="one", b="two", c="three", d="four")
        sources = [
            write("text", a="one", b="two", c="three", d="four."),
            write("name", a="one", b="two", c="three", e="four"),
            write("more", a="one", b="two", c="three", d="four", e="five"),
        ]
        digests = {subject.load_corpus(source).digest for source in (base, *sources)}
        assert len(digests) == 4
        assert subject.load_corpus(base, validation_share=0.5).digest not in digests
        texts = {"a": "one", "b": "two", "c": "three", "d": "four"}
        for name in texts:  # one of them is the validation text
            digests.add(subject.load_corpus(write(f"changed-{name}", **texts | {name: "other"})).digest)
        assert len(digests) == 8

    def test_a_text_that_cannot_be_split(self, tmp_path: Path) -> None:
        (tmp_path / "line.txt").write_text("no blank line " * 500)
        with pytest.raises(UserError, match=r"too small to split .* 7,000 characters") as error:
            subject.load_corpus(str(tmp_path / "line.txt"))
        one_line(error)


class TestTokenizer:
    def test_special_ids_and_vocabulary(self, tokenizer: PreTrainedTokenizerBase) -> None:
        assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, 1, 2)
        assert tokenizer.bos_token_id == 0
        assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == [subject.END, subject.PAD, subject.MASK]
        assert len(tokenizer) == 512

    @given(text=st.text())
    def test_round_trip_of_any_text(self, tokenizer: PreTrainedTokenizerBase, text: str) -> None:
        (ids,) = subject.encode(tokenizer, [Document("any", text)])
        assert tokenizer.decode(ids) == text
        assert ids.dtype == np.int64
        assert not np.isin(ids, [0, 1, 2]).any()

    def test_words_of_the_corpus_are_merged(self, tokenizer: PreTrainedTokenizerBase, small_text: Corpus) -> None:
        ids = np.concatenate(subject.encode(tokenizer, small_text.validation))
        characters = sum(len(document.text) for document in small_text.validation)
        assert len(ids) < characters / 2

    @pytest.mark.parametrize("marker", [subject.END, subject.PAD, subject.MASK])
    def test_a_marker_written_in_the_text_is_text(self, tokenizer: PreTrainedTokenizerBase, marker: str) -> None:
        text = f"before {marker} after"
        (ids,) = subject.encode(tokenizer, [Document("marked", text)])
        assert not np.isin(ids, [0, 1, 2]).any()
        assert tokenizer.decode(ids) == text
        assert tokenizer(marker)["input_ids"] == [tokenizer.convert_tokens_to_ids(marker)]  # its own calls as before

    def test_encodes_whole_documents_whatever_limits_the_tokenizer_came_with(self, small_text: Corpus) -> None:
        """Published tokenizers may come with truncation and padding switched on."""
        tokenizer = subject.train_tokenizer(small_text.train, 300)
        documents = [Document("short", "a"), *small_text.validation[:3]]
        free = subject.encode(tokenizer, documents)
        tokenizer.backend_tokenizer.enable_truncation(max_length=16)
        tokenizer.backend_tokenizer.enable_padding(length=32)
        limited = subject.encode(tokenizer, documents)
        assert [len(ids) for ids in limited] == [len(ids) for ids in free]
        assert all(np.array_equal(a, b) for a, b in zip(limited, free, strict=True))

    def test_adds_nothing_that_a_published_tokenizer_adds(self, small_text: Corpus) -> None:
        tokenizer = subject.train_tokenizer(small_text.train, 300)
        plain = subject.encode(tokenizer, small_text.validation[:2])
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{subject.END} $A {subject.END}", special_tokens=[(subject.END, 0)]
        )
        assert tokenizer("a")["input_ids"][0] == 0
        found = subject.encode(tokenizer, small_text.validation[:2])
        assert all(np.array_equal(a, b) for a, b in zip(found, plain, strict=True))

    def test_encodes_each_document_alone(self, tokenizer: PreTrainedTokenizerBase, small_text: Corpus) -> None:
        documents = small_text.validation[:5]
        together = subject.encode(tokenizer, documents)
        alone = [subject.encode(tokenizer, [document])[0] for document in documents]
        assert all(np.array_equal(a, b) for a, b in zip(together, alone, strict=True))
        assert subject.encode(tokenizer, []) == []

    def test_the_same_text_gives_the_same_tokenizer(self, small_text: Corpus) -> None:
        digests = [subject.tokenizer_digest(subject.train_tokenizer(small_text.train, 350)) for _ in range(2)]
        other = subject.tokenizer_digest(subject.train_tokenizer(small_text.train[:50], 350))
        assert digests[0] == digests[1] != other

    def test_saved_and_loaded_it_is_the_same(self, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
        from transformers import AutoTokenizer

        tokenizer.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
        assert subject.tokenizer_digest(loaded) == subject.tokenizer_digest(tokenizer)
        assert loaded.mask_token_id == 2

    def test_a_text_too_small_for_the_vocabulary(self) -> None:
        with pytest.raises(UserError, match=r"its text yields \d+ tokens, the vocabulary needs 512") as error:
            subject.train_tokenizer([Document("short", "a few words, a few words")], 512)
        one_line(error)


class TestCounts:
    @given(st.lists(st.lists(st.integers(0, 19), max_size=50), max_size=8))
    def test_against_a_counter(self, documents: list[list[int]]) -> None:
        counts = subject.token_counts([np.array(ids, dtype=np.int64) for ids in documents], 20)
        counter = Counter(token for ids in documents for token in ids)
        assert counts.tolist() == [counter[token] for token in range(20)]
        assert counts.dtype == np.int64

    @given(st.lists(st.integers(0, 100), min_size=2, max_size=30), st.data())
    def test_unigram_cross_entropy_by_its_formula(self, counts: list[int], data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.integers(0, len(counts) - 1), min_size=1, max_size=40))
        total = sum(counts) + len(counts)
        direct = -sum(math.log((counts[token] + 1) / total) for token in ids) / len(ids)
        found = subject.unigram_cross_entropy(np.array(counts), np.array(ids))
        assert found == pytest.approx(direct, rel=1e-12)

    def test_unigram_cross_entropy_of_uniform_counts_is_the_log_of_the_vocabulary(self) -> None:
        ids = np.random.default_rng(0).integers(0, 64, size=(8, 16))
        assert subject.unigram_cross_entropy(np.full(64, 9), ids) == pytest.approx(math.log(64), rel=1e-12)


class TestTrainingStream:
    def test_one_epoch_holds_every_document_once_with_its_end(self) -> None:
        encoded = numbered([7, 0, 12, 30, 1, 5])
        total = sum(len(ids) + 1 for ids in encoded)
        stream = subject.training_stream(encoded, end=0, length=1, sequences=total, seed=3)
        assert Counter(stream.reshape(-1).tolist()) == Counter({0: 6} | {int(t): 1 for ids in encoded for t in ids})

    @given(LENGTHS, st.integers(1, 40), st.integers(1, 30), seeds)
    def test_is_made_of_whole_documents_each_closed_by_end(
        self, lengths: list[int], length: int, sequences: int, seed: int
    ) -> None:
        encoded = numbered(lengths)
        if sum(n + 1 for n in lengths) < length:
            return
        stream = subject.training_stream(encoded, end=0, length=length, sequences=sequences, seed=seed)
        assert stream.shape == (sequences, length)
        last = {int(ids[-1]) for ids in encoded if len(ids)}
        starts = {int(ids[0]) for ids in encoded if len(ids)} | {0}
        for sequence in stream.tolist():
            for now, following in pairwise(sequence):
                if now == 0:
                    assert following in starts
                else:
                    assert following == (0 if now in last else now + 1)

    def test_no_document_is_read_again_before_all_were_read(self) -> None:
        encoded = numbered([20] * 10)
        for seed in range(5):
            half = subject.training_stream(encoded, end=0, length=21, sequences=5, seed=seed)
            assert len(set(half[:, 0].tolist())) == 5
            twice = subject.training_stream(encoded, end=0, length=21, sequences=25, seed=seed)
            assert set(Counter(twice[:, 0].tolist()).values()) <= {2, 3}

    def test_depends_on_the_seed_alone(self) -> None:
        encoded = numbered([20] * 30)
        streams = [subject.training_stream(encoded, 0, 8, 60, seed) for seed in (0, 0, 1)]
        assert np.array_equal(streams[0], streams[1])
        assert not np.array_equal(streams[0], streams[2])

    def test_which_documents_come_first_depends_on_the_seed(self) -> None:
        encoded = numbered([20] * 30)
        first = [frozenset(subject.training_stream(encoded, 0, 21, 5, seed)[:, 0].tolist()) for seed in range(4)]
        assert len(set(first)) == 4  # of 142,506 ways to choose 5

    def test_neighbouring_sequences_are_not_neighbours_in_the_text(self) -> None:
        stream = subject.training_stream(numbered([900]), 0, 10, 90, seed=0)
        follows = sum(b[0] == a[-1] + 1 for a, b in pairwise(stream))
        assert follows < 10  # one expected by chance, 89 in order

    @pytest.mark.parametrize("lengths", [[], [3, 4]])
    def test_a_text_shorter_than_one_sequence(self, lengths: list[int]) -> None:
        available = sum(n + 1 for n in lengths)
        with pytest.raises(UserError, match=f"too small: {available} training tokens, one sequence needs 10") as error:
            subject.training_stream(numbered(lengths), 0, 10, 2, seed=0)
        one_line(error)


class TestBlocks:
    @given(LENGTHS, st.integers(1, 8), st.integers(1, 40))
    def test_share_no_document_and_no_sequence_spans_two(self, lengths: list[int], blocks: int, length: int) -> None:
        encoded = numbered(lengths)
        usable = [n // length for n in lengths if n >= length]
        if len(usable) < blocks:
            with pytest.raises(UserError, match=rf"{len(usable)} validation documents of at least {length} tokens"):
                subject.disjoint_blocks(encoded, blocks, length)
            return
        made = subject.disjoint_blocks(encoded, blocks, length)
        assert len(made) == blocks
        owners: list[set[int]] = []
        for block in made:
            assert block.shape[0] >= 1
            assert block.shape[1] == length
            assert (np.diff(block, axis=1) == 1).all()  # consecutive tokens of one document
            assert (block // 1000 == block[:, :1] // 1000).all()
            assert (block[:, 0] % 1000 % length == 0).all()
            owners.append(set((block // 1000).reshape(-1).tolist()))
        assert sum(map(len, owners)) == len(set().union(*owners)) == len(usable)
        sizes = [len(block) for block in made]
        assert sum(sizes) == sum(usable)  # no sequence twice, none lost
        assert len(np.unique(np.concatenate(made)[:, 0])) == sum(sizes)
        assert max(sizes) - min(sizes) <= max(usable)

    def test_study_text(self, small_text: Corpus, tokenizer: PreTrainedTokenizerBase) -> None:
        study = subject.study_text(small_text, tokenizer, 512, blocks=20, length=64)
        assert len(study.blocks) == 20
        assert all(block.shape[1] == 64 for block in study.blocks)
        whole = Counter(token for document in small_text.train for token in tokenizer(document.text)["input_ids"])
        assert study.counts.tolist() == [whole[token] for token in range(512)]
        heard = [tuple(ids[:64]) for ids in subject.encode(tokenizer, small_text.validation)]
        assert set(heard) <= {tuple(sequence) for block in study.blocks for sequence in block}

    def test_the_digest_of_a_study_text_sees_blocks_and_counts(
        self, small_text: Corpus, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        base = subject.study_text(small_text, tokenizer, 512, blocks=20, length=64)
        assert subject.study_text(small_text, tokenizer, 512, blocks=20, length=64).digest == base.digest
        fewer_counted = Corpus("", small_text.train[1:], small_text.validation, "")
        fewer_measured = Corpus("", small_text.train, small_text.validation[1:], "")
        digests = {
            base.digest,
            subject.study_text(fewer_counted, tokenizer, 512, blocks=20, length=64).digest,
            subject.study_text(fewer_measured, tokenizer, 512, blocks=20, length=64).digest,
            subject.study_text(small_text, tokenizer, 512, blocks=10, length=64).digest,
            subject.study_text(small_text, tokenizer, 512, blocks=20, length=32).digest,
            subject.study_text(small_text, tokenizer, 600, blocks=20, length=64).digest,
        }
        assert len(digests) == 6

    def test_too_few_documents_for_the_blocks(self, small_text: Corpus, tokenizer: PreTrainedTokenizerBase) -> None:
        with pytest.raises(UserError, match=r"24 validation documents of at least 64 tokens, 25 disjoint .* fewer"):
            subject.study_text(small_text, tokenizer, 512, blocks=25, length=64)


class TestTakeTokens:
    @given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 16), st.integers(0, 2000))
    def test_first_sequences_spread_evenly(self, sizes: list[int], length: int, tokens: int) -> None:
        blocks = [1000 * i + np.arange(n * length).reshape(n, length) for i, n in enumerate(sizes)]
        total = tokens // length
        wanted = [total // len(sizes) + (i < total % len(sizes)) for i in range(len(sizes))]
        if total < len(sizes) or tokens > subject.even_tokens(blocks):
            with pytest.raises(UserError):
                subject.take_tokens(blocks, tokens)
            return
        taken = subject.take_tokens(blocks, tokens)
        assert [len(part) for part in taken] == wanted
        assert all(np.array_equal(part, block[: len(part)]) for part, block in zip(taken, blocks, strict=True))
        assert tokens - length < sum(part.size for part in taken) <= tokens

    def test_the_limit_that_the_error_names_can_be_had(self) -> None:
        blocks = [np.zeros((n, 8), dtype=int) for n in (5, 3, 9)]
        with pytest.raises(UserError, match=r"1,000 tokens asked for, but the shortest block limits .* to 72"):
            subject.take_tokens(blocks, 1000)
        assert subject.even_tokens(blocks) == 72
        assert [len(part) for part in subject.take_tokens(blocks, 72)] == [3, 3, 3]

    def test_a_block_would_be_left_empty(self) -> None:
        with pytest.raises(UserError, match="20 tokens are 2 sequences of 8: fewer than the 3 blocks"):
            subject.take_tokens([np.zeros((5, 8), dtype=int)] * 3, 20)


def test_a_home_folder_may_be_written_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("text")
    assert subject.load_documents("~/a.txt")[0].text == "text"
