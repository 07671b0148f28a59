"""Runs the `console` blocks of a page against a real server, and compares the output with the page.

    ```console
    $ curl -s http://127.0.0.1:8000/v1/ping
    pong
    ```

A line `$ command` is run by `sh` in the clone's root; a line that ends in a backslash, or within quotes, continues on
the next line. The lines below are the whole output, where `…` matches anything. `$ ./scripts/run …` starts the server
on a free port with an empty data directory; later commands reach the server under the page's own URL. `$ command &`
runs until the end of the page, and its output is ignored.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import pytest

from tests.support.server import DEADLINE_SECONDS, ROOT, start

__all__ = ["Step", "differs", "play", "steps_of"]

PAGE_URL = "http://127.0.0.1:8000"
RUN = "./scripts/run "
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    command: str
    expected: str


def steps_of(page: str) -> list[Step]:
    """Return the commands of a page, in order, each with its expected output."""
    steps: list[Step] = []
    for block in _BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.split("\n")
            last = next(at for at in range(len(lines)) if _is_whole("\n".join(lines[: at + 1])))
            steps.append(Step("\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :]).strip("\n")))
    return steps


def _is_whole(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:  # open quotes, or a backslash at the end
        return False
    return not command.endswith("\\")


def differs(expected: str, printed: str) -> str:
    """Return why `printed` differs from the page, or ''. Blank lines are ignored. `…` matches any part of a line, and
    on its own line any number of lines."""
    lines = [line.rstrip() for line in printed.split("\n") if line.strip()]
    at = 0
    wanted = [line.rstrip() for line in expected.split("\n") if line.strip()]
    for number, line in enumerate(wanted):
        if line.strip() == "…":
            following = next((other for other in wanted[number + 1 :]), None)
            while at < len(lines) and (following is None or not _fits(following, lines[at])):
                at += 1
            continue
        if at == len(lines) or not _fits(line, lines[at]):
            got = lines[at] if at < len(lines) else "(nothing more)"
            return f"the page says:  {line}\nit printed:     {got}\n\nall of it:\n{printed}"
        at += 1
    return "" if at == len(lines) else f"it printed more than the page says: {lines[at]}\n\nall of it:\n{printed}"


def _fits(wanted: str, line: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in wanted.split("…")), line) is not None


async def play(page: Path, base: Path) -> list[str]:
    """Run the commands of the whole page, whose first command starts the server. Returns what each command printed.

    Raises:
        Raises AssertionError if a command printed something else.
    """
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed, which the pages of the examples use")
    first, *others = steps_of(page.read_text("utf-8"))
    assert first.command.startswith(RUN), "a page begins with the command that starts its server"
    arguments = first.command.removeprefix(RUN).split()
    printed: list[str] = []
    with (
        start("serve", *arguments, "--port", "0", "--data-dir", str(base / "data"), log=base / "log") as server,
        ExitStack() as beside,
    ):
        await server.ready()
        for step in others:
            command = step.command.replace(PAGE_URL, server.url)
            if command.endswith(" &"):
                beside.enter_context(_running(command.removesuffix(" &")))
                continue
            out = await anyio.to_thread.run_sync(_run, command)
            out = out.replace(server.url, PAGE_URL)
            wrong = differs(step.expected, out)
            assert not wrong, f"$ {step.command}\n{wrong}\n\nthe server's log:\n{server.log_text()[-4000:]}"
            printed.append(out)
    return printed


@contextmanager
def _running(command: str) -> Iterator[None]:
    """Run a command in the background for a block."""
    program = subprocess.Popen(
        ["sh", "-c", f"exec {command}"],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        program.kill()
        program.wait(DEADLINE_SECONDS)


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _run(command: str) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return done.stdout.decode()
