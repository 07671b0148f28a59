"""The calls of a round: which may run, which need a person, which a client carries out (PROTOCOL §11, §12).

`next_call` looks at the log alone and writes the announcement of what happens next. Policy is the operator's table,
never the model's word: a call of a tool that was not offered is answered with that, and nothing runs.
"""

import hashlib
from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from protocol.decisions import limit_call_id
from protocol.events import IdeToolRequired, PauseReason, PauseRequired, ToolStatus
from protocol.facts import CallAsked, ToolStarted
from protocol.ledger import Ledger
from protocol.messages import JsonObject, ToolCall
from protocol.queue import is_steered
from protocol.runs import answer_call, asking_message_id, close_calls, open_calls
from protocol.runtime import say_runtime
from protocol.state import ChatState, Gate, Run
from protocol.tool_names import covers
from server.agent.answer.guard import ReplyGuard
from server.agent.calls.bindings import arguments_of, arguments_text
from server.agent.place.payload_types import Action, PayloadType
from server.agent.steps import RunTool, Step, Wait
from server.tools.base import Tool, read_arguments

__all__ = ["ToolTable", "ask_about_limit", "effect_hash", "input_hash", "next_call", "tools_offered"]

SHOWN_COMMAND_MAX_CHARACTERS = 500
"""Of a call, in the question that a person is asked."""

TOOLS_AT_ONCE = 8
"""Safe calls of one round that run at the same time: models ask for a handful, and each may be a request to one and
the same server."""


class ToolTable(Protocol):
    """The tools that this chat is offered, by name, and what its profile knows of models."""

    def get(self, name: str) -> Tool | None: ...

    @property
    def unknown_mode(self) -> str:
        """Return the mode of the chat when no profile has this name, so that the default profile is used, else ''."""

    def commit_tool(self, name: str) -> Tool | None:
        """A tool that carries accepted previews out; models are not offered it."""

    @property
    def payload_types(self) -> Mapping[str, PayloadType]: ...

    @property
    def actions(self) -> Mapping[str, Action]: ...

    @property
    def default_model(self) -> str: ...

    @property
    def reply_guard(self) -> ReplyGuard | None: ...

    @property
    def summarizer(self) -> str:
        """The model that shortens histories by summaries; '' for none."""

    @property
    def context_warn_ratio(self) -> float:
        """Of the window in use, from which on people are warned."""

    @property
    def params(self) -> JsonObject:
        """The profile's defaults of thread parameters."""

    def window_tokens(self, model: str) -> int | None:
        """The size of a model's window; None when nobody knows it."""


def tools_offered(ledger: Ledger, run: Run) -> bool:
    """May the open round call tools at all? Not the summary after the last one, and not where tools are off."""
    return not run.summarizing and ledger.param("tool_use") != "none"


def next_call(ledger: Ledger, run: Run, table: ToolTable) -> Step | None:
    """The round's calls in call order (LOOP-3), or the question whether they may run. None: look again."""
    if is_steered(ledger.state):
        close_calls(ledger, "Interrupted by a new message before it was run.", "aborted")
        return None
    if not tools_offered(ledger, run):
        close_calls(ledger, "No tools are offered now; answer without them.", "error")
        return None
    if _answer_overdue(ledger, table) or _publish_client_calls(ledger, run, table):
        return None
    state = ledger.state
    calls = open_calls(state)
    asked = [reason for call in calls if (reason := _question(state, run, call, table)) is not None]
    if asked:
        say_runtime(ledger, "executing_tools")
        _pause(ledger, asked)
        return Wait()
    ours = [call for call in calls if not _waits_for_client(state, call)]
    if not ours:
        say_runtime(ledger, "waiting_ide")
        return Wait()
    step = _run_or_answer(ledger, run, ours[0], table)
    return _with_others(ledger, run, step, ours, table) if isinstance(step, RunTool) else step


