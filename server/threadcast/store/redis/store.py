"""Implements the Store port on Redis ≥ 7.0 or Valkey by combining the classes of this package.

`inbox.py`, `log.py`, `dispatch.py`, `lists.py`, `blobs.py`, `traces.py` and `ephemeral.py` implement the operations.
This class gives them the connection, the keys, the channels and the number of buckets. Each process opens one store.
Entering the context connects, fixes the number of buckets at the store's first start, and loads the scripts. Leaving
the context closes all connections.
"""

import secrets
from types import TracebackType

from threadcast.store.ports import Compacted, Released, Standing
from threadcast.store.redis.accounts import RedisAccounts
from threadcast.store.redis.blobs import RedisBlobs
from threadcast.store.redis.channels import Channels
from threadcast.store.redis.connection import LANES, Redis
from threadcast.store.redis.dispatch import RedisDispatch
from threadcast.store.redis.ephemeral import RedisPubSub
from threadcast.store.redis.erasure import RedisErasure
from threadcast.store.redis.health import RedisHealth
from threadcast.store.redis.inbox import RedisInbox
from threadcast.store.redis.keys import BUCKETS, BUCKETS_KEY, SECRET_KEY, Keys, OlderFeeds
from threadcast.store.redis.lists import RedisLists
from threadcast.store.redis.log import RedisLog
from threadcast.store.redis.traces import RedisTraces
from threadcast.store.topology.cluster import Cluster
from threadcast.store.topology.cluster_channels import ClusterChannels
from threadcast.store.topology.route import Route
from threadcast.store.topology.sentinel import route_to
from threadcast.store.url import CLUSTER_SCHEMES, parse_cluster_url
from threadcast_protocol.wire.errors import Internal

__all__ = ["RedisStore", "check_url"]


def check_url(url: str) -> None:
    """Check the URL without opening a connection. Raises ValueError, with a sentence for users, when the URL is
    invalid."""
    try:
        if url.partition("://")[0] in CLUSTER_SCHEMES:
            parts = parse_cluster_url(url)
            Route(parts.of(parts.seeds[0])).connection()
        else:
            route_to(url).connection()
    except TypeError as wrong:  # raised by redis-py for an unknown option
        raise ValueError(f"store.url: an option in it is unknown ({wrong})") from None
    except ValueError as wrong:
        raise ValueError(f"store.url cannot be read ({wrong})") from None


class RedisStore(
    RedisInbox,
    RedisLog,
    RedisDispatch,
    RedisLists,
    RedisBlobs,
    RedisAccounts,
    RedisTraces,
    RedisPubSub,
    RedisHealth,
    RedisErasure,
):
    """Implements `threadcast.store.ports.Store` and the queries of operators. It is an async context manager; enter it
    once."""

    _redis: Redis | Cluster
    _channels: Channels | ClusterChannels

    def __init__(self, url: str, *, lanes: int = LANES) -> None:
        """redis-py parses a `url` with the scheme redis://, rediss:// or unix://. `store/url.py` parses the other
        schemes."""
        database = 0
        if url.partition("://")[0] in CLUSTER_SCHEMES:
            self._redis = Cluster(url, lanes=lanes)
            self._channels = ClusterChannels(self._redis)
            self._is_sharded = True
        else:
            route = route_to(url)
            database = route.database
            self._redis = Redis(route, lanes=lanes)
            self._channels = Channels(self._redis)
            self._is_sharded = False
        self._database = database  # a Cluster has database 0 only
        self._keys = Keys(BUCKETS, database)

    async def __aenter__(self) -> "RedisStore":
        """Connect and load the scripts. Raises Unavailable when the store does not answer. After an error, all
        connections are closed."""
        await self._redis.__aenter__()
        try:
            known = await self._redis.send(b"GET", BUCKETS_KEY)
            # The key is written only if it is missing, so that a store whose memory or disk is full can be opened.
            if known is None:
                await self._redis.send(b"SET", BUCKETS_KEY, BUCKETS, b"NX")
                known = await self._redis.send(b"GET", BUCKETS_KEY)
            buckets = int(known)
            if not 1 <= buckets <= 100:
                raise Internal(f"{BUCKETS_KEY.decode()} is {buckets}: the store belongs to another program")
            # The number of buckets never changes after the first start: with another number, chats would be searched in
            # other buckets.
            self._keys = Keys(buckets, self._database)
            await self._redis.load_scripts()
            if isinstance(self._channels, Channels):
                self._channels.older = OlderFeeds(self._keys)
                self._redis.tasks.start_soon(self._channels.run)
        except BaseException:
            await self._redis.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._redis.__aexit__(kind, wrong, trace)

    async def release(
        self, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        released = await super().release(chat_id, worker, head, when_ms, left_ms)
        if released is Released.OK and left_ms is None:
            await self.measure(chat_id)
        return released

    async def compact(self, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        is_done = await super().compact(chat_id, head, compacted)
        if is_done:
            await self.measure(chat_id)
        return is_done

    @property
    def buckets(self) -> int:
        return self._keys.buckets

    def bucket_of(self, chat_id: str) -> int:
        return self._keys.bucket_of(chat_id)

    async def ping(self) -> Standing:
        if isinstance(self._redis, Cluster):
            return await self._redis.ping()
        await self._redis.call("writable", ())
        address = self._redis.route.address
        return Standing(primary=None if address is None else str(address))

    async def now_ms(self) -> int:
        seconds, microseconds = await self._redis.send(b"TIME")
        return int(seconds) * 1_000 + int(microseconds) // 1_000

    async def secret(self) -> bytes:
        known = await self._redis.send(b"GET", SECRET_KEY)
        if known is None:
            await self._redis.send(b"SET", SECRET_KEY, secrets.token_bytes(32), b"NX")
            known = await self._redis.send(b"GET", SECRET_KEY)
        return bytes(known)
