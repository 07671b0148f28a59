"""Drivers that use the product's own Python client, so that faults strike the client too.

The client itself keeps and repeats commands, resumes, folds and begins anew; this file has only the program around the
client. Only this file imports the client.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from tests.torture.driver import Pace, Seen
from tests.torture.evidence import Mishap
from tests.torture.fold import ChatFold
from tests.torture.plan import first_command, next_command
from threadcast_client import Client, RetryPolicy, ThreadcastError
from threadcast_client.chat import Chat
from threadcast_client.sent import Sent
from threadcast_protocol.wire.events import Ack, Snapshot

__all__ = ["RealDriver", "open_clients"]

RETRY_POLICY = RetryPolicy(silence_seconds=18.0, pause_max_seconds=1.0)
"""Maximum pause between reconnects, as for other readers; a run is too short for pauses of a minute."""

KEPT_MAX = 3
LOOK_SECONDS = 0.2


@asynccontextmanager
async def open_clients(ports: Sequence[int]) -> AsyncIterator[list[Client]]:
    """Open one client for each web process. All chats share these clients, as the chats of one program do."""
    async with AsyncExitStack() as stack:
        clients = [Client(f"http://127.0.0.1:{port}", retry_policy=RETRY_POLICY) for port in ports]
        yield [await stack.enter_async_context(client) for client in clients]


class RealDriver:
    """One chat through `Client`, which sends to it and watches it. `fold` is the client's state of the chat."""

    def __init__(
        self, number: int, client: Client, seed: str, pace: Pace, mishaps: list[Mishap], counts: Counter[str]
    ) -> None:
        self.chat_id = f"real-{number}"
        self.seen = Seen(self.chat_id)
        self._fold = ChatFold(self.chat_id)
        self._sents: dict[str, Sent] = {}
        self._chat: Chat | None = None
        self._client = client
        self._random = random.Random(f"{seed} real {number}")
        self._pace = pace
        self._mishaps = mishaps
        self._counts = counts

    @property
    def fold(self) -> ChatFold:
        if self._chat is not None and self._chat.state.position:
            self._fold.state = self._chat.state
        return self._fold

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with self._client.chat(self.chat_id, wait=False) as chat, asyncio.TaskGroup() as tasks:
                self._chat = chat
                tasks.create_task(self._watch(chat))
                tasks.create_task(self._ask(chat))
        except* ThreadcastError as wrong:
            self._mishaps.append(Mishap("client", self.chat_id, f"the client gave up: {wrong.exceptions[0]!r}"))

    async def _watch(self, chat: Chat) -> None:
        async for event in chat.events():
            if isinstance(event, Ack | Snapshot):
                self.seen.take(event)

    async def _ask(self, chat: Chat) -> None:
        count = 0
        while await self._pace.wait():
            count += 1
            name = f"r-{self.chat_id}-{count}"
            if count == 1:
                asked = first_command(self.chat_id, "talk", name)
            else:
                asked = next_command(self.chat_id, "talk", name, chat.state, self._random)
            self.seen.commands[name] = asked
            asked.posts = 1
            self._counts["sent by the real client"] += 1
            self._sents[name] = chat.send(msgspec.json.decode(asked.body))
            while len(self.seen.kept) >= KEPT_MAX and not self._pace.has_ended:
                await self._look()
        while True:
            await self._look()

    async def _look(self) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        self.settle()

    def settle(self) -> None:
        """Record the client's report on a command, with its outcome."""
        for name, asked in self.seen.commands.items():
            sent = self._sents.get(name)
            if asked.is_seen and not asked.answers:
                asked.answers.append("seen")
            elif sent is not None and sent.refused is not None and sent.ack is None and not asked.answers:
                asked.answers.append(sent.refused.code)
