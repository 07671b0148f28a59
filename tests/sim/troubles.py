"""Carries out the larger troubles of a plan: processes that die, freeze or change their version, and stores that fail.

`world.py` decides when. A trouble comes from outside of the processes, which cannot anticipate it.
"""

from typing import TYPE_CHECKING

import anyio

from tests.sim.loop import Process
from tests.sim.people import CHAT
from tests.sim.plan import Trouble
from tests.sim.store import Replica
from tests.sim.tally import COUNTS

if TYPE_CHECKING:
    from tests.sim.people import Node
    from tests.sim.worker import Worker
    from tests.sim.world import World

__all__ = ["cause", "deploy", "place_of"]


def cause(world: "World", trouble: Trouble) -> None:
    world.note("outside", trouble.kind, f"{trouble.who}", "", f"{trouble.seconds:.2f}")
    worker = world.workers[trouble.who % len(world.workers)]
    node = world.nodes[trouble.who % len(world.nodes)]
    match trouble.kind:
        case "kill":
            world.kill(worker)
        case "pause":
            _freeze(world, worker, trouble.seconds)
        case "freeze_node":
            _freeze(world, node, trouble.seconds)
        case "upgrade" | "downgrade":
            deploy(world, node if trouble.who == 2 else worker, is_newer=trouble.kind == "upgrade")
        case "drain":
            worker.context.run(worker.stop.set)
            COUNTS["hand-over"] += 1
            world.later(2.5, _replace, world, worker)
        case "clock":
            world.clock_offset_ms += int(1000 * trouble.seconds) * (1 if trouble.who == 0 else -1)
        case "back":
            world.clock_offset_ms -= 60_000
        case "blink":
            world.lose_channels(worker, 0.0, trouble.seconds / 6)
        case "half_open":
            world.lose_channels(worker, trouble.seconds, 0.05)
        case "kick":
            _kick(world)
        case "interrupt":
            world.store.interrupt()
        case "failover":
            world.replica = Replica(world.store)
            world.later(trouble.seconds / 2, _fail_over, world, trouble.who)
        case "cut":
            worker.way.is_cut = True
            world.later(trouble.seconds, setattr, worker.way, "is_cut", False)
        case "full":
            world.is_full = True
            COUNTS["memory full"] += 1
            world.later(trouble.seconds, setattr, world, "is_full", False)
        case "slow_reader":
            reader = world.readers[trouble.who % len(world.readers)]
            reader.is_blocked = True
            world.later(trouble.seconds, reader.free)
        case "drop_reader":
            reader = world.readers[trouble.who % len(world.readers)]
            world.background(reader.drop(), reader.node)
        case "deploy":
            world.has_new_code = True
            for each in list(world.workers):
                world.kill(each)
        case "delete":
            world.background(_delete(world))


def _freeze(world: "World", process: Process, seconds: float) -> None:
    if not process.is_dead:
        COUNTS["process frozen"] += 1
        world.silence.froze(process.name)
        world.loop.freeze(process)
        world.later(seconds, world.loop.thaw, process)


def _replace(world: "World", worker: "Worker") -> None:
    """Wait until the drained process has ended, or kill it as a supervisor would."""
    if not worker.is_dead and worker in world.workers:
        world.kill(worker)


def _fail_over(world: "World", who: int) -> None:
    """Lose the primary: writes that the replica did not have yet are lost, and all connections break."""
    replica, world.replica = world.replica, None
    if replica is None:
        return
    COUNTS["failover"] += 1
    world.rollbacks += 1
    had = set(world.store.chat(CHAT).seen)
    world.store.restore(replica)
    world.lost_to_rollback |= had - set(world.store.chat(CHAT).seen)
    world.nonces_kept &= {value.split(" ")[1] for value in world.store.chat(CHAT).seen.values() if " " in value}
    world.note("outside", "failover", world.store.chat(CHAT).head, "", "")
    if world.plan.mix.looks:
        _kick(world)
    else:
        world.store.interrupt()


def _kick(world: "World") -> None:
    """The store closes the connections of all channels, as a restart does."""
    world.silence.all_lost()
    processes: list[Worker | Node] = [*world.workers, *world.nodes]
    for process in processes:
        world.lose_channels(process, 0.0, world.draw_between(0.03, 0.6))


async def _delete(world: "World") -> None:
    """Delete the chat as a user does; later commands create it again, or find it deleted."""
    nonce = world.new_nonce()
    while True:
        try:
            gone = await world.any_node().way.delete(CHAT, "local", nonce)
        except Exception as trouble:  # after every failure the call is repeated with the same nonce
            world.note("person", "delete", nonce, "", str(trouble))
            await anyio.sleep(0.2)
            continue
        world.note("person", "delete", nonce, "", "gone" if gone else "not there")
        return


def deploy(world: "World", process: Process, *, is_newer: bool) -> None:
    """Replace a process by a process of the other version."""
    place = place_of(process)
    if is_newer != (place in world.newer):
        world.newer ^= {place}
        world.kill(process)


def place_of(process: Process) -> str:
    """Return the name of the place that a process shares with its replacements."""
    return process.name.partition("-")[0]
