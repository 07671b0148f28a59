"""The simulated people: clients that keep a command until they have seen its ack, and readers that fold real frames.

A client posts through a web node, repeats with the same nonce while it gets no answer, and posts every command without
an ack again, with another nonce, perhaps through another node. A reader is the whole path from the log: hub, relay,
subscriber, connection, bytes, parser, reducer. Both use only information that a real client could have.
"""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import anyio

from tests.sim.checks import check_shown
from tests.sim.loop import Process
from tests.sim.plan import Said
from threadcast.chat.internal_commands import CancelQueued, ImportChat, InternalCommand
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.hub import Hub
from threadcast.fanout.subscriber import Subscriber
from threadcast.settings.limits import Limits
from threadcast.store.ports import PostOutcome, PostRequest
from threadcast_protocol.fold.reducer import Gap, reduce
from threadcast_protocol.fold.snapshot import state_from_snapshot
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import decode_event, decode_snapshot, encode
from threadcast_protocol.framing.sse import EventFrame, FrameParser
from threadcast_protocol.wire.commands import (
    Abort,
    Command,
    SetParams,
    ToolDecision,
    UserMessage,
    encode_command,
)
from threadcast_protocol.wire.errors import Failed
from threadcast_protocol.wire.events import Ack, Event
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import ThreadChanges

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["CHAT", "Client", "Node", "Reader"]

CHAT = "c1"
BUFFER_MAX_BYTES = 900
"""The size of a reader's queue: a few frames, so that it overflows."""

ACK_SECONDS = 2.0
"""A client posts again after this many seconds without an ack."""

PERSON = Principal("local", ("approve",))
"""The person has only one permission, because a set of two would be written in an order that differs between
processes."""

PRINCIPAL = encode(PERSON)


