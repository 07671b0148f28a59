"""Decides which tool calls of a round may run, which need a person's approval, and which a client carries out (PROTOCOL
§11, §12).

`next_call` reads only the chat's state, and announces the next call. The operator's settings, never the model, decide
which calls may run. A call of a tool that was not offered is answered with an error.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from threadcast.agent_loop.calls.bindings import arguments_of, arguments_text
from threadcast.agent_loop.calls.permissions import digest_of, permission_of, rule_of, shown_with
from threadcast.agent_loop.steps import RunTool, Step, Wait
from threadcast.chat.decisions import limit_call_id
from threadcast.chat.digests import digest
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import CallAsked, ToolStarted
from threadcast.chat.journal import need_key
from threadcast.chat.owner_state import Gate, OwnerState, Run
from threadcast.chat.queue import is_steered
from threadcast.chat.runs import answer_call, asking_message_id, close_calls, end_run, open_calls
from threadcast.chat.runtime import say_runtime
from threadcast.profiles.context import declared_tools
from threadcast.profiles.profile import ChatTools
from threadcast.tools.base import Tool, read_arguments
from threadcast_protocol.wire.events import IdeToolRequired, PauseCleared, PauseReason, PauseRequired, ToolStatus
from threadcast_protocol.wire.messages import JsonObject, ToolCall

__all__ = [
    "answer_overdue",
    "ask_about_limit",
    "ask_meanwhile",
    "effect_hash",
    "input_hash",
    "next_call",
    "pause",
    "publish_client_calls",
    "question_about",
    "run_or_answer",
    "tools_offered",
    "waits_for_client",
    "withdraw",
]

SHOWN_COMMAND_MAX_CHARACTERS = 500
"""The maximum length, in characters, of the command in a question to a person. The command is the tool's name and its
arguments."""

SOURCES_SHOWN = 3
"""The maximum number of untrusted sources that a question to a person lists."""

TOOLS_AT_ONCE = 8
"""The maximum number of safe calls of a round that run at the same time. Models usually request only a few calls. The
number is limited because all of these calls may send requests to the same server."""


def tools_offered(builder: EntryBuilder, run: Run) -> bool:
    """Return whether the open round may call tools. It may not if it is the summary round at the limit of rounds, or if
    the chat has switched tools off."""
    return not run.summarizing and builder.param("tool_use") != "none"


def next_call(builder: EntryBuilder, run: Run, table: ChatTools) -> Step | None:
    """Return the step that runs the round's next calls, in call order (LOOP-3). Returns `Wait` while a person must
    decide or a client must carry out a call. Returns None if this function has changed the state. The caller must then
    plan again, and the run may have ended."""
    if is_steered(builder.state):
        close_calls(builder, "Interrupted by a new message before it was run.", "aborted")
        return None
    if not tools_offered(builder, run):
        close_calls(builder, "No tools are offered now; answer without them.", "error")
        return None
    declared = declared_tools(builder.state)
    if late := answer_overdue(builder, table):
        if builder.param("on_client_timeout") == "stop" and any(name in declared for name in late):
            close_calls(builder, "The run ended, because no client answered another call in time.", "aborted")
            end_run(builder, "aborted")
        return None
    if publish_client_calls(builder, run, table):
        return None
    state = builder.state
    calls = open_calls(state)
    asked = [reason for call in calls if (reason := question_about(state, run, call, table)) is not None]
    if asked:
        say_runtime(builder, "executing_tools")
        arguments = {
            each.id: arguments_of(state, each, table.get(each.function.name), table.profile.params) for each in calls
        }
        hidden = {reason.tool_call_id: arguments[reason.tool_call_id] for reason in asked if reason.hides_input}
        pause(builder, asked, hidden, table)
        return Wait()
    ours = [call for call in calls if not waits_for_client(state, call)]
    if not ours:
        say_runtime(builder, "waiting_ide")
        return Wait()
    step = run_or_answer(builder, run, ours[0], table)
    return _with_others(builder, run, step, ours, table) if isinstance(step, RunTool) else step


def _with_others(builder: EntryBuilder, run: Run, step: RunTool, ours: list[ToolCall], table: ChatTools) -> RunTool:
    """Return `step` together with the calls directly after it that may run at the same time. Only calls of safe tools
    may run at the same time. Safe tools have no effects, so neither the order of the calls nor a repeated call
    matters."""
    together: list[RunTool] = []
    for call in ours[:TOOLS_AT_ONCE]:
        if not _is_safe(run, call, table):
            break
        other = step if call == step.call else run_or_answer(builder, run, call, table, ahead=len(together))
        if not isinstance(other, RunTool):
            break
        together.append(other)
    return replace(step, beside=tuple(together[1:]))


def _is_safe(run: Run, call: ToolCall, table: ChatTools) -> bool:
    tool, gate = table.get(call.function.name), run.gates.get(call.id)
    settled = gate is None or gate.status != "rejected"
    return tool is not None and tool.retry == "safe" and tool.policy == "auto" and settled


def run_or_answer(
    builder: EntryBuilder, run: Run, call: ToolCall, table: ChatTools, *, ahead: int = 0, has_run: bool = False
) -> Step | None:
    """Announce `call` and return its step. If the call may not run, answer the call and return None. `ahead` is the
    number of calls before `call` in the same step. `has_run` is True if a framework has already carried out the
    call."""
    gate = None if has_run else run.gates.get(call.id)
    name = call.function.name
    tool = table.get(name)
    if gate is not None and gate.status == "rejected":
        note = f" Note: {gate.note}" if gate.note else ""
        answer_call(builder, call, f"The call was denied by user.{note}", status="denied")
        return None
    if tool is not None and tool.policy == "deny" and not has_run:
        answer_call(builder, call, f"The tool {tool.name} is denied by policy.", status="denied")
        return None
    arguments = arguments_text(builder.state, call, tool, table.profile.params)
    if gate is not None and gate.edited_input is not None:
        arguments = msgspec.json.encode(gate.edited_input).decode()
    say_runtime(builder, "executing_tools", status_text=f"running {name}", active_tool=name)
    builder.note(ToolStarted(tool_call_id=call.id, tool_name=name))
    builder.say(_status(builder.state, call, tool, "running", arguments, ahead))
    return RunTool(run.run_id, call, arguments, run.calls_count + ahead, builder.now_ms)


def waits_for_client(state: OwnerState, call: ToolCall) -> bool:
    return any(waiting.tool_call_id == call.id for waiting in state.runtime.ide_calls)


def publish_client_calls(builder: EntryBuilder, run: Run, table: ChatTools) -> bool:
    """Announce all calls of the round that clients carry out (PROTOCOL §12). Returns True if a call was answered with
    an error instead."""
    for call in open_calls(builder.state):
        tool = table.get(call.function.name)
        if tool is None or tool.policy != "client" or waits_for_client(builder.state, call):
            continue
        arguments = arguments_of(builder.state, call, tool, table.profile.params)
        if arguments is None:
            answer_call(builder, call, "The arguments are not a JSON object.", status="error")
            return True
        say_runtime(builder, "executing_tools")
        builder.note(ToolStarted(tool_call_id=call.id, tool_name=tool.name))
        text = arguments_text(builder.state, call, tool, table.profile.params)
        builder.say(_status(builder.state, call, tool, "queued", text))
        builder.say(
            IdeToolRequired(
                tool_call_id=call.id,
                tool_name=tool.name,
                args=arguments,
                deadline_at=builder.now_ms + int(tool.timeout_seconds * 1000),
            )
        )
    return False


def answer_overdue(builder: EntryBuilder, table: ChatTools) -> list[str]:
    """Answer with an error every call that no client has answered before its deadline (PROTOCOL §12). Returns the tool
    names of these calls."""
    overdue = {
        waiting.tool_call_id
        for waiting in builder.state.runtime.ide_calls
        if waiting.deadline_at is not None and waiting.deadline_at <= builder.now_ms
    }
    late = [call for call in open_calls(builder.state) if call.id in overdue]
    for call in late:
        tool = table.get(call.function.name)
        seconds = f" within {tool.timeout_seconds:g} s" if tool is not None else " in time"
        answer_call(builder, call, f"No client answered this call{seconds}.", status="error")
    return [call.function.name for call in late]


def question_about(state: OwnerState, run: Run, call: ToolCall, table: ChatTools) -> PauseReason | None:
    """Return the question to ask a person about `call`, or None if the call needs no decision (PROTOCOL §11)."""
    tool = table.get(call.function.name)
    gate = run.gates.get(call.id)
    arguments = arguments_of(state, call, tool, table.profile.params)
    if tool is None or arguments is None or tool.policy == "deny":
        return None
    if gate is not None and gate.status != "asked" and not _means_another(state, run, call, gate, arguments, tool):
        return None
    broken = effect_hash(tool.name, arguments) in state.private.unknown_outcomes
    is_allowed, change = permission_of(state, tool)
    is_allowed = is_allowed or _is_approved_wholesale(state, tool, table)
    is_tainted = tool.traits.sensitive and bool(state.private.tainted_by)
    needs_another = tool.traits.approver == "another"
    asks = tool.policy == "ask" or (run.agent is not None and need_key(call.id) in run.agent.journal)
    if not broken and not is_tainted and (not asks or (is_allowed and not needs_another)):
        return None
    shown = "" if tool.hide_input else arguments_text(state, call, tool, table.profile.params)
    kind = "browser_context" if tool.category == "browser" else "confirmation"
    rule = "another person must approve" if needs_another else rule_of(change)
    if is_tainted:
        rule = f"this chat contains untrusted content of {', '.join(state.private.tainted_by[:SOURCES_SHOWN])}"
    if broken:
        rule = "an earlier run of this call was interrupted"
    return PauseReason(
        type="outcome_unknown" if broken else kind,
        tool_name=tool.name,
        command=f"{tool.name} {shown}".rstrip()[:SHOWN_COMMAND_MAX_CHARACTERS],
        rule=rule,
        tool_call_id=call.id,
        input={} if tool.hide_input else arguments,
        input_hash=input_hash(state.chat_id, run.run_id, call.id, arguments, digest_of(tool)),
        change=UNSET if change is None else change,
        hides_input=tool.hide_input or UNSET,
        once=is_tainted or needs_another or UNSET,
        approver="another" if needs_another else UNSET,
    )


def _means_another(state: OwnerState, run: Run, call: ToolCall, gate: Gate, arguments: JsonObject, tool: Tool) -> bool:
    """Return whether a person accepted `call` with arguments or with a tool definition that have changed since. The
    arguments may change before the person answers, because the thread's context completes them. A tool of an MCP server
    may change, too. In a question from an older worker, the hash does not include the definition, so such a hash is
    accepted as well."""
    if gate.status != "accepted" or gate.edited_input is not None:
        return False
    hashes = (input_hash(state.chat_id, run.run_id, call.id, arguments, digest) for digest in (digest_of(tool), ""))
    return gate.input_hash not in hashes


def _is_approved_wholesale(state: OwnerState, tool: Tool, table: ChatTools) -> bool:
    thread = state.thread
    return (
        (thread.autonomous_no_confirm and table.profile.allows_autonomous)
        or (thread.auto_approve_editing_tools and tool.category == "editing")
        or (thread.auto_approve_dangerous_commands and tool.category == "dangerous")
    )


def ask_about_limit(builder: EntryBuilder, run: Run, allowed: int) -> Step:
    """Pause the run, and ask whether the run may continue for the same number of rounds again."""
    reason = PauseReason(
        type="round_limit",
        tool_name="",
        tool_call_id=limit_call_id(run.run_id),
        rule=f"max_rounds: {allowed}",
        input={"max_rounds": builder.param("max_rounds")},
    )
    pause(builder, [reason], {}, None)
    return Wait()


def pause(
    builder: EntryBuilder, reasons: list[PauseReason], hidden: Mapping[str, JsonObject | None], table: ChatTools | None
) -> None:
    """Pause the run and ask a person the questions in `reasons`. `hidden` maps the id of a call to the arguments that
    its question does not show. `table` is None if no question is about a tool."""
    _ask(builder, reasons, hidden, table)
    builder.say(PauseRequired(reasons))
    say_runtime(builder, "paused")


def ask_meanwhile(builder: EntryBuilder, reason: PauseReason, table: ChatTools) -> None:
    """Add the question `reason` to the open questions, while the run continues."""
    call = next((each for each in open_calls(builder.state) if each.id == reason.tool_call_id), None)
    hidden: dict[str, JsonObject | None] = {}
    if call is not None and reason.hides_input is True:
        tool = table.get(call.function.name)
        hidden[call.id] = arguments_of(builder.state, call, tool, table.profile.params)
    _ask(builder, [reason], hidden, table)
    others = [each for each in builder.state.runtime.pause_reasons if each.tool_call_id != reason.tool_call_id]
    builder.say(PauseRequired([*others, reason]))


def withdraw(builder: EntryBuilder, call_id: str) -> None:
    """Remove the open question about the call `call_id`, which no longer needs a decision."""
    before = builder.state.runtime.pause_reasons
    left = [each for each in before if each.tool_call_id != call_id]
    if len(left) < len(before):
        builder.say(PauseRequired(left) if left else PauseCleared())


def _ask(
    builder: EntryBuilder, reasons: list[PauseReason], hidden: Mapping[str, JsonObject | None], table: ChatTools | None
) -> None:
    calls = {call.id: call for call in open_calls(builder.state)}
    for reason in reasons:
        builder.note(
            CallAsked(
                tool_call_id=reason.tool_call_id,
                input_hash=reason.input_hash,
                hidden_input=hidden.get(reason.tool_call_id),
                shown=None if table is None else shown_with(builder.state, reason.tool_name, table),
                is_question=reason.type == "question",
            )
        )
        if reason.tool_call_id in calls:
            builder.say(_status(builder.state, calls[reason.tool_call_id], None, "awaiting_decision", ""))


def _status(
    state: OwnerState, call: ToolCall, tool: Tool | None, status: str, arguments: str, ahead: int = 0
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


def input_hash(chat_id: str, run_id: str, tool_call_id: str, arguments: JsonObject, definition: str = "") -> str:
    """Return the hash that binds an approval to its chat, run, call and arguments (DESIGN §11). If `definition` is
    given, the hash also binds the approval to this digest of the tool's definition."""
    return digest([chat_id, run_id, tool_call_id, arguments, *([definition] if definition else [])])


def effect_hash(tool_name: str, arguments: JsonObject) -> str:
    """Return the hash of a call's effect. Calls of the same tool with the same arguments have the same hash."""
    return digest([tool_name, arguments])
