"""A coding agent behind ACP that writes slowly, carries a tool out, asks for a permission, and writes again. The file
is also the agent's program: `python acp_app.py DIRECTORY`."""

import asyncio
import json
import os
import pwd
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import acp

from tests.agents.acp_agent import WORDS, Coder
from tests.faults.durable.app import WORD_SECONDS, work
from tests.support.server import ROOT

ONCE = ("look", "pay")
IS_REMOTE = True
FIRST, SECOND = "".join(WORDS), f"{''.join(WORDS)}look, pay"
TEXTS = (FIRST, SECOND)


def text(said: Mapping[str, str]) -> str:
    """Return the text of the last answer of an undisturbed run."""
    return SECOND


class Journey(Coder):
    """The agent. The folder of a chat has the chat's id as its name."""

    async def hello(self, session: str, words: str) -> None:
        chat = Path(self.cwd[session]).name
        await self.say(session, *WORDS, seconds=WORD_SECONDS)
        look: dict[str, Any] = {"kind": "read", "status": "in_progress"}  # Any: fields of a model
        await self.update(session, acp.start_tool_call("look-1", "Look", **look))
        await work(chat, "look", 0.3)
        await self.done(session, "look-1", "look")
        await self.update(session, acp.start_tool_call("pay-1", "Pay", kind="execute", status="pending"))
        if await self.ask(session, "pay-1", "Pay", raw_input={}) == "yes":
            await work(chat, "pay", 0.3)
            await self.done(session, "pay-1", "pay")
        await self.say(session, *WORDS, "look, pay", seconds=WORD_SECONDS)


@contextmanager
def extras(directory: Path) -> Iterator[list[str]]:
    """Yield the server's configuration."""
    config = directory / "threadcast.toml"
    variables = {"PYTHONPATH": str(ROOT), "THREADCAST_STORE__DATA_DIR": str(directory / "data")}
    named = [f"{name}={value}" for name, value in variables.items()]
    line = ["env", *named, sys.executable, "-m", "tests.faults.frameworks.acp_app", str(directory)]
    config.write_text(
        f'[server]\nprograms_user = "{pwd.getpwuid(os.geteuid()).pw_name}"\n[agents.journey]\nkind = "acp"\n'
        f'command = {json.dumps(line)}\nworkspace = "{directory}/workspaces"\n'
    )
    yield ["--config", str(config)]


EXTRAS = extras

if __name__ == "__main__":
    agent: Any = Journey()  # Any: the object has the methods of acp.Agent that are needed
    asyncio.run(acp.run_agent(agent))
