"""Reads the CPU time and memory of running processes from /proc, and compiles small C programs.

The programs of `bench/` measure costs as CPU time, because only CPU time is the same in each run on a busy machine.
/proc and these clocks exist on Linux only. The module never ends a process.
"""

import contextlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

__all__ = ["built", "cpu_seconds", "machine", "rss_bytes", "stolen_seconds", "tree", "tree_cpu_seconds"]

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
NATIVE = Path(__file__).parent / "native"


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and all its threads, including ended threads, in seconds with a
    resolution of nanoseconds. It is read from the CPU clock of clock_getcpuclockid(3): the complement of the process
    id, shifted by three, and CPUCLOCK_SCHED, 2. Raises OSError if the process has ended."""
    return time.clock_gettime((~pid << 3) | 2)


def tree(pid: int) -> dict[int, str]:
    """Return the ids and names of a process and its living descendants (proc(5), stat: comm, ppid)."""
    names: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it has ended
            head, _, rest = (entry / "stat").read_text().rpartition(")")
            names[int(entry.name)] = head.partition("(")[2]
            children.setdefault(int(rest.split()[1]), []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        if each in names:
            found[each] = names[each]
            waiting += children.get(each, [])
    return found


def tree_cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of several processes together, with their ended children (proc(5), cutime and cstime, in
    ticks of 10 ms). Pass the ids of the living processes of `tree(pid)`; the time of an ended child is included in its
    parent's time."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            waited = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
            total += cpu_seconds(pid) + sum(map(int, waited)) * _TICK_SECONDS
    return total


def rss_bytes(pid: int) -> int:
    """Return the private resident memory of a process, without shared pages (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def stolen_seconds() -> float:
    """Return the time that other virtual machines on the same host took from all cores since the start (proc(5), stat,
    steal)."""
    return int(Path("/proc/stat").read_text().split()[8]) * _TICK_SECONDS


@cache
def built(name: str) -> Path:
    """Compile `bench/native/<name>.c` for this machine and return the program. Raises FileNotFoundError without a
    compiler, CalledProcessError if the program does not compile."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("this measurement needs a C compiler: install gcc")
    program = Path(tempfile.mkdtemp(prefix="threadcast-bench-")) / name
    subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-o", program, NATIVE / f"{name}.c"], check=True)
    return program


def machine() -> dict[str, str | int]:
    """Return a description of this machine for a report, without names and paths."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "cores": os.cpu_count() or 1,
    }
