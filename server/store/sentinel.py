"""Where the primary is, as the sentinels say: a `Finder` for a `Route`, and the route that a store's URL describes.

It does not know what is said to the primary, nor when somebody has to look: `route.py` asks at each new connection and
once a second. All sentinels are asked at once and the newest configuration counts, since one that was cut off from the
others goes on naming the old primary. The rule: what they say is a hint; the server itself says that it is a primary.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
from redis import exceptions as redis_errors

from protocol.errors import Unavailable
from server.settings.store_url import SENTINEL_SCHEMES, parse_sentinel_url
from server.store.connection import AccessRefused
from server.store.route import Address, Route, connections_to, pack, reply_or_refusal

__all__ = ["Sentinels", "route_to"]

ASK_SECONDS = 0.4
"""For all sentinels together, connecting included: below half of what a connection to the primary may take."""

STRAGGLER_SECONDS = 0.05
"""How long the others may take once a majority has answered: one that hangs must not slow down every reconnect."""

FRESH_SECONDS = 0.05
"""So long an answer, or that there was none, holds for those who asked meanwhile: all lanes reconnect at once."""


def route_to(url: str) -> Route:
    """The way that a store's URL describes: straight to a server, or to the primary that sentinels name.

    Raises:
        ValueError: it is of Sentinel, and cannot be read.
    """
    if not url.startswith(tuple(f"{scheme}:" for scheme in SENTINEL_SCHEMES)):
        return Route(url)
    parts = parse_sentinel_url(url)
    return Route(parts.primary, Sentinels(parts.sentinels, parts.service))


class _Answer(NamedTuple):
    """What one sentinel says. `epoch` counts failovers; -1: it may not tell."""

    epoch: int
    address: Address


class Sentinels:
    """The sentinels at `urls`, asked for the primary of `service`."""

    def __init__(self, urls: Sequence[str], service: str) -> None:
        self._sentinels = [_Sentinel(url, service) for url in urls]
        self._turn = anyio.Lock()
        self._found: Address | Unavailable = Unavailable("no sentinel was asked yet")
        self._found_at = float("-inf")

    async def find(self) -> Address:
        """Within ASK_SECONDS of its turn. Raises Unavailable when none knows it."""
        async with self._turn:
            if asyncio.get_running_loop().time() - self._found_at > FRESH_SECONDS:
                self._found = await self._ask_all()
                self._found_at = asyncio.get_running_loop().time()
        if isinstance(self._found, Unavailable):
            raise type(self._found)(self._found.message)
        return self._found

    async def close(self) -> None:
        for sentinel in self._sentinels:
            await sentinel.hang_up()

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
    """One of them, on a connection that is kept. For one caller at a time."""

    def __init__(self, url: str, service: str) -> None:
        self._connection = connections_to(url).make_connection()  # type: ignore[no-untyped-call] # redis-py's
        self._question = pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service) + pack(b"SENTINEL", b"MASTER", service)

    async def ask(self) -> _Answer:
        """Raises Unavailable."""
        try:
            address, about = await self._exchange()
        except BaseException as wrong:
            await self.hang_up()  # replies may still be on their way
            if not isinstance(wrong, Exception):
                raise
            raise _explained(wrong) from None
        if isinstance(address, Exception):
            raise _explained(address)
        if not isinstance(address, list) or len(address) != 2:
            raise Unavailable("it does not know the service; is its name in store.url right?")
        return _Answer(_epoch_in(about), Address(address[0].decode(), int(address[1])))

    async def _exchange(self) -> tuple[object, object]:
        connection = self._connection
        if connection.is_connected and await connection.can_read():
            await self.hang_up()
        await connection.connect()
        await connection.send_packed_command(self._question, False)
        return await reply_or_refusal(connection), await reply_or_refusal(connection)

    async def hang_up(self) -> None:
        with suppress(Exception):  # it is broken or not needed any more
            await self._connection.disconnect(nowait=True)


def _explained(wrong: Exception) -> Unavailable:
    if isinstance(wrong, redis_errors.AuthenticationError) or str(wrong).startswith(("NOAUTH", "WRONGPASS")):
        return AccessRefused("it refuses us; its own user and password are ?sentinel_username=…&sentinel_password=…")
    return Unavailable(f"it cannot be asked ({wrong})")


def _epoch_in(about: object) -> int:
    """The configuration's number in a reply to SENTINEL MASTER, a flat list of names and values."""
    if not isinstance(about, list):
        return -1
    facts = dict(zip(about[::2], about[1::2], strict=False))
    return int(facts.get(b"config-epoch", -1))
