"""Subscribes to the channels of a Cluster. Each channel is subscribed on the node that has its slot, also after the
slot has moved.

Each node's `Channels` receives the messages. A listener may miss messages when a node is lost or a channel moves. It
then reads None, as in `channels.py`.

The channels are sharded, so that lost messages are noticed. Ordinary messages pass over the bus between the nodes. If
the bus between two nodes breaks, messages are lost while the reader's connection stays open, so the reader would not
notice the gap (docs/decisions/0017).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from threadcast.store.redis.channels import SUBSCRIBE_TIMEOUT_SECONDS, Channels
from threadcast.store.redis.listener import Listener
from threadcast.store.topology.cluster import Cluster
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["ClusterChannels"]


class ClusterChannels:
    """The subscriptions of a process to a Cluster. Use them while the Cluster is entered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holders: dict[bytes, list[Listener]] = {}
        self._owners: dict[bytes, Channels] = {}
        cluster.follow(self._settle)

    @asynccontextmanager
    async def subscribe(
        self, channels: Sequence[bytes], woken: Callable[[], None] | None = None
    ) -> AsyncIterator[Listener]:
        """Subscribe to `channels`. Entering the context manager waits until every channel is confirmed. Channels of an
        unavailable node are confirmed later, and the listener then reads None. Raises Unavailable when no channel is
        confirmed."""
        listener = Listener(channels, woken)
        try:
            for channel in channels:
                self._holders.setdefault(channel, []).append(listener)
                owner = self._owners.get(channel) or self._owner_of(channel)
                if owner is not None:
                    self._owners[channel] = owner
                    owner.add(channel, listener)
            with anyio.move_on_after(SUBSCRIBE_TIMEOUT_SECONDS):
                await listener.ready.wait()
            if not listener.ready.is_set():
                self._cluster.look_again()
                if len(listener.unconfirmed) == len(listener.channels):
                    raise Unavailable("the store's channels do not answer; a node of the Cluster cannot be reached")
                listener.go_on()
            yield listener
        finally:
            for channel in channels:
                holders = self._holders[channel]
                holders.remove(listener)
                owner = self._owners.get(channel)
                if owner is not None:
                    owner.drop(channel, listener)
                if not holders:
                    del self._holders[channel]
                    self._owners.pop(channel, None)

    def confirmed_listeners(self, channel: bytes) -> Sequence[Listener]:
        return ()  # otherwise a message that is published while a slot moves could reach no process

    def _owner_of(self, channel: bytes) -> Channels | None:
        node = self._cluster.node_of(channel)
        return None if node is None else node.channels

    def _settle(self) -> None:
        """After a read of the slot map, move the subscriptions of channels whose slot has moved."""
        moved: dict[Listener, dict[bytes, Channels]] = {}
        for channel, holders in self._holders.items():
            owner = self._owner_of(channel)
            here = self._owners.get(channel)
            if owner is None or owner is here:
                continue  # nothing has moved, or no node serves the slot yet; the old subscription is kept
            for listener in holders:
                if here is not None:
                    here.drop(channel, listener)
                moved.setdefault(listener, {})[channel] = owner
            self._owners[channel] = owner
        for listener, owners in moved.items():
            listener.lose(owners)
            for channel, owner in owners.items():
                owner.add(channel, listener)
