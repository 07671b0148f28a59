"""The context that all actors of a worker share: the store, the models, the tools, the cache of folded states.

`wiring` builds it once. Each actor gets the whole context, so that its other arguments concern the chat alone.
"""

import secrets
from dataclasses import dataclass, field

from threadcast.actor.append_group import AppendGroup
from threadcast.actor.claim_gate import ClaimGate
from threadcast.actor.rests import Rests
from threadcast.actor.run_slots import RunSlots
from threadcast.actor.state_cache import StateCache
from threadcast.actor.traces import Traces
from threadcast.agent_loop.ports import Authorizations, ModelTable
from threadcast.agent_loop.reasons import Reasons
from threadcast.base.telemetry import Metrics
from threadcast.profiles.profile import Profiles
from threadcast.settings.limits import DEFAULT_LIMITS, Limits
from threadcast.store.ports import Store
from threadcast.tools.process_pool import ProcessPool
from threadcast.tools.runner import ToolRunner
from threadcast_protocol.wire.ids import NewId

__all__ = ["WorkerContext", "random_id"]


LINGER_SECONDS = 0.1
"""Seconds for which an actor without work keeps its chat. If a program sends its next command at the end of an answer,
the chat need not be claimed and taken anew, which takes 2 ms of the time to the first delta."""


def random_id(prefix: str) -> str:
    """Return `prefix` and 80 random bits. The chance that two of a billion ids in one chat are equal is below 10^-6."""
    return f"{prefix}_{secrets.token_hex(10)}"


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
    rests: Rests = field(default_factory=Rests)
    processes: ProcessPool = field(default_factory=ProcessPool)
    append_group: AppendGroup = field(default_factory=AppendGroup)
    slots: RunSlots = field(default_factory=RunSlots)
    gate: ClaimGate = field(default_factory=ClaimGate)
    linger_seconds: float = LINGER_SECONDS
