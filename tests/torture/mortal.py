"""Chats that are deleted while they run, and created again under the same id by an import.

A life begins with a command or an import, receives some messages, is perhaps exported, and is deleted while answers and
sub-chats still run. No request may reach a deleted chat, and no content of an earlier life may appear in a later life.
A request whose answer was lost may still arrive for a while, so a new life waits for it; the promises concern answered
requests. `verdict.py` judges the last life as it judges every chat.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tests.torture.driver import Pace, Seen
from tests.torture.evidence import Asked, Mishap
from tests.torture.plan import MODELS, ChatKind, first_command, mortal_command
from tests.torture.poster import Poster
from tests.torture.reader import Manners, Reader
from tests.torture.wire import Answer, Broken, Lines
from threadcast.chat.exports import ChatExport, export_lines
from threadcast_protocol.wire.events import Event, Snapshot, SubchatUpdate
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.thread import ThreadChanges

__all__ = ["Mortal"]

KINDS: tuple[ChatKind, ...] = ("talk", "family", "essay", "family")
"""Family chats are listed twice, because only they have sub-chats, which a delete must also find. The tools of family
chats run in sub-chats. These chats have no simulated people, so they use no tool that would wait for a person."""

LIFE_SECONDS = (1.5, 6.0)
SAID_PER_LIFE = (2, 8)
SAID_WHILE_DYING = 12
BETWEEN_SECONDS = (0.0, 0.02)
"""Seconds between commands. A command waits in its inbox for some milliseconds, so some commands always wait there when
the chat is deleted."""

LOOKS_AT_THE_DEAD = 4

LATE_SECONDS = 12.0
"""Seconds for which a request whose answer was lost may still take effect: a web process is stopped for 4 s at most,
and tries a store that does not answer for 4 s more."""

ORPHAN_SECONDS = 30.0
"""Maximum seconds for which a sub-chat may outlive its parent. The sub-chat waits for a worker, and workers are stopped
for up to 6.5 s: four takeovers in a row may each meet a stopped worker."""

ANSWER_SECONDS = 12.0
"""Maximum seconds for one answer; an import waits up to 10 s for its effect."""


class Mortal:
    """One chat id and its lives. `seen` belongs to the present life. `buried` has the commands of all earlier lives,
    and `brought` the request ids of messages that an import added to the present life."""

    def __init__(
        self,
        number: int,
        ports: Sequence[int],
        seed: str,
        poster: Poster,
        pace: Pace,
        mishaps: list[Mishap],
        counts: Counter[str],
    ) -> None:
        self.chat_id = f"mortal-{number}"
        self.kind: ChatKind = KINDS[number % len(KINDS)]
        self.seen = Seen(self.chat_id)
        self.buried: list[Asked] = []
        self.brought: set[str] = set()
        self.is_dead = False
        self.is_done = False
        manners: tuple[Manners, Manners] = ("steady", "wild")
        self.readers = [
            Reader(
                f"{how} reader of {self.chat_id}", [self.chat_id], ports, f"{seed} {how} {number}", mishaps, counts,
                manners=how, tell=self._hear,
            )
            for how in manners
        ]  # fmt: skip
        self._ports = ports
        self._random = random.Random(f"{seed} mortal {number}")
        self._poster = poster
        self._pace = pace
        self._mishaps = mishaps
        self._counts = counts
        self._lines = Lines()
        self._life = 0
        self._count = 0
        self._lost_at = self._import_lost_at = -math.inf
        self._children: set[str] = set()
        self._posts: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run one life after another until the pace has ended. The last life is usually not deleted, so that it can be
        judged."""
        async with asyncio.TaskGroup() as saying:
            await self._begin()
            await self._live(saying)
            while not self._is_over():
                exported = await self._export() if self._random.random() < 0.5 else None
                await self._wait_until(
                    self._import_lost_at + LATE_SECONDS
                )  # a late import would make the chat alive again
                await self._die(saying)
                if self._is_over():
                    break
                await self._begin_again(exported)
                await self._live(saying)
        await self._let_late_ones_arrive()  # a delete or command of an earlier life may still arrive
        self.is_done = True

    def _is_over(self) -> bool:
        return self._pace.has_ended

    def _hear(self, chat_id: str, event: Event | Snapshot) -> None:
        self.seen.take(event)
        if isinstance(event, SubchatUpdate):
            self._children.add(event.subchat_id)

    # A life.

    async def _begin(self) -> None:
        first = first_command(self.chat_id, self.kind, self._new_id())
        self.seen.commands[first.request_id] = first
        await self._poster.post(first)

    async def _live(self, saying: asyncio.TaskGroup) -> None:
        """Post some messages, and return before they are all answered."""
        self._posts = []
        for _ in range(self._random.randint(*SAID_PER_LIFE)):
            if not await self._pace.wait():
                break
            self._say(saying)
        if not self._pace.has_ended:
            await asyncio.sleep(self._random.uniform(*LIFE_SECONDS))

    def _say(self, saying: asyncio.TaskGroup) -> None:
        asked = mortal_command(self.chat_id, self.kind, self._new_id(), self._random)
        self.seen.commands[asked.request_id] = asked
        self._posts.append(saying.create_task(self._poster.post(asked)))

    async def _export(self) -> bytes | None:
        answer = await self._ask("GET", f"/v1/chats/{self.chat_id}/export")
        return answer.body if answer.status == 200 else None

    async def _die(self, saying: asyncio.TaskGroup) -> None:
        """Delete the chat while messages are posted: the delete finds the messages in the inbox, or they reach a
        deleted chat."""
        deleting = saying.create_task(self._ask("DELETE", f"/v1/chats/{self.chat_id}"))
        for _ in range(SAID_WHILE_DYING):
            self._say(saying)
            await asyncio.wait([deleting], timeout=self._random.uniform(*BETWEEN_SECONDS))
            if deleting.done():
                break
        answer = await deleting
        if answer.status not in (200, 404):
            self._wrong("internal", f"DELETE was answered {answer.status} {answer.body[:200]!r}")
        self.is_dead = True
        self._counts["deaths"] += 1
        accepted = [asked for asked in self.seen.commands.values() if asked.is_accepted]
        for _ in range(LOOKS_AT_THE_DEAD):
            await self._look_at_the_dead(f"/v1/chats/{self.chat_id}")
            if accepted:
                await self._post_again(self._random.choice(accepted), "not_found")
            await asyncio.sleep(self._random.uniform(0.05, 0.5))
        await asyncio.gather(*self._posts)
        await self._let_late_ones_arrive()
        for child_id in sorted(self._children):
            await self._look_until_dead(f"/v1/chats/{child_id}")
        self._counts["sub-chats of the dead"] += len(self._children)
        self._children.clear()
        self.buried += self.seen.commands.values()
        self.seen.commands.clear()

    async def _begin_again(self, exported: bytes | None) -> None:
        """Imports the chat again from its own export or from the export of another chat."""
        self._life += 1
        body = exported or self._made_up()
        self.brought = {asked.request_id for asked in self.buried} if exported else set()
        word = await self._import(body)
        self.is_dead = False
        self._counts["lives begun by an import"] += 1
        if word == "imported" and exported and (again := await self._export()) != body:
            self._wrong("export", f"what was imported is exported as {(again or b'')[:200]!r}, not {body[:200]!r}")
        accepted = [asked for asked in self.buried if asked.is_accepted]
        if accepted:
            await self._post_again(self._random.choice(accepted), "duplicate")

    async def _import(self, body: bytes) -> str:
        """Import the chat until it is stored: the import answers imported or accepted, or skipped if an earlier import
        whose answer was lost has stored the chat."""
        was_lost = False
        while True:
            lost_before = self._lost_at
            answer = await self._ask("POST", "/v1/chats/import", body)
            if self._lost_at != lost_before:
                was_lost, self._import_lost_at = True, self._lost_at
            told = answer.json
            word = next((word for word in ("imported", "accepted", "skipped") if told.get(word) == [self.chat_id]), "")
            if word in ("imported", "accepted") or (word == "skipped" and was_lost):
                return word
            if [failed["code"] for failed in told.get("failed", ())] != ["unavailable"]:
                self._wrong("revived", f"an import was answered {answer.status} {answer.body[:200]!r}")
                return word
            was_lost = True
            self._lost_at = self._import_lost_at = asyncio.get_running_loop().time()

    def _made_up(self) -> bytes:
        """Return an export of two messages that occur only in this life."""
        stamp = f"{self.chat_id}-life-{self._life}"
        asks = Message(role="user", content=f"{stamp} asks", message_id=f"{stamp}-q")
        says = Message(
            role="assistant", content=f"{stamp} says", message_id=f"{stamp}-a", parent_id=asks.message_id,
            finish_reason="stop",
        )  # fmt: skip
        thread = ThreadChanges(model=MODELS[self.kind])
        chat = ChatExport(chat_id=self.chat_id, thread=thread, leaf_id=says.message_id, messages=[asks, says])
        return b"".join(export_lines(chat))

    # The checks that must hold.

    async def _look_at_the_dead(self, path: str) -> None:
        answer = await self._ask("GET", path)
        if answer.status != 404:
            self._wrong("revived", f"after its end GET {path} is answered {answer.status} {answer.body[:200]!r}")

    async def _look_until_dead(self, path: str) -> None:
        """Check until all sub-chats are gone: a sub-chat that begins while its parent is deleted is deleted by the
        worker that takes it up."""
        until = asyncio.get_running_loop().time() + ORPHAN_SECONDS
        while (answer := await self._ask("GET", path)).status != 404:
            if asyncio.get_running_loop().time() > until:
                self._wrong(
                    "revived", f"GET {path} is answered {answer.status}, {ORPHAN_SECONDS} s after its parent's end"
                )
                return
            await asyncio.sleep(0.2)

    async def _post_again(self, asked: Asked, wanted: Literal["not_found", "duplicate"]) -> None:
        """Post a command again after its chat's life has ended: the server must not accept the command as new."""
        again = Asked(chat_id=self.chat_id, request_id=asked.request_id, type=asked.type, body=asked.body)
        await self._poster.post(again)
        said = again.answers[-1]
        is_abort = (
            asked.type == "abort" and wanted == "not_found"
        )  # the server answers 200 where there is no chat to delete
        if said != wanted and not is_abort:
            self._wrong("twice", f"{asked.request_id} of an earlier life was answered {said}, not {wanted}")
        self._note_lost(again)

    def _wrong(self, kind: str, words: str) -> None:
        self._mishaps.append(Mishap(kind, self.chat_id, f"in life {self._life}: {words}"))

    # Asking.

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Make a request until it has a final answer."""
        while True:
            port = self._random.choice(self._ports)
            try:
                answer = await self._lines.request(port, method, path, body, seconds=ANSWER_SECONDS)
            except Broken:
                self._counts["answers lost"] += 1
                if method != "GET":
                    self._lost_at = asyncio.get_running_loop().time()
            else:
                if answer.status not in (429, 503):
                    return answer
                if method != "GET":  # the request may still take effect, although its answer was lost
                    self._lost_at = asyncio.get_running_loop().time()
            await asyncio.sleep(self._random.uniform(0.1, 0.6))

    def _note_lost(self, asked: Asked) -> None:
        self._lost_at = max(self._lost_at, asked.lost_at)

    async def _let_late_ones_arrive(self) -> None:
        for asked in self.seen.commands.values():
            self._note_lost(asked)
        await self._wait_until(self._lost_at + LATE_SECONDS)

    async def _wait_until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - asyncio.get_running_loop().time()))

    def _new_id(self) -> str:
        self._count += 1
        return f"m-{self.chat_id}-life-{self._life}-{self._count}"
