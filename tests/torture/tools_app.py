"""Tools that write a line to a file in every run, so that extra runs can be counted. The workers under torture load
this file (`server.app`); the environment variable TORTURE_RUNS_FILE names the file of runs.

A line is written by one write(2) to a file opened for appending, so it is written whole or not at all, even if the
process is killed.
"""

import asyncio
import os

from threadcast import ToolContext, tool
from threadcast.tools.agents import delegate

__all__ = ["count_asked", "count_once", "count_safe", "delegate", "linger"]

_RUNS = os.open(os.environ["TORTURE_RUNS_FILE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _note(kind: str, ctx: ToolContext) -> None:
    os.write(_RUNS, f"{kind} {ctx.chat_id} {ctx.run_id} {ctx.tool_call_id}\n".encode())


@tool(retry="once")
def count_once(word: str, ctx: ToolContext) -> str:
    """Has effects: it must not run again unless a person says so."""
    _note("once", ctx)
    return f"once: {word}"


@tool(retry="safe")
def count_safe(word: str, ctx: ToolContext) -> str:
    """Has no effects: it may run again."""
    _note("safe", ctx)
    return f"safe: {word}"


@tool(retry="once", policy="ask")
def count_asked(word: str, ctx: ToolContext) -> str:
    """Has effects, and runs only after a person's decision."""
    _note("asked", ctx)
    return f"asked: {word}"


LINGER_SECONDS = 1.5
"""Duration of a tool in seconds: long enough for an abort, a kill or a takeover during the tool, at any depth of
sub-chats."""


@tool(retry="safe")
async def linger(word: str) -> str:
    """Takes a while."""
    await asyncio.sleep(LINGER_SECONDS)
    return f"lingered: {word}"
