"""Limits the memory of large answers that a process holds until clients have read them (SEC-5).

The content of a chat or a file is in memory until its reader has received it. A caller who requests many such answers
and reads none of them would otherwise fill the memory of the process. `Answers` counts the bytes of such answers, for
each caller and for all callers together. A further request of a caller who reads slowly waits for some seconds before
its content is loaded.

`LargeAnswer` sends such an answer in slices. So the request ends, and its bytes are no longer counted, only when the
client has read nearly the whole answer.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadcast.api.errors import ANSWER_ROOM
from threadcast.base.telemetry import Metrics
from threadcast_protocol.wire.errors import RateLimited, Unavailable

__all__ = ["SLICE_BYTES", "AnswerRoom", "Answers", "LargeAnswer"]

SLICE_BYTES = 65_536
"""Bytes of an answer that are passed to the connection in one slice. The connection holds at most two slices."""

LOADED_AT_ONCE = 2
"""Maximum number of answers of one caller that are loaded at the same time: during loading and encoding, the content of
an answer is in memory several times."""

WAIT_SECONDS = 10.0
"""Seconds that a request waits until the client has read enough of the caller's other answers."""


class _Account:
    """Counts the answers of one caller."""

    def __init__(self, principal_id: str) -> None:
        self.principal_id = principal_id
        self.requests = 0
        """The number of requests that wait for this account or load an answer."""
        self.held_bytes = 0
        self.loading = anyio.Semaphore(LOADED_AT_ONCE)
        self.freed = anyio.Event()


class AnswerRoom:
    """Counts the bytes of one request's answer until `give_back`."""

    def __init__(self, answers: "Answers", account: _Account) -> None:
        self._answers = answers
        self._account = account
        self._held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes that are now in memory."""
        self._held_bytes += size_bytes
        self._answers.hold(self._account, size_bytes)

    def give_back(self) -> None:
        freed, self._held_bytes = self._held_bytes, 0
        self._answers.hold(self._account, -freed)


class Answers:
    """Counts the bytes of answers that clients have not read yet."""

    def __init__(
        self, metrics: Metrics, per_principal_bytes: int, max_bytes: int, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._metrics = metrics
        self._per_principal_bytes = per_principal_bytes
        self._max_bytes = max_bytes
        self._wait_seconds = wait_seconds
        self._accounts: dict[str, _Account] = {}
        self._total_bytes = 0

    @asynccontextmanager
    async def turn(self, request: Request, size_bytes: int = 0) -> AsyncIterator[AnswerRoom]:
        """Wait until the caller may load another answer; the block then loads the answer. `size_bytes` is the size of
        the answer if it is known before the block; otherwise the block calls `take`. The bytes stay counted until
        `give_back`, or until the request has ended (`ErrorBoundary`).

        If sizes are not known before, a caller may exceed its limit by the answers of `LOADED_AT_ONCE` requests. A
        single answer may have any size.

        Raises:
            RateLimited: the client has not read enough of the caller's other answers in time.
            Unavailable: the unread answers of all callers together have reached their maximum.
        """
        principal_id: str = request.state.principal_id
        account = self._accounts.setdefault(principal_id, _Account(principal_id))
        account.requests += 1
        has_turn = False
        try:
            with anyio.move_on_after(self._wait_seconds) as waiting:
                await account.loading.acquire()
                has_turn = True
                while account.held_bytes and account.held_bytes + max(1, size_bytes) > self._per_principal_bytes:
                    await account.freed.wait()
            if waiting.cancelled_caught:
                raise RateLimited(
                    f"{account.held_bytes:,} bytes of answers to you wait for their readers, who may leave at most "
                    f"{self._per_principal_bytes:,} unread (limits.answers_per_principal_bytes); read them first"
                )
            if self._total_bytes >= self._max_bytes:
                raise Unavailable("this server holds as many bytes of unread answers as it may just now; try again")
            room: AnswerRoom | None = request.scope.get(ANSWER_ROOM)
            if room is None:
                room = request.scope[ANSWER_ROOM] = AnswerRoom(self, account)
            room.take(size_bytes)
            yield room
        finally:
            if has_turn:
                account.loading.release()
            account.requests -= 1
            self._forget_idle(account)

    def hold(self, account: _Account, size_bytes: int) -> None:
        """Count bytes, or uncount them if `size_bytes` is negative."""
        account.held_bytes += size_bytes
        self._total_bytes += size_bytes
        self._metrics.answer_bytes_inflight.inc(size_bytes)
        if size_bytes < 0:
            account.freed.set()
            account.freed = anyio.Event()
            self._forget_idle(account)

    def _forget_idle(self, account: _Account) -> None:
        """Remove the account of a caller who has no requests and no unread answers."""
        if not account.requests and not account.held_bytes:
            self._accounts.pop(account.principal_id, None)


class LargeAnswer(Response):
    """An answer that is sent in slices: a slice is sent when the client has read the slices before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        size = len(self.body)
        for start in range(0, max(size, 1), SLICE_BYTES):
            end = start + SLICE_BYTES
            await send({"type": "http.response.body", "body": bytes(self.body[start:end]), "more_body": end < size})
