"""A house in one process, for tests of the actor and the relay: the real parts over a store that can be made to fail.

`House` furnishes workers with the demo models and with tools that a test lets go by hand, and looks into the log from
outside, as nobody in the product does.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from protocol.codec import decode_acks, decode_events, encode
from protocol.commands import Abort, Command, SetParams, ToolDecision, UserMessage, encode_command
from protocol.entries import FORMAT_VERSION
from protocol.events import Event, ThreadUpdated, ToolStatus
from protocol.ids import EntryId, Head
from protocol.ledger import Ledger
from protocol.messages import JsonObject
from protocol.principal import LOCAL
from protocol.snapshot import snapshot_of
from protocol.state import ChatState, empty_state
from server.actor.actor import Actor, End
from server.actor.host import Host, Rhythm
from server.actor.workplace import Workplace
from server.actor.writer import Writer
from server.agent.place.profile import Profile, Profiles
from server.providers.base import Delta, Provider, Request
from server.providers.demo.models import Demo
from server.providers.registry import Providers
from server.relay.hub import Hub
from server.store.load import fold_checked, fold_loaded
from server.store.memory import MemoryStore
from server.store.port import AppendRequest, Claimed, PostOutcome, PostRequest
from server.telemetry import Metrics
from server.tools.base import Policy, Progress, Retry, Tool, ToolContext, ToolOutput, ToolResult
from server.tools.runner import ToolRunner
from server.tools.traits import NO_TRAITS
from tests.integration.harness import Watcher
from tests.unit.faulty_store import DEADLINE_SECONDS, FaultyStore
from tests.unit.readers import Socket, reading

__all__ = [
    "CHAT",
    "FAST",
    "LEASE_MS",
    "GatedTool",
    "House",
    "abort",
    "call",
    "decision",
    "is_right",
    "params",
    "say",
    "stands",
    "title",
    "titles",
    "turns",
]

CHAT = "c1"
LEASE_MS = 3_500

FAST = Rhythm(lease_seconds=60.0, beat_seconds=0.02, sweep_seconds=0.01, drain_seconds=5.0)
"""Looks often. The lease is longer than any test, so that only what is tested can bring a chat back."""


class GatedTool:
    """A tool that says when it began and ends when it is let go; counts how often it began and was cancelled."""

    description, category, source, label_arg, hide_input = "waits", "", "python", None, False
    timeout_seconds = 30.0
    traits = NO_TRAITS

    def __init__(self, *, retry: Retry = "once", policy: Policy = "auto") -> None:
        self.name = "gated"
        self.input_schema: JsonObject = {"type": "object"}
        self.retry: Retry = retry
        self.policy: Policy = policy
        self.began = 0
        self.cancelled = 0
        self.go_on = anyio.Event()
        self.report: Callable[[Progress], None] = print
        self.context: JsonObject = {}
        self._entered = anyio.Event()

    async def entered(self, times: int = 1) -> None:
        """Wait until it has begun so often."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.began < times:
                await self._entered.wait()

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        self.began += 1
        self.report = context.report
        self.context = context.context
        self._entered.set()
        self._entered = anyio.Event()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        yield ToolResult(content=f"result {self.began}")


class CountingDemo(Demo):
    """The demo models. `open_streams` counts those that run now; `prefixes` are what they were told to go on after."""

    def __init__(self) -> None:
        self.open_streams = 0
        self.prefixes: list[str] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.open_streams += 1
        self.prefixes.append(request.prefix)
        stream = super().stream(request)
        try:
            async for delta in stream:
                yield delta
        finally:
            self.open_streams -= 1
            await stream.aclose()


class Ownership:
    """How the ownership of an actor that runs beside a test ended."""

    def __init__(self) -> None:
        self._end: End | None = None
        self._over = anyio.Event()

    def end(self, end: End) -> None:
        self._end = end
        self._over.set()

    async def over(self) -> End | None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await self._over.wait()
        return self._end


