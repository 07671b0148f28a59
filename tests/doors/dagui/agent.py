"""Drives a page of AG-UI without a screen: `agent.mjs` runs npm `@ag-ui/client` as it is published."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from ag_ui_validate.pytest_plugin import assert_valid_agui
from anyio.abc import Process as Program
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.peers.installed import PEERS, node_package
from tests.support.server import DEADLINE_SECONDS
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Page", "bare", "opened_agent", "runs_in", "user"]

LINE_MAX_BYTES = 32 << 20


class Page:
    """One page with one agent."""

    def __init__(self, program: Program) -> None:
        assert program.stdin is not None and program.stdout is not None
        self._stdin = program.stdin
        self._lines = BufferedByteReceiveStream(program.stdout)

    async def tell(self, action: str, **more: object) -> None:
        """Send the page an instruction, without waiting for its effect."""
        await self._stdin.send(json.dumps({"do": action, **more}).encode() + b"\n")

    async def run(self, *, words: str | None = None, **more: object) -> Any:  # Any: JSON of the foreign client
        """Run the agent, with a new message if `words` is not empty, and wait for the end of the run. Returns its
        error, or None."""
        message = {} if words is None else {"message": user(words)}
        await self.tell("run", wait=True, **message, **more)
        return (await self.until(lambda line: line.get("done") == "run"))["error"]

    async def shown(self) -> Any:  # Any: as above
        """Return all data of the agent: messages, state, interrupts, events and the ends of its runs."""
        await self.tell("show")
        return await self.until(lambda line: "messages" in line)

    async def messages(self) -> list[Any]:  # Any: as above
        found: list[Any] = (await self.shown())["messages"]
        return found

    async def until(self, wanted: Callable[[JsonObject], object]) -> JsonObject:
        """Read lines up to the first wanted line, and return it. A warning of the client fails the test."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                line: JsonObject = json.loads(await self._lines.receive_until(b"\n", LINE_MAX_BYTES))
                assert "warning" not in line, line
                if wanted(line):
                    return line


@asynccontextmanager
async def opened_agent(url: str, thread_id: str, mode: str = "", **options: object) -> AsyncIterator[Page]:
    """Yield a page of the thread, which closes at the end of the block. `options` are those of `agent.mjs`."""
    node, _ = node_package("@ag-ui/client", "dist/index.mjs")
    module = (PEERS / "@ag-ui/client/dist/index.mjs").as_uri()
    script = str(Path(__file__).with_name("agent.mjs"))
    line = [node, script, module, f"{url}/ag-ui{mode}", thread_id, json.dumps(options)]
    async with await anyio.open_process(line, stderr=None) as program:
        page = Page(program)
        await page.until(lambda told: told.get("ready"))
        try:
            yield page
        finally:
            program.kill()


_count = 0


def user(words: str, **more: object) -> JsonObject:
    """Return a new message of the user."""
    global _count
    _count += 1
    return {"id": f"u{_count}", "role": "user", "content": words, **more}


def bare(messages: list[Any]) -> list[Any]:  # Any: JSON
    """Return messages without reasoning and activities, which a client need not keep, and without empty fields."""
    kept = [message for message in messages if message["role"] not in ("reasoning", "activity")]
    return [{key: value for key, value in message.items() if value not in (None, "", [])} for message in kept]


def runs_in(events: list[Any]) -> list[list[Any]]:  # Any: JSON
    """Return the events of each run, and check them with the protocol's validator."""
    runs: list[list[Any]] = []
    for event in events:
        if event["type"] == "RUN_STARTED":
            runs.append([])
        runs[-1].append(event)
    for run in runs:
        assert_valid_agui(run, max_warnings=0)
    return runs
