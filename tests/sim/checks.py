"""The conditions that must hold when a schedule has settled, after any sequence of failures.

Each check reads the log from its very first entry (`store.history`), the owner's cached state, the readers and the
tools' own memory, and trusts no report of the parts under test about themselves. A check that fails adds a sentence to
the world's `failures`. After a rollback, a missing command is a failure only if its client could have kept the command.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.cast import answer_to
from tests.sim.clock import decode_once
from tests.sim.loop import at_once
from tests.sim.tally import COUNTS
from tests.sim.versions import understood, understood_all
from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.compaction import is_compacted
from threadcast.agent_loop.plan import next_deadline_ms
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_acks
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.load import NewerVersion, extent_of, fold_checked, fold_loaded
from threadcast.store.ports import Loaded
from threadcast_protocol.fold.reducer import Gap, reduce
from threadcast_protocol.fold.snapshot import active_path, snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import split_array
from threadcast_protocol.wire.events import Ack, MessageAdded, ThreadUpdated, ToolStatus
from threadcast_protocol.wire.ids import Head
from threadcast_protocol.wire.messages import text_of

if TYPE_CHECKING:
    from tests.sim.people import Reader
    from tests.sim.world import World

__all__ = ["check_end", "check_shown", "unsettled"]

CLIENTS_ONE_IN = 4
"""Share of seeds in which a client also begins in the middle; readers also begin in the middle all the time, and are
compared with the log in every seed that has readers."""


_WITH_EFFECTS = frozenset({MessageAdded, ThreadUpdated, Ack})
"""The types of events in which a command's effect can appear; most events have other types."""


def check_shown(world: "World", reader: "Reader") -> None:
    """Check that everything a reader was shown since its last snapshot is part of the log. The condition holds at every
    moment, unless a failover takes entries back."""
    if world.rollbacks or world.deletes or not reader.shown:
        return
    _compare_shown(world, reader)


def _compare_shown(world: "World", reader: "Reader") -> None:
    wanted = dict(reader.shown)
    if not wanted:
        return
    for entry in reversed(world.store.history.get("c1", [])):
        raws = split_array(entry.events)
        for position, raw in enumerate(raws, start=entry.position - len(raws) + 1):
            shown = wanted.pop(position, None)
            if shown is not None and shown != bytes(raw):
                world.fail(f"{reader.name} was shown {shown!r} at {position}, the log says {bytes(raw)!r}")
                return
        if not wanted:
            return
    world.fail(f"{reader.name} was shown positions that no log holds: {sorted(wanted)}")


def check_end(world: "World") -> None:
    chat = world.store.chat("c1")
    if "deleted" in chat.meta and (chat.head or chat.log or chat.inbox):
        world.fail(f"a deleted chat came back: {chat.head}")
    state = _check_folds(world)
    if state is None:
        return
    _check_readers(world, state)
    _check_commands(world)
    if world.plan.mix.agents:
        world.book.check_end(state)
    else:
        _check_answers(world, state)
    _check_tools(world)
    if world.store.bucket.own.keys() - world.store.bucket.due.keys():
        world.fail("a chat is owned and not due")
    policy = CheckpointPolicy.of(extent_of(at_once(world.store.load("c1"))))
    # A rollback may lose a compaction that its worker counts on; a large state then waits until the log has grown.
    if chat.head and is_compacted(state, policy) and not chat.is_compacted and not world.rollbacks:
        world.fail("the log of a chat at rest is not compacted")
    if (deadline := next_deadline_ms(state)) is not None and not world.store.bucket.due:
        world.fail(f"nobody will come when the time {deadline} in the state is over")
    for command in world.lost_to_rollback:
        if command in world.clients and command not in world.store.chat("c1").seen:
            COUNTS["command lost to a rollback"] += 1


