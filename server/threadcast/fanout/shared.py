"""Keeps one follower per key for all its users: the first user starts the follower, and the last one stops it.

`hub.py` shares relays by chat, and `feeds.py` shares feeds by owner. An error of one follower ends the streams of its
own users and affects no other follower.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from threadcast.fanout.connection import EndReason
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["Followers"]

OPEN_SECONDS = 5.0
"""Seconds that a user waits for its follower to become ready before the user gets `unavailable`."""


class _Follower(Protocol):
    """A relay or a feed. `ready` is set once the follower can serve users, or when `trouble` has the reason why it
    cannot serve them."""

    ready: anyio.Event
    trouble: EndReason | None

    async def run(self) -> None:
        """Follow the store until cancelled."""

    def refusal(self) -> str:
        """Return the error message for a user that the follower cannot serve."""

    def log_crash(self) -> None:
        """Log the exception that `run` has raised."""

    def end_all(self, reason: EndReason) -> None:
        """End the streams of all users."""


_F = TypeVar("_F", bound=_Follower)


@dataclass(slots=True)
class _Open(Generic[_F]):
    """A follower, its cancel scope, and the number of its users."""

    follower: _F
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    users: int = 0


class Followers(Generic[_F]):
    """The followers that have users, by key. They run as tasks of `tasks`; while `tasks` is None, no follower
    starts."""

    def __init__(self, make: Callable[[str], _F]) -> None:
        """`make` returns a new follower for a key."""
        self.tasks: TaskGroup | None = None
        self.open: dict[str, _Open[_F]] = {}
        self._make = make

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
            here = self.open[key] = _Open(self._make(key))
            self.tasks.start_soon(self._run, key, here)
        return here

    def forget(self, key: str, here: _Open[_F]) -> None:
        """Let the next user of `key` start a new follower."""
        if self.open.get(key) is here:
            del self.open[key]

    async def _run(self, key: str, here: _Open[_F]) -> None:
        follower = here.follower
        with here.scope:
            try:
                await follower.run()
            except Exception:  # the boundary of a follower: its error must not end other streams
                follower.log_crash()
                follower.trouble = "store"
                follower.ready.set()
            follower.end_all("store")
        self.forget(key, here)


class _Use(Generic[_F]):
    """One user of a follower. This is a class and not a generator, because each open stream keeps one, and a
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
            here.scope.cancel()
            self._followers.forget(self._key, here)
