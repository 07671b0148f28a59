"""Who stands outside: clients that keep a command until they have seen its ack, and readers that fold real frames.

A client posts through a web node, repeats with the same nonce while it gets no answer, and posts anew, with another
nonce and perhaps through another node, what it still holds when no ack comes. A reader is a whole way back: hub, relay,
subscriber, connection, bytes, parser, reducer. The rule: both know only what a real client could know.
"""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import anyio

from protocol.codec import decode_event, decode_snapshot, encode
from protocol.commands import (
    Abort,
    CancelQueued,
    Command,
    ImportChat,
    InternalCommand,
    SetParams,
    ToolDecision,
    UserMessage,
    encode_command,
)
from protocol.errors import Failed
from protocol.events import Ack, Event
from protocol.ids import Position
from protocol.messages import Message
from protocol.principal import Principal
from protocol.reducer import Gap, reduce
from protocol.snapshot import state_from_snapshot
from protocol.sse import EventFrame, FrameParser
from protocol.state import ChatState
from protocol.thread import ThreadChanges
from server.relay.connection import Connection
from server.relay.hub import Hub
from server.relay.subscriber import Subscriber
from server.store.port import PostOutcome, PostRequest
from tests.sim.checks import check_shown
from tests.sim.loop import Process
from tests.sim.plan import Said

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["CHAT", "Client", "Node", "Reader"]

CHAT = "c1"
BUFFER_MAX_BYTES = 900
"""A reader's queue; a few frames, so that it overflows."""

ACK_SECONDS = 2.0
"""A client without an ack for so long posts again."""

PERSON = Principal("local", ("approve",))
"""One permission: a set of two would be written down in an order that differs from process to process."""

PRINCIPAL = encode(PERSON)


class Node(Process):
    """A web node: a hub, and a way to the store. Where nobody reads, the hub has nothing to do."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(name)
        self.way = world.way_of(self, has_clients=True)
        self.hub = Hub(self.way, world.metrics, heartbeat_seconds=1e6)

    async def run(self) -> None:
        async with self.hub.running():
            await anyio.sleep_forever()


class Reader:
    """Reads the chat at `node`, and comes back where it stopped. `shown` are the events since its last snapshot."""

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
        self._connection: Connection | None = None

    async def run(self) -> None:
        world = self._world
        while True:
            try:
                async with self.node.hub.relay(CHAT) as relay, anyio.create_task_group() as tasks:
                    self._parser = FrameParser()
                    connection = Connection(
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
        """The connection breaks; what was on its way is lost."""
        if self._connection is not None:
            self._connection.end("left")

    def block(self) -> None:
        self.is_blocked = True

    def free(self) -> None:
        self.is_blocked = False
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

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
        """Who sees that a call waits for a person decides soon, whether an event or a snapshot says so."""
        if self.state is not None and (reasons := self.state.runtime.pause_reasons):
            self._world.decide_soon([reason.tool_call_id for reason in reasons])


class Client:
    """One command's sender. `is_done`: its ack was seen, or it was refused."""

    def __init__(self, world: "World", said: Said) -> None:
        self._world = world
        self.said = said
        self.body = encode_command(_command_of(said))
        self.is_done = False
        self.heard = False
        self.refused = ""
        self.accepted = 0
        self._news: asyncio.Future[None] | None = None

    def hear(self) -> None:
        """Its ack stands in the stream."""
        self.heard = True
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def run(self) -> None:
        world = self._world
        await anyio.sleep(self.said.at)
        if world.dice(world.plan.mix.reposts):
            world.later(world.draw_between(0.0, 1.5), self._again)
        while not self.heard:
            if await self._post(world.any_node(), world.new_nonce()):
                self._news = world.loop.create_future()
                if self.said.kind in ("cancel", "import"):
                    break  # they have no ack of their own; what they do is seen
                world.later(ACK_SECONDS, self._give_up_waiting, self._news)
                if not self.heard:
                    await self._news
            elif self.refused:
                break
        self.is_done = True

    @staticmethod
    def _give_up_waiting(news: "asyncio.Future[None]") -> None:
        if not news.done():
            news.set_result(None)

    def _again(self) -> None:
        """The same command once more, through another web node."""
        self._world.background(self._post(self._world.any_node(), self._world.new_nonce(), tries=1))

    async def _post(self, node: Node, nonce: str, tries: int = 6) -> bool:
        """True: it is kept. The node repeats its own call with the same nonce until it hears an answer."""
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
                    self.heard = self.heard or self._world.deletes > 0  # of a former life: no ack will come any more
                    return True
                case outcome:
                    self.refused = outcome.value
                    return False
        return False


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
        "decide": lambda: ToolDecision(client_request_id=name, tool_call_id=said.target, accepted=True),
    }
    return make[said.kind]()
