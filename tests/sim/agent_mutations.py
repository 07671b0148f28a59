"""The rules of durable agents, each switched off in the real code.

Each mutation is code that a careless author of `agent_loop/durable` might have written. Each mutation removes one rule,
and the book of the schedule (`book.py`) or another check must notice it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from msgspec.structs import replace

from tests.sim.rules import Put, Rule
from threadcast.actor import actor as actor_module
from threadcast.agent_loop import loop as agent_loop
from threadcast.agent_loop import recovery
from threadcast.agent_loop.durable import execution, operations, plan, results, seam
from threadcast.agent_loop.durable.answers import _Writing
from threadcast.agent_loop.durable.branches import Branch, Branches, Ended
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.inputs import inputs_of
from threadcast.agent_loop.durable.operations import DurableOperations
from threadcast.agent_loop.durable.path_lock import PathLock
from threadcast.agent_loop.durable.seam import DurableSeam
from threadcast.agent_loop.durable.shown_text import ShownText
from threadcast.chat.agent_steps import record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import DurableRun, Operation, Wait
from threadcast.chat.owner_state import OwnerState, Run
from threadcast.custom_agents.context import Inputs
from threadcast.profiles.profile import ChatTools
from threadcast.providers.base import Delta
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["AGENT_RULES"]


def _not_decoded(put: Put) -> None:
    """Mutation: the first execution receives the step's return value, and a replay receives the value in the log."""
    real_end, real_value = results.ended_with, results.value_of
    raw: dict[int, tuple[Operation, object]] = {}

    async def ended(execution: Execution, begun: Operation, value: object, wanted: Any) -> Operation:
        found = await real_end(execution, begun, [value], Any)
        found = replace(found, value=(found.value or "")[1:-1])
        raw[id(found)] = (found, value if not isinstance(value, tuple) else [*value])
        return found

    async def value_of(execution: Execution, found: Operation, wanted: Any) -> Any:
        return raw[id(found)][1] if id(found) in raw else await real_value(execution, found, wanted)

    put(operations, "ended_with", ended)
    put(operations, "value_of", value_of)


def _not_durable_yet(put: Put) -> None:
    real = Execution.record

    async def record_later(self: Execution, branch: Branch, key: str, operation: Operation) -> None:
        if operation.status == "begun":
            await real(self, branch, key, operation)
        else:
            asyncio.create_task(real(self, branch, key, operation), name="an append")  # noqa: RUF006 - the loop has it

    put(Execution, "record", record_later)


def _once_runs_again(put: Put) -> None:
    def recover(builder: EntryBuilder, agent: DurableRun) -> None:
        for key, operation in agent.journal.items():
            if (operation.kind, operation.status, operation.retry) == ("step", "begun", "once"):
                record(builder, key, replace(operation, retry="idempotent"))

    put(recovery, "recover_agent", recover)


def _no_record_of_the_start(put: Put) -> None:
    real = Execution.record

    async def record_end(self: Execution, branch: Branch, key: str, operation: Operation) -> None:
        if (operation.kind, operation.status) != ("step", "begun"):
            await real(self, branch, key, operation)

    put(Execution, "record", record_end)


def _keys_by_time(put: Put) -> None:
    def next_key(self: Branch) -> str:
        root = self
        while root.parent is not None:
            root = root.parent
        root._count += 1
        return str(root._count - 1)

    put(Branch, "next_key", next_key)


def _park_without_a_look(put: Put) -> None:
    def park(builder: EntryBuilder, run: Run, waits: Iterable[Wait], table: ChatTools) -> bool:
        real = plan.is_over
        plan.is_over = lambda *_: False
        try:
            return plan.park(builder, run, waits, table)
        finally:
            plan.is_over = real

    put(execution, "park", park)


def _nothing_travels(put: Put) -> None:
    def at_once(self: DurableOperations, kind: str, make: Callable[[], str]) -> str:
        _, _, found = self._execution.enter(kind, "")
        return make() if found is None else found.value or "null"

    put(DurableOperations, "_at_once", at_once)


def _abort_swallowed(put: Put) -> None:
    """Mutation: an execution continues after its end."""
    put(Execution, "_is_over", property(lambda _: False, lambda _self, _value: None))


def _no_comparison(put: Put) -> None:
    real = Execution.enter

    def enter(self: Execution, kind: str, name: str, digest: str = "") -> tuple[Branch, str, Operation | None]:
        found = self.durable.journal.get(self.branches.current().key_ahead())
        return real(self, kind, name, digest) if found is None else real(self, found.kind, found.name, found.digest)

    put(Execution, "enter", enter)


def _sleep_forgotten(put: Put) -> None:
    def deadline(state: OwnerState) -> int | None:
        return min((call.deadline_at for call in state.runtime.ide_calls if call.deadline_at is not None), default=None)

    put(actor_module, "next_deadline_ms", deadline)


def _always_the_newest(put: Put) -> None:
    put(DurableOperations, "version", lambda _self, _name: True)


def _text_stays(put: Put) -> None:
    real = ShownText.feed

    def feed(self: ShownText, delta: Delta) -> list[Delta] | None:
        found = real(self, delta)
        if found is None:
            self.__init__()  # type: ignore[misc]  # nothing is left to compare
        return [delta] if found is None else found

    put(ShownText, "feed", feed)


