"""Implements the operations of a durable agent: steps, sleeps, branches and small values. Other modules implement
calls, answers, questions and sub-chats.

Each operation begins with `Execution.enter`, which returns the operation's record in a replay. A new operation is
recorded before or after its effect, as its retry class requires. The operation always returns the value in the durable
record.
"""

import os
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NoReturn

import structlog
from msgspec.structs import replace

from threadcast.agent_loop.durable.answers import write_answer
from threadcast.agent_loop.durable.asking import ask_question, question_of
from threadcast.agent_loop.durable.branches import Branch
from threadcast.agent_loop.durable.calls import CallRunner, run_call
from threadcast.agent_loop.durable.ending import Restart
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.plan import error_of
from threadcast.agent_loop.durable.results import INLINE_MAX_BYTES, ended_with, value_of
from threadcast.agent_loop.durable.seam import DurableSeam
from threadcast.agent_loop.durable.subchats import run_subchat
from threadcast.base.boundary import name_of, pass_on
from threadcast.chat.agent_steps import NAME_MAX_CHARACTERS, record
from threadcast.chat.digests import digest
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import Operation, Wait
from threadcast.chat.outbound import close_children
from threadcast.chat.runs import answer_call, close_draft, open_calls
from threadcast.chat.starts import take_steered
from threadcast.custom_agents.agent import call_sync_or_async
from threadcast.custom_agents.context import StepRetry
from threadcast.custom_agents.seam import Seam
from threadcast.custom_agents.values import decoded, encoded, return_type
from threadcast.tools.chats import ChildResult, ChildWish
from threadcast_protocol.wire.events import PauseCleared, PauseRequired
from threadcast_protocol.wire.mending import mend_text
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["DurableOperations"]

SLEEP_MAX_SECONDS = 315_360_000
"""The maximum duration of a sleep, ten years. A longer sleep is most likely given in the wrong unit."""

_step_key: ContextVar[str] = ContextVar("the key of the running step")

_log = structlog.get_logger()


