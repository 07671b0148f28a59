"""The client of one chat: posts commands, watches the stream, and keeps each command until the stream shows it.

As PROTOCOL §15 requires, the driver holds each command until the command's id appears in the stream, and posts it again
after every reconnect. The driver also answers the chat's questions to people. A driver with the product's own Python
client is in `real_client.py`.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.torture.editors import Editors
from tests.torture.evidence import Asked, Mishap
from tests.torture.plan import ChatKind, beginning, decision, edit, first_command, kind_of, next_command
from tests.torture.poster import Poster
from tests.torture.reader import Reader
from threadcast_protocol.wire.events import Ack, Event, IdeToolRequired, PauseRequired, Snapshot, SubchatUpdate

__all__ = ["Driver", "Pace", "Seen"]

KEPT_MAX = 3
"""Maximum unfinished commands of a chat: enough that some wait in its queue, too few to fill the queue (100)."""

REPOST_SECONDS = 8.0
"""Seconds after which an unseen command is posted again even if the stream never broke: a relay's own position check
may take 20 s, and a client does not know about relays."""

FOLLOWED_MAX = 3
"""Maximum sub-chats of one chat that have a separate reader."""

REDECIDE_SECONDS = 5.0
"""Seconds after which a question that is still open is answered again."""


class Pace:
    """Gives all drivers together `per_second` slots for posting."""

    def __init__(self, per_second: float) -> None:
        self._gap_seconds = 1 / per_second
        self._next_at = -math.inf
        self.has_ended = False

    async def wait(self) -> bool:
        """Wait for the next slot; returns False once there are no more slots."""
        now = asyncio.get_running_loop().time()
        self._next_at = max(now, self._next_at) + self._gap_seconds
        await asyncio.sleep(self._next_at - now)
        return not self.has_ended


class Seen:
    """Posts one chat's commands, and records the commands that the chat's stream has shown."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.commands: dict[str, Asked] = {}
        self.changed = asyncio.Event()

    @property
    def kept(self) -> list[Asked]:
        return [asked for asked in self.commands.values() if not asked.is_seen and not _is_refused(asked)]

    def take(self, event: Event | Snapshot) -> None:
        if isinstance(event, Ack):
            self._see(event.client_request_id)
        elif isinstance(event, Snapshot):
            for ack in event.recent_acks:
                self._see(ack.client_request_id)
            for message in event.messages:
                self._see(message.client_request_id or "")
            for item in event.runtime.queued_items:
                self._see(item.client_request_id)

    def _see(self, request_id: str) -> None:
        asked = self.commands.get(request_id)
        if asked is not None and not asked.is_seen:
            asked.is_seen = True
            self.changed.set()


def _is_refused(asked: Asked) -> bool:
    return bool(asked.answers) and not asked.is_accepted


