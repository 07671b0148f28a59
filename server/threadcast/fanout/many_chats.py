"""Adds chats to a stream of many chats and removes them, also at the request of other processes while the stream runs.

`api/stream.py` opens the stream, `Subscriber` writes the blocks of each chat, and `api/streams.py` requests changes. A
request for a change is an ephemeral pub/sub message on the stream's topic, and its answer is a message on a topic of
this request. The stream's topic contains the principal, so that callers can neither find nor change the streams of
other callers. The failure of one chat is reported on the stream (`chat_removed`) and does not end other chats.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from threadcast.fanout.admissions import Admission, OpenedTooFast
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.hub import Hub
from threadcast.fanout.subscriber import Subscriber
from threadcast.store.ports import Facts, PubSub
from threadcast_protocol.framing.stream_ids import CHATS_MAX, parse_stream_ids, stream_id_word, tag_of
from threadcast_protocol.wire.errors import Failed, NotFound, RateLimited
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.transient import ChatRemoved, frame_of

__all__ = ["ANSWER_TIMEOUT_SECONDS", "Change", "ManyChats", "Newer", "Outcome", "ask_for_change", "name_taken"]

ANSWER_TIMEOUT_SECONDS = 2.0
"""Seconds that a request to change a stream waits for the process that holds the stream (PROTOCOL §4)."""


class StreamsStore(Facts, PubSub, Protocol):
    """The ports of the store that pass messages between processes with streams. The store's clock decides which of two
    streams of the same name is newer."""


class Change(msgspec.Struct, frozen=True, tag="change"):
    """A change of a stream. `add` has pairs of a chat id and the SSE id to resume from, which is '' if there is none.
    Chats are removed before chats are added."""

    nonce: str
    add: list[tuple[str, str]] = []
    remove: list[str] = []


class Newer(msgspec.Struct, frozen=True, tag="newer"):
    """Announces that a stream of this name was opened. Older streams of the same name end."""

    opened_ms: int
    nonce: str


class Outcome(msgspec.Struct, frozen=True):
    """The result of a change. If `is_full` is True, the change was refused for the reason `refusal`, or, if `refusal`
    is '', because the stream would exceed its limit of chats. If `retry_after_seconds` is not 0, the change may be
    repeated after this time."""

    is_full: bool
    refusal: str = ""
    retry_after_seconds: int = 0


_messages = msgspec.json.Decoder(Change | Newer)
_outcomes = msgspec.json.Decoder(Outcome)


def _topic(principal_id: str, stream_id: str) -> str:
    return f"stream:{principal_id}:{stream_id}"


async def ask_for_change(store: PubSub, principal_id: str, stream_id: str, change: Change) -> Outcome | None:
    """Ask the process that holds a running stream to change the stream. Returns None when no process holds the stream.

    Raises:
        TimeoutError: the process did not answer in time.
        Unavailable: the store does not answer.
    """
    async with store.subscribe(f"answer:{change.nonce}") as answers:
        if not await store.publish(_topic(principal_id, stream_id), msgspec.json.encode(change)):
            return None
        with anyio.fail_after(ANSWER_TIMEOUT_SECONDS):
            async for payload in answers:
                if payload is not None:
                    return _outcomes.decode(payload)
    raise TimeoutError


@asynccontextmanager
async def name_taken(
    store: StreamsStore, principal_id: str, stream_id: str
) -> AsyncIterator[tuple[AsyncIterator[bytes | None], Newer]]:
    """Subscribe to the changes of a stream, and end older streams of the same name. Pass both yielded values to
    `ManyChats.obey`.

    Raises:
        Unavailable: the store does not answer.
    """
    topic = _topic(principal_id, stream_id)
    mine = Newer(await store.now_ms(), secrets.token_hex(8))
    async with store.subscribe(topic) as heard:
        await store.publish(topic, msgspec.json.encode(mine))
        yield heard, mine


class _Watch:
    """One chat of the stream. `subscriber` is None until the chat's relay is open."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.subscriber: Subscriber | None = None


