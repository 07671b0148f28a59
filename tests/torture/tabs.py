"""Simulates a window with tabs: one named stream of several chats, which are removed and added while the stream is
open.

The window reads as every reader does (`reader.py`), and requests changes from any web process over connections that
lose answers. While such a change may still take effect, events of its chat are not judged. After `chat_removed` no
event of a chat may arrive until the chat is added again; its events then continue at the old position or begin with a
snapshot.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from tests.torture.evidence import Mishap
from tests.torture.fold import ChatFold, Mistake
from tests.torture.reader import Reader
from tests.torture.wire import Broken, Lines
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Tabs"]

CHANGE_SECONDS = (0.5, 4.0)
"""Seconds between changes; a stream that was cut is opened again with all its chats."""

ANSWER_SECONDS = 6.0
"""Maximum seconds for an answer: the process that holds the stream has 2 s, and a frozen store takes 4 s."""

LATE_SECONDS = 12.0
"""Seconds after which a change whose answer was lost can no longer take effect (`mortal.py`)."""

TRIES = 3
"""Maximum tries to add chats again; after that, a reopened stream has all chats in any case."""


class Tabs(Reader):
    """A reader with tabs. The task `change` runs beside `run` until the task is cancelled or all misbehaviour has
    ended."""

    def __init__(
        self,
        number: int,
        chat_ids: Sequence[str],
        ports: Sequence[int],
        seed: str,
        mishaps: list[Mishap],
        counts: Counter[str],
    ) -> None:
        name = f"tabs-{number}"
        super().__init__(name, chat_ids, ports, f"{seed} {name}", mishaps, counts, manners="steady")
        self._dice = random.Random(f"{seed} changes of {name}")
        self._lines = Lines()
        self._gone: set[str] = set()
        self._missing: set[str] = set()
        self._unseen: Counter[str] = Counter()  # removals that were requested and have not arrived
        self._left_at: dict[str, str] = {}
        self._asked_again: set[str] = set(chat_ids)
        self._unsure_until: dict[str, float] = {}

    def _query(self) -> str:
        """Forget all chats, because a new connection begins with snapshots."""
        self._gone.clear()
        self._missing.clear()
        self._unseen.clear()
        return f"{super()._query()}&stream_id={self.name}"

    def _fold_of(self, chat_id: str) -> ChatFold | None:
        if chat_id in self._gone:
            words = f"{chat_id} was taken away, nobody asked for it again, and here it is"
            raise Mistake("removed", words, chat_id)
        self._missing.discard(chat_id)
        return super()._fold_of(chat_id)

    def _is_of_my_making(self, wrong: Mistake) -> bool:
        """Return whether an addition whose answer was lost may have caused this frame: it may take effect late, and add
        removed chats again at earlier positions. A client that sees this opens its stream again. Events of other chats,
        and events after a late removal, are not excused."""
        unsure_until = self._unsure_until.get(wrong.chat_id, -math.inf)
        is_mine = wrong.kind in ("seq", "removed") and asyncio.get_running_loop().time() < unsure_until
        self._counts["late changes of streams"] += is_mine
        return is_mine

    def _leave_out(self, chat_id: str, words: str) -> None:
        self._counts["chats taken from a stream"] += 1
        self._missing.add(chat_id)
        self._unseen[chat_id] -= 1
        self._left_at[chat_id] = self._last_id
        if chat_id not in self._asked_again:
            self._gone.add(chat_id)

    async def change(self) -> None:
        """Remove and add chats; at the end all chats are on the stream."""
        while True:
            await asyncio.sleep(self._dice.uniform(*CHANGE_SECONDS))
            if self.is_calm:
                await self._give_back(sorted(self.folds))
                continue
            some = self._dice.sample(sorted(self.folds), k=self._dice.randint(1, 3))
            self._asked_again.difference_update(some)
            self._unseen.update(some)
            await self._ask({"remove": some})
            await asyncio.sleep(self._dice.uniform(0.0, 1.5))
            await self._give_back(sorted({*some, *self._missing}))

    async def _give_back(self, chat_ids: Sequence[str]) -> None:
        """Request the addition of a chat until the server confirms it. With the stream id from before its removal the
        chat resumes; without an id the chat begins with a snapshot. Adding a chat that is already there changes
        nothing."""
        self._asked_again.update(chat_ids)
        self._gone.difference_update(chat_ids)
        for _ in range(TRIES):
            add = [{"chat_id": chat_id, **self._place_of(chat_id)} for chat_id in chat_ids]
            if await self._ask({"add": add}):
                return
            await asyncio.sleep(self._dice.uniform(0.2, 1.0))

    def _place_of(self, chat_id: str) -> JsonObject:
        """Returns the position to resume from. Returns none if not every removal was seen, because events of the chat
        may then still be under way: the chat may have been added and removed again meanwhile."""
        is_sure = chat_id in self._missing and self._unseen[chat_id] <= 0
        if not is_sure or not self._left_at[chat_id] or self._dice.random() < 0.3:
            return {}
        return {"from": self._left_at[chat_id]}

    async def _ask(self, change: JsonObject) -> bool:
        """Send the change; returns True if the server made it."""
        body = msgspec.json.encode(change)
        try:
            answer = await self._lines.request(
                self._dice.choice(self._ports), "POST", f"/v1/streams/{self.name}", body, seconds=ANSWER_SECONDS
            )
        except Broken:
            self._counts["changes of streams lost"] += 1
            self._note_lost(change)
            return False
        if answer.status == 503:
            self._note_lost(change)
        self._counts[f"changes of streams answered {answer.status}"] += 1
        if answer.status not in (200, 404, 503):
            words = f"a change of {self.name} was answered {answer.status} {answer.body[:200]!r}"
            self._mishaps.append(Mishap("internal", ",".join(self.folds)[:200], words))
        return answer.status == 200

    def _note_lost(self, change: JsonObject) -> None:
        """Record that it is unknown whether the addition has been or will be made."""
        until = asyncio.get_running_loop().time() + LATE_SECONDS
        self._unsure_until.update({added["chat_id"]: until for added in change.get("add", ())})
