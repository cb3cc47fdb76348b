"""Hub models with no hub: from a cache in the hub's own layout, and its failures one by one."""

import hashlib
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from families import small_model
from huggingface_hub import constants, errors
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anisotropy.errors import UserError
from anisotropy.models import checkpoints as subject
from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.models.checkpoints import HubSource, cached_revisions, weight_hash
from anisotropy.models.corpus import Document, train_tokenizer
from anisotropy.models.hub_errors import hub_error

CPU = torch.device("cpu")
CACHE = Path(constants.HF_HUB_CACHE)
NETWORK = "need a network or a filled cache"


def response(status: int) -> Any:
    request = SimpleNamespace(url="https://hub.invalid/api", method="GET", headers={})
    return SimpleNamespace(headers={}, status_code=status, request=request, text="")


GATED = errors.GatedRepoError("403: gated", response=response(403))
NO_REPOSITORY = errors.RepositoryNotFoundError("404: repository", response=response(404))
NO_REVISION = errors.RevisionNotFoundError("404: revision", response=response(404))
TOO_MANY = errors.HfHubHTTPError("429: too many requests", response=response(429))
OFFLINE = errors.OfflineModeIsEnabled("offline")
NOT_CACHED = errors.LocalEntryNotFoundError("not in the cache")


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
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, PreTrainedModel]]:
    """A causal model before and after, a masked one, and a tokenizer."""
    tokenizer: PreTrainedTokenizerBase = train_tokenizer(
        [Document("words", " ".join(f"word{i} thing{i * 7 % 13}" for i in range(400)))], 300
    )
    folder = tmp_path_factory.mktemp("saved")
    made = {}
    for name, family, layers in (("before", "gpt_neox", 1), ("after", "gpt_neox", 2), ("masked", "eurobert", 1)):
        model = small_model(family, layers, vocab_size=300)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        made[name] = (folder / name, model)
    return made


def put(repository: str, revision: str, folder: Path, keep: Callable[[str], bool] = lambda _: True) -> None:
    """Store a folder as a downloaded revision: a ref, a snapshot of links, and blobs."""
    base = CACHE / f"models--{repository.replace('/', '--')}"
    commit = hashlib.sha1(revision.encode()).hexdigest()
    for part in ("refs", "blobs", f"snapshots/{commit}"):
        (base / part).mkdir(parents=True, exist_ok=True)
    (base / "refs" / revision).write_text(commit)
    for file in filter(lambda file: keep(file.name), folder.iterdir()):
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, base / "blobs" / blob)
        (base / "snapshots" / commit / file.name).symlink_to(Path("../../blobs") / blob)


def refused(action: Callable[[], Any], *says: str) -> None:
    with pytest.raises(UserError) as error:
        action()
    assert "\n" not in str(error.value)
    for part in says:
        assert part in str(error.value)


def source(name: str) -> HubSource:
    return HubSource(parse_name(name), CACHE / "checkpoints")


def no_tokenizer(name: str) -> bool:
    return not name.startswith("tokenizer")


