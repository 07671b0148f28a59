"""Replaces time and randomness in the product's modules while a simulation is installed.

Every module of `server` and `protocol` that imports the standard `time`, `random` or `secrets` gets a substitute that
belongs to the running schedule. Nothing else is changed, and the end of `installed` restores everything. Constants that
only lengthen waits are shortened, in proportion to the lease. No number in a schedule depends on the machine.
"""

import asyncio
import itertools
import logging
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import anyio
import structlog
from anyio import abc
from anyio._backends import _asyncio as anyio_backend

from tests.sim import waits
from tests.sim.loop import VirtualLoop
from tests.sim.tally import COUNTS
from threadcast.actor import actor, append, host, rests, run_slots, writer
from threadcast.actor import checkpoint_policy as checkpoint_policy
from threadcast.actor import retry_policy as retry_policy_module
from threadcast.actor.actor import Actor
from threadcast.agent_loop import loop as agent_loop
from threadcast.agent_loop.durable import operations
from threadcast.chat import entry_fold
from threadcast.fanout import hub, relay, subscriber
from threadcast.store.memory import channels as memory_channels
from threadcast.store.memory import store as memory
from threadcast.store.redis import listener
from threadcast_protocol.framing.codec import decode_events

__all__ = ["LEASE_SECONDS", "WALL_MS", "Chance", "current", "decode_once", "installed"]

WALL_MS = 1_700_000_000_000
"""The time of every clock when a schedule begins."""

LEASE_SECONDS = 1.0
"""The schedule's lease; 3.5 s in the product. All constants that are shortened below are shortened in about this
proportion."""

decode_once = lru_cache(2_000)(decode_events)
"""Decodes each entry once, because owner, relays and checks read the same bytes."""

_SHORTENED: dict[Any, dict[str, object]] = {
    host: {"STORE_PAUSE_SECONDS": 0.2, "QUARANTINE_MS": 2_000_000},
    run_slots: {"CHECK_SECONDS": 2.0},
    hub: {"TICK_SECONDS": 0.6, "QUIET_SECONDS": 0.4, "CHECK_EVERY_SECONDS": 2.0},
    relay: {"STORE_PAUSE_SECONDS": 0.2},
    memory: {"FAST_TAKEOVER_MS": 300, "BUCKETS": 1},
    memory_channels: {"BUCKETS": 1},
    append: {"RETRY_FIRST_SECONDS": 0.1, "RETRY_MAX_SECONDS": 0.4, "GIVE_UP_SECONDS": 8.0},
    retry_policy_module: {"RETRY_FIRST_SECONDS": 0.1, "RETRY_MAX_SECONDS": 0.4, "GIVE_UP_SECONDS": 8.0},
    # A short log already has checkpoints, and is trimmed.
    rests: {"LEFT_SECONDS": 6.0, "AWAY_SECONDS": 0.2},
    actor: {"LEFT_SECONDS": 6.0},
    checkpoint_policy: {
        "CHECKPOINT_MIN_BYTES": 1_500,
        "COMPACT_BYTES": 1_200,
        "CHECKPOINT_EVENTS": 12,
        "KEEP_EVENTS": 10,
        "KEEP_BYTES": 1_500,
        "GROUP_EVENTS": 1,
    },
}


