"""The Store port on Redis ≥ 7.0 or Valkey: the nouns put together, opened and closed as one.

It adds nothing to what `inbox.py`, `log.py`, `dispatch.py`, `lists.py`, `blobs.py`, `traces.py`, `turns.py` and
`whispers.py` promise but their common ground: the connection, the keys, the channels, and the number of buckets.
Processes open one each. Entering connects, fixes the number of buckets at the store's first start, and loads the
scripts; leaving closes all connections.
"""

from types import TracebackType

from protocol.errors import Internal
from server.settings.store_url import CLUSTER_SCHEMES, parse_cluster_url
from server.store.blobs import RedisBlobs
from server.store.channels import Channels
from server.store.cluster import Cluster
from server.store.cluster_channels import ClusterChannels
from server.store.connection import LANES, Redis
from server.store.dispatch import RedisDispatch
from server.store.health import RedisHealth
from server.store.inbox import RedisInbox
from server.store.keys import BUCKETS, BUCKETS_KEY, Keys
from server.store.lists import RedisLists
from server.store.log import RedisLog
from server.store.route import Route
from server.store.sentinel import route_to
from server.store.standing import Standing
from server.store.traces import RedisTraces
from server.store.turns import RedisTurns
from server.store.whispers import RedisWhispers

__all__ = ["RedisStore", "check_url"]


def check_url(url: str) -> None:
    """Raise ValueError, with a sentence for people, when this URL could never reach a store; opens no connection."""
    try:
        if url.partition("://")[0] in CLUSTER_SCHEMES:
            parts = parse_cluster_url(url)
            Route(parts.of(parts.seeds[0])).connection()
        else:
            route_to(url).connection()
    except TypeError as wrong:  # redis-py's, of an option that it does not know
        raise ValueError(f"store.url: an option in it is unknown ({wrong})") from None
    except ValueError as wrong:
        raise ValueError(f"store.url cannot be read ({wrong})") from None


class RedisStore(
    RedisInbox, RedisLog, RedisDispatch, RedisLists, RedisBlobs, RedisTraces, RedisTurns, RedisWhispers, RedisHealth
):
    """Implements `server.store.port.Store`, and what operators ask. An async context manager, entered once."""

    _redis: Redis | Cluster
    _channels: Channels | ClusterChannels

    def __init__(self, url: str, *, lanes: int = LANES) -> None:
        """`url`: redis://, rediss:// or unix://, as redis-py reads them; else as `settings/store_url.py` does."""
        database = 0
        if url.partition("://")[0] in CLUSTER_SCHEMES:
            self._redis = Cluster(url, lanes=lanes)
            self._channels = ClusterChannels(self._redis)
        else:
            route = route_to(url)
            database = route.database
            self._redis = Redis(route, lanes=lanes)
            self._channels = Channels(self._redis)
        self._database = database  # of a Cluster, which has one
        self._keys = Keys(BUCKETS, database)

    async def __aenter__(self) -> "RedisStore":
        """Raises Unavailable when the store does not answer; then nothing is left open."""
        await self._redis.__aenter__()
        try:
            known = await self._redis.send(b"GET", BUCKETS_KEY)
            if known is None:  # a write only then: a store whose memory or disk is full can still be read from
                await self._redis.send(b"SET", BUCKETS_KEY, BUCKETS, b"NX")
                known = await self._redis.send(b"GET", BUCKETS_KEY)
            buckets = int(known)
            if not 1 <= buckets <= 100:
                raise Internal(f"{BUCKETS_KEY.decode()} is {buckets}: the store belongs to another program")
            # What the first start wrote counts for ever: with another number, chats would be looked for elsewhere.
            self._keys = Keys(buckets, self._database)
            await self._redis.load_scripts()
            if isinstance(self._channels, Channels):
                self._redis.tasks.start_soon(self._channels.run)
        except BaseException:
            await self._redis.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._redis.__aexit__(kind, wrong, trace)

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
