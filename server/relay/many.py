"""Many chats on one stream: joins them, lets them go, and takes changes from other processes while it runs.

It knows neither HTTP nor frames: `Subscriber` writes, `api/stream.py` opens, `api/streams.py` asks for changes. A
change travels as a whisper on the topic of the stream, and its answer comes back as one. The topic carries the
principal, so that nobody can reach, or even find, another's stream. The rule: one chat's trouble is told on the stream
(`chat_removed`) and ends nothing else.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio
import msgspec
from anyio.abc import TaskGroup

from protocol.errors import Failed
from protocol.ids import Position
from protocol.places import CHATS_MAX, parse_places, place_word, tag_of
from protocol.transient import ChatRemoved, frame_of
from server.relay.connection import Connection
from server.relay.hub import Hub
from server.relay.subscriber import Subscriber
from server.store.port import Store

__all__ = ["ANSWER_TIMEOUT_SECONDS", "Change", "ManyChats", "Newer", "Outcome", "ask_for_change", "name_taken"]

ANSWER_TIMEOUT_SECONDS = 2.0
"""PROTOCOL §4: how long who changes a stream waits for the process that holds it."""


class Change(msgspec.Struct, frozen=True, tag="change"):
    """`add` are pairs of a chat id and an SSE id to go on from, or ''. Removed before added."""

    nonce: str
    add: list[tuple[str, str]] = []
    remove: list[str] = []


class Newer(msgspec.Struct, frozen=True, tag="newer"):
    """A stream of this name was opened; older ones end."""

    opened_ms: int
    nonce: str


class Outcome(msgspec.Struct, frozen=True):
    """Done, unless the stream would hold more chats than it may."""

    is_full: bool


_whispers = msgspec.json.Decoder(Change | Newer)
_outcomes = msgspec.json.Decoder(Outcome)


def _topic(principal_id: str, stream_id: str) -> str:
    return f"stream:{principal_id}:{stream_id}"


async def ask_for_change(store: Store, principal_id: str, stream_id: str, change: Change) -> Outcome | None:
    """Have a running stream changed, wherever it is held; None when nobody holds it.

    Raises:
        TimeoutError: it is held, and did not answer in time.
        Unavailable: the store does not answer.
    """
    async with store.overhear(f"answer:{change.nonce}") as answers:
        if not await store.whisper(_topic(principal_id, stream_id), msgspec.json.encode(change)):
            return None
        with anyio.fail_after(ANSWER_TIMEOUT_SECONDS):
            async for payload in answers:
                if payload is not None:
                    return _outcomes.decode(payload)
    raise TimeoutError


@asynccontextmanager
async def name_taken(
    store: Store, principal_id: str, stream_id: str
) -> AsyncIterator[tuple[AsyncIterator[bytes | None], Newer]]:
    """Listen for changes, and end older streams of this name; `ManyChats.obey` takes what is yielded.

    Raises:
        Unavailable: the store does not answer.
    """
    topic = _topic(principal_id, stream_id)
    mine = Newer(await store.now_ms(), secrets.token_hex(8))
    async with store.overhear(topic) as heard:
        await store.whisper(topic, msgspec.json.encode(mine))
        yield heard, mine


class _Watch:
    """One chat of the stream; `subscriber` once its relay is open."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.subscriber: Subscriber | None = None


class ManyChats:
    """The chats of one stream; `tasks` ends with it."""

    def __init__(self, hub: Hub, store: Store, connection: Connection, tasks: TaskGroup, *, has_presence: bool) -> None:
        self._hub = hub
        self._store = store
        self._connection = connection
        self._tasks = tasks
        self._has_presence = has_presence
        self._chats: dict[str, _Watch] = {}

    def add(self, chat_id: str, place: Position | None) -> None:
        """Begin to send a chat, from `place` if that is possible. One that is there already goes on as it is."""
        if chat_id in self._chats:
            return
        if place is not None:  # so that an id which is sent before this chat has begun does not forget it
            self._connection.places[chat_id] = place_word(tag_of(chat_id), place).encode()
        watch = self._chats[chat_id] = _Watch()
        self._tasks.start_soon(self._watch, chat_id, place, watch)

    def remove(self, chat_id: str) -> None:
        """Send nothing more of a chat. One that is not there is no error."""
        watch = self._chats.pop(chat_id, None)
        if watch is not None:
            if watch.subscriber is not None:
                watch.subscriber.leave()  # now: until the task has ended, its relay and its snapshot might still write
            watch.scope.cancel()
            self._connection.places.pop(chat_id, None)
            self._connection.write(frame_of(chat_id, ChatRemoved("removed")))

    def apply(self, change: Change) -> Outcome:
        """Change all or nothing."""
        wanted = (self._chats.keys() - set(change.remove)) | {chat_id for chat_id, _ in change.add}
        if len(wanted) > CHATS_MAX:
            return Outcome(is_full=True)
        for chat_id in change.remove:
            self.remove(chat_id)
        for chat_id, place in change.add:
            self.add(chat_id, parse_places(place, [chat_id]).get(chat_id))
        return Outcome(is_full=False)

    async def obey(self, heard: AsyncIterator[bytes | None], mine: Newer) -> None:
        """Take changes for as long as the stream runs, and make way for a newer one of the same name."""
        async for payload in heard:
            try:
                said = None if payload is None else _whispers.decode(payload)
            except msgspec.DecodeError:
                continue  # written by another version, or by somebody who reaches the store
            if isinstance(said, Newer):
                if (said.opened_ms, said.nonce) > (mine.opened_ms, mine.nonce):
                    self._connection.end("replaced")
            elif said is not None and self._connection.ended is None:
                outcome = self.apply(said)
                with suppress(Failed):  # who asked hears nothing, and asks again
                    await self._store.whisper(f"answer:{said.nonce}", msgspec.json.encode(outcome))

    async def _watch(self, chat_id: str, place: Position | None, watch: _Watch) -> None:
        with watch.scope:
            try:
                async with AsyncExitStack() as stack:
                    relay = await stack.enter_async_context(self._hub.relay(chat_id))
                    if self._chats.get(chat_id) is not watch:
                        return  # removed in the turn in which it was opened, too late to be cancelled
                    if self._has_presence:
                        stack.enter_context(self._hub.presence.visiting(chat_id, self._connection))
                    subscriber = Subscriber(self._connection, relay, chat_id, is_one_of_many=True)
                    watch.subscriber = subscriber
                    stack.callback(subscriber.leave)
                    stack.callback(partial(relay.leave, subscriber))
                    await relay.join(subscriber, place)
                    await subscriber.left.wait()
            except Failed:
                if self._chats.get(chat_id) is not watch:
                    return
                self._connection.places.pop(chat_id, None)
                self._connection.write(frame_of(chat_id, ChatRemoved("unavailable")))
        if self._chats.get(chat_id) is watch:
            del self._chats[chat_id]
