"""The names, types and lifetimes of all keys and channels of the store. No other file spells a key or channel.

P = `tc:{bNN}:`            type        lifetime, content
`tc:buckets`               string      for ever; the number of buckets
`tc:secret`                string      for ever, from its first use; 32 random bytes, see `Facts.secret`
`P chat:<id>:log`          stream      as long as the chat, a day if the chat has no messages; entries and fences;
                                       the key is absent while the checkpoint contains all entries
`P chat:<id>:recent`       stream      an hour; the renamed log of a chat at rest, for readers that resume
`P chat:<id>:history`      list        as log; compressed parts of older events (`store/history_parts.py`)
`P chat:<id>:head`         string      as log; head string of the last entry
`P chat:<id>:snap`         string      as log; the checkpoint, or a description of its slices
`P chat:<id>:snap:slices`  hash        as snap; the slices of a large checkpoint by number
`P chat:<id>:snap:<entry>` hash        a minute; slices that the append of that entry, or a release, makes visible
`P chat:<id>:inbox`        stream      as log; accepted commands that wait; fields: r request id, u principal, d body
`P chat:<id>:meta`         hash        as log, and 30 days after a delete; fields for lists, feeds, claims and refusals
`P chat:<id>:blobs`        hash        as long as the chat's longest-lived blob; `owner`, and the size of each blob by
                                       its hash (hex SHA-256)
`P chat:<id>:blobs:<hash>` hash        a day, or as log once an append refers to the blob; m mime type, d bytes; a
                                       large blob has M mime type, n size, and its slices by number (`blobs.py`)
`P chat:<id>:blobs:<hash>:new`         hash; a minute; the slices of a blob until all slices are stored
`P chat:<id>:traces`       list        some hours after its last record; a record is `<key> <run> <owner>`, a line end,
                                       and bytes (`traces.py`)
`P chat:<id>:trace`        stream      as traces; the traces that older versions wrote
`P chat:<id>:seen`         hash        24 h after the last write; request id → digest and nonce, both shortened; a
`P chat:<id>:seen:old`                 delete is `!<nonce>`; two generations of 1,000 ids each
`P due`, `P own`           zset, hash  for ever; chat → ms when it is due, chat → worker that owns it
`P owners`                 zset        for ever; worker → ms when its last lease in this bucket ends
`P judge:<worker>`         string      a second; the worker that ends the leases of <worker>, which has died
`P bell`                   list        until a worker pops it; at most one token
`P dead`                   list        for ever; the newest 1,000 dead letters
`P account:<principal>`    hash        for ever; bytes by chat id, and their sum under `*` (`accounts.py`)
`P gone:<principal>`       zset        30 days after the last delete; deleted chat → ms
`P erased`                 string      until the private store's file is rewritten; ms of the last deletion of a chat
`P never`                  none        no key has this name, see `never_of`
`P chats:<list owner>`     zset        for ever; chat → last_active; the list of an owner, or of the chats that a chat's
                                       tools created (`ports.list_owner_of`)

`C log:<chat>`             channel     `["<head>","<before>",time,version,events,acks]`; a fence has its reason as a
                                       seventh element; large events are left out, and the array ends after the
                                       version; a delete is `["deleted"]`
`C mail:<worker>`          channel     the id of a chat whose inbox the worker must read
`C list:<list owner>`      channel     the id of a chat whose meta changed or that was deleted; in the bucket of the
                                       list's owner
`C feed:<list owner>`      channel     the same ids, only of chats of this bucket; for Clusters and version 0.1.0
`tc:turns:{<principal>}`   zset        a day after the last run; `<chat> <request id>` → ms; the runs that quotas count
`tc:whisper:<topic>`       channel     ephemeral messages between web processes (streams, presence); not stored

C is P in database 0. In other databases C is `P<database>:`, and the channel of a topic is
`tc:<database>:whisper:<topic>`. Pub/sub ignores databases (redis.io, "Pub/Sub", Database & Scoping), so the channels of
two Threadcasts on one server must have different names.

`{bNN}` is a hash tag with NN = crc32(chat id) mod buckets. All keys of a chat and its bucket are in one Cluster slot.
The counted runs of a principal are in another slot, because no script of a chat uses them. The callers have checked
that ids match `[A-Za-z0-9_-]{1,128}`, so two chats never have the same keys.
"""

