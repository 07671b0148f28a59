"""A small client of the public HTTP API, for programs in Python: post commands, watch a chat.

`Client.subscribe` is one endless stream over as many connections as it takes: it resumes where it stopped, notices a
missing event and a silent line, and says when the connection comes and goes. `Client.post` is safe to repeat, since
the command's id stays the same. The command line uses it, and so can anybody; it knows nothing of the server's inside
but `protocol/`. The one rule: a command posted while its chat is watched is kept until the stream has shown its ack,
and posted again after every reconnect, so that not even a server that lost its last second loses it.
"""

import random
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import msgspec

from protocol.errors import TooLarge
from protocol.ids import Position
from protocol.messages import JsonObject
from protocol.sse import EventFrame, FrameParser, RetryFrame
from server.settings import is_loopback

__all__ = ["Client", "Connection", "Patience", "PostAnswer", "RequestRefused", "Unreachable", "new_request_id"]

KEPT_MAX_COUNT = 100
"""Commands kept for one chat; the server queues no more than this (PROTOCOL §9). Beyond it the oldest is let go."""

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which a stream is asked for again; any other refusal will not change by waiting."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for what, in seconds. Pauses between tries double from first to max, each ± half of itself."""

    connect_seconds: float = 5.0
    silence_seconds: float = 45.0
    """Three heartbeats (PROTOCOL §4)."""

    answer_seconds: float = 10.0
    """For one request; an abort's answer waits up to 2 s for its ack (PROTOCOL §3)."""

    post_seconds: float = 10.0
    """All tries of one post together; longer than a takeover takes."""

    pause_first_seconds: float = 0.25
    pause_max_seconds: float = 5.0


class PostAnswer(msgspec.Struct, frozen=True):
    status: int
    body: JsonObject

    @property
    def is_accepted(self) -> bool:
        return self.status in (200, 202)

    @property
    def reason(self) -> str:
        """Why it was refused, in the server's words."""
        return _reason(self.status, self.body)


class Connection(msgspec.Struct, frozen=True):
    """The stream came, or went and why, and when it is tried again."""

    is_open: bool
    reason: str = ""
    retry_in_seconds: float = 0.0


class Unreachable(Exception):
    """No answer in time. A post may or may not have arrived; the same id makes it safe to repeat."""


class RequestRefused(Exception):
    """The server does not want this, and waiting will not change its mind."""

    def __init__(self, status: int, body: JsonObject) -> None:
        super().__init__(_reason(status, body))
        self.status = status
        self.body = body


class _StartAnew(Exception):
    """What came cannot be trusted; only a snapshot helps."""


def new_request_id() -> str:
    """80 random bits, as the server's own ids."""
    return f"req_{secrets.token_hex(10)}"