def _check_folds(world: "World") -> OwnerState | None:
    """Check that the log folded from its first entry, from its checkpoint and from a client's snapshot in the middle
    equals the owner's own state."""
    chat = world.store.chat("c1")
    entries = [understood(entry) for entry in world.store.history.get("c1", ())]
    state = empty_owner_state("c1")
    middle: OwnerState | None = None
    turn, rest = divmod(world.plan.seed, CLIENTS_ONE_IN)
    middle_at = turn % len(entries) if entries and rest == 0 else -1
    try:
        for number, entry in enumerate(entries):
            state, _ = fold_checked(state, entry, with_facts=True)
            if number == middle_at:
                middle = state
        held = [understood(entry) for entry in chat.log]
        if chat.snap is not None:
            heads = [entry.head for entry in entries]
            after = heads.index(chat.snap[0])
            held = [entry for entry in held if heads.index(entry.head) > after]
        if chat.snap is not None or held != entries:  # otherwise the log was folded just now
            loaded = fold_loaded("c1", understood_all(Loaded(chat.snap, held, chat.head)), with_facts=True)
            if loaded != state:
                world.fail("checkpoint and entries fold to another state than the whole log")
        if middle is not None:
            _check_client(world, middle, entries[middle_at + 1 :], state)
    except (Gap, NewerVersion, ValueError) as trouble:
        world.fail(f"the log cannot be folded: {trouble}")
        return None
    if state.head != chat.head:
        world.fail(f"the log folds to {state.head!r}, its head is {chat.head!r}")
    for worker in world.workers:
        kept = worker.worker_context.cache._states.get(("c1", chat.head))
        if kept is not None and kept[0].state != state:
            world.fail(f"{worker.name} keeps another state of this head than the log says")
    return state


def _check_client(world: "World", middle: ChatState, entries: list[RawEntry], state: ChatState) -> None:
    """Check that a client's snapshot in the middle and the events after it give the final state. Raises Gap."""
    client = state_from_snapshot("c1", snapshot_of(middle), middle.position)
    for entry in entries:
        events = decode_once(entry.events)
        for position, event in enumerate(events, start=entry.position - len(events) + 1):
            client = reduce(client, position, event)
    if snapshot_of(client) != snapshot_of(state):
        world.fail(f"snapshot at {middle.position} and the events after it are not the state at {state.position}")


def _check_readers(world: "World", state: ChatState) -> None:
    right = snapshot_of(state)
    for reader in world.readers:
        if reader.state is None or snapshot_of(reader.state) != right:
            world.fail(f"{reader.name} sees another chat than the log says")
        _compare_shown(world, reader)
    for node in world.nodes:
        here = node.hub._relays.open.get("c1")
        if here is not None and snapshot_of(here.follower._state) != right:
            world.fail(f"the relay of {node.name} holds another chat than the log says")


def _check_commands(world: "World") -> None:
    """Check that every command that the store still remembers had its effect exactly once, or was refused and had no
    effect."""
    finals: Counter[str] = Counter()
    accepted: set[str] = set()
    effects: Counter[str] = Counter()
    for entry in (*world.store.former, *world.store.history.get("c1", ())):
        for word in decode_acks(entry.acks) if entry.acks else ():
            if word.final:
                finals[word.request_id] += 1
                if word.accepted:
                    accepted.add(word.request_id)
        for event in decode_once(entry.events):
            if type(event) not in _WITH_EFFECTS:
                continue
            if isinstance(event, MessageAdded) and event.message.role == "user":
                effects[text_of(event.message.content).partition(":")[0]] += 1
            elif isinstance(event, ThreadUpdated) and isinstance(event.title, str) and event.title.startswith("title "):
                effects[event.title.removeprefix("title ")] += 1
            elif isinstance(event, Ack) and not event.accepted:
                effects[f"refused {event.client_request_id}"] += 1
    _check_interrupts(world)
    seen = world.store.chat("c1").seen
    for name, client in world.clients.items():
        if world.deletes:
            if finals[name] > 1 or effects[name] > 1:
                world.fail(f"{name} took effect {effects[name]} times in the lives of a chat")
            continue
        if name not in seen:
            if finals[name] or effects[name]:
                world.fail(f"{name} took effect, and the store does not know it")
            if not client.refused and name not in world.lost_to_rollback:
                world.fail(f"{name} vanished")
            continue
        if finals[name] != 1:
            world.fail(f"{name} has {finals[name]} final words instead of one")
        wanted = 1 if name in accepted else 0
        if client.said.kind in ("user", "steer", "urgent", "params", "poison") and effects[name] != wanted:
            world.fail(f"{name} took effect {effects[name]} times, {'accepted' if wanted else 'refused'}")


