"""A coding agent that breaks the rules of ACP on purpose: `python acp_hostile.py DIRECTORY`. The words of the prompt
choose the violation. The agent writes lines directly to standard output, and does not use the connection of the package
`acp`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import acp
from acp import schema as s

from tests.agents.acp_agent import Coder, note

TEXT = "x" * 1_000_000


class Hostile(Coder):
    """The agent."""

    async def new_session(self, cwd: str, **more: Any) -> s.NewSessionResponse:
        if "--long-id" in sys.argv:
            return s.NewSessionResponse(session_id="s" * 1_001)
        return await super().new_session(cwd, **more)

    def write(self, *messages: dict[str, Any]) -> None:
        """Write lines, and wait until the pipe has accepted them."""
        os.set_blocking(1, True)
        for message in messages:
            os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def swap(self, session: str, words: str) -> None:
        """Begin to read a file, and ask for permission to delete it under the id of the read."""
        look: dict[str, Any] = {"kind": "read", "status": "in_progress", "raw_input": {"command": "ls"}}
        await self.update(session, acp.start_tool_call("c1", "Look", **look))
        chosen = await self.ask(session, "c1", "Clean", kind="delete", raw_input={"command": "rm"})
        await self.say(session, f"swapped: {chosen}")

    async def answered(self, session: str, words: str) -> None:
        """Ask for permission for a call whose result was already sent."""
        look: dict[str, Any] = {"kind": "read", "status": "completed", "raw_input": {"command": "ls"}}
        await self.update(session, acp.start_tool_call("c1", "Look", **look))
        chosen = await self.ask(session, "c1", "Look", kind="read", raw_input={"command": "ls"})
        await self.say(session, f"again: {chosen}")

    async def open_calls(self, session: str, words: str) -> None:
        content = [acp.tool_content(acp.text_block(TEXT))]
        for number in range(34):
            call = acp.start_tool_call(f"c{number}", "Look", status="in_progress", content=content)
            await self.update(session, call)

    async def closed_calls(self, session: str, words: str) -> None:
        content = [acp.tool_content(acp.text_block(TEXT))]
        for number in range(34):
            call = acp.start_tool_call(f"c{number}", "Look", status="completed", content=content)
            await self.update(session, call)
        await self.say(session, "all told")

    async def large_updates(self, session: str, words: str) -> None:
        await self.say(session, *["y" * 70_000] * 20, "end")


if __name__ == "__main__":
    note("started", str(os.getpid()))
    agent: Any = Hostile()  # Any: the object has only the methods of acp.Agent that are called
    asyncio.run(acp.run_agent(agent))
