"""A stream that ends while it begins: its chat is taken away as it opens, its process stops meanwhile.

What stands behind the stream is a stand-in that does nothing but open, or join, at the moment a test wants.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from starlette.types import Message

from protocol.errors import Unavailable
from protocol.ids import Position
from protocol.principal import LOCAL
from server.api import stream
from server.api.opening import lingering
from server.relay.connection import Connection
from server.relay.hub import Hub
from server.relay.many import ManyChats
from server.relay.subscriber import Subscriber
from server.store.memory import MemoryStore
from server.telemetry import Metrics
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.test_subscriber import turns

pytestmark = pytest.mark.anyio

REMOVED = b'data: {"chat_id":"c1","type":"chat_removed","reason":"removed"}\n\n'


class StandIn:
    """A hub of one relay, and the relay. `opens`: when; `trouble`: and then fails; `joins`: how."""

    presence = None

    def __init__(self) -> None:
        self.opens = anyio.Event()
        self.trouble = False
        self.joins = anyio.Event()
        self.joins.set()
        self.left = 0

    @asynccontextmanager
    async def relay(self, _: str) -> AsyncIterator["StandIn"]:
        with anyio.move_on_after(DEADLINE_SECONDS):  # as the hub's; a wait that is over is not cancelled any more
            await self.opens.wait()
        if self.trouble:
            raise Unavailable("the store is away")
        yield self

    async def join(self, subscriber: Subscriber, _: Position | None) -> None:
        if not self.joins.is_set():  # a relay that has what it needs does not wait
            await self.joins.wait()
        subscriber.start_with_snapshot()

    def leave(self, _: Subscriber) -> None:
        self.left += 1

    def snapshot(self) -> tuple[bytes, int]:
        return b'data: {"type":"snapshot"}\nid: 5-1-1\n\n', 1

    @contextmanager
    def admitted(self, _: str) -> Iterator[None]:
        yield

    @contextmanager
    def kept_alive(self, connection: Connection) -> Iterator[None]:
        """As a process does that is told to stop just now."""
        connection.end("shutdown")
        yield


@pytest.mark.parametrize("trouble", [False, True])
async def test_a_chat_taken_away_in_the_turn_in_which_it_opens_says_nothing_more(trouble: bool) -> None:
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message["body"])

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            hub = StandIn()
            connection = Connection(send, tasks, Metrics(), principal_id="ann", abort=lambda: None)
            many = ManyChats(cast(Hub, hub), MemoryStore(), connection, tasks, has_presence=False)  # cast: a stand-in
            many.add("c1", None)
            await turns()
            hub.trouble = trouble
            hub.opens.set()
            many.remove("c1")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert sent == [REMOVED]


async def test_a_reader_who_joins_while_the_process_stops_is_told_to_come_back_and_nothing_fails() -> None:
    sent: list[Message] = []
    hub = StandIn()
    hub.opens.set()
    hub.joins = anyio.Event()  # the log is being read, for as long as it takes

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def own_or_new(*_: object) -> None:
        pass

    edge = SimpleNamespace(
        hub=hub,
        metrics=Metrics(),
        buffer_max_bytes=1_000,
        stall_seconds=5.0,
        store=MemoryStore(),
        principal=lambda _: LOCAL,
        own_or_new=own_or_new,
    )
    scope: dict[str, Any] = {  # Any: as ASGI has it
        "threadcast.started": lambda _: None,
        "type": "http",
        "path": "/v1/chats/subscribe",
        "query_string": b"chat_id=c1&from=1-1-1",
        "headers": [(b"cookie", b"session=1")],
        "app": SimpleNamespace(state=SimpleNamespace(edge=edge)),
    }
    with anyio.fail_after(DEADLINE_SECONDS):
        await lingering(stream.subscribe, scope, receive, send)
    assert sent[0]["status"] == 200
    assert sent[-1]["body"].startswith(b"retry: ")
    assert not sent[-1]["more_body"]
    assert hub.left == 1
    assert scope["headers"] == []  # while a stream is open they are kilobytes that nobody reads
