"""Sends commands to Redis: connections, deadlines, error translation, and one pipeline for the commands of one tick.

`Redis` has a few lanes. A lane is one connection and one task. Commands issued in the same tick of the event loop are
sent in one pipeline. While all lanes are busy, further commands are queued. So the batches grow with the load, and
without load no command waits. Each caller gets its own answer or its own error.

redis-py's retries are off, so that no command is executed twice. Only a script that the server did not have (NOSCRIPT)
is sent again, because the script did not run. A write without an answer raises `Unavailable`, and its caller repeats
the call with the same arguments.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection

from threadcast.base.deadlines import Deadline
from threadcast.store.redis.command import (
    COMMAND_TIMEOUT_SECONDS,
    Command,
    OnReply,
    Reply,
    is_wanted,
    seconds_for,
)
from threadcast.store.redis.scripts import SCRIPTS, Script
from threadcast.store.topology.route import (
    CONNECT_TIMEOUT_SECONDS,
    NOT_AT_HAND,
    Route,
    Value,
    hang_up,
    pack,
    progress_of,
    reply_at_hand,
    reply_or_refusal,
)
from threadcast_protocol.wire.errors import Internal, StoreFull, ThreadcastError, Unavailable

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

LARGE_LANES = 2
"""The maximum number of lanes that large commands use at a time. The other lanes stay free for small commands."""

LANES = 4
"""The maximum number of pipelines in flight. While one lane waits for a slow reply (a load of megabytes), three lanes
are free. With more lanes the batches would be smaller, and would cost more under load."""

BATCH_MAX = 256
"""The maximum number of commands in one pipeline. Redis executes this number in some milliseconds, far below the
deadline of the pipeline."""

PENDING_MAX = 20_000
"""The maximum number of commands that wait for a lane. A further command fails at once with Unavailable, because it
would wait past its deadline."""

_ASKING = pack(b"ASKING")

_REFUSALS = {
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
"""Sentences for users, by the first word of Redis's error. These errors may end without any action of the caller."""

_ACCESS_REFUSALS = {
    "NOAUTH": "the store asks for a password",
    "WRONGPASS": "the store refuses the user or password",
    "NOPERM": "the store's user may not do this",
}
"""Sentences for users, by the first word of Redis's error. These errors last until the configuration of Threadcast or
of the store is changed."""

_TEXTS: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.BusyLoadingError, _REFUSALS["LOADING"]),
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
"""Sentences for users, by exception class: for errors whose first word redis-py removes, and for redis-py's own errors.
The first matching class counts. uvloop raises RuntimeError for a write to a connection that has just been reset."""


def explain_error(wrong: Exception) -> ThreadcastError:
    """Translate an exception of redis-py or of the system into a `ThreadcastError`, and return that error."""
    if isinstance(wrong, redis_errors.NoScriptError):
        return ScriptMissing("NOSCRIPT")
    if isinstance(wrong, redis_errors.AskError):  # `MovedError` is a subclass
        return Redirected(wrong)
    if isinstance(wrong, redis_errors.NoPermissionError):
        return AccessRefused(_ACCESS_REFUSALS["NOPERM"])
    # Over a unix socket redis-py wraps an AuthenticationError in a ConnectionError.
    if isinstance(wrong, redis_errors.AuthenticationError) or isinstance(
        wrong.__cause__, redis_errors.AuthenticationError
    ):
        return AccessRefused(f"{_ACCESS_REFUSALS['WRONGPASS']} ({wrong})")
    words = str(wrong).split(" ", 1)
    if isinstance(wrong, redis_errors.OutOfMemoryError) or words[0] == "OOM":
        return StoreFull("the store's memory is full: delete chats, or give the store more memory (maxmemory)")
    for kind, text in _TEXTS:
        if isinstance(wrong, kind):
            return Unavailable(f"{text} ({wrong})" if str(wrong) else text)
    if words[0] in _REFUSALS:
        return Unavailable(_REFUSALS[words[0]])
    if words[0] in _ACCESS_REFUSALS:
        return AccessRefused(_ACCESS_REFUSALS[words[0]])
    if isinstance(wrong, ThreadcastError):
        return wrong
    return Internal(f"the store answered with an error: {wrong}")


