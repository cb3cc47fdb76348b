from __future__ import annotations

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anisotropy.errors import UserError
from anisotropy.runs.parameters import checked, notebook_parameters, parse_assignments, parse_yaml

SOURCE = """\
# catalogue names,
# or folders
models: list[str] = ["mini-pythia"]
# all, steps, or a number
checkpoints: str | int | list[int] = "all"
revision: str = "main"
share: float = 0.5
rank: int = 8
centre: bool = True
limit: int | None = None
"""


def notebook(source=SOURCE, tags=("parameters",)):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)})
    return nbformat.v4.new_notebook(cells=[cell])


@pytest.fixture(scope="module")
def parameters():
    return notebook_parameters(notebook(), "n.ipynb")


def test_the_cell_is_read(parameters):
    assert list(parameters) == ["models", "checkpoints", "revision", "share", "rank", "centre", "limit"]
    assert parameters["models"].default == ["mini-pythia"]
    assert parameters["models"].help == "catalogue names, or folders"
    assert parameters["checkpoints"].help == "all, steps, or a number"
    assert parameters["revision"].help == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("models", ["a", "b"]),
        ("checkpoints", "all"),
        ("checkpoints", 4),
        ("checkpoints", [1, 2]),
        ("share", 1),
        ("limit", None),
        ("limit", 3),
        ("revision", "0123"),
    ],
)
def test_values_of_the_right_type_pass(parameters, key, value):
    assert checked({key: value}, parameters, "n.ipynb") == {key: value}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("models", "mini-pythia"),
        ("models", [1]),
        ("checkpoints", 0.5),
        ("checkpoints", ["1"]),
        ("revision", 123),
        ("share", "0.5"),
        ("rank", 8.0),
        ("rank", True),
        ("centre", 1),
        ("limit", "none"),
    ],
)
def test_values_of_another_type_are_named(parameters, key, value):
    with pytest.raises(UserError, match=rf"n\.ipynb, parameter '{key}': .* is not of type"):
        checked({key: value}, parameters, "n.ipynb")


def test_an_unknown_parameter_is_named_with_the_nearest_and_all_valid_ones(parameters):
    with pytest.raises(UserError, match=r"no parameter 'model' \(did you mean 'models'\?\).*checkpoints: str \| int"):
        checked({"model": ["a"]}, parameters, "n.ipynb")


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("revision=0123", "0123"),
        ("revision=12e4567", "12e4567"),
        ("revision=true", "true"),
        ("revision=a=b", "a=b"),
        ("models=[a, b]", ["a", "b"]),
        ("checkpoints=[1,2]", [1, 2]),
        ("checkpoints=16", 16),
        ("checkpoints=all", "all"),
        ("checkpoints=1.5", "1.5"),
        ("limit=null", None),
        ("share=0.25", 0.25),
    ],
)
def test_assignments_are_yaml_and_text_stays_text(parameters, assignment, value):
    assert list(parse_assignments((assignment,), parameters, "n").values()) == [value]


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=30))
def test_any_text_reaches_a_text_parameter_as_written(text):
    known = notebook_parameters(notebook(), "n.ipynb")
    assert parse_assignments((f"revision={text}",), known, "n") == {"revision": text}


def test_assignments_without_a_sign_or_with_bad_yaml(parameters):
    with pytest.raises(UserError, match="expected key=value"):
        parse_assignments(("models",), parameters, "n")
    with pytest.raises(UserError, match="is not YAML"):
        parse_assignments(("models=[a",), parameters, "n")


def test_yaml_never_builds_objects():
    with pytest.raises(UserError, match="is not YAML"):
        parse_yaml("!!python/object/apply:os.system ['true']", "-p x")


@pytest.mark.parametrize("tags", [(), ("other",)])
def test_a_missing_tag_is_refused(tags):
    with pytest.raises(UserError, match="expected one cell tagged 'parameters', found 0"):
        notebook_parameters(notebook(tags=tags), "n.ipynb")


def test_two_cells_are_refused():
    twice = notebook()
    twice.cells.append(twice.cells[0].copy())
    with pytest.raises(UserError, match="found 2"):
        notebook_parameters(twice, "n.ipynb")


@pytest.mark.parametrize("source", ["rank = 8", "print(1)", "rank: int"])
def test_only_typed_assignments_are_parameters(source):
    with pytest.raises(UserError, match="not `name: type = value`"):
        notebook_parameters(notebook(source), "n.ipynb")


def test_types_come_from_a_closed_list():
    with pytest.raises(UserError, match="parameter type"):
        notebook_parameters(notebook("x: __import__('os').sep = 'a'"), "n.ipynb")
