"""Carries out the tool calls of a durable agent, with the same policies, approvals, deadlines and results as for
models.

Each call of `run_call` has its own message of the assistant, followed by a tool message, so that clients and later
models read a valid conversation. The tool message is the record of the call's end. The journal stores the returned
value only if the tool message has the value in another form.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

from msgspec.structs import replace

from threadcast.agent_loop.answer.assembler import ARGUMENTS_MAX_CHARACTERS
from threadcast.agent_loop.calls.gates import (
    answer_overdue,
    ask_meanwhile,
    publish_client_calls,
    question_about,
    run_or_answer,
    waits_for_client,
)
from threadcast.agent_loop.durable.answers import KeepValue
from threadcast.agent_loop.durable.branches import Branch
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.outcomes import EndedCall, public_calls, tool_done
from threadcast.agent_loop.steps import RunTool
from threadcast.chat.agent_steps import record
from threadcast.chat.digests import digest
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import CallAsked, CallDecided
from threadcast.chat.journal import Operation, Wait, need_key
from threadcast.chat.runs import open_calls
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown
from threadcast.custom_agents.seam import CallReturn, NeedsApproval, NotFinished
from threadcast.custom_agents.values import decoded, encoded
from threadcast.providers.base import AGENTS
from threadcast.tools.agent_tool import CallFunction, carried_out_by
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.mending import mend_text
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, Message, ToolCall

__all__ = ["CallRunner", "FrameworkCall", "must_ask", "returned_key", "run_call", "run_framework_call"]

CallRunner: TypeAlias = Callable[[RunTool], Awaitable[EndedCall | None]]
"""Runs the tool of an announced call; returns None if the run has ended."""

VALUE_MAX_BYTES = 1_000_000
"""The maximum bytes of a call's value in the journal. In place of a larger value, the agent receives the shortened text
that a model would read."""


async def run_call(execution: Execution, calls: CallRunner, name: str, args: JsonObject) -> Any:
    """Call the tool `name`, or return the recorded result of the call.

    Raises:
        CallFailed, CallDenied, OutcomeUnknown: raised as by `AgentContext.call`.
        TypeError, ValueError: the arguments are not JSON, or are too long.
    """
    arguments = encoded(args)
    if len(arguments) > ARGUMENTS_MAX_CHARACTERS:
        raise ValueError(f"the arguments of a call have at most {ARGUMENTS_MAX_CHARACTERS:,} characters as JSON")
    name = mend_text(name)
    wanted = digest([decoded(arguments, Any)])
    branch, key, found = await execution.begin("call", name, wanted)
    if found is None:
        async with execution.path_lock.shared():
            found = await execution.commit(
                branch, lambda builder: _begin(execution, builder, key, name, arguments, wanted)
            )
    while (message := execution.result_of(found.ref)) is None:
        await _go_on(execution, calls, branch, key, found)
    return _value_of(message, execution.durable.journal.get(key, found), execution)


class FrameworkCall:
    """A call in a message of a framework. `run` carries out the call inside the framework. `keep_value` records the
    call's private value. If `has_run` is true, the framework has already carried out the call, so no person is
    asked."""

    def __init__(self, call: ToolCall, run: CallFunction, keep_value: KeepValue, *, has_run: bool = False) -> None:
        self.call = call
        self.has_run = has_run
        self.needs_approval = False
        self.unfinished: BaseException | None = None
        self.returned: CallReturn | None = None
        self._run = run
        self._keep_value = keep_value

    async def __call__(self, arguments: JsonObject, context: ToolContext) -> Any:  # a tool may return any value
        """Carry the call out. If a person must approve the call, the result is discarded."""
        try:
            value = await self._run(arguments, context)
        except NeedsApproval:
            self.needs_approval = True
            return ""
        except NotFinished as later:
            self.unfinished = later.wrong
            return ""
        if isinstance(value, CallReturn):
            self.returned = value
            return value.result
        return value

    async def kept(self) -> Operation | None:
        """Return the record of the call's private value, or None if the call has no private value."""
        if self.returned is None:
            return None
        return await self._keep_value(Operation(kind="value", ref=self.call.id), self.returned.value)


def returned_key(call_id: str) -> str:
    """Return the journal's key of the private value of a call."""
    return f"@returned:{call_id}"


async def run_framework_call(execution: Execution, calls: CallRunner, of_framework: FrameworkCall) -> Operation | Any:
    """Carry out a call of a framework. Returns the record of the call's private value, or the value of the call if
    there is no such record.

    Raises:
        CallFailed, CallDenied, OutcomeUnknown: raised as by `Seam.call`.
    """
    call = of_framework.call
    key = f"@call:{call.id}"
    async with execution.operation(key) as (branch, found):
        if found is None:
            found = Operation(
                kind="call", name=call.function.name, status="begun", ref=call.id, at_ms=execution.chat.now_ms()
            )
        while (message := execution.result_of(call.id)) is None:
            await _go_on(execution, calls, branch, key, found, of_framework)
        if (returned := execution.durable.journal.get(returned_key(call.id))) is not None:
            return returned
        return _value_of(message, execution.durable.journal.get(key, found), execution)


def _begin(execution: Execution, builder: EntryBuilder, key: str, name: str, arguments: str, wanted: str) -> Operation:
    """Add the assistant's message with the call, and record that the call has begun."""
    durable = execution.durable
    call = ToolCall(id=builder.new_id("call"), index=0, function=FunctionCall(name, arguments))
    builder.add_message(
        Message(
            role="assistant",
            content="",
            message_id=builder.new_id("msg"),
            tool_calls=public_calls(builder, [call], execution.chat.tools()),
            finish_reason="tool_calls",
            model=f"{AGENTS}{durable.name}",
            extra={"durable": True},
            created_at=builder.now_ms,
        )
    )
    begun = Operation(kind="call", name=name, status="begun", digest=wanted, ref=call.id, at_ms=builder.now_ms)
    record(builder, key, begun)
    return begun