class House:
    """One store, any number of workers and readers. `model` is what answers unless a chat says otherwise."""

    def __init__(
        self,
        *tools: Tool,
        model: str = "demo/echo?rate=0",
        providers: Sequence[Provider] = (),
        profile: Profile | None = None,
    ) -> None:
        self.store = FaultyStore()
        self.metrics = Metrics()
        self.demo = CountingDemo()
        self.runner = ToolRunner(cancel_grace_seconds=0.1)
        self._models = Providers([self.demo, *providers])
        profile = profile or Profile(name="agent")
        self._profiles = Profiles({"agent": profile}, {tool.name: tool for tool in tools}, model)
        self._ids = itertools.count(1)
        self._places: dict[str, Workplace] = {}

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def place(self, worker: str, *, new_id: Callable[[str], str] | None = None) -> Workplace:
        """The workplace of a worker, its cache of states included: the same one for the same name."""
        if worker not in self._places:
            self._places[worker] = Workplace(
                worker=worker,
                store=self.store,
                models=self._models,
                profiles=self._profiles,
                runner=self.runner,
                metrics=self.metrics,
                data_dir=".",
                new_id=new_id or self.new_id,
            )
        return self._places[worker]

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
        """Claim the one chat that is due, whatever the lease says."""
        self.store.clock.now_ms += LEASE_MS
        (claimed,) = await self.store.claim(self.store.bucket_of(chat_id), worker, 20, LEASE_MS)
        return claimed

    async def actor(self, worker: str, chat_id: str = CHAT, *, previous: str | None = None) -> Actor:
        """An actor for the chat, which `worker` has claimed; `run` it."""
        claimed = await self.claim(worker, chat_id)
        return Actor(self.place(worker), chat_id, claimed.previous if previous is None else previous)

    async def own(self, worker: str, chat_id: str = CHAT) -> End:
        """Claim the chat and own it until there is nothing left to do."""
        actor = await self.actor(worker, chat_id)
        with anyio.fail_after(DEADLINE_SECONDS):
            return await actor.run()

    @asynccontextmanager
    async def owning(self, actor: Actor) -> AsyncIterator["Ownership"]:
        """The actor runs beside the block, and is killed with it if it has not ended."""
        ownership = Ownership()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                ownership.end(await actor.run())

            tasks.start_soon(run)
            yield ownership
            tasks.cancel_scope.cancel()

    async def writer(self, worker: str = "w1", chat_id: str = CHAT) -> Writer:
        """A writer without an actor, for a chat whose first command was taken up by nobody."""
        await self.post(say("first"), chat_id=chat_id)
        await self.claim(worker, chat_id)
        taken = await self.store.take(chat_id, worker, "wake")
        return Writer(
            self.store, worker, await self.state(chat_id), owner=taken.owner, new_id=self.new_id, metrics=self.metrics
        )

    async def state(self, chat_id: str = CHAT) -> ChatState:
        """What a new owner would find: checkpoint and the entries after it."""
        return fold_loaded(chat_id, await self.store.load(chat_id), with_facts=True)

    async def folded_log(self, chat_id: str = CHAT) -> ChatState:
        """The log from its very first entry, without any checkpoint."""
        state = empty_state(chat_id)
        for entry in await self.store.read_log(chat_id):
            state, _ = fold_checked(state, entry, with_facts=True)
        return state

    async def snapshot(self, chat_id: str = CHAT) -> bytes:
        return encode(snapshot_of(await self.state(chat_id)))

    async def texts(self, chat_id: str = CHAT) -> list[tuple[str, str]]:
        """Who said what on the active path."""
        return [(m.role, str(m.content)) for m in snapshot_of(await self.state(chat_id)).messages]

    async def events(self, chat_id: str = CHAT) -> list[Event]:
        """All events of the log."""
        return [event for entry in await self.store.read_log(chat_id) for event in decode_events(entry.events)]

    async def tool_statuses(self, chat_id: str = CHAT) -> list[str]:
        return [event.status for event in await self.events(chat_id) if isinstance(event, ToolStatus)]

    async def outcomes(self, request_id: str, chat_id: str = CHAT) -> list[tuple[bool, bool]]:
        """(accepted, final) of a command, as often as it was said."""
        acks = [ack for entry in await self.store.read_log(chat_id) for ack in decode_acks(entry.acks)]
        return [(ack.accepted, ack.final) for ack in acks if ack.request_id == request_id]

    async def refusals(self, chat_id: str = CHAT) -> dict[str, str]:
        """The codes of refused commands."""
        acks = (await self.state(chat_id)).recent_acks
        return {ack.client_request_id: (ack.result or {})["code"] for ack in acks if not ack.accepted}

    async def add_entry(
        self, events: bytes, *, count: int = 1, version: int = FORMAT_VERSION, checkpoint: bytes | None = None
    ) -> None:
        """An entry as a broken or a newer worker would write it; its head says that it holds `count` events."""
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
        await MemoryStore.append(self.store, request)  # not counted as one of the product's

    @asynccontextmanager
    async def hosting(self, worker: str, rhythm: Rhythm = FAST) -> AsyncIterator[Host]:
        """A host beside the block. The block may end it before by its own `drain`."""
        host = Host(self.place(worker), rhythm)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run)
            yield host
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def watching(self, chat_id: str = CHAT) -> AsyncIterator[Watcher]:
        """A reader with a hub of its own, from its first snapshot on."""
        async with Hub(self.store, self.metrics).running() as hub, reading(hub, chat_id) as socket:
            await socket.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
            yield socket.watcher


def say(text: str, request_id: str = "", *, model: str | None = None, priority: bool = False) -> UserMessage:
    """A user's words; the request id is the text itself unless it is given."""
    name = request_id or re.sub(r"[^A-Za-z0-9]+", "-", text)[:60]
    asked: JsonObject = {"model": model} if model is not None else {}
    return UserMessage(client_request_id=name, content=text, params=asked, priority=priority)


def call(tool: str = "gated", request_id: str = "call") -> UserMessage:
    """Words that make the demo model call a tool once."""
    return say(f"call {tool} {{}}", request_id, model="demo/tools?rate=0")


def abort(request_id: str = "stop", run_id: str | None = None) -> Abort:
    return Abort(client_request_id=request_id, run_id=run_id)


def params(request_id: str = "set", **patch: object) -> SetParams:
    return SetParams(client_request_id=request_id, patch=patch)


def decision(tool_call_id: str, request_id: str = "decide", *, accepted: bool = True) -> ToolDecision:
    return ToolDecision(client_request_id=request_id, tool_call_id=tool_call_id, accepted=accepted)


def title(text: str) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.say(ThreadUpdated(title=text))


def titles(*texts: str) -> Callable[[Ledger], None]:
    def write(ledger: Ledger) -> None:
        for text in texts:
            ledger.say(ThreadUpdated(title=text))

    return write


async def stands(socket: Socket, writer: Writer) -> None:
    """Wait until the reader is where the log is."""
    position = writer.state.position
    await socket.watcher.until(lambda w: w.state is not None and w.state.position == position, DEADLINE_SECONDS)


async def is_right(house: House, socket: Socket, writer: Writer) -> None:
    await stands(socket, writer)
    assert socket.watcher.snapshot == await house.snapshot()


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
