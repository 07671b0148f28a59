"""The client of one server for one caller. It opens chats.

    async with Client("http://127.0.0.1:8000") as client, client.chat("hello") as chat:
        print(await chat.ask("What is a lease?"))

The client uses only the public protocol. It keeps each sent command until the stream has shown the command, so that no
command is lost if the server loses its last second of data.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

import httpx2
from anyio.abc import TaskGroup

from threadcast_client.backoff import RetryPolicy
from threadcast_client.beside import beside
from threadcast_client.chat import Chat
from threadcast_client.chats import CHATS_MAX, Chats
from threadcast_client.connection import Connection
from threadcast_client.feed import FeedEvent, follow_feed
from threadcast_client.ids import new_id
from threadcast_client.outbox import MemoryOutbox, Outbox
from threadcast_client.stream import Stream, StreamItem
from threadcast_client.wire import Token, Wire
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import check_chat_id

__all__ = ["Client"]


class Client:
    """A client of one server. Use it as an async context manager; several tasks may share it.

    `outbox` holds the commands that the stream has not shown yet.
    """

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        forward_authorization: Token | None = None,
        outbox: Outbox | None = None,
        name: str | None = None,
        retry_policy: RetryPolicy | None = None,
        awaits_sign_in: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Create a client; no connection is opened.

        Args:
            url: The address of the server.
            token: The bearer token, or a function that returns it; the function is called before every request.
            forward_authorization: The credential that tools with `forward_auth` send to their services as
                `Authorization`, such as "Bearer …", or a function that returns it. This credential is sent with
                commands only, and must not be the token of this server.
            outbox: The store of sent commands until the stream has shown them; by default a store in memory.
            name: The name under which client tools are claimed. A program that passes the same name after a restart
                keeps its claims. By default the name is random.
            retry_policy: Timeouts and pauses.
            awaits_sign_in: Whether the client continues after the server has refused the token. A client that
                continues sets `connection.is_signed_out`, holds commands, and asks `token` again every 30 s and after
                `retry`.
            transport: Replaces HTTP, for tests.
        """
        self.outbox: Outbox = outbox if outbox is not None else MemoryOutbox()
        self.name = name or new_id("client")
        self._streams: set[Stream] = set()
        self._wire = Wire(
            url,
            token,
            retry_policy or RetryPolicy(),
            transport,
            forward_authorization=forward_authorization,
            awaits_sign_in=awaits_sign_in,
        )

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
        """Open a live chat for a block. A chat that does not exist yet begins with its first message.

        Commands that the outbox holds for the chat are sent. `on_state` is called with each new status of the
        connection. With `wait=False` the block begins at once and may send commands, even if the server is away.

        Raises:
            Refused: the server has refused the chat (`Unauthorized`, `NotFound`, `BadRequest`).
            Unreachable: no snapshot has arrived within `open_seconds`.
            Unreadable: the server is not a Threadcast server.
        """
        async with self._watching([chat_id], name="", on_state=on_state, wait=wait) as chats:
            yield chats[chat_id]

    @asynccontextmanager
    async def chats(
        self, chat_ids: Sequence[str] = (), *, on_state: Callable[[Connection], None] | None = None, wait: bool = True
    ) -> AsyncIterator[Chats]:
        """Open up to 64 live chats over one connection, as a mapping by id. `add` and `remove` change the mapping.

        The arguments and errors are the same as for `chat`. With `wait=False`, a refused chat has its `failure` set and
        the others continue.
        """
        async with self._watching(chat_ids, name=new_id("stream"), on_state=on_state, wait=wait) as chats:
            yield chats

    def retry(self) -> None:
        """Connect again now, without waiting for the next attempt: after a sign-in, or when a user requests a
        reconnect."""
        self._wire.retry()
        for stream in list(self._streams):
            stream.reconnect()

    def feed(self) -> AsyncGenerator[FeedEvent, None]:
        """Yield the list of the caller's chats: a `FeedSnapshot` first and after each reconnect, then every change.

        Close the generator when you are done (`contextlib.aclosing`).

        Raises:
            Refused: the server has refused the request.
        """
        return follow_feed(self._wire)

    async def request(self, method: str, path: str, body: bytes | None = None) -> httpx2.Response:
        """Send a request to any other endpoint once. Returns the answer with any status. `body` is JSON.

        Raises:
            Unreachable: the server did not answer.
        """
        return await self._wire.fetch(method, path, body)

    async def follow(self, chat_id: str, take: Callable[[StreamItem], None], *, last_event_id: str = "") -> None:
        """Pass every event of a chat's stream to `take`, undecoded, and every change of the connection.

        The stream reconnects without end. `last_event_id`: begin after the event with this id.

        Raises:
            Refused: the server has refused the stream.
            Unreadable: the server is not a Threadcast server.
        """
        stream = Stream(self._wire, [check_chat_id(chat_id)])
        if last_event_id:
            stream.start_at(last_event_id)
        await stream.run(take)

    @asynccontextmanager
    async def stream_bytes(self, chat_id: str, last_event_id: str = "") -> AsyncIterator[AsyncIterator[bytes]]:
        """Open one connection of a chat's stream and yield its bytes.

        Raises:
            Refused: the server has refused the stream.
            Unreadable: the server is not a Threadcast server.
            Busy: the server asks the client to try later.
            Unreachable: the connection could not be opened, or was lost.
        """
        async with self._wire.stream("/v1/chats/subscribe", [("chat_id", chat_id)], last_event_id) as chunks:
            yield chunks

    @asynccontextmanager
    async def _watching(
        self, chat_ids: Sequence[str], *, name: str, on_state: Callable[[Connection], None] | None, wait: bool
    ) -> AsyncIterator[Chats]:
        wanted = list(dict.fromkeys(check_chat_id(chat_id) for chat_id in chat_ids))
        if len(wanted) > CHATS_MAX:
            raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; open another stream for the others")

        stream = Stream(self._wire, wanted, name=name)

        def new_chat(chat_id: str) -> Chat:
            cut = stream.reconnect
            return Chat(self._wire, chat_id, self.outbox, name=self.name, on_state=on_state, cut=cut)

        chats = Chats(self._wire, stream, new_chat)
        self._streams.add(stream)

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
                self._streams.discard(stream)
                chats.leave()