class Chance:
    """The random values that the product may draw; they come from the seed."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.random = random.Random(seed)
        self.loop = loop
        self.errors: list[str] = []

    def log(self, event: str) -> None:
        self.errors.append(event)


CURRENT: list[Chance] = []
"""The schedule that runs now, if any."""


@contextmanager
def current(chance: Chance) -> Iterator[None]:
    """Run the schedule for as long as the block runs."""
    CURRENT[:] = [chance]
    loop = chance.loop
    _TIME.monotonic = loop.time
    if (running := getattr(asyncio.tasks, "_current_tasks", None)) is not None:  # its name in Python 3.11 to 3.13
        vars(anyio_backend)["current_task"] = partial(
            running.get, loop
        )  # without asyncio's frame; `installed` restores it
    try:
        yield
    finally:
        CURRENT.clear()


class _Untraced:
    """A trace of a model call that records nothing, because schedules keep no traces (`WorkerContext.traces` is
    None)."""

    def __init__(self, *_: object) -> None:
        self.left_out: list[str] = []

    def ask(self, *_: object) -> None:
        """Nothing is kept."""

    feed = fail = end = ask

    def timings(self, _usage: object) -> dict[str, object]:
        return {}


class _AsyncioOfWriter:
    """The part of asyncio that the writer uses."""

    Event = waits.QuickEvent
    Lock = asyncio.Lock
    get_running_loop = asyncio.get_running_loop


class _Time:
    """The clock of the running loop."""

    monotonic: Callable[[], float]

    def time(self) -> float:
        return WALL_MS / 1000 + self.monotonic()

    def thread_time(self) -> float:
        return 0.0  # virtual workers take no CPU time

    def time_ns(self) -> int:
        return WALL_MS * 1_000_000 + int(self.monotonic() * 1e9)


class _Random:
    @staticmethod
    def uniform(low: float, high: float) -> float:
        return CURRENT[0].random.uniform(low, high)

    @staticmethod
    def randint(low: int, high: int) -> int:
        return CURRENT[0].random.randint(low, high)

    @staticmethod
    def random() -> float:
        return CURRENT[0].random.random()


class _Os:
    """The part of `os` that the operations of a durable agent use."""

    @staticmethod
    def urandom(count: int) -> bytes:
        return CURRENT[0].random.randbytes(count)


class _Secrets:
    @staticmethod
    def token_hex(count: int) -> str:
        return f"{CURRENT[0].random.getrandbits(8 * count):0{2 * count}x}"


_TIME = _Time()

_STAND_INS: list[tuple[str, object, object]] = [
    ("time", time, _TIME),
    ("random", random, _Random()),
    ("secrets", secrets, _Secrets()),
]


def _start_soon(tasks: Any, call: Callable[..., Any], *args: Any) -> None:  # Any: anyio's own
    """Works like anyio's `start_soon`, but makes no handle for each task: a handle costs a scope, an event and a frame,
    and no caller uses it."""
    scope, loop = tasks.cancel_scope, CURRENT[0].loop
    task = asyncio.Task(call(*args), loop=loop, name="")
    loop.tasks.append(task)
    anyio_backend._task_states[task] = anyio_backend.TaskState(None, scope)
    scope._tasks.add(task)
    tasks._tasks.add(task)

    def done(_task: object) -> None:
        anyio_backend._task_states.pop(task).cancel_scope._tasks.remove(task)  # type: ignore[union-attr]  # it has one
        tasks._tasks.remove(task)
        if tasks._on_completed_fut is not None and not tasks._tasks and not tasks._on_completed_fut.done():
            tasks._on_completed_fut.set_result(None)
        is_cancelled = task.cancelled()
        trouble = None if is_cancelled else task.exception()
        if is_cancelled or trouble is not None:
            if trouble is not None:
                tasks._exceptions.append(trouble)
            if not scope._effectively_cancelled:
                scope.cancel()

    task.add_done_callback(done)


async def _never(_self: object) -> None:
    """Stands for the parts of the product that schedules leave out."""


def _counted(stop_effects: Callable[[Actor], None]) -> Callable[[Actor], None]:
    def stop(actor: Actor) -> None:
        stop_effects(actor)
        COUNTS["self-fence"] += actor._was_cut

    return stop


def _keep_error(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> str:
    """Keep an error of the product as evidence: it is written to the history instead of a stream."""
    said = str(fields.get("event"))
    trouble = sys.exc_info()[1]
    if CURRENT:
        CURRENT[0].log(f"{said} {trouble!r}" if trouble is not None and fields.get("exc_info") else said)
    raise structlog.DropEvent


class _InOrder(dict[Any, None]):
    """A set that is iterated in the order of insertion, at no extra cost."""

    add = dict.setdefault
    remove = dict.__delitem__

    def discard(self, each: object) -> None:
        self.pop(each, None)


@contextmanager
def installed() -> Iterator[None]:
    """Run the product's modules in the schedule's time for as long as the block runs."""
    undo: list[tuple[Any, str, object]] = []

    def put(target: Any, name: str, value: object) -> None:
        undo.append((target, name, getattr(target, name)))
        setattr(target, name, value)

    ours = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(("threadcast.", "threadcast_protocol."))
    ]
    for module, (name, real, stand_in) in itertools.product(ours, _STAND_INS):
        if vars(module).get(name) is real:
            put(module, name, stand_in)
    for module, values in _SHORTENED.items():
        for name, value in values.items():
            put(module, name, value)
    anyio_backend.set = set  # type: ignore[attr-defined]  # a builtin, until the next line
    # Sets of scopes and tasks would be iterated in the order of memory addresses. The backend is looked up hundreds of
    # times in a schedule, and never changes.
    put(anyio_backend, "set", _InOrder)
    backend = anyio_backend.backend_class
    for name, module in sorted(sys.modules.items()):
        if name.startswith("anyio._core.") and hasattr(module, "get_async_backend"):
            put(module, "get_async_backend", lambda _asynclib_name=None: backend)
    put(anyio_backend, "_task_states", {})  # a WeakKeyDictionary in anyio
    for name in ("_all_tasks", "_scheduled_tasks"):  # the names in Python 3.11 and in later versions
        if hasattr(asyncio.tasks, name):
            put(getattr(asyncio.tasks, name), "add", id)  # each new task is created here, and no caller uses the result
    put(abc.TaskGroup, "start_soon", _start_soon)
    put(anyio_backend.CancelScope, "cancel", waits.cancel)
    put(anyio_backend, "CancelScope", waits.Scope)
    put(anyio, "CancelScope", waits.Scope)
    put(anyio, "create_task_group", anyio_backend.TaskGroup)
    put(anyio, "move_on_after", waits.move_on_after)
    put(anyio, "fail_after", waits.FailAfter)
    put(anyio, "sleep", waits.sleep)
    put(anyio, "Event", waits.Event)
    put(anyio, "Lock", waits.Lock)
    put(anyio_backend, "current_task", asyncio.current_task)
    for module in (listener, relay, subscriber):
        put(module, "LeanEvent", waits.Event)
    put(writer, "asyncio", _AsyncioOfWriter)
    put(agent_loop, "RoundTrace", _Untraced)
    put(operations, "os", _Os())
    put(hub.Hub, "_beat_forever", _never)  # heartbeats do not change a reader in a schedule
    put(entry_fold, "decode_events", decode_once)
    put(Actor, "stop_effects", _counted(Actor.stop_effects))
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        processors=[_keep_error],
        cache_logger_on_first_use=False,
    )
    for module in ours:
        if "_log" in vars(module):
            put(module, "_log", structlog.get_logger().bind())  # bound once for speed, since most lines are dropped
    try:
        yield
    finally:
        structlog.configure(**before)
        for target, name, value in reversed(undo):
            setattr(target, name, value)
