"""The product on a store that fails over: a web process and two workers, a client that keeps what it posted, readers.

It knows nothing of how the store fails; the tests do that to the servers of `servers.py`. The client does what clients
are told to (DESIGN §14): it posts a command again, with the same id, until it has an answer, and keeps it until it saw
it in the chat. The rule: figures are printed (`pytest -s`), bars are asserted.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2

from protocol.messages import JsonObject
from tests.integration.harness import Process, Watcher, command, start, user_message, watching

__all__ = ["LONG", "LONG_TEXT", "Client", "House", "house", "said", "settled", "told"]

FAST = {
    "THREADCAST_LIMITS__LEASE_SECONDS": "1.0",
    "THREADCAST_LIMITS__BEAT_SECONDS": "0.3",
    "THREADCAST_LIMITS__SWEEP_SECONDS": "0.2",
}

ECHO = {"model": "demo/echo?rate=0"}
LONG = {"model": "demo/essay?words=240&rate=40"}
LONG_TEXT = {"model": "demo/essay?words=240&rate=0"}
"""Six seconds of an answer, longer than any failover here; and the same text at once."""

REPOST_SECONDS = 0.1
"""Between posts of a client that hears 503."""

PATIENCE_SECONDS = 60.0


class House:
    """`web` answers; the workers are as good as unknown."""

    def __init__(self, url: str, log: Path, stack: ExitStack) -> None:
        self.log = log
        self._environment = {"REDIS_URL": url, **FAST}
        self._stack = stack
        self.web = self._start("web", "--port", "0")
        self._workers = [self._start("worker") for _ in range(2)]

    async def open(self) -> None:
        for process in (self.web, *self._workers):
            await process.ready()

    async def another_web(self) -> Process:
        return await self._start("web", "--port", "0").ready()

    def _start(self, *arguments: str) -> Process:
        return self._stack.enter_context(start(*arguments, log=self.log, environment=self._environment))


@asynccontextmanager
async def house(url: str, tmp_path: Path) -> AsyncIterator[House]:
    with ExitStack() as stack:
        made = House(url, tmp_path / "product.log", stack)
        await made.open()
        yield made


class Client:
    """Posts messages whose text is their request id, and remembers all that were accepted."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted: dict[str, tuple[str, JsonObject]] = {}
        self.refused_count = 0

    async def post(self, chat_id: str, request_id: str, params: JsonObject | None = None) -> str:
        """Until it is accepted; what the server called it then."""
        body = user_message(request_id, request_id, params=params or ECHO)
        with anyio.fail_after(PATIENCE_SECONDS):
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
        """Accepted messages that their chats do not hold, also not in their queue."""
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
        """As after a reconnect that cannot tell; what the server called each."""
        statuses: Counter[str] = Counter()

        async def post(request_id: str, chat_id: str, params: JsonObject) -> None:
            statuses[await self.post(chat_id, request_id, params)] += 1

        async with anyio.create_task_group() as tasks:
            for request_id, (chat_id, body) in list(self.accepted.items()):
                tasks.start_soon(post, request_id, chat_id, body["params"])
        return statuses


def said(reader: Watcher) -> list[str]:
    """What people said, in the chat or in its queue, word by word: waiting messages are merged into one."""
    assert reader.state is not None
    queued = [item.content for item in reader.state.runtime.queued_items]
    return " ".join([text for role, text in reader.messages if role == "user"] + queued).split()


def told(reader: Watcher) -> list[str]:
    """What the model said."""
    return [text for role, text in reader.messages if role == "assistant"]


async def settled(reader: Watcher, texts: set[str]) -> None:
    """Wait until it was all said, and all was answered."""

    def is_so(watcher: Watcher) -> bool:
        state = watcher.state
        if state is None or not state.is_at_rest or state.runtime.queue_size:
            return False
        return texts <= set(said(watcher)) and watcher.messages[-1:] != [] and watcher.messages[-1][0] == "assistant"

    await reader.until(is_so, PATIENCE_SECONDS)
