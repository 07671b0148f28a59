"""HTTP to one server: requests with one answer, and the opening of streams. The only file that knows httpx2.

It knows no chat and keeps nothing. The one rule: whatever goes wrong on the way is `Unreachable`, whatever the server
says no to is a `Refused`, and everything that may be tried again is `Busy`, with the time that the server asked for.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeAlias
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from protocol.loopback import is_loopback
from protocol.messages import JsonObject
from threadcast.backoff import Patience
from threadcast.errors import Refused, Unreachable, Unreadable, refusal

__all__ = ["FAILING_PAUSE_MAX_SECONDS", "Busy", "Reply", "Token", "Wire", "path_of", "trouble_of"]

Token: TypeAlias = str | Callable[[], str]
"""A bearer token, or who gives the one that is good now: it is asked before every request."""

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which the same may be asked again; any other refusal will not change by waiting."""

FAILING_PAUSE_MAX_SECONDS = 60.0
"""What a failing server may ask us to stay away for: as long as a worker waits for its store before it gives up."""


class Busy(Exception):
    """Not now. `retry_seconds`: what the server asked for, 0 if it did not say."""

    def __init__(self, reason: str, retry_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class Reply(msgspec.Struct, frozen=True):
    """An answer of 200 to 299. `content` are its bytes."""

    status: int
    content: bytes

    @property
    def body(self) -> JsonObject:
        """The JSON object that it holds; empty when it is none."""
        return _object(self.content)


def path_of(*segments: str) -> str:
    """`/v1/…` with each segment quoted."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


class Wire:
    """Enter it once; several tasks may use it at a time."""

    def __init__(
        self, base_url: str, token: Token | None, patience: Patience, transport: httpx2.AsyncBaseTransport | None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.patience = patience
        self._token = token
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(patience.answer_seconds, connect=patience.connect_seconds),
            limits=httpx2.Limits(max_connections=None),  # streams hold theirs; what opens one is bounded by its caller
            transport=transport,
            trust_env=not is_loopback(urlsplit(self.base_url).hostname or ""),  # no proxy leads to our own machine
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """One request, once.

        Raises:
            Refused: the server says no.
            Busy: it may be asked again.
            Unreachable: no answer.
        """
        response = await self._send(method, path, body)
        if 200 <= response.status_code < 300:
            return Reply(response.status_code, response.content)
        raise trouble_of(response.status_code, response.headers, response.content)

    async def fetch(self, method: str, path: str) -> httpx2.Response:
        """One request, once, with whatever it is answered. Raises Unreachable."""
        return await self._send(method, path, None)

    async def _send(self, method: str, path: str, body: bytes | None) -> httpx2.Response:
        headers = self._headers()
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            return await self._http.request(method, self.base_url + path, content=body, headers=headers)
        except httpx2.RequestError as wrong:
            raise Unreachable(f"{self.base_url}: {_words(wrong)}") from None

    @asynccontextmanager
    async def stream(
        self, path: str, query: Sequence[tuple[str, str]] = (), last_event_id: str = ""
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of one connection, as they come; reading them may raise Unreachable.

        Raises:
            Refused: the stream will not be given.
            Busy: not now.
            Unreachable: no connection, or it broke.
            Unreadable: who answers is no Threadcast server.
        """
        patience = self.patience
        headers = {**self._headers(), "Accept": "text/event-stream", "Cache-Control": "no-cache"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        try:
            async with self._http.stream(
                "GET",
                self.base_url + path,
                params=list(query),
                headers=headers,
                timeout=httpx2.Timeout(patience.silence_seconds, connect=patience.connect_seconds),
            ) as response:
                if response.status_code != 200:
                    raise trouble_of(response.status_code, response.headers, await response.aread())
                kind = response.headers.get("content-type", "").partition(";")[0].strip()
                if kind != "text/event-stream":
                    raise Unreadable(f"{self.base_url} is no threadcast server")
                yield response.aiter_bytes()
        except httpx2.RequestError as wrong:
            raise Unreachable(_words(wrong)) from None

    def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}


def trouble_of(status: int, headers: httpx2.Headers, content: bytes) -> Busy | Refused:
    """What an answer of 400 or more means: ask again later, or never."""
    body = _object(content)
    words = body.get("detail") or body.get("error")
    reason = str(words) if words else f"the server answered {status}"
    code = str(body.get("code", ""))
    # An ack says `queue_full` too, so it is a final word on this try, and whoever sent it must know (PROTOCOL §3).
    if status in _BUSY and code != "queue_full":
        return Busy(reason, _asked_pause(status, headers.get("retry-after", "")))
    path = body.get("path")
    return refusal(code, reason, status=status, path=path if isinstance(path, str) else None)


def _asked_pause(status: int, retry_after: str) -> float:
    """Seconds (RFC 9110 §10.2.3; the form with a date is not read). A quota may ask for long, a server that fails may
    not: a proxy in front of it does not know when it is back."""
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else 0.0
    return seconds if status == 429 else min(seconds, FAILING_PAUSE_MAX_SECONDS)


def _object(content: bytes) -> JsonObject:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _words(wrong: httpx2.RequestError) -> str:
    match wrong:
        case httpx2.DecodingError():
            return "what came cannot be decompressed"
        case httpx2.ConnectError():
            return "nobody answers there"
        case httpx2.ReadTimeout():
            return "the line fell silent"
        case httpx2.TimeoutException():
            return "no answer in time"
        case _:
            return "the connection broke"
