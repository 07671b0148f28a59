"""Runs real workers and readers in one process, over a store that can be made to fail, for tests of the actor and the
relay.

`Harness` gives workers the demo models and tools that end when a test says so, and reads the log directly.
"""

import itertools
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.lowlevel

from tests.support.reader import Watcher
from tests.unit.controlled import CountingDemo, GatedTool
from tests.unit.faulty_store import DEADLINE_SECONDS, FaultyStore
from tests.unit.readers import Socket, reading
from threadcast.actor.actor import Actor
from threadcast.actor.claim_gate import ClaimGate
from threadcast.actor.end import End
from threadcast.actor.former_owner import FormerOwner
from threadcast.actor.host import Host
from threadcast.actor.lease_timings import LeaseTimings
from threadcast.actor.traces import Traces
from threadcast.actor.worker_context import WorkerContext
from threadcast.actor.writer import Writer
from threadcast.agent_loop.plan import advance
from threadcast.base.telemetry import Metrics
from threadcast.chat.decider import decide
from threadcast.chat.entries import FORMAT_VERSION
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.entry_codec import decode_acks
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.fanout.hub import Hub
from threadcast.profiles.profile import ChatTools, Profile, Profiles
from threadcast.providers.base import Provider
from threadcast.providers.registry import Providers
from threadcast.settings.limits import Limits
from threadcast.store.load import fold_checked, fold_loaded
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import AppendRequest, Claimed, PostOutcome, PostRequest
from threadcast.tools.base import (
    Tool,
)
from threadcast.tools.runner import ToolRunner
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import decode_events, encode
from threadcast_protocol.wire.commands import Abort, Command, SetParams, ToolDecision, UserMessage, encode_command
from threadcast_protocol.wire.events import Event, RuntimeUpdated, ThreadUpdated, ToolStatus
from threadcast_protocol.wire.ids import EntryId, Head
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import LOCAL

__all__ = [
    "CHAT",
    "FAST",
    "LEASE_MS",
    "GatedTool",
    "Harness",
    "abort",
    "answering",
    "begin_answer",
    "call",
    "decision",
    "is_as_the_log_says",
    "is_right",
    "nothing",
    "params",
    "say",
    "stands",
    "title",
    "titles",
    "turns",
]

CHAT = "c1"
LEASE_MS = 3_500

FAST = LeaseTimings(lease_seconds=60.0, beat_seconds=0.02, sweep_seconds=0.01)
"""Short pauses, and a lease that is longer than any test, so that a chat is claimed again only if the test causes
it."""


