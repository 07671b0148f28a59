"""A worker process of a schedule: the real host with its own connection to the store.

Each start makes a new object with a new name and an empty cache, like a new process. `world.py` starts, freezes and
kills it. When a worker ends, only its data in the store survives.
"""

import asyncio
import random
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from tests.sim.agents import AGENT, agents_of
from tests.sim.cast import TOOLS
from tests.sim.clock import LEASE_SECONDS
from tests.sim.loop import Process
from tests.sim.people import PERSON
from tests.sim.tally import COUNTS
from threadcast.actor.host import Host
from threadcast.actor.lease_timings import LeaseTimings
from threadcast.actor.run_slots import Rank, RunSlots
from threadcast.actor.state_cache import Cached, StateCache
from threadcast.actor.worker_context import WorkerContext
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.profile import ChatTools, Profile, Profiles
from threadcast.providers.base import AGENTS
from threadcast.providers.registry import Providers
from threadcast.settings.limits import Limits
from threadcast.store.ports import Claimed
from threadcast.tools.runner import ToolRunner

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Worker"]

TIMINGS = LeaseTimings(lease_seconds=LEASE_SECONDS, beat_seconds=0.31, sweep_seconds=1.2)
"""Timings in the proportions of the product's, but with fewer sweeps, because sweeps cost the most and matter the
least."""

LOOK_TIMINGS = LeaseTimings(lease_seconds=LEASE_SECONDS, beat_seconds=0.31, sweep_seconds=0.2)
"""Timings of schedules in which workers look for silent owners. Sweeps are nearly as frequent as in the product,
because each sweep looks."""


COMPACT_AFTER_SECONDS = (0.0, 0.3, 3.0)
"""Logs are compacted at once, between two commands, or when most people have left."""


class _Cache(StateCache):
    """Counts how often a cached state was used and how often it belonged to another history."""

    def pop(self, chat_id: str, head: str) -> Cached | None:
        had = any(name == chat_id for name, _ in self._states)
        found = super().pop(chat_id, head)
        if found is not None:
            COUNTS["cached state used"] += 1
        elif had:
            COUNTS["cached state rejected"] += 1
        return found


class _Profiles(Profiles):
    """Caches the table of tools, because no step of a schedule changes which tools are offered."""

    _table: ChatTools | None = None

    def tools_of(self, state: OwnerState) -> ChatTools:
        if self._table is None:
            self._table = super().tools_of(state)
        return self._table


PROFILES = _Profiles({"agent": Profile(name="agent")}, TOOLS, "sim/m")
AGENT_PROFILES = _Profiles({"agent": Profile(name="agent", model=f"{AGENTS}{AGENT}", is_durable=True)}, TOOLS, "sim/m")


class _Host(Host):
    """Starts the clocks of its leases with its first chat, because a third of all hosts never get a chat. Each tick
    costs a schedule as much as a step of the chat."""

    def __init__(self, context: WorkerContext, *, looks: bool) -> None:
        super().__init__(context, LOOK_TIMINGS if looks else TIMINGS)
        self._looks = looks
        self._has_had_chats = anyio.Event()

    async def _look(self, bucket: int, tasks: TaskGroup) -> None:
        if self._looks:
            await super()._look(bucket, tasks)

    def _adopt(self, chat: Claimed, tasks: TaskGroup) -> None:
        self._has_had_chats.set()
        super()._adopt(chat, tasks)

    async def _beat_forever(self, tasks: TaskGroup) -> None:
        await self._has_had_chats.wait()
        await super()._beat_forever(tasks)

    async def _fence_self(self) -> None:
        await self._has_had_chats.wait()
        await super()._fence_self()


class _Slots(RunSlots):
    """Counts how often a run had to wait."""

    def wait(self, chat_id: str, principal_id: str, rank: Rank, within_ms: int) -> None:
        COUNTS["run waited for a slot"] += 1
        super().wait(chat_id, principal_id, rank, within_ms)


def scarce_slots(world: "World", name: str) -> RunSlots:
    """Return slots for one run. In a fifth of the seeds, in a third of the workers, another run of the caller holds the
    slot for a while."""
    slots, chance = _Slots(1), random.Random(f"slots {world.plan.seed} {name}")
    if world.plan.seed % 5 == 2 and chance.random() < 1 / 3:
        slots.take("other", PERSON.id, Rank(0, 0))
        world.later(chance.uniform(0.1, 4.0), slots.free, "other")
    return slots


class Worker(Process):
    """A worker process with its host."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(name)
        self.way = world.way_of(self)
        self.ids = 0
        self.stop = asyncio.Event()
        context = WorkerContext(
            worker=name,
            store=self.way,
            models=Providers([agents_of(world, name, world.has_new_code)]) if world.plan.mix.agents else world.models,
            profiles=AGENT_PROFILES if world.plan.mix.agents else PROFILES,
            runner=ToolRunner(cancel_grace_seconds=0.1),
            metrics=world.metrics,
            data_dir=".",
            new_id=self.new_id,
            cache=_Cache(),
            limits=Limits(drain_seconds=2.0, compact_after_seconds=COMPACT_AFTER_SECONDS[world.plan.seed % 3]),
            slots=scarce_slots(world, name),
        )
        self.worker_context = context
        self.host = _Host(context, looks=world.plan.mix.looks)

    def new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}_{self.name}_{self.ids}"

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.host.run)
            await self.stop.wait()
            await self.host.drain()
            tasks.cancel_scope.cancel()
