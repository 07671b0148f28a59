"""Runs a durable function until the function ends, or until all its branches wait for events outside the function.

All state of an execution is also in the log. Therefore an execution may be dropped at any moment. The next execution
runs the function from its beginning, and takes the results of earlier operations from the journal. The modules
`operations.py`, `calls.py`, `answers.py` and `seam.py` implement the operations, and write to the log only through an
`Execution`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import NoReturn, TypeVar

import anyio
import structlog

from threadcast.agent_loop.durable.awake_timer import AwakeTimer
from threadcast.agent_loop.durable.branches import AgentHalted, Branch, Branches, Ended
from threadcast.agent_loop.durable.differences import difference, early_end
from threadcast.agent_loop.durable.ending import Halt, Restart, end_function
from threadcast.agent_loop.durable.path_lock import PathLock
from threadcast.agent_loop.durable.plan import is_over, park
from threadcast.agent_loop.plan import advance
from threadcast.agent_loop.ports import ChatPort
from threadcast.agent_loop.steps import Step
from threadcast.chat.agent_steps import record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import DurableRun, Operation, Wait
from threadcast.chat.owner_state import OwnerState, Run
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast_protocol.wire.deltas import DeltaOp
from threadcast_protocol.wire.events import AgentData
from threadcast_protocol.wire.messages import Message

__all__ = ["JOURNAL_MAX_BYTES", "OPERATIONS_MAX_COUNT", "Execution"]

OPERATIONS_MAX_COUNT = 10_000
JOURNAL_MAX_BYTES = 8_000_000
"""The maximum number of operations of a run, and the maximum bytes of its journal. An agent that never ends must begin
again with `ctx.restart`."""

SETTLE_SECONDS = 0.05
"""If a framework runs in the function, the function is suspended only after all its operations have waited for this
time. During this time the framework may begin another operation, such as the second of two parallel calls."""

SOON_SECONDS = 1.0
"""If a branch sleeps for at most this time, the function stays in memory, because suspending the function would cost
more."""

_T = TypeVar("_T")
_log = structlog.get_logger()


class Execution:
    """One execution of the durable function of `agent`. `awake_seconds` is the maximum time for which the function's
    own code may work without beginning or ending an operation. `new_call_id` makes the ids of calls. `effects_count` is
    the number of running steps and calls that may not run twice."""

    def __init__(self, chat: ChatPort, agent: Agent, awake_seconds: float, new_call_id: Callable[[], str]) -> None:
        self.chat = chat
        self.new_call_id = new_call_id
        self._agent = agent
        self._awake = AwakeTimer(awake_seconds, self._oversleep)
        self.branches = Branches(self._on_change, self._check_end)
        self.pending: dict[str, Operation] = {}
        """Records that will be part of the next append."""
        self._waits: dict[str, Wait] = {}
        self._why: Exception | None = None
        self._is_over = False
        self._is_abandoned = False
        self._is_held = False
        self._changed = asyncio.Event()
        self._alarm = asyncio.Event()
        self._results: dict[str, Message] = {}
        self._results_of: tuple[str, ...] = ()
        self.path_lock = PathLock(
            _unfinished_answer(chat.state), lambda: self.branches.resting(self.branches.current())
        )
        self.effects_count = 0
        self.stays = False
        """Whether the function stays in memory while it waits, because it has an open connection or process."""

    # The members that the operations use.

    @property
    def run_open(self) -> Run:
        """The open run. Raises CancelledError if the execution has ended."""
        run = self.chat.state.private.run
        if run is None or run.agent is None:
            raise asyncio.CancelledError
        return run

    @property
    def durable(self) -> DurableRun:
        """The durable part of the open run."""
        agent = self.run_open.agent
        if agent is None:
            raise asyncio.CancelledError
        return agent

    def enter(self, kind: str, name: str, digest: str = "") -> tuple[Branch, str, Operation | None]:
        """Begin the next operation of the running branch. Returns the branch, the operation's key, and the operation's
        record. The record is None if the operation is new.

        Raises:
            AgentHalted: the journal has another operation here, or is full.
            CancelledError: the execution is over.
            RuntimeError: the running task is not a branch.
        """
        branch = self.branches.current()
        if self._is_over or branch.is_cancelled:
            raise asyncio.CancelledError
        key = branch.next_key()
        found = self._recorded(key)
        if found is not None and (found.kind, found.name, found.digest) != (kind, name, digest):
            self.halt(Halt("nondeterminism", difference(found, kind, name, digest)))
        return branch, key, found

    def _recorded(self, key: str) -> Operation | None:
        """Return the record of an operation, or None if the operation is new. Raises AgentHalted: the operation is new,
        and the journal is full."""
        found = self.durable.journal.get(key)
        if found is None:
            if len(self.durable.journal) + len(self.pending) >= OPERATIONS_MAX_COUNT:
                self.halt(
                    Halt(
                        "limit",
                        f"The agent made more than {OPERATIONS_MAX_COUNT:,} operations; agents without "
                        "an end begin again with ctx.restart.",
                    )
                )
            if self.durable.journal_bytes >= JOURNAL_MAX_BYTES:
                self.halt(
                    Halt(
                        "limit",
                        f"The results of the agent's operations have more than {JOURNAL_MAX_BYTES:,} "
                        "bytes; agents without an end begin again with ctx.restart.",
                    )
                )
        return found

    @asynccontextmanager
    async def operation(self, key: str) -> AsyncIterator[tuple[Branch, Operation | None]]:
        """Begin an operation whose `key` a framework has chosen, in any of the function's tasks. Yields the operation's
        branch and record. The record is None if the operation is new. Raises the errors of `begin`."""
        await self._admitted()
        if self._is_over:
            raise asyncio.CancelledError
        with self.branches.operation() as branch:
            yield branch, self._recorded(key)

    async def begin(self, kind: str, name: str, digest: str = "") -> tuple[Branch, str, Operation | None]:
        """Begin an operation that may wait; otherwise like `enter`. After the execution is over, this method raises
        CancelledError while the function cleans up, and later waits for ever. It also waits for ever during a hand-over
        of the chat."""
        await self._admitted()
        return self.enter(kind, name, digest)

    async def _admitted(self) -> None:
        if self._is_abandoned or self._is_held:
            await asyncio.Event().wait()
        if self._is_over:
            await asyncio.sleep(0.01)  # a function that catches every error must not block the process

    @property
    def is_over(self) -> bool:
        """Whether the function is being ended or suspended."""
        return self._is_over

    def halt(self, why: Exception) -> NoReturn:
        """End the execution because of `why`. Raises AgentHalted."""
        self._why = self._why or why
        self._alarm.set()
        raise AgentHalted(str(why))

    async def commit(self, branch: Branch, write: Callable[[EntryBuilder], _T]) -> _T:
        """Append the changes that `write` adds, together with the pending records. Returns the result of `write`.
        Raises CancelledError if the branch or the execution is over, and AgentHalted if the log can no longer be
        written."""

        def with_pending(builder: EntryBuilder) -> tuple[_T | None, bool]:
            if self._is_over or branch.is_cancelled or builder.state.private.run is None:
                return None, True
            pending, self.pending = self.pending, {}
            for key, operation in pending.items():
                record(builder, key, operation)
            return write(builder), False

        if self._is_held and not branch.in_effect:  # the chat is being handed over, so no operation begins
            await asyncio.Event().wait()
        try:
            result, is_gone = await self.chat.commit(with_pending)
        except Exception as wrong:  # an error of the store, or a bug: the run's task handles it
            self.halt(wrong)
        self._awake.rewind()
        if is_gone:
            raise asyncio.CancelledError
        return result  # type: ignore[return-value]  # None only if it is gone

    async def stream(self, branch: Branch, op: DeltaOp | AgentData) -> None:
        """Offer a delta of the open answer, or data of the agent. Raises the errors of `commit`."""
        if self._is_over or branch.is_cancelled:
            raise asyncio.CancelledError
        try:
            await self.chat.stream(op)
        except Exception as wrong:  # an error of the store: the run's task handles it
            self.halt(wrong)
        self._awake.rewind()

    async def record(self, branch: Branch, key: str, operation: Operation) -> None:
        await self.commit(branch, lambda builder: record(builder, key, operation))

    async def wait_for(self, branch: Branch, wait: Wait) -> None:
        """Wait until `wait` is over. While all branches wait, the function may be suspended, and then needs no
        worker."""
        while not is_over(self.chat.state, wait, self.chat.now_ms()):
            await self.wait_once(branch, wait)

    async def wait_once(self, branch: Branch, wait: Wait, deadline_ms: int | None = None) -> None:
        """Wait like `wait_for`, but return after the next change of the chat, even if `wait` is not over. Return at
        `deadline_ms` (Unix milliseconds) at the latest; without `deadline_ms`, at the end of `wait`."""
        end_ms, now_ms = wait.until_ms if deadline_ms is None else deadline_ms, self.chat.now_ms()
        if not is_over(self.chat.state, wait, now_ms):
            self._waits[wait.key] = wait
            try:
                with self.branches.waiting(branch):
                    seconds = None if end_ms is None else max(0.0, (end_ms - now_ms) / 1000)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await self._changed.wait()
            finally:
                self._waits.pop(wait.key, None)

    @contextmanager
    def effect(self, branch: Branch, *, may_run_twice: bool, rests: bool) -> Iterator[None]:
        """Count a step or call as running during the block. The block must also record the end of the step or call. If
        the step or call may not run twice, a hand-over of the chat waits for the end of the block. `rests` is true if
        the block runs a tool, which has its own deadline."""
        self.effects_count += not may_run_twice
        branch.in_effect = True
        try:
            if rests:
                with self.branches.resting(branch):
                    yield
            else:
                yield
        finally:
            branch.in_effect = False
            self.effects_count -= not may_run_twice
            self._alarm.set()

    def result_of(self, tool_call_id: str) -> Message | None:
        """Return the tool message of a call of this run, or None."""
        state = self.chat.state
        if state.path != self._results_of:
            of_run = (state.nodes[key] for key in state.path[self.run_open.first_index :])
            self._results = {each.tool_call_id: each for each in of_run if each.tool_call_id is not None}
            self._results_of = state.path
        return self._results.get(tool_call_id)

    # The execution.

    async def run(self, context: AgentContext) -> Step:
        """Run the function, and return the next step of the run. The step is `Wait` if the function was suspended.

        Raises:
            Exception: the log can no longer be written; this is the error of `ChatPort.commit`.
        """
        watch = asyncio.create_task(self._watch())
        main = self.branches.start(self._agent.function(context))
        self._awake.start()
        try:
            while True:
                self._alarm.clear()
                if self._why is not None or main.done():
                    break
                if self.branches.all_wait and not self.stays:
                    if self.branches.uses_seam and not await self._has_settled():
                        continue
                    if (step := await self._put_away()) is not None:
                        return step
                await self._alarm.wait()
            result = (None, asyncio.CancelledError()) if not main.done() or main.cancelled() else main.result()
        finally:
            self._is_over = True
            self._awake.stop()
            watch.cancel()
            with anyio.CancelScope(shield=True):
                await self.branches.end_all()
            self._is_abandoned = True
        return await self._finish(result)

    def hold(self) -> None:
        """Prevent further operations, because the chat is handed over."""
        self._is_held = True

    async def quiet(self) -> None:
        """Wait until all running steps and calls that must not run twice have ended."""
        while self.effects_count and not self._is_over:
            await self._alarm.wait()
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        while True:
            await self.chat.changed()
            self._tell_branches()

    def _tell_branches(self) -> None:
        """Wake the waiting branches, because the chat has changed."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _has_settled(self) -> bool:
        """Return whether all operations still wait after `SETTLE_SECONDS` without a change."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._alarm.wait()
                return False
        return self.branches.all_wait

    async def _put_away(self) -> Step | None:
        """Suspend the function while all branches wait, so that the worker can release the chat. Returns the next step,
        or None if a branch no longer needs to wait, or sleeps for at most `SOON_SECONDS`."""
        if not self._waits:
            return None
        waits = [self._waits[key] for key in sorted(self._waits)]
        soon_ms = self.chat.now_ms() + SOON_SECONDS * 1_000
        if any(wait.until_ms is not None and wait.until_ms <= soon_ms for wait in waits):
            return None
        tools = self.chat.tools()

        def write(builder: EntryBuilder) -> Step | None:
            run = builder.state.private.run
            if run is None or run.agent is None:
                return advance(builder, tools)
            for key, operation in self.pending.items():
                record(builder, key, operation)
            self.pending = {}
            return advance(builder, tools) if park(builder, run, waits, tools) else None

        step = await self.chat.commit(write)
        if step is None:
            self._tell_branches()
        return step

    async def _finish(self, ended: Ended) -> Step:
        """End the run in the same way as the function ended, and return the next step."""
        if self._why is not None and not isinstance(self._why, Halt | Restart):
            raise self._why
        end = partial(end_function, agent=self._agent, why=self._why, ended=ended, pending=self.pending)
        tools = self.chat.tools()
        return await self.chat.commit(lambda builder: end(builder, tools))

    def _check_end(self, branch: Branch, wrong: BaseException | None) -> None:
        """End the run with an error if a branch has ended although the log has a further operation of this branch."""
        run = self.chat.state.private.run
        if run is None or run.agent is None or self._is_over or branch.is_cancelled:
            return
        if (left := run.agent.journal.get(branch.key_ahead())) is not None:
            self.halt(Halt("nondeterminism", early_end(left, self._agent.function, wrong)))

    def _on_change(self) -> None:
        self._alarm.set()
        if self._is_over or not self.branches.any_awake:
            self._awake.stop()
        else:
            self._awake.start()

    def _oversleep(self) -> None:
        sentence = (
            f"The agent worked for {self._awake.seconds:g} s without beginning or ending an operation, and was stopped."
        )
        self._why = self._why or Halt("limit", sentence)
        self._alarm.set()


def _unfinished_answer(state: OwnerState) -> str:
    """Return the key of the answer that a crash has left open, or '' if there is no such answer."""
    run, draft = state.private.run, state.draft
    if draft is None or run is None or run.agent is None:
        return ""
    journal, message_id = run.agent.journal, draft.message.message_id
    return next((key for key, each in journal.items() if each.kind == "answer" and each.ref == message_id), "")
