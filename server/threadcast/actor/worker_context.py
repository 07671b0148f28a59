"""The context that all actors of a worker share: the store, the models, the tools, the cache of folded states.

`wiring` builds it once. Each actor gets the whole context, so that its other arguments concern the chat alone.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from threadcast.actor.append_group import AppendGroup
from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.claim_gate import ClaimGate
from threadcast.actor.run_slots import RunSlots
from threadcast.actor.traces import Traces
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.ports import Authorizations, ModelTable
from threadcast.agent_loop.reasons import Reasons
from threadcast.base.telemetry import Metrics
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.profile import Profiles
from threadcast.settings.limits import DEFAULT_LIMITS, Limits
from threadcast.store.ports import Store
from threadcast.tools.process_pool import ProcessPool
from threadcast.tools.runner import ToolRunner
from threadcast_protocol.wire.ids import NewId

__all__ = ["Cached", "StateCache", "WorkerContext", "random_id"]

CACHE_MAX_BYTES = 256_000_000
"""The maximum memory that the folded states of released chats take in a worker (DESIGN §2). The process needs some 1.6
times as much memory for these states, because short-lived objects leave holes between them (`bench/plateau.py`)."""

STATE_BYTES, MESSAGE_BYTES = 3_800, 1_400
"""The bytes of Python's memory that a folded state takes beyond its JSON: for the state, and for each message. Measured
with tracemalloc: a state that was decoded takes 2.4 kB, and 1.25 to 1.45 kB for each message
(`tests/unit/test_state_cache.py`); a state that a worker has folded from a run takes 1.4 kB more."""


def random_id(prefix: str) -> str:
    """Return `prefix` and 80 random bits. The chance that two of a billion ids in one chat are equal is below 10^-6."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Cached(NamedTuple):
    """A folded state, the checkpoint policy of its log, and the view of its messages that was made for the model."""

    state: OwnerState
    checkpoint_policy: CheckpointPolicy
    kept_view: KeptView


class StateCache:
    """A cache of folded states by chat and head. A state is valid only while its head is the head of the chat's log.
    The least recently used states are removed first."""

    def __init__(self, max_bytes: int = CACHE_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._states: OrderedDict[tuple[str, str], tuple[Cached, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """The memory that the cached states take, by their estimates."""
        return self._bytes

    def put(self, state: OwnerState, checkpoint_policy: CheckpointPolicy, kept_view: KeptView | None = None) -> None:
        """Keep `state` with the checkpoint policy of its log, and with its view if there is room for both."""
        size = checkpoint_policy.state_bytes + STATE_BYTES + MESSAGE_BYTES * len(state.nodes)
        kept_view = kept_view or KeptView()
        if size + kept_view.size_bytes > self._max_bytes:
            kept_view = KeptView()
        size += kept_view.size_bytes
        if size > self._max_bytes:
            return
        self.pop(state.chat_id, state.head)
        self._states[state.chat_id, state.head] = Cached(state, checkpoint_policy, kept_view), size
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (_, oldest) = self._states.popitem(last=False)
            self._bytes -= oldest

    def pop(self, chat_id: str, head: str) -> Cached | None:
        """Remove and return the state with this head; None if the cache has no such state."""
        found = self._states.pop((chat_id, head), None)
        if found is None:
            return None
        cached, size = found
        self._bytes -= size
        return cached


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The dependencies of actors. `worker` is the worker's name, new at each start of a process (DISPATCH §2).
    `data_dir` is the directory into which tools may write. `title_model` is the model that writes titles; with '' the
    first line is the title. `authorizations` finds the credentials of callers. `traces` is None if no traces are kept.
    `reasons` cleans error messages of providers before they are shown."""

    worker: str
    store: Store
    models: ModelTable
    profiles: Profiles
    runner: ToolRunner
    metrics: Metrics
    data_dir: str
    title_model: str = ""
    traces: Traces | None = None
    authorizations: Authorizations | None = None
    limits: Limits = DEFAULT_LIMITS
    reasons: Reasons = field(default_factory=Reasons)
    new_id: NewId = random_id
    cache: StateCache = field(default_factory=StateCache)
    processes: ProcessPool = field(default_factory=ProcessPool)
    append_group: AppendGroup = field(default_factory=AppendGroup)
    slots: RunSlots = field(default_factory=RunSlots)
    gate: ClaimGate = field(default_factory=ClaimGate)