def _with_others(ledger: Ledger, run: Run, step: RunTool, ours: list[ToolCall], table: ToolTable) -> RunTool:
    """`step`, and beside it the calls that follow it at once, as long as all of them are of safe tools: they have no
    effects, so neither their order nor a second run can harm."""
    together: list[RunTool] = []
    for call in ours[:TOOLS_AT_ONCE]:
        if not _is_safe(run, call, table):
            break
        other = step if call == step.call else _run_or_answer(ledger, run, call, table, ahead=len(together))
        if not isinstance(other, RunTool):
            break
        together.append(other)
    return replace(step, beside=tuple(together[1:]))


def _is_safe(run: Run, call: ToolCall, table: ToolTable) -> bool:
    tool, gate = table.get(call.function.name), run.gates.get(call.id)
    settled = gate is None or gate.status != "rejected"
    return tool is not None and tool.retry == "safe" and tool.policy == "auto" and settled


def _run_or_answer(ledger: Ledger, run: Run, call: ToolCall, table: ToolTable, *, ahead: int = 0) -> Step | None:
    """`ahead`: so many calls run already whose results come before this one's."""
    gate = run.gates.get(call.id)
    name = call.function.name
    tool = table.get(name)
    if gate is not None and gate.status == "rejected":
        note = f" Note: {gate.note}" if gate.note else ""
        answer_call(ledger, call, f"The call was denied by user.{note}", status="denied")
        return None
    if tool is not None and tool.policy == "deny":
        answer_call(ledger, call, f"The tool {tool.name} is denied by policy.", status="denied")
        return None
    arguments = arguments_text(ledger.state, call, tool, table.params)
    if gate is not None and gate.edited_input is not None:
        arguments = msgspec.json.encode(gate.edited_input).decode()
    say_runtime(ledger, "executing_tools", status_text=f"running {name}", active_tool=name)
    ledger.note(ToolStarted(tool_call_id=call.id, tool_name=name))
    ledger.say(_status(ledger.state, call, tool, "running", arguments, ahead))
    return RunTool(run.run_id, call, arguments, run.calls_count + ahead, ledger.now_ms)


def _waits_for_client(state: ChatState, call: ToolCall) -> bool:
    return any(waiting.tool_call_id == call.id for waiting in state.runtime.ide_calls)


def _publish_client_calls(ledger: Ledger, run: Run, table: ToolTable) -> bool:
    """Announce the calls that clients carry out, all of the round at once (PROTOCOL §12). True: one of them was
    answered instead."""
    for call in open_calls(ledger.state):
        tool = table.get(call.function.name)
        if tool is None or tool.policy != "client" or _waits_for_client(ledger.state, call):
            continue
        arguments = arguments_of(ledger.state, call, tool, table.params)
        if arguments is None:
            answer_call(ledger, call, "The arguments are not a JSON object.", status="error")
            return True
        say_runtime(ledger, "executing_tools")
        ledger.note(ToolStarted(tool_call_id=call.id, tool_name=tool.name))
        ledger.say(_status(ledger.state, call, tool, "queued", arguments_text(ledger.state, call, tool, table.params)))
        ledger.say(
            IdeToolRequired(
                tool_call_id=call.id,
                tool_name=tool.name,
                args=arguments,
                deadline_at=ledger.now_ms + int(tool.timeout_seconds * 1000),
            )
        )
    return False


def _answer_overdue(ledger: Ledger, table: ToolTable) -> bool:
    """Silence past a client tool's deadline is an error result (PROTOCOL §12). True: there was some."""
    overdue = {
        waiting.tool_call_id
        for waiting in ledger.state.runtime.ide_calls
        if waiting.deadline_at is not None and waiting.deadline_at <= ledger.now_ms
    }
    late = [call for call in open_calls(ledger.state) if call.id in overdue]
    for call in late:
        tool = table.get(call.function.name)
        seconds = f" within {tool.timeout_seconds:g} s" if tool is not None else " in time"
        answer_call(ledger, call, f"No client answered this call{seconds}.", status="error")
    return bool(late)


