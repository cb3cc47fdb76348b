"""Text of the hub: the real ``datasets`` library streams from a server on this machine, in a process of its own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hub_server import Hub, Repository, commit_of

from anisotropy.errors import UserError
from anisotropy.models import hub_corpus as subject
from anisotropy.models.corpus import load_corpus
from anisotropy.models.hub_corpus import parse_corpus

SECRET = "hf_doNotShowThisToken"
OPEN = """
import json, sys
from anisotropy.errors import UserError
from anisotropy.models.hub_corpus import open_corpus
lines, said = [], {}
for name in sys.argv[1:]:
    try:
        corpus = open_corpus(name, lines.append)
        texts = sorted(document.text for document in (*corpus.train, *corpus.validation))
        said[name] = [corpus.source, corpus.digest, texts]
    except UserError as error:
        said[name] = str(error)
print(json.dumps({"said": said, "lines": lines}))
"""
CONFIGS = b"""---
configs:
- config_name: en
  data_files: [{split: train, path: en/train-*.parquet}, {split: validation, path: en/validation.parquet}]
- config_name: fr
  data_files: fr.parquet
---
"""


def parquet(**columns: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


def texts(kind: str, count: int) -> list[str]:
    return [f"{kind} document {i:03d}, caf\u00e9 " + "some words " * (i % 7) for i in range(count)]


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    lines = b"\n".join(json.dumps({"body": text, "url": None, "n": 1}).encode() for text in texts("only", 8))
    files: dict[str, dict[str, bytes]] = {
        "text": {
            "README.md": CONFIGS,
            "en/train-0.parquet": parquet(text=texts("first", 20), url=["u"] * 20),
            "en/train-1.parquet": parquet(text=[*texts("second", 5), None, "  "], url=["u"] * 7),
            "en/validation.parquet": parquet(text=texts("held out", 6), url=["u"] * 6),
            "fr.parquet": parquet(titre=texts("titre", 4), contenu=texts("contenu", 4)),
        },
        "one": {"data.jsonl": lines},
        "script": {"script.py": b"raise SystemExit('this was run')"},
        "numbers": {"data.csv": b"a,b\n1,2\n3,4\n"},
        "gated": {"data.csv": b"a,b\n1,2\n3,4\n"},
    }
    for name, content in files.items():
        hub.repositories[f"datasets/some/{name}"] = Repository({"main": content}, gated=name == "gated")
    hub.repositories["datasets/some/limited"] = Repository({"main": {}}, failure="limited")
    yield hub
    hub.close()


def ask(hub: Hub, home: Path, *names: str, **more: str) -> tuple[dict[str, Any], list[str]]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE"))}
    given = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_TOKEN": SECRET, "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *names], env=known | given | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return found["said"], found["lines"]


def test_streamed_once_then_kept_and_every_mistake_named(hub: Hub, tmp_path: Path) -> None:
    good = ["hub:some/text:en", "hub:some/text@main:en:validation", "hub:some/text:fr:train:contenu", "hub:some/one"]
    wrong = {
        "hub:some/text": "some/text has several configs, name one, as in hub:some/text:en: en, fr",
        "hub:some/text:ne": "corpus 'hub:some/text:ne': some/text has no config 'ne': did you mean en? it has en, fr",
        "hub:some/text:en:trian": "has no split 'trian': did you mean train? it has train, validation",
        "hub:some/text:fr": "several columns, name one, as in hub:some/text:CONFIG:SPLIT:titre: titre, contenu",
        "hub:some/text:en:train:txt": "has no column 'txt': did you mean text? it has text, url",
        "hub:some/script": "corpus 'hub:some/script' is made by a script of its own, which is not run",
        "hub:some/numbers": "some/numbers has no column of text",
        "hub:some/gated": "corpus some/gated is gated: accept its terms on the hub and log in with `hf auth login`",
        "hub:some/limited": "corpus some/limited: the hub limits how often it is asked (429)",
        "hub:some/missing": "corpus some/missing: no such repository on the hub",
        "hub:allenai/c44:en": "did you mean allenai/c4?",
        "hub:some/text@nowhere:en": "corpus some/text: no such revision on the hub",
    }
    said, lines = ask(hub, tmp_path, *good, *wrong)
    for name, message in wrong.items():
        assert isinstance(said[name], str), name
        assert message in said[name]
        assert "\n" not in said[name]
    assert [said[name][2] for name in good] == [
        sorted(texts("first", 20) + texts("second", 5)),
        sorted(texts("held out", 6)),
        sorted(texts("contenu", 4)),
        sorted(texts("only", 8)),
    ]
    assert [said[name][0] for name in good] == good
    total = sum(map(len, said[good[0]][2]))
    assert lines[0] == f"hub:some/text:en: 25 documents, {total:,} characters read and kept"
    assert len(lines) == len(good)
    (about,) = tmp_path.glob("anisotropy-corpora/some--text++en/about.json")
    kept = {"corpus": good[0], "commit": commit_of("main"), "column": "text", "documents": 25, "characters": total}
    assert json.loads(about.read_text()) == kept

    hub.close()
    again, lines = ask(hub, tmp_path, *good, "hub:some/other", HF_HUB_OFFLINE="1")
    assert {name: again[name] for name in good} == {name: said[name] for name in good}
    assert lines == []
    assert again["hub:some/other"].startswith("corpus some/other is not in the cache, and the hub is switched off")


def test_so_much_is_read_and_no_more() -> None:
    def endless() -> Iterator[Any]:
        yield from (None, "", " \n", 7)
        while True:
            yield "x" * 500_000

    read = list(subject._first(endless()))
    assert {len(text) for text in read} == {subject.LONGEST_DOCUMENT}
    assert len(read) == subject.CHARACTERS // subject.LONGEST_DOCUMENT == 100
    assert list(subject._first(["a", "b"])) == ["a", "b"]


def test_about_as_much_as_the_embedded_corpus() -> None:
    embedded = load_corpus()
    characters = sum(len(document.text) for document in (*embedded.train, *embedded.validation))
    assert pytest.approx(characters, rel=0.1) == subject.CHARACTERS


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hub:allenai/c4:en", ("allenai/c4", "", "en", "", "")),
        ("hub:monology/pile-uncopyrighted", ("monology/pile-uncopyrighted", "", "", "", "")),
        ("hub:a/b@v1.0:20231101.fr:train:text", ("a/b", "v1.0", "20231101.fr", "train", "text")),
        ("hub:a/b:::body", ("a/b", "", "", "", "body")),
    ],
)
def test_names(name: str, parts: tuple[str, ...]) -> None:
    found = parse_corpus(name)
    assert (found.repository, found.revision, found.config, found.split, found.column) == parts
    assert "/" not in found.folder_name
    assert ":" not in found.folder_name


@pytest.mark.parametrize("name", ["hub:", "hub:c4", "hub:a/b/c", "hub:a/b:c:d:e:f", "hub:a b/c", "hub:../x"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UserError, match=r"is not hub:owner/name\[@revision\]\[:config"):
        parse_corpus(name)


def test_other_corpora_are_loaded_as_ever(small_corpus: Path) -> None:
    assert subject.open_corpus(str(small_corpus)) == load_corpus(str(small_corpus))
