"""The limits and lifetimes of the store, shared by the Lua scripts and the in-memory store (DISPATCH §4, §7).

Each constant has its unit in its name and its reason beside it. The scripts receive them as arguments, so that no
number is written down a second time in Lua.
"""

from threadcast.store.ports import PostKind

__all__ = [
    "BEAT_BATCH",
    "BLOB_OVERHEAD_BYTES",
    "CHAT_OVERHEAD_BYTES",
    "CLAIM_LOOKED_AT",
    "DEAD_MAX",
    "DELETED_TTL_SECONDS",
    "EMPTY_CHAT_TTL_SECONDS",
    "END_LEASES_BATCH",
    "FAST_TAKEOVER_MS",
    "INBOX_MAX",
    "JUDGE_MS",
    "LOG_PAGE_BYTES",
    "LOOKS_PER_SWEEP",
    "PUBLISH_MAX_BYTES",
    "QUEUE_COUNTS",
    "RESUME_MAX_BYTES",
    "RESUME_MAX_ENTRIES",
    "RESUME_SECONDS",
    "SEEN_GENERATION",
    "SEEN_TTL_SECONDS",
    "SLICE_BYTES",
    "SLICE_ENTRIES",
    "STAGED_SECONDS",
    "TEMPORARY_CHAT_TTL_SECONDS",
    "TEMPORARY_RUN_TTL_SECONDS",
    "TRACES_MAX_COUNT",
    "TRIM_ENTRIES",
    "WHOLE_MAX_BYTES",
]

INBOX_MAX: dict[PostKind, int] = {"normal": 100, "exempt": 1_000, "import": 1_000, "refusal": 20, "probe": 0}
"""The number of commands of each kind that may wait. A post beyond this number is answered FULL, which the caller sees
as 429. PROTOCOL §3 sets the number 100. The exempt commands (abort, decisions, IDE results) have a bound of their own,
so that an inbox cannot grow without end; refusals only inform watchers (DESIGN §4.9)."""

QUEUE_COUNTS: frozenset[PostKind] = frozenset({"normal"})
"""Kinds whose bound also counts the commands that the actor has moved from the inbox into the chat's own queue
(`meta.queue`)."""

SEEN_GENERATION = 1_000
"""Request ids per generation; two generations remember the newest 1,000 to 2,000 ids at constant cost (DISPATCH §4)."""

SEEN_TTL_SECONDS = 24 * 3_600
"""Request ids are remembered for 24 hours after the last one (PROTOCOL §3)."""

DELETED_TTL_SECONDS = 30 * 24 * 3_600
"""Seconds that a deleted chat's owner and epoch floor are kept. Afterwards only the clock makes sure that new epochs
are larger than old ones."""

EMPTY_CHAT_TTL_SECONDS = 24 * 3_600
"""A chat without messages is in no list; its keys expire after a day without a change (DESIGN §4.9)."""

TEMPORARY_CHAT_TTL_SECONDS = 3_600
"""A temporary chat is in no list, either; its keys expire an hour after its last change (PROTOCOL §16)."""

TEMPORARY_RUN_TTL_SECONDS = 30 * 24 * 3_600
"""The lifetime of a temporary chat while one of its runs or sub-chats is open, since these may wait for a person."""

RESUME_SECONDS = 3_600
"""Seconds for which the entries of a chat at rest are kept for readers that resume. A reader that connects later begins
with a snapshot. The store deletes the entries by itself, so that no worker wakes for it."""

RESUME_MAX_ENTRIES = 4_000
"""The maximum number of entries that a chat at rest keeps for readers that resume."""

RESUME_MAX_BYTES = 4_000_000
"""The maximum memory of the entries that a chat at rest keeps; the store's estimate is right within some 30 %. An owner
trims by the bytes of the entries that it knows. If the runs of a chat always run on different workers, each owner knows
only the newest entries, so the store estimates the size at each release. The bound is four times the bytes that an
owner keeps."""

FAST_TAKEOVER_MS = 1_000
"""The milliseconds to which a lease is shortened when a post finds that the chat's worker does not listen. The median
takeover takes 1.3 s instead of 3.3 s (DISPATCH §8)."""

LOOKS_PER_SWEEP = 4
"""The number of workers that check the owners of a bucket in the time of one sweep. With more workers, each worker
checks less often, so that the work of the store grows with the number of owners, not with its square."""

END_LEASES_BATCH = 200
"""The number of owned chats that one call checks to end the leases of a dead owner, the same as in a heartbeat."""

JUDGE_MS = 1_000
"""The milliseconds during which only one worker ends the leases of a dead owner: ten thousand chats of a bucket take 50
calls."""

BLOB_OVERHEAD_BYTES = 1_024
"""Bytes that the account counts for each blob in addition to its content. A blob of one byte takes some 700 bytes of
Valkey 8: two long keys, a hash, an expiry."""

CHAT_OVERHEAD_BYTES = 1_024
"""Bytes that the account counts for each chat, and each remembered id of a deleted chat, in addition to the chat's
keys: the chat has entries in the sets of its bucket, and in its owner's account."""

PUBLISH_MAX_BYTES = 64 * 1_024
"""The maximum bytes of events that are published. An entry with more bytes of events is announced without its events:
publishing 60 kB costs Redis 153 µs, announcing 80 kB costs 103 µs (DISPATCH §8)."""

DEAD_MAX = 1_000
"""The number of dead letters (commands that were given up) kept for inspection; the oldest is deleted first."""

BEAT_BATCH = 200
"""Chats per call of the beat script: 0.25 ms of Redis; ten thousand in one script would block Redis (DISPATCH §8, trap
19)."""

CLAIM_LOOKED_AT = 128
"""A claim chooses fairly among this number of the oldest due chats, and the same number of the newest due chats. A
claim that looks at all of them takes Redis 0.5 ms (our own measurement)."""

LOG_PAGE_BYTES = 8 * 1_024 * 1_024
"""Bytes of entries that one call reads from a log (more if a single entry is larger), in slices. The log of an ordinary
chat fits, because a checkpoint is due after 256 kB, or after as many bytes as the last checkpoint has, and after 64 MB
at the latest."""

SLICE_BYTES, SLICE_ENTRIES = 512 * 1_024, 384
"""The maximum that one command reads or writes of a large value or a log. Such a command holds Redis for 1 ms (512 kB
of a value) to 2 ms (384 small entries), whereas a command for 50 MB held Redis for 100 ms, and one for 20,000 entries
for 80 ms (`bench/holds.py`). Each slice of a log costs its reader some 0.3 ms of CPU, so smaller slices would cost
more."""

WHOLE_MAX_BYTES = 1_024 * 1_024
"""Larger values are stored in slices: 1 MiB is written in 1 ms and read in 0.4 ms. Smaller values are stored whole, a
form that older versions can read, too (DISPATCH §4)."""

TRIM_ENTRIES = 20_000
"""The maximum number of entries that one command removes from a log, which takes 1 ms. The next trim removes the
others."""

STAGED_SECONDS = 60
"""Seconds after its last slice at which a value in slices is deleted, unless a script has made the value visible
before. A slice may take some 5 s on a slow line (`redis/connection.py`)."""

TRACES_MAX_COUNT = 200
"""The number of trace records that a chat keeps, newest first: some twenty runs with tools. A record is at most 64 KiB,
so a chat has 12.8 MB of traces at worst, and typically a few hundred kB."""
