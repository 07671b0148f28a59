"""Runs the product on a store that fails over, with a client that remembers its posts and readers of the chats.

The client follows the rules for clients (DESIGN §14): it posts a command again, with the same id, until it has an
answer, and keeps the command until the command appears in the chat. Tests print their figures (`pytest -s`) and assert
the limits.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2

from tests.support.fleet import FAST, Fleet, running_fleet
from tests.support.reader import Watcher, watching
from tests.support.server import command, user_message
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["LONG", "LONG_TEXT", "Client", "harness", "said", "settled", "told"]

ECHO = {"model": "demo/echo?rate=0"}
LONG = {"model": "demo/essay?words=240&rate=40"}
LONG_TEXT = {"model": "demo/essay?words=240&rate=0"}
"""`LONG` takes six seconds, longer than any failover here; `LONG_TEXT` gives the same text at once."""

REPOST_SECONDS = 0.1
"""Seconds between posts of a client that is answered 503."""

TIMEOUT_SECONDS = 60.0


@asynccontextmanager
async def harness(url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Run a web process and two workers over the store at `url`."""
    with running_fleet(tmp_path, url, limits=FAST) as fleet:
        await fleet.open()
        yield fleet


class Client:
    """Posts messages whose text is their request id, and remembers all accepted messages."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted: dict[str, tuple[str, JsonObject]] = {}
        self.refused_count = 0

    async def post(self, chat_id: str, request_id: str, params: JsonObject | None = None) -> str:
        """Post until the message is accepted; returns the status in the server's answer."""
        body = user_message(request_id, request_id, params=params or ECHO)
        with anyio.fail_after(TIMEOUT_SECONDS):
            while True:
                status = await self._post_once(chat_id, body)
                if status:
                    self.accepted[request_id] = (chat_id, body)
                    return status
                self.refused_count += 1
                await anyio.sleep(REPOST_SECONDS)

    async def _post_once(self, chat_id: str, body: JsonObject) -> str:
        try:
            answer = await command(self._url, chat_id, body)
        except httpx2.TransportError:
            return ""
        if answer.status_code == 503:
            return ""
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json()["status"])

    async def missing(self) -> set[str]:
        """Return the ids of accepted messages that are neither in their chat nor in its queue."""
        held = await self._held()
        return {request_id for request_id in self.accepted if not held[request_id]}

    async def repeated(self) -> set[str]:
        return {text for text, count in (await self._held()).items() if count > 1}

    async def _held(self) -> Counter[str]:
        held: Counter[str] = Counter()

        async def look(chat_id: str) -> None:
            async with watching(self._url, chat_id) as reader:
                held.update(said(reader))

        async with anyio.create_task_group() as tasks:
            for chat_id in {chat_id for chat_id, _ in self.accepted.values()}:
                tasks.start_soon(look, chat_id)
        return held

    async def post_all_again(self) -> Counter[str]:
        """Post every accepted message again, as a client does after a reconnect; returns the answers' statuses."""
        statuses: Counter[str] = Counter()

        async def post(request_id: str, chat_id: str, params: JsonObject) -> None:
            statuses[await self.post(chat_id, request_id, params)] += 1

        async with anyio.create_task_group() as tasks:
            for request_id, (chat_id, body) in list(self.accepted.items()):
                tasks.start_soon(post, request_id, chat_id, body["params"])
        return statuses


def said(reader: Watcher) -> list[str]:
    """Return the words of all user messages in the chat and in its queue, where messages are merged into one."""
    assert reader.state is not None
    queued = [item.content for item in reader.state.runtime.queued_items]
    return " ".join([text for role, text in reader.messages if role == "user"] + queued).split()


def told(reader: Watcher) -> list[str]:
    """Return the texts of the model's messages."""
    return [text for role, text in reader.messages if role == "assistant"]


async def settled(reader: Watcher, texts: set[str]) -> None:
    """Wait until the chat rests, holds these texts, and ends with an answer."""

    def is_so(watcher: Watcher) -> bool:
        state = watcher.state
        if state is None or not state.is_at_rest or state.runtime.queue_size:
            return False
        return texts <= set(said(watcher)) and watcher.messages[-1:] != [] and watcher.messages[-1][0] == "assistant"

    await reader.until(is_so, TIMEOUT_SECONDS)
