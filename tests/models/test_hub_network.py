"""Hub models over HTTP: the real client library, in processes of their own, against a server on this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from families import small_model
from hub_server import Hub, Repository, commit_of, files_of

from anisotropy.models.corpus import Document, train_tokenizer

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "frequency-variance.ipynb"
SECRET = "hf_doNotShowThisToken"
OPEN = """
import json, sys
from pathlib import Path
from anisotropy.errors import UserError
from anisotropy.models.catalogue import parse_name
from anisotropy.models.checkpoints import open_source
root, names, load = Path(sys.argv[1]), sys.argv[3:], sys.argv[2] == "load"
said = {}
for name in names:
    try:
        source = open_source(parse_name(name), root)
        steps = [record.step for record in source.records()]
        if load:
            import torch
            steps = [source.load(step, torch.device("cpu")).weight_hash for step in steps]
        said[name] = steps
    except UserError as error:
        said[name] = str(error)
print(json.dumps({"said": said, "torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Files of revisions by name."""
    tokenizer = train_tokenizer([Document("words", " ".join(f"word{i} thing{i * 7 % 13}" for i in range(400)))], 300)
    folder = tmp_path_factory.mktemp("models")
    for layers, name in ((1, "before"), (2, "after")):
        small_model("gpt_neox", layers, vocab_size=300).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    found = {name: files_of(folder / name) for name in ("before", "after")}
    bare = {name: content for name, content in found["before"].items() if not name.startswith("tokenizer")}
    return found | {"bare": bare, "readme": {"README.md": b"# weights are elsewhere"}}


@pytest.fixture
def hub(models: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    hub = Hub()
    hub.repositories["some/model"] = Repository(
        {"main": models["after"], "step0": models["bare"], "step10": models["after"]}, {"v1": models["before"]}
    )
    yield hub
    hub.close()


def environment(hub: Hub, home: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE"))}
    given = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_TOKEN": SECRET}
    return known | given | {"HF_HUB_DISABLE_TELEMETRY": "1"}


def ask(hub: Hub, folder: Path, *names: str, load: bool = False, **more: str) -> dict[str, Any]:
    """Open hub models in a process of its own; nothing it prints may hold the token, though the hub was sent it."""
    command = [sys.executable, "-c", OPEN, str(folder / "root"), "load" if load else "open", *names]
    done = subprocess.run(
        command, env=environment(hub, folder / "hf") | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["torch"] == load
    return found["said"]


def test_each_refusal_has_its_own_sentence(hub: Hub, models: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    branches = {"main": models["after"], "step0": models["before"]}
    hub.repositories["some/gated"] = Repository(branches, gated=True)
    hub.repositories["some/readme"] = Repository({"main": models["readme"]})
    for failure in ("private", "limited", "forbidden", "broken"):
        hub.repositories[f"other/{failure}"] = Repository(branches, failure=failure)
    said = ask(
        hub,
        tmp_path,
        *("some/model", "some/model@stpe10", "some/modle", "EleutherAI/pythia-160", "some/gated", "some/readme"),
        *("other/private", "other/limited", "other/forbidden", "other/broken"),
    )
    assert said == {
        "some/model": [0, 10],
        "some/model@stpe10": "some/model has no revision 'stpe10': did you mean step10, step0? some/model has main, "
        "step0, step10, v1",
        "some/modle": "some/modle: no such repository on the hub, or it is private and you are not logged in; did you "
        "mean some/model, some/gated, some/readme?",
        "EleutherAI/pythia-160": "EleutherAI/pythia-160: no such repository on the hub, or it is private and you are "
        "not logged in; did you mean EleutherAI/pythia-160m, EleutherAI/pythia-410m, EleutherAI/pythia-1b?",
        "some/gated": "some/gated@step0 is gated: accept its terms on the hub and log in with `hf auth login`",
        "some/readme": said["some/readme"],
        "other/private": said["other/private"],
        "other/limited": "other/limited: the hub limits how often it is asked (429); wait some minutes, or log in with "
        "`hf auth login`",
        "other/forbidden": "other/forbidden: the hub refuses access (403); log in with `hf auth login`, or renew your "
        "token",
        "other/broken": "other/broken: the hub answered with error 500; try again later",
    }
    assert said["other/private"].startswith("other/private: no such repository on the hub, or it is private and you")
    assert said["some/readme"].startswith("some/readme@main cannot be loaded")
    assert hub.tokens == {f"Bearer {SECRET}"}  # it was sent, and not shown


def test_a_hub_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    hub.close()
    said = ask(hub, tmp_path, "some/model")["some/model"]
    assert said.startswith("some/model cannot be reached (ConnectError); hub models and corpora need a network")


def test_storage_that_cannot_be_written(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = ask(hub, tmp_path, "some/model", HF_HOME=str(tmp_path / "file" / "hf"))["some/model"]
    assert said == "some/model@step10 cannot be stored: the hub's cache is not a folder; set HF_HOME to one"


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="needs a folder in which nobody can write")
def test_storage_without_permission(hub: Hub, tmp_path: Path) -> None:
    said = ask(hub, tmp_path, "some/model", HF_HOME="/sys/anisotropy")["some/model"]
    assert "some/model@step10 cannot be stored: the hub's cache cannot be written to; give yourself the" in said


def test_a_full_disk(hub: Hub, models: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    """On a real disk of 48 KB, in a namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=48k none {disk} && exec "
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "sh", "-c", f"{mounted} true"]).returncode:
        pytest.skip("no right to mount a small disk")
    hub.repositories["some/model"] = Repository({"step1": models["before"] | {"tokenizer.json": b" " * 200_000}})
    command = [sys.executable, "-c", OPEN, str(tmp_path), "open", "some/model"]
    wrapped = ["unshare", "-rm", "sh", "-c", f'{mounted} "$0" "$@"', *command]
    done = subprocess.run(wrapped, env=environment(hub, disk / "hf"), capture_output=True, text=True, check=False)
    said = json.loads(done.stdout.splitlines()[-1])["said"]["some/model"]
    assert said == (
        "some/model@step1 cannot be stored: the disk is full; free some, or move the hub's cache to another disk with "
        "HF_HOME"
    )


@pytest.mark.slow
def test_downloaded_once_then_without_the_hub(hub: Hub, tmp_path: Path) -> None:
    first = ask(hub, tmp_path, "some/model", "some/model@step10+v1+main", load=True)
    hashes = first["some/model"]
    assert len(set(hashes)) == 2
    assert first["some/model@step10+v1+main"] == [hashes[1], hashes[0], hashes[1]]
    assert hub.asked["GET file model.safetensors"] == 2  # each file once, under however many names
    hub.close()
    assert ask(hub, tmp_path, "some/model") == {"some/model": [0, 10]}


def test_measuring_evicts_what_it_downloaded(hub: Hub, small_corpus: Path, tmp_path: Path) -> None:
    def measure(*more: str) -> str:
        command = [sys.executable, "-m", "anisotropy", "measure", "-m", "some/model", "--studies", "frequency", *more]
        command += ["--corpus", str(small_corpus)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(hub, tmp_path / "hf"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    def weights() -> list[Path]:
        return list(tmp_path.glob("hf/hub/models--some--model/snapshots/*/model.safetensors"))

    assert "2 checkpoints (2 measured now)" in measure("--evict")
    assert weights() == []
    blobs = list(tmp_path.glob("hf/hub/models--some--model/blobs/*"))
    assert max(blob.stat().st_size for blob in blobs) < 20_000  # a tokenizer
    assert hub.asked["GET file model.safetensors"] == 2
    entries = [json.loads(file.read_text()) for file in tmp_path.glob("results/models/*/checkpoints/*.json")]
    assert {entry["mark"] for entry in entries} == {commit_of("step0"), commit_of("step10")}
    assert all(entry["weights"]["float32"] for entry in entries)  # so that nothing is downloaded to be recognised
    assert "2 checkpoints (0 measured now)" in measure()
    assert hub.asked["GET file model.safetensors"] == 2
    hub.close()
    shutil.rmtree(tmp_path / "hf")
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    assert "2 checkpoints (0 measured now)" in measure()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("measure -m some/model@stpe10", r"some/model has no revision 'stpe10': did you mean step10"),
        ("measure -m some/model --checkpoint 7", r"some/model has no checkpoint 7; it has 0, 10"),
        ("measure -m some/modle", r"no such repository .* did you mean some/model\?"),
        ("measure -m some/model --dtype float31", r"dtype 'float31' is not one of float32, bfloat16, float16"),
        (f"run {NOTEBOOK} -m some/model@stpe10", r"some/model has no revision 'stpe10': did you mean step10"),
        (f"run {NOTEBOOK} -m some/model -p checkpoints=[7]", r"some/model has no checkpoint 7; it has 0, 10"),
    ],
)
def test_a_typo_is_answered_before_torch_is_imported(hub: Hub, tmp_path: Path, arguments: str, says: str) -> None:
    code = "import sys; sys.modules['torch'] = None; from anisotropy.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()],
        cwd=tmp_path,
        env=environment(hub, tmp_path / "hf"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"anisotropy: .*{says}.*\n", done.stderr)
