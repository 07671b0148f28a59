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
