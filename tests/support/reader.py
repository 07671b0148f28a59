"""Reads one chat's stream over real HTTP, as a client does, and folds the frames.

A `Watcher` folds with the product's own reducer and fails on a gap between two events, so every test that watches a
chat also checks that a stream has no gaps. Tests wait for events, with a deadline.
"""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from typing import Any

import anyio
import httpx2

from tests.support.server import DEADLINE_SECONDS
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import decode_event, decode_snapshot, encode
from threadcast_protocol.framing.sse import EventFrame, FrameParser
from threadcast_protocol.wire.events import Event, RuntimeUpdated
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["TimedWatcher", "Watcher", "watching"]


class Watcher:
    """One subscription: the frames that it received, and the state to which they fold.

    `has_ended` is true once the stream is over; `broke` holds the error if the stream broke before the server ended it.
    `runs_ended` counts the outcomes of runs that have arrived, and the ended runs in the first snapshot.
    """

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.state: ChatState | None = None
        self.events: list[Event] = []
        self.frames: list[JsonObject] = []
        self.last_id = ""
        self.snapshots = 0
        self.has_ended = False
        self.broke: Exception | None = None
        self.runs_ended = 0
        self._changed = anyio.Event()

    def take(self, frame: EventFrame) -> None:
        body: dict[str, Any] = json.loads(frame.data)
        assert body["chat_id"] == self.chat_id
        self.frames.append(body)
        _, position, base = map(int, frame.last_event_id.split("-"))
        self.last_id = frame.last_event_id
        seq = int(body["seq"])
        assert seq == position - base
        raw = _event_json(body)
        if (
            self.state is not None and len(self.frames) == 1
        ):  # the stream goes on after frames that another watcher received
            self.runs_ended = _runs_ended_in(self.state)
        if body["type"] == "snapshot":
            assert seq == 0
            self.snapshots += 1
            self.state = state_from_snapshot(self.chat_id, decode_snapshot(raw), position)
            self.runs_ended = max(self.runs_ended, _runs_ended_in(self.state))
        else:
            assert self.state is not None, "an event before any snapshot"
            assert position == self.state.position + 1, f"a hole: {position} after {self.state.position}"
            event = decode_event(raw)
            self.events.append(event)
            self.state = reduce(self.state, position, event)
            if isinstance(event, RuntimeUpdated) and event.outcome is not None:  # one per run (EVT-15)
                self.runs_ended += 1
        self._notify()

    def state_after(self, seq: int) -> ChatState:
        """Return the state after the event with that seq. The first frame must be the only snapshot so far."""
        first, *rest = self.frames
        base = int(self.last_id.split("-")[2])
        state = state_from_snapshot(self.chat_id, decode_snapshot(_event_json(first)), base)
        for frame in rest[:seq]:
            state = reduce(state, state.position + 1, decode_event(_event_json(frame)))
        return state

    def begin(self) -> None:
        """Record that a stream opens, perhaps after an earlier stream."""
        self.has_ended, self.broke = False, None

    def end(self, broke: Exception | None = None) -> None:
        self.has_ended, self.broke = True, broke
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, wanted: "Callable[[Watcher], object]", seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until `wanted` is true. Fails at once if the stream ends first."""
        with anyio.fail_after(seconds):
            while not wanted(self):
                why = f"it broke: {self.broke!r}" if self.broke else "the server ended it"
                assert not self.has_ended, f"the stream was over too soon ({why}), after {self.types()[-5:]}"
                await self._changed.wait()

    async def at_rest(self, runs: int = 1, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until this number of runs has ended and the queue is empty."""

        def rests(watcher: Watcher) -> bool:
            state = watcher.state
            is_at_rest = state is not None and state.is_at_rest and state.runtime.queue_size == 0
            return is_at_rest and watcher.runs_ended >= runs

        await self.until(rests, seconds)

    @property
    def messages(self) -> list[tuple[str, str]]:
        assert self.state is not None
        return [(m.role, str(m.content)) for m in snapshot_of(self.state).messages]

    @property
    def snapshot(self) -> bytes:
        assert self.state is not None
        return encode(snapshot_of(self.state))

    def types(self) -> list[str]:
        return [str(frame["type"]) for frame in self.frames]


class TimedWatcher(Watcher):
    """A reader that also measures the gap caused by a change of owner.

    `came` has the epoch, the type and the arrival time (monotonic clock) of each frame. `deltas_after_handover` counts
    the deltas of all owners after the first owner.
    """

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self.came: list[tuple[str, str, float]] = []
        self.deltas_after_handover = 0
        self._first_writer = ""

    def take(self, frame: EventFrame) -> None:
        self.came.append((frame.last_event_id.partition("-")[0], "", time.monotonic()))
        super().take(frame)
        epoch, kind = self.came[-1][0], str(self.frames[-1]["type"])
        self.came[-1] = (epoch, kind, self.came[-1][2])
        if kind == "stream_delta":
            self._first_writer = self._first_writer or epoch
            self.deltas_after_handover += epoch != self._first_writer

    def gaps(self) -> list[float]:
        """Return, for each change of owner, the seconds between the last event of one owner and the first event of the
        next."""
        events = [(epoch, at) for epoch, kind, at in self.came if kind != "snapshot"]
        return [later - at for (epoch, at), (next_, later) in pairwise(events) if epoch != next_]

    def first_after(self, moment: float, kinds: Sequence[str] = ()) -> float | None:
        """Return the arrival time of the first event of one of these types after `moment`, or None."""
        return next((at for _, kind, at in self.came if at > moment and (not kinds or kind in kinds)), None)


def _runs_ended_in(state: ChatState) -> int:
    """Count the ended runs of a state: one for each user message, except for the last message while its run goes on."""
    asked = sum(1 for key in state.path if state.nodes[key].role == "user")
    return asked if state.is_at_rest and state.runtime.outcome is not None else max(0, asked - 1)


def _event_json(frame: JsonObject) -> bytes:
    return json.dumps({key: value for key, value in frame.items() if key not in ("chat_id", "seq")}).encode()


@contextlib.asynccontextmanager
async def watching(
    url: str, chat_id: str, *, headers: dict[str, str] | None = None, query: str = "", watcher: Watcher | None = None
) -> AsyncIterator[Watcher]:
    """Open a subscription for the block. The block begins after the first snapshot or event, or at once if the
    subscription resumes."""
    mine = watcher or Watcher(chat_id)
    mine.begin()
    timeout = httpx2.Timeout(DEADLINE_SECONDS, read=60)
    async with httpx2.AsyncClient(timeout=timeout) as client, anyio.create_task_group() as tasks:
        opened = anyio.Event()

        async def read() -> None:
            parser = FrameParser()
            broke: Exception | None = None
            try:
                address = f"{url}/v1/chats/subscribe?chat_id={chat_id}{query}"
                async with client.stream("GET", address, headers=headers or {}) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    opened.set()
                    async for chunk in answer.aiter_raw():
                        for frame in parser.feed(chunk):
                            if isinstance(frame, EventFrame):
                                mine.take(frame)
            except httpx2.TransportError as trouble:
                broke = trouble
            opened.set()
            mine.end(broke)

        tasks.start_soon(read)
        with anyio.fail_after(DEADLINE_SECONDS):
            await opened.wait()
            if headers is None and not query:
                await mine.until(lambda w: w.state is not None)
        yield mine
        tasks.cancel_scope.cancel()
