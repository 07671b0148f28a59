"""A worker process of a schedule: the real host, on its own way to the store.

Made anew for every start, with a name of its own and an empty cache, as a process is. `world.py` starts, freezes and
kills it. The rule: nothing of a worker outlives it but what the store holds.
"""

import asyncio
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from protocol.state import ChatState
from server.actor.host import Host, Rhythm
from server.actor.upkeep import Upkeep
from server.actor.workplace import StateCache, Workplace
from server.agent.place.profile import ChatTools, Profile, Profiles
from server.store.port import Claimed
from server.tools.runner import ToolRunner
from tests.sim.cast import TOOLS
from tests.sim.clock import LEASE_SECONDS
from tests.sim.loop import Process
from tests.sim.tally import COUNTS

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Worker"]

RHYTHM = Rhythm(lease_seconds=LEASE_SECONDS, beat_seconds=0.31, sweep_seconds=1.2, drain_seconds=2.0)
"""The proportions of the product's, with fewer sweeps: they cost the most and mean the least."""


class _Cache(StateCache):
    """Tells how often a cached state was used and how often it was of another history."""

    def pop(self, chat_id: str, head: str) -> tuple[ChatState, Upkeep] | None:
        had = any(name == chat_id for name, _ in self._states)
        found = super().pop(chat_id, head)
        if found is not None:
            COUNTS["cached state used"] += 1
        elif had:
            COUNTS["cached state rejected"] += 1
        return found


class _Profiles(Profiles):
    """Nothing that a schedule does changes which tools are offered, so the table is made once."""

    _table: ChatTools | None = None

    def tools_of(self, state: ChatState) -> ChatTools:
        if self._table is None:
            self._table = super().tools_of(state)
        return self._table


PROFILES = _Profiles({"agent": Profile(name="agent")}, TOOLS, "sim/m")


class _Host(Host):
    """Has nothing to keep until it has had a chat, and a third of all hosts never get one: the clocks of its leases
    start with the first. Each tick costs a schedule as much as a step of the chat."""

    def __init__(self, place: Workplace) -> None:
        super().__init__(place, RHYTHM)
        self._has_had_chats = anyio.Event()

    def _adopt(self, chat: Claimed, tasks: TaskGroup) -> None:
        self._has_had_chats.set()
        super()._adopt(chat, tasks)

    async def _beat_forever(self, tasks: TaskGroup) -> None:
        await self._has_had_chats.wait()
        await super()._beat_forever(tasks)

    async def _fence_self(self) -> None:
        await self._has_had_chats.wait()
        await super()._fence_self()


class Worker(Process):
    """A worker process with its host."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(name)
        self.way = world.way_of(self)
        self.ids = 0
        self.stop = asyncio.Event()
        place = Workplace(
            worker=name,
            store=self.way,
            models=world.models,
            profiles=PROFILES,
            runner=ToolRunner(cancel_grace_seconds=0.1),
            metrics=world.metrics,
            data_dir=".",
            new_id=self.new_id,
            cache=_Cache(),
        )
        self.place = place
        self.host = _Host(place)

    def new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}_{self.name}_{self.ids}"

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.host.run)
            await self.stop.wait()
            await self.host.drain()
            tasks.cancel_scope.cancel()
