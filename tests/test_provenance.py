import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

import anisotropy
from anisotropy import provenance as subject

PACKAGE = Path(anisotropy.__file__).parent

MEASURE = '''
"""What it measures."""

import numpy as np

from anisotropy.tools import double


def measure(x):
    """Twice the mean."""
    # the mean first
    return double(np.mean(x))


class Empty(Exception):
    """Nothing to measure."""
'''
TOOLS = '''
def double(x):
    """Two of them."""
    return 2 * x
'''
OTHER = "THREE = 3\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of three modules in place of ours: ``measure`` imports ``tools``, nothing imports ``other``."""
    for name, code in (("measure", MEASURE), ("tools", TOOLS), ("other", OTHER)):
        (tmp_path / f"{name}.py").write_text(code)

    def module_file(module: str) -> Path:
        stem = tmp_path.joinpath(*module.split(".")[1:])
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")

    monkeypatch.setattr(subject, "module_file", module_file)
    _forget()
    return tmp_path


@pytest.fixture(autouse=True)
def _forget_afterwards() -> Iterator[None]:
    yield
    _forget()


def _forget() -> None:
    for cached in (subject._tree, subject._imports, subject._code_digest):
        cached.cache_clear()


def hash_of_measure() -> str:
    _forget()
    return subject.source_hash("anisotropy.measure")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What it measures.", "Something else is said here."),
        ('"""What it measures."""', ""),
        ("Twice the mean.", "Other words."),
        ('    """Twice the mean."""\n', ""),
        ("Nothing to measure.", "A class that has nothing but a docstring."),
        ("    # the mean first\n", ""),
        ("\n\n\ndef", "\n\n\n\n\n# here\ndef"),
        ("double(np.mean(x))", "double(\n        np.mean(x),\n    )"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(package: Path, old: str, new: str) -> None:
    before = hash_of_measure()
    assert old in MEASURE
    (package / "measure.py").write_text(MEASURE.replace(old, new))
    assert hash_of_measure() == before


def test_docstrings_of_an_imported_module_do_not_count_either(package: Path) -> None:
    before = hash_of_measure()
    (package / "tools.py").write_text(TOOLS.replace("Two of them.", "Twice."))
    assert hash_of_measure() == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("measure", "np.mean", "np.median"),
        ("measure", "def measure(x)", "def measure(x, y=0)"),
        ("measure", "class Empty(Exception)", "class Empty(ValueError)"),
        ("tools", "2 * x", "2.5 * x"),
        ("tools", "2 * x", "x * 2"),
    ],
)
def test_code_counts_in_the_module_and_in_what_it_imports(package: Path, file: str, old: str, new: str) -> None:
    before = hash_of_measure()
    code = {"measure": MEASURE, "tools": TOOLS}[file]
    assert old in code
    (package / f"{file}.py").write_text(code.replace(old, new))
    assert hash_of_measure() != before


def test_a_string_that_is_no_docstring_counts(package: Path) -> None:
    before = hash_of_measure()
    (package / "measure.py").write_text(MEASURE + '\nKIND = "input"\n')
    first = hash_of_measure()
    (package / "measure.py").write_text(MEASURE + '\nKIND = "output"\n')
    assert len({before, first, hash_of_measure()}) == 3


def test_a_module_that_is_not_imported_does_not_count_until_it_is(package: Path) -> None:
    before = hash_of_measure()
    (package / "other.py").write_text("THREE = 4\n")
    assert hash_of_measure() == before
    (package / "tools.py").write_text(TOOLS + "\ndef late():\n    from anisotropy import other\n    return other\n")
    with_other = hash_of_measure()
    (package / "other.py").write_text("THREE = 5\n")
    assert len({before, with_other, hash_of_measure()}) == 3


def test_the_same_code_under_another_name_is_another_hash(package: Path) -> None:
    (package / "twin.py").write_text(TOOLS)
    assert subject.source_hash("anisotropy.tools") != subject.source_hash("anisotropy.twin")


def test_the_hash_of_several_modules_depends_on_neither_order_nor_repetition(package: Path) -> None:
    both = subject.source_hash("anisotropy.measure", "anisotropy.other")
    assert subject.source_hash("anisotropy.other", "anisotropy.measure", "anisotropy.other") == both
    assert subject.source_hash("anisotropy.measure") != both


def test_the_code_hash_is_that_of_the_named_modules_alone(package: Path) -> None:
    before = subject.code_hash("anisotropy.measure"), subject.source_hash("anisotropy.measure")
    assert subject.code_hash("anisotropy.measure", "anisotropy.tools") == before[1]
    (package / "tools.py").write_text(TOOLS.replace("2 * x", "3 * x"))
    _forget()
    assert subject.code_hash("anisotropy.measure") == before[0]
    assert subject.source_hash("anisotropy.measure") != before[1]


