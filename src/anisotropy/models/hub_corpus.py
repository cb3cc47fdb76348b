"""Text of the hub: the first documents of a data set, streamed once, kept as text files, then read like any folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anisotropy.errors import UnknownNameError, UserError
from anisotropy.files import locked, replacing
from anisotropy.models.corpus import EMBEDDED, Corpus, load_corpus
from anisotropy.models.hub_errors import hub_error
from anisotropy.models.loading import one_line
from anisotropy.models.records import listing, nearest

PREFIX = "hub:"
CHARACTERS = 12_000_000  # about what the embedded corpus holds
LONGEST_DOCUMENT = 120_000  # so that no document is more than a hundredth of it
_COLUMNS = ("text", "content", "document", "article")
_NAME = re.compile(
    r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?"
    r"(?::(?P<config>[^:]*))?(?::(?P<split>[^:]*))?(?::(?P<column>[^:]+))?"
)
# Data sets that stream without a script of their own, for those who mistype one.
_KNOWN = (
    "allenai/c4",
    "wikimedia/wikipedia",
    "HuggingFaceFW/fineweb",
    "HuggingFaceFW/fineweb-edu",
    "monology/pile-uncopyrighted",
    "EleutherAI/the_pile_deduplicated",
)

Report = Callable[[str], None]


def open_corpus(source: str = EMBEDDED, report: Report = lambda line: None) -> Corpus:
    """Load a corpus by any of its names and split it by document.

    Args:
        source: as :func:`anisotropy.models.corpus.load_documents` takes it, or a data set of the hub,
            ``hub:owner/name[@revision][:config[:split[:column]]]`` such as ``hub:allenai/c4:en``. Of that the first
            ``CHARACTERS`` characters are read, in the order of the data set and at most ``LONGEST_DOCUMENT`` of each
            document; they are kept, so that later runs need no network and see the same text.
        report: receives a line about what was read from the hub.

    Raises:
        UserError: as :func:`anisotropy.models.corpus.load_corpus`; for the hub a name that is none, a data set,
            config, split or column that does not exist, one made by a script, or no answer and nothing kept.
    """
    if not source.startswith(PREFIX):
        return load_corpus(source)
    wanted = parse_corpus(source)
    folder = _kept_in() / wanted.folder_name
    with locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            about = _stream_into(folder, wanted)
            report(f"{source}: {about['documents']:,} documents, {about['characters']:,} characters read and kept")
    return replace(load_corpus(str(folder)), source=source)


@dataclass(frozen=True)
class HubCorpus:
    """A data set of the hub as a user names it; empty parts are found out."""

    source: str
    repository: str
    revision: str = ""
    config: str = ""
    split: str = ""
    column: str = ""

    @property
    def folder_name(self) -> str:
        """Where its text is kept; no two names share it."""
        return self.source.removeprefix(PREFIX).replace("/", "--").replace(":", "++")


def parse_corpus(source: str) -> HubCorpus:
    """Decide what ``hub:…`` means; nothing is asked of the hub.

    Raises:
        UserError: it is not ``hub:owner/name[@revision][:config[:split[:column]]]``.
    """
    match = _NAME.fullmatch(source.removeprefix(PREFIX))
    if match is None:
        raise UserError(
            f"corpus {source!r} is not hub:owner/name[@revision][:config[:split[:column]]], such as hub:allenai/c4:en"
        )
    return HubCorpus(source, **{name: part or "" for name, part in match.groupdict().items()})


def _kept_in() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "anisotropy-corpora"


def _stream_into(folder: Path, wanted: HubCorpus) -> dict[str, Any]:
    from huggingface_hub import dataset_info

    try:
        commit = dataset_info(wanted.repository, revision=wanted.revision or None).sha
    except Exception as error:
        raise _about(wanted, error) from None
    try:
        rows, column = _rows(wanted, str(commit))
        with replacing(folder) as temporary:
            temporary.mkdir()
            documents = characters = 0
            for text in _first(row[column] for row in rows):
                documents += 1
                characters += len(text)
                (temporary / f"document-{documents:06d}.txt").write_text(text, encoding="utf-8", errors="replace")
            if not documents:
                raise UserError(f"corpus {wanted.source!r}: its column {column!r} holds no text")
            about: dict[str, Any] = {"corpus": wanted.source, "commit": commit, "column": column}
            about |= {"documents": documents, "characters": characters}
            (temporary / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        return about
    except UserError:
        raise
    except Exception as error:
        raise _about(wanted, error) from None


def _rows(wanted: HubCorpus, commit: str) -> tuple[Iterable[Mapping[str, Any]], str]:
    """The data set as a stream of rows, and its column of text."""
    import datasets

    datasets.disable_progress_bars()
    configs = datasets.get_dataset_config_names(wanted.repository, revision=commit)
    config = _choose("config", wanted.config, configs, wanted, "default")
    splits = datasets.load_dataset(wanted.repository, config, revision=commit, streaming=True)
    split = _choose("split", wanted.split, list(splits), wanted, "train")
    stream = splits[split]
    first = next(iter(stream), None)
    if first is None:
        raise UserError(f"corpus {wanted.source!r}: its split {split!r} is empty")
    texts = [name for name, value in first.items() if isinstance(value, str)]
    usual = next((name for name in _COLUMNS if name in texts), "")
    return stream, _choose("column", wanted.column, texts, wanted, usual)


def _choose(what: str, asked: str, existing: list[str], wanted: HubCorpus, usual: str) -> str:
    if asked in existing:
        return asked
    if not asked and (usual in existing or len(existing) == 1):
        return usual if usual in existing else existing[0]
    of = f"corpus {wanted.source!r}: {wanted.repository}"
    if not existing:
        raise UserError(f"{of} has no {what} of text")
    place = {"config": "", "split": "CONFIG:", "column": "CONFIG:SPLIT:"}[what]
    example = f"{PREFIX}{wanted.repository}:{place}{(nearest(asked, existing) or existing)[0]}"
    if not asked:
        raise UserError(f"{of} has several {what}s, name one, as in {example}: {listing(existing)}")
    near = nearest(asked, existing)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise UnknownNameError(f"{of} has no {what} {asked!r}: {hint}it has {listing(existing)}")


def _first(texts: Iterable[Any]) -> Iterator[str]:
    """Texts in order, each cut to the longest, until there are enough characters; the last one is whole."""
    total = 0
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            continue
        yield text[:LONGEST_DOCUMENT]
        total += len(text[:LONGEST_DOCUMENT])
        if total >= CHARACTERS:
            return


def _about(wanted: HubCorpus, error: BaseException) -> UserError:
    said = one_line(error)
    if "scripts are no longer supported" in said:
        return UserError(
            f"corpus {wanted.source!r} is made by a script of its own, which is not run: take one that is stored as "
            f"files, such as hub:allenai/c4:en"
        )
    if "is a gated dataset" in said:  # in words only: the library hides the hub's own error
        return UserError(
            f"corpus {wanted.repository} is gated: accept its terms on the hub and log in with `hf auth login`"
        )
    found = hub_error(wanted.repository, error, known=_KNOWN)
    return type(found)(f"corpus {found}")