class Client:
    """One server, seen as one caller. Enter it once; its methods may be used by several tasks at a time."""

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        patience: Patience | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._patience = patience or Patience()
        self._kept: dict[str, dict[str, bytes]] = {}
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(self._patience.answer_seconds, connect=self._patience.connect_seconds),
            transport=transport,
            trust_env=not is_loopback(urlsplit(self.base_url).hostname or ""),  # no proxy leads to our own machine
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, wrong, where)

    # Requests with one answer.

    async def post(self, chat_id: str, command: JsonObject) -> PostAnswer:
        """Lay a command down; it is given a `client_request_id` if it has none. Tried again for `post_seconds`.

        Raises:
            Unreachable: no answer in time. If the chat is watched, the command is kept and goes out again with the
                next connection, unless `forget` is called.
        """
        command = {"client_request_id": new_request_id(), **command}
        request_id = str(command["client_request_id"])
        body = msgspec.json.encode(command)
        if (kept := self._kept.get(chat_id)) is not None:
            kept[request_id] = body
            if len(kept) > KEPT_MAX_COUNT:
                del kept[next(iter(kept))]
        give_up_at = anyio.current_time() + self._patience.post_seconds
        for pause in self._pauses():
            try:
                answer = await self._post_once(chat_id, body)
            except httpx2.TransportError as wrong:
                answer, trouble = None, _words(wrong)
            if answer is not None and answer.status not in (502, 503, 504):
                if not answer.is_accepted:
                    self.forget(chat_id, request_id)
                return answer
            if anyio.current_time() + pause > give_up_at:
                if answer is not None:
                    trouble = answer.reason
                break
            await anyio.sleep(pause)
        raise Unreachable(f"{self.base_url}: {trouble}")

    async def _post_once(self, chat_id: str, body: bytes) -> PostAnswer:
        response = await self._http.post(
            f"{self.base_url}/v1/chats/{quote(chat_id, safe='')}/commands",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        return PostAnswer(response.status_code, _object(response.content))

    async def cancel(self, chat_id: str, request_id: str) -> PostAnswer:
        """Take a queued command back."""
        path = f"/v1/chats/{quote(chat_id, safe='')}/queue/{quote(request_id, safe='')}"
        response = await self.request("DELETE", path)
        self.forget(chat_id, request_id)
        return PostAnswer(response.status_code, _object(response.content))

    async def request(self, method: str, path: str) -> httpx2.Response:
        """Any other endpoint, asked once.

        Raises:
            Unreachable: no answer.
        """
        try:
            return await self._http.request(method, self.base_url + path)
        except httpx2.TransportError as wrong:
            raise Unreachable(f"{self.base_url}: {_words(wrong)}") from None

    def forget(self, chat_id: str, request_id: str) -> None:
        """Do not post this command again."""
        self._kept.get(chat_id, {}).pop(request_id, None)

    def kept(self, chat_id: str) -> list[str]:
        """Request ids of this chat whose ack was not seen yet, oldest first."""
        return list(self._kept.get(chat_id, {}))

    # The stream.

    async def subscribe(
        self,
        chat_id: str,
        last_event_id: str | None = None,
        *,
        on_change: Callable[[Connection], None] | None = None,
    ) -> AsyncGenerator[tuple[JsonObject, str], None]:
        """Every event of the chat, with its id, for as long as somebody iterates. Never twice, never with a hole: after
        a loss that cannot be mended the next event is a snapshot. Close it (`contextlib.aclosing`) when done.

        Raises:
            RequestRefused: the stream will not be given (unknown token, bad id, somebody else's chat).
        """
        place = last_event_id or ""
        tell = on_change or (lambda connection: None)
        pauses = self._pauses()
        self._kept.setdefault(chat_id, {})
        try:
            while True:
                reading = _Reading(place)
                try:
                    async with self._open(chat_id, place) as response:
                        tell(Connection(is_open=True))
                        await self._post_kept(chat_id)
                        async for chunk in response.aiter_bytes():
                            for event in reading.feed(chunk):
                                place = reading.place
                                pauses = self._pauses()
                                self._settle(chat_id, event)
                                yield event, place
                    reason = "the server ended the stream"
                except httpx2.TransportError as wrong:
                    reason = _words(wrong)
                except _Busy as wrong:
                    reason, reading.retry_seconds = str(wrong), wrong.retry_seconds
                except (_StartAnew, TooLarge) as wrong:
                    reason, place = str(wrong), ""
                pause = max(next(pauses), reading.retry_seconds)
                tell(Connection(is_open=False, reason=reason, retry_in_seconds=pause))
                await anyio.sleep(pause)
        finally:
            self._kept.pop(chat_id, None)

    async def stream_bytes(self, chat_id: str, last_event_id: str | None = None) -> AsyncGenerator[bytes, None]:
        """One connection's bytes as they come.

        Raises:
            RequestRefused: as `subscribe`.
            Unreachable: no connection, or it broke.
        """
        try:
            async with self._open(chat_id, last_event_id or "") as response:
                async for chunk in response.aiter_bytes():
                    yield chunk
        except (httpx2.TransportError, _Busy) as wrong:
            raise Unreachable(f"{self.base_url}: {_words(wrong)}") from None

    @asynccontextmanager
    async def _open(self, chat_id: str, place: str) -> AsyncIterator[httpx2.Response]:
        patience = self._patience
        async with self._http.stream(
            "GET",
            f"{self.base_url}/v1/chats/subscribe",
            params={"chat_id": chat_id},
            headers={"Accept": "text/event-stream", **({"Last-Event-ID": place} if place else {})},
            timeout=httpx2.Timeout(patience.silence_seconds, connect=patience.connect_seconds),
        ) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            if response.status_code == 200 and kind == "text/event-stream":
                yield response
                return
            if response.status_code == 200:
                raise RequestRefused(200, {"detail": f"{self.base_url} is no threadcast server"})
            body = _object(await response.aread())
            if response.status_code in _BUSY:
                after = response.headers.get("retry-after", "")
                raise _Busy(_reason(response.status_code, body), float(after) if after.isdecimal() else 0.0)
            raise RequestRefused(response.status_code, body)

    async def _post_kept(self, chat_id: str) -> None:
        """Once each, in order. Whoever reads the stream waits for it, so a failure is left to the next connection."""
        for request_id, body in list(self._kept.get(chat_id, {}).items()):
            answer = await self._post_once(chat_id, body)
            if 400 <= answer.status < 500 and answer.status != 429:
                self.forget(chat_id, request_id)

    def _settle(self, chat_id: str, event: JsonObject) -> None:
        kept = self._kept.get(chat_id)
        if not kept:
            return
        if event.get("type") == "ack":
            kept.pop(event.get("client_request_id", ""), None)
        elif event.get("type") == "snapshot":
            shown = [*event.get("recent_acks", ()), *event.get("messages", ())]
            for seen in [*shown, *event.get("runtime", {}).get("queued_items", ())]:
                kept.pop(seen.get("client_request_id", ""), None)

    def _pauses(self) -> Iterator[float]:
        pause = self._patience.pause_first_seconds
        while True:
            yield pause * random.uniform(0.5, 1.5)  # spread, so that a restarted server is not met by everybody at once
            pause = min(pause * 2, self._patience.pause_max_seconds)


class _Busy(Exception):
    def __init__(self, reason: str, retry_seconds: float) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class _Reading:
    """One connection's bytes to events, in unbroken order. `place` is the id of the last one."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.retry_seconds = 0.0
        position = Position.parse(place)
        self._last_seq = position.seq if position is not None else None
        self._parser = FrameParser()

    def feed(self, chunk: bytes) -> Iterator[JsonObject]:
        for frame in self._parser.feed(chunk):
            if isinstance(frame, RetryFrame):
                self.retry_seconds = frame.milliseconds / 1000
            elif isinstance(frame, EventFrame) and (event := self._take(frame)) is not None:
                yield event

    def _take(self, frame: EventFrame) -> JsonObject | None:
        event = _object(frame.data.encode())
        if "seq" not in event:
            return None  # transient (PROTOCOL §4), or nothing of ours
        seq = event["seq"]
        is_snapshot = event.get("type") == "snapshot"
        expected = "0" if is_snapshot else None if self._last_seq is None else str(self._last_seq + 1)
        if seq != expected:
            raise _StartAnew(f"event {seq} came after {self._last_seq}")
        self._last_seq = int(seq)
        self.place = frame.last_event_id
        return event


def _object(data: bytes) -> JsonObject:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _reason(status: int, body: JsonObject) -> str:
    words = body.get("detail") or body.get("error") or body.get("status")
    return str(words) if words else f"the server answered {status}"


def _words(wrong: Exception) -> str:
    match wrong:
        case httpx2.ConnectError():
            return "nobody answers there"
        case httpx2.ReadTimeout():
            return "the line fell silent"
        case httpx2.TimeoutException():
            return "no answer in time"
        case httpx2.TransportError():
            return "the connection broke"
        case _:
            return str(wrong)
