import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anisotropy.errors import UserError
from anisotropy.models.catalogue import Catalogue, Miniature, ModelName, Recipe, catalogue, parse_name

# name: hub id, d, layers, vocabulary, tied, paper; from the table of models.md
FACTS: dict[str, tuple[str, int, int, int, bool, bool]] = {
    "pythia-160m": ("EleutherAI/pythia-160m", 768, 12, 50304, False, True),
    "pythia-410m": ("EleutherAI/pythia-410m", 1024, 24, 50304, False, True),
    "pythia-1b": ("EleutherAI/pythia-1b", 2048, 16, 50304, False, True),
    "pythia-1.4b": ("EleutherAI/pythia-1.4b", 2048, 24, 50304, False, True),
    "smollm2-135m": ("HuggingFaceTB/SmolLM2-135M-intermediate-checkpoints", 576, 30, 49152, True, False),
    "smollm2-360m": ("HuggingFaceTB/SmolLM2-360M-intermediate-checkpoints", 960, 32, 49152, True, True),
    "smollm2-1.7b": ("HuggingFaceTB/SmolLM2-1.7B-intermediate-checkpoints", 2048, 24, 49152, True, True),
    "eurobert-210m": ("EuroBERT/EuroBERT-210m", 768, 12, 128256, False, True),
    "eurobert-610m": ("EuroBERT/EuroBERT-610m", 1152, 26, 128256, False, True),
    "gaperon-1.5b": ("almanach/Gaperon-1125-1B", 2048, 16, 128256, False, True),
    "moderncamembert": ("almanach/moderncamembert-base", 768, 22, 32768, True, True),
    "olmo-1b": ("allenai/OLMo-1B-hf", 2048, 16, 50304, True, True),
}
PYTHIA = {f"step{step}": step for step in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 143000)}
# branches by the names that models.md gives, with their steps
BRANCHES: dict[str, dict[str, int]] = {
    **dict.fromkeys(("pythia-160m", "pythia-410m", "pythia-1b", "pythia-1.4b"), PYTHIA),
    "smollm2-135m": {"step-240000": 240000, "step-480000": 480000},
    "smollm2-360m": {"step-160000": 160000, "step-2560000": 2560000},
    "smollm2-1.7b": {"step-125000": 125000, "step-250000": 250000},
    "eurobert-210m": {"step10000": 10000, "step480000": 480000},
    "eurobert-610m": {"step10000": 10000},
    "olmo-1b": {"step1000-tokens4B": 1000, "step738020-tokens3094B": 738020},
}


def recipe(**changes: Any) -> Recipe:
    return Recipe(architecture="gpt_neox", objective="causal", config={}, **{"steps": 10, **changes})


class TestRecipe:
    @given(st.integers(1, 3000))
    def test_checkpoint_steps_by_the_rule(self, steps: int) -> None:
        """0, powers of two up to 256, then every 64; and the end of training, whatever it is."""
        rule = {0} | {s for s in range(1, 257) if s.bit_count() == 1} | {s for s in range(257, 3001) if s % 64 == 0}
        found = recipe(steps=steps).checkpoint_steps()
        assert set(found) == {s for s in rule if s <= steps} | {steps}
        assert found == sorted(set(found))

    def test_checkpoint_steps_of_the_miniatures(self) -> None:
        entries = catalogue().miniatures
        powers = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
        assert entries["mini-pythia"].recipe.checkpoint_steps() == [*powers, 320, 384, 448]
        assert entries["mini-eurobert"].recipe.checkpoint_steps() == [*powers, 320, 384, 448, 512]
        assert entries["tiny-pythia"].recipe.checkpoint_steps() == powers[:8]

    def test_tokens_per_step(self) -> None:
        assert recipe(batch_size=7, sequence_length=11).tokens_per_step == 77

    @pytest.mark.parametrize(
        "changes",
        [
            {"steps": 0},
            {"vocabulary": 299},
            {"sequence_length": 1},
            {"batch_size": 0},
            {"learning_rate": 0.0},
            {"warmup_steps": -1},
            {"mask_share": 0.0},
            {"mask_share": 1.0},
            {"validation_sequences": 0},
            {"objective": "prefix"},
            {"typo": 1},
        ],
    )
    def test_values_that_make_no_sense_are_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match=next(iter(changes))):
            Recipe(**{"architecture": "gpt_neox", "objective": "causal", "config": {}, "steps": 10, **changes})


