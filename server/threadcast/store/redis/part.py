"""The base of the classes that together make `RedisStore`: their shared connection, keys and channels."""

from threadcast.store.redis.channels import Subscriptions
from threadcast.store.redis.connection import Commands
from threadcast.store.redis.keys import Keys

__all__ = ["RedisPart"]


class RedisPart:
    """The attributes that `RedisStore` sets for its parts."""

    _redis: Commands
    _keys: Keys
    _channels: Subscriptions
    _is_sharded: bool
    """Whether the store is a Cluster, where a script can publish only on the channels of its own slot."""

    def _list_channel(self, list_owner: str) -> bytes:
        """Return the single channel of a list, or b"" in a Cluster, where a list has a channel in each bucket (decision
        0049)."""
        return b"" if self._is_sharded else self._keys.list_channel(list_owner)
