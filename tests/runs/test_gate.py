"""The run gate on notebooks that end well and on every way to end badly."""

from __future__ import annotations

import nbformat
import pytest

from anisotropy.errors import UserError
from anisotropy.runs.gate import RunFailed, imports_of, read_notebook, run_notebook

PARAMETERS = "# a number\nnumber: int = 1"


def write(path, *sources, sentinel="print('done')"):
    new = nbformat.v4.new_code_cell
    cells = [new(PARAMETERS, metadata={"tags": ["parameters"]}), *(new(source) for source in sources)]
    if sentinel is not None:
        cells.append(new(sentinel, metadata={"tags": ["sentinel"]}))
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@pytest.fixture
def places(tmp_path):
    return tmp_path / "n.ipynb", tmp_path / "out" / "n.ipynb", tmp_path / "failed"


def texts(path):
    cells = nbformat.read(path, as_version=4).cells
    return [output.text for cell in cells if cell.cell_type == "code" for output in cell.outputs if "text" in output]


def test_a_whole_run_is_accepted_and_tidied(places):
    path, output, failed = places
    write(path, "print(number * 2)")
    run_notebook(path, output, {"number": 21}, failed)
    assert texts(output) == ["42\n", "done\n"]
    executed = nbformat.read(output, as_version=4)
    injected = next(cell for cell in executed.cells if "injected-parameters" in cell.metadata.get("tags", []))
    assert "hide-input" in injected.metadata.tags
    assert injected.metadata.mystnb.code_prompt_show == "Show the parameters of this run"
    assert "papermill" not in executed.metadata
    assert str(path.parent) not in output.read_text()
    assert not failed.exists()
    assert sorted(item.name for item in output.parent.iterdir()) == ["n.ipynb"]


def test_relative_paths_are_the_callers(places, tmp_path, monkeypatch):
    path, output, failed = places
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(path, "import os; print(os.getcwd())")
    run_notebook(path, output, {}, failed)
    assert texts(output)[0] == f"{tmp_path / 'elsewhere'}\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ValueError('too bad')", "too bad"),
        ("import sys; sys.exit(0)", "holds an error"),
        ("import os; os.kill(os.getpid(), 9)", "DeadKernelError"),
        ("import time; time.sleep(60)", "CellTimeoutError"),
    ],
    ids=["an error", "sys.exit(0)", "a killed kernel", "a timeout"],
)
def test_what_does_not_run_to_its_end_is_refused_twice(places, source, message):
    path, output, failed = places
    output.parent.mkdir()
    output.write_text("the old one")
    write(path, source)
    for _ in range(2):
        with pytest.raises(RunFailed, match=message) as caught:
            run_notebook(path, output, {}, failed, timeout=4)
        assert output.read_text() == "the old one"
        assert str(failed / "n.ipynb") in str(caught.value)
        assert (failed / "n.ipynb").is_file()
    assert sorted(item.name for item in output.parent.iterdir()) == ["n.ipynb"]


def test_a_sentinel_that_shows_nothing_is_refused(places):
    path, output, failed = places
    write(path, sentinel="x = 1")
    with pytest.raises(RunFailed, match="sentinel cell at its end shows nothing"):
        run_notebook(path, output, {}, failed)


def test_wrong_parameters_start_no_kernel(places, monkeypatch):
    path, output, failed = places
    write(path)
    monkeypatch.setattr("papermill.execute_notebook", lambda *_, **__: pytest.fail("a kernel was started"))
    with pytest.raises(UserError, match="did you mean 'number'"):
        run_notebook(path, output, {"numbre": 1}, failed)
    with pytest.raises(UserError, match="is not of type int"):
        run_notebook(path, output, {"number": "1"}, failed)
    assert not output.exists()


def test_notebooks_that_cannot_be_run(tmp_path):
    with pytest.raises(UserError, match="no such notebook"):
        read_notebook(tmp_path / "missing.ipynb")
    (tmp_path / "text.ipynb").write_text("hello")
    with pytest.raises(UserError, match="is not a notebook"):
        read_notebook(tmp_path / "text.ipynb")
    write(tmp_path / "endless.ipynb", sentinel=None)
    with pytest.raises(UserError, match="tagged 'sentinel'"):
        read_notebook(tmp_path / "endless.ipynb")


def test_imports_are_found_in_the_code(tmp_path):
    path = write(tmp_path / "n.ipynb", "from anisotropy.studies import frequency\nimport anisotropy.errors, numpy")
    assert imports_of(path) == {"anisotropy.studies", "anisotropy.studies.frequency", "anisotropy.errors"}
