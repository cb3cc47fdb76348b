"""Hub models with no hub: from a cache in the hub's own layout, for every family, and each kind of damage."""

import hashlib
import json
import os
import pickle
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from families import FAMILIES, small_model
from hub_cache import CACHE, put
from huggingface_hub import constants, errors
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anisotropy.errors import UnknownNameError, UserError
from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.models.checkpoints import CheckpointRecord, HubSource, cached_revisions, open_source, weight_hash
from anisotropy.models.corpus import Document, train_tokenizer
from anisotropy.models.hub_files import cached_checkpoints, drop_weights, is_whole

CPU = torch.device("cpu")
NETWORK = "need a network or a filled cache"
Saved = dict[str, tuple[Path, PreTrainedModel]]


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache, and any connection is a failure."""
    assert constants.HF_HUB_OFFLINE

    def no_network(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    shutil.rmtree(CACHE, ignore_errors=True)
    yield
    shutil.rmtree(CACHE, ignore_errors=True)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer([Document("words", " ".join(f"word{i} thing{i * 7 % 13}" for i in range(400)))], 300)


@pytest.fixture(scope="module")
def saved(tokenizer: PreTrainedTokenizerBase, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A causal model before and after, a masked one, each with a tokenizer."""
    folder = tmp_path_factory.mktemp("saved")
    made = {}
    for name, family, layers in (("before", "gpt_neox", 1), ("after", "gpt_neox", 2), ("masked", "eurobert", 1)):
        model = small_model(family, layers, vocab_size=300)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        made[name] = (folder / name, model)
    return made


def source(name: str, root: Path | None = None, **more: Any) -> HubSource:
    found = open_source(parse_name(name), root or CACHE / "checkpoints", **more)
    assert isinstance(found, HubSource)
    return found


def refused(action: Callable[[], Any], *says: str, kind: type[UserError] = UserError) -> None:
    with pytest.raises(kind) as error:
        action()
    assert "\n" not in str(error.value)
    for part in says:
        assert part in str(error.value)


def no_tokenizer(name: str) -> bool:
    return not name.startswith("tokenizer")


def no_weights(name: str) -> bool:
    return not name.startswith("model")


def steps(found: HubSource) -> list[int]:
    return [record.step for record in found.records()]


