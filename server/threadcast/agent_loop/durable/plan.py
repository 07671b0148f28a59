"""Plans the run of a durable agent: its start, its pauses, its continuation, and its recovery after a crash. Pure.

As for models, the plan depends only on the log. While all branches of the function wait for events outside the
function, the function is suspended. The log then records the event that each branch waits for. `go_on` returns
`RunAgent` as soon as one of these waits is over.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec.structs import replace

from threadcast.agent_loop.calls.bindings import arguments_of
from threadcast.agent_loop.calls.gates import answer_overdue, pause, question_about
from threadcast.agent_loop.steps import RunAgent, Step
from threadcast.agent_loop.steps import Wait as Rest
from threadcast.base.boundary import name_of
from threadcast.chat.agent_steps import child_of, record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import (
    AgentMissing,
    AgentParked,
    AgentStarted,
    DurableRun,
    Operation,
    OperationError,
    Wait,
)
from threadcast.chat.owner_state import OwnerState, Run
from threadcast.chat.params import all_set
from threadcast.chat.questions import question_reason
from threadcast.chat.runs import open_calls
from threadcast.chat.runtime import say_runtime
from threadcast.chat.subchats import RUNNING_MAX
from threadcast.profiles.profile import ChatTools
from threadcast.providers.base import AGENTS
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.events import PauseCleared, PauseReason, Question
from threadcast_protocol.wire.mending import mend_text
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "MISSING_MS",
    "begin_agent",
    "child_of",
    "durable_agent_of",
    "error_of",
    "go_on",
    "is_over",
    "park",
    "record",
    "recover_agent",
    "say_found",
    "say_missing",
    "steps_begun_once",
]

MISSING_MS = 60_000
"""If no worker has had the agent for this many milliseconds, clients see which agent is missing."""

MESSAGE_MAX_CHARACTERS = 2_000
"""The maximum length of an error's text in the log."""


def durable_agent_of(builder: EntryBuilder) -> str:
    """Return the name of the durable agent that answers in the chat's profile; '' if there is none."""
    defaults = builder.profile_params
    model: str = defaults.get("model", "")
    return model.removeprefix(AGENTS) if defaults.get("durable") else ""


def begin_agent(builder: EntryBuilder, name: str) -> Step:
    """Begin the open run with the durable agent `name`. The current parameters apply to the whole run."""
    state = builder.state
    params = {key: each.value for key, each in all_set(state, builder.profile_params).items() if key != "model"}
    builder.note(AgentStarted(name=name, path_length=len(state.path), params=params))
    say_runtime(builder, "generating", round=0)
    run = builder.state.private.run
    return RunAgent(run.run_id if run is not None else "", name)


def go_on(builder: EntryBuilder, run: Run, agent: DurableRun, table: ChatTools) -> Step:
    """Return the next step of a run with a durable agent: run the function, or wait while all branches wait."""
    answer_overdue(builder, table)
    if agent.waits:
        if not any(is_over(builder.state, wait, builder.now_ms) for wait in agent.waits):
            return Rest()
        builder.note(AgentParked())
        say_runtime(builder, "executing_tools")
    return RunAgent(run.run_id, agent.name)


def is_over(state: OwnerState, wait: Wait, now_ms: int) -> bool:
    """Return whether the event that the operation waits for has occurred."""
    run = state.private.run
    match wait.on:
        case "decision":
            gate = run.gates.get(wait.ref) if run is not None else None
            return gate is not None and gate.status != "asked"
        case "client":
            return all(call.tool_call_id != wait.ref for call in state.runtime.ide_calls)
        case "child":
            child = child_of(state, wait.ref)
            return child is None or child.outcome is not None
        case "child_room":
            return len(state.private.relations.running) < RUNNING_MAX
        case "path":
            return not state.runtime.ide_calls
        case _:
            return wait.until_ms is not None and wait.until_ms <= now_ms


