"""Many chats on one connection share a buffer and an id with all positions, and the failure of one chat does not affect
the others."""

import json
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from tests.unit.actor_harness import CHAT, Harness, title, turns
from tests.unit.test_subscriber import Setting
from threadcast.fanout.admissions import Admissions
from threadcast.fanout.hub import Hub
from threadcast.fanout.many_chats import ManyChats
from threadcast.fanout.subscriber import Subscriber
from threadcast.settings.limits import Limits
from threadcast_protocol.framing.sse import EventFrame, Frame, FrameParser, snapshot_frame
from threadcast_protocol.framing.stream_ids import parse_stream_ids
from threadcast_protocol.wire.ids import Position

pytestmark = pytest.mark.anyio


class Many(Setting):
    """Two chats on one connection, whose snapshots and frames differ by their letters."""

    def __init__(self, tasks: TaskGroup, **bounds: Any) -> None:  # Any: bounds of a Connection
        super().__init__(tasks, **bounds)
        self.a = Subscriber(self.connection, NamedSource("a"), "a", is_one_of_many=True)
        self.b = Subscriber(self.connection, NamedSource("b"), "b", is_one_of_many=True)

    def frame(self, name: str, position: int) -> list[Frame]:
        return [Frame(name, b'{"type":"%b%d"}' % (name.encode(), position), 1, position)]


class NamedSource:
    def __init__(self, name: str) -> None:
        self.name = name

    def snapshot(self) -> tuple[bytes, int]:
        return snapshot_frame(self.name, b'{"type":"snapshot"}', 1, 10), 10


def blocks(taken: bytes) -> list[tuple[str, str, dict[str, Position]]]:
    """Return (chat, type, the positions in the block's id) of every block."""
    frames = [frame for frame in FrameParser().feed(taken) if isinstance(frame, EventFrame)]
    bodies = [json.loads(frame.data) for frame in frames]
    return [
        (body["chat_id"], body["type"], parse_stream_ids(frame.last_event_id, ["a", "b"]))
        for body, frame in zip(bodies, frames, strict=True)
    ]


async def test_each_block_of_many_tells_where_its_reader_stands_in_all_chats_at_that_moment() -> None:
    async with anyio.create_task_group() as tasks:
        many = Many(tasks)
        many.a.start_with_snapshot()
        await many.pipe.until(b": hb")
        many.a.write_frames(many.frame("a", 11))
        many.b.start_with_snapshot()
        await many.pipe.until(b'"chat_id":"b"')
        await turns()
        many.b.write_frames([*many.frame("b", 11), *many.frame("b", 12)])
        told = [
            (kind, {chat: told.position for chat, told in stream_positions.items()})
            for _, kind, stream_positions in blocks(many.pipe.taken)
        ]
        assert told == [
            ("snapshot", {"a": 10}),
            ("a11", {"a": 11}),
            ("snapshot", {"a": 11, "b": 10}),
            ("b11", {"a": 11, "b": 11}),
            ("b12", {"a": 11, "b": 12}),
        ]


async def test_an_overflow_gives_a_snapshot_to_each_chat_that_lost_something_and_to_no_other() -> None:
    async with anyio.create_task_group() as tasks:
        many = Many(tasks, buffer_max_bytes=400)
        for subscriber in (many.a, many.b):
            subscriber.start_with_snapshot()
        await many.pipe.until(b'"chat_id":"b"')
        await turns()
        many.pipe.shut()
        many.a.write_frames(many.frame("a", 11))
        await turns()  # the snapshot is on its way
        for position in range(12, 20):
            many.a.write_frames(many.frame("a", position))
        assert many.a.needs_snapshot and not many.b.needs_snapshot
        many.b.write_frames(many.frame("b", 11))
        many.pipe.open()
        await many.pipe.until(b'"b11"')
        await turns()
        told = blocks(many.pipe.taken)
        assert [(chat, kind) for chat, kind, _ in told[2:]] == [("a", "a11"), ("b", "b11"), ("a", "snapshot")]
        assert "a" not in told[3][2], "what was dropped is told by no id"
        assert told[4][2].keys() == {"a", "b"}


async def test_a_chat_that_was_left_while_it_joined_neither_writes_nor_moves_the_position_of_its_successor() -> None:
    async with anyio.create_task_group() as tasks:
        many = Many(tasks)
        many.a.leave()
        successor = Subscriber(many.connection, NamedSource("a"), "a", is_one_of_many=True)
        successor.start_at(Position(1, 20, 5), many.frame("a", 21))
        many.a.start_at(Position(1, 10, 5), many.frame("a", 11))
        many.a.resync("lost_position")
        many.a.write_frames(many.frame("a", 11))
        many.b.start_with_snapshot()
        await many.pipe.until(b'"chat_id":"b"')
        await turns()
        told = blocks(many.pipe.taken)
        assert [(chat, kind) for chat, kind, _ in told] == [("a", "a21"), ("b", "snapshot")]
        assert told[-1][2]["a"].position == 21


async def test_a_chat_that_ends_among_many_says_so_and_leaves_the_others_alone() -> None:
    async with anyio.create_task_group() as tasks:
        many = Many(tasks)
        for subscriber in (many.a, many.b):
            subscriber.start_with_snapshot()
        await many.pipe.until(b'"chat_id":"b"')
        await turns()
        many.a.end("not_found")
        many.a.end("unfoldable")
        many.a.write_frames(many.frame("a", 11))
        many.b.write_frames(many.frame("b", 11))
        assert many.connection.ended is None and many.a.left.is_set()
        assert [kind for _, kind, _ in blocks(many.pipe.taken)] == ["snapshot", "snapshot", "chat_removed", "b11"]
        assert blocks(many.pipe.taken)[-1][2].keys() == {"b"}


@pytest.mark.parametrize("what", ["an event", "a snapshot"])
async def test_of_a_chat_that_was_taken_from_a_stream_nothing_comes_afterwards(what: str) -> None:
    """The test includes events that the chat's relay offers in the same step, and a snapshot that did not yet fit the
    reader's queue."""
    harness = Harness()
    writer = await harness.writer()
    await writer.commit(title("kept"))
    async with Hub(harness.store, harness.metrics).running() as hub, anyio.create_task_group() as tasks:
        setting = Setting(tasks)
        admission = Admissions(Limits()).taken("local")
        many = ManyChats(hub, harness.store, setting.connection, tasks, admission, has_presence=False)
        many.add(CHAT, None)
        await setting.pipe.until(b'"title":"kept"')
        await turns()
        async with hub.relay(CHAT) as relay:
            (subscriber,) = relay.subscribers
            if what == "a snapshot":
                setting.pipe.shut()
                subscriber.resync("slow")
            many.remove(CHAT)
            if what == "an event":
                subscriber.write_frames([Frame(CHAT, b'{"type":"late"}', 1, 2)])
            setting.pipe.open()
            await setting.pipe.until(b"chat_removed")
            await turns()
        assert setting.pipe.taken.partition(b"chat_removed")[2].count(b"data:") == 0
        assert setting.connection.stream_id_words == {}
        tasks.cancel_scope.cancel()
