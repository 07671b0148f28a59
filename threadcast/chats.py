"""Several chats over one connection, or one: feeds each what its stream brings, and owns the tasks of all.

`Client.chat` and `Client.chats` open it. It knows no events; what a chat makes of an arrival is the chat's affair. The
one rule: one chat's trouble is told to that chat and ends nothing else.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import TaskGroup

from protocol.transient import ChatRemoved
from threadcast.backoff import Backoff
from threadcast.chat import Chat
from threadcast.errors import BadRequest, ChatLeft, NotFound, Refused, ThreadcastError, Unreachable, Unreadable
from threadcast.reading import Arrival, event_of
from threadcast.stream import ChatGone, Lost, Opened, Stream, StreamItem
from threadcast.wire import Busy, Wire, path_of

__all__ = ["CHATS_MAX", "Chats", "beside"]

CHATS_MAX = 64
"""Of one stream (PROTOCOL §18)."""


class Chats(Mapping[str, Chat]):
    """Chats by id. `add` and `remove` change them while the stream runs, when it was opened by `client.chats`."""

    def __init__(self, wire: Wire, stream: Stream, new_chat: Callable[[str], Chat]) -> None:
        self._wire = wire
        self._stream = stream
        self._new_chat = new_chat
        self._chats: dict[str, Chat] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._troubled: dict[str, Backoff] = {}
        """Of the chats that the server could not open, until it can."""
        self._tasks: TaskGroup | None = None
        self._is_open = False

    def __getitem__(self, chat_id: str) -> Chat:
        return self._chats[chat_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._chats)

    def __len__(self) -> int:
        return len(self._chats)

    async def add(self, chat_id: str, *, seconds: float | None = None) -> Chat:
        """Watch one more chat; its snapshot has come when this returns. One that is there already is given at once.

        Raises:
            BadRequest: the stream carries 64 chats already.
            NotFound: it is somebody else's, or deleted.
            Unreachable: not within `seconds` (the client's `open_seconds`).
        """
        if chat_id not in self._chats:
            if len(self._chats) >= CHATS_MAX:
                raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; remove some, or open another one")
            self._begin(chat_id)
            self._stream.chat_ids.append(chat_id)
            try:
                await self._change({"add": [{"chat_id": chat_id}], "remove": []})
            except Refused as wrong:
                self._end(chat_id, wrong)
                raise
        chat = self._chats[chat_id]
        try:
            await self.opened(chat, seconds)
        except ThreadcastError as wrong:
            self._end(chat_id, wrong)
            raise
        return chat

    async def remove(self, chat_id: str) -> None:
        """Watch it no longer. One that is not there is no error. What it holds stays in the outbox."""
        if chat_id in self._chats:
            self._end(chat_id, ChatLeft(f"chat {chat_id!r} was removed from this stream"))
            await self._change({"add": [], "remove": [chat_id]})

    async def opened(self, chat: Chat, seconds: float | None = None) -> None:
        """Wait for the chat's snapshot. Raises as `Chat.until`."""
        await chat.until(lambda _: True, self._wire.patience.open_seconds if seconds is None else seconds)

    # What `watching` does.

    def begin(self, tasks: TaskGroup) -> None:
        """Each chat's own tasks run in these."""
        self._tasks = tasks
        for chat_id in self._stream.chat_ids:
            self._begin(chat_id)

    async def run(self) -> None:
        """Watch until the stream ends for good."""
        try:
            await self._stream.run(self._take)
        except (Refused, Unreadable) as wrong:
            for chat_id in list(self._chats):
                self._fail(chat_id, wrong)

    def leave(self) -> None:
        """Nobody watches any more."""
        for chat_id in list(self._chats):
            self._chats[chat_id].fail(ChatLeft("the block of this chat is over; enter it again to go on"))

    def _begin(self, chat_id: str) -> None:
        assert self._tasks is not None  # set by `begin`, before anybody has the chats
        chat = self._chats[chat_id] = self._new_chat(chat_id)
        scope = self._scopes[chat_id] = anyio.CancelScope()
        if self._is_open:
            chat.take(Opened())
        self._tasks.start_soon(self._serve, chat, scope)

    async def _serve(self, chat: Chat, scope: anyio.CancelScope) -> None:
        """The chat's own tasks, for as long as it is watched."""
        with scope:
            async with anyio.create_task_group() as tasks:
                chat.tool_calls.begin(tasks)
                await chat.postman.run()

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
        """A chat has ended on a stream of several (PROTOCOL §4)."""
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
        """The chat stays in the mapping, so that its user finds out why it is still."""
        self._stream.drop(chat_id)
        if (chat := self._chats.get(chat_id)) is not None:
            self._scopes[chat_id].cancel()
            chat.fail(wrong)

    async def _add_again(self, chat: Chat) -> None:
        pause = self._troubled.setdefault(chat.id, Backoff(self._wire.patience)).pause()
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
        """Tell the running stream; where that does not work, a new connection carries what is wanted now.

        Raises:
            Refused: the server does not want the change.
        """
        if not self._stream.name:
            raise BadRequest("this stream carries one chat for good; open it with `client.chats([…])` to change it")
        if not self._is_open:
            self._stream.reconnect()
            return
        try:
            await self._wire.ask("POST", path_of("streams", self._stream.name), msgspec.json.encode(change))
        except (NotFound, Unreachable, Busy):  # NotFound: perhaps the chat; the connection will say which it was
            self._stream.reconnect()


@asynccontextmanager
async def beside(start: Callable[[TaskGroup], object]) -> AsyncIterator[None]:
    """Run tasks beside a block, and end them with it. What the block raises comes out as it is, not in a group."""
    wrong: Exception | None = None
    async with anyio.create_task_group() as tasks:
        start(tasks)
        try:
            yield
        except Exception as trouble:  # handed on below, outside of the group, which would wrap it
            wrong = trouble
        tasks.cancel_scope.cancel()
    if wrong is not None:
        raise wrong
