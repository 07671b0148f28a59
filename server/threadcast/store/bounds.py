"""The limits and lifetimes of the store, shared by the Lua scripts and the in-memory store (DISPATCH §4, §7).

Each constant has its unit in its name and its reason beside it. The scripts receive the constants as arguments, so that
Lua code repeats no number.
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
"""The number of commands of each kind that may wait. A post above this number has the outcome FULL, which the caller
receives as status 429. PROTOCOL §3 sets the number 100. The exempt commands (abort, decisions, IDE results) have a
bound of their own, so that an inbox cannot grow without end. Refusals have a small bound, because they only inform
watchers (DESIGN §4.9)."""

QUEUE_COUNTS: frozenset[PostKind] = frozenset({"normal"})
"""The kinds of commands whose bound counts the commands in the inbox and also the commands that the actor has moved
from the inbox into the chat's queue (`meta.queue`)."""

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
"""A temporary chat is in no list; its keys expire an hour after its last change (PROTOCOL §16)."""

TEMPORARY_RUN_TTL_SECONDS = 30 * 24 * 3_600
"""The lifetime of a temporary chat while one of its runs or sub-chats is open, since these may wait for a person."""

RESUME_SECONDS = 3_600
"""Seconds for which the entries of a chat at rest are kept for readers that resume. A reader that connects later begins
with a snapshot. The key of the entries expires, so no worker is needed to delete them."""

RESUME_MAX_ENTRIES = 4_000
"""The maximum number of entries that a chat at rest keeps for readers that resume."""

RESUME_MAX_BYTES = 4_000_000
"""The maximum memory of the entries that a chat at rest keeps; the store's estimate has an error of up to some 30 %. An
owner trims the log by the size of the entries that the owner knows. If the runs of a chat always run on different
workers, each owner knows only the newest entries. So the store also estimates the size at each compaction. The bound is
four times the bytes that an owner keeps."""

FAST_TAKEOVER_MS = 1_000
"""The milliseconds to which a lease is shortened when a post finds that the chat's worker does not listen. This reduces
the median takeover from 3.3 s to 1.3 s (DISPATCH §8)."""

LOOKS_PER_SWEEP = 4
"""The number of workers that check the owners of a bucket in the time of one sweep. With more workers, each worker
checks less often. So the work of the store grows with the number of owners, not with the square of this number."""

END_LEASES_BATCH = 200
"""The number of owned chats that one call of `end_leases` checks; equal to the number in a heartbeat (BEAT_BATCH)."""

JUDGE_MS = 1_000
"""The milliseconds during which only one worker ends the leases of a dead owner. Ten thousand chats of a bucket take 50
calls."""

BLOB_OVERHEAD_BYTES = 1_024
"""Bytes that the account counts for each blob in addition to its content. A blob of one byte takes some 700 bytes of
Valkey 8: two long keys, a hash, an expiry."""

CHAT_OVERHEAD_BYTES = 1_024
"""Bytes that the account counts for each chat in addition to the chat's keys, because the chat has entries in the sets
of its bucket and in its owner's account. The account counts the same bytes for each remembered id of a deleted chat."""

PUBLISH_MAX_BYTES = 64 * 1_024
"""The maximum bytes of events that are published. An entry with more bytes of events is announced without its events.
Publishing 60 kB costs Redis 153 µs; announcing an entry of 80 kB costs 103 µs (DISPATCH §8)."""

DEAD_MAX = 1_000
"""The number of dead letters (commands that were given up) kept for inspection; the oldest is deleted first."""

BEAT_BATCH = 200
"""The number of chats per call of the beat script. One call takes Redis 0.25 ms; a call for ten thousand chats would
block Redis (DISPATCH §8, trap 19)."""

CLAIM_LOOKED_AT = 128
"""A claim chooses fairly among this number of the oldest due chats, and the same number of the newest due chats. A
claim that reads all these chats takes Redis 0.5 ms (our own measurement)."""

LOG_PAGE_BYTES = 8 * 1_024 * 1_024
"""Maximum bytes of entries that one call reads from a log, in slices; a single larger entry is read whole. The log of
an ordinary chat fits into one call, because a checkpoint is due after 256 kB of entries or, if the last checkpoint is
larger, after as many bytes as that checkpoint has. A state above 64 MB gets no checkpoint
(`actor/checkpoint_policy.py`)."""

SLICE_BYTES, SLICE_ENTRIES = 512 * 1_024, 384
"""The maximum bytes and entries of a large value or a log that one command reads or writes. Such a command blocks Redis
for 1 ms (512 kB of a value) to 2 ms (384 small entries). A command for 50 MB blocked Redis for 100 ms, and a command
for 20,000 entries for 80 ms (`bench/holds.py`). Each slice of a log costs its reader some 0.3 ms of CPU, so smaller
slices would cost more."""

WHOLE_MAX_BYTES = 1_024 * 1_024
"""Larger values are stored in slices. A value of 1 MiB is written in 1 ms and read in 0.4 ms. Smaller values are stored
whole, because older versions can read this form, too (DISPATCH §4)."""

TRIM_ENTRIES = 20_000
"""The maximum number of entries that one command removes from a log, which takes 1 ms. The next trim removes further
entries."""

STAGED_SECONDS = 60
"""Lifetime in seconds of a value in slices, counted from its last slice. A script that makes the value visible ends
this lifetime. Writing a slice may take some 5 s on a slow line (`redis/connection.py`)."""

TRACES_MAX_COUNT = 200
"""The number of trace records that a chat keeps, newest first: some twenty runs with tools. A record is at most 64 KiB,
so a chat has 12.8 MB of traces at worst, and typically a few hundred kB."""
