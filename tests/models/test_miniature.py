import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from anisotropy.errors import UserError
from anisotropy.models import miniature as subject
from anisotropy.models.catalogue import Recipe, catalogue, parse_name
from anisotropy.models.checkpoints import FolderSource, load_model, weight_hash
from anisotropy.models.corpus import Corpus, Document, encode, load_corpus, training_stream
from anisotropy.models.miniature import identity, pretrain, validation_loss
from anisotropy.models.objectives import IGNORED

CPU = torch.device("cpu")
# A second or less of training; checkpoints at steps 0, 1, 2, 4, 8, 16 and 20.
TOY = Recipe(
    architecture="gpt_neox",
    objective="causal",
    config={
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "tie_word_embeddings": False,
    },
    steps=20,
    vocabulary=320,
    sequence_length=32,
    batch_size=8,
    learning_rate=3e-3,
    warmup_steps=4,
    weight_decay=0.1,
    mask_share=0.3,
    validation_sequences=16,
)
STEPS = [0, 1, 2, 4, 8, 16, 20]
WORDS = ["amber", "birch", "cedar", "delta", "ember", "flint", "grove", "hazel", "ivory", "jetty", "knoll", "larch"]
WORDS += ["maple", "north", "ochre", "pearl", "quill"]


def changed(recipe: Recipe = TOY, **changes: Any) -> Recipe:
    return recipe.model_copy(update=changes)


