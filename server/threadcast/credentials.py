"""Keeps in memory the credentials with which tools act in the names of callers (TOOL-7).

When a request has a command that starts a run, the web process keeps the value of the header `FORWARD_HEADER`. If this
header is missing and the server has no tokens, the web process keeps the value of the header `Authorization`. A token
of this server is neither kept nor passed to a tool.

A worker that runs a tool of this run first looks for the value in its own process. If the value is not there, the
worker requests it by an ephemeral pub/sub message, and waits at most `CREDENTIAL_REPLY_SECONDS`. The key of a value
consists of principal, chat and request, so a run never gets another caller's value. Values are never stored or logged.
"""

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence

import anyio
import msgspec
import structlog

from threadcast.store.ports import PubSub
from threadcast_protocol.wire.errors import BadRequest, Failed

__all__ = [
    "CREDENTIAL_REPLY_SECONDS",
    "FORWARD_HEADER",
    "HELD_MAX",
    "HOLD_SECONDS",
    "VALUE_MAX_CHARACTERS",
    "CredentialCache",
]

FORWARD_HEADER = "Threadcast-Forward-Authorization"
"""The header with the value that tools send to their services as `Authorization`. Callers do not send this value in the
header `Authorization`, because that header has the token of this server. With this token, a service could act as the
caller on this server."""

HELD_MAX = 10_000
"""The maximum number of values that one process keeps. If there are more values, the oldest value is dropped. This
number of values takes 10 MB if each token has the usual kilobyte, and at most 80 MB."""

HOLD_SECONDS = 1_800.0
"""Seconds that a value is kept: half of the hour that access tokens are usually valid. A value is not dropped at the
end of its run, because a web process does not follow the runs."""

VALUE_MAX_CHARACTERS = 8_192
"""The maximum number of characters of a value, which is the usual limit of a header line. A longer value is refused."""

CREDENTIAL_REPLY_SECONDS = 1.0
"""Seconds that a worker waits for an answer. A process that has the value answers from memory. If no answer arrives in
this time, no process has the value."""

PAUSE_SECONDS = 1.0
"""Seconds between attempts to subscribe while the store does not answer."""

TOPIC = "authorization"

_log = structlog.get_logger()


class _Ask(msgspec.Struct, frozen=True):
    nonce: str
    principal_id: str
    chat_id: str
    request_ids: list[str]


_asks = msgspec.json.Decoder(_Ask)


class CredentialCache:
    """Keeps the values of this process. The cache of a separate worker is empty and requests values from the web
    processes. `token_hashes` are the SHA-256 hashes of this server's own tokens, in hexadecimal."""

    def __init__(self, store: PubSub, token_hashes: Collection[str] = ()) -> None:
        self._store = store
        self._token_hashes = frozenset(token_hashes)
        self._held: OrderedDict[tuple[str, str, str], tuple[float, str]] = OrderedDict()

    def value_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the credential for tools from the headers of a request, or None if the headers have no credential.
        `headers` must ignore the case of names.

        Raises:
            BadRequest: the value is too long, or contains a token of this server.
        """
        value = headers.get(FORWARD_HEADER)
        if value is None:
            return None if self._token_hashes else headers.get("authorization")
        if len(value) > VALUE_MAX_CHARACTERS:
            raise BadRequest(f"{FORWARD_HEADER} has more than {VALUE_MAX_CHARACTERS} characters")
        if self._is_own(value):
            raise BadRequest(
                f"{FORWARD_HEADER} has a token of this server, with which the tool's service could act as you here; "
                "send the credential of that service"
            )
        return value

    def hold(self, principal_id: str, chat_id: str, request_id: str, value: str | None) -> None:
        """Keep the value of a request. Call this method before the command is posted, so that the value is available
        when the run begins."""
        if value is None or len(value) > VALUE_MAX_CHARACTERS or self._is_own(value):
            return
        now = time.monotonic()
        key = (principal_id, chat_id, request_id)
        self._held[key] = (now + HOLD_SECONDS, value)
        self._held.move_to_end(key)
        while len(self._held) > HELD_MAX or next(iter(self._held.values()))[0] <= now:
            self._held.popitem(last=False)

    def forget(self, principal_id: str, chat_id: str, request_id: str) -> None:
        """Drop the value of a request whose command was refused."""
        self._held.pop((principal_id, chat_id, request_id), None)

    async def authorization(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        """Return the value that was sent with the latest of these requests, from any process that keeps such a value.
        Returns None if no process answers, or if the value is a token of this server. An older version of a web process
        may send such a token."""
        value = await self._asked(principal_id, chat_id, request_ids)
        if value is not None and self._is_own(value):
            _log.warning("authorization.own_token", chat_id=chat_id)
            return None
        return value

    async def _asked(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        value = self._find(principal_id, chat_id, request_ids)
        if value is not None:
            return value
        ask = _Ask(secrets.token_hex(16), principal_id, chat_id, list(request_ids))
        try:
            with anyio.move_on_after(CREDENTIAL_REPLY_SECONDS):
                async with self._store.subscribe(_answer_topic(ask)) as answers:
                    if not await self._store.publish(TOPIC, msgspec.json.encode(ask)):
                        return None
                    async for payload in answers:
                        if payload is not None:
                            return payload.decode()
        except (Failed, UnicodeDecodeError) as trouble:
            _log.warning("authorization.not_asked", chat_id=chat_id, error=type(trouble).__name__)
        return None

    async def answer(self) -> None:
        """Answer the requests of other processes until cancelled. While the store does not answer, try to subscribe
        again after each pause."""
        while True:
            try:
                async with self._store.subscribe(TOPIC) as asked:
                    async for payload in asked:
                        await self._answer(payload)
            except Failed:
                pass
            await anyio.sleep(PAUSE_SECONDS)

    async def sweep(self) -> None:
        """Drop expired values until cancelled."""
        while True:
            await anyio.sleep(HOLD_SECONDS / 30)
            now = time.monotonic()
            while self._held and next(iter(self._held.values()))[0] <= now:
                self._held.popitem(last=False)

    async def _answer(self, payload: bytes | None) -> None:
        try:
            ask = None if payload is None else _asks.decode(payload)
        except msgspec.DecodeError:
            return  # sent by another version, or by another program that uses the store
        value = self._find(ask.principal_id, ask.chat_id, ask.request_ids) if ask is not None else None
        if ask is not None and value is not None:
            await self._store.publish(_answer_topic(ask), value.encode())

    def _is_own(self, value: str) -> bool:
        """Return whether one of the words in a header's value is a token of this server."""
        return any(
            hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest() in self._token_hashes
            for word in (_words(value) if self._token_hashes else ())
        )

    def _find(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        now = time.monotonic()
        for request_id in reversed(request_ids):
            until, value = self._held.get((principal_id, chat_id, request_id), (now, ""))
            if until > now:
                return value
        return None


def _answer_topic(ask: _Ask) -> str:
    return f"authorization:{ask.nonce}"


def _words(value: str) -> Iterator[str]:
    """Yield all parts of a header's value that may be a token: the value without its scheme, its words, and the user
    and password of Basic authentication (RFC 7617)."""
    credential = value.partition(" ")[2].strip()
    yield value.strip()
    yield credential
    yield from re.split(r"[\s,;:=\"']+", value)
    try:
        decoded = base64.b64decode(credential, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield decoded
    yield from decoded.split(":")
