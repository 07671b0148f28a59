"""The way to Redis: connections, deadlines, the foreign errors, and one pipeline for all who speak in the same tick.

It does not know what a command means. `Redis` owns a few lanes, each one connection and one task. Commands issued in
the same tick of the event loop leave in one pipeline; while all lanes are busy, the next ones gather, so batches grow
with the load and a lone command never waits. Each caller gets its own answer or its own error.

Nothing is sent twice: redis-py's retries are off, and the only repeat is that of a script which the server did not
know (NOSCRIPT: it did not run). A write without an answer is `Unavailable`; its caller repeats the same arguments.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection

from protocol.errors import Internal, ThreadcastError, Unavailable
from server.deadlines import Deadline
from server.store.route import CONNECT_TIMEOUT_SECONDS, Route, Value, pack, progress_of
from server.store.scripts import SCRIPTS

__all__ = [
    "COMMAND_TIMEOUT_SECONDS",
    "CONNECT_TIMEOUT_SECONDS",
    "AccessRefused",
    "Commands",
    "Redirected",
    "Redis",
    "Reply",
    "ScriptMissing",
    "Value",
    "explain_error",
    "pack",
]

Reply = Any  # Any: a reply is whatever nest of bytes, ints, None and lists the command promises; its caller knows

COMMAND_TIMEOUT_SECONDS = 2.0
"""Limits the wait for a free lane, and again the exchange. So a command of ordinary size has its answer or its error
after 4 s, and later only while its bytes keep moving, at least every 2 s. No lease depends on it: an owner whose
beat hangs fences itself by a clock of its own (`actor/host.py`)."""

SECONDS_PER_MB = 0.5
"""Extra time for a command, by its size: a store on a busy machine needs seconds to read a blob of 16 MB from its
socket."""

LARGE_BYTES, LARGE_LANES = 262_144, 2
"""A larger command is sent alone, since a beat behind 16 MB on a slow line would lose its lease. Large commands use at
most so many lanes at a time, so that the other lanes stay free for small commands."""

LANES = 4
"""Pipelines in flight at most: one slow reply (a load of megabytes) leaves three ways past it, and more would only
make the batches smaller, hence dearer, under load."""

BATCH_MAX = 256
"""Commands in one pipeline: some milliseconds of Redis, far inside the deadline they share."""

PENDING_MAX = 20_000
"""Commands waiting for a lane. Reached: Unavailable at once, since waiting longer than the deadline helps nobody."""

_ASKING = pack(b"ASKING")

_REFUSALS = {
    "OOM": "the store's memory is full",
    "READONLY": "the store is a read-only replica just now",
    "MISCONF": "the store cannot write to its disk",
    "NOREPLICAS": "the store has too few replicas to accept writes",
    "LOADING": "the store is still loading its data",
    "MASTERDOWN": "the store's primary is away",
    "CLUSTERDOWN": "the store's cluster is down",
    "TRYAGAIN": "the store is moving its data",
    "BUSY": "the store is busy with a script",
    "UNBLOCKED": "the store changed its role",
}
"""The first word of Redis's error, in a sentence for people. All may pass without a change on the caller's side."""

_ACCESS_REFUSALS = {
    "NOAUTH": "the store asks for a password",
    "WRONGPASS": "the store refuses the user or password",
    "NOPERM": "the store's user may not do this",
}
"""Sentences for the errors that last until the configuration is changed, here or at the store."""

_TEXTS: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.BusyLoadingError, _REFUSALS["LOADING"]),
    (redis_errors.OutOfMemoryError, _REFUSALS["OOM"]),
    (redis_errors.ReadOnlyError, _REFUSALS["READONLY"]),
    (redis_errors.MasterDownError, _REFUSALS["MASTERDOWN"]),
    (redis_errors.ClusterDownError, _REFUSALS["CLUSTERDOWN"]),
    (redis_errors.TryAgainError, _REFUSALS["TRYAGAIN"]),
    (redis_errors.TimeoutError, "the store does not answer"),
    (redis_errors.ConnectionError, "the store cannot be reached"),
    (TimeoutError, "the store does not answer"),
    (OSError, "the store cannot be reached"),
    (RuntimeError, "the store cannot be reached"),
)
"""Classes for which redis-py drops the first word, and those it raises itself; the first that fits counts. RuntimeError
is uvloop's word for a write to a connection that was reset a moment ago."""