class TestFromTheCache:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_family(self, family: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
        hashes = []
        for step in (0, 1):
            model = small_model(family, 1 + step, vocab_size=300)
            model.save_pretrained(tmp_path / f"{step}")
            tokenizer.save_pretrained(tmp_path / f"{step}")
            put("some/model", f"step{step}", tmp_path / f"{step}")
            hashes.append(weight_hash(model))
        found = source("some/model")
        assert found.objective == FAMILIES[family][3]
        assert found.records() == [CheckpointRecord(0), CheckpointRecord(1)]
        for step, expected in enumerate(hashes):
            checkpoint = found.load(step, CPU)
            assert checkpoint.weight_hash == expected
            assert (checkpoint.step, checkpoint.name, checkpoint.mask_id) == (step, "some/model", 2)
            assert checkpoint.objective == FAMILIES[family][3]
            assert not checkpoint.model.training
        refused(lambda: found.load(7, CPU), "some/model has no checkpoint 7; it has 0, 1", kind=UnknownNameError)

    def test_a_repository_of_the_catalogue_by_its_own_pattern(self, saved: Saved) -> None:
        repository = catalogue().hub["olmo-1b"].hub
        for branch in ("step2000-tokens8B", "step1000-tokens4B", "main"):
            put(repository, branch, saved["after"][0])
        found = source("olmo-1b")
        assert found.revisions == {1000: "step1000-tokens4B", 2000: "step2000-tokens8B"}
        assert found.load(1000, CPU).name == "olmo-1b"
        assert found.notes == []

    def test_the_mark_of_a_checkpoint_is_its_commit(self, saved: Saved) -> None:
        """By which it is recognised later without being loaded."""
        snapshots = [put("some/model", f"step{step}", saved["before"][0]) for step in (0, 1)]
        found = source("some/model")
        assert [found.mark(step) for step in (0, 1)] == [snapshot.name for snapshot in snapshots]

    def test_the_tokenizer_is_the_final_model_s(self, saved: Saved) -> None:
        """Step branches may lack one; ``main`` may be the one that lacks it; the catalogue may name another place."""
        put("some/model", "step0", saved["before"][0], no_tokenizer)
        put("some/model", "main", saved["after"][0])
        assert source("some/model").load(0, CPU).mask_id == 2

        put("other/model", "step5", saved["after"][0])
        put("other/model", "main", saved["after"][0], lambda name: name == "README.md")
        assert source("other/model").load(5, CPU).mask_id == 2

        entry = catalogue().hub["smollm2-135m"]
        assert entry.tokenizer is not None
        put(entry.hub, "step-240000", saved["after"][0], no_tokenizer)
        put(entry.tokenizer, "main", saved["after"][0], lambda name: name != "model.safetensors")
        assert source("smollm2-135m").load(240_000, CPU).mask_id == 2

    def test_no_tokenizer_anywhere(self, saved: Saved) -> None:
        put("some/model", "step0", saved["before"][0], no_tokenizer)
        put("some/model", "main", saved["before"][0], no_tokenizer)
        refused(source("some/model").tokenizer, "some/model@main", "tokenizer")

    def test_equal_weights_under_two_steps_have_one_hash(self, saved: Saved) -> None:
        for step in (0, 1):
            put("some/model", f"step{step}", saved["before"][0])
        found = source("some/model")
        assert found.load(0, CPU).weight_hash == found.load(1, CPU).weight_hash

    def test_cached_revisions(self, saved: Saved) -> None:
        assert cached_revisions("some/model") == []  # no cache at all
        put("some/model", "step1", saved["before"][0])
        put("some/model", "main", saved["before"][0])
        put("some/other", "step9", saved["before"][0])
        assert cached_revisions("some/model") == ["main", "step1"]
        assert cached_revisions("no/such") == []

    def test_nothing_cached(self) -> None:
        refused(lambda: source("some/model"), "some/model is not in the cache", "HF_HUB_OFFLINE", NETWORK, "miniatures")

    def test_a_name_that_the_hub_forbids(self) -> None:
        refused(lambda: source("a..b/c"), "a..b/c cannot be loaded", "repo_id")


class TestRevisions:
    """The hub's answers are made up here, at the one place where it is asked; a server gives them in another file."""

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch, saved: Saved) -> Callable[..., None]:
        def answer(*branches: str, tags: tuple[str, ...] = ()) -> None:
            def refs(names: tuple[str, ...]) -> list[Any]:
                return [SimpleNamespace(name=name, target_commit=f"commit of {name}") for name in names]

            found = SimpleNamespace(branches=refs(branches), tags=refs(tags))
            monkeypatch.setattr(huggingface_hub, "list_repo_refs", lambda repository: found)
            for name in (*branches, *tags):
                put("some/model", name.replace("/", "-"), saved["before"][0])

        return answer

    def test_by_step_and_others_ignored(self, answer: Callable[..., None]) -> None:
        answer("step1000", "main", "step8", "step143000", "step16", "half-step16", "step-old")
        found = source("pythia-160m")
        assert steps(found) == [8, 16, 1000, 143_000]
        assert found.repository == "EleutherAI/pythia-160m"

    @pytest.mark.parametrize(
        ("revision", "step"),
        [
            ("step9", 9),
            ("step-160000", 160_000),
            ("step738020-tokens3094B", 738_020),
            ("stage1-step10000-tokens21B", 10_000),
            ("checkpoint-500", 500),
            ("global_step20", 20),
            ("iter_0001000", 1000),
            ("ckpt7", 7),
        ],
    )
    def test_names_with_a_step(self, answer: Callable[..., None], revision: str, step: int) -> None:
        answer("main", revision)
        assert source("some/model").records() == [CheckpointRecord(step)]

    @pytest.mark.parametrize("revision", ["v1.0", "step1.5", "steps", "footstep5", "2024-06-01"])
    def test_names_without(self, answer: Callable[..., None], revision: str) -> None:
        answer("main", revision)
        (record,) = source("some/model").records()
        assert (record.step, record.label, record.title) == (1, "released model", "released model")

    def test_the_released_model_is_not_the_untrained_one(self, answer: Callable[..., None], saved: Saved) -> None:
        answer("main")
        found = source("some/model")
        assert found.revisions == {1: "main"}
        assert found.notes == []  # nobody expected checkpoints

    def test_a_catalogue_entry_without_its_checkpoints_says_so(self, answer: Callable[..., None]) -> None:
        answer("main", "pr-branch")
        found = source("eurobert-210m")
        assert [record.title for record in found.records()] == ["released model"]
        assert found.notes == [
            r"eurobert-210m: no revision of EuroBERT/EuroBERT-210m is named like step(\d+), so only the released model "
            "is measured"
        ]

    def test_any_list_of_revisions(self, answer: Callable[..., None]) -> None:
        answer("main", "step5", "step10", "annealed", tags=("v1", "v2"))
        found = source("some/model@v2+step10+main+v1+step5")
        titles = [record.title for record in found.records()]
        assert titles == ["step 5", "step 10", "v2", "released model", "v1"]
        assert steps(found) == [5, 10, 11, 12, 13]
        assert found.revisions[12] == "main"
        commit = hashlib.sha1(b"v1").hexdigest()
        assert source(f"some/model@step5+{commit}").revisions == {5: "step5", 6: commit}

    def test_a_pattern_names_many(self, answer: Callable[..., None]) -> None:
        answer("main", "stage1-step10", "stage1-step20", "stage2-step10", "stage2-step12")
        refused(
            lambda: source("some/model"),
            "some/model: stage1-step10 and stage2-step10 are both step 10",
            "for example some/model@stage1-step*",
        )
        assert source("some/model@stage1-*").revisions == {10: "stage1-step10", 20: "stage1-step20"}
        assert steps(source("some/model@stage2-*+main")) == [10, 12, 13]

    def test_a_revision_mistyped(self, answer: Callable[..., None]) -> None:
        answer("main", "step512", "step1000", "step2000")
        for asked, near in (("step100", "step1000"), ("mian", "main"), ("step-512", "step512")):
            says = (f"some/model has no revision {asked!r}: did you mean ", near, "main, step512, step1000, step2000")
            refused(lambda asked=asked: source(f"some/model@{asked}"), *says, kind=UnknownNameError)  # type: ignore[misc]
        refused(lambda: source("some/model@zzz"), "has no revision 'zzz': some/model has main")
        refused(lambda: source("some/model@stage*"), "has no revision 'stage*': some/model has main")

    def test_neither_steps_nor_main(self, answer: Callable[..., None]) -> None:
        answer("final", "old")
        refused(lambda: source("some/model"), "no revision of some/model has a step", "some/model@final", "final, old")

    def test_a_revision_that_is_not_in_the_cache(self, saved: Saved) -> None:
        put("some/model", "step4", saved["before"][0])
        refused(
            lambda: source("some/model@step5"), "some/model@step5 is not in the cache", "in the cache are its", "step4"
        )

    @pytest.mark.parametrize(
        "error", [errors.OfflineModeIsEnabled("offline"), ConnectionError("no route"), TimeoutError()]
    )
    def test_a_hub_that_does_not_answer_leaves_the_cache(
        self, monkeypatch: pytest.MonkeyPatch, saved: Saved, error: Exception
    ) -> None:
        def list_repo_refs(repository: str) -> None:
            raise error

        monkeypatch.setattr(huggingface_hub, "list_repo_refs", list_repo_refs)
        refused(lambda: source("some/model"), NETWORK)
        put("some/model", "step4", saved["before"][0])
        assert source("some/model").revisions == {4: "step4"}


