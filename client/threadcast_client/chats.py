"""Follows one or several chats over one connection: passes each chat its events and runs the tasks of all chats.

`Client.chat` and `Client.chats` create a `Chats`. The error of one chat is reported to that chat and does not end the
others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
import msgspec
from anyio.abc import TaskGroup

from threadcast_client.backoff import Backoff
from threadcast_client.chat import Chat
from threadcast_client.errors import BadRequest, ChatLeft, NotFound, Refused, ThreadcastError, Unreachable, Unreadable
from threadcast_client.reading import Arrival, event_of
from threadcast_client.stream import ChatGone, Lost, Opened, Stream, StreamItem
from threadcast_client.wire import Busy, Wire, path_of
from threadcast_protocol.wire.transient import ChatRemoved

__all__ = ["CHATS_MAX", "Chats"]

CHATS_MAX = 64
"""The maximum number of chats on one stream (PROTOCOL §18)."""


class Chats(Mapping[str, Chat]):
    """A mapping of chats by id. If the mapping was opened by `client.chats`, `add` and `remove` change it."""

    def __init__(self, wire: Wire, stream: Stream, new_chat: Callable[[str], Chat]) -> None:
        self._wire = wire
        self._stream = stream
        self._new_chat = new_chat
        self._chats: dict[str, Chat] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._troubled: dict[str, Backoff] = {}
        """The pauses between attempts, for chats that the server could not open; a chat's entry is removed when its
        snapshot arrives."""
        self._tasks: TaskGroup | None = None
        self._is_open = False

    def __getitem__(self, chat_id: str) -> Chat:
        return self._chats[chat_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._chats)

    def __len__(self) -> int:
        return len(self._chats)

    async def add(self, chat_id: str, *, seconds: float | None = None) -> Chat:
        """Add a chat and wait for its snapshot. A chat that was added before is returned at once.

        Raises:
            BadRequest: the stream carries 64 chats already.
            NotFound: the chat was deleted or is not the caller's.
            Unreachable: no snapshot has arrived within `seconds` (by default the client's `open_seconds`).
        """
        is_new = chat_id not in self._chats
        if is_new and len(self._chats) >= CHATS_MAX:
            raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; remove some, or open another stream")
        try:
            if is_new:
                self._begin(chat_id)
                self._stream.chat_ids.append(chat_id)
                await self._change({"add": [{"chat_id": chat_id}], "remove": []})
            chat = self._chats[chat_id]
            await self.opened(chat, seconds)
        except ThreadcastError as wrong:
            self._end(chat_id, wrong)
            raise
        return chat

    async def remove(self, chat_id: str) -> None:
        """Remove a chat; an absent chat is not an error. Its unsent commands stay in the outbox."""
        if chat_id in self._chats:
            self._end(chat_id, ChatLeft(f"chat {chat_id!r} was removed from this stream"))
            await self._change({"add": [], "remove": [chat_id]})

    async def opened(self, chat: Chat, seconds: float | None = None) -> None:
        """Wait for the chat's snapshot. Raises the errors of `Chat.until`."""
        await chat.until(lambda _: True, self._wire.retry_policy.open_seconds if seconds is None else seconds)

    # Calls of `Client`.

    def begin(self, tasks: TaskGroup) -> None:
        """Begin the chats; their tasks run in this task group."""
        self._tasks = tasks
        for chat_id in self._stream.chat_ids:
            self._begin(chat_id)

    async def run(self) -> None:
        """Read the stream until it ends for good."""
        try:
            await self._stream.run(self._take)
        except (Refused, Unreadable) as wrong:
            for chat_id in list(self._chats):
                self._fail(chat_id, wrong)

    def leave(self) -> None:
        """End all chats, at the end of the block."""
        for chat in list(self._chats.values()):
            chat.fail(ChatLeft("the block of this chat has ended; open the chat again to continue"))

    def _begin(self, chat_id: str) -> None:
        assert self._tasks is not None  # set by `begin`, which is called first
        chat = self._chats[chat_id] = self._new_chat(chat_id)
        scope = self._scopes[chat_id] = anyio.CancelScope()
        if self._is_open:
            chat.take(Opened())
        self._tasks.start_soon(self._serve, chat, scope)

    async def _serve(self, chat: Chat, scope: anyio.CancelScope) -> None:
        """Run the tasks of one chat until its scope is cancelled."""
        with scope:
            async with anyio.create_task_group() as tasks:
                chat.tool_calls.begin(tasks)
                await chat.sender.run()

    def _end(self, chat_id: str, wrong: ThreadcastError) -> None:
        self._stream.drop(chat_id)
        self._troubled.pop(chat_id, None)
        if (chat := self._chats.pop(chat_id, None)) is not None:
            self._scopes.pop(chat_id).cancel()
            chat.fail(wrong)

    def _take(self, item: StreamItem) -> None:
        match item:
            case ChatGone():
                self._fail(item.chat_id, item.wrong)
            case Arrival(type="chat_removed"):
                self._take_removal(item)
            case Arrival():
                if (chat := self._chats.get(item.chat_id)) is not None:
                    chat.take(item)
                    if item.type == "snapshot":
                        self._troubled.pop(chat.id, None)
            case _:
                if isinstance(item, Opened | Lost):
                    self._is_open = isinstance(item, Opened)
                for chat in list(self._chats.values()):
                    chat.take(item)

    def _take_removal(self, arrival: Arrival) -> None:
        """Handle the end of one chat on a stream of several chats (PROTOCOL §4)."""
        said = event_of(arrival)
        chat = self._chats.get(arrival.chat_id)
        if chat is None or not isinstance(said, ChatRemoved):
            return
        if said.reason == "unavailable" and self._tasks is not None:
            self._tasks.start_soon(self._add_again, chat)
        elif said.reason == "not_found":
            self._fail(chat.id, NotFound(f"no such chat: {chat.id}"))
        elif said.reason != "removed":
            self._fail(chat.id, Unreadable(f"the server cannot show chat {chat.id!r}: {said.reason}"))

    def _fail(self, chat_id: str, wrong: ThreadcastError) -> None:
        """End a chat with an error. The chat stays in the mapping, so that the program can read the error."""
        self._stream.drop(chat_id)
        if (chat := self._chats.get(chat_id)) is not None:
            self._scopes[chat_id].cancel()
            chat.fail(wrong)

    async def _add_again(self, chat: Chat) -> None:
        pause = self._troubled.setdefault(chat.id, Backoff(self._wire.retry_policy)).pause()
        chat.take(Lost("the server could not open this chat", pause))
        await anyio.sleep(pause)
        if chat.id not in self._stream.chat_ids:
            return
        self._stream.drop(chat.id)
        self._stream.chat_ids.append(chat.id)
        chat.take(Opened())
        try:
            await self._change({"add": [{"chat_id": chat.id}], "remove": []})
        except Refused as wrong:
            self._fail(chat.id, wrong)

    async def _change(self, change: dict[str, Sequence[object]]) -> None:
        """Change the chats of the open stream. If that is not possible, a new connection carries the wanted chats.

        Raises:
            Refused: the server has refused the change.
        """
        if not self._stream.name:
            raise BadRequest("the chats of this stream cannot change; open it with `client.chats([…])`")
        if not self._is_open:
            self._stream.reconnect()
            return
        try:
            await self._wire.ask("POST", path_of("streams", self._stream.name), msgspec.json.encode(change))
        except (
            NotFound,
            Unreachable,
            Busy,
        ):  # NotFound concerns the stream or a chat; the new connection will show which
            self._stream.reconnect()
