"""A real SLURM on this machine: a controller and two node daemons of one core each, started and stopped by a test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Jobs lose SLURM_CONF from their environment: the file has to be where SLURM looks for it.
CONFIGURATION = Path("/etc/slurm/slurm.conf")
COMMANDS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "munged")
NODES = ("n1", "n2")

_SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout={timeout}
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=1 RealMemory=8000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why SLURM cannot be started here, in a sentence, or ``None``."""
    if missing := [command for command in COMMANDS if shutil.which(command) is None]:
        return f"needs SLURM, {missing[0]} is missing: apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "needs root: SLURM's daemons start jobs for others"
    if CONFIGURATION.exists():
        return f"{CONFIGURATION} is there already: this machine has a SLURM of its own"
    try:
        socket.gethostbyname(_host())
    except OSError:
        return f"the name of this machine, {_host()}, must resolve (a line in /etc/hosts)"
    return None


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def wait_for(what: str, ready: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.2)


class Slurm:
    """The daemons, and ways to look at their jobs and to make a node fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.munge: subprocess.Popen[bytes] | None = None
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        settings = _SETTINGS.format(host=_host(), folder=folder, timeout=20)
        CONFIGURATION.write_text(settings, encoding="utf-8")

    def start(self) -> None:
        if subprocess.run(["unmunge"], input=_munged(), capture_output=True).returncode != 0:
            run = Path("/run/munge")
            run.mkdir(exist_ok=True)
            shutil.chown(run, "munge", "munge")
            with (self.folder / "munged.log").open("w") as log:
                command = ["munged", "--foreground"]
                self.munge = subprocess.Popen(command, user="munge", group="munge", extra_groups=[], stderr=log)
            wait_for("munged", lambda: (run / "munge.socket.2").exists())
        subprocess.run(["slurmctld"], check=True)
        for node in NODES:
            self.start_node(node)
        wait_for("two idle nodes", lambda: self.states() == dict.fromkeys(NODES, "idle"))

    def start_node(self, node: str) -> None:
        subprocess.run(["slurmd", "-N", node], check=True)

    def states(self) -> dict[str, str]:
        """State by node; a trailing ``*`` says that it does not answer."""
        shown = subprocess.run(["sinfo", "-hNo", "%N %t"], capture_output=True, text=True).stdout
        return dict(line.split() for line in shown.splitlines())

    def running(self, node: str) -> list[str]:
        """Ids of the jobs that run on a node."""
        command = ["squeue", "-h", "-t", "R", "-w", node, "-o", "%i"]
        return subprocess.run(command, capture_output=True, text=True).stdout.split()

    def kill_node(self, node: str) -> None:
        """As when a machine loses power: its daemon and everything its jobs were running are gone without a word."""
        # The daemon first, or it would report that its job has ended.
        os.kill(int((self.folder / f"slurmd-{node}.pid").read_text()), signal.SIGKILL)
        for pid in self._of_jobs(node):
            os.kill(pid, signal.SIGKILL)

    def _of_jobs(self, node: str) -> list[int]:
        """Processes that jobs started on a node, each job's own daemon among them, and before its children."""
        own = [pid for pid in _processes() if _environment(pid).get("SLURMD_NODENAME") == node]
        parents = {_parent(pid) for pid in own}
        daemons = [pid for pid in parents if _name(pid) == "slurmstepd"]
        return [*daemons, *(pid for pid in own if pid not in daemons)]

    def log(self, *words: str) -> list[str]:
        """Lines of the controller's log that hold one of these words."""
        lines = (self.folder / "slurmctld.log").read_text(errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in words)]

    def stop(self) -> None:
        subprocess.run(["scancel", "--user", "root"], capture_output=True)
        for name in (*(f"slurmd-{node}" for node in NODES), "slurmctld"):
            file = self.folder / f"{name}.pid"
            if file.is_file() and (pid := int(file.read_text())) in _processes():
                os.kill(pid, signal.SIGTERM)
                wait_for(f"the end of {name}", lambda pid=pid: pid not in _processes())
        for node in NODES:
            for pid in self._of_jobs(node):
                os.kill(pid, signal.SIGKILL)
        if self.munge:
            self.munge.terminate()
            self.munge.wait()
        CONFIGURATION.unlink()


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """A running SLURM, stopped at the end whatever happens."""
    cluster = Slurm(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _munged() -> bytes:
    return subprocess.run(["munge", "-n"], capture_output=True).stdout


def _processes() -> set[int]:
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _name(int(path.name)) and _state(int(path.name)) != "Z":
            found.add(int(path.name))
    return found


def _status(pid: int, field: str) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:")), "")


def _name(pid: int) -> str:
    return _status(pid, "Name")


def _state(pid: int) -> str:
    return _status(pid, "State")[:1]


def _parent(pid: int) -> int:
    return int(_status(pid, "PPid") or 0)


def _environment(pid: int) -> dict[str, str]:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)