class DurableOperations:
    """The `Operations` of one execution. `calls` runs the calls of tools."""

    def __init__(self, execution: Execution, calls: CallRunner) -> None:
        self._execution = execution
        self._calls = calls
        self.seam: Seam = DurableSeam(execution, calls)

    async def step(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: JsonObject, retry: StepRetry
    ) -> Any:
        if retry not in ("once", "idempotent", "safe"):
            raise ValueError(f"step {name!r}: retry is once, idempotent or safe, not {retry!r}")
        name = _checked_name(name)
        if not callable(function):
            raise TypeError(
                f"step {name!r}: write ctx.step(name, function, *arguments) and do not call the function there; "
                f"the second argument is not a function but {type(function).__name__}"
            )
        execution = self._execution
        branch, key, found = await execution.begin("step", name)
        if found is None:
            found = Operation(kind="step", name=name, status="begun", at_ms=execution.chat.now_ms(), retry=retry)
            if retry != "safe":
                await execution.record(branch, key, found)
        elif found.status == "begun" and found.retry == "once":  # cancelled; recovery handles a dead worker
            found = replace(found, status="unknown")
            await execution.record(branch, key, found)
        if found.status == "begun":
            with execution.effect(branch, may_run_twice=found.retry != "once", rests=False):
                found = await self._carry_out(branch, key, found, function, args, kwargs)
                await execution.record(branch, key, found)
        return await value_of(self._execution, found, return_type(function))

    async def _carry_out(
        self,
        branch: Branch,
        key: str,
        begun: Operation,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: JsonObject,
    ) -> Operation:
        """Run the function of a step, and return the record of the ended step."""
        run, durable = self._execution.run_open, self._execution.durable
        token = _step_key.set(f"{self._execution.chat.state.chat_id}:{run.run_id}:{durable.restarts}:{key}")
        branch.inside = f"the step {begun.name!r}"
        try:
            value = await call_sync_or_async(function, *args, **kwargs)
            return await ended_with(self._execution, begun, value, return_type(function))
        except BaseException as wrong:  # boundary: the operator's step
            pass_on(wrong)
            _log.info("agent.step_failed", step=begun.name, error=name_of(wrong), exc_info=wrong)
            return _failed(begun, wrong)
        finally:
            branch.inside = ""
            _step_key.reset(token)

    async def call(self, name: str, args: JsonObject) -> Any:
        return await run_call(self._execution, self._calls, name, args)

    async def answer(self, written: Any, args: Sequence[Any], kwargs: JsonObject) -> str:
        if not isinstance(written, str) and not callable(written):
            raise TypeError(
                "write ctx.answer(text), or ctx.answer(function, *arguments) and do not call the function there; "
                f"the first argument is neither a text nor a function but {type(written).__name__}"
            )
        return await write_answer(self._execution, written, args, kwargs)

    async def ask(self, text: str, options: Sequence[str], schema: JsonObject | None) -> Any:
        question = question_of(text, options, schema)
        execution = self._execution
        identity = digest([encoded(question)])
        branch, key, found = await execution.begin("ask", question.text[:NAME_MAX_CHARACTERS], identity)
        return await ask_question(execution, branch, key, found, question)

    async def sleep(self, seconds: float) -> None:
        if not 0 <= seconds <= SLEEP_MAX_SECONDS:
            raise ValueError(f"ctx.sleep takes 0 to {SLEEP_MAX_SECONDS:,} seconds (ten years), not {seconds:,}")
        execution = self._execution
        branch, key, found = await execution.begin("sleep", "")
        if found is None:
            now_ms = execution.chat.now_ms()
            until_ms = now_ms + round(seconds * 1_000)
            found = Operation(kind="sleep", status="begun", at_ms=now_ms, until_ms=until_ms)
            await execution.record(branch, key, found)
        if found.status == "begun":
            await execution.wait_for(branch, Wait(key=key, on="time", until_ms=found.until_ms))
            await execution.record(branch, key, replace(found, status="done"))

    async def run_chat(self, prompt: str, wish: ChildWish) -> ChildResult:
        return await run_subchat(self._execution, prompt, wish)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        branch, key = await self._begin_branches("gather", coroutines)
        if not coroutines:
            return []
        ended = await self._execution.branches.run_all(branch, key, coroutines)
        for each in ended:
            if each is not None and each[1] is not None:
                raise each[1]
        return [each[0] for each in ended if each is not None]

    async def first(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> tuple[int, Any]:
        if not coroutines:
            raise ValueError("ctx.first needs at least one coroutine")
        execution = self._execution
        branch, key = await self._begin_branches("first", coroutines)
        found = execution.durable.journal.get(key)
        if found is not None and found.status == "done":  # only the branch that ended first runs again
            index = int(found.value or 0)
            for other in (*coroutines[:index], *coroutines[index + 1 :]):
                other.close()
            [only] = await execution.branches.run_all(branch, key, [coroutines[index]], first_index=index)
            result = only
        else:

            async def on_first(index: int) -> None:
                lost = [f"{key}.{other}." for other in range(len(coroutines)) if other != index]
                async with execution.path_lock.shared(*lost):
                    await execution.commit(branch, lambda builder: _end_first(builder, key, len(coroutines), index))

            ended = await execution.branches.run_all(branch, key, coroutines, on_first)
            index, result = next((index, each) for index, each in enumerate(ended) if each is not None)
        value, wrong = result if result is not None else (None, None)
        if wrong is not None:
            raise wrong
        return index, value

    async def _begin_branches(self, kind: str, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> tuple[Branch, str]:
        for each in coroutines:
            if not isinstance(each, Coroutine):
                raise TypeError(f"ctx.{kind} takes coroutines, such as ctx.step(…) without await, not {each!r}")
        try:
            branch, key, found = await self._execution.begin(kind, str(len(coroutines)))
        except BaseException:
            for each in coroutines:
                each.close()
            raise
        if found is None:
            self._execution.pending[key] = Operation(kind=kind, name=str(len(coroutines)), status="begun")
        return branch, key

    async def steered(self) -> list[Message]:
        execution = self._execution
        branch, key, found = await execution.begin("steered", "")
        if found is None:
            async with execution.path_lock.shared():
                found = await execution.commit(branch, lambda builder: _take_steered(builder, key))
        keys: list[str] = decoded(found.value or "[]", list[str])
        nodes = execution.chat.state.nodes
        return [nodes[each] for each in keys if each in nodes]

    async def restart(self, state: Any) -> NoReturn:
        branch, _, _ = await self._execution.begin("restart", "")
        if branch.parent is not None:
            raise RuntimeError("ctx.restart must not be called inside ctx.gather or ctx.first")
        text = encoded(state)
        if len(text.encode()) > INLINE_MAX_BYTES:
            raise ValueError(f"the state of ctx.restart may have {INLINE_MAX_BYTES:,} bytes as JSON")
        self._execution.halt(Restart(text))

    def now(self) -> datetime:
        text = self._at_once("now", lambda: encoded(self._execution.chat.now_ms()))
        return datetime.fromtimestamp(int(text) / 1000, UTC)

    def random(self) -> float:
        return float(self._at_once("random", lambda: encoded(random.random())))

    def new_id(self) -> str:
        return str(decoded(self._at_once("new_id", lambda: encoded(os.urandom(16).hex())), str))

    def _at_once(self, kind: str, make: Callable[[], str]) -> str:
        """Return the recorded value, or a new value from `make`, which the next append records."""
        _, key, found = self._execution.enter(kind, "")
        if found is None:
            found = self._execution.pending[key] = Operation(kind=kind, value=make())
        return found.value or "null"

    def version(self, name: str) -> bool:
        execution, name = self._execution, _checked_name(name)
        branch = execution.branches.current()
        key = f"{branch.key}:{name}"
        journal = execution.durable.journal
        found = journal.get(key) or execution.pending.get(key)
        if found is None:
            is_new = branch.key_ahead() not in journal
            found = execution.pending[key] = Operation(kind="version", name=name, value=encoded(is_new))
        return found.value == "true"

    def step_key(self) -> str:
        try:
            return _step_key.get()
        except LookupError:
            raise RuntimeError("ctx.step_key exists only while a step runs") from None


def _checked_name(name: str) -> str:
    """Return the name of a step or a version. Raises ValueError: the name is not a text of 1 to 200 characters."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX_CHARACTERS:
        raise ValueError(f"a name is a text of 1 to {NAME_MAX_CHARACTERS} characters, not {name!r:.50}")
    return mend_text(name)


def _failed(begun: Operation, wrong: BaseException) -> Operation:
    return replace(begun, status="failed", error=error_of(wrong))


def _end_first(builder: EntryBuilder, key: str, count: int, index: int) -> None:
    """Record which branch of a `first` has ended first, and close the open operations of the other branches."""
    record(builder, key, Operation(kind="first", name=str(count), value=str(index)))
    run = builder.state.private.run
    if run is None or run.agent is None:
        return
    lost = {
        other: operation
        for other, operation in run.agent.journal.items()
        if operation.status == "begun" and any(other.startswith(f"{key}.{at}.") for at in range(count) if at != index)
    }
    refs = {operation.ref for operation in lost.values() if operation.ref}
    if (draft := builder.state.draft) is not None and draft.message.message_id in refs:
        close_draft(builder, finish_reason="abort", status="partial", keep=True)
    for call in open_calls(builder.state):
        if call.id in refs:
            answer_call(builder, call, "Another branch of the agent was first.", status="aborted")
    asked = builder.state.runtime.pause_reasons
    left = [reason for reason in asked if reason.tool_call_id not in refs]
    if len(left) < len(asked):
        builder.say(PauseRequired(left) if left else PauseCleared())
    for other, operation in lost.items():
        record(builder, other, replace(operation, status="cancelled"))
        if operation.kind == "chat":
            close_children(builder, operation.ref)


def _take_steered(builder: EntryBuilder, key: str) -> Operation:
    found = Operation(kind="steered", value=encoded(take_steered(builder)))
    record(builder, key, found)
    return found
