"""Time every case and write the table into ``benchmarks/README.md``: ``make bench`` (quiet machine, about 10 minutes).

Each line is timed in a process of its own: one warm-up call, then five; the table shows the median, and how much the
process grew beyond what it held before the first call (data and libraries included).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
TABLE = "<!-- table -->"
REPEATS = 5


def resident_mb() -> float:
    """Resident size of this process now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def time_one(case: str, name_at: int) -> None:
    """Time one line of a case and print it as JSON (in a process of its own)."""
    from cases import CASES

    name, call = list(CASES[case]().items())[name_at]
    before = peak = resident_mb()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    seconds = []
    for repeat in range(REPEATS + 1):
        started = time.perf_counter()
        call()
        if repeat:
            seconds.append(time.perf_counter() - started)
    done.set()
    watcher.join()
    print(json.dumps({"name": name, "seconds": seconds, "mb": peak - before}))


def names_of(case: str) -> int:
    """How many lines a case has (in a process of its own, since finding out prepares data)."""
    code = f"from cases import CASES; print(len(CASES[{case!r}]()))"
    found = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    return int(found.stdout.split()[-1])


def measure(case: str) -> list[dict]:
    """All lines of one case."""
    lines = []
    for place in range(names_of(case)):
        command = [sys.executable, __file__, "--case", case, "--line", str(place)]
        found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if found.returncode:
            raise SystemExit(f"{case}, line {place}:\n{found.stderr}")
        lines.append(json.loads(found.stdout.splitlines()[-1]))
        print(f"{case}: {lines[-1]['name']}: {statistics.median(lines[-1]['seconds']):.3f} s", flush=True)
    return lines


def table(results: dict[str, list[dict]]) -> str:
    """The results in Markdown; factors are against the first line of a case."""
    rows = [
        "| case | line | median (s) | spread (s) | peak memory (MiB) | first line's time / this |",
        "|---|---|---|---|---|---|",
    ]
    for case, lines in results.items():
        first = statistics.median(lines[0]["seconds"])
        for line in lines:
            seconds = sorted(line["seconds"])
            median = statistics.median(seconds)
            rows.append(
                f"| {case} | {line['name']} | {median:.4g} | {seconds[0]:.4g} … {seconds[-1]:.4g} "
                f"| {line['mb']:.0f} | {first / median:.3g} |"
            )
            case = ""
    return "\n".join(rows)


def machine() -> str:
    """What the numbers were made on."""
    import torch

    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {cpu or platform.machine()}, {os.cpu_count()} cores, "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; no GPU."
    )


def main() -> None:
    """Time all cases, or those named with ``--only``, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", help="Part of a case's name; may be repeated. Prints, writes nothing."
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--line", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if options.case:
        time_one(options.case, options.line)
        return
    from cases import CASES

    chosen = [case for case in CASES if not options.only or any(part in case for part in options.only)]
    written = table({case: measure(case) for case in chosen})
    print(written)
    if not options.only:
        readme = HERE / "README.md"
        before, _, rest = readme.read_text(encoding="utf-8").partition(TABLE)
        _, _, after = rest.partition(TABLE)
        readme.write_text(f"{before}{TABLE}\n\n{machine()}\n\n{written}\n\n{TABLE}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
