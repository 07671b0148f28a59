"""Asking the nodes of a Cluster who serves what, each on a connection of its own: one that hangs holds up nobody.

It keeps nothing but the addresses it once heard of; `cluster.py` decides when to ask and what to do about it. The rule:
all are asked at once with one deadline, and of what came in time the view with the highest epoch is believed.
"""

from contextlib import suppress

import anyio

from protocol.errors import Internal, ThreadcastError, Unavailable
from server.settings.store_url import ClusterUrl
from server.store.connection import AccessRefused, explain_error
from server.store.route import Route, pack
from server.store.slots import NodeName, View, parse_view

__all__ = ["ClusterView"]

ASK_SECONDS = 1.0
"""For one node's answer: milliseconds while it is well."""

GRACE_SECONDS = 0.25
"""For the others, once one has answered that all is well: a node that hangs would only make us see the promotion of its
replica later."""

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
        answers = await self._ask_all(addresses)
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
            is_refused = any(isinstance(said, AccessRefused) for said in answers.values())
            kind = AccessRefused if is_refused else Unavailable
            raise kind(f"no node of the store's Cluster answers: {told}")
        if best.is_ok:
            self._heard_of = best.others
        return best, troubles

    async def _ask_all(self, addresses: list[NodeName]) -> dict[NodeName, View | ThreadcastError]:
        """What each said, ASK_SECONDS after all were asked, or GRACE_SECONDS after that all is well."""
        answers: dict[NodeName, View | ThreadcastError] = {
            address: Unavailable("it does not answer") for address in addresses
        }
        with anyio.CancelScope() as patience:
            async with anyio.create_task_group() as tasks:
                for address in addresses:
                    tasks.start_soon(self._ask, address, answers, patience)
        return answers

    async def _ask(
        self, address: NodeName, answers: dict[NodeName, View | ThreadcastError], patience: anyio.CancelScope
    ) -> None:
        connection = Route(self._url.of(address)).connection()  # not opened by the route: replicas may answer too
        try:
            with anyio.fail_after(ASK_SECONDS):
                await connection.connect()  # type: ignore[no-untyped-call] # redis-py's
                await connection.send_packed_command([pack(b"CLUSTER", b"INFO"), pack(b"CLUSTER", b"SLOTS")], False)
                info = await connection.read_response()
                said = parse_view(info, await connection.read_response(), address)
        except Exception as wrong:  # boundary: the foreign errors of this connection
            answers[address] = explain_error(wrong)
        else:
            answers[address] = said
            if said.is_ok:
                patience.deadline = min(patience.deadline, anyio.current_time() + GRACE_SECONDS)
        finally:
            with suppress(Exception):  # closing a broken connection may fail; there is nothing left to lose
                await connection.disconnect(nowait=True)
