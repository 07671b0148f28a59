"""The tools of the coding assistant that run on the server. The tools that run in the editor are in threadcast.toml.

`search` is safe, so several calls run at once. `run_command` asks a person for approval. `run_tests` runs in the
background and wakes the chat at its end. The packs at the end add tools for sub-chats and for background processes.
`the_editor` runs beside the server, so that the example needs no second terminal.
"""

import os
import shutil
from functools import partial
from pathlib import Path
from subprocess import STDOUT
from typing import Annotated

import anyio
from editor import watch_all

from threadcast import ToolContext, ToolFailed, companion, tool
from threadcast.tools.agents import agent_status, delegate, start_agent, stop_agent
from threadcast.tools.process_tools import read_process

__all__ = [
    "agent_status",
    "delegate",
    "read_process",
    "run_command",
    "run_tests",
    "search",
    "start_agent",
    "stop_agent",
    "the_editor",
]

PROJECT = Path(os.environ.get("CODING_PROJECT", "/tmp/threadcast-coding"))
"""The project: the directory that the editor has open."""

HAS_EDITOR = os.environ.get("CODING_EDITOR", "on") != "off"
"""Whether the server runs an editor. Set CODING_EDITOR=off to open the project in your own editor."""

PYTHON = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
"""The environment variables that commands get. All other variables are withheld, because they may hold keys."""


@companion()
async def the_editor(url: str) -> None:
    """Run an editor for the chats of this server, with a fresh copy of the project. The editor's panel is a file beside
    the project."""
    if not HAS_EDITOR:
        return
    if "CODING_PROJECT" not in os.environ:
        shutil.copytree(Path(__file__).with_name("project"), PROJECT, dirs_exist_ok=True)
    with (_project() / "panel").open("w", encoding="utf-8") as panel:
        await watch_all(url, PROJECT, partial(print, file=panel, flush=True))


def _project() -> Path:
    """Return the project's directory. Raises ToolFailed with advice if the directory does not exist."""
    if not PROJECT.is_dir():
        example = Path(__file__).with_name("project")
        raise ToolFailed(f"There is no project in {PROJECT}. Put one there, such as: cp -R {example} {PROJECT}")
    return PROJECT


@tool(retry="safe", label_arg="path")
def search(word: str, path: Annotated[str, "one file of the project"]) -> list[str]:
    """Find the lines of a file that contain a word. Returns them with their numbers."""
    known = {file.name: file for file in sorted(_project().glob("*.py"))}
    if path not in known:
        return [f"There is no {path}; there are {', '.join(known)}."]
    lines = known[path].read_text("utf-8").splitlines()
    return [f"{path}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if word in line]


@tool(policy="ask", category="dangerous", label_arg="command", timeout_seconds=60)
async def run_command(command: Annotated[str, "a line for sh, in the project's directory"]) -> str:
    """Run a command and wait for its output."""
    done = await anyio.run_process(["/bin/sh", "-c", command], cwd=_project(), env=PYTHON, stderr=STDOUT, check=False)
    return f"exit code {done.returncode}\n{done.stdout.decode(errors='replace')[-8_000:]}".rstrip()


@tool()
async def run_tests(ctx: ToolContext) -> str:
    """Start the project's tests in the background. You are told how they ended."""
    process_id = await ctx.processes.start(
        ["python3", "-m", "unittest"], cwd=str(_project()), env=PYTHON, description="the tests", wake=True
    )
    return f"Process {process_id} runs the tests."