class TestWhatIsLoaded:
    def store(self, folder: Path, saved: Saved, edit: Callable[[Path], Any]) -> HubSource:
        """A revision like ``before``, changed."""
        shutil.copytree(saved["before"][0], folder)
        edit(folder)
        put("some/model", "step3", folder)
        return source("some/model")

    def as_bin(self, folder: Path, content: Any = None) -> None:
        file = folder / "model.safetensors"
        torch.save(load_file(file) if content is None else content, folder / "pytorch_model.bin")
        file.unlink()

    def test_bin_gives_the_same_weights(self, saved: Saved, tmp_path: Path) -> None:
        found = self.store(tmp_path / "copy", saved, self.as_bin)
        assert found.load(3, CPU).weight_hash == weight_hash(saved["before"][1])

    def test_a_pickle_that_runs_code_is_not_run(self, saved: Saved, tmp_path: Path) -> None:
        trace = tmp_path / "trace"

        class Malicious:
            def __reduce__(self) -> tuple[Any, ...]:
                return Path.touch, (trace,)

        pickle.loads(pickle.dumps(Malicious()))
        assert trace.exists()  # so it would
        trace.unlink()
        found = self.store(tmp_path / "copy", saved, lambda folder: self.as_bin(folder, {"weight": Malicious()}))
        refused(lambda: found.load(3, CPU), "some/model@step3: its weights file is a pickle", "was not run")
        assert not trace.exists()

    def test_a_plain_pickle_that_runs_code_is_not_run(self, saved: Saved, tmp_path: Path) -> None:
        trace = tmp_path / "trace"

        class Malicious:
            def __reduce__(self) -> tuple[Any, ...]:
                return Path.touch, (trace,)

        def edit(folder: Path) -> None:
            (folder / "model.safetensors").unlink()
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(), protocol=2))

        found = self.store(tmp_path / "copy", saved, edit)
        refused(lambda: found.load(3, CPU), "some/model@step3")
        assert not trace.exists()

    def test_safetensors_come_first(self, saved: Saved, tmp_path: Path) -> None:
        found = self.store(
            tmp_path / "copy", saved, lambda folder: (folder / "pytorch_model.bin").write_bytes(b"not read")
        )
        assert found.load(3, CPU).weight_hash == weight_hash(saved["before"][1])

    def test_code_beside_the_weights_is_not_run(self, saved: Saved, tmp_path: Path) -> None:
        trace = tmp_path / "trace"

        def edit(folder: Path) -> None:
            config = json.loads((folder / "config.json").read_text())
            config |= {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.Config"}}
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\n")

        found = self.store(tmp_path / "copy", saved, edit)
        refused(lambda: found.load(3, CPU), "some/model@step3 needs program code of its own, which is not run here")
        assert not trace.exists()

    @pytest.mark.parametrize("keep", [0.99, 0.3, 0.0])
    @pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
    def test_a_truncated_file(self, saved: Saved, tmp_path: Path, name: str, keep: float) -> None:
        def edit(folder: Path) -> None:
            if name == "pytorch_model.bin":
                self.as_bin(folder)
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[: int(keep * len(content))])

        found = self.store(tmp_path / "copy", saved, edit)
        refused(lambda: found.load(3, CPU), "some/model@step3 is damaged", "delete it and make or download it again")

    def test_weights_that_are_not_finite(self, saved: Saved, tmp_path: Path) -> None:
        def edit(folder: Path) -> None:
            tensors = load_file(folder / "model.safetensors")
            tensors["embed_out.weight"][3, 4] = torch.nan
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

        found = self.store(tmp_path / "copy", saved, edit)
        refused(lambda: found.load(3, CPU), "some/model@step3 is damaged: parameter lm_head.weight holds values")

    def test_half_precision_is_measured_in_float32_unless_asked(self, saved: Saved, tmp_path: Path) -> None:
        half = small_model("gpt_neox", 1, vocab_size=300).half()
        found = self.store(tmp_path / "copy", saved, half.save_pretrained)
        model = found.load(3, CPU).model
        for before, after in zip(half.parameters(), model.parameters(), strict=True):
            assert after.dtype == torch.float32
            assert torch.equal(after, before.float())
        hashes = {weight_hash(model)}
        for name in ("float16", "bfloat16"):
            checkpoint = source("some/model", dtype=name).load(3, CPU)
            assert {parameter.dtype for parameter in checkpoint.model.parameters()} == {getattr(torch, name)}
            hashes.add(checkpoint.weight_hash)
        assert len(hashes) == 3  # what is measured in one type is never taken for another

    def test_a_type_that_is_none(self) -> None:
        refused(lambda: source("some/model", dtype="int8"), "dtype 'int8' is not one of float32, bfloat16, float16")

    def test_tied_embeddings_are_complete(self, saved: Saved, tmp_path: Path) -> None:
        model = small_model("llama", 1, vocab_size=300, tie_word_embeddings=True)
        assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
        found = self.store(tmp_path / "copy", saved, model.save_pretrained)
        loaded = found.load(3, CPU)
        assert loaded.weight_hash == weight_hash(model)
        assert loaded.model.get_input_embeddings().weight is loaded.model.get_output_embeddings().weight

    def test_several_parts(self, saved: Saved, tmp_path: Path) -> None:
        model = saved["after"][1]
        found = self.store(tmp_path / "copy", saved, lambda folder: self.in_parts(model, folder))
        assert found.load(3, CPU).weight_hash == weight_hash(model)
        snapshot = next(CACHE.glob("models--some--model/snapshots/*"))
        assert is_whole(snapshot)
        next(snapshot.glob("model-00002*")).unlink()
        assert not is_whole(snapshot)
        refused(lambda: source("some/model").load(3, CPU), "some/model@step3 is not in the cache", NETWORK)

    def in_parts(self, model: PreTrainedModel, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder, max_shard_size="10KB")
        assert len(list(folder.glob("model-*.safetensors"))) > 2

    @pytest.mark.parametrize("missing", ["model.safetensors", "config.json"])
    def test_a_revision_that_was_not_wholly_downloaded(self, saved: Saved, missing: str) -> None:
        put("some/model", "step2", saved["before"][0], lambda name: name != missing)
        put("some/model", "step3", saved["before"][0])
        refused(lambda: source("some/model").load(2, CPU), "some/model@step2 is not in the cache", NETWORK)

    def test_no_language_model_head(self, tmp_path: Path) -> None:
        small_model("llama", 1).base_model.save_pretrained(tmp_path)
        put("some/model", "main", tmp_path)
        refused(lambda: source("some/model"), "some/model@main: a language model head is needed", "LlamaModel")

    def test_a_damaged_configuration(self, saved: Saved, tmp_path: Path) -> None:
        refused(
            lambda: self.store(tmp_path / "copy", saved, lambda folder: (folder / "config.json").write_text('{"arch')),
            "some/model@step3 cannot be loaded",
        )