async def _go_on(
    execution: Execution,
    calls: CallRunner,
    branch: Branch,
    key: str,
    begun: Operation,
    of_framework: FrameworkCall | None = None,
) -> None:
    """Take the next step for an open call: ask a person, pass the call to a client, answer the call, or run its
    tool."""
    tools = execution.chat.tools()
    has_run = of_framework is not None and of_framework.has_run
    async with execution.path_lock.shared():
        step = await execution.commit(branch, lambda builder: _announce(execution, builder, begun.ref, has_run=has_run))
        if isinstance(step, RunTool):
            tool = tools.get(step.call.function.name)
            with execution.effect(branch, may_run_twice=tool is None or tool.retry != "once", rests=True):
                with nullcontext() if of_framework is None else carried_out_by(of_framework):
                    ended = await calls(step)
                if ended is None:
                    raise asyncio.CancelledError
                if of_framework is not None and of_framework.needs_approval:
                    of_framework.needs_approval = False
                    await execution.commit(branch, lambda builder: must_ask(builder, begun.ref))
                    return
                if of_framework is not None and of_framework.unfinished is not None:
                    # resets the gate to that of a call that is about to run
                    again = CallDecided(tool_call_id=begun.ref, accepted=True)
                    await execution.commit(branch, lambda builder: builder.note(again))
                    raise of_framework.unfinished
                returned = await of_framework.kept() if of_framework is not None else None
                await execution.commit(
                    branch, lambda builder: _end(execution, builder, key, begun, step, ended, returned)
                )
    if isinstance(step, str):  # waits only once, because the call may then wait for another event
        at_client = (call for call in execution.chat.state.runtime.ide_calls if call.tool_call_id == begun.ref)
        deadline_ms = next((call.deadline_at for call in at_client), None)
        await execution.wait_once(branch, Wait(key=key, on=step, ref=begun.ref), deadline_ms)


def must_ask(builder: EntryBuilder, call_id: str) -> None:
    """Record that a person must approve the call, whatever the policy of its tool is. A call that has begun is opened
    again."""
    record(builder, need_key(call_id), Operation(kind="need", ref=call_id))
    builder.note(CallAsked(tool_call_id=call_id, input_hash=""))


def _announce(
    execution: Execution, builder: EntryBuilder, call_id: str, *, has_run: bool = False
) -> RunTool | str | None:
    """Announce the call. Returns the step that runs the call. If the call waits, returns the kind of the awaited event,
    `client` or `decision`. Returns None if the call was answered."""
    tools = execution.chat.tools()
    answer_overdue(builder, tools)
    state = builder.state
    run = state.private.run
    call = next((each for each in open_calls(state) if each.id == call_id), None)
    if run is None or call is None:
        return None
    if has_run:
        step = run_or_answer(builder, run, call, tools, has_run=True)
        return step if isinstance(step, RunTool) else None
    if waits_for_client(state, call):
        return "client"
    if (reason := question_about(state, run, call, tools)) is not None:
        gate = run.gates.get(call_id)
        if execution.stays:
            if all(each.tool_call_id != call_id for each in state.runtime.pause_reasons):
                ask_meanwhile(builder, reason, tools)
        elif gate is None or gate.status != "asked":
            builder.note(CallAsked(tool_call_id=call_id, input_hash=reason.input_hash))
        return "decision"
    tool = tools.get(call.function.name)
    if tool is not None and tool.policy == "client":
        return None if publish_client_calls(builder, run, tools) else "client"
    step = run_or_answer(builder, run, call, tools)
    return step if isinstance(step, RunTool) else None


def _end(
    execution: Execution,
    builder: EntryBuilder,
    key: str,
    begun: Operation,
    step: RunTool,
    ended: EndedCall,
    returned: Operation | None = None,
) -> None:
    """Add the call's result, and record the call's value if the tool message has the value in another form."""
    if all(call.id != step.call.id for call in open_calls(builder.state)):
        return
    result = replace(ended.done.result, content=ended.kept.content)
    tool_done(
        builder,
        step.call,
        result,
        ended.done.elapsed_ms,
        execution.chat.tools(),
        ended.kept.attachments,
        ended.withheld,
    )
    value: str | None = ended.content if ended.is_json else encoded(ended.content)
    is_shown = not ended.is_json and ended.kept.content == ended.content
    if is_shown or result.failed or len((value or "").encode()) > VALUE_MAX_BYTES:
        value = None
    if returned is not None:
        record(builder, returned_key(step.call.id), returned)
        value = None
    record(builder, key, replace(begun, status="failed" if result.failed else "done", value=value))


def _value_of(message: Message, ended: Operation, execution: Execution) -> Any:
    """Return the value of an answered call, or raise the call's error."""
    outcome = message.extra.get("outcome")
    text = message.content if isinstance(message.content, str) else ""
    if not message.tool_failed:
        return text if ended.value is None else decoded(ended.value, Any)
    if outcome == "denied":
        gate = execution.run_open.gates.get(ended.ref)
        raise CallDenied(text if gate is None or gate.status != "rejected" else gate.note or "")
    if outcome == "outcome_unknown":
        raise OutcomeUnknown(ended.name)
    raise CallFailed(text)
