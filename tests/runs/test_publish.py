"""A published book: the same bytes from the same site, nobody's files overwritten, and a workflow that can run."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from anisotropy.cli import main
from anisotropy.errors import UserError
from anisotropy.runs import publish as publishing
from anisotropy.runs.publish import MARK, publish

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "pages.yml"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """As a build leaves it: `html` is a link to the newest site, and a page's picture may be a link too."""
    build = tmp_path / "project" / "_build" / "laptop"
    real = build / "sites" / "site-1"
    (real / "_static").mkdir(parents=True)
    (real / "index.html").write_text("<title>The book</title>")
    (real / "_static" / "style.css").write_text("body { color: black }")
    (real / ".buildinfo").write_text("a note of Sphinx")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (real / "picture.png").symlink_to(tmp_path / "picture.png")
    (build / "html").symlink_to("sites/site-1", target_is_directory=True)
    return build / "html"


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_publication_is_whole_and_leads_nowhere_else(site: Path, tmp_path: Path):
    done = publish(site, tmp_path / "out" / "book")
    assert done.folder == tmp_path / "out" / "book"
    assert sorted(contents(done.folder)) == [MARK, ".nojekyll", "_static/style.css", "index.html", "picture.png"]
    assert not any(path.is_symlink() for path in [done.folder, *done.folder.rglob("*")])
    assert done.files == 5
    assert done.folder_size == sum(path.stat().st_size for path in done.folder.rglob("*") if path.is_file())
    assert done.archive_size == done.archive.stat().st_size
    assert {path.name for path in done.folder.parent.iterdir()} == {"book", "book.zip"}


def test_the_zip_unpacks_to_the_folder(site: Path, tmp_path: Path):
    done = publish(site, tmp_path / "book")
    with zipfile.ZipFile(done.archive) as packed:
        assert packed.testzip() is None
        packed.extractall(tmp_path / "unpacked")
    assert contents(tmp_path / "unpacked" / "book") == contents(done.folder)


def test_equal_sites_give_equal_zips(site: Path, tmp_path: Path):
    first = publish(site, tmp_path / "one" / "book").archive.read_bytes()
    for file in site.resolve().rglob("*"):
        os.utime(file, (0, 0))
    (site.resolve() / "_static" / "style.css").chmod(0o600)
    assert publish(site, tmp_path / "other" / "book").archive.read_bytes() == first


def test_a_second_one_takes_the_place_of_the_first(site: Path, tmp_path: Path):
    done = publish(site, tmp_path / "book")
    (site.resolve() / "picture.png").unlink()
    (site.resolve() / "index.html").write_text("<title>A newer book</title>")
    publish(site, tmp_path / "book")
    assert "picture.png" not in contents(done.folder)
    assert "newer" in (done.folder / "index.html").read_text()
    with zipfile.ZipFile(done.archive) as packed:
        assert sorted(packed.namelist()) == [f"book/{name}" for name in sorted(contents(done.folder))]


def test_an_empty_folder_and_a_link_to_a_folder_will_do(site: Path, tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert publish(site, tmp_path / "link").folder == tmp_path / "real"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "index.html").is_file()


@pytest.mark.parametrize("taken", ["book/thesis.tex", "book", "book.zip"])
def test_nothing_of_anybody_else_is_overwritten(site: Path, tmp_path: Path, taken: str):
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("years of work")
    with pytest.raises(UserError, match=r"name (a folder, new or empty|another folder)"):
        publish(site, tmp_path / "book")
    assert (tmp_path / taken).read_text() == "years of work"


def test_a_failure_keeps_the_earlier_one(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = publish(site, tmp_path / "book")
    before, packed = contents(done.folder), done.archive.read_bytes()
    (site.resolve() / "new.html").write_text("new")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publishing, "_pack", full)
    with pytest.raises(UserError, match=r"cannot publish to .*book: No space left on device"):
        publish(site, tmp_path / "book")
    assert contents(done.folder) == before
    assert done.archive.read_bytes() == packed
    assert {path.name for path in tmp_path.iterdir()} == {"project", "picture.png", "book", "book.zip"}


def test_it_waits_for_a_build(site: Path, tmp_path: Path):
    code = "import sys, pathlib; from anisotropy.runs.publish import publish; publish(*map(pathlib.Path, sys.argv[1:]))"
    with (site.parent / ".site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen([sys.executable, "-c", code, site, tmp_path / "book"])
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1.5)
        assert not (tmp_path / "book").exists()
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "book" / "index.html").is_file()


def test_without_a_book_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match="no book to publish"):
        publish(tmp_path, tmp_path / "book")
    for name in ("experiments.yml", "notebooks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["publish", "book", "--set", "smoke"])
    assert found.exit_code == 1
    assert found.stderr.count("\n") == 1
    assert "`anisotropy book --set smoke`" in found.stderr
    assert not (tmp_path / "book").exists()


def test_the_command_publishes_the_chosen_book(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = tmp_path / "project"
    for name in ("experiments.yml", "notebooks"):
        (project / name).symlink_to(ROOT / name)
    site.parent.rename(project / "_build" / "laptop--tiny-pythia")
    monkeypatch.chdir(project)
    found = CliRunner().invoke(main, ["publish", "../book", "--models", "tiny-pythia"])
    assert found.exit_code == 0, found.output
    assert re.search(rf"^{re.escape(str(tmp_path))}/book: 5 files, 0\.0 MB\n.*/book\.zip: 0\.0 MB$", found.output, re.M)
    assert (tmp_path / "book" / "index.html").is_file()


@pytest.fixture(scope="module")
def workflow() -> dict:
    found = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)  # YAML 1.1 reads the key as a boolean, GitHub does not
    return found


def test_the_workflow_runs_commands_that_the_makefile_has(workflow: dict):
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    called = [word for line in "\n".join(commands).splitlines() for word in re.findall(r"^make ([\w-]+)", line)]
    assert {"book", "publish"} <= set(called)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(called) <= set(targets)
    # What publishes is what is uploaded.
    (folder,) = re.findall(r"make publish DIR=(\S+)", "\n".join(commands))
    (upload,) = (
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "upload-pages-artifact" in step.get("uses", "")
    )
    assert upload["with"]["path"] == folder


def test_the_workflow_may_do_no_more_than_it_has_to(workflow: dict):
    assert set(workflow["on"]) == {"push", "workflow_dispatch"}
    assert workflow["on"]["push"] == {"branches": ["main"]}
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    used = [step["uses"].split("@")[0] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(action.startswith("actions/") for action in used)
    deploying = {name for name, job in workflow["jobs"].items() if "deploy-pages" in str(job["steps"])}
    assert {name for name, job in workflow["jobs"].items() if "permissions" in job} == deploying
    (deploy,) = deploying
    assert workflow["jobs"][deploy]["permissions"] == {"pages": "write", "id-token": "write"}
