"""The callers' `Authorization` values, for tools that act in their name (TOOL-7): held in memory, written nowhere.

A web process holds what came with a command that starts a run; the worker that runs a tool of this run asks for it, in
the same process directly, else by a whisper, which no store keeps. A value is known by principal, chat and request, so
that nobody's run gets another's. It knows neither HTTP nor tools. The rule: a value is shown to nothing but its answer,
and whoever asks waits no longer than `ANSWER_SECONDS`.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence

import anyio
import msgspec
import structlog

from protocol.errors import Failed
from server.store.port import Store

__all__ = ["ANSWER_SECONDS", "HELD_MAX", "HOLD_SECONDS", "VALUE_MAX_CHARACTERS", "Vault"]

HELD_MAX = 10_000
"""Values in one process, the oldest out first: 10 MB of tokens of the usual kilobyte, 80 MB at worst."""

HOLD_SECONDS = 1_800.0
"""How long a run may want it: half of the hour that access tokens usually live. It is not dropped sooner, because a web
process does not follow the runs of its callers."""

VALUE_MAX_CHARACTERS = 8_192
"""What servers accept as a header line; longer ones are not held."""

ANSWER_SECONDS = 1.0
"""Whoever holds it answers from memory; longer means that nobody does."""

PAUSE_SECONDS = 1.0
"""Between attempts while the store does not answer."""

TOPIC = "authorization"

_log = structlog.get_logger()


class _Ask(msgspec.Struct, frozen=True):
    nonce: str
    principal_id: str
    chat_id: str
    request_ids: list[str]


_asks = msgspec.json.Decoder(_Ask)


class Vault:
    """All values that this process holds; a worker's is empty, and asks the others."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: OrderedDict[tuple[str, str, str], tuple[float, str]] = OrderedDict()

    def hold(self, principal_id: str, chat_id: str, request_id: str, value: str | None) -> None:
        """Before the command is posted, so that no run can be faster."""
        if value is None or len(value) > VALUE_MAX_CHARACTERS:
            return
        now = time.monotonic()
        key = (principal_id, chat_id, request_id)
        self._held[key] = (now + HOLD_SECONDS, value)
        self._held.move_to_end(key)
        while len(self._held) > HELD_MAX or next(iter(self._held.values()))[0] <= now:
            self._held.popitem(last=False)

    def forget(self, principal_id: str, chat_id: str, request_id: str) -> None:
        """The command was refused."""
        self._held.pop((principal_id, chat_id, request_id), None)

    async def authorization(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        """The value that came with the latest of these requests, wherever it is held; None: nobody answers."""
        value = self._find(principal_id, chat_id, request_ids)
        if value is not None:
            return value
        ask = _Ask(secrets.token_hex(16), principal_id, chat_id, list(request_ids))
        try:
            with anyio.move_on_after(ANSWER_SECONDS):
                async with self._store.overhear(_answer_topic(ask)) as answers:
                    if not await self._store.whisper(TOPIC, msgspec.json.encode(ask)):
                        return None
                    async for payload in answers:
                        if payload is not None:
                            return payload.decode()
        except (Failed, UnicodeDecodeError) as trouble:
            _log.warning("authorization.not_asked", chat_id=chat_id, error=type(trouble).__name__)
        return None

    async def answer(self) -> None:
        """Answer what other processes ask, until cancelled; trouble with the store is waited out."""
        while True:
            try:
                async with self._store.overhear(TOPIC) as asked:
                    async for payload in asked:
                        await self._answer(payload)
            except Failed:
                pass
            await anyio.sleep(PAUSE_SECONDS)

    async def sweep(self) -> None:
        """Drop what is too old, until cancelled."""
        while True:
            await anyio.sleep(HOLD_SECONDS / 30)
            now = time.monotonic()
            while self._held and next(iter(self._held.values()))[0] <= now:
                self._held.popitem(last=False)

    async def _answer(self, payload: bytes | None) -> None:
        try:
            ask = None if payload is None else _asks.decode(payload)
        except msgspec.DecodeError:
            return  # written by another version, or by somebody who reaches the store
        value = self._find(ask.principal_id, ask.chat_id, ask.request_ids) if ask is not None else None
        if ask is not None and value is not None:
            await self._store.whisper(_answer_topic(ask), value.encode())

    def _find(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        now = time.monotonic()
        for request_id in reversed(request_ids):
            until, value = self._held.get((principal_id, chat_id, request_id), (now, ""))
            if until > now:
                return value
        return None


def _answer_topic(ask: _Ask) -> str:
    return f"authorization:{ask.nonce}"
