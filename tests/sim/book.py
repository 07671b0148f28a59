"""The judge of durable agents: it compares the log's record of each operation with the values that every execution of a
function received.

The store reports each entry to the book, and the players (`agents.py`) report each value at the moment when they
receive it. The book compares the two, and in the end judges the chat. The book decodes the log's bytes itself, so its
record of results does not depend on the code under test.
"""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tests.sim.clock import decode_once
from tests.sim.loop import Process
from tests.sim.programs import program_of
from tests.sim.tally import COUNTS
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_facts
from threadcast.chat.facts import CallDecided, RunEnded, RunStarted
from threadcast.chat.journal import (
    AgentMissing,
    AgentParked,
    AgentRestarted,
    AgentStarted,
    Operation,
    OperationRecorded,
    Wait,
)
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.wire.events import (
    ErrorHappened,
    Event,
    MessageAdded,
    MessageRemoved,
    RuntimeUpdated,
    StreamFinished,
    StreamStarted,
)
from threadcast_protocol.wire.messages import Message, text_of

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Book", "Execution"]

REST_SECONDS = 1.5
"""Seconds after which a parked chat must have been released, if there are no faults."""

_At = tuple[str, int, str]
"""A run, the number of its restarts, and the key of an operation."""


class Execution:
    """One execution of an agent's function in some process, and the results of operations that it receives."""

    def __init__(self, book: "Book", run_id: str, turn: int, process: Process | None) -> None:
        self._book = book
        self._run = (run_id, turn)
        self.process = process
        self._pending: dict[str, tuple[str, str]] = {}
        book.executions.append(self)
        COUNTS["agent played again"] += self._run in book.inputs
        self.had = len(book.records)

    def end(self) -> None:
        self._book.executions.remove(self)

    def inputs(self, said: str) -> None:
        """Record the inputs that the function received."""
        before = self._book.inputs.setdefault(self._run, said)
        if before != said:
            self._book.world.fail(f"the inputs of {self._run} changed from {before} to {said}")

    def see(self, key: str, kind: str, name: str, said: str) -> None:
        """Record a value or error that the function received; the log must already hold it."""
        self._book.see((*self._run, key), kind, name, said)
        for each, (pending_kind, value) in list(self._pending.items()):
            scope = each.partition(":")[0] if ":" in each else each.rpartition(".")[0]
            if key.startswith(f"{scope}.") or not scope:  # this branch or a branch inside it has appended since
                self._book.see_recorded((*self._run, each), pending_kind, value)
                del self._pending[each]

    def see_pending(self, key: str, kind: str, said: str) -> None:
        """Record a value that the function received, and that the next append stores."""
        self._pending[key] = (kind, said)

    def see_call(self, call_id: str, said: str, *, has_result: bool = False) -> None:
        """Record the result of a call that a framework received; the log must already hold it. With `has_result`, the
        log holds a value in place of a message."""
        self._book.see_call((*self._run, call_id), call_id, said, has_result=has_result)

    def call_effect(self, call_id: str, retry: str) -> None:
        """Record that a framework's call takes effect now."""
        self._book.take_call_effect((*self._run, call_id), call_id, retry)

    def effect(self, key: str, retry: str, step_key: str) -> None:
        """Record that a step takes effect now."""
        self._book.take_effect((*self._run, key), retry, step_key, self.process)