def park(builder: EntryBuilder, run: Run, waits: Iterable[Wait], table: ChatTools) -> bool:
    """Suspend the function until one of `waits` is over: show the questions to people, and record `waits`. Returns
    False if one of the waits is already over or no longer needed."""
    held = tuple(waits)
    answer_overdue(builder, table)
    if any(is_over(builder.state, wait, builder.now_ms) for wait in held):
        return False
    reasons = _questions(builder.state, run, held, table)
    if len(reasons) < sum(wait.on == "decision" for wait in held):  # a call no longer needs an approval
        return False
    builder.note(AgentParked(waits=held))
    if reasons:
        if reasons != builder.state.runtime.pause_reasons:
            pause(builder, reasons, _hidden(builder.state, reasons, table), table)
        say_runtime(builder, "paused")
        return True
    if builder.state.runtime.pause_reasons:
        builder.say(PauseCleared())
    if builder.state.runtime.ide_calls:
        say_runtime(builder, "waiting_ide")
    else:
        say_runtime(builder, "executing_tools", status_text=_status_text(held))
    return True


def _questions(state: OwnerState, run: Run, waits: Iterable[Wait], table: ChatTools) -> list[PauseReason]:
    """Return the questions to people among `waits`, in the order of `waits`."""
    calls = {call.id: call for call in open_calls(state)}
    reasons: list[PauseReason | None] = []
    for wait in waits:
        if wait.on != "decision":
            continue
        if wait.ref in calls:
            reasons.append(question_about(state, run, calls[wait.ref], table))
        elif run.agent is not None:
            asked = decoder(Question).decode(run.agent.journal[wait.key].value or "null")
            reasons.append(question_reason(state.chat_id, run.run_id, wait.ref, asked))
    return [reason for reason in reasons if reason is not None]


def _hidden(state: OwnerState, reasons: Iterable[PauseReason], table: ChatTools) -> dict[str, JsonObject | None]:
    """Return, by call id, the arguments that the questions do not show."""
    hides = {reason.tool_call_id for reason in reasons if reason.hides_input}
    return {
        call.id: arguments_of(state, call, table.get(call.function.name), table.profile.params)
        for call in open_calls(state)
        if call.id in hides
    }


def _status_text(waits: Iterable[Wait]) -> str:
    held = list(waits)
    children = sum(wait.on == "child" for wait in held)
    if children:
        return "waiting for a sub-chat" if children == 1 else f"waiting for {children} sub-chats"
    until = min((wait.until_ms for wait in held if wait.until_ms is not None), default=None)
    if until is None:
        return "waiting"
    return f"sleeping until {datetime.fromtimestamp(until / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def recover_agent(builder: EntryBuilder, agent: DurableRun) -> None:
    """Settle the steps that had begun when the worker died. A step that must not run twice gets an unknown outcome.
    Tool calls are settled as in every run."""
    for key, operation in steps_begun_once(agent).items():
        record(builder, key, replace(operation, status="unknown"))


def steps_begun_once(agent: DurableRun) -> dict[str, Operation]:
    """Return, by key, the steps that have begun, have no result, and may not run twice."""
    return {
        key: operation
        for key, operation in agent.journal.items()
        if (operation.kind, operation.status, operation.retry) == ("step", "begun", "once")
    }


def say_missing(builder: EntryBuilder) -> int:
    """Record that this worker does not have the agent of the open run. After `MISSING_MS` without a worker that has the
    agent, show this to clients. Returns the time in Unix milliseconds since which the agent is missing."""
    run = builder.state.private.run
    if run is None or run.agent is None:
        return builder.now_ms
    if run.agent.missing_since_ms is None:
        builder.note(AgentMissing(since_ms=builder.now_ms))
        return builder.now_ms
    if builder.now_ms - run.agent.missing_since_ms >= MISSING_MS:
        text = f"waiting for a worker that has the agent {run.agent.name!r}"
        say_runtime(builder, builder.state.runtime.state, status_text=text)
    return run.agent.missing_since_ms


def say_found(builder: EntryBuilder) -> None:
    """Record that this worker has the agent of the open run, and clear the text that names the agent as missing."""
    builder.note(AgentMissing())
    say_runtime(builder, builder.state.runtime.state)


def error_of(wrong: BaseException) -> OperationError:
    """Return the error of an operation in the form in which the log stores it."""
    return OperationError(name_of(wrong), mend_text(str(wrong)[:MESSAGE_MAX_CHARACTERS]))