class TestEviction:
    def test_only_weights_go_and_what_is_shared_stays(self, saved: Saved) -> None:
        first = put("some/model", "step0", saved["before"][0])
        same = put("some/model", "step1", saved["before"][0])
        other = put("some/model", "step2", saved["after"][0])
        blobs = first.parents[1] / "blobs"
        before = len(list(blobs.iterdir()))
        assert drop_weights(first) == 0
        assert not (first / "model.safetensors").exists()
        assert is_whole(same)
        assert len(list(blobs.iterdir())) == before
        size = (other / "model.safetensors").stat().st_size
        assert drop_weights(other) == size
        assert len(list(blobs.iterdir())) == before - 1
        assert drop_weights(other) == 0
        assert cached_checkpoints("some/model") == 1
        assert cached_revisions("some/model") == ["step0", "step1", "step2"]
        assert len(source("some/model").tokenizer()) == 300

    def test_what_killed_downloads_left_goes_too(self, saved: Saved) -> None:
        snapshot = put("some/model", "step0", saved["before"][0])
        old, new = (snapshot.parents[1] / "blobs" / f"{name}.incomplete" for name in ("old", "new"))
        for file, age in ((old, 7200), (new, 0)):
            file.write_bytes(b"half a model")
            os.utime(file, (time.time() - age,) * 2)
        drop_weights(snapshot)
        assert (old.exists(), new.exists()) == (False, True)  # somebody may still be downloading the other

    def test_what_was_in_the_cache_before_is_never_evicted(self, saved: Saved) -> None:
        snapshot = put("some/model", "step0", saved["before"][0])
        source("some/model", evict=True).load(0, CPU)
        assert is_whole(snapshot)


def test_nothing_here_can_reach_a_network() -> None:
    refused(lambda: source("EleutherAI/pythia-160m"), NETWORK)
