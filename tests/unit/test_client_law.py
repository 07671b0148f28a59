"""The client's law: after any sequence of connection failures, the client's folded state equals the server's state.

A scripted server plays the log of a real chat (`pure_chat.py`) with random faults: it cuts bytes anywhere, breaks off,
loses or repeats events, sends snapshots instead of events, and loses the end of its log.
"""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client_harness import SSE, URL
from tests.unit.pure_chat import PureChat
from tests.unit.test_reducer import chats
from threadcast_client import Client, Connection, RawEvent, RetryPolicy
from threadcast_protocol.fold.reducer import reduce_event
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.framing.sse import Frame, snapshot_frame
from threadcast_protocol.wire.events import Snapshot
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.transient import Transient

CALM = RetryPolicy(pause_first_seconds=0.0, pause_max_seconds=0.0)

FAULTS = ("break", "lose", "repeat", "resync", "rollback", "rubbish", "goodbye")


class PlayingServer(httpx2.AsyncBaseTransport):
    """Plays the log of `chat`, with one random fault on each connection until the faults are used up, and then to its
    end. An epoch identifies each history, as in the real server."""

    def __init__(self, chat: PureChat, faults: list[tuple[str, int, int]]) -> None:
        self._chat = chat
        self._faults = faults
        self._epoch = 1
        self._length = chat.state.position
        self.connections = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.connections += 1
        place = Position.parse(request.headers.get("last-event-id", ""))
        fault, at, size = self._faults.pop(0) if self._faults else ("", 0, 64)
        whole = b"".join(self._blocks(place, fault, at))
        return httpx2.Response(200, headers=SSE, stream=_Cut(whole, size + 1, is_last=not fault))

    def _blocks(self, place: Position | None, fault: str, at: int) -> list[bytes]:
        if place is None or place.epoch != self._epoch or place.position > self._length:
            blocks, base, position = self._snapshot(at)
        else:
            blocks, base, position = [], place.base, place.position
        for event in self._chat.events[position : self._length]:
            position += 1
            blocks.append(Frame("c1", encode(event), self._epoch, position).for_base(base))
        blocks.append(b"retry: 500\n: hb 1\n")
        spot = at % len(blocks)
        match fault:
            case "break":
                whole = b"".join(blocks)
                return [whole[: at % (len(whole) + 1)]]
            case "lose":
                del blocks[spot]
            case "repeat":
                blocks.insert(spot, blocks[spot])
            case "resync":
                return [*blocks[:spot], *self._snapshot(at + 1)[0]]
            case "rubbish":
                blocks.insert(spot, b'data: {"chat_id":"c1","type":"surprise"}\n\ndata: nothing\n\n')
            case "rollback":
                boundaries = [state.position for state in self._chat.states if state.position <= self._length]
                self._length = boundaries[at % len(boundaries)]
                self._epoch += 1
            case "goodbye":
                blocks.append(b"retry: 0\n")
            case _:
                pass
        return blocks

    def _snapshot(self, at: int) -> tuple[list[bytes], int, int]:
        """Return a snapshot of an earlier state of the log, followed by the events after it."""
        state = [state for state in self._chat.states if state.position <= self._length][-1 - at % 2 :][0]
        block = snapshot_frame("c1", encode(snapshot_of(state)), self._epoch, state.position)
        return [block], state.position, state.position

    @property
    def final(self) -> bytes:
        state = next(state for state in reversed(self._chat.states) if state.position <= self._length)
        return encode(snapshot_of(state))

    @property
    def is_calm(self) -> bool:
        """Return whether all faults are used up."""
        return not self._faults

    @property
    def length(self) -> int:
        return self._length


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, whole: bytes, size: int, *, is_last: bool) -> None:
        self._whole, self._size, self._is_last = whole, size, is_last

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._whole), self._size):
            yield self._whole[start : start + self._size]
        if self._is_last:
            await anyio.sleep_forever()


@pytest.mark.row("EVT-2")
@settings(max_examples=60, deadline=None)
@given(chats(), st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 400), st.integers(0, 90)), max_size=6))
def test_after_any_mix_of_cuts_losses_repeats_and_rollbacks_the_client_holds_what_the_server_holds(
    chat: PureChat, faults: list[tuple[str, int, int]]
) -> None:
    server = PlayingServer(chat, faults)

    async def run() -> bytes:
        with anyio.fail_after(15):
            async with (
                Client(URL, retry_policy=CALM, transport=server) as client,
                client.chat("c1") as it,
            ):
                while it.connection.state != "live" or not server.is_calm or it.state.position != server.length:
                    await anyio.lowlevel.checkpoint()
                return encode(snapshot_of(it.state))

    assert anyio.run(run) == server.final


@settings(max_examples=30, deadline=None)
@given(chats(), st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 400), st.integers(0, 90)), max_size=6))
def test_every_reader_of_a_chat_can_fold_what_it_is_given(chat: PureChat, faults: list[tuple[str, int, int]]) -> None:
    """A reader receives a snapshot and then every event after it, even if the connection failed in between."""
    server = PlayingServer(chat, faults)

    async def run() -> None:
        with anyio.fail_after(15):
            async with (
                Client(URL, retry_policy=CALM, transport=server) as client,
                client.chat("c1") as it,
            ):
                folded = it.state
                async for item in it.events():
                    match item:
                        case Snapshot():
                            folded = state_from_snapshot("c1", item, 0)
                        case Connection() | RawEvent() | Transient():
                            pass
                        case _:
                            folded = reduce_event(folded, item)
                    is_over = it.connection.state == "live" and server.is_calm and it.state.position == server.length
                    if is_over and encode(snapshot_of(folded)) == server.final:
                        return

    anyio.run(run)
