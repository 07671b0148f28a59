"""What running processes have used: CPU seconds and memory, read from /proc; and small C programs built when needed.

Costs are CPU time of a process, not time on the wall: on a machine that does much else only this repeats. Called by
the programs of `bench/`. Linux only, since /proc and these clocks are. The rule: a process is measured by its id and
never ended here.
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
    """User and system time of the process and all its threads, to the nanosecond, also of threads that have ended: its
    CPU clock as clock_getcpuclockid(3) makes it (the id's complement, shifted by three, and CPUCLOCK_SCHED, 2). Raises
    OSError when the process has ended."""
    return time.clock_gettime((~pid << 3) | 2)


def tree(pid: int) -> dict[int, str]:
    """The living processes that descend from `pid`, and itself: ids and names (proc(5), stat: comm, ppid)."""
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
    """Of all of them together, with the children that they had and waited for (proc(5), cutime and cstime, which count
    in ticks of 10 ms). Of `tree(pid)`, taken anew each time: a child that ended is then in its parent's."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            waited = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
            total += cpu_seconds(pid) + sum(map(int, waited)) * _TICK_SECONDS
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory that is the process's own: private pages, without what it shares (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def stolen_seconds() -> float:
    """What other machines on the same host took from ours since its start, of all cores (proc(5), stat, steal)."""
    return int(Path("/proc/stat").read_text().split()[8]) * _TICK_SECONDS


@cache
def built(name: str) -> Path:
    """The program of `bench/native/<name>.c`, compiled for this machine. Raises FileNotFoundError without a compiler,
    CalledProcessError when it does not compile."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("this measurement needs a C compiler: install gcc")
    program = Path(tempfile.mkdtemp(prefix="threadcast-bench-")) / name
    subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-o", program, NATIVE / f"{name}.c"], check=True)
    return program


def machine() -> dict[str, str | int]:
    """Where figures were taken; no name and no path."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "cores": os.cpu_count() or 1,
    }