def _question(state: ChatState, run: Run, call: ToolCall, table: ToolTable) -> PauseReason | None:
    """Why a person must be asked about `call` before the round goes on; None when nobody must (PROTOCOL §11)."""
    tool = table.get(call.function.name)
    gate = run.gates.get(call.id)
    arguments = arguments_of(state, call, tool, table.params)
    if tool is None or arguments is None or tool.policy == "deny":
        return None
    if gate is not None and gate.status != "asked" and not _means_another(state, run, call, gate, arguments):
        return None
    broken = effect_hash(tool.name, arguments) in state.private.unknown_outcomes
    if not broken and (tool.policy != "ask" or _is_allowed(state, tool)):
        return None
    shown = "" if tool.hide_input else arguments_text(state, call, tool, table.params)
    kind = "browser_context" if tool.category == "browser" else "confirmation"
    return PauseReason(
        type="outcome_unknown" if broken else kind,
        tool_name=tool.name,
        command=f"{tool.name} {shown}".rstrip()[:SHOWN_COMMAND_MAX_CHARACTERS],
        rule="an earlier run of this call broke off" if broken else "policy: ask",
        tool_call_id=call.id,
        input={} if tool.hide_input else arguments,
        input_hash=input_hash(state.chat_id, run.run_id, call.id, arguments),
    )


def _means_another(state: ChatState, run: Run, call: ToolCall, gate: Gate, arguments: JsonObject) -> bool:
    """Was `call` accepted with other arguments than it has now? The thread's context, which completes them, may change
    while a person is asked."""
    if gate.status != "accepted" or gate.edited_input is not None:
        return False
    return gate.input_hash != input_hash(state.chat_id, run.run_id, call.id, arguments)


def _is_allowed(state: ChatState, tool: Tool) -> bool:
    thread = state.thread
    return (
        thread.autonomous_no_confirm
        or (thread.auto_approve_editing_tools and tool.category == "editing")
        or (thread.auto_approve_dangerous_commands and tool.category == "dangerous")
        or covers(state.private.allowed_tools, tool.name)
    )


def ask_about_limit(ledger: Ledger, run: Run, allowed: int) -> Step:
    """Pause with the question whether the run may have as many rounds again."""
    reason = PauseReason(
        type="round_limit",
        tool_name="",
        tool_call_id=limit_call_id(run.run_id),
        rule=f"max_rounds: {allowed}",
        input={"max_rounds": ledger.param("max_rounds")},
    )
    _pause(ledger, [reason])
    return Wait()


def _pause(ledger: Ledger, reasons: list[PauseReason]) -> None:
    calls = {call.id: call for call in open_calls(ledger.state)}
    for reason in reasons:
        ledger.note(CallAsked(tool_call_id=reason.tool_call_id, input_hash=reason.input_hash))
        if reason.tool_call_id in calls:
            ledger.say(_status(ledger.state, calls[reason.tool_call_id], None, "awaiting_decision", ""))
    ledger.say(PauseRequired(reasons))
    say_runtime(ledger, "paused")


def _status(
    state: ChatState, call: ToolCall, tool: Tool | None, status: str, arguments: str, ahead: int = 0
) -> ToolStatus:
    run = state.private.run
    shown = read_arguments(arguments) if tool is not None and not tool.hide_input else None
    label = shown.get(tool.label_arg) if shown and tool and tool.label_arg else None
    return ToolStatus(
        tool_call_id=call.id,
        name=call.function.name,
        message_id=asking_message_id(state, call.id),
        index=run.calls_count + ahead if run else 0,
        status=status,
        input=shown,
        label=label if isinstance(label, str) else None,
    )


def input_hash(chat_id: str, run_id: str, tool_call_id: str, arguments: JsonObject) -> str:
    """Binds an approval to chat, run, call and arguments (DESIGN §11)."""
    return _digest([chat_id, run_id, tool_call_id, arguments])


def effect_hash(tool_name: str, arguments: JsonObject) -> str:
    """Names an effect: the same tool with the same arguments."""
    return _digest([tool_name, arguments])


_canonical = msgspec.json.Encoder(order="sorted")


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]