from zlib import crc32

__all__ = ["BUCKETS", "BUCKETS_KEY", "SECRET_KEY", "ChatKeys", "Keys", "OlderFeeds", "never_of"]

BUCKETS = 16
"""The number of buckets of a new store: enough to spread over a Cluster, and few enough to check in one pipeline
(DISPATCH §7). The number is used at the store's first start only."""

BUCKETS_KEY = b"tc:buckets"

SECRET_KEY = b"tc:secret"


def never_of(key: bytes) -> bytes:
    """Return a key that never exists, in the slot of `key`. In a Cluster every script has such a key among its KEYS.

    When a slot moves to another node, its keys move one by one. A script whose KEYS all exist would start, and would
    stop at the first key that has moved in the meantime, in the middle of its atomic step. A script that names a
    missing key is refused before it starts (TRYAGAIN).
    """
    return key[: key.index(b"}") + 1] + b":never"


class _ChatKey:
    """An attribute of `ChatKeys`, whose value is the chat's prefix followed by a constant end."""

    def __init__(self, end: bytes) -> None:
        self._end = end

    def __get__(self, keys: "ChatKeys", _: type | None = None) -> bytes:
        return keys.base + self._end


class ChatKeys:
    """The keys and channels of one chat. `Keys.chat` creates a new object at each call, because a lookup in a
    cache would cost more."""

    __slots__ = ("_channels", "base", "chat_id", "prefix")

    def __init__(self, prefix: bytes, chat_id: str, channels: bytes) -> None:
        """`prefix` is the prefix of the bucket's keys, and `channels` is the prefix of the bucket's channels."""
        self.prefix = prefix
        self._channels = channels
        self.chat_id = chat_id.encode()
        self.base = prefix + b"chat:" + self.chat_id

    log = _ChatKey(b":log")
    recent = _ChatKey(b":recent")
    history = _ChatKey(b":history")
    head = _ChatKey(b":head")
    snap = _ChatKey(b":snap")
    snap_slices = _ChatKey(b":snap:slices")
    inbox = _ChatKey(b":inbox")
    meta = _ChatKey(b":meta")
    blobs = _ChatKey(b":blobs")
    trace = _ChatKey(b":trace")
    traces = _ChatKey(b":traces")
    seen = _ChatKey(b":seen")
    seen_old = _ChatKey(b":seen:old")

    @property
    def due(self) -> bytes:
        return self.prefix + b"due"

    @property
    def rests(self) -> bytes:
        return self.prefix + b"rests"

    @property
    def own(self) -> bytes:
        return self.prefix + b"own"

    @property
    def owners(self) -> bytes:
        return self.prefix + b"owners"

    @property
    def bell(self) -> bytes:
        return self.prefix + b"bell"

    @property
    def dead(self) -> bytes:
        return self.prefix + b"dead"

    def account(self, principal_id: str) -> bytes:
        return self.prefix + b"account:" + principal_id.encode()

    def gone(self, principal_id: str) -> bytes:
        return self.prefix + b"gone:" + principal_id.encode()

    @property
    def erased(self) -> bytes:
        return self.prefix + b"erased"

    @property
    def inbox_signal_prefix(self) -> bytes:
        return self._channels + b"mail:"

    @property
    def log_channel(self) -> bytes:
        return self._channels + b"log:" + self.chat_id

    def staged_snap(self, entry_id: str) -> bytes:
        return self.base + b":snap:" + entry_id.encode()

    def blob(self, hash: str) -> bytes:
        return self.base + b":blobs:" + hash.encode()

    def staged_blob(self, hash: str) -> bytes:
        return self.blob(hash) + b":new"

    def chats(self, owner: str) -> bytes:
        return self.prefix + b"chats:" + owner.encode()

    def feed_channel(self, owner: str) -> bytes:
        return self._channels + b"feed:" + owner.encode()


