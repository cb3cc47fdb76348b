"""Papermill, checked: a notebook is accepted only if all of it ran.

Papermill alone marks a killed kernel's notebook as good, takes unknown parameters with a warning and returns success
after ``sys.exit(0)``. So parameters are checked before a kernel starts, the notebook runs into a temporary file, every
cell is looked at, and only then does the output take its place.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from anisotropy.errors import UserError
from anisotropy.files import make_folder, replacing
from anisotropy.process import share_cores
from anisotropy.provenance import imports_in
from anisotropy.runs.parameters import TAG, checked, notebook_parameters

SENTINEL = "sentinel"
_INJECTED = "injected-parameters"
_PROMPT = "Show the parameters of this run"


class RunFailed(UserError):
    """A notebook that did not run to its end; the message says where what is left of it is kept."""


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a notebook that can be run: it has one cell tagged ``sentinel``, the last.

    Raises:
        UserError: no such file, not a notebook, or no sentinel at its end.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise UserError(f"no such notebook: {path}") from None
    except Exception as error:  # nbformat raises whatever its JSON and schema libraries raise
        raise UserError(f"{path} is not a notebook ({type(error).__name__})") from None
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not code or SENTINEL not in code[-1].metadata.get("tags", []):
        raise UserError(f"{path}: its last code cell must be tagged {SENTINEL!r}, to show that the run reached its end")
    return notebook


def imports_of(path: Path) -> set[str]:
    """The modules of this package that a notebook's code cells import."""
    code = "\n".join(cell.source for cell in read_notebook(path).cells if cell.cell_type == "code")
    return imports_in(ast.parse(code))


def run_notebook(path: Path, output: Path, values: Mapping[str, Any], failed: Path, timeout: int | None = None) -> None:
    """Execute a notebook with parameters and put the result at ``output``, whole or not at all.

    Args:
        path: the notebook, without outputs.
        output: where the executed one goes; what is there stays until the new one is accepted.
        values: parameters, only such as the notebook has.
        failed: folder that keeps a notebook that failed.
        timeout: seconds a cell may take; ``None`` for no limit.

    Raises:
        UserError: the notebook or a parameter is wrong; no kernel was started.
        RunFailed: a cell failed, the kernel died, or not every cell ran.
    """
    import papermill

    notebook = read_notebook(path)
    parameters = checked(values, notebook_parameters(notebook, path.name), path.name)
    share_cores()
    make_folder(output.parent)
    with replacing(output) as temporary:
        problem = None
        try:
            papermill.execute_notebook(
                str(path),
                str(temporary),
                parameters=parameters,
                progress_bar=sys.stderr.isatty(),
                cwd=str(Path.cwd()),  # relative paths among the parameters are the caller's
                execution_timeout=timeout,
                extra_arguments=["--IPKernelApp.log_level=ERROR"],
            )
        except papermill.PapermillExecutionError as error:
            problem = f"cell {error.exec_count} failed: {error.evalue.splitlines()[0] if error.evalue else error.ename}"
        except Exception as error:  # a dead kernel, a timeout: nbclient has a class for each
            problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        executed = nbformat.read(temporary, as_version=4) if temporary.is_file() else notebook
        problem = problem or unfinished(executed)
        if problem:
            kept = make_folder(failed) / output.name
            nbformat.write(executed, kept)
            raise RunFailed(f"{path.name}: {problem}; the notebook as far as it came: {kept}")
        nbformat.write(_tidied(executed), temporary)


def unfinished(executed: nbformat.NotebookNode) -> str | None:
    """Why an executed notebook is not to be trusted, or ``None``."""
    code = [cell for cell in executed.cells if cell.cell_type == "code" and cell.source.strip()]
    for number, cell in enumerate(code, 1):
        if any(output.output_type == "error" for output in cell.outputs):
            return f"code cell {number} holds an error"
        if cell.execution_count is None:
            return f"code cell {number} of {len(code)} did not run (was the kernel killed?)"
    if SENTINEL not in code[-1].metadata.get("tags", []) or not code[-1].outputs:
        return "the sentinel cell at its end shows nothing"
    return None


def _tidied(executed: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Fold the injected parameters away, and take out paths and what papermill knows of the run's machine."""
    tags = {tag for cell in executed.cells if TAG in (own := cell.metadata.get("tags", [])) for tag in own}
    for cell in executed.cells:
        if _INJECTED in cell.metadata.get("tags", []):
            cell.metadata.tags = [*cell.metadata.tags, "remove-cell" if "remove-cell" in tags else "hide-input"]
            cell.metadata.setdefault("mystnb", {})["code_prompt_show"] = _PROMPT
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    executed.metadata.pop("papermill", None)
    return executed
