"""One server, seen as one caller: the way to its chats.

    async with Client("http://127.0.0.1:8000") as client, client.chat("hello") as chat:
        print(await chat.ask("What is a lease?"))

It speaks the public protocol and nothing else, so it knows nothing of the server's inside. The one rule: a command that
was sent is held until the stream has shown it, so that not even a server that lost its last second loses it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

import httpx2
from anyio.abc import TaskGroup

from protocol.errors import BadRequest
from protocol.ids import check_chat_id
from threadcast.backoff import Patience
from threadcast.chat import Chat
from threadcast.chats import CHATS_MAX, Chats, beside
from threadcast.connection import Connection
from threadcast.feed import FeedEvent, follow_feed
from threadcast.ids import new_id
from threadcast.outbox import MemoryOutbox, Outbox
from threadcast.stream import Stream, StreamItem
from threadcast.wire import Token, Wire

__all__ = ["Client"]


class Client:
    """Enter it once; several tasks may use it at a time. `outbox` says which chats hold unsent commands."""

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        outbox: Outbox | None = None,
        name: str | None = None,
        patience: Patience | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`token` may be a function, which is asked before every request. `outbox` holds what is not seen yet, in
        memory unless given (`FileOutbox`). `name` is what claims of client tools are made under; give one that stays
        if the program should keep its claims over a restart."""
        self.outbox: Outbox = outbox if outbox is not None else MemoryOutbox()
        self.name = name or new_id("client")
        self._wire = Wire(url, token, patience or Patience(), transport)

    @property
    def base_url(self) -> str:
        return self._wire.base_url

    async def __aenter__(self) -> Self:
        await self._wire.__aenter__()
        return self

    async def __aexit__(self, *wrong: object) -> None:
        await self._wire.__aexit__(*wrong)

    @asynccontextmanager
    async def chat(
        self, chat_id: str, *, on_state: Callable[[Connection], None] | None = None, wait: bool = True
    ) -> AsyncIterator[Chat]:
        """A live chat for a block; one that does not exist yet begins with the first message. What the outbox holds
        for it goes out. `on_state` is told of the connection. Without `wait` the block begins at once, and may send,
        even if no server is there.

        Raises:
            Refused: the server does not give the chat (`Unauthorized`, `NotFound`, `BadRequest`).
            Unreachable: no snapshot within `open_seconds`.
            Unreadable: who answers is no Threadcast server.
        """
        async with self._watching([chat_id], name="", on_state=on_state, wait=wait) as chats:
            yield chats[chat_id]

    @asynccontextmanager
    async def chats(
        self, chat_ids: Sequence[str] = (), *, on_state: Callable[[Connection], None] | None = None, wait: bool = True
    ) -> AsyncIterator[Chats]:
        """Up to 64 live chats over one connection, as a mapping by id; `add` and `remove` change it. A chat that is
        refused has its `failure` set, and the others go on. Else as `chat`."""
        async with self._watching(chat_ids, name=new_id("stream"), on_state=on_state, wait=wait) as chats:
            yield chats

    def feed(self) -> AsyncGenerator[FeedEvent, None]:
        """The caller's chats: a `FeedSnapshot` first and after each reconnect, then every change. Close it
        (`contextlib.aclosing`) when done.

        Raises:
            Refused: the server does not give it.
        """
        return follow_feed(self._wire)

    async def request(self, method: str, path: str) -> httpx2.Response:
        """Any other endpoint, asked once, with whatever it is answered.

        Raises:
            Unreachable: no answer.
        """
        return await self._wire.fetch(method, path)

    async def follow(self, chat_id: str, take: Callable[[StreamItem], None], *, last_event_id: str = "") -> None:
        """The wire itself, for tools that show it: every arrival and every change of the connection of one endless
        stream, undecoded and not folded. It may go on after an id that somebody kept.

        Raises:
            Refused, Unreadable: the stream will not be given.
        """
        stream = Stream(self._wire, [check_chat_id(chat_id)])
        if last_event_id:
            stream.start_at(last_event_id)
        await stream.run(take)

    @asynccontextmanager
    async def stream_bytes(self, chat_id: str, last_event_id: str = "") -> AsyncIterator[AsyncIterator[bytes]]:
        """One connection's bytes as they come.

        Raises:
            Refused, Unreadable: the stream will not be given.
            Busy: not now.
            Unreachable: no connection, or it broke.
        """
        async with self._wire.stream("/v1/chats/subscribe", [("chat_id", chat_id)], last_event_id) as chunks:
            yield chunks

    @asynccontextmanager
    async def _watching(
        self, chat_ids: Sequence[str], *, name: str, on_state: Callable[[Connection], None] | None, wait: bool
    ) -> AsyncIterator[Chats]:
        wanted = list(dict.fromkeys(check_chat_id(chat_id) for chat_id in chat_ids))
        if len(wanted) > CHATS_MAX:
            raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; open another one")

        def new_chat(chat_id: str) -> Chat:
            return Chat(self._wire, chat_id, self.outbox, name=self.name, on_state=on_state)

        chats = Chats(self._wire, Stream(self._wire, wanted, name=name), new_chat)

        def start(tasks: TaskGroup) -> None:
            chats.begin(tasks)
            tasks.start_soon(chats.run)

        async with beside(start):
            try:
                if wait:
                    for chat in list(chats.values()):
                        await chats.opened(chat)
                yield chats
            finally:
                chats.leave()
