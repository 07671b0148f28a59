"""Tools for tests (`--app`): the packs for agents and processes as an operator offers them, a `start` that needs no
approval, and the tools of the tests' sub-chats."""

import asyncio

from threadcast.tools.agents import agent_status, delegate, start_agent, stop_agent
from threadcast.tools.process_tools import read_process, start_process, stop_process
from threadcast.tools.python import PythonTool, tool

__all__ = [
    "agent_status",
    "delegate",
    "hang",
    "read_process",
    "run_process",
    "start_agent",
    "start_process",
    "stop_agent",
    "stop_process",
]

run_process = PythonTool(start_process.function, name="run_process")


@tool(retry="safe", timeout_seconds=60)
async def hang() -> str:
    """Never answers."""
    await asyncio.Event().wait()
    return ""
