"""What every actor of a worker shares: the store, the models, the tools, the cache of folded states.

Built once by `worker.py`; actors get it whole, so that an actor's own arguments are the chat and nothing else.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from protocol.ids import NewId
from protocol.state import ChatState
from server.actor.pace import Pace
from server.actor.traces import Traces
from server.actor.upkeep import Upkeep
from server.agent.loop import ANSWER_SECONDS
from server.agent.place.profile import Profiles
from server.agent.ports import Authorizations, ModelTable
from server.agent.reasons import Reasons
from server.store.port import Store
from server.telemetry import Metrics
from server.tools.process_pool import ProcessPool
from server.tools.runner import ToolRunner

__all__ = ["StateCache", "Workplace", "random_id"]

CACHE_MAX_BYTES = 256_000_000
"""Folded states of released chats that a worker keeps (DESIGN §2)."""


def random_id(prefix: str) -> str:
    """80 random bits: two of a billion ids in one chat are equal with a chance below 10^-6."""
    return f"{prefix}_{secrets.token_hex(10)}"


class StateCache:
    """Folded states by head string, least recently used out first. A state is good iff its head is the chat's."""

    def __init__(self, max_bytes: int = CACHE_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._states: OrderedDict[tuple[str, str], tuple[ChatState, Upkeep]] = OrderedDict()
        self._bytes = 0

    def put(self, state: ChatState, upkeep: Upkeep) -> None:
        """Keep `state` and what its owner knew of its log."""
        if upkeep.state_bytes > self._max_bytes:
            return
        self._states[state.chat_id, state.head] = (state, upkeep)
        self._bytes += upkeep.state_bytes
        while self._bytes > self._max_bytes:
            _, (_, oldest) = self._states.popitem(last=False)
            self._bytes -= oldest.state_bytes

    def pop(self, chat_id: str, head: str) -> tuple[ChatState, Upkeep] | None:
        """The state at exactly this head and its upkeep, taken out; None when it is not here."""
        found = self._states.pop((chat_id, head), None)
        if found is not None:
            self._bytes -= found[1].state_bytes
        return found


@dataclass(frozen=True, slots=True)
class Workplace:
    """`worker` is new for every process start (DISPATCH §2). `data_dir` is where tools may write. `title_model` makes
    titles; '' leaves them at the first line. `authorizations`: who knows the callers' credentials. `traces` None: none
    are kept. `reasons` makes providers' words fit to be shown."""

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
    answer_seconds: float = ANSWER_SECONDS
    reasons: Reasons = field(default_factory=Reasons)
    new_id: NewId = random_id
    cache: StateCache = field(default_factory=StateCache)
    processes: ProcessPool = field(default_factory=ProcessPool)
    pace: Pace = field(default_factory=Pace)