class Book:
    """`records` holds each operation's records, in the order of the log. `texts` holds all texts that an answer may
    have, by the tag at their beginning."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.executions: list[Execution] = []
        self.records: dict[_At, list[Operation]] = {}
        self.inputs: dict[tuple[str, int], str] = {}
        self.texts: dict[str, set[str]] = {}
        self._seen: dict[_At, str] = {}
        self._effects: Counter[_At] = Counter()
        self._step_keys: dict[_At, str] = {}
        self._once: set[str] = set()
        self._turns = 0
        self._run: tuple[str, int] | None = None
        self._outcomes: dict[str, str] = {}
        self._errors: dict[str, str] = {}
        self._waits: tuple[Wait, ...] = ()
        self._decided: set[str] = set()
        self._answered: set[str] = set()
        self._draft = ""

    def turn(self) -> int:
        """Return a number that no execution gets twice."""
        self._turns += 1
        return self._turns

    def is_first(self, name: str) -> bool:
        is_first = name not in self._once
        self._once.add(name)
        return is_first

    def begin(self, run_id: str, turn: int, process: Process | None) -> Execution:
        return Execution(self, run_id, turn, process)

    def last(self, at: _At) -> Operation | None:
        held = self.records.get(at)
        return held[-1] if held else None

    # The store's reports.

    def take(self, entry: RawEntry) -> None:
        """Read an entry that was stored in the log."""
        events = decode_once(entry.events)
        for event in events:
            self._follow(event)
        facts = decode_facts(entry.facts) if entry.facts else []
        self._decided |= {each.tool_call_id for each in facts if isinstance(each, CallDecided)}
        for fact in facts:
            match fact:
                case RunStarted():
                    self._run, self._waits = (fact.run_id, 0), ()
                case AgentStarted():
                    COUNTS["agent began"] += 1
                case AgentRestarted() if self._run is not None:
                    self._run, self._waits = (self._run[0], self._run[1] + 1), ()
                    COUNTS["agent began again"] += 1
                case AgentMissing():
                    COUNTS["agent missing"] += fact.since_ms is not None
                case AgentParked():
                    self._park(fact.waits, entry)
                case RunEnded():
                    self._run, self._waits = None, ()
                case OperationRecorded():
                    self._record(fact.key, fact.operation)
        self._note_ends(events)

    def _follow(self, event: Event) -> None:
        """Check that no message is added to the chat while an answer is written."""
        match event:
            case MessageAdded():
                if self._draft:
                    self.world.fail(f"{event.message.message_id} was added while the answer {self._draft} was open")
                if event.message.tool_call_id is not None:
                    self._answered.add(event.message.tool_call_id)
            case StreamStarted():
                self._draft = event.message_id
            case StreamFinished() | MessageRemoved() if event.message_id == self._draft:
                self._draft = ""

    def _note_ends(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ErrorHappened) and event.run_id is not None:
                self._errors[event.run_id] = event.code
            elif isinstance(event, RuntimeUpdated) and event.outcome is not None and event.run_id is not None:
                self._outcomes[event.run_id] = event.outcome
                COUNTS[f"agent {event.outcome}"] += 1
            elif isinstance(event, MessageRemoved):
                COUNTS["answer taken back"] += 1

    def _record(self, key: str, operation: Operation) -> None:
        if self._run is None:
            self.world.fail(f"the operation {key} was recorded after the end of its run")
            return
        before = self.last((*self._run, key))
        if before is not None and before.status != "begun" and before.kind != "value":
            self.world.fail(f"the operation {key}, which had ended, was recorded again: {before} {operation}")
        self.records.setdefault((*self._run, key), []).append(operation)
        COUNTS[f"agent recorded {operation.status}"] += 1
        COUNTS["steered message taken"] += operation.kind == "steered" and operation.value != "[]"

    def _park(self, waits: tuple[Wait, ...], entry: RawEntry) -> None:
        """Record that the function was suspended or continues. If it continues, one of the events that it waited for
        must have happened."""
        if waits:
            COUNTS["agent parked"] += 1
            if self.world.is_quiet:
                self.world.later(REST_SECONDS, self._check_rest, entry.head, False)
        elif not any(self._has_happened(wait) for wait in self._waits):
            self.world.fail(f"the agent went on while it waited for {self._waits}")
        self._waits = waits

    def _has_happened(self, wait: Wait) -> bool:
        match wait.on:
            case "decision":
                return wait.ref in self._decided
            case "client":
                return wait.ref in self._answered
            case "time":
                return wait.until_ms is not None and self.world.store_ms() >= wait.until_ms
            case _:
                return True

    def _check_rest(self, head: str, is_second_look: bool) -> None:
        """Check that a parked chat holds no lease and no task; a chat that a worker holds at this moment may be about
        to continue."""
        chat, bucket = self.world.store.chat("c1"), self.world.store.bucket
        alive = [each for each in self.executions if each.process is not None and not each.process.is_stopped]
        if chat.head != head or chat.inbox or not (bucket.own or alive):
            return
        if is_second_look:
            self.world.fail(f"a parked agent is held by {bucket.own}, {len(alive)} executions")
        else:
            self.world.later(0.5, self._check_rest, head, True)

    # The players' reports.

    def see(self, at: _At, kind: str, name: str, said: str) -> None:
        world, record = self.world, self.last(at)
        self._agree(at, said)
        if record is None or (record.status == "begun" and kind != "call"):
            world.fail(f"{kind} {name} at {at} returned {said} before the log had it")
            return
        if kind == "call":
            if record.ref not in self._answered:
                world.fail(f"the call {name} at {at} returned {said} before the log had its result")
        elif (said_by_record := _said(record)) is not None and said != said_by_record:
            world.fail(f"{kind} {name} at {at} returned {said}, its record says {said_by_record}")
        if record.kind != kind or (kind in ("step", "call") and record.name != name):
            world.fail(f"{kind} {name} at {at} was given the record of {record.kind} {record.name}")

    def see_call(self, at: _At, call_id: str, said: str, *, has_result: bool) -> None:
        self._agree(at, said)
        if not has_result and call_id not in self._answered:
            self.world.fail(f"the call {call_id} returned {said} before the log had its result")

    def take_call_effect(self, at: _At, call_id: str, retry: str) -> None:
        self._effects[at] += 1
        COUNTS["call of a framework"] += 1
        if retry == "once" and self._effects[at] > 1:
            self.world.fail(f"the call {call_id} may run once, and has run {self._effects[at]} times")
        if call_id in self._answered:
            self.world.fail(f"the call {call_id} runs again after its end")

    def _agree(self, at: _At, said: str) -> None:
        before = self._seen.setdefault(at, said)
        if before != said:
            self.world.fail(f"{at} returned {said} after it had returned {before}")

    def see_recorded(self, at: _At, kind: str, said: str) -> None:
        """Check that a received value which an append had to store is in the log. A gather has no value in the log, and
        a version needs no value if later operations are in the journal."""
        record = self.last(at)
        if kind == "gather" or (kind == "version" and record is None):
            self._agree(at, said)
        elif record is None:
            self.world.fail(f"{kind} at {at} is in no append")
        elif (record.kind, record.value) != (kind, said):
            self.world.fail(f"{kind} at {at} returned {said}, its record says {record.kind} {record.value}")

    def take_effect(self, at: _At, retry: str, step_key: str, process: Process | None) -> None:
        world, record = self.world, self.last(at)
        self._effects[at] += 1
        if self._step_keys.setdefault(at, step_key) != step_key:
            world.fail(f"the step {at} has another key when it runs again")
        if retry != "safe" and record is None:
            world.fail(f"the step {at} has its effect before the log knows of it")
        if retry == "once" and self._effects[at] > 1:
            world.fail(f"the step {at} may run once, and has run {self._effects[at]} times")
        is_owner = process is not None and world.store.bucket.own.get("c1") == process.name
        if is_owner and record is not None and record.status != "begun":
            world.fail(f"the step {at} runs again after its end: {record}")

    # The end.

    def check_end(self, state: OwnerState) -> None:
        world = self.world
        if state.private.run is not None:
            world.fail(f"the run {state.private.run.run_id} never ended: {state.runtime}, waits {self._waits}")
            return
        if state.draft is not None:
            world.fail("an answer is left open at the end of all runs")
        for run_id, outcome in self._outcomes.items():
            self._check_outcome(run_id, outcome)
        for at, operations in self.records.items():
            last = operations[-1]
            is_left = last.status == "begun" and last.kind not in ("gather", "call", "attempt")
            if is_left and self._outcomes.get(at[0]) == "complete" and at[1] == self._turn_of(at[0]):
                world.fail(f"the run ended well, and {at} has no end: {last}")
        self._check_path(active_path(state))

    def _turn_of(self, run_id: str) -> int:
        return max(turn for run, turn, _ in self.records if run == run_id)

    def _check_outcome(self, run_id: str, outcome: str) -> None:
        code = self._errors.get(run_id)
        if outcome == "error":
            COUNTS[f"agent error {code}"] += 1
            changes = self.world.plan.mix.changes and not program_of(self.world.plan.seed, "r0", True).guard
            if code == "crash_loop" or (code == "nondeterminism" and changes):
                return
            self.world.fail(f"the run {run_id} ended with the error {code}")
        elif outcome not in ("complete", "aborted", "interrupted"):
            self.world.fail(f"the run {run_id} ended as {outcome}")

    def _check_path(self, path: list[Message]) -> None:
        """Check that one tool message follows each call, and that each answer appears once with the text that its
        function wrote."""
        open_calls: list[str] = []
        made: Counter[str] = Counter(call.id for message in path for call in message.tool_calls)
        for call_id, times in made.items():
            if times > 1:
                self.world.fail(f"the call {call_id} stands {times} times in the chat")
        tags: Counter[str] = Counter()
        for message in path:
            if message.tool_call_id is not None:
                if message.tool_call_id not in open_calls:
                    self.world.fail(f"a result of {message.tool_call_id} has no call, or is the second one")
                else:
                    open_calls.remove(message.tool_call_id)
            elif message.tool_calls:
                open_calls += [call.id for call in message.tool_calls]
            elif message.role == "assistant":
                tags[self._check_answer(message)] += 1
        if open_calls:
            self.world.fail(f"no results of {open_calls}")
        for tag, times in tags.items():
            if tag and times > 1:
                self.world.fail(f"the answer {tag} stands {times} times in the chat")

    def _check_answer(self, message: Message) -> str:
        text = text_of(message.content)
        tag = text.partition(" ")[0]
        wanted = self.texts.get(tag, set())
        is_whole = message.finish_reason == "stop" and message.status is None
        if is_whole and text not in wanted:
            self.world.fail(f"an answer is {text!r}, its function wrote {sorted(wanted)}")
        elif not is_whole and not any(each.startswith(text) for texts in self.texts.values() for each in texts):
            self.world.fail(f"an unfinished answer is {text!r}, no beginning of {sorted(wanted)}")
        return tag if is_whole else ""


def _said(record: Operation) -> str | None:
    """The value that a player received, if the record contains it; otherwise None."""
    if record.status == "unknown":
        return f"OutcomeUnknown: the outcome of {record.name!r} is unknown: its worker died while it ran"
    if record.error is not None:
        kind, message = record.error.kind, record.error.message
        if record.kind == "ask":
            return f"Rejected: the question was rejected{f': {message}' if message else ''}"
        return f"StepFailed: {kind}: {message}"
    if record.kind in ("answer", "first"):
        return None
    value = msgspec.json.decode(record.value or "null")
    return repr(tuple(value) if record.kind == "step" else value)
