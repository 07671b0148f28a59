"""A relay: one watched chat in this process. Folds each entry, encodes each event once, offers it to everyone.

It follows the log's channel first and loads second, so nothing falls between; what it has already is dropped by its
id. An entry continues iff its `before` is the head string that the relay holds; anything else, a rebuilt channel or a
failed position check makes it load again (DESIGN §5, DISPATCH §6). Readers whose history goes on get the missing
events; the others get a snapshot. The relay holds the newest frames for those who resume.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import anyio
import structlog

from protocol.codec import encode, split_array
from protocol.entries import RawEntry
from protocol.errors import Failed, Unavailable
from protocol.events import BranchSelected
from protocol.ids import EntryId, Head, Position
from protocol.reducer import Gap
from protocol.snapshot import resume_is_possible, snapshot_of
from protocol.sse import Frame, snapshot_frame
from protocol.state import empty_state
from server.relay.connection import EndReason
from server.relay.subscriber import Subscriber
from server.store.load import NewerVersion, entries_after, fold_checked, fold_whole
from server.store.port import Notice, Store
from server.telemetry import Metrics

__all__ = ["Relay"]

_log = structlog.get_logger()

HELD_MAX_EVENTS = 2_000
HELD_MAX_BYTES = 1_000_000
"""Frames kept in memory for those who resume; older ones are read from the log while it has them."""

STORE_PAUSE_SECONDS = 0.5

AT_ONCE_READERS = 16
"""With more, waking a task is little beside writing to them all; and whoever brings the notice has others to bring, so
it is held up for a fifth of a millisecond at most."""

LOADS_AT_ONCE = 8
"""Of all relays of a process: enough to keep the store busy, few enough that the herd after a restart does not read
thousands of chats into memory at the same time."""

LOAD_SECONDS = 10.0
"""A load that takes longer, its turn included, counts as a store that does not answer; it is tried again. So long, too,
a reader who comes back waits for what it missed; then it begins with a snapshot."""


class Relay:
    """Watches `chat_id` until cancelled. `ready` is set once the state is there, or `trouble` says why not."""

    def __init__(
        self, chat_id: str, store: Store, metrics: Metrics, loads: anyio.CapacityLimiter | None = None
    ) -> None:
        """`loads` bounds how many relays read their chats at once."""
        self.chat_id = chat_id
        self.ready = anyio.Event()
        self.trouble: EndReason | None = None
        self.subscribers: dict[Subscriber, None] = {}  # in the order they came, as they lie in memory
        self.changed_at = time.monotonic()
        self.checked_at = time.monotonic()
        self._store = store
        self._metrics = metrics
        self._state = empty_state(chat_id)
        self._owner: str | None = None
        self._loads = loads or anyio.CapacityLimiter(LOADS_AT_ONCE)
        self._histories = 0
        self._frames: deque[tuple[Frame, int]] = deque()
        self._frames_bytes = 0
        self._recalling = anyio.Lock(fast_acquire=True)
        self._recalled_at = -1  # in which history
        self._log_holds_more = False
        self._snapshot: tuple[bytes, int] | None = None
        self._wrong: Exception | None = None  # what `_take_at_once` ran into
        self._lock = asyncio.Lock()  # one fold or load at a time: an older load must never follow a newer entry

    @property
    def head(self) -> str:
        return self._state.head

    @property
    def is_at_rest(self) -> bool:
        return self._state.is_at_rest

    async def run(self) -> None:
        """Follow the chat; trouble with the store pauses the relay, and it loads again afterwards."""
        while True:
            try:
                async with self._store.follow(self.chat_id, self._take_at_once) as notices:
                    async with self._lock:
                        await self._load("open")
                    self.trouble = None
                    self.ready.set()
                    async for notice in notices:
                        async with self._lock:
                            await self._take(notice)
            except Failed as failed:
                if not isinstance(failed, Unavailable):
                    _log.error("relay.failed", chat_id=self.chat_id, error=str(failed))
                if not self.ready.is_set():
                    self.trouble = "store"
                    self.ready.set()
                await anyio.sleep(STORE_PAUSE_SECONDS)
            except (NewerVersion, Gap) as trouble:
                self._fail(trouble)
                return

    def snapshot(self) -> tuple[bytes, int]:
        """The block of a snapshot as the chat now is; made once per state and shared by all who need it."""
        if self._snapshot is None:
            state = self._state
            block = snapshot_frame(self.chat_id, encode(snapshot_of(state)), state.epoch, state.position)
            self._snapshot = (block, state.position)
        return self._snapshot

    async def join(self, subscriber: Subscriber, place: Position | None) -> None:
        """Begin to serve: from `place` when everything after it is still held, else with a snapshot."""
        missed: Sequence[Frame] | None = None
        if place is not None:
            with anyio.move_on_after(LOAD_SECONDS):  # all who come back at once queue for one look into the log
                missed = await self._frames_after(place)
        if self.trouble is not None:  # it failed while this reader was coming in
            subscriber.end(self.trouble)
            return
        if self._owner not in (None, subscriber.principal_id):
            subscriber.end("not_found")  # the id became somebody else's chat while this reader was coming in
            return
        self.subscribers[subscriber] = None
        if place is None or missed is None:
            subscriber.start_with_snapshot()
        else:
            subscriber.start_at(place, missed)

    def leave(self, subscriber: Subscriber) -> None:
        self.subscribers.pop(subscriber, None)

    async def check_against(self, head: str, asked_from: str) -> None:
        """The store's head was `head` when this relay stood at `asked_from`; another one means something was lost."""
        if head == asked_from:
            return
        async with self._lock:
            if self._state.head == asked_from:
                try:
                    await self._load("position_check")
                except (NewerVersion, Gap) as trouble:
                    self._fail(trouble)

    async def _frames_after(self, place: Position) -> Sequence[Frame] | None:
        """The frames after `place`, or None when it is not of this history or something after it is gone.

        What is not held is read from the log: once for all who come, as far as frames are kept in memory; what lies
        before that, for each who asks for it. What is folded meanwhile is held.
        """
        if not resume_is_possible(self._state, place.epoch, place.position):
            return None
        if place.position + 1 < self._first_held:
            await self._recall()
            if not resume_is_possible(self._state, place.epoch, place.position):
                return None
        if place.position + 1 >= self._first_held:
            return self._held_after(place.position)
        if self._recalled_at == self._histories and not self._log_holds_more:
            return None
        head, history = self._state.head, self._histories
        async with self._loads:
            entries = await self._store.read_log(self.chat_id, newest=True)
        if self._histories != history or all(entry.head != head for entry in entries):
            return None
        return self._frames_from_log(entries, place.position)

    @property
    def _first_held(self) -> int:
        return self._frames[0][0].position if self._frames else self._state.position + 1

    async def _recall(self) -> None:
        """Read into memory what the log holds before the first frame that is held, as far as there is room. After a
        restart all readers of a chat resume at once, and the log is read once for them."""
        async with self._recalling:
            if self._recalled_at == self._histories:
                return
            head, history = self._state.head, self._histories
            async with self._loads:
                entries = await self._store.read_log(self.chat_id, newest=True)
            if self._histories != history or all(entry.head != head for entry in entries):
                return
            self._recalled_at = history
            self._log_holds_more = self._keep_before(entries)

    def _keep_before(self, entries: list[RawEntry]) -> bool:
        """Frames of the log in front of those that are held; True: memory was full before the log was through."""
        for entry in reversed(entries):
            raws = split_array(entry.events)
            size_each = len(entry.events) // max(1, len(raws))
            first = entry.position - len(raws) + 1
            for at in range(entry.position, first - 1, -1):
                if at >= self._first_held:  # held, or beyond what is folded: the relay hears of it in a moment
                    continue
                raw = bytes(raws[at - first])
                if at != self._first_held - 1 or b'"branch_selected"' in raw[:26]:
                    return False
                if len(self._frames) >= HELD_MAX_EVENTS or self._frames_bytes + size_each > HELD_MAX_BYTES:
                    return True
                self._frames.appendleft((Frame(self.chat_id, raw, entry.entry_id.epoch, at), size_each))
                self._frames_bytes += size_each
        return False

    def _held_after(self, position: int) -> list[Frame]:
        return [frame for frame, _ in self._frames if frame.position > position]

    def _frames_from_log(self, entries: list[RawEntry], position: int) -> Sequence[Frame] | None:
        """The log's frames after `position`, then those that this relay folded since the log was read."""
        frames: list[Frame] = []
        expected = position + 1
        for entry in entries:
            raws = split_array(entry.events)
            first = entry.position - len(raws) + 1
            for at, raw in enumerate(raws, start=first):
                if at < expected or at > self._state.position:  # beyond: the relay hears of it in a moment
                    continue
                if at > expected or b'"branch_selected"' in bytes(raw)[:26]:
                    return None
                frames.append(Frame(self.chat_id, bytes(raw), entry.entry_id.epoch, at))
                expected += 1
        newer = self._held_after(expected - 1)
        if newer and newer[0].position != expected:
            return None
        frames += newer
        return frames if expected + len(newer) == self._state.position + 1 else None

    def _fail(self, trouble: Exception) -> None:
        """What the log holds cannot be shown by this process. Who watches is told to stop, or, during a deploy, to
        come back, since another process may be of the version that wrote it."""
        self.trouble = "newer_version" if isinstance(trouble, NewerVersion) else "unfoldable"
        if self.trouble == "newer_version":
            _log.warning("relay.newer_version", chat_id=self.chat_id, error=str(trouble))
        else:
            _log.error("relay.unfoldable", chat_id=self.chat_id, error=str(trouble))
        self.ready.set()
        self._end_all(self.trouble)

    def _end_all(self, reason: EndReason) -> None:
        for subscriber in list(self.subscribers):
            subscriber.end(reason)
        self.subscribers.clear()

    def _take_at_once(self, notice: Notice) -> bool:
        """What comes next, to few readers, needs no task: nearly every notice is that. All else is left to `run`."""
        entry = notice.entry
        if (
            entry is None
            or entry.before != self._state.head
            or self._owner is None
            or self._wrong is not None
            or self._lock.locked()
            or len(self.subscribers) > AT_ONCE_READERS
        ):
            return False
        try:
            self._go_forward(entry)
        except Exception as wrong:  # not the trouble of who brings the notice: `run` raises it
            self._wrong = wrong
            return False
        return True

    async def _take(self, notice: Notice) -> None:
        if self._wrong is not None:
            wrong, self._wrong = self._wrong, None
            raise wrong
        entry = notice.entry
        if entry is not None and entry.before == self._state.head:  # nearly always: what comes next
            await self._fold(entry)
            return
        mine = Head.parse(self._state.head).entry_id if self._state.head else EntryId(0, 0)
        if notice.kind == "large":
            if Head.parse(notice.head).entry_id <= mine:
                return
            entry = await self._store.read_entry(self.chat_id, Head.parse(notice.head).entry_id)
        if notice.kind == "deleted":
            self._owner = None
            self._end_all("not_found")
        if notice.kind in ("deleted", "reconnected") or entry is None:
            await self._load(notice.kind)
        elif entry.entry_id > mine:
            if entry.before == self._state.head:
                await self._fold(entry)
            else:
                await self._load("gap")

    async def _load(self, reason: str) -> None:
        """Read the chat anew. Readers go on if what they hold is a prefix of what is there, else get a snapshot."""
        try:
            with anyio.fail_after(LOAD_SECONDS):
                async with self._loads:
                    loaded = await self._store.load(self.chat_id)
        except TimeoutError:
            raise Unavailable("the store is too slow; try again") from None
        self.checked_at = time.monotonic()
        if loaded.head == self._state.head:
            return
        if self._state.head:
            self._metrics.relay_reloads.labels(reason).inc()
            if entries := await entries_after(self._store, self.chat_id, loaded, self._state.head):
                for entry in entries:
                    await self._fold(entry)
                return
        async with self._loads:
            state, _ = await fold_whole(self._store, self.chat_id, loaded, with_facts=False)
        # Before the state is changed: should the store be away, the next load must find again that readers need it.
        await self._know_owner()
        self._state = state
        self._forget_frames()
        for subscriber in list(self.subscribers):
            subscriber.resync("lost_position")

    async def _fold(self, entry: RawEntry) -> None:
        """One entry forward, out to everybody. Raises Gap, NewerVersion."""
        if self._owner is None:
            await self._know_owner()
        self._go_forward(entry)

    def _go_forward(self, entry: RawEntry) -> None:
        """As `_fold`, once it is known whose chat this is."""
        self._state, events = fold_checked(self._state, entry, with_facts=False)
        self._snapshot = None
        self.changed_at = time.monotonic()
        if not events:
            return
        first = entry.position - len(events) + 1
        epoch = entry.entry_id.epoch
        # Of an array with one element, what is between its brackets: most entries are one event.
        raws = (entry.events[1:-1],) if len(events) == 1 else map(bytes, split_array(entry.events))
        frames = [Frame(self.chat_id, raw, epoch, position) for position, raw in enumerate(raws, start=first)]
        if BranchSelected in map(type, events):
            self._forget_frames()
            for subscriber in list(self.subscribers):
                subscriber.resync("branch_selected")
            return
        self._keep(frames, len(entry.events) // len(frames))
        self._deliver(frames)
        self._metrics.append_to_send_seconds.observe(max(0.0, time.time() - entry.time_ms / 1000))

    def _deliver(self, frames: list[Frame]) -> None:
        """All frames of an entry in one write per reader; readers of one base share the bytes."""
        ready: dict[int, bytes] = {}
        for subscriber in list(self.subscribers):
            if subscriber.is_one_of_many:
                subscriber.write_frames(frames)
            elif not subscriber.needs_snapshot:
                base = subscriber.base
                data = ready.get(base)
                if data is None:
                    one = frames[0].for_base(base)  # nearly always the only one
                    data = ready[base] = one if len(frames) == 1 else b"".join(frame.for_base(base) for frame in frames)
                subscriber.connection.write(data, subscriber)

    def _keep(self, frames: list[Frame], size_each: int) -> None:
        for frame in frames:
            self._frames.append((frame, size_each))
            self._frames_bytes += size_each
        while len(self._frames) > HELD_MAX_EVENTS or self._frames_bytes > HELD_MAX_BYTES:
            self._frames_bytes -= self._frames.popleft()[1]
            self._log_holds_more = True  # perhaps; it is trimmed at checkpoints only

    def _forget_frames(self) -> None:
        self._histories += 1
        self._frames.clear()
        self._frames_bytes = 0
        self._snapshot = None
        self.changed_at = time.monotonic()

    async def _know_owner(self) -> None:
        """Whose chat this is. Who watched an id before it was a chat must not see what somebody else makes of it."""
        meta = await self._store.meta(self.chat_id)
        self._owner = None if meta is None or meta.deleted else meta.owner
        if meta is None:  # no chat yet, or one that expired: whose it will be is asked again
            return
        for subscriber in list(self.subscribers):
            if meta.deleted or subscriber.principal_id != meta.owner:
                subscriber.end("not_found")
                self.subscribers.pop(subscriber, None)
