"""The tools of the coding assistant that run on the server; those of the editor are in threadcast.toml.

`search` is safe, so several run at once. `run_command` asks a person. `run_tests` goes on in the background and wakes
the chat. The packs below bring chats below the chat, and a look at what runs.
"""

import os
from pathlib import Path
from subprocess import STDOUT
from typing import Annotated

import anyio

from server.authoring import ToolContext, tool
from server.tools.agents import agent_status, delegate, start_agent, stop_agent
from server.tools.process_tools import read_process

__all__ = [
    "agent_status",
    "delegate",
    "read_process",
    "run_command",
    "run_tests",
    "search",
    "start_agent",
    "stop_agent",
]

PROJECT = Path(os.environ.get("CODING_PROJECT", "/tmp/threadcast-coding"))
"""What is worked on: the directory that the editor has open."""

PYTHON = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
"""All that commands see of our environment, which may hold keys."""


@tool(retry="safe", label_arg="path")
def search(word: str, path: Annotated[str, "one file of the project"]) -> list[str]:
    """The lines of a file that have a word in them, with their numbers."""
    known = {file.name: file for file in sorted(PROJECT.glob("*.py"))}
    if path not in known:
        return [f"There is no {path}; there are {', '.join(known)}."]
    lines = known[path].read_text("utf-8").splitlines()
    return [f"{path}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if word in line]


@tool(policy="ask", category="dangerous", label_arg="command", timeout_seconds=60)
async def run_command(command: Annotated[str, "a line for sh, in the project's directory"]) -> str:
    """Run a command and wait for its output."""
    done = await anyio.run_process(["/bin/sh", "-c", command], cwd=PROJECT, env=PYTHON, stderr=STDOUT, check=False)
    return f"exit code {done.returncode}\n{done.stdout.decode(errors='replace')[-8_000:]}".rstrip()


@tool()
async def run_tests(ctx: ToolContext) -> str:
    """Start the project's tests in the background. You are told how they ended."""
    process_id = await ctx.processes.start(
        ["python3", "-m", "unittest"], cwd=str(PROJECT), env=PYTHON, description="the tests", wake=True
    )
    return f"Process {process_id} runs the tests."