def _check_interrupts(world: "World") -> None:
    """Check that a message that interrupts is added in the same entry that takes up its command, so that no event comes
    between."""
    urgent = {name for name, client in world.clients.items() if client.said.kind == "urgent"}
    for entry in world.store.history.get("c1", ()) if urgent else ():
        events = decode_once(entry.events)
        taken_up = {e.client_request_id for e in events if isinstance(e, Ack) and e.accepted}
        said = {e.message.client_request_id for e in events if isinstance(e, MessageAdded)}
        for name in sorted(taken_up & urgent - said):
            world.fail(f"{name} interrupts, and waited")
        COUNTS["interrupted"] += len(taken_up & urgent)


def _check_answers(world: "World", state: ChatState) -> None:
    """Check that the text of each uninterrupted answer is the model's, byte for byte, and that the text of any other
    answer is a beginning of the model's."""
    before = ""
    for message in active_path(state):
        text = text_of(message.content)
        if message.role == "assistant":
            right = answer_to(before)
            if message.finish_reason in ("stop", "tool_calls") and message.status is None:
                if text != right:
                    world.fail(f"an answer is {text!r} instead of {right!r}")
            elif not right.startswith(text):
                world.fail(f"an interrupted answer is {text!r}, no beginning of {right!r}")
        before = text


def _check_tools(world: "World") -> None:
    """Check that a `once` tool ran once, unless the store itself forgot that it had begun. A client's deadline fires
    once."""
    if not world.rollbacks:
        for (name, call_id), times in world.tool_runs.items():
            if name != "safe" and times > 1:
                world.fail(f"the tool {name!r} ran {times} times for {call_id}")
    ends: Counter[str] = Counter()
    for entry in world.store.history.get("c1", []):
        for event in decode_once(entry.events):
            if isinstance(event, ToolStatus) and event.name == "ide" and event.status == "error":
                ends[event.tool_call_id] += 1
    for call_id, times in ends.items():
        COUNTS["timer fired"] += 1
        if times > 1:
            world.fail(f"the timer of {call_id} fired {times} times")


def unsettled(world: "World") -> str:
    """Describes the work that is still to be done, or returns '' if no work is left."""
    if not world.is_quiet:
        return "not yet quiet"
    waiting = [name for name, client in world.clients.items() if not client.is_done]
    if waiting:
        return f"clients wait for {waiting}"
    if world.untold:
        return f"{world.untold} entries of the log nobody has looked at yet"
    chat, bucket = world.store.chat("c1"), world.store.bucket
    if chat.inbox:
        return f"the inbox holds {[entry.request_id for entry in chat.inbox.values()]}"
    if bucket.own or bucket.due or bucket.rests:
        return f"owned {bucket.own}, due {bucket.due}, not compacted {bucket.rests}"
    for reader in world.readers:
        node = reader.node
        here = node.hub._relays.open.get("c1")
        head = here.follower.head if here is not None else "no relay"
        if head != chat.head:
            return f"{node.name} stands at {head!r}, not {chat.head!r}"
        position = Head.parse(chat.head).position if chat.head else 0
        if reader.state is None or reader.state.position != position:
            return f"{reader.name} stands at {reader.state and reader.state.position}, not {position}"
    return ""