class Node(Process):
    """A web node: a hub, and a connection to the store. Without readers the hub has nothing to do."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(name)
        self.way = world.way_of(self, has_clients=True)
        self.hub = Hub(self.way, world.metrics, Limits(heartbeat_seconds=1e6))

    async def run(self) -> None:
        async with self.hub.running():
            await anyio.sleep_forever()


class Reader:
    """Reads the chat at `node`, and resumes where it stopped. `shown` holds the events that it received since its last
    snapshot."""

    def __init__(self, world: "World", node: Node) -> None:
        self._world = world
        self.node = node
        self.name = f"reader of {node.name}"
        self.state: ChatState | None = None
        self.shown: list[tuple[int, bytes]] = []
        self.is_blocked = False
        self.snapshots = 0
        self._freed: asyncio.Future[None] | None = None
        self._place: Position | None = None
        self._parser = FrameParser()
        self._connection: ReaderConnection | None = None

    async def run(self) -> None:
        world = self._world
        while True:
            try:
                async with self.node.hub.relay(CHAT) as relay, anyio.create_task_group() as tasks:
                    self._parser = FrameParser()
                    connection = ReaderConnection(
                        self._send,
                        tasks,
                        world.metrics,
                        principal_id=PERSON.id,
                        abort=lambda: None,
                        buffer_max_bytes=BUFFER_MAX_BYTES,
                    )
                    self._connection = connection
                    subscriber = Subscriber(connection, relay, CHAT, is_one_of_many=False)
                    with self.node.hub.kept_alive(connection):
                        try:
                            await relay.join(subscriber, self._place)
                            await anyio.sleep_forever()
                        finally:
                            relay.leave(subscriber)
            except* Failed as troubles:
                world.note(self.name, "stream", "", "", str(troubles.exceptions[0]))
            await anyio.sleep(0.2)

    async def drop(self) -> None:
        """Break the connection; frames that were on their way are lost."""
        if self._connection is not None:
            self._connection.end("left")

    def free(self) -> None:
        self.is_blocked = False
        _settle(self._freed)

    async def _send(self, message: MutableMapping[str, Any]) -> None:  # Any: ASGI's own type
        while self.is_blocked:
            self._freed = self._world.loop.create_future()
            await self._freed
        for frame in self._parser.feed(message["body"]):
            if isinstance(frame, EventFrame):
                try:
                    self._take(frame)
                except Gap as hole:
                    self._world.fail(f"{self.name} was shown a hole: {hole}")

    def _take(self, frame: EventFrame) -> None:
        at = frame.data.index('"type":')
        raw = b"{" + frame.data[at:].encode()
        place = Position.parse(frame.last_event_id)
        if place is None:
            self._world.fail(f"{self.name} got the id {frame.last_event_id!r}")
            return
        self._place = place
        if raw.startswith(b'{"type":"snapshot"'):
            if self.state is not None:
                self.snapshots += 1
            check_shown(self._world, self)
            self.state = state_from_snapshot(CHAT, decode_snapshot(raw), place.position)
            self.shown = []
            self._world.note(self.name, "snapshot", str(place.position), "", "")
            for ack in self.state.recent_acks:
                self._world.hear(ack.client_request_id)
            self._decide()
            return
        if self.state is None:
            self._world.fail(f"{self.name} was shown an event before any snapshot")
            return
        event: Event = decode_event(raw)
        self.state = reduce(self.state, place.position, event)
        self.shown.append((place.position, raw))
        if isinstance(event, Ack):
            self._world.hear(event.client_request_id)
        self._decide()

    def _decide(self) -> None:
        """When an event or a snapshot shows a person that a call waits for a decision, the person decides soon."""
        if self.state is not None and (reasons := self.state.runtime.pause_reasons):
            self._world.decide_soon([reason.tool_call_id for reason in reasons])


class Client:
    """One command's sender. `is_done` is true once the client has seen the command's ack, or the command was
    refused."""

    def __init__(self, world: "World", said: Said) -> None:
        self._world = world
        self.said = said
        self.body = encode_command(_command_of(said))
        self.is_done = False
        self.heard = False
        self.refused = ""
        self.accepted = 0
        self._waiting: asyncio.Future[None] | None = None

    def hear(self) -> None:
        """Record that the command's ack is in the stream."""
        self.heard = True
        _settle(self._waiting)

    async def run(self) -> None:
        world = self._world
        await anyio.sleep(self.said.at)
        if world.dice(world.plan.mix.reposts):
            world.later(world.draw_between(0.0, 1.5), self._again)
        while not self.heard:
            if await self._post(world.any_node(), world.new_nonce()):
                self._waiting = world.loop.create_future()
                if self.said.kind in ("cancel", "import"):
                    break  # these commands have no ack; other checks look at their effects
                world.later(ACK_SECONDS, _settle, self._waiting)
                if not self.heard:
                    await self._waiting
            elif self.refused:
                break
        self.is_done = True

    def _again(self) -> None:
        """Post the same command again, through another web node."""
        self._world.background(self._post(self._world.any_node(), self._world.new_nonce(), tries=1))

    async def _post(self, node: Node, nonce: str, tries: int = 6) -> bool:
        """Post the command; returns True if it is stored. The node repeats its call with the same nonce until it gets
        an answer."""
        is_exempt = self.said.kind in ("params", "abort", "decide", "cancel", "poison")
        request = PostRequest(
            chat_id=CHAT,
            owner=PERSON.id,
            principal=PRINCIPAL,
            request_id=self.said.request_id,
            digest=self.said.request_id,
            nonce=nonce,
            body=self.body,
            kind="import" if self.said.kind == "import" else "exempt" if is_exempt else "normal",
            creates=self.said.kind not in ("abort", "decide", "cancel"),
        )
        ours = self._world.nonces_kept
        for _ in range(tries):
            try:
                posted = await node.way.post(request)
            except Failed:
                await anyio.sleep(0.15)
                continue
            match posted.outcome:
                case PostOutcome.ACCEPTED:
                    self.accepted += 1
                    return True
                case PostOutcome.DUPLICATE:
                    if nonce in ours:
                        self._world.fail(f"{self.said.request_id}: a node's own repeat was answered DUPLICATE")
                    self.heard = self.heard or self._world.deletes > 0  # a command of a former life gets no ack
                    return True
                case outcome:
                    self.refused = outcome.value
                    return False
        return False


def _settle(waiting: "asyncio.Future[None] | None") -> None:
    """Resolve the future, unless it is resolved already."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _command_of(said: Said) -> Command | InternalCommand:
    name = said.request_id
    make: dict[str, Callable[[], Command | InternalCommand]] = {
        "user": lambda: UserMessage(client_request_id=name, content=f"{name}: {said.script}"),
        "steer": lambda: UserMessage(client_request_id=name, content=f"{name}: {said.script}", priority=True),
        "urgent": lambda: UserMessage(client_request_id=name, content=f"{name}: {said.script}", interrupt=True),
        "params": lambda: SetParams(client_request_id=name, patch={"title": f"title {name}"}),
        "poison": lambda: SetParams(client_request_id=name, patch={"title": f"title {name}"}),
        "abort": lambda: Abort(client_request_id=name),
        "cancel": lambda: CancelQueued(client_request_id=name, target=said.target),
        "import": lambda: ImportChat(
            client_request_id=name,
            thread=ThreadChanges(),
            messages=[Message(role="user", content=f"{name}: say", message_id=f"msg_{name}")],
        ),
        "decide": lambda: _decision_of(said),
    }
    return make[said.kind]()


def _decision_of(said: Said) -> ToolDecision:
    """Return a decision: one of the options of a question; a rejection needs no text."""
    is_question, accepts = said.target.startswith("ask-"), said.script != "reject"
    answer = {"answer": "long" if len(said.target) % 2 else "short"} if is_question and accepts else None
    return ToolDecision(
        client_request_id=said.request_id, tool_call_id=said.target, accepted=accepts, edited_input=answer
    )
