"""Known mistakes of other systems between the log and the readers; a test can show them only on a store that it can
pause.

These tests use the real writer, hub, relay and subscriber; `test_traps.py` tests the mistakes that can be caused on a
real server.
"""

import anyio
import pytest

from tests.support.reader import Watcher
from tests.support.server import DEADLINE_SECONDS
from tests.unit.actor_harness import CHAT, Harness, is_right, say, stands, title
from tests.unit.pure_chat import table
from tests.unit.readers import Socket, reading
from threadcast.actor.writer import Writer
from threadcast.agent_loop.plan import advance
from threadcast.chat.decider import decide
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.fanout.hub import Hub
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def answering(harness: Harness) -> Writer:
    """Return a writer whose chat has an open answer without any text yet."""
    writer = await harness.writer()

    def write(builder: EntryBuilder) -> None:
        decide(builder, say("first"), LOCAL)
        advance(builder, table())

    await writer.commit(write, tuple(await harness.store.read_inbox(CHAT, 1)))
    return writer


async def say_word(writer: Writer, word: str) -> None:
    writer.offer(AppendContent(word))
    await writer.commit(lambda _: None)


def words_of(watcher: Watcher) -> str:
    assert watcher.state is not None and watcher.state.draft is not None
    return str(watcher.state.draft.content)


async def test_trap_empty_draft_missing_from_the_snapshot_and_live_text_lost(harness: Harness) -> None:
    """The mistake: a reader that joins late drops every delta of a message that its snapshot did not contain."""
    writer = await answering(harness)
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        await say_word(writer, "live ")
        await say_word(writer, "text")
        await is_right(harness, socket, writer)
        assert words_of(socket.watcher) == "live text"


async def test_trap_text_reordered_when_a_queue_overflows(harness: Harness) -> None:
    """The mistake: a full queue drops its oldest text or lets newer text pass, so the reader ends with words in another
    order. The text of a slow reader must at every moment be a prefix of the answer."""
    words = [f"word{number} " for number in range(60)]
    writer = await answering(harness)
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub, buffer_max_bytes=300) as slow,
        reading(hub) as quick,
    ):
        await stands(slow, writer)
        for number, word in enumerate(words):
            slow.is_blocked = slow.is_blocked or number % 20 == 3
            if number % 20 == 15:
                slow.free()
                await stands(slow, writer)
            await say_word(writer, word)
            assert "".join(words).startswith(words_of(slow.watcher))
        slow.free()
        await is_right(harness, slow, writer)
        await is_right(harness, quick, writer)
        assert words_of(slow.watcher) == words_of(quick.watcher) == "".join(words)
        assert slow.watcher.snapshots > 1, "the queue did overflow"
        assert quick.watcher.snapshots == 1


async def test_trap_a_failed_encode_leaves_a_permanent_gap(harness: Harness) -> None:
    """The mistake: the event got its number, could not be encoded, and every reader waits for that number for ever."""
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("before"))
        await stands(socket, writer)
        with pytest.raises(NotImplementedError):
            await writer.commit(lambda builder: builder.say(ThreadUpdated(context={"no JSON": object()})))
        with anyio.fail_after(DEADLINE_SECONDS):
            await writer.commit(title("after"))
        await is_right(harness, socket, writer)
        assert socket.watcher.snapshots == 1
        assert [frame["seq"] for frame in socket.watcher.frames[-2:]] == ["1", "2"]


@pytest.mark.parametrize("is_read", [False, True], ids=["before the read", "after the read"])
async def test_trap_snapshot_read_before_capture_starts(harness: Harness, is_read: bool) -> None:
    """If the state is read before listening begins, events that are written in between are missed."""
    writer = await harness.writer()
    await writer.commit(title("early"))
    held = harness.store.hold("load", reply_only=is_read)
    async with Hub(harness.store, harness.metrics).running() as hub, anyio.create_task_group() as tasks:
        socket = Socket()
        tasks.start_soon(socket.serve, hub, harness.metrics, None, "local")
        await held.entered()
        await writer.commit(title("in between"))
        held.let_go()
        await is_right(harness, socket, writer)
        assert socket.watcher.state is not None and socket.watcher.state.thread.title == "in between"
        assert socket.mistake is None
        tasks.cancel_scope.cancel()


async def test_trap_position_taken_from_a_clock_per_connection(harness: Harness) -> None:
    """If each connection or process numbers its events itself, a position means something else at another process, and
    a client that reconnects there misses or repeats events."""
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as here, reading(here) as first:
        await writer.commit(title("a"))
        async with Hub(harness.store, harness.metrics).running() as there, reading(there) as second:
            for text in "bcd":
                await writer.commit(title(text))
            await stands(first, writer)
            await stands(second, writer)
            assert (first.stream_position.epoch, first.stream_position.position) == (
                second.stream_position.epoch,
                second.stream_position.position,
            )
            assert first.stream_position.base != second.stream_position.base
            left = Socket()
            left.watcher.state, stream_position = first.watcher.state, first.stream_position
            await writer.commit(title("e"))
            async with reading(there, socket=left, stream_position=stream_position):
                await is_right(harness, left, writer)
            assert [frame["title"] for frame in left.watcher.frames] == ["e"]
            assert left.watcher.snapshots == 0
