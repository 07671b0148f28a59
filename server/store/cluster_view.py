"""Asking the nodes of a Cluster who serves what, each on a connection of its own: one that hangs holds up nobody.

It keeps nothing but the addresses it once heard of; `cluster.py` decides when to ask and what to do about it. The rule:
all are asked at once with one deadline, and of what came in time the view with the highest epoch is believed.
"""

import asyncio
from contextlib import suppress

from protocol.errors import Internal, ThreadcastError, Unavailable
from server.settings.store_url import ClusterUrl
from server.store.connection import explain_error
from server.store.route import Route, pack
from server.store.slots import NodeName, View, parse_view

__all__ = ["ClusterView"]

ASK_SECONDS = 1.0
"""For one node's answer: milliseconds while it is well. With the pause between looks, a promotion is noticed in 2 s."""

ASKED_MAX = 12
"""Nodes asked at a time: one that is up to date is enough, and with so many there is one."""


class ClusterView:
    """What the nodes say of the Cluster."""

    def __init__(self, url: ClusterUrl) -> None:
        self._url = url
        self._heard_of: tuple[NodeName, ...] = ()

    async def look(self, nodes: tuple[NodeName, ...]) -> tuple[View, dict[NodeName, str]]:
        """The view to be believed, and what is wrong with those that did not answer.

        Raises:
            Unavailable: none answers.
            Internal: they answer, and are no Cluster.
        """
        addresses = list(dict.fromkeys((*nodes, *self._url.seeds, *self._heard_of)))[:ASKED_MAX]
        answers = dict(zip(addresses, await asyncio.gather(*map(self._ask, addresses)), strict=True))
        troubles = {address: said.message for address, said in answers.items() if isinstance(said, ThreadcastError)}
        best: View | None = None
        for said in answers.values():
            if isinstance(said, View) and (best is None or said.beats(best)):
                best = said
        if best is None:
            first = next((said for said in answers.values() if isinstance(said, Internal)), None)
            if first is not None:
                raise Internal(f"store.url names a Cluster, and a server there says: {first.message}")
            told = "; ".join(f"{address}: {trouble}" for address, trouble in troubles.items())
            raise Unavailable(f"no node of the store's Cluster answers: {told}")
        if best.is_ok:
            self._heard_of = best.others
        return best, troubles

    async def _ask(self, address: NodeName) -> View | ThreadcastError:
        connection = Route(self._url.of(address)).connection()  # not opened by the route: replicas may answer too
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await connection.connect()  # type: ignore[no-untyped-call] # redis-py's
                await connection.send_packed_command([pack(b"CLUSTER", b"INFO"), pack(b"CLUSTER", b"SLOTS")], False)
                info = await connection.read_response()
                return parse_view(info, await connection.read_response(), address)
        except Exception as wrong:  # boundary: the foreign errors of this connection
            return explain_error(wrong)
        finally:
            with suppress(Exception):  # closing a broken connection may fail; there is nothing left to lose
                await connection.disconnect(nowait=True)
