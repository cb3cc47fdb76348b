"""What a number was made with: source hashes (part of keys) and provenance (written beside results)."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_LIBRARIES = ("numpy", "scipy", "torch", "transformers", "tokenizers", "pandas")
_PACKAGE = "anisotropy"


def digest_of(content: Any) -> str:
    """SHA-256 of anything JSON can hold, independent of key order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def source_hash(*modules: str) -> str:
    """Hash the code of modules and of every module of this package that they import, directly or not."""
    return code_hash(*imported_modules(*modules))


def code_hash(*modules: str) -> str:
    """Hash the code of just these modules.

    Comments, docstrings and layout do not count: what they say cannot change a number.
    """
    return digest_of({module: _code_digest(module) for module in modules})


def imported_modules(*modules: str) -> set[str]:
    """The given modules and every module of this package they import, found in the source without importing it."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(_imports(module))
    return found


def module_file(module: str) -> Path:
    """The source file of a module of this package; nothing is imported but the package itself."""
    root = Path(__file__).parent
    stem = root.joinpath(*module.split(".")[1:])
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(module_file(module).read_text(encoding="utf-8"))


@cache
def _imports(module: str) -> frozenset[str]:
    return frozenset(imports_in(_tree(module)))


def imports_in(tree: ast.AST) -> set[str]:
    """The modules of this package that a piece of code imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in names if name.startswith(f"{_PACKAGE}.") and module_file(name).is_file()}


@cache
def _code_digest(module: str) -> str:
    tree = ast.parse(ast.unparse(_tree(module)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            match body[0]:
                case ast.Expr(value=ast.Constant(value=str())):
                    body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return hashlib.sha256(_dump(tree).encode()).hexdigest()


def _dump(tree: ast.Module) -> str:
    """A tree as text, the same under every version of Python: as 3.11 dumps it."""
    for node in ast.walk(tree):
        if getattr(node, "type_params", None) == []:  # new in 3.12
            del node.type_params  # type: ignore[attr-defined]
        if isinstance(node, ast.JoinedStr):  # early 3.12 ends a nested format with an empty text
            node.values = [part for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]
    return ast.dump(tree, **({"show_empty": True} if sys.version_info >= (3, 13) else {}))


def provenance(device: str, seconds: float, **more: Any) -> dict[str, Any]:
    """Describe how something was made: versions, git revision, device, seconds, peak memory, date."""
    return {
        "package": _version(_PACKAGE),
        "libraries": versions(_LIBRARIES),
        "python": platform.python_version(),
        "git_revision": git_revision(),
        "device": device,
        "seconds": round(seconds, 3),
        "peak_memory_mb": round(peak_memory_mb()),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Installed versions by distribution name."""
    return {name: _version(name) for name in libraries}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def peak_memory_mb() -> float:
    """Largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@lru_cache(maxsize=1)
def git_revision() -> str | None:
    """The revision of the source this package runs from; ``None`` outside a git checkout."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
