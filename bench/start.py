"""What a start takes: importing, being ready, and the first answer, beside bare Python and the libraries we stand on.

Every value is of processes of their own, started warm: their files are in the page cache and their byte code is
written, whatever the environment says about that, as it is after an installation. By CPU and by the wall. To repeat:
`python -m bench.start [--small]`. The rule: theirs and ours take turns, so that ratios hold when the machine does not.
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

from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.processes import cpu_seconds
from tests.integration.harness import ROOT, start, user_message

__all__ = ["measure"]

IMPORT_MAX_SECONDS = 0.4
READY_MAX_SECONDS = 1.0
"""The bars."""

COMMAND_LINE = "import server.cli; server.cli._parser()"
"""What `threadcast --help` loads."""

SERVING = "from server.light import begin_lightly; begin_lightly(); import server.app"
"""What `threadcast serve` loads before it listens, and how: both halves of the server."""

LIBRARIES = "import starlette.applications, uvicorn, msgspec, redis.asyncio, httpx2"
"""What any server made of the same libraries loads."""


class Spent(NamedTuple):
    """Seconds of one process."""

    wall: float
    cpu: float


class Started(NamedTuple):
    """One `threadcast serve`: until it said it was ready, and from there to the end of its first answer."""

    ready: Spent
    answer: Spent


def measure(small: bool) -> Section:
    """Seven starts of each, or two."""
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
            *_both("serving", "all that `threadcast serve` imports", ours, IMPORT_MAX_SECONDS),
            ratio("serving_libraries", "the same / the libraries alone, CPU", _cpus(ours), _cpus(theirs)),
            *_both("ready", "`threadcast serve` until it is ready", ready, READY_MAX_SECONDS),
            ratio("ready_libraries", "the same / the import of the libraries alone, CPU", _cpus(ready), _cpus(theirs)),
            *_both("answer", "from there to the end of its first answer", answer),
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
    """One interpreter that runs `words`; taking it all down again, a third as long, is left out."""
    began_at = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", f"{words}\nimport os; os._exit(0)"], cwd=ROOT, env=os.environ | environment
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return Spent(time.perf_counter() - began_at, used.ru_utime + used.ru_stime)


async def _started(environment: dict[str, str]) -> Started:
    """One server with a store of its own on disk."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        began_at = time.perf_counter()
        words = ("serve", "--port", "0", "--data-dir", f"{directory}/data")
        process = stack.enter_context(start(*words, log=Path(directory) / "log", environment=environment))
        await process.ready()
        ready = Spent(time.perf_counter() - began_at, cpu_seconds(process.pid))
        async with httpx2.AsyncClient(timeout=30) as client:
            await client.get(f"{process.url}/healthz")  # what our own first request takes is not the server's
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
