"""Measures memory, disk use and metrics of real processes, and limits their memory or disk.

Tests assert the bounds. A process is named by its process id. Each value is read from the kernel or from the process's
own metrics, and never estimated from elapsed time.
"""

import re
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.integration.store_fixtures import eventually

__all__ = [
    "DEADLINE_SECONDS",
    "PeakMemory",
    "append_only_bytes",
    "eventually",
    "file_size_limit",
    "metric",
    "metrics",
    "ready",
    "rss_bytes",
    "small_filesystem",
]

DEADLINE_SECONDS = 30.0
"""Seconds for a single wait of a test on a busy machine."""


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process now."""
    return _status_kb(pid, "VmRSS") * 1_024


class PeakMemory:
    """The highest resident memory of a process since this object was made, as measured by the kernel."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets VmHWM to the present RSS
        self.start_bytes = rss_bytes(pid)

    @property
    def growth_bytes(self) -> int:
        return _status_kb(self._pid, "VmHWM") * 1_024 - self.start_bytes


def _status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no {field}")


async def metrics(url: str) -> str:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return (await client.get(f"{url}/metrics")).text


async def metric(url: str, name: str) -> float:
    """Return the sum over all labels of `threadcast_<name>`; `name` may end with `{label="value"}`."""
    total = 0.0
    for line in (await metrics(url)).splitlines():
        found = re.fullmatch(r"(?:threadcast_)?(\S+?)(\{.*\})? (\S+)", line)
        if found and (found[1] == name or f"{found[1]}{found[2] or ''}" == name):
            total += float(found[3])
    return total


async def ready(url: str, wanted: int) -> str:
    """Wait until /readyz answers with that status; returns the body of that answer."""
    said = ""

    async def is_so() -> bool:
        nonlocal said
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            answer = await client.get(f"{url}/readyz")
        said = answer.text
        return answer.status_code == wanted

    await eventually(is_so)
    return said


def append_only_bytes(directory: Path) -> int:
    """Return the size of the largest file of the append-only log below a server's directory."""
    return max((file.stat().st_size for file in directory.glob("appendonlydir/*.aof")), default=0)


@contextmanager
def file_size_limit(pid: int, limit_bytes: int) -> Iterator[None]:
    """Let no file of that process grow beyond `limit_bytes`: its writes fail as on a full disk, without a mount.

    Processes that `child.py` starts ignore the signal that would end them.
    """
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def small_filesystem(directory: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system of that size; skip the test if the system refuses the mount."""
    directory.mkdir(parents=True, exist_ok=True)
    asked = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(asked, capture_output=True, timeout=10, check=False)
    except OSError as wrong:
        pytest.skip(f"no file system can be mounted here: {wrong}")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        for _ in range(50):  # a process that has open files in the directory may not have ended yet
            if subprocess.run(["umount", str(directory)], capture_output=True, timeout=10, check=False).returncode == 0:
                break
            time.sleep(0.1)
