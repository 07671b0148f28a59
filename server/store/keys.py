"""Every key and channel of the store: name, type, lifetime. No other file spells one.

P = `tc:{bNN}:`            type        lifetime, content
`tc:buckets`               string      for ever; the number of buckets
`P chat:<id>:log`          stream      the chat's, or a day without messages; entries and fences
`P chat:<id>:head`         string      as log; head string of the last entry
`P chat:<id>:snap`         string      as log; the checkpoint (`checkpoint.py`)
`P chat:<id>:inbox`        stream      as log; accepted commands not yet consumed: r request id, u principal, d body
`P chat:<id>:meta`         hash        as log, 30 days after a delete; what lists, feeds and refusals need
`P chat:<id>:blobs`        hash        as long as the longest-lived of them: `owner`, and size by hash (hex SHA-256)
`P chat:<id>:blobs:<hash>` hash        a day, the chat's once an append refers to it: m mime type, d bytes
`P chat:<id>:trace`        stream      some hours after its last record, see `traces.py`: o owner, r run, k key, d bytes
`P chat:<id>:seen`         hash        24 h after the last write; request id → `digest nonce inbox-id`,
`P chat:<id>:seen:old`                 of a delete `!<nonce>`; two generations of 1,000
`P due`, `P own`           zset, hash  for ever; chat → ms, chat → worker
`P bell`                   list        until popped; at most one token
`P dead`                   list        the newest 1,000; commands given up
`P never`                  nothing     no key has this name, see `never_of`
`P chats:<shelf>`          zset        for ever; chat → last_active; of an owner, or of a chat (`port.shelf_of`)

`C log:<chat>`             channel     `["<head>","<before>",time,version,events,acks]`; a fence has its why as a
                                       seventh element, a notice of large events ends after the version; `["deleted"]`
`C mail:<worker>`          channel     chat id: look into its inbox
`C feed:<shelf>`           channel     chat id: its meta changed, or it was deleted
`tc:turns:{<principal>}`   zset        a day after the last turn; `<chat> <request id>` → ms, what quotas count
`tc:whisper:<topic>`       channel     what web processes tell each other (streams, presence); nothing is stored

C = P in database 0, else `P<database>:` (and `tc:<database>:whisper:<topic>`): pub/sub knows no databases (redis.io,
"Pub/Sub", Database & Scoping), so the name must tell two Threadcasts of one server apart.

`{bNN}` is a hash tag, NN = crc32(chat id) mod buckets: all keys of a chat and its bucket lie in one Cluster slot; the
turns of a principal, which no chat's script touches, lie in one of their own. Ids
match `[A-Za-z0-9_-]{1,128}` before they come here, so no id can spell another's key.
"""

from zlib import crc32

__all__ = ["BUCKETS", "BUCKETS_KEY", "ChatKeys", "Keys", "never_of"]

BUCKETS = 16
"""Enough to spread over a Cluster, few enough to sweep in one pipeline (DISPATCH §7). Used at the first start only."""

BUCKETS_KEY = b"tc:buckets"


def never_of(key: bytes) -> bytes:
    """A key beside this one that never exists. In a Cluster every script names it among its KEYS.

    While a slot is moved key by key, a script all of whose KEYS are there would begin, and be stopped in its middle by
    the first key that is not: a torn step. One that names a missing key is refused before it begins (TRYAGAIN).
    """
    return key[: key.index(b"}") + 1] + b":never"


class ChatKeys:
    """The keys and channels of one chat; made anew for each call, since making them costs less than looking them up."""

    __slots__ = ("_base", "_channels", "chat_id", "prefix")

    def __init__(self, prefix: bytes, chat_id: str, channels: bytes) -> None:
        """`prefix` of the keys of its bucket, `channels` of their channels."""
        self.prefix = prefix
        self._channels = channels
        self.chat_id = chat_id.encode()
        self._base = prefix + b"chat:" + self.chat_id

    @property
    def log(self) -> bytes:
        return self._base + b":log"

    @property
    def head(self) -> bytes:
        return self._base + b":head"

    @property
    def snap(self) -> bytes:
        return self._base + b":snap"

    @property
    def inbox(self) -> bytes:
        return self._base + b":inbox"

    @property
    def meta(self) -> bytes:
        return self._base + b":meta"

    @property
    def blobs(self) -> bytes:
        return self._base + b":blobs"

    def blob(self, hash: str) -> bytes:
        return self._base + b":blobs:" + hash.encode()

    @property
    def trace(self) -> bytes:
        return self._base + b":trace"

    @property
    def seen(self) -> bytes:
        return self._base + b":seen"

    @property
    def seen_old(self) -> bytes:
        return self._base + b":seen:old"

    @property
    def due(self) -> bytes:
        return self.prefix + b"due"

    @property
    def own(self) -> bytes:
        return self.prefix + b"own"

    @property
    def bell(self) -> bytes:
        return self.prefix + b"bell"

    @property
    def dead(self) -> bytes:
        return self.prefix + b"dead"

    @property
    def log_channel(self) -> bytes:
        return self._channels + b"log:" + self.chat_id

    @property
    def mail_prefix(self) -> bytes:
        return self._channels + b"mail:"

    def chats(self, owner: str) -> bytes:
        return self.prefix + b"chats:" + owner.encode()

    def feed_channel(self, owner: str) -> bytes:
        return self._channels + b"feed:" + owner.encode()


class Keys:
    """Names for a store of `buckets` buckets in the logical database of that number."""

    def __init__(self, buckets: int, database: int = 0) -> None:
        self.buckets = buckets
        self._prefixes = tuple(b"tc:{b%02d}:" % bucket for bucket in range(buckets))
        own = b"%d:" % database if database else b""
        self._channels = tuple(prefix + own for prefix in self._prefixes)
        self._whispers = b"tc:" + own + b"whisper:"

    def bucket_of(self, chat_id: str) -> int:
        return crc32(chat_id.encode()) % self.buckets

    def chat(self, chat_id: str) -> ChatKeys:
        bucket = self.bucket_of(chat_id)
        return ChatKeys(self._prefixes[bucket], chat_id, self._channels[bucket])

    def due(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"due"

    def own(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"own"

    def bell(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"bell"

    def dead(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"dead"

    def bells(self) -> list[bytes]:
        return [prefix + b"bell" for prefix in self._prefixes]

    def chats(self, bucket: int, owner: str) -> bytes:
        return self._prefixes[bucket] + b"chats:" + owner.encode()

    def turns(self, principal_id: str) -> bytes:
        return b"tc:turns:{" + principal_id.encode() + b"}"

    def whisper_channel(self, topic: str) -> bytes:
        return self._whispers + topic.encode()

    def feed_channels(self, owner: str) -> list[bytes]:
        """An owner's chats lie in every bucket, and a script publishes beside the chat's keys."""
        return [prefix + b"feed:" + owner.encode() for prefix in self._channels]

    def mail_channels(self, worker: str) -> list[bytes]:
        """A worker listens in every bucket, since `post` may only publish beside the chat's keys."""
        return [prefix + b"mail:" + worker.encode() for prefix in self._channels]
