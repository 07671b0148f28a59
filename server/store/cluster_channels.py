"""The channels of a Cluster: each is listened to on the node that has its slot, and goes with it when that changes.

It does not know what a message means nor how one is heard; each node's `Channels` does. The rule of `channels.py` holds
here too: whoever may have missed something, because a node was lost or a channel has moved, is told so.

Sharded channels and not ordinary ones, because of what is noticed: an ordinary message that a broken bus between two
nodes swallows leaves the reader's connection whole, so that nobody would know (docs/decisions/0017).
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from protocol.errors import Unavailable
from server.store.channels import SUBSCRIBE_TIMEOUT_SECONDS, Channels
from server.store.cluster import Cluster
from server.store.listener import Listener

__all__ = ["ClusterChannels"]


class ClusterChannels:
    """Subscribe while the Cluster is entered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holders: dict[bytes, list[Listener]] = {}
        self._places: dict[bytes, Channels] = {}
        cluster.follow(self._settle)

    @asynccontextmanager
    async def subscribe(self, channels: Sequence[bytes]) -> AsyncIterator[Listener]:
        """Entering returns once every channel is confirmed. Of several, those of a node that is away may come later,
        which the listener is then told. Raises Unavailable when none is confirmed."""
        listener = Listener(channels)
        try:
            for channel in channels:
                self._holders.setdefault(channel, []).append(listener)
                place = self._places.get(channel) or self._place_of(channel)
                if place is not None:
                    self._places[channel] = place
                    place.add(channel, listener)
            with anyio.move_on_after(SUBSCRIBE_TIMEOUT_SECONDS):
                await listener.ready.wait()
            if not listener.ready.is_set():
                self._cluster.look_again()
                if len(listener.unconfirmed) == len(listener.channels):
                    raise Unavailable("the store's channels do not answer; a node of the Cluster is away")
                listener.go_on()
            yield listener
        finally:
            for channel in channels:
                holders = self._holders[channel]
                holders.remove(listener)
                place = self._places.get(channel)
                if place is not None:
                    place.drop(channel, listener)
                if not holders:
                    del self._holders[channel]
                    self._places.pop(channel, None)

    def _place_of(self, channel: bytes) -> Channels | None:
        node = self._cluster.node_of(channel)
        return None if node is None else node.channels

    def _settle(self) -> None:
        """After a look at the map: channels whose slot is elsewhere now go there."""
        moved: dict[Listener, dict[bytes, Channels]] = {}
        for channel, holders in self._holders.items():
            place = self._place_of(channel)
            here = self._places.get(channel)
            if place is None or place is here:
                continue  # nobody has the slot now: stay where it was, something comes of it
            for listener in holders:
                if here is not None:
                    here.drop(channel, listener)
                moved.setdefault(listener, {})[channel] = place
            self._places[channel] = place
        for listener, places in moved.items():
            listener.lose(places)
            for channel, place in places.items():
                place.add(channel, listener)