class Driver:
    """One chat. `run` posts new commands until the pace has ended, and repeats its posts until everything is
    `settled`."""

    def __init__(
        self,
        number: int,
        ports: Sequence[int],
        seed: str,
        poster: Poster,
        pace: Pace,
        settled: asyncio.Event,
        mishaps: list[Mishap],
        counts: Counter[str],
    ) -> None:
        self._number = number
        self.chat_id = f"torture-{number}"
        self.kind: ChatKind = kind_of(number)
        self.seen = Seen(self.chat_id)
        self.reader = Reader(
            f"driver of {self.chat_id}", [self.chat_id], ports, f"{seed} driver {number}", mishaps, counts,
            manners="steady", tell=self._hear,
        )  # fmt: skip
        self._random = random.Random(f"{seed} plan {number}")
        self._poster = poster
        self._pace = pace
        self._settled = settled
        self._counts = counts
        self._count = 0
        self._decided: dict[str, float] = {}
        self._editors = Editors(self.chat_id, f"{seed} editors {number}", poster, self._keep, self._new_id, counts)
        self.followers: list[Reader] = []
        self._new_reader = partial(Reader, ports=ports, mishaps=mishaps, counts=counts)
        self._seed = seed
        self._tasks: asyncio.TaskGroup | None = None
        self._following: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        first = first_command(self.chat_id, self.kind, self._new_id("p"))
        for asked in (beginning(self._number, self._new_id("b")), first):
            if asked is not None:
                self.seen.commands[asked.request_id] = asked
                await self._poster.post(asked)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            caring = [tasks.create_task(self._repost()), tasks.create_task(self._decide())]
            if self.kind == "editor":
                caring.append(tasks.create_task(self._edit()))
            async with asyncio.TaskGroup() as posting:
                while await self._pace.wait():
                    posting.create_task(self._ask())
                    while len(self.seen.kept) >= KEPT_MAX and not self._pace.has_ended:
                        await self._change(1.0)
            await self._settled.wait()
            for care in (*caring, *self._following):
                care.cancel()

    def _hear(self, chat_id: str, event: Event | Snapshot) -> None:
        self.seen.take(event)
        if isinstance(event, (PauseRequired, Snapshot, IdeToolRequired)):
            self.seen.changed.set()
        elif isinstance(event, SubchatUpdate) and len(self.followers) < FOLLOWED_MAX:
            self._follow(event.subchat_id)

    def _follow(self, child_id: str) -> None:
        """Watch a sub-chat as well, from now on."""
        if self._tasks is None or any(child_id in reader.folds for reader in self.followers):
            return
        name = f"follower of {child_id}"
        reader = self._new_reader(name, [child_id], seed=f"{self._seed} {name}")
        self.followers.append(reader)
        self._following.append(self._tasks.create_task(reader.run()))

    def _keep(self, asked: Asked) -> None:
        self.seen.commands[asked.request_id] = asked

    async def _change(self, seconds: float) -> None:
        self.seen.changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.seen.changed.wait()
        except TimeoutError:
            return

    def _new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}-{self.chat_id}-{self._count}"

    async def _ask(self) -> None:
        """Post one command, and the commands that follow it at once."""
        state = self.reader.folds[self.chat_id].state
        asked = next_command(self.chat_id, self.kind, self._new_id("r"), state, self._random)
        self.seen.commands[asked.request_id] = asked
        await self._poster.post_with_a_twist(asked)
        if asked.type == "user_message" and asked.is_accepted:
            drawn = self._random.random()
            if drawn < 0.04:
                await self._poster.cancel(asked)
            elif drawn < 0.06:
                edited = edit(self.chat_id, self._new_id("e"), asked.request_id)
                self.seen.commands[edited.request_id] = edited
                await self._poster.post(edited)

    async def _repost(self) -> None:
        """Post unseen commands again after every reconnect, and when they have been unseen for long."""
        while True:
            self.reader.opened.clear()
            try:
                async with asyncio.timeout(REPOST_SECONDS):
                    await self.reader.opened.wait()
            except TimeoutError:
                if not self.seen.kept:
                    continue
            for asked in self.seen.kept:
                if asked.answers and not asked.is_seen:  # a command without an answer is always under way
                    self._counts["posted again since it was not seen"] += 1
                    await self._poster.post(asked)

    async def _edit(self) -> None:
        while True:
            await self._change(1.0)
            state = self.reader.folds[self.chat_id].state
            if state is not None:
                await self._editors.look(state)

    async def _decide(self) -> None:
        """Answer the chat's questions to people, until it asks no more."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._change(1.0)
            state = self.reader.folds[self.chat_id].state
            for reason in state.runtime.pause_reasons if state is not None else ():
                if self._decided.get(reason.tool_call_id, -math.inf) + REDECIDE_SECONDS > clock():
                    continue
                self._decided[reason.tool_call_id] = clock()
                asked = decision(self.chat_id, self._new_id("d"), reason, self._random)
                self.seen.commands[asked.request_id] = asked
                await self._poster.post(asked)