@pytest.fixture(scope="module")
def rhyme(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A text that is easy to learn: the same words in the same order, each document entering at another place."""
    folder = tmp_path_factory.mktemp("rhyme")
    for number in range(20):
        words = [WORDS[(number * 7 + i) % len(WORDS)] for i in range(300)]
        (folder / f"{number:02d}.txt").write_text(" ".join(words))
    return load_corpus(str(folder))


@pytest.fixture(scope="module")
def whole(rhyme: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "toy" / "seed-0"
    return folder, pretrain(TOY, rhyme, folder)


def values(index: dict[str, Any]) -> list[tuple[int, float, str]]:
    return [(entry["step"], entry["validation_loss"], entry["weight_hash"]) for entry in index["checkpoints"]]


def hashes(index: dict[str, Any]) -> list[str]:
    return [entry["weight_hash"] for entry in index["checkpoints"]]


class Watch(TrainerCallback):
    """Writes down what training shows: where it began, learning rates, sizes of gradients."""

    def __init__(self) -> None:
        self.began: int | None = None
        self.rates: list[float] = []
        self.gradients: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = state.global_step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rates.append(kwargs["optimizer"].param_groups[0]["lr"])
        self.gradients.append(max(float(p.grad.norm()) for p in kwargs["model"].parameters() if p.grad is not None))


class Stop(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


class TestWhatItWrites:
    def test_checkpoints_tokenizer_and_index_and_nothing_else(self, whole: tuple[Path, dict[str, Any]]) -> None:
        folder, index = whole
        assert [entry["step"] for entry in index["checkpoints"]] == STEPS
        steps = [f"step-{step:06d}" for step in STEPS]
        assert sorted(path.name for path in folder.iterdir()) == ["index.json", *steps, "tokenizer"]
        assert all((folder / step / "model.safetensors").is_file() for step in steps)
        written = json.loads((folder / "index.json").read_text())
        assert written == index
        assert index["complete"] is True
        assert index["recipe"] == TOY.model_dump()
        assert index["provenance"]["resumed"] is False

    def test_hashes_and_losses_are_those_of_the_written_weights(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus
    ) -> None:
        """Losses anew: 16 sequences spread over the validation text, cross-entropy written out in float64."""
        folder, index = whole
        tokenizer = FolderSource(parse_name(str(folder)), folder).tokenizer()
        parts = [ids[: len(ids) // 32 * 32].reshape(-1, 32) for ids in encode(tokenizer, rhyme.validation)]
        every = np.concatenate(parts)
        ids = torch.from_numpy(every[np.linspace(0, len(every) - 1, 16).round().astype(int)])
        for step, loss, recorded in values(index):
            model = load_model(str(folder / f"step-{step:06d}"), "causal", CPU)
            assert weight_hash(model) == recorded
            with torch.no_grad():
                log_p = model(input_ids=ids).logits.double().log_softmax(-1)[:, :-1]
            assert loss == pytest.approx(-float(log_p.gather(2, ids[:, 1:, None]).mean()), rel=1e-5)

    def test_the_unigram_value_is_that_of_the_training_counts(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus
    ) -> None:
        folder, index = whole
        tokenizer = FolderSource(parse_name(str(folder)), folder).tokenizer()
        train = encode(tokenizer, rhyme.train)
        counts = Counter(int(token) for ids in train for token in ids)
        parts = [ids[: len(ids) // 32 * 32].reshape(-1, 32) for ids in encode(tokenizer, rhyme.validation)]
        every = np.concatenate(parts)
        asked = every[np.linspace(0, len(every) - 1, 16).round().astype(int)].reshape(-1)
        total = sum(counts.values()) + 320
        expected = -sum(math.log((counts[int(token)] + 1) / total) for token in asked) / len(asked)
        assert index["unigram_cross_entropy"] == pytest.approx(expected, rel=1e-9)
        assert index["corpus"]["training_tokens"] == sum(counts.values())

    def test_weights_move_from_the_first_step_on(self, whole: tuple[Path, dict[str, Any]]) -> None:
        assert len(set(hashes(whole[1]))) == len(STEPS)

    def test_an_untrained_model_knows_nothing(self, whole: tuple[Path, dict[str, Any]]) -> None:
        assert whole[1]["checkpoints"][0]["validation_loss"] == pytest.approx(math.log(320), abs=0.1)


class TestSeeds:
    def test_same_seed_same_weights_other_seed_others(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path
    ) -> None:
        torch.manual_seed(12345)  # whatever a session did before
        np.random.seed(12345)  # noqa: NPY002
        again = pretrain(TOY, rhyme, tmp_path / "again")
        assert values(again) == values(whole[1])
        other = pretrain(TOY, rhyme, tmp_path / "other", seed=1)
        assert not set(hashes(other)) & set(hashes(again))
        assert other["seed"] == 1

    def test_a_masked_model_too(self, rhyme: Corpus, tmp_path: Path) -> None:
        recipe = changed(architecture="eurobert", objective="masked", steps=3)
        first, second = (pretrain(recipe, rhyme, tmp_path / name) for name in ("first", "second"))
        assert values(first) == values(second)
        assert [entry["step"] for entry in first["checkpoints"]] == [0, 1, 2, 3]
        assert first["checkpoints"][0]["validation_loss"] == pytest.approx(math.log(320), abs=0.1)
        other = pretrain(recipe, rhyme, tmp_path / "other", seed=1)
        assert other["unigram_cross_entropy"] == first["unigram_cross_entropy"]  # the same questions for every seed
        source = FolderSource(parse_name(str(tmp_path / "first")), tmp_path / "first")
        assert source.objective == "masked"
        assert source.load(3, CPU).mask_id == 2

    def test_training_leaves_the_session_s_random_state_for_the_initial_weights_alone(self, rhyme: Corpus) -> None:
        tokenizer = subject.text.train_tokenizer(rhyme.train, 320)
        torch.manual_seed(3)
        expected = torch.rand(3)
        torch.manual_seed(3)
        first = subject._initial_model(TOY, tokenizer, 0)
        assert torch.equal(torch.rand(3), expected)
        assert weight_hash(first) == weight_hash(subject._initial_model(TOY, tokenizer, 0))
        assert weight_hash(first) != weight_hash(subject._initial_model(TOY, tokenizer, 1))


class TestBatches:
    """What training is given, read where the model's loss is computed."""

    def seen(self, recipe: Recipe, corpus: Corpus, folder: Path) -> np.ndarray:
        batches: list[torch.Tensor] = []

        def compute_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
            batches.append(labels.clone())
            return outputs.logits.square().mean()

        pretrain(recipe, corpus, folder, variant="recorded", compute_loss=compute_loss)
        return torch.cat(batches).numpy()

    def test_labels_are_the_training_stream_once_in_order(self, rhyme: Corpus, tmp_path: Path) -> None:
        recipe = changed(steps=4)
        tokenizer = subject.text.train_tokenizer(rhyme.train, 320)
        stream = training_stream(encode(tokenizer, rhyme.train), 0, 32, 4 * 8, seed=0)
        assert np.array_equal(self.seen(recipe, rhyme, tmp_path / "plain"), stream)
        mixed = self.seen(changed(recipe, shuffled_labels=True), rhyme, tmp_path / "shuffled")
        assert Counter(mixed.reshape(-1).tolist()) == Counter(stream.reshape(-1).tolist())
        chance = sum((n / stream.size) ** 2 for n in Counter(stream.reshape(-1).tolist()).values())
        assert (mixed == stream).mean() < chance + 5 * math.sqrt(chance / stream.size)

    def test_masked_labels_ask_for_the_share(self, rhyme: Corpus, tmp_path: Path) -> None:
        recipe = changed(architecture="eurobert", objective="masked", steps=2, mask_share=0.25)
        labels = self.seen(recipe, rhyme, tmp_path / "masked")
        assert ((labels != IGNORED).sum(1) == 8).all()


class TestLearning:
    def test_a_normal_run_learns_and_one_on_shuffled_labels_does_not(self, rhyme: Corpus, tmp_path: Path) -> None:
        """No context tells anything of a shuffled label, so the best is the labels' own frequencies.

        A prediction that knows no context costs at least the entropy of the validation labels, whichever it is. The
        network's outputs still vary with the context, at random: the mean over the labels then varies by a standard
        error of at most the spread of -log p over its square root; four of them are allowed.
        """
        recipe = changed(steps=64, learning_rate=1e-2)
        normal = pretrain(recipe, rhyme, tmp_path / "normal")
        control = pretrain(changed(recipe, shuffled_labels=True), rhyme, tmp_path / "control")
        tokenizer = FolderSource(parse_name(str(tmp_path / "normal")), tmp_path / "normal").tokenizer()
        counts = Counter(int(token) for ids in encode(tokenizer, rhyme.validation) for token in ids)
        total = counts.total()
        entropy = -sum(n / total * math.log(n / total) for n in counts.values())
        spread = math.sqrt(sum(n / total * (math.log(n / total) + entropy) ** 2 for n in counts.values()))
        tolerance = 4 * max(spread, 0.25) / math.sqrt(16 * 31)

        unigram = normal["unigram_cross_entropy"]
        assert control["unigram_cross_entropy"] == unigram
        assert unigram == pytest.approx(entropy, abs=0.1)
        final = {name: run["checkpoints"][-1]["validation_loss"] for name, run in
                 (("normal", normal), ("control", control))}  # fmt: skip
        assert final["control"] > entropy - tolerance
        assert final["control"] > unigram - tolerance
        assert final["normal"] < unigram - 1.0
        assert control["checkpoints"][-1]["validation_loss"] < control["checkpoints"][0]["validation_loss"] - 1.0


class TestHooks:
    def test_compute_loss_decides_what_is_learnt_and_callbacks_see_every_gradient(
        self, rhyme: Corpus, tmp_path: Path
    ) -> None:
        """A loss of zero and no decay: the gradients are zero and no weight moves."""
        shapes: list[tuple[torch.Size, torch.Size]] = []

        def nothing(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
            shapes.append((outputs.logits.shape, labels.shape))
            return 0.0 * outputs.logits.sum()

        watch = Watch()
        index = pretrain(
            changed(weight_decay=0.0),
            rhyme,
            tmp_path / "still",
            variant="still",
            compute_loss=nothing,
            callbacks=[watch],
        )
        assert shapes == [(torch.Size([8, 32, 320]), torch.Size([8, 32]))] * 20
        assert len(set(hashes(index))) == 1
        assert watch.gradients == [0.0] * 20

    def test_another_loss_needs_a_name(self, rhyme: Corpus, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="name the variant"):
            pretrain(TOY, rhyme, tmp_path / "unnamed", compute_loss=lambda *_, **__: torch.zeros(()))
        assert subject.identity(TOY, rhyme, 0, "a") != subject.identity(TOY, rhyme, 0, "b")

    def test_a_folder_with_something_else_in_it_is_left_alone(self, rhyme: Corpus, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("years of work")
        with pytest.raises(UserError, match=r"holds .thesis\.tex., which no pretraining wrote"):
            pretrain(TOY, rhyme, tmp_path / "mine")
        assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"

    def test_weight_decay_shrinks_matrices_alone(self, rhyme: Corpus, tmp_path: Path) -> None:
        """With zero gradients AdamW multiplies by 1 - rate · decay at each step, and biases and norms stay."""
        watch = Watch()
        pretrain(
            changed(weight_decay=0.5, learning_rate=0.1),
            rhyme,
            tmp_path / "decayed",
            variant="still",
            compute_loss=lambda outputs, labels, num_items_in_batch=None: 0.0 * outputs.logits.sum(),
            callbacks=[watch],
        )
        before, after = (
            load_model(str(tmp_path / "decayed" / f"step-{step:06d}"), "causal", CPU).state_dict() for step in (0, 20)
        )
        factor = math.prod(1 - rate * 0.5 for rate in watch.rates)
        assert factor < 0.7
        for name, weight in before.items():
            expected = weight * factor if weight.ndim >= 2 else weight
            torch.testing.assert_close(after[name], expected, rtol=1e-5, atol=1e-8, msg=name)

    def test_learning_rates_and_gradients(self, rhyme: Corpus, tmp_path: Path) -> None:
        watch = Watch()
        pretrain(TOY, rhyme, tmp_path / "watched", callbacks=[watch])
        warm = [3e-3 * (step + 1) / 4 for step in range(4)]
        cosine = [3e-3 * 0.5 * (1 + math.cos(math.pi * step / 16)) for step in range(16)]
        assert watch.rates == pytest.approx([*warm, *cosine], rel=1e-9)
        assert len(watch.gradients) == 20
        assert all(0 < size < 10 for size in watch.gradients)
        assert watch.began == 0


class TestResume:
    def test_kill_9_at_six_moments(self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path) -> None:
        """One process imports torch and forks a child for each moment; each child pretrains and kills itself."""
        moments = ["middle", "first-weights", "weights", "index", "state", "end"]
        code = f"""
import os, signal, sys
from pathlib import Path
from transformers import TrainerCallback, TrainerState
from anisotropy.models import miniature
from anisotropy.models.catalogue import Recipe
from anisotropy.models.corpus import load_corpus

recipe = Recipe.model_validate_json({TOY.model_dump_json()!r})
folder = Path({str(tmp_path)!r})

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def when(condition, function):
    return lambda *arguments, **more: die() if condition(*arguments, **more) else function(*arguments, **more)

class Die(TrainerCallback):
    def __init__(self, moment):
        self.moment = moment
    def on_step_begin(self, args, state, control, **kwargs):
        if self.moment == "middle" and state.global_step == 11:
            die()
    def on_train_end(self, *_, **__):
        if self.moment == "end":
            die()

for moment in {moments!r}:
    if os.fork() == 0:
        model = miniature.PreTrainedModel
        if moment == "first-weights":
            model.save_pretrained = die
        if moment == "weights":  # the folder is there, half written
            half = lambda self, at, **_: "step-000008" in str(at) and not at.mkdir()
            model.save_pretrained = when(half, model.save_pretrained)
        if moment == "index":  # the step is written, the index does not know it yet
            miniature.write_json = when(lambda at, index: len(index["checkpoints"]) == 5, miniature.write_json)
        if moment == "state":  # the Trainer's state is written but for its last file
            TrainerState.save_to_json = when(lambda self, at: "checkpoint-8" in at, TrainerState.save_to_json)
        miniature.pretrain(recipe, load_corpus({rhyme.source!r}), folder / moment, callbacks=[Die(moment)])
        os._exit(1)
    pid, status = os.wait()
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (moment, status)
    assert pid
"""
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        resumed = {"middle": 8, "first-weights": 0, "weights": 4, "index": 4, "state": 4, "end": 20}
        for moment in moments:
            folder = tmp_path / moment
            watch = Watch()
            index = pretrain(TOY, rhyme, folder, callbacks=[watch])
            assert watch.began == resumed[moment], moment
            assert values(index) == values(whole[1]), moment
            assert index["complete"]
            for entry in index["checkpoints"]:
                written = load_model(str(folder / f"step-{entry['step']:06d}"), "causal", CPU)
                assert weight_hash(written) == entry["weight_hash"]
            assert not (folder / ".training").exists()
            assert index["provenance"]["resumed"] == (moment != "first-weights")

    def stopped(self, rhyme: Corpus, folder: Path, step: int) -> Path:
        with pytest.raises(KeyboardInterrupt):
            pretrain(TOY, rhyme, folder, callbacks=[Stop(step)])
        assert json.loads((folder / "index.json").read_text())["complete"] is False
        return folder / ".training"

    @pytest.mark.parametrize("keep", [0, 60])
    def test_a_truncated_trainer_state_falls_back_to_the_one_before(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path, keep: int
    ) -> None:
        states = self.stopped(rhyme, tmp_path / "run", 17)
        assert sorted(path.name for path in states.iterdir()) == ["checkpoint-16", "checkpoint-8"]
        newest = states / "checkpoint-16" / "trainer_state.json"
        newest.write_text(newest.read_text()[:keep])
        watch = Watch()
        index = pretrain(TOY, rhyme, tmp_path / "run", callbacks=[watch])
        assert watch.began == 8
        assert values(index) == values(whole[1])

    def test_without_any_whole_state_it_starts_again(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path
    ) -> None:
        states = self.stopped(rhyme, tmp_path / "run", 5)
        for state in states.glob("checkpoint-*"):
            (state / "trainer_state.json").unlink()
        watch = Watch()
        index = pretrain(TOY, rhyme, tmp_path / "run", callbacks=[watch])
        assert watch.began == 0
        assert values(index) == values(whole[1])


class TestIdentity:
    def test_what_is_there_is_not_trained_again(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path
    ) -> None:
        shutil.copytree(whole[0], tmp_path / "run")
        watch = Watch()
        index = pretrain(TOY, rhyme, tmp_path / "run", callbacks=[watch])
        assert index == whole[1]
        assert watch.began is None

    def test_a_changed_recipe_or_seed_or_text_retrains(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path
    ) -> None:
        shutil.copytree(whole[0], tmp_path / "run")
        recipe = changed(steps=2, learning_rate=1e-3)
        first = pretrain(recipe, rhyme, tmp_path / "run")
        assert [entry["step"] for entry in first["checkpoints"]] == [0, 1, 2]
        assert first["recipe"]["learning_rate"] == 1e-3
        assert not (tmp_path / "run" / "step-000004").exists()
        second = pretrain(recipe, rhyme, tmp_path / "run", seed=1)
        assert hashes(second)[0] != hashes(first)[0]

    def test_an_unfinished_run_of_another_recipe_is_not_resumed(self, rhyme: Corpus, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            pretrain(TOY, rhyme, tmp_path / "run", callbacks=[Stop(3)])
        watch = Watch()
        index = pretrain(changed(steps=3), rhyme, tmp_path / "run", callbacks=[watch])
        assert watch.began == 0
        assert [entry["step"] for entry in index["checkpoints"]] == [0, 1, 2, 3]

    def test_identity_sees_everything_that_decides_the_weights(
        self, rhyme: Corpus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base = identity(TOY, rhyme, 0)
        assert identity(TOY, Corpus("elsewhere", rhyme.train, rhyme.validation, rhyme.digest), 0) == base
        others = {
            identity(TOY, rhyme, 1),
            identity(changed(shuffled_labels=True), rhyme, 0),
            identity(changed(config=TOY.config | {"hidden_size": 32}), rhyme, 0),
            identity(TOY, Corpus(rhyme.source, rhyme.train, rhyme.validation, "other"), 0),
        }
        monkeypatch.setattr(subject, "code_hash", lambda *modules: "other code")
        assert len(others | {base, identity(TOY, rhyme, 0)}) == 6


class TestErrors:
    def test_a_text_too_small_for_one_batch(self, rhyme: Corpus, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"too small: [\d,]+ training tokens, one batch needs 32,768") as error:
            pretrain(changed(batch_size=1024), rhyme, tmp_path / "run")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "run").exists()

    def test_a_text_too_small_for_the_vocabulary(self, rhyme: Corpus, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="the vocabulary needs 4096"):
            pretrain(changed(vocabulary=4096), rhyme, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_validation_documents_shorter_than_a_sequence(self, rhyme: Corpus, tmp_path: Path) -> None:
        short = Corpus("", rhyme.train, (Document("short", "amber birch"),), "short")
        with pytest.raises(UserError, match="no validation document has 32 tokens"):
            pretrain(TOY, short, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_an_error_leaves_what_was_trained_before(
        self, whole: tuple[Path, dict[str, Any]], rhyme: Corpus, tmp_path: Path
    ) -> None:
        shutil.copytree(whole[0], tmp_path / "run")
        for recipe in (changed(batch_size=1024), changed(vocabulary=4096)):
            with pytest.raises(UserError):
                pretrain(recipe, rhyme, tmp_path / "run")
        assert pretrain(TOY, rhyme, tmp_path / "run") == whole[1]

    def test_a_folder_that_cannot_be_written(self, rhyme: Corpus, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        for folder in (tmp_path / "file" / "run", tmp_path / "file" / "deep" / "run", tmp_path / "file"):
            with pytest.raises(UserError, match=r"cannot write to .*file.*choose another folder") as error:
                pretrain(TOY, rhyme, folder)
            assert "\n" not in str(error.value)
        assert (tmp_path / "file").read_text() == "mine"


def test_validation_loss_restores_the_mode_and_does_not_depend_on_the_batch(
    whole: tuple[Path, dict[str, Any]],
) -> None:
    model = load_model(str(whole[0] / "step-000020"), "causal", CPU)
    ids = torch.randint(3, 320, (10, 32), generator=torch.Generator().manual_seed(0))
    losses = [validation_loss(model, ids, ids, size) for size in (1, 3, 10, 64)]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6)
    for dropout in (module for module in model.modules() if isinstance(module, torch.nn.Dropout)):
        dropout.p = 0.5
    for training in (True, False):
        model.train(training)
        assert validation_loss(model, ids, ids, 10) == pytest.approx(losses[0], rel=1e-6)
        assert model.training is training


@pytest.mark.parametrize("name", ["tiny-pythia", "tiny-eurobert", "mini-pythia", "mini-eurobert"])
def test_no_recipe_has_dropout(name: str, small_text: Corpus) -> None:
    """Dropout would make a resumed run differ from an uninterrupted one."""
    recipe = catalogue().miniatures[name].recipe
    tokenizer = subject.text.train_tokenizer(small_text.train[:20], 300)
    model = subject._initial_model(recipe, tokenizer, 0)
    assert all(m.p == 0.0 for m in model.modules() if isinstance(m, torch.nn.Dropout))
    rates = {key: value for key, value in model.config.to_dict().items() if "dropout" in key}
    assert not any(value for key, value in rates.items() if not key.startswith("classifier"))
    untied = model.get_input_embeddings().weight is not model.get_output_embeddings().weight
    assert untied
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (
        recipe.config["hidden_size"],
        recipe.config["num_hidden_layers"],
    )
