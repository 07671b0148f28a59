"""Appends, lost publishes, slow readers, joins and reconnects at the same time and in random order. All readers end at
the state of the log."""

import asyncio

import anyio
import anyio.abc
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.actor_harness import CHAT, Harness, is_right, title, titles, turns
from tests.unit.readers import Socket
from threadcast.actor.writer import Writer
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.fanout.hub import Hub
from threadcast.store.memory.store import MemoryStore
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import BranchSelected, RuntimeUpdated, StreamDelta, StreamStarted
from threadcast_protocol.wire.ids import Position


class Scene:
    """Readers of one chat, driven by random steps. After any sequence of failures, all readers end with the state of
    the log."""

    def __init__(self, harness: Harness, hub: Hub, tasks: anyio.abc.TaskGroup, writer: Writer) -> None:
        self.harness, self.hub, self.tasks, self.writer = harness, hub, tasks, writer
        self.sockets: list[Socket] = []
        self.answers = 0

    async def do(self, step: str, number: int) -> None:
        store = self.harness.store
        reader = self.sockets[number % len(self.sockets)] if self.sockets else None
        match step:
            case "append":
                await self.writer.commit(titles(*[f"{number}-{i}" for i in range(1 + number % 3)]))
            case "speak":
                await self.writer.commit(self.speak)
            case "branch":
                await self.writer.commit(self.branch)
            case "fence":
                await MemoryStore.take(store, CHAT, "w1", "retake")
                self.writer = await self.harness.writer_at_head()
            case "lose" | "hear":
                store.loses_publishes = step == "lose"
            case "again":
                store.publish_again(CHAT)
            case "interrupt":
                store.interrupt()
            case "join":
                self.join(Socket(), None)
            case "block" if reader is not None:
                reader.is_blocked = True
            case "free" if reader is not None:
                reader.free()
            case "resume" if reader is not None and reader.watcher.state is not None and reader.watcher.last_id:
                again = Socket()
                again.watcher.state, again.watcher.last_id = reader.watcher.state, reader.watcher.last_id
                self.join(again, reader.stream_position)
            case "turns":
                await turns(number)

    def speak(self, builder: EntryBuilder) -> None:
        draft = builder.state.draft
        if draft is None:
            self.answers += 1
            builder.say(RuntimeUpdated(state="generating"))
            builder.say(StreamStarted(message_id=f"m{self.answers}"))
        elif len(str(draft.content)) > 20:
            builder.add_message(replace(drafted_message(draft), finish_reason="stop"))
            builder.say(RuntimeUpdated(state="idle"))
        else:
            builder.say(StreamDelta(draft.message.message_id, [AppendContent("words ")]))

    def branch(self, builder: EntryBuilder) -> None:
        if builder.state.path and builder.state.draft is None:
            builder.say(BranchSelected(builder.state.path[0]))

    def join(self, socket: Socket, stream_position: Position | None) -> None:
        if len(self.sockets) < 8:
            self.sockets.append(socket)
            small = {"buffer_max_bytes": 1_500}
            self.tasks.start_soon(
                lambda: socket.serve(self.hub, self.harness.metrics, stream_position, "local", **small)
            )

    async def settle(self) -> None:
        self.harness.store.loses_publishes = False
        await self.writer.commit(title("the end"))
        for socket in self.sockets:
            socket.free()
            await is_right(self.harness, socket, self.writer)
            assert socket.mistake is None and socket.ended is None


OFTEN = {"append": 2, "speak": 3, "join": 1, "resume": 2, "block": 2, "free": 1, "turns": 3, "lose": 1, "hear": 1}
SELDOM = {"branch": 1, "fence": 1, "again": 1, "interrupt": 1}
STEPS = st.sampled_from([step for step, weight in (OFTEN | SELDOM).items() for _ in range(weight)])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 15)), min_size=10, max_size=60))
def test_whatever_is_lost_blocked_or_resumed_every_reader_folds_to_what_the_owner_holds(
    steps: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        harness = Harness()
        writer = await harness.writer()
        async with Hub(harness.store, harness.metrics).running() as hub, anyio.create_task_group() as tasks:
            scene = Scene(harness, hub, tasks, writer)
            scene.join(Socket(), None)
            for step, number in steps:
                await scene.do(step, number)
            await scene.settle()
            tasks.cancel_scope.cancel()

    asyncio.run(play())
