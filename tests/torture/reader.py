"""Hundreds of subscribers: each reads one or several chats over a bare socket, and misbehaves according to its
`manners`.

A steady reader stays connected and resumes at its last position, as a good client does. A wild reader disconnects at
any moment, reads slowly or not at all for a while, and reconnects with the right position, an earlier position or a
forged one. `fold.py` checks the state of each reader frame by frame, and a driver (`driver.py`) receives every event.
It never posts.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from tests.torture.evidence import Mishap
from tests.torture.fold import ChatFold, Mistake, read_head
from tests.torture.wire import Broken, stream
from threadcast_protocol.framing.sse import CommentFrame, EventFrame, FrameParser, RetryFrame
from threadcast_protocol.framing.stream_ids import stream_id_word, tag_of
from threadcast_protocol.wire.events import Event, Snapshot
from threadcast_protocol.wire.ids import Position

__all__ = ["Manners", "Reader"]

Manners: TypeAlias = Literal["steady", "wild"]

SILENCE_SECONDS = 18.0
"""Seconds of silence after which a reader reconnects. A heartbeat is due after 15 s (PROTOCOL §4); the 45 s that a
client waits would be a quarter of a run."""

SMALL_BUFFER_BYTES = 4_096
"""Receive buffer of a slow reader's socket in bytes, so small that the server notices the slowness within a few
frames."""

STAY_SECONDS = (0.5, 25.0)
SLOW_SECONDS = (0.05, 1.5)
STALL_SECONDS = (2.0, 10.0)

DOUBLED_MAX = 3
"""Maximum doublings of the pause between failed reconnects: up to 4 s. Hundreds of readers who come back at once would
keep a slow machine from serving any of them; clients are told to back off (PROTOCOL §15)."""

Told: TypeAlias = Callable[[str, Event | Snapshot], None]


def _tell_nobody(chat_id: str, event: Event | Snapshot) -> None:
    return None


class Reader:
    """One subscriber over as many connections as needed. `run` reads until it is cancelled; `is_calm` ends all
    misbehaviour."""

    def __init__(
        self,
        name: str,
        chat_ids: Sequence[str],
        ports: Sequence[int],
        seed: str,
        mishaps: list[Mishap],
        counts: Counter[str],
        *,
        manners: Manners = "wild",
        tell: Told = _tell_nobody,
    ) -> None:
        self.name = name
        self.folds = {chat_id: ChatFold(chat_id) for chat_id in chat_ids}
        self.is_calm = False
        self.opened = asyncio.Event()
        self._ports = ports
        self._random = random.Random(seed)
        self._mishaps = mishaps
        self._counts = counts
        self._manners = manners
        self._tell = tell
        self._last_id = ""
        self._pause_seconds = 0.0
        self._failures = 0

    async def run(self) -> None:
        while True:
            is_wild = self._manners == "wild" and not self.is_calm
            place = self._choose_place() if is_wild else self._last_id
            try:
                await self._read(place, is_wild)
            except (Broken, TimeoutError):
                self._counts["streams broken"] += 1
                self._failures += 1
            except Mistake as wrong:
                if not self._is_of_my_making(wrong):
                    words = f"{self.name}, whose connection began at {place!r}: {wrong}"
                    self._mishaps.append(Mishap(wrong.kind, ",".join(self.folds)[:200], words))
                self._last_id = ""
            pause_seconds = self._random.uniform(0.05, 0.5) * 2 ** min(self._failures, DOUBLED_MAX)
            await asyncio.sleep(self._pause_seconds or pause_seconds)
            self._pause_seconds = 0.0

    async def _read(self, place: str, is_wild: bool) -> None:
        """One connection."""
        rng = self._random
        slow_seconds = rng.uniform(*SLOW_SECONDS) if is_wild and rng.random() < 0.25 else 0.0
        stall_at = rng.randrange(1, 40) if is_wild and rng.random() < 0.2 else -1
        path = "/v1/chats/subscribe?" + self._query()
        parser, chunks_count, begun = FrameParser(), 0, set[str]()
        loop = asyncio.get_running_loop()
        leave_at = loop.time() + rng.uniform(*STAY_SECONDS) if is_wild else float("inf")
        buffer_bytes = SMALL_BUFFER_BYTES if slow_seconds or stall_at >= 0 else 0
        self._counts["streams opened"] += 1
        async with stream(
            rng.choice(self._ports), path, place, silence_seconds=SILENCE_SECONDS, receive_buffer_bytes=buffer_bytes
        ) as chunks:
            self.opened.set()
            self._failures = 0
            async for chunk in chunks:
                for frame in parser.feed(chunk):
                    # The last block of a stream is a `retry` (PROTOCOL §4).
                    self._pause_seconds = frame.milliseconds / 1_000 if isinstance(frame, RetryFrame) else 0.0
                    if isinstance(frame, EventFrame):
                        self._take(frame, begun)
                    elif isinstance(frame, CommentFrame):
                        self._expect_no_forgery_resumed()
                chunks_count += 1
                if self.is_calm:
                    continue
                if chunks_count == stall_at:
                    self._counts["stalls"] += 1
                    await asyncio.sleep(rng.uniform(*STALL_SECONDS))
                elif slow_seconds:
                    await asyncio.sleep(slow_seconds)
                if loop.time() > leave_at:
                    return

    def _take(self, frame: EventFrame, begun: set[str]) -> None:
        data = frame.data.encode()
        head = read_head(data)
        if head.type == "chat_removed":
            self._leave_out(head.chat_id, frame.data)
            return
        if head.seq is None:  # transient (PROTOCOL §4)
            return
        fold = self._fold_of(head.chat_id)
        if fold is None:
            raise Mistake("frame", f"nobody asked for {head.chat_id}")
        was_held = fold.state is not None
        try:
            event = fold.take(head, data, frame.last_event_id)
        except Mistake:
            self._last_id = ""
            raise
        self._last_id = frame.last_event_id
        if isinstance(event, Snapshot):
            self._counts["resyncs in the stream" if head.chat_id in begun else "streams begun anew"] += 1
        elif head.chat_id not in begun and was_held:
            self._counts["resumes"] += 1
        begun.add(head.chat_id)
        self._tell(head.chat_id, event)

    def _is_of_my_making(self, wrong: Mistake) -> bool:
        """Return whether a requested change of the stream may have caused this frame."""
        return False

    def _query(self) -> str:
        return "&".join(f"chat_id={chat_id}" for chat_id in self.folds)

    def _fold_of(self, chat_id: str) -> ChatFold | None:
        """Return the fold of a chat of which this connection may send frames."""
        return self.folds.get(chat_id)

    def _leave_out(self, chat_id: str, words: str) -> None:
        """Drop a chat that could not be opened, because a chat cannot be added to an unnamed stream later. Raises
        Broken."""
        self._counts["chats left out of a stream"] += 1
        raise Broken(words)

    def _expect_no_forgery_resumed(self) -> None:
        """Check that no forged position is resumed: a heartbeat comes after the first snapshot, so the server has
        resumed a forged position if no snapshot came before the heartbeat. (On a stream of several chats a heartbeat
        may come between their snapshots.)"""
        if len(self.folds) > 1:
            return
        for fold in self.folds.values():
            if fold.must_begin_anew:
                fold.must_begin_anew = False
                raise Mistake("forged", f"a forged position of {fold.chat_id} was answered by a heartbeat")

    # Where to begin.

    def _choose_place(self) -> str:
        """Choose the correct last id, no id, an earlier id or a forged id, and set the folded state to the state at
        that id."""
        drawn = self._random.random()
        if drawn < 0.55 or not self._last_id:
            return self._last_id
        if drawn < 0.65:
            self._forget()
            return ""
        if drawn < 0.85:
            return self._earlier_place()
        return self._forged_place()

    def _forget(self) -> None:
        """Drop the state, so that the next connection, even after failed attempts, asks for a snapshot."""
        self._last_id = ""
        for fold in self.folds.values():
            fold.state = None
            fold.history.clear()

    def _earlier_place(self) -> str:
        # one id covers all chats, so resuming one chat at an earlier position needs a new id
        if len(self.folds) > 1:
            return self._last_id
        (fold,) = self.folds.values()
        if not fold.history:
            return self._last_id
        place, state, seq = self._random.choice(fold.history)
        fold.go_back(state, seq)
        self._last_id = place
        self._counts["places of the past"] += 1
        return place

    def _forged_place(self) -> str:
        """Return an id that the server never sent; the server must not resume at this id."""
        self._counts["places forged"] += 1
        kind = self._random.randrange(4)
        words: list[str] = []
        for chat_id, fold in self.folds.items():
            position = max(fold.position, 1)
            epoch = max(fold.epochs, default=1)
            forged = (
                Position(1, position, max(0, position - fold.seq)),  # a life of 1970, which never existed
                Position(epoch, position + 100_000, position),  # ahead of the chat
                Position(epoch + 10**9, position, position),  # a future life
                Position(epoch, 10**14, 0),
            )[kind]
            words.append(str(forged) if len(self.folds) == 1 else stream_id_word(tag_of(chat_id), forged))
            fold.must_begin_anew = True
        self._forget()
        return ".".join(words)