class OlderFeeds:
    """The feed channels of all buckets and owners, which processes of version 0.1.0 use during a deploy. `pattern`
    is the argument of PSUBSCRIBE that matches these channels."""

    def __init__(self, keys: "Keys") -> None:
        self.pattern = keys.feed_channels("*")[0].replace(b"{b00}", b"{b[0-9][0-9]}")
        self._keys = keys

    def is_list(self, channel: bytes) -> bool:
        """Return whether `channel` is the single channel of a list."""
        return b"}:" in channel and b":list:" in channel

    def list_channel(self, feed_channel: bytes) -> bytes:
        """Return the single channel of the list whose change was published on a feed channel."""
        return self._keys.list_channel(feed_channel.partition(b":feed:")[2].decode(errors="replace"))


class Keys:
    """The names of the keys and channels of a store with `buckets` buckets in the database number `database`."""

    def __init__(self, buckets: int, database: int = 0) -> None:
        self.buckets = buckets
        self._prefixes = tuple(b"tc:{b%02d}:" % bucket for bucket in range(buckets))
        own = b"%d:" % database if database else b""
        self._channels = tuple(prefix + own for prefix in self._prefixes)
        self._topics = b"tc:" + own + b"whisper:"

    def bucket_of(self, chat_id: str) -> int:
        return crc32(chat_id.encode()) % self.buckets

    def chat(self, chat_id: str) -> ChatKeys:
        bucket = self.bucket_of(chat_id)
        return ChatKeys(self._prefixes[bucket], chat_id, self._channels[bucket])

    def due(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"due"

    def rests(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"rests"

    def own(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"own"

    def owners(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"owners"

    def judge(self, bucket: int, worker: str) -> bytes:
        return self._prefixes[bucket] + b"judge:" + worker.encode()

    def bell(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"bell"

    def dead(self, bucket: int) -> bytes:
        return self._prefixes[bucket] + b"dead"

    def erased(self) -> list[bytes]:
        """Return the key of every bucket that has the time of the last deletion of a chat."""
        return [prefix + b"erased" for prefix in self._prefixes]

    def bells(self) -> list[bytes]:
        return [prefix + b"bell" for prefix in self._prefixes]

    def chats(self, bucket: int, owner: str) -> bytes:
        return self._prefixes[bucket] + b"chats:" + owner.encode()

    def account(self, bucket: int, principal_id: str) -> bytes:
        return self._prefixes[bucket] + b"account:" + principal_id.encode()

    def gone(self, bucket: int, principal_id: str) -> bytes:
        return self._prefixes[bucket] + b"gone:" + principal_id.encode()

    def allowances(self, principal_id: str) -> bytes:
        return b"tc:turns:{" + principal_id.encode() + b"}"

    def topic_channel(self, topic: str) -> bytes:
        return self._topics + topic.encode()

    def feed_channels(self, owner: str) -> list[bytes]:
        """Return the owner's feed channel of every bucket. A script publishes only in the bucket of its chat."""
        return [prefix + b"feed:" + owner.encode() for prefix in self._channels]

    def inbox_signal_prefix(self, bucket: int) -> bytes:
        return self._channels[bucket] + b"mail:"

    def list_channel(self, owner: str) -> bytes:
        """Return the single channel of the owner's list, on which scripts publish if the store is one server."""
        return self._channels[self.bucket_of(owner)] + b"list:" + owner.encode()

    def inbox_signal_channels(self, worker: str) -> list[bytes]:
        """Return the worker's channel of every bucket. `post` publishes only in the bucket of its chat."""
        return [prefix + b"mail:" + worker.encode() for prefix in self._channels]
