"""Measures a start: the import, the time until the server is ready, and the first answer, compared with bare Python and
the libraries.

Every value comes from separate processes with a warm start: the files are in the page cache and the byte code is
written, as after an installation. Both CPU time and wall-clock time are measured. The compared programs take turns, so
that the ratios hold on an unsteady machine. To repeat: `python -m bench.start [--small]`.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx2
from tests.support.server import ROOT, start, user_message

from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.processes import cpu_seconds

__all__ = ["measure"]

IMPORT_MAX_SECONDS = 0.4
READY_MAX_SECONDS = 1.0
"""The limits for a start: CPU seconds of the import, and seconds until the server is ready."""

COMMAND_LINE = "import threadcast.cli; threadcast.cli._parser()"
"""The imports of `threadcast --help`."""

SERVING = "from threadcast.http.imports import begin_startup_imports; begin_startup_imports(); import threadcast.wiring"
"""The imports of `threadcast serve` before it listens: the web part and the worker part of the server."""

LIBRARIES = "import starlette.applications, uvicorn, msgspec, redis.asyncio, httpx2"
"""The imports of any server that uses the same libraries."""


class Spent(NamedTuple):
    """The wall-clock and CPU seconds of one process."""

    wall: float
    cpu: float


class Started(NamedTuple):
    """The times of one `threadcast serve`: until it is ready, and from then to the end of its first answer."""

    ready: Spent
    answer: Spent


def measure(small: bool) -> Section:
    """Measure seven starts of each; `small` has two."""
    repeats = 2 if small else 7
    imports: dict[str, list[Spent]] = {words: [] for words in ("pass", COMMAND_LINE, LIBRARIES, SERVING)}
    starts: list[Started] = []
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for words in imports:
            _imported(words, environment)
        asyncio.run(_started(environment))
        for number in range(repeats):
            progress(f"start: {number + 1} of {repeats}")
            for words, found in imports.items():
                found.append(_imported(words, environment))
            starts.append(asyncio.run(_started(environment)))
    bare, line, theirs, ours = imports.values()
    ready = [each.ready for each in starts]
    answer = [each.answer for each in starts]
    return Section(
        "start",
        "import, ready, first answer",
        f"python -m bench.start{' --small' * small}",
        [
            *_both("bare", "a bare Python", bare),
            *_both("line", "the command line (`--help`)", line, IMPORT_MAX_SECONDS),
            *_both("libraries", "Starlette, uvicorn, msgspec, redis, httpx2", theirs),
            *_both("serving", "the imports of `threadcast serve`", ours, IMPORT_MAX_SECONDS),
            ratio("serving_libraries", "the same / the libraries' imports, CPU", _cpus(ours), _cpus(theirs)),
            *_both("ready", "`threadcast serve` until it is ready", ready, READY_MAX_SECONDS),
            ratio("ready_libraries", "the same / the libraries' imports, CPU", _cpus(ready), _cpus(theirs)),
            *_both("answer", "from ready to the end of its first answer", answer),
        ],
    )


def _both(key: str, what: str, spent: Sequence[Spent], bar: float | None = None) -> list[Figure]:
    return [
        figure(f"{key}_cpu", f"{what}, CPU", [each.cpu for each in spent], "s"),
        figure(f"{key}_wall", f"{what}, wall", [each.wall for each in spent], "s", bar=bar),
    ]


def _cpus(spent: Sequence[Spent]) -> list[float]:
    return [each.cpu for each in spent]


def _imported(words: str, environment: dict[str, str]) -> Spent:
    """Measure one interpreter that runs `words`, without its shutdown, which takes a third of the time."""
    began_at = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", f"{words}\nimport os; os._exit(0)"], cwd=ROOT, env=os.environ | environment
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return Spent(time.perf_counter() - began_at, used.ru_utime + used.ru_stime)


async def _started(environment: dict[str, str]) -> Started:
    """Measure one server with its own store on disk."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        began_at = time.perf_counter()
        words = ("serve", "--port", "0", "--data-dir", f"{directory}/data")
        process = stack.enter_context(start(*words, log=Path(directory) / "log", environment=environment))
        await process.ready()
        ready = Spent(time.perf_counter() - began_at, cpu_seconds(process.pid))
        async with httpx2.AsyncClient(timeout=30) as client:
            await client.get(f"{process.url}/healthz")  # the time of our own first request does not count
            began_at, cpu = time.perf_counter(), cpu_seconds(process.pid)
            asked = user_message("a", "hello", params={"model": "demo/echo?rate=0"})
            async with client.stream("GET", f"{process.url}/v1/chats/subscribe?chat_id=first") as stream:
                await client.post(f"{process.url}/v1/chats/first/commands", json=asked)
                said = b""
                async for piece in stream.aiter_raw():
                    said += piece
                    if b'"outcome":"complete"' in said:
                        break
        answer = Spent(time.perf_counter() - began_at, cpu_seconds(process.pid) - cpu)
        return Started(ready, answer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--small", action="store_true", help="two starts of each")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