class Ownership:
    """Holds the outcome of an ownership by an actor that runs beside a test."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self._end: End | None = None
        self._over = anyio.Event()

    def end(self, end: End) -> None:
        self._end = end
        self._over.set()

    async def over(self) -> End | None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await self._over.wait()
        return self._end


class Harness:
    """One store with any number of workers and readers. `model` is the default model of the chats."""

    def __init__(
        self,
        *tools: Tool,
        model: str = "demo/echo?rate=0",
        providers: Sequence[Provider] = (),
        profile: Profile | None = None,
        title_model: str = "",
    ) -> None:
        self.store = FaultyStore()
        self.metrics = Metrics()
        self.demo = CountingDemo()
        self.runner = ToolRunner(cancel_grace_seconds=0.1)
        self._models = Providers([self.demo, *providers])
        profile = profile or Profile(name="agent")
        self._profiles = Profiles({"agent": profile}, {tool.name: tool for tool in tools}, model)
        self._ids = itertools.count(1)
        self._contexts: dict[str, WorkerContext] = {}
        self.limits = Limits()
        self.linger_seconds = 0.0  # most tests wait for a release
        self._title_model = title_model

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def worker_context(self, worker: str, *, new_id: Callable[[str], str] | None = None) -> WorkerContext:
        """Return the context of a worker, with its cache of states; the same name gives the same context."""
        if worker not in self._contexts:
            self._contexts[worker] = WorkerContext(
                worker=worker,
                store=self.store,
                models=self._models,
                profiles=self._profiles,
                runner=self.runner,
                metrics=self.metrics,
                data_dir=".",
                title_model=self._title_model,
                new_id=new_id or self.new_id,
                limits=self.limits,
                linger_seconds=self.linger_seconds,
            )
        return self._contexts[worker]

    def use_gate(self, worker: str, gate: ClaimGate) -> None:
        """Use this gate to decide whether the worker takes new chats."""
        self._contexts[worker] = replace(self.worker_context(worker), gate=gate)

    def use_traces(self, worker: str, traces: Traces) -> None:
        """Keep the traces of this worker's runs."""
        self._contexts[worker] = replace(self.worker_context(worker), traces=traces)

    async def post(self, *commands: Command, chat_id: str = CHAT, owner: str = LOCAL.id) -> None:
        for command in commands:
            await self.post_body(command.client_request_id, encode_command(command), chat_id, owner=owner)

    async def post_body(
        self,
        request_id: str,
        body: bytes,
        chat_id: str = CHAT,
        *,
        principal: bytes | None = None,
        owner: str = LOCAL.id,
    ) -> None:
        posted = await self.store.post(
            PostRequest(
                chat_id=chat_id,
                owner=owner,
                principal=principal or encode(LOCAL),
                request_id=request_id,
                digest=request_id,
                nonce=request_id,
                body=body,
                kind="exempt",
            )
        )
        assert posted.outcome is PostOutcome.ACCEPTED

    async def claim(self, worker: str, chat_id: str = CHAT) -> Claimed:
        """Claim the one chat that is due, even if its lease has not expired."""
        self.store.clock.now_ms += LEASE_MS
        (claimed,) = await self.store.claim(self.store.bucket_of(chat_id), worker, 20, LEASE_MS)
        return claimed

    async def actor(self, worker: str, chat_id: str = CHAT, *, previous: str | None = None) -> Actor:
        """Return an actor for the chat, which `worker` has claimed; the caller must `run` it."""
        claimed = await self.claim(worker, chat_id)
        former = FormerOwner(claimed.previous if previous is None else previous)
        return Actor(self.worker_context(worker), chat_id, former)

    async def own(self, worker: str, *commands: Command, chat_id: str = CHAT) -> End:
        """Post these commands, then claim the chat and own it until no work is left."""
        await self.post(*commands, chat_id=chat_id)
        actor = await self.actor(worker, chat_id)
        with anyio.fail_after(DEADLINE_SECONDS):
            return await actor.run()

    @asynccontextmanager
    async def compacting(self, worker: str) -> AsyncIterator[None]:
        """Compact the logs of the chats that this worker has released beside the block."""
        context = self.worker_context(worker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(context.rests.run, context.store, context.cache, context.traces, context.metrics)
            yield
            tasks.cancel_scope.cancel()

    async def compacted(self, chat_id: str = CHAT) -> None:
        """Wait until the chat's log is compacted."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while not self.store._chats[chat_id].is_compacted:
                await anyio.sleep(0.005)

    @asynccontextmanager
    async def owning(
        self, actor: Actor | str, chat_id: str = CHAT, *, previous: str | None = None
    ) -> AsyncIterator["Ownership"]:
        """Run an actor (by default, a new one of this worker) beside the block, and kill it at the block's end if it
        still runs."""
        if isinstance(actor, str):
            actor = await self.actor(actor, chat_id, previous=previous)
        ownership = Ownership(actor)
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                ownership.end(await ownership.actor.run())

            tasks.start_soon(run)
            yield ownership
            tasks.cancel_scope.cancel()

    async def writer(self, worker: str = "w1", chat_id: str = CHAT, owner: str = LOCAL.id) -> Writer:
        """Return a writer without an actor, for a chat whose first command waits in the inbox."""
        await self.post(say("first"), chat_id=chat_id, owner=owner)
        await self.claim(worker, chat_id)
        taken = await self.store.take(chat_id, worker, "wake")
        return await self.writer_at_head(worker, chat_id, taken.owner)

    async def writer_at_head(self, worker: str = "w1", chat_id: str = CHAT, owner: str = "local") -> Writer:
        """Return a writer that continues at the present end of the log."""
        return Writer(
            self.store, worker, await self.state(chat_id), owner=owner, new_id=self.new_id, metrics=self.metrics
        )

    async def abandoned(self, worker: str, *commands: Command) -> None:
        """Post these commands, and let `worker` take the chat and die before it reads them."""
        await self.post(*commands)
        await self.claim(worker)
        await self.store.take(CHAT, worker, "wake")

    async def state(self, chat_id: str = CHAT) -> OwnerState:
        """Return the state that a new owner would load: the checkpoint and the entries after it."""
        return fold_loaded(chat_id, await self.store.load(chat_id), with_facts=True)

    async def folded_log(self, chat_id: str = CHAT) -> OwnerState:
        """Fold the log from its very first entry, without any checkpoint."""
        state = empty_owner_state(chat_id)
        for entry in await self.store.read_log(chat_id):
            state, _ = fold_checked(state, entry, with_facts=True)
        return state

    async def snapshot(self, chat_id: str = CHAT) -> bytes:
        return encode(snapshot_of(await self.state(chat_id)))

    async def texts(self, chat_id: str = CHAT) -> list[tuple[str, str]]:
        """Return the role and text of each message on the active path."""
        return [(m.role, str(m.content)) for m in snapshot_of(await self.state(chat_id)).messages]

    async def events(self, chat_id: str = CHAT) -> list[Event]:
        """Return all events of the log."""
        return [event for entry in await self.store.read_log(chat_id) for event in decode_events(entry.events)]

    async def fences(self, chat_id: str = CHAT) -> list[str]:
        """Return the workers that took the chat."""
        return [entry.fence.worker for entry in await self.store.read_log(chat_id) if entry.fence]

    async def tool_statuses(self, chat_id: str = CHAT) -> list[str]:
        return [event.status for event in await self.events(chat_id) if isinstance(event, ToolStatus)]

    async def run_outcomes(self, chat_id: str = CHAT) -> list[str]:
        """Return the outcome of each run."""
        return [e.outcome for e in await self.events(chat_id) if isinstance(e, RuntimeUpdated) and e.outcome]

    async def until_rest(self, chat_id: str = CHAT, runs: int = 1) -> None:
        """Wait until this many runs have ended and none is open."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(await self.run_outcomes(chat_id)) < runs or not (await self.state(chat_id)).is_at_rest:
                await anyio.sleep(0.01)

    async def outcomes(self, request_id: str, chat_id: str = CHAT) -> list[tuple[bool, bool]]:
        """Return a pair (accepted, final) for each ack of a command."""
        acks = [ack for entry in await self.store.read_log(chat_id) for ack in decode_acks(entry.acks)]
        return [(ack.accepted, ack.final) for ack in acks if ack.request_id == request_id]

    async def refusals(self, chat_id: str = CHAT) -> dict[str, str]:
        """Return the codes of refused commands."""
        acks = (await self.state(chat_id)).recent_acks
        return {ack.client_request_id: (ack.result or {})["code"] for ack in acks if not ack.accepted}

    async def add_entry(
        self, events: bytes, *, count: int = 1, version: int = FORMAT_VERSION, checkpoint: bytes | None = None
    ) -> None:
        """Append an entry as a broken or a newer worker would write it; its head claims that it holds `count`
        events."""
        before = (await self.store.load(CHAT)).head
        here = Head.parse(before)
        entry_id = EntryId(here.entry_id.epoch, here.entry_id.n + 1)
        request = AppendRequest(
            chat_id=CHAT,
            expected=before,
            head=str(Head(entry_id, "00000000000000aa", here.position + count)),
            version=version,
            events=events,
            checkpoint=checkpoint,
            checkpoint_version=version,
            owner=LOCAL.id,
        )
        await MemoryStore.append(self.store, request)  # not counted as a relay of the product

    @asynccontextmanager
    async def hosting(self, worker: str, timings: LeaseTimings = FAST) -> AsyncIterator[Host]:
        """Run a host beside the block. The block may end the host earlier by its own `drain`."""
        host = Host(self.worker_context(worker), timings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run)
            yield host
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def watching(self, chat_id: str = CHAT) -> AsyncIterator[Watcher]:
        """Yield a reader with its own hub, from its first snapshot on."""
        async with Hub(self.store, self.metrics).running() as hub, reading(hub, chat_id) as socket:
            await socket.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
            yield socket.watcher


def say(text: str, request_id: str = "", *, model: str | None = None, priority: bool = False) -> UserMessage:
    """Return a user message; the request id is the text itself unless it is given."""
    name = request_id or re.sub(r"[^A-Za-z0-9]+", "-", text)[:60]
    asked: JsonObject = {"model": model} if model is not None else {}
    return UserMessage(client_request_id=name, content=text, params=asked, priority=priority)


def call(tool: str = "gated", request_id: str = "call") -> UserMessage:
    """Return the words that make the demo model call a tool once."""
    return say(f"call {tool} {{}}", request_id, model="demo/tools?rate=0")


def abort(request_id: str = "stop", run_id: str | None = None) -> Abort:
    return Abort(client_request_id=request_id, run_id=run_id)


def params(request_id: str = "set", **patch: object) -> SetParams:
    return SetParams(client_request_id=request_id, patch=patch)


def decision(tool_call_id: str, request_id: str = "decide", *, accepted: bool = True) -> ToolDecision:
    return ToolDecision(client_request_id=request_id, tool_call_id=tool_call_id, accepted=accepted)


def title(text: str) -> Callable[[EntryBuilder], None]:
    return lambda builder: builder.say(ThreadUpdated(title=text))


def nothing(_: EntryBuilder) -> None:
    return None


async def answering(harness: Harness) -> Writer:
    """Return a writer whose chat has an open answer."""
    writer = await harness.writer()
    await begin_answer(harness, writer)
    return writer


async def begin_answer(harness: Harness, writer: Writer) -> None:
    """Consume the first command: a run is open, and an answer waits for its deltas."""

    def write(builder: EntryBuilder) -> None:
        decide(builder, say("first"), LOCAL)
        advance(builder, ChatTools(Profile(name="agent"), {}, frozenset(), "demo/echo"))

    await writer.commit(write, tuple(await harness.store.read_inbox(CHAT, 1)))


async def is_as_the_log_says(harness: Harness, writer: Writer) -> None:
    assert await harness.state() == writer.state


def titles(*texts: str) -> Callable[[EntryBuilder], None]:
    def write(builder: EntryBuilder) -> None:
        for text in texts:
            builder.say(ThreadUpdated(title=text))

    return write


async def stands(socket: Socket, writer: Writer) -> None:
    """Wait until the reader has reached the end of the log."""
    position = writer.state.position
    await socket.watcher.until(lambda w: w.state is not None and w.state.position == position, DEADLINE_SECONDS)


async def is_right(harness: Harness, socket: Socket, writer: Writer) -> None:
    await stands(socket, writer)
    assert socket.watcher.snapshot == await harness.snapshot()


@asynccontextmanager
async def watched(harness: Harness) -> AsyncIterator[tuple[Socket, Writer]]:
    """Yield a chat with one entry, which sets the title `a`, and a reader that has received the entry."""
    writer = await harness.writer()
    await writer.commit(title("a"))
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        yield socket, writer


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