def explain_error(wrong: Exception) -> ThreadcastError:
    """Our error for a foreign one. The only place where redis exceptions end."""
    if isinstance(wrong, redis_errors.AskError):  # MOVED too
        return Redirected(wrong)
    if isinstance(wrong, redis_errors.NoPermissionError):
        return AccessRefused(_ACCESS_REFUSALS["NOPERM"])
    # Over a unix socket redis-py wraps it in a ConnectionError.
    if isinstance(wrong, redis_errors.AuthenticationError) or isinstance(
        wrong.__cause__, redis_errors.AuthenticationError
    ):
        return AccessRefused(f"{_ACCESS_REFUSALS['WRONGPASS']} ({wrong})")
    for kind, text in _TEXTS:
        if isinstance(wrong, kind):
            return Unavailable(f"{text} ({wrong})" if str(wrong) else text)
    words = str(wrong).split(" ", 1)
    if words[0] in _REFUSALS:
        return Unavailable(_REFUSALS[words[0]])
    if words[0] in _ACCESS_REFUSALS:
        return AccessRefused(_ACCESS_REFUSALS[words[0]])
    if isinstance(wrong, ThreadcastError):
        return wrong
    return Internal(f"the store answered with an error: {wrong}")


class _Command:
    """One packed command, who waits for it, and when waiting ends (event-loop seconds)."""

    __slots__ = ("answer", "expires_at", "packed")

    def __init__(self, packed: bytes, answer: "asyncio.Future[Reply]", expires_at: float) -> None:
        self.packed = packed
        self.answer = answer
        self.expires_at = expires_at

    @property
    def is_large(self) -> bool:
        return len(self.packed) > LARGE_BYTES

    def fail(self, wrong: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(explain_error(wrong))


def _seconds_for(size_bytes: int) -> float:
    """Return the time for commands of this total size: to wait for a lane, and again for the exchange."""
    return COMMAND_TIMEOUT_SECONDS + SECONDS_PER_MB * size_bytes / 1_000_000


def _is_wanted(command: _Command, now: float) -> bool:
    """Return whether the command still needs an answer; fails it first if its time is up. False if its caller was
    cancelled."""
    if command.expires_at < now:
        command.fail(TimeoutError())
    return not command.answer.done()


class AccessRefused(Unavailable):
    """The store refuses the user or password of store.url. A process that starts ends with it, one that runs waits:
    the password may be about to be changed there."""


class ScriptMissing(ThreadcastError):
    """NOSCRIPT, on its way from a lane to `call`."""


class Redirected(Unavailable):
    """MOVED or ASK: another node of a Cluster has the slot, so the command did not run."""

    def __init__(self, wrong: redis_errors.AskError) -> None:
        super().__init__(
            f"slot {wrong.slot_id} is served by {wrong.node_addr[0]}:{wrong.node_addr[1]}: "
            "the store is a Cluster, write store.url as redis+cluster://host:port"
        )
        self.slot: int = wrong.slot_id
        self.host: str = wrong.node_addr[0]
        self.port: int = wrong.node_addr[1]
        self.is_ask = not isinstance(wrong, redis_errors.MovedError)


class Commands(Protocol):
    """What the nouns say to the store, be it one server (`Redis`) or many (`cluster.Cluster`)."""

    def send(self, *command: Value) -> "asyncio.Future[Reply]": ...

    async def call(self, name: str, keys: Sequence[bytes], *arguments: Value) -> Reply: ...

    async def all(self, commands: Sequence[Sequence[Value]]) -> list[Reply]: ...

    async def everyone(self, *command: Value) -> list[Reply]:
        """The reply of each server that can be reached, for what is asked of a server and not of a key."""


class Redis:
    """A few lanes to one Redis. Enter it once; entering opens nothing, the first command connects."""

    def __init__(self, route: Route, *, lanes: int = LANES) -> None:
        self.route = route
        self._lane_count = lanes
        self._pending: deque[_Command] = deque()
        self._large: deque[list[_Command]] = deque()  # batches of one, taken from the pending ones
        self._large_lanes = 0
        self._idle: list[asyncio.Future[None]] = []
        self._is_waking = False
        self._exit = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        """The group of everything that lives as long as the store."""
        if self._tasks is None:
            raise Internal("the store was used outside of its `async with`")
        return self._tasks

    async def __aenter__(self) -> "Redis":
        self._tasks = await anyio.create_task_group().__aenter__()
        for _ in range(self._lane_count):
            self._tasks.start_soon(self._lane)
        self._tasks.start_soon(self.route.watch, self.send)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self.tasks, None
        tasks.cancel_scope.cancel()
        # An error of the body goes on as it is; only a cancellation concerns the group, which may have caused it.
        if isinstance(wrong, asyncio.CancelledError):
            await tasks.__aexit__(kind, wrong, trace)
        else:
            await tasks.__aexit__(None, None, None)
        for command in (*self._pending, *(each for batch in self._large for each in batch)):
            command.fail(Unavailable("the store is being closed"))
        self._pending.clear()
        self._large.clear()
        if self.route.finder is not None:
            await self.route.finder.close()

    # what the rooms say

    def send(self, *command: Value) -> "asyncio.Future[Reply]":
        """Queue a command now, await its reply later: many of them, sent together, are one pipeline."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply] = loop.create_future()
        if self._tasks is None or len(self._pending) >= PENDING_MAX:
            answer.set_exception(Unavailable("the store is closed" if self._tasks is None else "the store is too slow"))
            return answer
        packed = pack(*command)
        self._pending.append(_Command(packed, answer, loop.time() + _seconds_for(len(packed))))
        if not self._is_waking:
            self._wake_lane()
        return answer

    async def call(self, name: str, keys: Sequence[bytes], *arguments: Value) -> Reply:
        """Run a script. Raises Unavailable; then it ran once or not at all."""
        script = SCRIPTS[name]
        command = (b"EVALSHA", script.sha, len(keys), *keys, *arguments)
        try:
            return await self.send(*command)
        except ScriptMissing:
            await self.send(b"SCRIPT", b"LOAD", script.source)
        try:
            return await self.send(*command)
        except ScriptMissing:  # another server has answered: a second change of the primary, or a proxy over several
            raise Unavailable("the store forgets its scripts") from None

    async def all(self, commands: Sequence[Sequence[Value]]) -> list[Reply]:
        """The replies of commands that leave in one pipeline; the first error is raised after all have answered."""
        answers = [self.send(*command) for command in commands]
        results = await asyncio.gather(*answers, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def everyone(self, *command: Value) -> list[Reply]:
        return [await self.send(*command)]

    async def load_scripts(self) -> None:
        """Raises Internal when the server does not know our kind of script."""
        try:
            await self.all([(b"SCRIPT", b"LOAD", script.source) for script in SCRIPTS.values()])
        except Internal as wrong:
            raise Internal(f"the store must be Redis 7.0 or newer, or Valkey: {wrong.message}") from None

    # the lanes

    def _wake_lane(self) -> None:
        while self._idle:
            waiter = self._idle.pop()  # the last to rest is the warmest
            if not waiter.done():
                waiter.set_result(None)
                self._is_waking = True
                return

    async def _lane(self) -> None:
        connection = self.route.connection()
        loop = asyncio.get_running_loop()
        try:
            while True:
                batch = self._next_batch(loop.time())
                if batch:
                    await (self._exchange_large if batch[-1].is_large else self._exchange)(connection, batch)
                    continue
                rest: asyncio.Future[None] = loop.create_future()
                self._idle.append(rest)
                await rest
        finally:
            with suppress(Exception):  # closing a broken connection may fail; there is nothing left to lose
                await connection.disconnect(nowait=True)

    def _next_batch(self, now: float) -> list[_Command]:
        """Runs one tick after the waking, so that it finds all that was said in that tick."""
        self._is_waking = False
        batch: list[_Command] = []
        while self._pending and len(batch) < BATCH_MAX:
            command = self._pending.popleft()
            if command.is_large:
                is_asked = bool(batch) and batch[-1].packed == _ASKING  # which speaks of the next command
                self._large.append([batch.pop(), command] if is_asked else [command])
            elif _is_wanted(command, now):
                batch.append(command)
        while not batch and self._large and self._large_lanes < LARGE_LANES:
            batch = [command for command in self._large.popleft() if _is_wanted(command, now)]
        if self._pending or (self._large and self._large_lanes < LARGE_LANES):
            self._wake_lane()
        return batch

    async def _exchange_large(self, connection: AbstractConnection, batch: list[_Command]) -> None:
        """As `_exchange`. After a success, the commands that wait for a lane get their full time again."""
        self._large_lanes += 1
        try:
            await self._exchange(connection, batch)
        finally:
            self._large_lanes -= 1
        if batch[-1].answer.cancelled() or batch[-1].answer.exception() is None:
            now = asyncio.get_running_loop().time()
            for command in (each for waiting in self._large for each in waiting):
                command.expires_at = now + _seconds_for(len(command.packed))

    async def _exchange(self, connection: AbstractConnection, batch: list[_Command]) -> None:
        """One pipeline, out and back. Boundary: whatever goes wrong goes to the callers, the lane lives on."""
        answered = 0
        try:
            packed = b"".join([command.packed for command in batch])
            async with Deadline(COMMAND_TIMEOUT_SECONDS, partial(progress_of, connection)) as deadline:
                deadline.allow(_seconds_for(len(packed)))
                await self.route.open(connection)
                await connection.send_packed_command([packed], False)
                for command in batch:
                    try:
                        reply = await connection.read_response()
                    except redis_errors.NoScriptError:
                        wrong: Exception = ScriptMissing("NOSCRIPT")
                    except redis_errors.ResponseError as refused:
                        wrong = explain_error(refused)
                        self.route.leave_if_demoted(connection, refused)
                    else:
                        answered += 1
                        if not command.answer.done():
                            command.answer.set_result(reply)
                        continue
                    answered += 1
                    if not command.answer.done():
                        command.answer.set_exception(wrong)
        except Exception as wrong:
            await self._drop(connection)
            for command in batch[answered:]:
                command.fail(wrong)
        except asyncio.CancelledError:
            for command in batch[answered:]:
                command.fail(Unavailable("the store is being closed"))
            raise

    @staticmethod
    async def _drop(connection: AbstractConnection) -> None:
        """Replies may still be on their way: this connection must not be used again."""
        with suppress(Exception):
            await connection.disconnect(nowait=True)
