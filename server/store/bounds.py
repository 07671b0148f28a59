"""The store's numbers, once, for the scripts and for the in-memory twin alike (DISPATCH §4, §7).

It knows neither Redis nor Python's clocks: plain constants, each with its unit in its name and its reason beside it.
The scripts receive them as arguments, so that no number is written down a second time in Lua.
"""

from server.store.port import PostKind

__all__ = [
    "BEAT_BATCH",
    "DEAD_MAX",
    "DELETED_TTL_SECONDS",
    "EMPTY_CHAT_TTL_SECONDS",
    "FAST_TAKEOVER_MS",
    "INBOX_MAX",
    "LOG_PAGE_BYTES",
    "PUBLISH_MAX_BYTES",
    "QUEUE_COUNTS",
    "SEEN_GENERATION",
    "SEEN_TTL_SECONDS",
    "TRACES_MAX_COUNT",
]

INBOX_MAX: dict[PostKind, int] = {"normal": 100, "exempt": 1_000, "import": 1_000, "refusal": 20}
"""How many commands may wait. Reached: FULL, which the caller sees as 429. 100 is PROTOCOL §3's; what is exempt from it
(abort, decisions, IDE results) still must not grow without end; refusals are only news for watchers (DESIGN §4.9)."""

QUEUE_COUNTS: frozenset[PostKind] = frozenset({"normal"})
"""Kinds whose bound also counts the commands that the actor has taken up into the chat's own queue (`meta.queue`)."""

SEEN_GENERATION = 1_000
"""Request ids a generation holds; two of them remember the newest 1,000 to 2,000 at constant cost (DISPATCH §4)."""

SEEN_TTL_SECONDS = 24 * 3_600
"""Request ids are remembered for 24 hours after the last one (PROTOCOL §3)."""

DELETED_TTL_SECONDS = 30 * 24 * 3_600
"""How long a deleted chat's owner and epoch floor are kept; afterwards the clock alone keeps epochs apart."""

EMPTY_CHAT_TTL_SECONDS = 24 * 3_600
"""A chat without messages is in no list, and its keys go after a day of rest (DESIGN §4.9)."""

FAST_TAKEOVER_MS = 1_000
"""A post that finds the owner gone cuts the lease to this: takeover p50 1.3 s instead of 3.3 (DISPATCH §8)."""

PUBLISH_MAX_BYTES = 64 * 1_024
"""Events above this go as a notice: publishing 60 kB costs Redis 153 µs, a notice for 80 kB 103 (DISPATCH §8)."""

DEAD_MAX = 1_000
"""Commands given up that are kept for a person to look at; the oldest goes first."""

BEAT_BATCH = 200
"""Chats a beat script takes: 0.25 ms of Redis; ten thousand in one script would block it (DISPATCH §8, trap 19)."""

LOG_PAGE_BYTES = 8 * 1_024 * 1_024
"""Entries that one call reads from a log, unless a single one is larger: some 10 ms of Redis. The log of a chat of
ordinary size fits: a checkpoint is due after 256 kB or as much as the last one, and 64 MB at most."""

TRACES_MAX_COUNT = 200
"""Records of traces that a chat keeps, the newest: some twenty runs with tools. A record is at most 64 KiB, so 12.8 MB
at the very worst, and a few hundred kB for a chat as people have them."""
