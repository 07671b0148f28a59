"""Defines the Store port, a protocol of every operation that the product needs from its store. It has two
implementations.

`RedisStore` runs Lua scripts on Redis ≥ 7.0 or Valkey. `MemoryStore` gives the same guarantees in process memory, for
unit tests and simulation. DISPATCH §2–§6 define the semantics step by step, and
`tests/integration/test_store_contract*.py` check both implementations. Payloads are JSON bytes that `framing/codec.py`
makes; the store does not parse them.

Every method may raise `threadcast_protocol.wire.errors.Unavailable`, which means that the store did not answer in time
or refuses writes. Every method is safe to repeat with the same arguments. No method retries a write by itself, except
after it has loaded a script that the server had forgotten.
"""

from typing import Protocol

from threadcast.store.ports.accounts import Account, Accounts
from threadcast.store.ports.blobs import BlobOutcome, BlobPut, Blobs
from threadcast.store.ports.facts import Facts, Standing
from threadcast.store.ports.inbox import Inbox, InboxEntry, Posted, PostKind, PostOutcome, PostRequest
from threadcast.store.ports.index import ChatMeta, ChatPage, Index, ListCursor, list_owner_of
from threadcast.store.ports.leases import (
    Beat,
    BucketStatus,
    Claimed,
    Claims,
    Compacted,
    Compactions,
    DueBell,
    EndedLeases,
    Leases,
    Lost,
    Released,
    Taken,
    WaitingRun,
    WorkerSignals,
)
from threadcast.store.ports.log import (
    Appended,
    AppendRequest,
    AtOnce,
    Fenced,
    Loaded,
    Log,
    LogMessage,
    Messages,
    absent_id_of,
)
from threadcast.store.ports.pubsub import PubSub
from threadcast.store.ports.records import Allowances, AllowanceSpent, TraceRecord, TraceRecords

__all__ = [
    "Account",
    "Accounts",
    "AllowanceSpent",
    "Allowances",
    "AppendRequest",
    "Appended",
    "AtOnce",
    "Beat",
    "BlobOutcome",
    "BlobPut",
    "Blobs",
    "BucketStatus",
    "ChatMeta",
    "ChatPage",
    "Claimed",
    "Claims",
    "Compacted",
    "Compactions",
    "DueBell",
    "EndedLeases",
    "Facts",
    "Fenced",
    "Inbox",
    "InboxEntry",
    "Index",
    "Leases",
    "ListCursor",
    "Loaded",
    "Log",
    "LogMessage",
    "Lost",
    "Messages",
    "PostKind",
    "PostOutcome",
    "PostRequest",
    "Posted",
    "PubSub",
    "Released",
    "Standing",
    "Store",
    "Taken",
    "TraceRecord",
    "TraceRecords",
    "WaitingRun",
    "WorkerSignals",
    "absent_id_of",
    "list_owner_of",
]


class Store(
    Inbox, Log, Claims, Leases, Compactions, Index, Blobs, TraceRecords, Allowances, Accounts, PubSub, Facts, Protocol
):
    """Combines all ports. `wiring` opens the whole store; all other code takes only the ports that it needs."""
