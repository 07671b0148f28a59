"""What running processes have used: CPU seconds and memory, read from /proc; and small C programs built when needed.

Costs are CPU time of a process, not time on the wall: on a machine that does much else only this repeats. Called by
the programs of `bench/`. Linux only, since /proc and these clocks are. The rule: a process is measured by its id and
never ended here.
"""

import os
import platform
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

__all__ = ["built", "cpu_seconds", "machine", "rss_bytes", "stolen_seconds"]

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
NATIVE = Path(__file__).parent / "native"


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and all its threads, to the nanosecond, also of threads that have ended: its
    CPU clock as clock_getcpuclockid(3) makes it (the id's complement, shifted by three, and CPUCLOCK_SCHED, 2). Raises
    OSError when the process has ended."""
    return time.clock_gettime((~pid << 3) | 2)


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
