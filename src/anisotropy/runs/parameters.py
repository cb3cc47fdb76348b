"""What a notebook takes: read its cell tagged ``parameters``, and check values against it before a kernel starts."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import nbformat
import yaml
from pydantic import TypeAdapter, ValidationError

from anisotropy.errors import UserError

TAG = "parameters"
_TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "None": None}


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell: name, annotation as written, default, and the comment above it."""

    name: str
    annotation: str
    default: Any
    help: str

    @property
    def adapter(self) -> TypeAdapter:
        """Checks a value against the annotation, without turning one type into another."""
        return TypeAdapter(_type_of(ast.parse(self.annotation, mode="eval").body))


def notebook_parameters(notebook: nbformat.NotebookNode, name: str) -> dict[str, Parameter]:
    """Parameters by name, in the order of the cell.

    Raises:
        UserError: no cell tagged ``parameters``, or a line in it that is not ``name: type = literal``.
    """
    cells = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise UserError(f"{name}: expected one cell tagged {TAG!r}, found {len(cells)}")
    source = cells[0].source
    lines = source.splitlines()
    found: dict[str, Parameter] = {}
    for statement in ast.parse(source).body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value):
            raise UserError(f"{name}: the parameters cell holds {ast.unparse(statement)!r}, not `name: type = value`")
        parameter = Parameter(
            statement.target.id,
            ast.unparse(statement.annotation),
            ast.literal_eval(statement.value),
            _comment(lines, statement),
        )
        parameter.adapter.validate_python(parameter.default, strict=True)
        found[parameter.name] = parameter
    return found


def _comment(lines: list[str], statement: ast.AnnAssign) -> str:
    """The comment lines right above a parameter."""
    above: list[str] = []
    for line in reversed(lines[: statement.lineno - 1]):
        if not line.startswith("#"):
            break
        above.insert(0, line.lstrip("# "))
    return " ".join(above)


def _type_of(node: ast.expr) -> Any:
    """The type an annotation names, from a closed list; nothing is evaluated."""
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.Name) and node.id in _TYPES:
        return _TYPES[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _type_of(node.left) | _type_of(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "list":
        return list[_type_of(node.slice)]  # type: ignore[misc]
    raise UserError(f"parameter type {ast.unparse(node)!r} is not one of {', '.join(_TYPES)}, list[…] or a union")


def checked(values: Mapping[str, Any], parameters: Mapping[str, Parameter], name: str) -> dict[str, Any]:
    """Check values against a notebook's parameters.

    Raises:
        UserError: an unknown parameter or a value of another type; the message names it and lists the valid ones.
    """
    for key, value in values.items():
        if key not in parameters:
            near = difflib.get_close_matches(key, parameters, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UserError(f"{name} has no parameter {key!r}{hint}; it has {_listing(parameters)}")
        try:
            parameters[key].adapter.validate_python(value, strict=True)
        except ValidationError:
            raise UserError(
                f"{name}, parameter {key!r}: {value!r} is not of type {parameters[key].annotation} "
                f"(default {parameters[key].default!r})"
            ) from None
    return dict(values)


def _listing(parameters: Mapping[str, Parameter]) -> str:
    return ", ".join(f"{parameter.name}: {parameter.annotation}" for parameter in parameters.values())


def parse_assignments(assignments: tuple[str, ...], parameters: Mapping[str, Parameter], name: str) -> dict[str, Any]:
    """Values of ``key=value`` options: YAML, but as written where the parameter takes text (``0123``, ``12e4567``).

    Raises:
        UserError: no ``=``, or not YAML.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise UserError(f"-p {assignment}: expected key=value")
        if key in parameters and parameters[key].annotation == "str":
            values[key] = text
            continue
        value = parse_yaml(text, f"-p {assignment}")
        if key in parameters and not isinstance(value, str) and not _fits(value, parameters[key]):
            value = text if _fits(text, parameters[key]) else value
        values[key] = value
    return values


def _fits(value: Any, parameter: Parameter) -> bool:
    try:
        parameter.adapter.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML, never evaluating anything.

    Raises:
        UserError: not YAML; the message names ``where``.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
