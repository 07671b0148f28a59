"""Judges takeovers: checks when a worker may treat an owner without a listener as dead, and the effects of that
takeover.

The store reports each claim, fence and verdict to the judge; `troubles.py` reports each lost connection. Unlike a
worker, the judge knows the real time at which each connection was lost. Each broken rule adds a sentence to the world's
`failures`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.clock import LEASE_SECONDS, decode_once
from tests.sim.loop import Process
from tests.sim.tally import COUNTS
from threadcast.store.ports import Claimed
from threadcast_protocol.wire.events import MessageAdded

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Silence"]

LOOK_GAP_SECONDS = 0.15
"""A shorter silence does not show that an owner is dead. This is the number of DISPATCH §7, not the product's
constant."""


class Silence:
    """Records the first and the last time that each process lost its channels, because a worker's two looks may see two
    losses."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._lost_at: dict[str, float] = {}
        self._first_lost_at: dict[str, float] = {}
        self._is_silent: set[str] = set()
        self._all_lost_at = -LEASE_SECONDS
        self._fenced: set[str] = set()  # workers that wrote a fence after their claim
        self._former: dict[str, tuple[str, bool]] = {}  # by worker: the former owner, and whether it had begun
        self._frozen_at: dict[str, float] = {}

    # what happens

    def lost(self, name: str) -> None:
        if name not in self._is_silent:
            self._is_silent.add(name)
            self._lost_at[name] = self._world.loop.now
            self._first_lost_at.setdefault(name, self._world.loop.now)

    def all_lost(self) -> None:
        self._all_lost_at = self._world.loop.now

    def heard(self, name: str) -> None:
        self._is_silent.discard(name)

    def froze(self, name: str) -> None:
        self._frozen_at[name] = self._world.loop.now

    def settled_seconds(self) -> float:
        """Return the store's reported uptime in seconds; 0 after a replica was promoted."""
        return 0.0 if self._world.rollbacks else self._world.loop.now - self._all_lost_at

    # what may follow

    def claimed(self, worker: str, claimed: Sequence[Claimed]) -> None:
        for each in claimed:
            self._former[worker] = (each.previous, each.previous in self._fenced)
            self._fenced.discard(worker)

    def takes(self, worker: str, why: str) -> None:
        former, has_begun = self._former.get(worker, ("", True))
        if why == "takeover" and former and not has_begun and not self._world.rollbacks:
            self._world.fail(f"the end of {former} counts against its chat, which it had not begun to work on")
        self._fenced.add(worker)

    def judged(self, worker: str, owner: str) -> None:
        """Judge that `worker` has ended the leases of `owner`."""
        now = self._world.loop.now
        COUNTS["silent owner judged"] += 1
        COUNTS["live owner judged"] += not any(each.name == owner for each in self._world.dead)
        if self._world.store._switchboard.is_watched(f"mail:{owner}"):
            self._world.fail(f"{worker} took {owner} for dead, which listens")
        elif (silent_seconds := now - self._first_lost_at[owner]) < LOOK_GAP_SECONDS:
            self._world.fail(f"{worker} took {owner} for dead after {1000 * silent_seconds:.0f} ms")
        if now - self._all_lost_at < LEASE_SECONDS:
            self._world.fail(f"{worker} took {owner} for dead soon after all connections were lost")
        if worker in self._is_silent or now - self._lost_at.get(worker, -LEASE_SECONDS) < LEASE_SECONDS:
            self._world.fail(f"{worker} took {owner} for dead soon after it had lost its own connection")

    def effect(self, process: Process | None, call_id: str, began_at: float) -> None:
        """Check an effect of a tool that may not run twice: the log must not yet hold an outcome of the call."""
        world = self._world
        if process is None or self._frozen_at.get(process.name, -1.0) >= began_at:
            return  # code in a frozen process cannot know the time
        is_clock_wrong = any(trouble.kind in ("clock", "back") for trouble in world.plan.troubles)
        if world.rollbacks or world.deletes or is_clock_wrong:
            return
        for entry in world.store.history.get("c1", ()):
            if call_id.encode() not in entry.events:
                continue
            for event in decode_once(entry.events):
                if isinstance(event, MessageAdded) and event.message.tool_call_id == call_id:
                    world.fail(f"{call_id} had its effect in {process.name} after the log had said how it ended")
                    return
