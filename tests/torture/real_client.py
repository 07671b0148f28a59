"""Drivers and readers that use the product's own Python client, so that its part of the promise is tortured too.

The client keeps commands, posts them again, resumes and starts anew by itself; here is only what a program around it
does. This file alone knows which client that is.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import msgspec

from server.client import Client, Patience, Unreachable
from tests.torture.driver import Pace, Seen
from tests.torture.evidence import Asked, Mishap
from tests.torture.fold import ChatFold, Mistake, read_head
from tests.torture.plan import first_command, next_command

__all__ = ["RealDriver", "open_clients"]

PATIENCE = Patience(silence_seconds=18.0, pause_max_seconds=1.0)
"""As the other readers'; a run is too short for a minute's pauses."""

KEPT_MAX = 4


@asynccontextmanager
async def open_clients(ports: Sequence[int]) -> AsyncIterator[list[Client]]:
    """One for each web; all chats share them, as those of one program do."""
    async with AsyncExitStack() as stack:
        clients = [Client(f"http://127.0.0.1:{port}", patience=PATIENCE) for port in ports]
        yield [await stack.enter_async_context(client) for client in clients]


class RealDriver:
    """One chat through `Client`: posts to it and watches it."""

    def __init__(
        self, number: int, client: Client, seed: str, pace: Pace, mishaps: list[Mishap], counts: Counter[str]
    ) -> None:
        self.chat_id = f"real-{number}"
        self.seen = Seen(self.chat_id)
        self.fold = ChatFold(self.chat_id)
        self._client = client
        self._random = random.Random(f"{seed} real {number}")
        self._pace = pace
        self._mishaps = mishaps
        self._counts = counts

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._ask())

    async def _watch(self) -> None:
        async with aclosing(self._client.subscribe(self.chat_id, on_change=lambda connection: None)) as events:
            async for event, place in events:
                data = msgspec.json.encode(event)
                try:
                    taken = self.fold.take(read_head(data), data, place)
                except Mistake as wrong:
                    self._mishaps.append(Mishap(wrong.kind, self.chat_id, f"client: {wrong}"))
                    return
                self.seen.take(taken)

    async def _ask(self) -> None:
        await asyncio.sleep(0)  # the stream is asked for first: a client keeps what is posted while it watches
        count = 0
        while await self._pace.wait():
            count += 1
            name = f"r-{self.chat_id}-{count}"
            if count == 1:
                asked = first_command(self.chat_id, "talk", name)
            else:
                asked = next_command(self.chat_id, "talk", name, self.fold.state, self._random)
            self.seen.commands[name] = asked
            await self._post(asked)
            while len(self.seen.kept) >= KEPT_MAX and not self._pace.has_ended:
                await asyncio.sleep(0.2)

    async def _post(self, asked: Asked) -> None:
        """Until it is answered: what stayed without an answer goes out again with the next connection, and nobody knows
        when that will be."""
        while True:
            asked.posts += 1
            self._counts["posts by the real client"] += 1
            try:
                answer = await self._client.post(self.chat_id, msgspec.json.decode(asked.body))
            except Unreachable:
                continue  # it has waited for as long as its patience lasts
            break
        asked.answers.append(str(answer.body.get("status") if answer.is_accepted else answer.body.get("code")))

    def settle(self) -> None:
        """What was seen without an answer was accepted after all."""
        for asked in self.seen.commands.values():
            if asked.is_seen and not asked.answers:
                asked.answers.append("seen")
