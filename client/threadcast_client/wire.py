"""HTTP requests to one server: requests with one answer, and streams. Only this module sends requests with httpx2.

Errors of the connection are raised as `Unreachable`, refusals of the server as `Refused`. An answer that permits a
retry is raised as `Busy`, with the pause that the server requests.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeAlias
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import msgspec

from threadcast_client.backoff import RetryPolicy
from threadcast_client.errors import Refused, Unreachable, Unreadable, refusal
from threadcast_protocol.wire.loopback import is_loopback
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["FAILING_PAUSE_MAX_SECONDS", "Busy", "Reply", "Token", "Wire", "path_of", "trouble_of"]

Token: TypeAlias = str | Callable[[], str]
"""A bearer token, or a function that returns the present token and is called before every request."""

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later. After any other refusal, waiting does not help."""

FAILING_PAUSE_MAX_SECONDS = 60.0
"""The longest pause that a failing server may request: as long as a worker waits for its store before it gives up."""


class Busy(Exception):
    """The server asks the client to try later. `retry_seconds`: the requested pause; 0 if none was requested."""

    def __init__(self, reason: str, retry_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class Reply(msgspec.Struct, frozen=True):
    """An answer with a status from 200 to 299. `content` is the body."""

    status: int
    content: bytes

    @property
    def body(self) -> JsonObject:
        """The JSON object in the body; empty for any other body."""
        return _object(self.content)


def path_of(*segments: str) -> str:
    """Return the path `/v1/…` with each segment quoted."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


class Wire:
    """The HTTP connections to one server. Use it as an async context manager; several tasks may share it."""

    def __init__(
        self,
        base_url: str,
        token: Token | None,
        retry_policy: RetryPolicy,
        transport: httpx2.AsyncBaseTransport | None,
        *,
        forward_authorization: Token | None = None,
        awaits_sign_in: bool = False,
    ) -> None:
        """Create the connections.

        `transport` replaces HTTP, for tests. `awaits_sign_in` tells the other modules to try again after status 401,
        because the token may have changed.
        """
        self.base_url = base_url.rstrip("/")
        self.retry_policy = retry_policy
        self.awaits_sign_in = awaits_sign_in
        self._retried: anyio.Event | None = None
        self._token = token
        self._forward_authorization = forward_authorization
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(retry_policy.answer_seconds, connect=retry_policy.connect_seconds),
            limits=httpx2.Limits(max_connections=None),  # each stream holds a connection
            transport=transport,
            trust_env=not is_loopback(urlsplit(self.base_url).hostname or ""),  # a proxy cannot reach the loopback
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def retry(self) -> None:
        """End every present `pause`."""
        retried, self._retried = self._retried, None
        if retried is not None:
            retried.set()

    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt; `retry` ends the wait early."""
        if self._retried is None:
            self._retried = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._retried.wait()

    async def ask(self, method: str, path: str, body: bytes | None = None, *, with_credential: bool = False) -> Reply:
        """Send a request once and return its answer, which must have a status from 200 to 299. `with_credential` adds
        the credential for tools (`forward_authorization`).

        Raises:
            Refused: the server has refused the request.
            Busy: the request may be repeated later.
            Unreachable: the server did not answer.
        """
        response = await self.fetch(method, path, body, with_credential=with_credential)
        if 200 <= response.status_code < 300:
            return Reply(response.status_code, response.content)
        raise trouble_of(response.status_code, response.headers, response.content)

    async def fetch(
        self, method: str, path: str, body: bytes | None = None, *, with_credential: bool = False
    ) -> httpx2.Response:
        """Send a request once and return its answer with any status. `body` is JSON; `with_credential` is as in
        `ask`. Raises Unreachable."""
        headers = self._headers()
        credential = _present(self._forward_authorization) if with_credential else None
        if credential:
            headers["Threadcast-Forward-Authorization"] = credential
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
        """Open one connection of an event stream and yield its bytes.

        Raises:
            Refused: the server has refused the stream.
            Busy: the server asks the client to try later.
            Unreachable: the connection could not be opened, or was lost while the stream was read.
            Unreadable: the server is not a Threadcast server.
        """
        retry_policy = self.retry_policy
        headers = {**self._headers(), "Accept": "text/event-stream", "Cache-Control": "no-cache"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        try:
            async with self._http.stream(
                "GET",
                self.base_url + path,
                params=list(query),
                headers=headers,
                timeout=httpx2.Timeout(retry_policy.silence_seconds, connect=retry_policy.connect_seconds),
            ) as response:
                if response.status_code != 200:
                    raise trouble_of(response.status_code, response.headers, await response.aread())
                kind = response.headers.get("content-type", "").partition(";")[0].strip()
                if kind != "text/event-stream":
                    raise Unreadable(f"{self.base_url} is no threadcast server; correct the address")
                yield response.aiter_bytes()
        except httpx2.RequestError as wrong:
            raise Unreachable(_words(wrong)) from None

    def _headers(self) -> dict[str, str]:
        token = _present(self._token)
        return {"Authorization": f"Bearer {token}"} if token else {}


def _present(token: Token | None) -> str | None:
    return token() if callable(token) else token


def trouble_of(status: int, headers: httpx2.Headers, content: bytes) -> Busy | Refused:
    """Return the error for an answer with a status of 400 or more: `Busy` if a later attempt may succeed."""
    body = _object(content)
    words = body.get("detail") or body.get("error")
    reason = str(words) if words else f"the server answered {status}"
    code = str(body.get("code", ""))
    # `queue_full` is final for this attempt, like an ack with the same code, so the program gets the error (PROTOCOL
    # §3).
    if status in _BUSY and code != "queue_full":
        return Busy(reason, _asked_pause(status, headers.get("retry-after", "")))
    path = body.get("path")
    return refusal(code, reason, status=status, path=path if isinstance(path, str) else None)


def _asked_pause(status: int, retry_after: str) -> float:
    """Return the seconds of a `Retry-After` header (RFC 9110 §10.2.3; the form with a date is ignored). A long pause is
    accepted from a quota (429) only, because a proxy does not know when a failed server will be back."""
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
            return "the answer cannot be decompressed"
        case httpx2.ConnectError():
            return "the server does not answer"
        case httpx2.ReadTimeout():
            return "the connection fell silent"
        case httpx2.TimeoutException():
            return "no answer in time"
        case _:
            return "the connection broke"
