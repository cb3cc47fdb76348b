"""What all tests share: no network, reproducible hypothesis, a small corpus, and one small pretrained model.

``small_corpus`` is a folder of text files, ``small_text`` the same loaded and split, ``tiny_run`` the folder and the
index of a model pretrained on it in two seconds. They are made once a session: copy what you want to change.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from smoke_book import Project

    from anisotropy.models.catalogue import Recipe
    from anisotropy.models.corpus import Corpus

# Side by side, each process has its share of the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Read by huggingface_hub and torch when they are imported, here and in the processes that tests start.
_HUB_HOME = tempfile.mkdtemp(prefix="anisotropy-hub-")
for _variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT"):
    os.environ.pop(_variable, None)
os.environ |= {"HF_HOME": _HUB_HOME, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def _needs_the_smoke_book(nodeid: str) -> bool:
    """Whether a test reads the smoke book; two processes would build it twice."""
    own = ("tests/runs/test_workflow.py", "tests/notebooks/")
    return nodeid.startswith(own) or (nodeid.startswith("tests/site/") and "[smoke" in nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process takes all tests of the smoke book, the others the rest, file by file."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "smoke book" if _needs_the_smoke_book(nodeid) else nodeid.partition("::")[0]

    return Scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not _needs_the_smoke_book(item.nodeid))


def pytest_unconfigure() -> None:
    shutil.rmtree(_HUB_HOME, ignore_errors=True)


def _sentences(random: np.random.Generator, lexicon: list[str], characters: int) -> str:
    """Text whose words have five successors, one of them half the time, and now and then jump to a frequent word."""
    text, word = "", int(random.integers(20))
    while len(text) < characters:
        words = []
        for _ in range(random.integers(5, 16)):
            words.append(lexicon[word])
            word = (7 * word + 3 + int(random.choice([0, 0, 0, 0, 11, 53, 101, 190]))) % len(lexicon)
            if random.random() < 0.3:
                word = min(int(random.zipf(1.3)), len(lexicon)) - 1
        text += " ".join(words).capitalize() + random.choice([". ", ".\n", ".\n\n"])
    return text


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 240 documents, 24 of them for validation: enough for the tiny recipes and for 20 blocks."""
    random = np.random.default_rng(20)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    lexicon = ["".join(random.choice(syllables, size=random.integers(1, 4))) for _ in range(400)]
    folder = tmp_path_factory.mktemp("small-corpus")
    for number in range(240):
        (folder / f"document-{number:03d}.txt").write_text(_sentences(random, lexicon, 1500), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def small_text(small_corpus: Path) -> "Corpus":
    """``small_corpus``, loaded and split."""
    from anisotropy.models.corpus import load_corpus

    return load_corpus(str(small_corpus))


@pytest.fixture(scope="session")
def tiny_recipe() -> "Recipe":
    """The catalogue's tiny-pythia, half as long: checkpoints at steps 0, 1, 2, 4, 8, 16 and 32."""
    from anisotropy.models.catalogue import catalogue

    return catalogue().miniatures["tiny-pythia"].recipe.model_copy(update={"steps": 32, "warmup_steps": 4})


@pytest.fixture(scope="session")
def tiny_run(
    small_text: "Corpus", tiny_recipe: "Recipe", tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A pretrained causal model: its folder (``folder.parents[1]`` is a root of checkpoints) and its index."""
    from anisotropy.models.miniature import pretrain

    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-pythia" / "seed-0"
    return folder, pretrain(tiny_recipe, small_text, folder, label="tiny-pythia")


@pytest.fixture(scope="session")
def smoke_project(tmp_path_factory: pytest.TempPathFactory) -> "Project":
    """A copy of this project in which ``anisotropy book --set smoke`` has run to its end; leave it as you found it."""
    from smoke_book import copy_project

    project = copy_project(tmp_path_factory.mktemp("smoke") / "project")
    code, output = project.run("book", "--set", "smoke")
    assert code == 0, output
    return project
