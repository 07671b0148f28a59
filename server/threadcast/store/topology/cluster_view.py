"""Reads the slot map from the nodes of a Cluster. Each node has its own connection, so that a hanging node delays no
other node.

`ClusterView` remembers only the addresses of replicas. `cluster.py` decides when to read the slot map, and applies the
result. All nodes are asked at once with one deadline. Of the answers that arrive in time, the view with the highest
epoch is used.
"""

import anyio

from threadcast.store.redis.connection import AccessRefused, explain_error
from threadcast.store.topology.route import Route, hang_up, pack
from threadcast.store.topology.slots import NodeName, View, parse_view
from threadcast.store.url import ClusterUrl
from threadcast_protocol.wire.errors import Internal, ThreadcastError, Unavailable

__all__ = ["ClusterView"]

ASK_SECONDS = 1.0
"""Seconds for one node's answer. A working node answers within milliseconds."""

GRACE_SECONDS = 0.25
"""Seconds that the other nodes get after a node has answered that the Cluster is complete. A longer wait for a hanging
node would only delay the use of its promoted replica."""

ASKED_MAX = 12
"""Maximum number of nodes that are asked at a time. A single node with the present slot map suffices, and one of this
many nodes has the present map."""


class ClusterView:
    """Reads the nodes' views of the Cluster."""

    def __init__(self, url: ClusterUrl) -> None:
        self._url = url
        self._heard_of: tuple[NodeName, ...] = ()

    async def look(self, nodes: tuple[NodeName, ...]) -> tuple[View, dict[NodeName, str]]:
        """Return the view with the highest epoch, and the errors of the nodes that did not answer.

        Raises:
            Unavailable: no node answers.
            Internal: the nodes answer, but are not a Cluster.
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
        """Return the nodes' answers after ASK_SECONDS, or GRACE_SECONDS after an answer that the Cluster is
        complete."""
        answers: dict[NodeName, View | ThreadcastError] = {
            address: Unavailable("it does not answer") for address in addresses
        }
        with anyio.CancelScope() as asking:
            async with anyio.create_task_group() as tasks:
                for address in addresses:
                    tasks.start_soon(self._ask, address, answers, asking)
        return answers

    async def _ask(
        self, address: NodeName, answers: dict[NodeName, View | ThreadcastError], asking: anyio.CancelScope
    ) -> None:
        """Put the node's answer into `answers`; a complete view shortens the deadline of `asking`."""
        # This code does not use `Route.open`, which refuses replicas, because replicas may answer, too.
        connection = Route(self._url.of(address)).connection()
        try:
            with anyio.fail_after(ASK_SECONDS):
                await connection.connect()  # type: ignore[no-untyped-call] # redis-py's
                await connection.send_packed_command([pack(b"CLUSTER", b"INFO"), pack(b"CLUSTER", b"SLOTS")], False)
                info = await connection.read_response()
                said = parse_view(info, await connection.read_response(), address)
        except Exception as wrong:  # boundary: errors of foreign code on this connection
            answers[address] = explain_error(wrong)
        else:
            answers[address] = said
            if said.is_ok:
                asking.deadline = min(asking.deadline, anyio.current_time() + GRACE_SECONDS)
        finally:
            await hang_up(connection)