class ManyChats:
    """The chats of one stream. `tasks` is the stream's task group, and `admission` counts the chats."""

    def __init__(
        self,
        hub: Hub,
        store: PubSub,
        connection: ReaderConnection,
        tasks: TaskGroup,
        admission: Admission,
        *,
        has_presence: bool,
    ) -> None:
        self._hub = hub
        self._store = store
        self._connection = connection
        self._tasks = tasks
        self._admission = admission
        self._has_presence = has_presence
        self._chats: dict[str, _Watch] = {}

    def add(self, chat_id: str, stream_position: Position | None) -> None:
        """Begin to send a chat, from `stream_position` if possible. A chat already on the stream is not changed. The
        caller must have counted the chat in the stream's `Admission` before."""
        if chat_id in self._chats:
            return
        if stream_position is not None:  # a stream id sent before the chat begins must contain the chat's position
            self._connection.stream_id_words[chat_id] = stream_id_word(tag_of(chat_id), stream_position).encode()
        watch = self._chats[chat_id] = _Watch()
        self._tasks.start_soon(self._watch, chat_id, stream_position, watch)

    def remove(self, chat_id: str) -> None:
        """Stop sending a chat. Removing a chat that is not on the stream is no error."""
        watch = self._chats.pop(chat_id, None)
        if watch is not None:
            if watch.subscriber is not None:
                watch.subscriber.leave()  # at once, because the relay might write to the stream until the task ends
            watch.scope.cancel()
            self._connection.stream_id_words.pop(chat_id, None)
            self._connection.write(frame_of(chat_id, ChatRemoved("removed")))

    def apply(self, change: Change) -> Outcome:
        """Carry out the whole change, or refuse the whole change if the stream or its caller would exceed a limit."""
        kept = self._chats.keys() - set(change.remove)
        wanted = kept | {chat_id for chat_id, _ in change.add}
        if len(wanted) > CHATS_MAX:
            return Outcome(is_full=True)
        try:
            self._admission.change(len(wanted), len(wanted) - len(kept))
        except OpenedTooFast as refused:
            return Outcome(True, refused.message, refused.retry_after_seconds)
        except RateLimited as refused:
            return Outcome(True, refused.message)
        for chat_id in change.remove:
            self.remove(chat_id)
        for chat_id, stream_position in change.add:
            self.add(chat_id, parse_stream_ids(stream_position, [chat_id]).get(chat_id))
        return Outcome(is_full=False)

    async def obey(self, heard: AsyncIterator[bytes | None], mine: Newer) -> None:
        """Apply changes while the stream runs. End the stream when a newer stream of the same name is opened."""
        async for payload in heard:
            try:
                said = None if payload is None else _messages.decode(payload)
            except msgspec.DecodeError:
                continue  # written by another version, or by another client of the store
            if isinstance(said, Newer):
                if (said.opened_ms, said.nonce) > (mine.opened_ms, mine.nonce):
                    self._connection.end("replaced")
            elif said is not None and self._connection.ended is None:
                outcome = self.apply(said)
                with suppress(Failed):  # the caller gets no answer and repeats the request
                    await self._store.publish(f"answer:{said.nonce}", msgspec.json.encode(outcome))

    async def _watch(self, chat_id: str, stream_position: Position | None, watch: _Watch) -> None:
        with watch.scope:
            try:
                async with AsyncExitStack() as stack:
                    is_hidden = await self._hub.is_hidden(chat_id, self._connection.principal_id)
                    relay = await stack.enter_async_context(self._hub.relay(chat_id, is_hidden=is_hidden))
                    if self._chats.get(chat_id) is not watch:
                        return  # the chat was removed when its relay had just opened, too late to cancel this task
                    if self._has_presence:
                        stack.enter_context(self._hub.presence.visiting(chat_id, self._connection))
                    subscriber = Subscriber(self._connection, relay, chat_id, is_one_of_many=True)
                    watch.subscriber = subscriber
                    stack.callback(subscriber.leave)
                    stack.callback(partial(relay.leave, subscriber))
                    await relay.join(subscriber, stream_position)
                    await subscriber.left.wait()
            except (Failed, NotFound) as wrong:
                if self._chats.get(chat_id) is not watch:
                    return
                self._connection.stream_id_words.pop(chat_id, None)
                reason = "not_found" if isinstance(wrong, NotFound) else "unavailable"
                self._connection.write(frame_of(chat_id, ChatRemoved(reason)))
        if self._chats.get(chat_id) is watch:
            del self._chats[chat_id]
            self._admission.change(len(self._chats))
