"""Many readers of event streams in one small C process. `bench/native/readers.c` describes its commands.

The readers run in their own process, so that the measured process does not share its CPU with them. Counts are valid
only if no reader was lost.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from bench.processes import built

__all__ = ["Count", "Readers", "opened_readers"]


class Count(msgspec.Struct, frozen=True):
    """The counts of all readers since they were opened or reset; see the head of `readers.c`."""

    readers: int
    open: int
    events: int
    least: int
    bytes: int
    cpu_s: float
    first_s: float
    last_s: float
    stamps: int
    lost: int
    writes: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0


class Readers:
    """The handle of the process. Each method blocks until the process answers. It raises SystemExit if the process has
    ended, readers were lost, or the awaited events did not arrive within two minutes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, count: int) -> Count:
        """Open more readers, and wait until the answer to each has begun."""
        told = self.tell(f"open {count}")
        if told.open != told.readers:
            raise SystemExit(f"only {told.open} of {told.readers} streams were opened")
        return told

    def wait(self, least: int) -> Count:
        """Wait until each reader has received this number of events."""
        told = self.tell(f"wait {least}")
        if told.least < least:
            raise SystemExit(f"a reader had {told.least} events of {least} after two minutes")
        return told

    def count(self) -> Count:
        return self.tell("count")

    def reset(self) -> None:
        self.tell("reset")

    def tell(self, command: str, *, may_lose: bool = False) -> Count:
        """Send a command of `readers.c` and return the counts."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise SystemExit(f"the readers ended with {self._process.wait(10)} at {command!r}")
        told = msgspec.json.decode(line, type=Count)
        if told.lost and not may_lose:
            raise SystemExit(f"{told.lost} of {told.readers} readers lost their streams")
        return told


@contextmanager
def opened_readers(url: str, path: str, *options: str, headers: Sequence[str] = ()) -> Iterator[Readers]:
    """Start the process without readers, for a block. `options` are the command-line options of `readers.c`."""
    at = urlsplit(url)
    named = [word for header in headers for word in ("-H", header)]
    arguments = [str(built("readers")), *options, *named, str(at.hostname), str(at.port), path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr) as process:
        try:
            yield Readers(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # its end
