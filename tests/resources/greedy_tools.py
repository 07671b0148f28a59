"""Tools for these tests, given to the server by `--app`: they return, print and report too much, and block the loop.

Real processes load the tools. A patch in this file also makes one command end its process, because no real command does
so.
"""

import asyncio
import os
import time
from pathlib import Path

from threadcast.actor import intake
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.python import tool

MEGABYTE = 1_000_000


@tool()
def returns_much(megabytes: int) -> str:
    """One long text."""
    return "x" * (megabytes * MEGABYTE)


@tool()
def yields_much(megabytes: int):  # type: ignore[no-untyped-def] # as an author writes it
    """Yields long reports, then returns a long result."""
    for _ in range(megabytes):
        yield Progress(message="x" * MEGABYTE, data={"x": "x" * MEGABYTE})
    yield ToolResult(content="x" * MEGABYTE)


@tool(timeout_seconds=60)
async def prints_much(context: ToolContext, megabytes: int) -> str:
    """Runs a program that floods its output."""
    line = f"head -c {megabytes * MEGABYTE} /dev/zero | tr '\\\\0' x; echo; echo the-end"
    process_id = await context.processes.start(["/bin/sh", "-c", line])
    while (view := context.processes.read(process_id)).status == "running":
        await asyncio.sleep(0.05)
    return f"{view.status} {len(view.output)} {view.output[-9:].strip()}"


@tool()
async def nests(depth: int) -> ToolResult:
    """Returns structured data deeper than any reader should parse."""
    data: object = 1
    for _ in range(depth):
        data = [data]
    return ToolResult(content="done", metadata_patch={"deep": data})


@tool(retry="once", timeout_seconds=60)
async def blocks(context: ToolContext, seconds: float) -> str:
    """Blocks the event loop, which all chats share, once the file `go` exists, as no asynchronous function may."""
    while not (Path(context.data_dir) / "go").exists():
        await asyncio.sleep(0.02)
    _mark(context, "begins")
    time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for
    _mark(context, "ends")
    return "it never blocked"


@tool(retry="once", timeout_seconds=60)
async def ticks(context: ToolContext, seconds: float) -> str:
    """Has an effect again and again."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _mark(context, "tick")
        await asyncio.sleep(0.05)
    return "it ticked"


@tool()
def kills_its_worker() -> str:
    """Ends its own process, each time."""
    os._exit(9)


@tool(retry="safe")
def kills_its_worker_again() -> str:
    """Ends its own process too, but may be retried."""
    os._exit(9)


@tool()
def writes(context: ToolContext, megabytes: int) -> str:
    """Writes a file in the directory where tools may write."""
    directory = Path(context.data_dir)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "large").write_bytes(b"x" * (megabytes * MEGABYTE))
    return "written"


def _mark(context: ToolContext, word: str) -> None:
    marks = Path(context.data_dir) / f"{context.chat_id}.marks"
    marks.parent.mkdir(parents=True, exist_ok=True)
    with marks.open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic()} {word}\n")


_decide = intake.decide  # type: ignore[attr-defined] # a patch reaches where others do not


def _deadly(*arguments, **named):  # type: ignore[no-untyped-def] # whatever `decide` takes
    if "poison" in repr(arguments[1]):
        os._exit(9)
    return _decide(*arguments, **named)


intake.decide = _deadly  # type: ignore[attr-defined] # as above
