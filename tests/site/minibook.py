"""A book of three pages in the shell of the real one: its configuration, its extensions, its style."""

import base64
import io
import shutil
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode, v4

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
ALT = "Scatter plot: the distance to the centroid falls from 3.0 to 1.0 as the token frequency grows tenfold."
CAPTION = "Distance to the centroid against frequency, one point a token."


def write_mini_book(folder: Path) -> tuple[Path, Path]:
    """Write the book under `folder`; returns the folder of its sources and the one of its executed notebooks."""
    sources, executed = folder / "sources", folder / "executed"
    shutil.copytree(HERE / "mini", sources)
    shutil.copyfile(REPOSITORY / "_config.yml", sources / "_config.yml")
    for name in ("_ext", "_static"):
        shutil.copytree(REPOSITORY / "book" / name, sources / "book" / name)
    shutil.copyfile(REPOSITORY / "book" / "references.bib", sources / "book" / "references.bib")
    notebook = _executed_notebook()
    for target in (executed, sources):
        (target / "notebooks").mkdir(parents=True)
        nbformat.write(notebook, target / "notebooks" / "spread.ipynb")
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
    return sources, executed


def _executed_notebook() -> NotebookNode:
    """What a run would leave behind, without the seconds that a kernel takes to start."""
    cells = [
        _markdown("# Frequency and spread\n\nA chapter whose numbers are computed."),
        _code(
            "models = ['mini-pythia']  # catalogue names\nblocks = 20  # token blocks",
            tags=["parameters", "hide-input"],
            mystnb={"code_prompt_show": "Show the parameters of this run"},
        ),
        _markdown("## Measurement\n\nThe distance is $r_i = \\lVert e_i - \\bar e \\rVert$ ({numref}`spread-figure`)."),
        _code(
            'display(figure, metadata={"image/png": {"alt": alt}})',
            _shown({"image/png": _picture()}, {"image/png": {"alt": ALT}}),
            mystnb={"figure": {"caption": CAPTION, "name": "spread-figure"}},
        ),
        _code("print(note)", v4.new_output("stream", name="stdout", text="collected 20 blocks in 3 s\n")),
        _code("table", _shown({"text/html": _table(), "text/plain": "(a table)"})),
        _code(
            "Markdown(sentence)",
            _shown({"text/markdown": "The slope is $-0.61$ **in this run** {cite}`bernas2026`.", "text/plain": ""}),
            tags=["remove-input"],
        ),
        _markdown("## Exercises\n\n```{exercise}\n:label: halve\nHalve the tokens. What happens to $r_i$?\n```"),
        _markdown("````{solution-start} halve\n:class: dropdown\n````"),
        _code("1 + 1", v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=1)),
        _markdown("Nothing, up to noise.\n\n````{solution-end}\n````"),
        _code(
            "run.finish()",
            _shown({"text/markdown": "**Where these numbers come from**\n\nA made-up run.", "text/plain": ""}),
            tags=["remove-input"],
        ),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _markdown(source: str) -> NotebookNode:
    return v4.new_markdown_cell(source)


def _code(source: str, *outputs: NotebookNode, **metadata: Any) -> NotebookNode:
    return v4.new_code_cell(source, outputs=list(outputs), execution_count=1, metadata=metadata)


def _shown(data: dict[str, str], metadata: dict[str, Any] | None = None) -> NotebookNode:
    return v4.new_output("display_data", data=data, metadata=metadata or {})


def _picture() -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 3), dpi=160, layout="constrained")
    axes = figure.subplots()
    axes.plot([1, 2, 5, 10], [3.0, 2.2, 1.5, 1.0], "o")
    axes.set(xlabel="token frequency (counts)", ylabel="distance to centroid")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def _table() -> str:
    row = {
        "model": "mini-pythia",
        "checkpoint": "448",
        "Pearson r (log counts)": "-0.61",
        "95 % interval": "[-0.64, -0.58]",
        "permutation null": "0.00 ± 0.02",
        "tokens": "4010",
        "tokens unseen": "86",
    }
    head = "".join(f"<th>{name}</th>" for name in row)
    body = "".join(f"<td>{value}</td>" for value in row.values())
    return (
        '<table border="1" class="dataframe">'
        f'<thead><tr style="text-align: right;">{head}</tr></thead><tbody><tr>{body}</tr></tbody></table>'
    )