def test_the_hash_is_the_same_under_every_version_of_python(package: Path) -> None:
    """Results of a cluster are read by a laptop with another Python; seen alike under 3.11, 3.12 and 3.13."""
    (package / "portable.py").write_text(
        "class A:\n    pass\n\n\ndef f(x, *, y=None):\n    return f'{x!r} {y:>{x}}', [], 'a' f'{x[\"k\"]}'\n"
    )
    assert (
        subject.code_hash("anisotropy.portable") == "64e5bf6f614091a8a47b736a7f4a77878abf96e99481bc7261bbbaef998f6706"
    )


def test_modules_that_import_each_other_end(package: Path) -> None:
    (package / "tools.py").write_text("import anisotropy.measure\n" + TOOLS)
    assert subject.imported_modules("anisotropy.tools") == {"anisotropy.tools", "anisotropy.measure"}
    assert hash_of_measure()


def test_every_way_of_importing_a_module_is_seen(package: Path) -> None:
    (package / "room").mkdir()
    (package / "room" / "inner.py").write_text("")
    for statement, found in {
        "import anisotropy.tools": {"anisotropy.tools"},
        "import anisotropy.room.inner as inner, os": {"anisotropy.room.inner"},
        "from anisotropy import tools, other": {"anisotropy.tools", "anisotropy.other"},
        "from anisotropy.room import inner as deep": {"anisotropy.room.inner"},
        "from anisotropy.tools import double": {"anisotropy.tools"},
        "def f():\n    from anisotropy.tools import double": {"anisotropy.tools"},
        "import numpy\nfrom os import path": set(),
    }.items():
        assert subject.imports_in(ast.parse(statement)) == found, statement
    (package / "room" / "__init__.py").write_text("from anisotropy.tools import double\n")
    assert subject.imports_in(ast.parse("from anisotropy.room import inner")) == {
        "anisotropy.room",
        "anisotropy.room.inner",
    }


def test_imported_modules_of_the_probes_and_of_the_corpus() -> None:
    probes, corpus = "anisotropy.models.probes", "anisotropy.models.corpus"
    assert subject.imported_modules(probes) == {
        probes,
        "anisotropy.errors",
        "anisotropy.models.batch_size",
        "anisotropy.models.heads",
        "anisotropy.models.objectives",
        "anisotropy.models.sizes",
    }
    assert subject.imported_modules(corpus) == {corpus, "anisotropy.errors"}


def test_imported_modules_hold_whatever_python_loads() -> None:
    """Python's own account: what importing the results of studies brings in, rooms aside."""
    module = "anisotropy.studies.results"
    code = f"import {module}, sys, json; print(json.dumps([m for m in sys.modules if m.startswith('anisotropy.')]))"
    loaded = set(json.loads(subprocess.check_output([sys.executable, "-c", code], text=True)))
    modules = {name for name in loaded if not (PACKAGE.joinpath(*name.split(".")[1:])).is_dir()}
    assert module in modules
    assert modules <= subject.imported_modules(module)


def test_no_module_imports_relatively() -> None:
    """A relative import would escape the hash."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{file}:{node.lineno}"


def test_digest_of_does_not_depend_on_key_order_but_on_everything_else() -> None:
    assert subject.digest_of({"a": 1, "b": [1, 2]}) == subject.digest_of({"b": [1, 2], "a": 1})
    different = [{"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, [1, 2], [2, 1], 1, "1", None]
    assert len({subject.digest_of(content) for content in different}) == len(different)


def test_provenance_says_how_and_when() -> None:
    record = subject.provenance("cpu", 1.23456, threads=2)
    assert record["device"] == "cpu"
    assert record["seconds"] == 1.235
    assert record["threads"] == 2
    assert datetime.fromisoformat(record["date"]).tzinfo is not None
    assert set(record["libraries"]) >= {"numpy", "torch", "transformers"}
    assert record["libraries"]["numpy"] == __import__("numpy").__version__
    assert 10 < record["peak_memory_mb"] < 1e6
    assert json.loads(json.dumps(record)) == record


def test_a_library_that_is_not_installed_is_named_so() -> None:
    assert subject.versions(["numpy", "no-such-library"])["no-such-library"] == "not installed"


def test_no_git_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    subject.git_revision.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert subject.git_revision() is None
    subject.git_revision.cache_clear()
