"""Keeps one follower for each key, which all users of the key share. The first user starts the follower, and the last
user stops it.

`hub.py` shares relays by chat, and `feeds.py` shares feeds by owner. An error of one follower ends the streams of its
own users and affects no other follower.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from threadcast.base.lean_event import LeanEvent
from threadcast.fanout.connection import EndReason
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["Followers"]

OPEN_SECONDS = 5.0
"""Seconds that a user waits for its follower to become ready before the user gets `unavailable`."""


class _Follower(Protocol):
    """A relay or a feed. `ready` is set when the follower can serve users, or when the follower cannot serve users and
    `trouble` has the reason. The follower calls `wake` when a message has arrived, and `run` then runs in a task again.
    An idle follower has no task, because a task takes 4 kB (`bench.memory`)."""

    ready: LeanEvent
    trouble: EndReason | None
    wake: Callable[[], None]

    async def run(self) -> bool:
        """Subscribe if there is no subscription yet, and handle the messages. Returns True when no message is left to
        handle, and False when this follower cannot continue."""

    async def close(self) -> None:
        """End the subscription. Safe to repeat."""

    def refusal(self) -> str:
        """Return the error message for a user that the follower cannot serve."""

    def log_crash(self) -> None:
        """Log the exception that `run` has raised."""

    def end_all(self, reason: EndReason) -> None:
        """End the streams of all users."""


_F = TypeVar("_F", bound=_Follower)


class _Open(Generic[_F]):
    """A follower, the number of its users, and the cancel scope of its task while the task runs."""

    __slots__ = ("_followers", "follower", "is_stopped", "key", "scope", "users")

    def __init__(self, followers: "Followers[_F]", key: str, follower: _F) -> None:
        self.key = key
        self.follower = follower
        self.scope: anyio.CancelScope | None = None
        self.users = 0
        self.is_stopped = False
        self._followers = followers
        follower.wake = self.wake

    def wake(self) -> None:
        """Run the follower in a task, unless the follower runs already."""
        tasks = self._followers.tasks
        if self.scope is None and tasks is not None and not self.is_stopped:
            self.scope = anyio.CancelScope()
            tasks.start_soon(self._run, self.scope)

    def stop(self) -> None:
        """End this follower. The next user of the key starts a new follower."""
        self.is_stopped = True
        self._followers.forget(self)
        if self.scope is not None:
            self.scope.cancel()
        elif self._followers.tasks is not None:
            self._followers.tasks.start_soon(self.follower.close)

    async def _run(self, scope: anyio.CancelScope) -> None:
        follower = self.follower
        is_idle = False
        try:
            with scope:
                is_idle = await follower.run()
            if is_idle and not self.is_stopped:
                # No await may separate this line from the last check in `run`, so that no message is missed.
                self.scope = None
                return
        except Exception:  # the boundary of a follower: its error must not end other streams
            follower.log_crash()
            follower.trouble = "store"
            follower.ready.set()
        finally:
            if self.scope is not None:
                with anyio.CancelScope(shield=True):
                    await follower.close()
        if not self.is_stopped:
            follower.end_all("store")
            self._followers.forget(self)


class Followers(Generic[_F]):
    """Keeps the followers that have users, by key. The followers run as tasks of the task group `tasks`. While `tasks`
    is None, no follower starts."""

    def __init__(self, make: Callable[[str], _F]) -> None:
        """`make` returns a new follower for a key."""
        self.tasks: TaskGroup | None = None
        self.open: dict[str, _Open[_F]] = {}
        self._make = make

    @asynccontextmanager
    async def running(self, tasks: TaskGroup) -> AsyncIterator[None]:
        """Run the followers in this task group during the block, and then end their subscriptions."""
        self.tasks = tasks
        try:
            yield
        finally:
            self.tasks = None
            with anyio.CancelScope(shield=True):
                for here in list(self.open.values()):
                    if here.scope is None:
                        await here.follower.close()

    def use(self, key: str) -> AbstractAsyncContextManager[_F]:
        """Yield the follower of `key`, ready to use, and keep it running during the block.

        Raises:
            Unavailable: the follower did not become ready in time, or the server is shutting down.
        """
        return _Use(self, key)

    def start(self, key: str) -> _Open[_F]:
        """Return the follower of `key`, and start it if it does not run yet. Raises Unavailable."""
        if self.tasks is None:
            raise Unavailable("the server is going down; connect again")
        here = self.open.get(key)
        if here is None:
            here = self.open[key] = _Open(self, key, self._make(key))
            here.wake()
        return here

    def forget(self, here: _Open[_F]) -> None:
        """Remove a follower. The next user of its key starts a new follower."""
        if self.open.get(here.key) is here:
            del self.open[here.key]


class _Use(Generic[_F]):
    """One user of a follower. This is a class and not a generator, because each open stream has such an object, and a
    generator would take half a kilobyte more (`bench.memory`)."""

    __slots__ = ("_followers", "_here", "_key")

    def __init__(self, followers: Followers[_F], key: str) -> None:
        self._followers = followers
        self._key = key

    async def __aenter__(self) -> _F:
        here = self._here = self._followers.start(self._key)
        follower = here.follower
        here.users += 1
        try:
            if not follower.ready.is_set():
                with anyio.move_on_after(OPEN_SECONDS):
                    await follower.ready.wait()
            if follower.trouble is not None or not follower.ready.is_set():
                raise Unavailable(follower.refusal())
        except BaseException:
            await self.__aexit__()
            raise
        return follower

    async def __aexit__(self, *_: object) -> None:
        here = self._here
        here.users -= 1
        if here.users == 0:
            here.stop()
