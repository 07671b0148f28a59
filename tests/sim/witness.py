"""Records each call that was carried out: counts rare states, and adds a line to the history.

`store.py` calls it through the world, at the moment of the step. It changes nothing. A history has a line for every
call with a result; calls that found nothing to do are left out.
"""

from typing import TYPE_CHECKING

from tests.sim.loop import Process
from tests.sim.tally import COUNTS
from threadcast.store.ports import Appended, Beat, Claimed, Fenced, Loaded, Posted, PostOutcome, Released, Taken

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["saw"]


def saw(
    world: "World", process: Process, call: str, what: str, told: str, trouble: Exception | None, value: object
) -> None:
    """Record that a call was carried out."""
    answer = type(trouble).__name__ if trouble is not None else ""
    match value:
        case Appended():
            answer = value.value
            if value is Appended.DUP:
                COUNTS["DUP"] += 1
        case Released.MORE:
            COUNTS["release answered MORE"] += 1
        case Posted():
            answer = value.outcome.value
            if value.outcome is PostOutcome.ACCEPTED:
                world.nonces_kept.add(what.rpartition(" ")[2])
        case Taken():
            chat = world.store.chat("c1")
            answer = value.head
            if what == "takeover" and chat.meta.get("state") in ("generating", "executing_tools"):
                COUNTS["takeover in mid-run"] += 1
        case Loaded():
            if value.checkpoint is not None:
                COUNTS["checkpoint loaded"] += 1
    if isinstance(trouble, Fenced) and call == "append":
        _count_fenced(world, what)
    if told == "lost":
        COUNTS["lost reply"] += 1
    if world.with_history:
        if not answer and value is not None and call not in ("load", "read_log", "read_entry"):
            answer = _brief(value)
        if call in ("claim", "beat", "heads") and not told and answer in ("[]", "{}", ""):
            return
        world.note(process.name, call, what, told, answer)


def _count_fenced(world: "World", what: str) -> None:
    expected = what.partition(" after ")[2]
    chat = world.store.chat("c1")
    if chat.head == expected:
        COUNTS["append found no command"] += 1
    elif any(entry.head == expected for entry in world.store.history.get("c1", ())):
        COUNTS["FENCED by a newer owner"] += 1
    else:
        COUNTS["FENCED by a rollback"] += 1


def _brief(value: object) -> str:
    match value:
        case [Claimed(), *_]:
            claimed = [each for each in value if isinstance(each, Claimed)]
            return " ".join(f"{each.chat_id} from {each.previous or 'nobody'}" for each in claimed)
        case dict():
            return " ".join(f"{key}{each.value if isinstance(each, Beat) else each}" for key, each in value.items())
        case list():
            return f"{[getattr(each, 'request_id', each) for each in value]}"
        case _:
            return str(value)
