"""A study's parameters as its source declares them: importing the study would import torch, which takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from anisotropy.provenance import module_file


def with_defaults(study: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter of a study: what is given, else the default; other names are left out."""
    return {name: given.get(name, default) for name, default in declared(study).items()}


@cache
def declared(study: str) -> dict[str, Any]:
    """Names and defaults of a study's parameters, in the order of the source."""
    tree = ast.parse(module_file(f"anisotropy.studies.{study}").read_text(encoding="utf-8"))
    chosen = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Parameters")
    fields = [node for node in chosen.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return {field.target.id: _value(field.value) for field in fields if isinstance(field.target, ast.Name)}


def _value(node: ast.expr | None) -> Any:
    # A bare value, or Field(default, …).
    if isinstance(node, ast.Call):
        node = node.args[0]
    return ast.literal_eval(node) if node is not None else None
