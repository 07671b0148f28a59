"""`threadcast dev FILE.py`: runs `threadcast serve` with a file of agents and tools, and starts it again when the file
or its neighbours change.

The chats are kept, because the server is stopped in the ordinary way and started again with the same data directory.
Runs that a stop interrupts continue after the start.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from threadcast.console import refuse

__all__ = ["dev"]

POLL_SECONDS = 0.3
"""Seconds between two checks of the files. A change is noticed before the author has switched to the browser."""

SUFFIXES = (".py", ".toml")
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
"""Names of directories that are not watched, because they do not contain the author's own files. Directories whose
names begin with a dot are not watched either."""

FILES_MAX = 5_000
"""The maximum number of watched files: one check of so many files takes 50 ms. If there are more files, the nearest are
watched."""

STOP_SECONDS = 40.0
"""Seconds after which a server that was told to stop is killed: longer than the server's own time limit with the
default settings."""


def dev(app: str, arguments: Sequence[str]) -> int:
    """Run `threadcast serve --app APP ARGUMENTS` until it is told to stop. Returns the exit code."""
    file = Path(app)
    if not file.is_file():
        return refuse(f"{app}: no such file; `threadcast init` writes a first one", 2)
    command = [sys.executable, "-m", "threadcast.cli", "serve", "--app", app, *arguments]
    return _Server(command, file.resolve().parent).run()


class _Server:
    """The server process, and the files below `directory` that restart it."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._is_stopping = False

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        seen = self._look()
        process = self._start()
        has_told = False
        while not self._is_stopping:
            time.sleep(POLL_SECONDS)
            now = self._look()
            if now != seen:
                while (later := self._look()) != now:  # several files are being saved
                    now = later
                    time.sleep(POLL_SECONDS)
                changed = next(iter(dict(now.items() ^ seen.items())))
                _say(f"{os.path.relpath(changed)} has changed; starting again")
                self._end(process)
                seen, process, has_told = now, self._start(), False
            elif process.poll() is not None and not has_told:
                if process.returncode == 0:
                    return 0
                _say("the server has ended; it starts again when a file changes. Ctrl-C ends this command")
                has_told = True
        return 0 if has_told else self._end(process)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, start_new_session=True)

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        """Stop the server and return its exit code."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()

    def _look(self) -> dict[str, int]:
        """Return the times of change of the watched files, in nanoseconds."""
        found: dict[str, int] = {}
        for path in _files_below(self._directory):
            try:
                found[path] = Path(path).stat().st_mtime_ns
            except OSError:  # deleted meanwhile
                continue
            if len(found) >= FILES_MAX:
                break
        return found


def _files_below(directory: Path) -> Iterator[str]:
    """Yield the paths of the files to watch, the nearest first."""
    directories = [str(directory)]
    for each in directories:  # grows in the loop
        try:
            entries = list(os.scandir(each))
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in SKIPPED:
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.path)
            elif entry.name.endswith(SUFFIXES):
                yield entry.path


def _say(text: str) -> None:
    print(f"threadcast: {text}", file=sys.stderr, flush=True)