class AccessRefused(Unavailable):
    """The store refuses the user or password of store.url. A starting process ends with this error. A running process
    waits, because an operator may be about to change the password in the store."""


class ScriptMissing(ThreadcastError):
    """The server does not have the script (NOSCRIPT). A lane raises this error and `call` handles it."""


class Redirected(Unavailable):
    """Another node of a Cluster has the slot (MOVED or ASK), so the command did not run."""

    def __init__(self, wrong: redis_errors.AskError) -> None:
        super().__init__(
            f"slot {wrong.slot_id} is served by {wrong.node_addr[0]}:{wrong.node_addr[1]}: "
            "the store is a Cluster, write store.url as redis+cluster://host:port"
        )
        self.slot: int = wrong.slot_id
        self.host: str = wrong.node_addr[0]
        self.port: int = wrong.node_addr[1]
        self.is_ask = not isinstance(wrong, redis_errors.MovedError)


class Commands(ABC):
    """Sends commands to one server (`Redis`) or to the nodes of a Cluster (`cluster.Cluster`). Its tasks run as long as
    the store is open."""

    _tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        """Return the task group of all tasks that run as long as the store is open."""
        if self._tasks is None:
            raise Internal("the store was used outside of its `async with`")
        return self._tasks

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self.tasks, None
        tasks.cancel_scope.cancel()
        # An error of the body propagates unchanged. A cancellation is passed to the task group, which removes the
        # cancellation if the group itself has cancelled the body.
        if isinstance(wrong, asyncio.CancelledError):
            await tasks.__aexit__(kind, wrong, trace)
        else:
            await tasks.__aexit__(None, None, None)

    @abstractmethod
    def send(self, *command: Value) -> "asyncio.Future[Reply]":
        """Queue a command and return the future of its reply. Commands queued in one tick are sent in one pipeline."""

    @abstractmethod
    async def call(self, name: str, keys: Sequence[bytes], *arguments: Value, on_reply: OnReply | None = None) -> Reply:
        """Run a script and return its answer. After Unavailable, the script ran once or not at all. A Cluster does not
        call `on_reply`."""

    async def all(self, commands: Sequence[Sequence[Value]]) -> list[Reply]:
        """Send commands in one tick and return their replies. Raises the first error after all commands have ended."""
        results = await asyncio.gather(*(self.send(*command) for command in commands), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    @abstractmethod
    async def everyone(self, *command: Value) -> list[Reply]:
        """Send a command without a key to every server. Returns the reply of each server that can be reached."""

    @abstractmethod
    async def load_scripts(self) -> None:
        """Load all scripts into the store. Raises Internal when a server does not support scripts with `#!lua`."""


class Redis(Commands):
    """Sends commands to one Redis server over a few lanes. Enter the object once. Entering opens no connection; a lane
    connects when it sends its first command."""

    def __init__(self, route: Route, *, lanes: int = LANES, scripts: Mapping[str, Script] = SCRIPTS) -> None:
        self.route = route
        self._scripts = scripts
        self._lane_count = lanes
        self._pending: deque[Command] = deque()
        self._large: deque[list[Command]] = deque()  # each batch has one large command, moved here from `_pending`
        self._large_lanes = 0
        self._idle: list[asyncio.Future[None]] = []
        self._is_waking = False

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        for _ in range(self._lane_count):
            self._tasks.start_soon(self._lane)
        self._tasks.start_soon(self.route.watch, self.send)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, wrong, trace)
        for command in (*self._pending, *(each for batch in self._large for each in batch)):
            command.fail(Unavailable("the store is being closed"))
        self._pending.clear()
        self._large.clear()
        if self.route.finder is not None:
            await self.route.finder.close()

    # the interface for the rest of the store

    def send(self, *command: Value, on_reply: OnReply | None = None) -> "asyncio.Future[Reply]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply] = loop.create_future()
        if self._tasks is None or len(self._pending) >= PENDING_MAX:
            answer.set_exception(Unavailable("the store is closed" if self._tasks is None else "the store is too slow"))
            return answer
        packed = pack(*command)
        self._pending.append(Command(packed, answer, loop.time() + seconds_for(len(packed)), on_reply))
        if not self._is_waking:
            self._wake_lane()
        return answer

    async def call(self, name: str, keys: Sequence[bytes], *arguments: Value, on_reply: OnReply | None = None) -> Reply:
        script = self._scripts[name]
        command = (b"EVALSHA", script.sha, len(keys), *keys, *arguments)
        try:
            return await self.send(*command, on_reply=on_reply)
        except ScriptMissing:
            await self.send(b"SCRIPT", b"LOAD", script.source)
        try:
            return await self.send(*command, on_reply=on_reply)
        except ScriptMissing:  # another server has answered: the primary changed again, or a proxy has many
            raise Unavailable("the store forgets its scripts") from None

    async def everyone(self, *command: Value) -> list[Reply]:
        return [await self.send(*command)]

    async def load_scripts(self) -> None:
        try:
            await self.all([(b"SCRIPT", b"LOAD", script.source) for script in self._scripts.values()])
        except Internal as wrong:
            raise Internal(f"the store must be Redis 7.0 or newer, or Valkey: {wrong.message}") from None

    # the lanes

    def _wake_lane(self) -> None:
        while self._idle:
            waiter = self._idle.pop()  # the lane whose connection was used last
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
            await hang_up(connection)

    def _next_batch(self, now: float) -> list[Command]:
        """Return the next commands to send. The lane calls this method one tick after it was woken, so that the batch
        has all commands that were queued in that tick."""
        self._is_waking = False
        batch: list[Command] = []
        while self._pending and len(batch) < BATCH_MAX:
            command = self._pending.popleft()
            if command.is_large:
                is_asked = bool(batch) and batch[-1].packed == _ASKING  # ASKING applies to the command after it
                self._large.append([batch.pop(), command] if is_asked else [command])
            elif is_wanted(command, now):
                batch.append(command)
        while not batch and self._large and self._large_lanes < LARGE_LANES:
            batch = [command for command in self._large.popleft() if is_wanted(command, now)]
        if self._pending or (self._large and self._large_lanes < LARGE_LANES):
            self._wake_lane()
        return batch

    async def _exchange_large(self, connection: AbstractConnection, batch: list[Command]) -> None:
        """Send a large command as `_exchange` does. After a success, renew the deadlines of the waiting large
        commands."""
        self._large_lanes += 1
        try:
            await self._exchange(connection, batch)
        finally:
            self._large_lanes -= 1
        if batch[-1].answer.cancelled() or batch[-1].answer.exception() is None:
            now = asyncio.get_running_loop().time()
            for command in (each for waiting in self._large for each in waiting):
                command.expires_at = now + seconds_for(len(command.packed))

    async def _exchange(self, connection: AbstractConnection, batch: list[Command]) -> None:
        """Send one pipeline and read its replies. Boundary: errors are passed to the callers, and the lane goes on
        with the next pipeline."""
        answered = 0
        try:
            packed = b"".join([command.packed for command in batch])
            async with Deadline(COMMAND_TIMEOUT_SECONDS, partial(progress_of, connection)) as deadline:
                deadline.allow(seconds_for(len(packed)))
                await self.route.open(connection)
                await connection.send_packed_command([packed], False)
                for command in batch:
                    reply = reply_at_hand(connection)
                    if reply is NOT_AT_HAND:
                        reply = await reply_or_refusal(connection)
                    answered += 1
                    if isinstance(reply, redis_errors.ResponseError):
                        self.route.leave_if_demoted(connection, reply)
                        command.fail(explain_error(reply))
                        continue
                    if not command.answer.done():
                        command.answer.set_result(reply)  # wakes the caller in the next turn of the loop
                    if command.on_reply is not None:
                        command.on_reply(reply)
        except Exception as wrong:
            await hang_up(connection)  # replies to these commands may still arrive on this connection
            for command in batch[answered:]:
                command.fail(explain_error(wrong))
        except asyncio.CancelledError:
            for command in batch[answered:]:
                command.fail(Unavailable("the store is being closed"))
            raise
