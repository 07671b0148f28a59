"""Drives a page of the AI SDK without a screen: `page.mjs` runs npm `ai` as it is published."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process as Program
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.peers.installed import PEERS, node_package
from tests.support.server import DEADLINE_SECONDS
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Page", "opened_page", "text_in"]

LINE_MAX_BYTES = 32 << 20


class Page:
    """One page. `changes` are the lines that the page has printed."""

    def __init__(self, program: Program) -> None:
        assert program.stdin is not None and program.stdout is not None
        self._stdin = program.stdin
        self._lines = BufferedByteReceiveStream(program.stdout)

    async def tell(self, action: str, **more: object) -> None:
        """Send the page an instruction, without waiting for its effect."""
        await self._stdin.send(json.dumps({"do": action, **more}).encode() + b"\n")

    async def do(self, action: str, **more: object) -> JsonObject:
        """Send the page an instruction, and wait until it is carried out. Returns its status and its error."""
        await self.tell(action, wait=True, **more)
        return await self.until(lambda line: line.get("done") == action)

    async def send(self, text: str, **more: object) -> JsonObject:
        """Send a message, and wait until the answer's stream has ended."""
        return await self.do("send", message={"text": text, **more})

    async def shown(self) -> Any:  # Any: JSON of the foreign client
        """Return all data of the page: its messages, data parts, and calls of its tools."""
        await self.tell("show")
        return await self.until(lambda line: "messages" in line)

    async def messages(self) -> list[Any]:  # Any: as above
        found: list[Any] = (await self.shown())["messages"]
        return found

    async def until(self, wanted: Callable[[JsonObject], object]) -> JsonObject:
        """Read lines up to the first wanted line, and return it."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                line: JsonObject = json.loads(await self._lines.receive_until(b"\n", LINE_MAX_BYTES))
                if wanted(line):
                    return line


@asynccontextmanager
async def opened_page(url: str, chat_id: str, **options: object) -> AsyncIterator[Page]:
    """Yield a page of the chat, which closes at the end of the block. `options` are those of `page.mjs`."""
    node, _ = node_package("ai", "dist/index.mjs")
    module = (PEERS / "ai/dist/index.mjs").as_uri()
    script = str(Path(__file__).with_name("page.mjs"))
    line = [node, script, module, f"{url}/ai-sdk/chat", chat_id, json.dumps(options)]
    async with await anyio.open_process(line, stderr=None) as program:
        page = Page(program)
        await page.until(lambda told: told.get("ready"))
        try:
            yield page
        finally:
            program.kill()


def text_in(message: Any) -> str:  # Any: JSON of the foreign client
    """Return the texts of a UI message."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")
