"""Finds the primary through Sentinel. Defines a `Finder` for a `Route`, and makes the route that a store's URL
describes.

`route.py` calls the `Finder` for each new connection and once a second. All sentinels are asked at once, and the answer
with the newest configuration is used, because a sentinel that is cut off from the others continues to name the old
primary. The answer is only a hint; `route.py` checks that the server is a primary.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import anyio
from redis import exceptions as redis_errors

from threadcast.store.redis.connection import AccessRefused
from threadcast.store.topology.route import Address, Route, connections_to, hang_up, pack, reply_or_refusal
from threadcast.store.url import SENTINEL_SCHEMES, parse_sentinel_url
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["Sentinels", "route_to"]

ASK_SECONDS = 0.4
"""Seconds for all sentinels together, including connecting. This is below half of the time for a connection to the
primary."""

STRAGGLER_SECONDS = 0.05
"""Seconds that the other sentinels get after a majority has answered. A hanging sentinel must not slow down every
reconnect."""

FRESH_SECONDS = 0.05
"""Seconds for which an answer, or the error of a failed query, is reused for other callers, because all lanes reconnect
at the same time."""


def route_to(url: str) -> Route:
    """Return the route that a store's URL describes: directly to a server, or to the primary that sentinels name.

    Raises:
        ValueError: the URL has a scheme of Sentinel and cannot be parsed.
    """
    if not url.startswith(tuple(f"{scheme}:" for scheme in SENTINEL_SCHEMES)):
        return Route(url)
    parts = parse_sentinel_url(url)
    return Route(parts.primary, Sentinels(parts.sentinels, parts.service))


class _Answer(NamedTuple):
    """The answer of one sentinel. `epoch` counts failovers; it is -1 if the sentinel did not report the number."""

    epoch: int
    address: Address


class Sentinels:
    """Asks the sentinels at `urls` for the primary of `service`."""

    def __init__(self, urls: Sequence[str], service: str) -> None:
        self._sentinels = [_Sentinel(url, service) for url in urls]
        self._lock = anyio.Lock()
        self._found: Address | Unavailable = Unavailable("no sentinel was asked yet")
        self._found_at = float("-inf")

    async def find(self) -> Address:
        """Return the primary's address within ASK_SECONDS of the start of the query. Raises Unavailable when no
        sentinel names the primary."""
        async with self._lock:
            if asyncio.get_running_loop().time() - self._found_at > FRESH_SECONDS:
                self._found = await self._ask_all()
                self._found_at = asyncio.get_running_loop().time()
        if isinstance(self._found, Unavailable):
            raise type(self._found)(self._found.message)
        return self._found

    async def close(self) -> None:
        for sentinel in self._sentinels:
            await hang_up(sentinel.connection)

    async def _ask_all(self) -> Address | Unavailable:
        answers: list[_Answer] = []
        troubles: list[Unavailable] = []

        async def ask(sentinel: "_Sentinel") -> None:
            try:
                answers.append(await sentinel.ask())
            except Unavailable as wrong:
                troubles.append(wrong)
            if len(answers) > len(self._sentinels) // 2:
                deadline.deadline = min(deadline.deadline, anyio.current_time() + STRAGGLER_SECONDS)

        with anyio.move_on_after(ASK_SECONDS) as deadline:
            async with anyio.create_task_group() as tasks:
                for sentinel in self._sentinels:
                    tasks.start_soon(ask, sentinel)
        if answers:
            return max(answers, key=lambda answer: answer.epoch).address
        refused = [trouble for trouble in troubles if isinstance(trouble, AccessRefused)]
        first = next(iter([*refused, *troubles]), None)
        why = f": {first.message}" if first is not None else f" within {ASK_SECONDS:g} s"
        return (AccessRefused if refused else Unavailable)(f"no sentinel of store.url names the primary{why}")


class _Sentinel:
    """Asks one sentinel, on a connection that stays open. Only one caller at a time may use it."""

    def __init__(self, url: str, service: str) -> None:
        self.connection = connections_to(url).make_connection()  # type: ignore[no-untyped-call] # redis-py's
        self._question = pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service) + pack(b"SENTINEL", b"MASTER", service)

    async def ask(self) -> _Answer:
        """Return the sentinel's answer. Raises Unavailable."""
        try:
            address, about = await self._exchange()
        except BaseException as wrong:
            await hang_up(self.connection)  # late replies would be read as replies to the next query
            if not isinstance(wrong, Exception):
                raise
            raise _explained(wrong) from None
        if isinstance(address, Exception):
            raise _explained(address)
        if not isinstance(address, list) or len(address) != 2:
            raise Unavailable("it does not know the service; is its name in store.url right?")
        return _Answer(_epoch_in(about), Address(address[0].decode(), int(address[1])))

    async def _exchange(self) -> tuple[object, object]:
        connection = self.connection
        if connection.is_connected and await connection.can_read():
            await hang_up(connection)
        await connection.connect()
        await connection.send_packed_command(self._question, False)
        return await reply_or_refusal(connection), await reply_or_refusal(connection)


def _explained(wrong: Exception) -> Unavailable:
    if isinstance(wrong, redis_errors.AuthenticationError) or str(wrong).startswith(("NOAUTH", "WRONGPASS")):
        return AccessRefused(
            "it refuses the user or password; set those of the sentinels as ?sentinel_username=…&sentinel_password=…"
        )
    return Unavailable(f"the query failed ({wrong})")


def _epoch_in(about: object) -> int:
    """Return the configuration's epoch in a reply to SENTINEL MASTER, a flat list of names and values."""
    if not isinstance(about, list):
        return -1
    facts = dict(zip(about[::2], about[1::2], strict=False))
    return int(facts.get(b"config-epoch", -1))