def _gather_gives_up(put: Put) -> None:
    real = Branches.run_all

    async def run_all(
        self: Branches,
        branch: Branch,
        key: str,
        coroutines: Sequence[Coroutine[Any, Any, Any]],
        on_first: Callable[[int], Any] | None = None,
        first_index: int = 0,
    ) -> list[Ended | None]:
        if on_first is not None:
            return await real(self, branch, key, coroutines, on_first, first_index)
        failed = asyncio.Event()
        ended: list[Ended | None] = [None] * len(coroutines)

        async def run(index: int, each: Coroutine[Any, Any, Any]) -> Any:
            try:
                ended[index] = (await each, None)
            except Exception as wrong:
                ended[index] = (None, wrong)
                failed.set()
                raise

        running = [run(index, each) for index, each in enumerate(coroutines)]
        tasks = [
            asyncio.create_task(real(self, branch, key, running, None, first_index)),
            asyncio.create_task(failed.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return ended
        finally:
            for task in tasks:
                task.cancel()

    put(Branches, "run_all", run_all)


def _inputs_of_now(put: Put) -> None:
    real = inputs_of

    def inputs(state: OwnerState, tools: ChatTools) -> Inputs:
        run = state.private.run
        if run is None or run.agent is None:
            raise ValueError("no run")
        agent = replace(run.agent, path_length=len(state.path))
        return real(replace(state, private=replace(state.private, run=replace(run, agent=agent))), tools)

    put(agent_loop, "inputs_of", inputs)


def _lost_answer_stays(put: Put) -> None:
    put(operations, "close_draft", lambda *_, **__: None)


def _answer_beside_clients(put: Put) -> None:
    """Mutation: the check whether a client carries out a call runs before the path is free."""

    async def write(self: _Writing, written: Any, args: Sequence[Any], kwargs: JsonObject) -> Operation:
        run = self._execution
        await run.wait_for(self._branch, Wait(key=self._key, on="path"))
        async with run.path_lock.alone(self._key):
            return await self._write(written, args, kwargs)

    put(_Writing, "write", write)


def _keys_of_frameworks_by_time(put: Put) -> None:
    numbers = count()
    put(seam, "_key", lambda kind, _key: f"@{kind}:{next(numbers)}")


def _attempt_repeated(put: Put) -> None:
    async def attempt(self: DurableSeam, key: str) -> None:
        key = f"@attempt:{key}"
        async with self._execution.operation(key) as (branch, _):
            await self._execution.record(branch, key, Operation(kind="attempt", status="begun"))

    put(DurableSeam, "attempt", attempt)


def _frameworks_hold_their_branch(put: Put) -> None:
    """Mutation: the branch around the tasks of a framework is never treated as waiting."""
    real = Branches.operation

    @contextmanager
    def operation(self: Branches) -> Iterator[Branch]:
        with real(self) as branch:
            assert branch.parent is not None
            self._working.add(branch.parent)
            yield branch

    put(Branches, "operation", operation)


def _messages_written_again(put: Put) -> None:
    async def write(
        execution: Execution, key: str, name: str, pieces: Any, extra: JsonObject, keep_value: Any
    ) -> Operation:
        async with execution.operation(key) as (branch, found):
            begun = found if found is not None and found.status == "begun" else None
            writing = _Writing(execution, branch, key, begun, name, extra=extra, keep_value=keep_value)
            return await writing.write(pieces, (), {})

    put(seam, "write_message", write)


AGENT_RULES = (
    Rule("agent: a step's value is its record's", "agents", _not_decoded),
    Rule("agent: a value is durable before it is seen", "agents", _not_durable_yet),
    Rule("agent: a step that may run once is not run again", "agents", _once_runs_again),
    Rule("agent: the start of a step is recorded", "agents", _no_record_of_the_start),
    Rule("agent: keys do not depend on time", "agents", _keys_by_time),
    Rule("agent: who parks looks whether the wait is over", "waits", _park_without_a_look, 2_000, near=380),
    Rule("agent: now and random travel with the next append", "agents", _nothing_travels),
    Rule("agent: first records its winner", "agents", lambda put: put(operations, "_end_first", lambda *_: None)),
    Rule("agent: nothing works after the end", "waits", _abort_swallowed),
    Rule("agent: a replay compares kind and name", "recode", _no_comparison),
    Rule("agent: the end of a sleep is in the state", "agents", _sleep_forgotten),
    Rule("agent: old journals keep the old way", "recode", _always_the_newest),
    Rule("agent: an answer that differs begins anew", "agents", _text_stays, 1_000),
    Rule("agent: gather waits for all", "agents", _gather_gives_up),
    Rule("agent: no client has a call while an answer is written", "agents", _answer_beside_clients, 2_000, near=340),
    Rule(
        "agent: the path belongs to an answer that was cut",
        "agents",
        lambda put: put(execution, "PathLock", lambda *_: PathLock()),
        40_000,
        near=30_500,
    ),
    Rule(
        "agent: a worker without it hands the chat on",
        "agents",
        lambda put: put(actor_module, "durable_agent", lambda _models, name: name),
    ),
    Rule("agent: inputs are those of the start", "agents", _inputs_of_now),
    Rule("agent: the answer of a branch that lost is ended", "agents", _lost_answer_stays, 1_000),
    Rule("framework: its operations have keys of their own", "frameworks", _keys_of_frameworks_by_time),
    Rule("framework: an attempt that was cut is not repeated", "frameworks", _attempt_repeated),
    Rule("framework: the branch around its tasks waits with them", "frameworks", _frameworks_hold_their_branch),
    Rule("framework: a finished message is not written again", "frameworks", _messages_written_again),
)
