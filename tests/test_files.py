import errno
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anisotropy.errors import UserError
from anisotropy.files import locked, make_folder, replacing, write_json


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run_killed(code: str) -> None:
    """Run code in another process that ends by killing itself with signal 9."""
    process = subprocess.run([sys.executable, "-c", "import os, signal\nfrom pathlib import Path\n" + code])
    assert process.returncode == -signal.SIGKILL


class TestReplacing:
    def test_a_file_and_a_folder_appear_under_their_final_name(self, tmp_path: Path) -> None:
        with replacing(tmp_path / "new" / "a.txt") as temporary:
            temporary.write_text("text")
            assert not (tmp_path / "new" / "a.txt").exists()
            assert temporary.name == "a.txt"
        with replacing(tmp_path / "new" / "b") as temporary:
            temporary.mkdir()
            (temporary / "c").write_text("inner")
        assert names(tmp_path / "new") == ["a.txt", "b"]
        assert (tmp_path / "new" / "b" / "c").read_text() == "inner"

    def test_replaces_a_file_and_a_folder_whole(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("old")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "old").write_text("old")
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("new")
            assert (tmp_path / "file").read_text() == "old"
        with replacing(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / "new").write_text("new")
            assert names(tmp_path / "folder") == ["old"]
        assert (tmp_path / "file").read_text() == "new"
        assert names(tmp_path / "folder") == ["new"]
        assert names(tmp_path) == ["file", "folder"]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_an_exception_leaves_the_old_and_no_temporary(self, tmp_path: Path, error: type[BaseException]) -> None:
        target = tmp_path / "file"
        target.write_text("old")

        def fail() -> None:
            with replacing(target) as temporary:
                temporary.write_text("half")
                raise error

        with pytest.raises(error):
            fail()
        assert target.read_text() == "old"
        assert names(tmp_path) == ["file"]

    def test_a_body_that_writes_nothing_leaves_the_old(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("old")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "inner").write_text("old")
        for name in ("file", "folder"):
            with pytest.raises(FileNotFoundError), replacing(tmp_path / name):
                pass
        assert (tmp_path / "file").read_text() == "old"
        assert names(tmp_path / "folder") == ["inner"]
        assert names(tmp_path) == ["file", "folder"]

    def test_kill_9_in_the_middle_leaves_the_old_and_the_next_write_works(self, tmp_path: Path) -> None:
        target = tmp_path / "file"
        target.write_text("old")
        run_killed(
            "from anisotropy.files import replacing\n"
            f"with replacing(Path({str(target)!r})) as temporary:\n"
            "    temporary.write_text('half')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        assert target.read_text() == "old"
        with replacing(target) as temporary:
            temporary.write_text("new")
        assert target.read_text() == "new"

    @pytest.mark.parametrize("function", ["shutil.rmtree", "os.replace"])
    def test_kill_9_while_a_folder_is_swapped_leaves_no_half_folder(self, tmp_path: Path, function: str) -> None:
        """Killed at the first removal or after the first rename: what is at the target is whole, old or new."""
        target = tmp_path / "folder"
        target.mkdir()
        for number in range(5):
            (target / f"old-{number}").write_text("old")
        run_killed(
            "import shutil\nimport anisotropy.files as files\n"
            "def dying_rmtree(path, ignore_errors=False):\n"
            "    first = next(p for p in Path(path).rglob('*') if p.is_file())\n"
            "    first.unlink()\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "rename = os.replace\n"
            "def dying_replace(source, target):\n"
            "    rename(source, target)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            f"{function} = {'dying_' + function.split('.')[1]}\n"
            f"with files.replacing(Path({str(target)!r})) as temporary:\n"
            "    temporary.mkdir()\n"
            "    [(temporary / f'new-{i}').write_text('new') for i in range(5)]\n"
        )
        found = names(target) if target.exists() else []
        assert found in ([], [f"old-{i}" for i in range(5)], [f"new-{i}" for i in range(5)])

    def test_what_a_killed_process_left_is_removed_by_the_next_write_in_that_folder(self, tmp_path: Path) -> None:
        run_killed(
            "from anisotropy.files import replacing\n"
            f"with replacing(Path({str(tmp_path / 'one')!r})) as temporary:\n"
            "    temporary.mkdir()\n"
            "    (temporary / 'half').write_text('half')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        (tmp_path / ".other.abcdefgh").mkdir()
        assert [name for name in names(tmp_path) if name.startswith(".one.")]
        with replacing(tmp_path / "two") as temporary:
            temporary.write_text("two")
        assert names(tmp_path) == [".other.abcdefgh", "two"]

    def test_what_a_living_process_is_writing_stays(self, tmp_path: Path) -> None:
        with replacing(tmp_path / "one") as first:
            first.write_text("one")
            with replacing(tmp_path / "two") as second:
                second.write_text("two")
            other = "from pathlib import Path\nfrom anisotropy.files import write_json\n"
            subprocess.run(
                [sys.executable, "-c", f"{other}write_json(Path({str(tmp_path / 'three')!r}), 3)"], check=True
            )
            assert first.read_text() == "one"
        assert names(tmp_path) == ["one", "three", "two"]

    def test_two_that_write_the_same_folder_at_once_leave_one_of_them_whole(self, tmp_path: Path) -> None:
        code = (
            "import sys\nfrom pathlib import Path\nfrom anisotropy.files import replacing\n"
            "for number in range(200):\n"
            f"    with replacing(Path({str(tmp_path / 'folder')!r})) as temporary:\n"
            "        temporary.mkdir()\n"
            "        [(temporary / name).write_text(sys.argv[1]) for name in 'ab']\n"
        )
        both = [subprocess.Popen([sys.executable, "-c", code, writer]) for writer in "12"]
        assert [process.wait() for process in both] == [0, 0]
        assert names(tmp_path) == ["folder"]
        assert (tmp_path / "folder" / "a").read_text() == (tmp_path / "folder" / "b").read_text()

    def test_a_place_below_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(UserError, match=r"cannot write to .*file/below: Not a directory; choose another folder"),
            replacing(tmp_path / "file" / "below" / "target"),
        ):
            pass
        assert names(tmp_path) == ["file"]


def test_make_folder_makes_parents_and_accepts_existing_ones(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"


def test_make_folder_refuses_a_file_and_a_read_only_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file.*choose another folder"):
        make_folder(tmp_path / "file")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere: what others are told
    with pytest.raises(UserError, match="permission denied; choose another folder"):
        make_folder(tmp_path)


def test_write_json_sorts_keys_and_keeps_the_old_where_the_content_is_not_json(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"b": [1, 2.5, None], "a": "é"})
    assert json.loads(target.read_text(encoding="utf-8")) == {"a": "é", "b": [1, 2.5, None]}
    assert target.read_text().index('"a"') < target.read_text().index('"b"')
    with pytest.raises(TypeError):
        write_json(target, {"a": object()})
    assert json.loads(target.read_text(encoding="utf-8")) == {"a": "é", "b": [1, 2.5, None]}
    assert names(tmp_path) == ["a.json"]


def is_free(path: Path) -> bool:
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def other_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock, says so, and holds it."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom anisotropy.files import locked\n"
        f"print('asks', flush=True)\nwith locked(Path({str(path)!r})):\n"
        "    print('holds', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


class TestLocked:
    def test_excludes_a_second_process_until_released_and_kill_9_frees_it(self, tmp_path: Path) -> None:
        lock = tmp_path / "new" / ".lock"
        with other_process(lock) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "asks\n"
            assert process.stdout.readline() == "holds\n"
            assert not is_free(lock)
            process.send_signal(signal.SIGKILL)
            process.wait()
            with locked(lock):  # does not wait for a dead holder
                assert not is_free(lock)

    def test_a_second_process_waits_for_the_first(self, tmp_path: Path) -> None:
        lock = tmp_path / ".lock"
        with other_process(lock) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "asks\n"
            assert process.stdout.readline() == "holds\n"
            process.send_signal(signal.SIGSTOP)  # holds, and does nothing
            with other_process(lock) as waiting:
                assert waiting.stdout is not None
                assert waiting.stdout.readline() == "asks\n"
                assert select.select([waiting.stdout], [], [], 0.3)[0] == []  # it waits
                process.kill()
                assert waiting.stdout.readline() == "holds\n"

    def test_released_after_an_exception(self, tmp_path: Path) -> None:
        lock = tmp_path / ".lock"
        with pytest.raises(ValueError, match="inside"), locked(lock):
            raise ValueError("inside")
        assert is_free(lock)

    def test_where_the_file_system_has_no_locks_the_work_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(handle: object, operation: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", refuse)
        with locked(tmp_path / ".lock"), replacing(tmp_path / "file") as temporary:
            temporary.write_text("text")
        assert (tmp_path / "file").read_text() == "text"

    def test_a_place_below_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match="cannot write to"), locked(tmp_path / "file" / ".lock"):
            pass