class TestFromTheCache:
    def test_branches_become_checkpoints_and_load(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        put("some/model", "step1", saved["after"][0])
        put("some/model", "step0", saved["before"][0])
        opened = source("some/model")
        assert opened.revisions == {0: "step0", 1: "step1"}
        assert [record.step for record in source.records()] == [0, 1]
        assert source.objective == "causal"
        for step, name in enumerate(("before", "after")):
            checkpoint = source.load(step, CPU)
            assert checkpoint.weight_hash == weight_hash(saved[name][1])
            assert (checkpoint.step, checkpoint.name, checkpoint.mask_id) == (step, "some/model", 2)
            assert not checkpoint.model.training
        refused(lambda: source.load(7, CPU), "some/model has no checkpoint 7; it has 0, 1")

    def test_a_repository_of_the_catalogue_by_its_own_pattern(
        self, saved: dict[str, tuple[Path, PreTrainedModel]]
    ) -> None:
        repository = catalogue().hub["olmo-1b"].hub
        for branch in ("step2000-tokens8B", "step1000-tokens4B", "main"):
            put(repository, branch, saved["after"][0])
        opened = source("olmo-1b")
        assert opened.revisions == {1000: "step1000-tokens4B", 2000: "step2000-tokens8B"}
        assert source.load(1000, CPU).name == "olmo-1b"

    def test_main_alone_where_no_branch_is_a_checkpoint(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        put("some/model", "main", saved["masked"][0])
        opened = source("some/model")
        assert opened.revisions == {0: "main"}
        assert source.objective == "masked"
        assert source.load(0, CPU).weight_hash == weight_hash(saved["masked"][1])

    def test_the_tokenizer_is_the_final_model_s(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
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

    def test_no_tokenizer_anywhere(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        put("some/model", "step0", saved["before"][0], no_tokenizer)
        put("some/model", "main", saved["before"][0], no_tokenizer)
        refused(source("some/model").tokenizer, "some/model", "tokenizer")

    def test_a_revision_without_weights(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        put("some/model", "step3", saved["before"][0], lambda name: name != "model.safetensors")
        refused(
            lambda: source("some/model").load(3, CPU),
            "some/model@step3 cannot be loaded",
            "model.safetensors",
        )

    def test_a_revision_without_configuration(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        put("some/model", "step3", saved["before"][0], lambda name: name != "config.json")
        refused(lambda: source("some/model"), "some/model@step3", NETWORK)

    def test_a_truncated_download(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        put("some/model", "step3", saved["before"][0])
        weights = next(CACHE.rglob("model.safetensors")).resolve()
        weights.write_bytes(weights.read_bytes()[:1000])
        refused(lambda: source("some/model").load(3, CPU), "some/model@step3 is damaged", "download it again")

    def test_cached_revisions(self, saved: dict[str, tuple[Path, PreTrainedModel]]) -> None:
        assert cached_revisions("some/model") == []  # no cache at all
        put("some/model", "step1", saved["before"][0])
        put("some/model", "main", saved["before"][0])
        put("some/other", "step9", saved["before"][0])
        assert cached_revisions("some/model") == ["main", "step1"]
        assert cached_revisions("no/such") == []

    def test_nothing_cached(self) -> None:
        refused(lambda: source("some/model"), "some/model cannot be reached", NETWORK, "miniatures")


class TestWithAHub:
    """The hub's answers are made up, at the one place where it is asked for branches."""

    def answer(self, monkeypatch: pytest.MonkeyPatch, *branches: str) -> None:
        refs = SimpleNamespace(branches=[SimpleNamespace(name=branch) for branch in branches])
        monkeypatch.setattr(huggingface_hub, "list_repo_refs", lambda repository: refs)

    def fail(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        def list_repo_refs(repository: str) -> None:
            raise error

        monkeypatch.setattr(huggingface_hub, "list_repo_refs", list_repo_refs)

    def test_branches_are_ordered_by_step_and_others_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer(monkeypatch, "step1000", "main", "step8", "step143000", "step16", "refs/pr/3", "half-step16")
        opened = source("pythia-160m")
        assert [record.step for record in source.records()] == [8, 16, 1000, 143_000]
        assert source.repository == "EleutherAI/pythia-160m"

    @pytest.mark.parametrize(
        ("branch", "step"), [("step9", 9), ("step-160000", 160_000), ("step738020-tokens3094B", 738_020)]
    )
    def test_common_branch_names_of_repositories_outside_the_catalogue(
        self, monkeypatch: pytest.MonkeyPatch, saved: dict[str, tuple[Path, PreTrainedModel]], branch: str, step: int
    ) -> None:
        self.answer(monkeypatch, "main", branch)
        put("some/model", branch, saved["before"][0])
        assert source("some/model").revisions == {step: branch}

    @pytest.mark.parametrize("error", [OFFLINE, TOO_MANY, ConnectionError("no route"), TimeoutError()])
    def test_a_hub_that_does_not_answer_leaves_the_cache(
        self, monkeypatch: pytest.MonkeyPatch, saved: dict[str, tuple[Path, PreTrainedModel]], error: Exception
    ) -> None:
        self.fail(monkeypatch, error)
        refused(lambda: source("some/model"), type(error).__name__, NETWORK)
        put("some/model", "step4", saved["before"][0])
        assert source("some/model").revisions == {4: "step4"}

    @pytest.mark.parametrize(("error", "says"), [(GATED, "is gated"), (NO_REPOSITORY, "no such repository")])
    def test_a_hub_that_says_no_is_believed(
        self,
        monkeypatch: pytest.MonkeyPatch,
        saved: dict[str, tuple[Path, PreTrainedModel]],
        error: Exception,
        says: str,
    ) -> None:
        put("some/model", "step4", saved["before"][0])
        self.fail(monkeypatch, error)
        refused(lambda: source("some/model"), "some/model", says)

    def test_what_transformers_wraps_is_unwrapped(
        self, monkeypatch: pytest.MonkeyPatch, saved: dict[str, tuple[Path, PreTrainedModel]]
    ) -> None:
        """transformers turns the hub's errors into an ``OSError`` of several lines, with the real one as its cause."""
        from transformers import AutoConfig, AutoModelForCausalLM

        self.answer(monkeypatch, "step0")
        put("some/model", "step0", saved["before"][0])

        def gated(*_: Any, **__: Any) -> None:
            raise OSError("You are trying to access a gated repo.\nMake sure to have access to it.") from GATED

        with monkeypatch.context() as patch:
            patch.setattr(AutoConfig, "from_pretrained", gated)
            refused(lambda: source("some/model"), "some/model@step0 is gated", "hf auth login")
        opened = source("some/model")
        monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", gated)
        refused(lambda: source.load(0, CPU), "some/model@step0 is gated", "hf auth login")


class TestMessages:
    @pytest.mark.parametrize("wrapped", [False, True])
    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (GATED, "is gated: accept its terms on the hub and log in with `hf auth login`"),
            (NO_REVISION, "no such revision on the hub"),
            (NO_REPOSITORY, "no such repository on the hub, or it is private and you are not logged in"),
            (TOO_MANY, "cannot be reached (HfHubHTTPError)"),
            (OFFLINE, "cannot be reached (OfflineModeIsEnabled)"),
            (NOT_CACHED, "cannot be reached (LocalEntryNotFoundError)"),
            (ConnectionResetError("reset"), "cannot be reached (ConnectionResetError)"),
        ],
    )
    def test_each_failure_says_what_to_do(self, error: Exception, says: str, wrapped: bool) -> None:
        if wrapped:
            wrapper = OSError("something else\non two lines")
            wrapper.__cause__ = error
            error = wrapper
        for revision, where in ((None, "some/model"), ("step7", "some/model@step7")):
            found = hub_error("some/model", error, revision)
            assert isinstance(found, UserError)
            assert re.match(rf"{where}\b", str(found))
            assert says in str(found)
            assert "\n" not in str(found)

    def test_the_cause_behind_the_cause_stays_out_of_it(self) -> None:
        """As it is with no network: transformers' error, the hub library's, and the socket's."""
        wrapper, unreachable = OSError("We couldn't connect"), OSError(101, "Network is unreachable")
        wrapper.__cause__ = errors.LocalEntryNotFoundError("not in the cache")
        wrapper.__cause__.__cause__ = unreachable
        assert "cannot be reached (LocalEntryNotFoundError)" in str(hub_error("some/model", wrapper))

    def test_a_model_that_cannot_be_used_is_not_called_unreachable(self) -> None:
        unknown = ValueError("The checkpoint has model type `nonsense`,\nwhich is not recognized.")
        message = str(hub_error("some/model", unknown))
        assert message.startswith("some/model cannot be loaded")
        assert "`nonsense`, which" in message
        full = OSError(28, "No space left on device")
        assert "cannot be loaded ([Errno 28] No space left on device)" in str(hub_error("some/model", full))

    def test_a_name_that_the_hub_forbids(self) -> None:
        refused(lambda: source("a..b/c"), "a..b/c cannot be loaded", "repo_id")


def test_nothing_here_can_reach_a_network() -> None:
    with pytest.raises(subject.UserError, match=NETWORK):
        source("EleutherAI/pythia-160m")
