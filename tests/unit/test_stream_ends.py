"""Streams that end while they open, because the chat is deleted or the process stops.

A substitute for the relay opens and joins when the test chooses.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.abc import TaskGroup
from starlette.types import Message

from tests.unit.actor_harness import turns
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.api import stream
from threadcast.base.telemetry import Metrics
from threadcast.fanout.admissions import Admissions
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.hub import Hub
from threadcast.fanout.many_chats import ManyChats
from threadcast.fanout.subscriber import Subscriber
from threadcast.http.extensions import lingering
from threadcast.settings.limits import Limits
from threadcast.store.memory.store import MemoryStore
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio

REMOVED = b'data: {"chat_id":"c1","type":"chat_removed","reason":"removed"}\n\n'


class StandIn:
    """A hub of one relay, and the relay. The relay opens when `opens` is set, but fails if `trouble` is true; readers
    join when `joins` is set."""

    presence = None
    tasks: TaskGroup | None = None

    def __init__(self) -> None:
        self.opens = anyio.Event()
        self.trouble = False
        self.joins = anyio.Event()
        self.joins.set()
        self.left = 0

    async def is_hidden(self, *_: object) -> bool:
        return False

    @asynccontextmanager
    async def relay(self, _: str, *, is_hidden: bool = False) -> AsyncIterator["StandIn"]:
        with anyio.move_on_after(DEADLINE_SECONDS):  # like the hub's scope: an ended wait is not cancelled
            await self.opens.wait()
        if self.trouble:
            raise Unavailable("the store is away")
        yield self

    async def join(self, subscriber: Subscriber, _: Position | None) -> None:
        if not self.joins.is_set():  # a relay that can join a reader at once does not wait
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
    def kept_alive(self, connection: ReaderConnection) -> Iterator[None]:
        """Begin to stop, as a process does after SIGTERM."""
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
            connection = ReaderConnection(send, tasks, Metrics(), principal_id="ann", abort=lambda: None)
            stand_in = cast(Hub, hub)  # cast: the object has the methods that are used
            admission = Admissions(Limits()).taken("local")
            many = ManyChats(stand_in, MemoryStore(), connection, tasks, admission, has_presence=False)
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

    edge = SimpleNamespace(
        hub=hub,
        metrics=Metrics(),
        limits=Limits(subscriber_buffer_bytes=1_000, subscriber_stall_seconds=5.0),
        store=MemoryStore(),
        principal=lambda _: LOCAL,
        is_hidden=hub.is_hidden,
    )
    scope: dict[str, Any] = {  # Any: the type of ASGI
        "threadcast.started": lambda _: None,
        "type": "http",
        "method": "GET",
        "path": "/v1/chats/subscribe",
        "query_string": b"chat_id=c1&from=1-1-1",
        "headers": [(b"cookie", b"session=1")],
        "app": SimpleNamespace(state=SimpleNamespace(edge=edge)),
    }
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            hub.tasks = tasks
            await lingering(stream.subscribe, scope, receive, send)
    assert sent[0]["status"] == 200
    assert sent[-1]["body"].startswith(b"retry: ")
    assert not sent[-1]["more_body"]
    assert hub.left == 1
    assert list(scope) == ["method"]  # other objects would stay in memory, unused, as long as the stream is open
