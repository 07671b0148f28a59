"""One reader's connection: bytes are sent in order, no task runs while the socket does not block, and a slow reader
gets a new snapshot."""

import asyncio
import re
import time
from collections.abc import MutableMapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from tests.unit.actor_harness import CHAT, Harness, title, turns
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.readers import Socket, reading
from threadcast.base.telemetry import Metrics
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.hub import Hub
from threadcast.fanout.subscriber import Subscriber
from threadcast_protocol.framing.sse import CommentFrame, Frame, RetryFrame
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio


GREETING = rb"retry: 500\n: hb \d+\n"
"""The bytes after the first snapshot: the pause after a cut, and a heartbeat. Neither ends an event."""


class Source:
    """A stand-in for a relay: numbered snapshots of any size."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.position = 0

    def snapshot(self) -> tuple[bytes, int]:
        self.position += 1_000
        return b"<%d:%b>" % (self.position, b"s" * self.size), self.position


class Pipe:
    """A socket that blocks while it is shut, and records in order the bytes that it accepts by direct send or by
    `send`."""

    def __init__(self) -> None:
        self.taken = b""
        self.last: bool | None = None
        self.turns_per_write = 0
        self.error: Exception | None = None
        self._open = asyncio.Event()
        self._open.set()

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def put(self, block: bytes) -> bool:
        if not self._open.is_set() or self.turns_per_write:
            return False
        if self.error is not None:
            raise self.error
        self.taken += block
        return True

    async def send(self, message: MutableMapping[str, Any]) -> None:  # Any: ASGI's own type
        if self.error is not None:
            raise self.error
        await self._open.wait()
        for _ in range(self.turns_per_write):
            await asyncio.sleep(0)
        self.taken += message["body"]
        self.last = not message["more_body"]

    async def until(self, wanted: bytes) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while wanted not in self.taken:
                await anyio.lowlevel.checkpoint()


class Setting:
    def __init__(self, tasks: TaskGroup, *, size: int = 10, **bounds: Any) -> None:  # Any: bounds of a Subscriber
        self.pipe = Pipe()
        self.source = Source(size)
        self.aborts = 0
        self.metrics = Metrics()
        self.connection = ReaderConnection(
            self.pipe.send,
            tasks,
            self.metrics,
            principal_id=LOCAL.id,
            abort=self.abort,
            put=self.pipe.put,
            **bounds,
        )
        self.subscriber = Subscriber(self.connection, self.source, CHAT, is_one_of_many=False)

    def abort(self) -> None:
        self.aborts += 1


async def test_while_nothing_blocks_no_task_is_made_and_bytes_are_sent_where_they_are_written() -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks)
        before = asyncio.all_tasks()
        missed = Frame(CHAT, b'{"type":"missed"}', 1, 8)
        setting.subscriber.start_at(Position(1, 8, 7), [missed])
        for number in range(100):
            setting.subscriber.write(b"%d " % number)
        expected = b"".join(b"%d " % number for number in range(100))
        assert re.fullmatch(GREETING + re.escape(missed.for_base(7)) + expected, setting.pipe.taken)
        assert asyncio.all_tasks() == before
        assert setting.subscriber.base == 7


@pytest.mark.parametrize("turns_per_write", [0, 1, 3])
async def test_a_write_that_blocks_is_gone_on_with_and_nothing_is_lost_or_reordered(turns_per_write: int) -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks)
        setting.pipe.turns_per_write = turns_per_write
        expected = b""
        for number in range(50):
            if number % 10 == 3:
                setting.pipe.shut()
            if number % 10 == 7:
                setting.pipe.open()
                await turns(number % 4)
            setting.subscriber.write(b"%d " % number)
            expected += b"%d " % number
            if number == 25:
                await turns()
        setting.pipe.open()
        await setting.pipe.until(b"49 ")
        assert setting.pipe.taken == expected
        await turns()
        before = asyncio.all_tasks()
        setting.pipe.turns_per_write = 0
        setting.subscriber.write(b"afterwards")
        assert setting.pipe.taken.endswith(b"afterwards") and asyncio.all_tasks() == before


async def test_a_full_queue_is_dropped_and_one_fresh_snapshot_follows() -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks, buffer_max_bytes=100)
        setting.subscriber.start_with_snapshot()
        await setting.pipe.until(b": hb")
        setting.pipe.shut()
        for number in range(200):
            setting.subscriber.write(b"[%d]" % number)
            await anyio.lowlevel.checkpoint()
        assert setting.subscriber.base == 1_000, "the base changes when the snapshot is made, not before"
        setting.pipe.open()
        await setting.pipe.until(b"<2000:")
        setting.subscriber.write(b"[after]")
        await setting.pipe.until(b"[after]")
        before, after = setting.pipe.taken.split(b"<2000:")
        assert before.endswith(b"[0]"), "what was on its way is finished, what was queued is dropped"
        assert after == b"s" * 10 + b">[after]", "and the first heartbeat is not said again"
        assert setting.subscriber.base == 2_000
        assert setting.metrics.registry.get_sample_value("threadcast_resyncs_total", {"reason": "slow"}) == 1


async def test_a_reader_that_keeps_up_in_the_end_is_never_thrown_back() -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks, buffer_max_bytes=100)
        for number in range(20):
            setting.pipe.shut()
            for piece in range(4):
                setting.subscriber.write(b"[%d.%d]" % (number, piece))
            setting.pipe.open()
            await setting.pipe.until(b"[%d.3]" % number)
        expected = b"".join(b"[%d.%d]" % (number, piece) for number in range(20) for piece in range(4))
        assert setting.pipe.taken == expected


async def test_a_snapshot_larger_than_the_queue_goes_out_in_slices_and_what_follows_waits_behind_it() -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks, size=200_000, buffer_max_bytes=100)
        setting.pipe.turns_per_write = 1
        setting.subscriber.start_with_snapshot()
        await setting.pipe.until(b"<1000:")
        setting.subscriber.write(b"[1]")
        setting.subscriber.write(b"[2]")
        await setting.pipe.until(b"[2]")
        assert re.fullmatch(rb"<1000:s{200000}>" + GREETING + rb"\[1\]\[2\]", setting.pipe.taken)


async def test_a_resync_in_the_middle_of_a_snapshot_finishes_its_block_first() -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks, size=200_000)
        setting.subscriber.start_with_snapshot()
        setting.pipe.turns_per_write = 2
        await setting.pipe.until(b"<1000:")
        setting.subscriber.write(b"[dropped]")
        setting.subscriber.resync("lost_position")
        await setting.pipe.until(b"<2000:" + b"s" * 200_000 + b">")
        assert re.match(rb"<1000:s{200000}>" + GREETING + rb"<2000:", setting.pipe.taken)
        assert b"dropped" not in setting.pipe.taken


async def test_a_reader_that_takes_nothing_is_ended_and_its_connection_dropped() -> None:
    for start in ("snapshot", "blocked write"):
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                setting = Setting(tasks, stall_seconds=0.02)
                setting.pipe.shut()
                if start == "snapshot":
                    setting.subscriber.start_with_snapshot()
                else:
                    setting.subscriber.write(b"x")
                while setting.connection.ended is None:
                    await anyio.lowlevel.checkpoint()
                assert setting.aborts == 1 and setting.connection.ended == "slow"
                setting.subscriber.write(b"nobody hears this")
                setting.pipe.open()
                await anyio.sleep_forever()  # the end of the stream cancels its tasks, including this task
        assert b"nobody" not in setting.pipe.taken


@pytest.mark.row("NET-8")
@pytest.mark.parametrize(
    ("reason", "says_retry"),
    [("shutdown", True), ("store", True), ("not_found", False), ("unfoldable", False)],
)
async def test_an_end_tells_those_who_may_come_back_how_long_to_wait(reason: Any, says_retry: bool) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            setting = Setting(tasks)
            setting.subscriber.write(b"[1]")
            setting.subscriber.end(reason)
            setting.subscriber.end("left")
            setting.subscriber.write(b"[2]")
            await anyio.sleep_forever()
    assert setting.pipe.last is True
    found = re.fullmatch(rb"\[1\](?:retry: (\d+)\n)?", setting.pipe.taken)
    assert found is not None
    assert (found[1] is not None) is says_retry
    assert found[1] is None or 500 <= int(found[1]) <= 3_000
    assert setting.connection.ended == reason, "the first reason counts"


async def test_a_heartbeat_is_sent_only_after_silence_and_never_into_a_queue() -> None:
    async with anyio.create_task_group() as tasks:
        setting = Setting(tasks)
        setting.subscriber.write(b"[1]")
        now = time.monotonic() + 20.0
        setting.connection.beat(now, 15.0)  # the connection treats all writes since the last heartbeat as written now
        setting.connection.beat(now + 14.9, 15.0)
        assert setting.pipe.taken == b"[1]"
        setting.connection.beat(now + 15.0, 15.0)
        assert re.fullmatch(rb"\[1\]: hb \d+\n", setting.pipe.taken)
        setting.pipe.shut()
        setting.subscriber.write(b"[2]")
        setting.connection.beat(now + 1_000.0, 15.0)
        setting.pipe.open()
        await setting.pipe.until(b"[2]")
        await turns()
        assert setting.pipe.taken.count(b"hb") == 1


@pytest.mark.parametrize("fails_at", ["put", "send"])
async def test_a_connection_that_fails_ends_its_own_reader_alone(fails_at: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            setting = Setting(tasks)
            setting.pipe.error = RuntimeError("the server's own mistake")
            setting.pipe.turns_per_write = int(fails_at == "send")
            setting.subscriber.write(b"[1]")
            while setting.connection.ended is None:
                await anyio.lowlevel.checkpoint()
            assert setting.connection.ended == "left"
            setting.pipe.error = None
            await anyio.sleep_forever()


@pytest.mark.row("NET-6")
async def test_a_slow_reader_folds_to_the_same_state_with_a_new_base_and_seq_from_0() -> None:
    harness = Harness()
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as fast:
        slow = Socket(CHAT)
        async with reading(hub, socket=slow, buffer_max_bytes=2_000):
            await slow.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
            first = slow.stream_position.base
            slow.is_blocked = True
            for number in range(40):
                await writer.commit(title(f"{number} " + "x" * 100))
            await fast.watcher.until(lambda w: w.last_id.startswith(f"{writer.state.epoch}-40-"), DEADLINE_SECONDS)
            assert len(slow.watcher.frames) < 40
            slow.free()
            await slow.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
            await writer.commit(title("last"))
            await slow.watcher.until(lambda w: w.state is not None and w.state.thread.title == "last", DEADLINE_SECONDS)
            await fast.watcher.until(lambda w: w.state is not None and w.state.thread.title == "last", DEADLINE_SECONDS)
        assert slow.stream_position.base > first
        assert slow.watcher.frames[-1]["seq"] == str(slow.stream_position.seq) == "1"
        assert slow.watcher.snapshot == fast.watcher.snapshot == await harness.snapshot()
        assert fast.watcher.snapshots == 1


async def test_the_first_snapshot_is_followed_by_the_pause_after_a_cut_and_a_heartbeat() -> None:
    harness = Harness()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await socket.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(socket.frames) < 3:
                await anyio.lowlevel.checkpoint()
        assert socket.frames[1] == RetryFrame(500)
        assert isinstance(socket.frames[2], CommentFrame) and socket.frames[2].text.startswith("hb ")


async def test_at_shutdown_every_stream_ends_and_says_when_to_come_back() -> None:
    harness = Harness()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub, "a") as one, reading(hub, "b") as two:
        for socket in (one, two):
            await socket.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
        await turns()
        await hub.close_streams()
        for socket in (one, two):
            await socket.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
            assert socket.ended == "shutdown"
            assert isinstance(socket.frames[-1], RetryFrame), "a goodbye is a retry that nothing follows"
