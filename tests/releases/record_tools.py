"""Tools of the recorded chats, given to the recorder's processes by `--app`: one tool for each kind of event and fact
that the demo tools and the transcripts do not produce."""

import asyncio

from tests.integration.preview_tools import article, propose_article, save_article
from threadcast.tools.agents import agent_status, delegate, start_agent, stop_agent
from threadcast.tools.base import ToolResult
from threadcast.tools.context import PASSED_ON, ClientEvent, ToolContext
from threadcast.tools.process_tools import read_process, start_process, stop_process
from threadcast.tools.python import PythonTool, tool
from threadcast.tools.traits import Traits

__all__ = [
    "agent_status",
    "article",
    "asks",
    "delegate",
    "hides",
    "never_twice",
    "passes_on",
    "propose_article",
    "read_process",
    "remembers",
    "run_process",
    "save_article",
    "start_agent",
    "stop_agent",
    "stop_process",
    "withholds",
]

run_process = PythonTool(start_process.function, name="run_process")


@tool(policy="ask", retry="safe")
def asks(text: str = "") -> str:
    """Wants a person's word first."""
    return f"allowed: {text}"


@tool(retry="once", timeout_seconds=60)
async def never_twice() -> str:
    """Must not run twice, and does not end by itself."""
    await asyncio.Event().wait()
    return ""


@tool()
def passes_on(context: ToolContext) -> str:
    """Reports a browser, and everything else that tools may report."""
    for kind in sorted(PASSED_ON):
        if kind.startswith("browser_"):
            context.report(ClientEvent(kind, {"browser_id": "b1", "value": 1}))
    return "told"


@tool()
def remembers(value: str = "x") -> ToolResult:
    """Keeps something for later calls."""
    return ToolResult(content="kept", memory_patch={"value": value}, memory_ttl_seconds=600)


@tool(hide_input=True)
def hides(secret: str) -> str:
    """Has arguments that only the model reads."""
    return f"{len(secret)} characters"


@tool(traits=Traits(visibility="hidden"))
def withholds() -> str:
    """Has output that only the model reads."""
    return "for the model alone"