class TestCatalogue:
    def test_the_issue_s_miniatures(self) -> None:
        entries = catalogue().miniatures
        for name, architecture, objective in (
            ("mini-pythia", "gpt_neox", "causal"),
            ("mini-eurobert", "eurobert", "masked"),
            ("tiny-pythia", "gpt_neox", "causal"),
            ("tiny-eurobert", "eurobert", "masked"),
        ):
            assert (entries[name].recipe.architecture, entries[name].objective) == (architecture, objective)
            assert entries[name].recipe.config["tie_word_embeddings"] is False
        for name in ("mini-pythia", "mini-eurobert"):
            config = entries[name].recipe.config
            assert (config["hidden_size"], config["num_hidden_layers"]) == (128, 4)
            assert (entries[name].recipe.vocabulary, entries[name].recipe.sequence_length) == (4096, 128)

    def test_a_control_is_the_same_training_on_shuffled_labels(self) -> None:
        entries = catalogue().miniatures
        controls = {name: entry.control_of for name, entry in entries.items() if entry.control_of}
        assert set(controls) == {"mini-pythia-shuffled", "mini-eurobert-shuffled", "tiny-pythia-shuffled"}
        for control, of in controls.items():
            assert of is not None
            assert entries[control].recipe == entries[of].recipe.model_copy(update={"shuffled_labels": True})
            assert not entries[of].recipe.shuffled_labels
            assert catalogue().control(of) == control
            assert catalogue().control(control) is None
        assert catalogue().control("tiny-eurobert") is None

    def test_a_control_of_nothing_is_refused(self) -> None:
        entry = Miniature(title="a", recipe=recipe(), control_of="b")
        with pytest.raises(ValidationError, match="control_of names 'b', which is no miniature"):
            Catalogue(miniatures={"a": entry}, hub={})

    def test_facts_of_the_hub_models(self) -> None:
        found = {
            name: (entry.hub, entry.hidden_size, entry.layers, entry.vocabulary, entry.tied, entry.paper)
            for name, entry in catalogue().hub.items()
        }
        assert found == FACTS
        masked = {name for name, entry in catalogue().hub.items() if entry.objective == "masked"}
        assert masked == {"eurobert-210m", "eurobert-610m", "moderncamembert"}

    @pytest.mark.parametrize("name", FACTS)
    def test_branch_pattern(self, name: str) -> None:
        pattern = re.compile(catalogue().hub[name].branch)
        assert pattern.groups == 1
        for branch, step in BRANCHES.get(name, {}).items():
            match = pattern.fullmatch(branch)
            assert match is not None, branch
            assert int(match[1]) == step
        for other in ("main", "step", "refs/pr/1", "step1000-old", "xstep1000", "stepx"):
            assert not pattern.fullmatch(other), other

    def test_what_nobody_confirmed_names_real_fields(self) -> None:
        for name, entry in catalogue().hub.items():
            assert set(entry.unconfirmed) <= set(type(entry).model_fields), name

    def test_names_are_unique_and_complete(self) -> None:
        names = catalogue().names()
        assert len(names) == len(set(names)) == len(catalogue().miniatures) + len(catalogue().packages) + len(FACTS)


class TestParseName:
    @pytest.mark.parametrize("name", catalogue().miniatures)
    def test_miniatures_with_and_without_seed(self, name: str) -> None:
        assert parse_name(name) == ModelName(kind="miniature", name=name, seed=0)
        assert parse_name(f"{name}@0").label == name
        assert parse_name(f"{name}@12") == ModelName(kind="miniature", name=name, seed=12)
        assert parse_name(f"{name}@12").label == f"{name}@12"
        assert parse_name(f"{name}@12").title.endswith(", seed 12")
        assert parse_name(parse_name(f"{name}@12").label) == parse_name(f"{name}@12")

    @pytest.mark.parametrize("name", FACTS)
    def test_hub_models_of_the_catalogue(self, name: str) -> None:
        assert parse_name(name) == ModelName(kind="hub", name=name)

    def test_hub_ids(self) -> None:
        for name in ("EleutherAI/pythia-160m", "openai-community/gpt2", "Qwen/Qwen2.5-0.5B"):
            assert parse_name(name) == ModelName(kind="hub", name=name)
            assert parse_name(name).title == parse_name(name).label == name

    @pytest.mark.parametrize("base", ["pythia-160m", "openai-community/gpt2"])
    def test_revisions_of_hub_models(self, base: str) -> None:
        for text in (f"{base}@main", f"{base}@stage1-*+v1.0", f"{base}@{'12' * 20}"):
            name = parse_name(text)
            assert (name.kind, name.name, name.label) == ("hub", base, text)
            assert "+".join(name.revisions) == text.partition("@")[2]
            assert parse_name(name.label) == name
        for text in (f"{base}@", f"{base}@a b", f"{base}@a++b", f"{base}@7", f"{base}@a,b"):  # @7 is a training seed
            with pytest.raises(UserError, match="unknown model"):
                parse_name(text)

    def test_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "owner" / "model"
        folder.mkdir(parents=True)
        assert parse_name(str(folder)) == ModelName(kind="folder", name=str(folder))
        assert parse_name(str(folder)).title == "model"
        monkeypatch.chdir(tmp_path)
        assert parse_name("owner/model").kind == "folder"  # what exists here comes before the hub
        monkeypatch.setenv("HOME", str(tmp_path))
        assert parse_name("~/owner") == ModelName(kind="folder", name=str(tmp_path / "owner"))

    def test_the_catalogue_comes_before_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("mini-pythia", "pythia-160m"):
            (tmp_path / name).mkdir()
        assert parse_name("mini-pythia").kind == "miniature"
        assert parse_name("pythia-160m").kind == "hub"

    @pytest.mark.parametrize(
        ("text", "near"),
        [
            ("mini-pythai", "mini-pythia"),
            ("minipythia", "mini-pythia"),
            ("tiny-eurobret", "tiny-eurobert"),
            ("pythia-160", "pythia-160m"),
            ("mini-pythia@one", "mini-pythia"),
            ("mini-pythia@-1", "mini-pythia"),
            ("pythia-160m@1", "pythia-160m"),
            ("zzzzzz", "mini-pythia"),  # nothing near: all are listed
            ("/no/such/folder", "olmo-1b"),
            ("", "olmo-1b"),
        ],
    )
    def test_unknown_names_list_the_nearest(self, text: str, near: str) -> None:
        with pytest.raises(UserError) as error:
            parse_name(text)
        message = str(error.value)
        assert "\n" not in message
        assert repr(text) in message
        assert near in re.split(r"[ ,?]+", message.partition("did you mean")[2])
        assert "anisotropy models" in message
