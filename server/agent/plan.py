"""What a run does next, as a function of the log alone: ask the model, run a tool, wait for a person, or end.

`advance` writes the next step's announcement into a ledger and says which work must be done outside. A worker that
takes a chat over calls the same function on the same state and so goes on where the dead one stopped; `recover` first
settles what was broken in the middle (DESIGN §7). Nothing here waits, and nothing is remembered but in the log.
"""

import hashlib
from typing import Protocol, TypeAlias

import msgspec

from protocol.decider import limit_call_id
from protocol.events import ErrorHappened, MessageRemoved, PauseReason, PauseRequired, StreamStarted, ToolStatus
from protocol.facts import CallAsked, OutcomeUnknown, RoundStarted, ToolStarted
from protocol.ledger import Ledger
from protocol.messages import JsonObject, ToolCall
from protocol.runs import answer_call, asking_message_id, close_calls, close_draft, end_run, open_calls, say_runtime
from protocol.state import ChatState, Gate, Run
from server.tools.base import Tool

__all__ = ["CallModel", "RunTool", "Step", "ToolTable", "Wait", "advance", "input_hash", "recover", "wanted_model"]

MAX_ROUNDS = 20
"""Model calls of one run that may use tools, unless thread or profile says otherwise (LOOP-2)."""


class ToolTable(Protocol):
    """The tools that this chat is offered, by name."""

    def get(self, name: str) -> Tool | None: ...

    @property
    def max_rounds(self) -> int: ...

    @property
    def default_model(self) -> str: ...


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model. `continuing`: the open draft is this very answer, broken off; go on after it."""

    run_id: str
    message_id: str
    model: str
    with_tools: bool = True
    continuing: bool = False


class RunTool(msgspec.Struct, frozen=True):
    """Run `call` with `arguments` (the JSON text that the model wrote, or a person's edit of it)."""

    run_id: str
    call: ToolCall
    arguments: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until the next command: at rest, or parked."""


Step: TypeAlias = CallModel | RunTool | Wait


def advance(ledger: Ledger, table: ToolTable) -> Step:
    """Announce the next step and return it. A run that ends here may be followed by the next one in the queue."""
    while True:
        state = ledger.state
        run = state.private.run
        if run is None or state.runtime.pause_reasons:
            return Wait()
        if state.draft is not None:
            model = wanted_model(state, run, table)
            return CallModel(run.run_id, state.draft.message.message_id, model, not run.summarizing, continuing=True)
        step = _next_call(ledger, run, table) if open_calls(state) else _next_round(ledger, run, table)
        if step is not None:
            return step


def wanted_model(state: ChatState, run: Run, table: ToolTable) -> str:
    """Command before thread before profile (SET-1)."""
    return run.model or state.thread.model or table.default_model


def _next_call(ledger: Ledger, run: Run, table: ToolTable) -> Step | None:
    """The round's calls in call order (LOOP-3), or the question whether they may run. None: look again."""
    calls = open_calls(ledger.state)
    if _is_steered(ledger.state):
        close_calls(ledger, "Interrupted by a new message before it was run.", "aborted")
        return None
    say_runtime(ledger, "executing_tools")
    asked = [reason for call in calls if (reason := _question(ledger.state, run, call, table)) is not None]
    if asked:
        _pause(ledger, asked)
        return Wait()
    call = calls[0]
    gate = run.gates.get(call.id)
    tool = table.get(call.function.name)
    if gate is not None and gate.status == "rejected":
        note = f" Note: {gate.note}" if gate.note else ""
        answer_call(ledger, call, f"The call was denied by user.{note}", status="denied")
        return None
    if tool is not None and tool.policy == "deny":
        answer_call(ledger, call, f"The tool {tool.name} is denied by policy.", status="denied")
        return None
    arguments = call.function.arguments
    if gate is not None and gate.edited_input is not None:
        arguments = msgspec.json.encode(gate.edited_input).decode()
    name = call.function.name
    say_runtime(ledger, "executing_tools", status_text=f"running {name}", active_tool=name)
    ledger.note(ToolStarted(tool_call_id=call.id, tool_name=name))
    ledger.say(_status(ledger.state, call, tool, "running", arguments))
    return RunTool(run.run_id, call, arguments)


def _question(state: ChatState, run: Run, call: ToolCall, table: ToolTable) -> PauseReason | None:
    """Why a person must be asked about `call` before the round goes on; None when nobody must (PROTOCOL §11)."""
    tool = table.get(call.function.name)
    gate = run.gates.get(call.id)
    arguments = read_arguments(call.function.arguments)
    if (gate is not None and gate.status != "asked") or tool is None or arguments is None or tool.policy == "deny":
        return None
    broken = effect_hash(tool.name, arguments) in state.private.unknown_outcomes
    if not broken and (tool.policy != "ask" or _is_allowed(state, tool)):
        return None
    return PauseReason(
        type="outcome_unknown" if broken else "confirmation",
        tool_name=tool.name,
        command=f"{tool.name} {call.function.arguments}"[:500],
        rule="an earlier run of this call broke off" if broken else "policy: ask",
        tool_call_id=call.id,
        input={} if tool.hide_input else arguments,
        input_hash=input_hash(state.chat_id, run.run_id, call.id, arguments),
    )


def _is_allowed(state: ChatState, tool: Tool) -> bool:
    thread = state.thread
    return (
        thread.autonomous_no_confirm
        or (thread.auto_approve_editing_tools and tool.category == "editing")
        or (thread.auto_approve_dangerous_commands and tool.category == "dangerous")
        or tool.name in state.private.allowed_tools
    )


def _pause(ledger: Ledger, reasons: list[PauseReason]) -> None:
    calls = {call.id: call for call in open_calls(ledger.state)}
    for reason in reasons:
        ledger.note(CallAsked(tool_call_id=reason.tool_call_id, input_hash=reason.input_hash))
        if reason.tool_call_id in calls:
            ledger.say(_status(ledger.state, calls[reason.tool_call_id], None, "awaiting_decision", ""))
    ledger.say(PauseRequired(reasons))
    say_runtime(ledger, "paused")


def _status(state: ChatState, call: ToolCall, tool: Tool | None, status: str, arguments: str) -> ToolStatus:
    run = state.private.run
    shown = read_arguments(arguments) if tool is not None and not tool.hide_input else None
    label = shown.get(tool.label_arg) if shown and tool and tool.label_arg else None
    return ToolStatus(
        tool_call_id=call.id,
        name=call.function.name,
        message_id=asking_message_id(state, call.id),
        index=run.calls_count if run else 0,
        status=status,
        input=shown,
        label=label if isinstance(label, str) else None,
    )


def _next_round(ledger: Ledger, run: Run, table: ToolTable) -> Step | None:
    state = ledger.state
    leaf = state.leaf
    if leaf is None or (leaf.role == "assistant" and len(state.path) > run.first_index):
        end_run(ledger, "limit" if run.summarizing else "complete")
        return None
    if run.end_state is not None:
        end_run(ledger, "complete")
        return None
    if state.thread.on_deny == "stop" and any(gate.status == "rejected" for gate in run.gates.values()):
        end_run(ledger, "aborted")
        return None
    if run.round >= 0 and _is_steered(state):
        end_run(ledger, "interrupted")
        return None
    if run.round + 1 < _rounds_allowed(state, run, table):
        return _start_round(ledger, run, table)
    if run.summarizing:
        end_run(ledger, "limit")
        return None
    return _at_limit(ledger, run, table)


def _rounds_allowed(state: ChatState, run: Run, table: ToolTable) -> int:
    override = run.params.get("max_rounds")
    if run.rounds_allowed is not None:
        return run.rounds_allowed
    return override if isinstance(override, int) else state.thread.max_rounds or table.max_rounds


def _at_limit(ledger: Ledger, run: Run, table: ToolTable) -> Step | None:
    """Say that the limit is reached, then follow `on_limit`."""
    allowed = _rounds_allowed(ledger.state, run, table)
    sentence = f"The run used all its {allowed} rounds of tools."
    ledger.say(ErrorHappened(code="max_tool_rounds", message=sentence, fatal=False, run_id=run.run_id))
    on_limit = run.params.get("on_limit") or ledger.state.thread.on_limit or "stop"
    if on_limit == "summarize":
        return _start_round(ledger, run, table, summarizing=True)
    if on_limit == "stop":
        end_run(ledger, "limit")
        return None
    reason = PauseReason(
        type="round_limit",
        tool_name="",
        tool_call_id=limit_call_id(run.run_id),
        rule=f"max_rounds: {allowed}",
        input={"max_rounds": ledger.state.thread.max_rounds or table.max_rounds},
    )
    _pause(ledger, [reason])
    return Wait()


def _start_round(ledger: Ledger, run: Run, table: ToolTable, *, summarizing: bool = False) -> Step:
    round_number = run.round + 1
    message_id = ledger.new_id("msg")
    model = wanted_model(ledger.state, run, table)
    ledger.note(RoundStarted(round=round_number, summarizing=summarizing))
    say_runtime(ledger, "generating", round=round_number)
    ledger.say(
        StreamStarted(
            message_id=message_id,
            run_id=run.run_id,
            round=round_number,
            model=model,
            parent_id=ledger.state.path[-1] if ledger.state.path else None,
            created_at=ledger.now_ms,
        )
    )
    return CallModel(run.run_id, message_id, model, with_tools=not summarizing)


def _is_steered(state: ChatState) -> bool:
    """Somebody sent a message with priority: the run gives way at the next step (PROTOCOL §9)."""
    items = state.runtime.queued_items
    return bool(items) and items[0].priority


def recover(ledger: Ledger, table: ToolTable, *, can_continue: bool) -> None:
    """Settle what the last owner left in the middle, by the chat's `on_owner_loss` (DESIGN §7).

    A broken answer is continued where the provider can (`can_continue`), else taken back and asked for again. A tool
    that was started and not answered runs again only if it is declared safe or idempotent.
    """
    run = ledger.state.private.run
    if run is None:
        return
    wish = ledger.state.thread.on_owner_loss or "auto"
    draft = ledger.state.draft
    if draft is not None and wish == "stop":
        ledger.say(
            ErrorHappened(
                code="interrupted",
                message="The answer was interrupted when its server stopped.",
                fatal=True,
                run_id=run.run_id,
            )
        )
        close_draft(ledger, finish_reason="error", status="error", keep=True)
        end_run(ledger, "interrupted")
        return
    continues = can_continue and wish in ("auto", "continue") and draft is not None and not draft.message.tool_calls
    if draft is not None and not continues:
        ledger.say(MessageRemoved(draft.message.message_id))
        ledger.note(RoundStarted(round=run.round - 1, summarizing=run.summarizing))
    for call in open_calls(ledger.state):
        gate = run.gates.get(call.id)
        if gate is not None and gate.status == "started":
            _settle_started(ledger, call, gate, table)


def _settle_started(ledger: Ledger, call: ToolCall, gate: Gate, table: ToolTable) -> None:
    tool = table.get(call.function.name)
    if tool is None or tool.retry in ("safe", "idempotent"):
        return
    arguments = gate.edited_input or read_arguments(call.function.arguments)
    if arguments is not None:
        ledger.note(OutcomeUnknown(input_hash=effect_hash(call.function.name, arguments)))
    text = (
        "The outcome of this call is unknown: the server stopped while it ran, and it may or may not have had its "
        "effect. Calling it again with the same arguments needs a person's approval."
    )
    answer_call(ledger, call, text, status="outcome_unknown")


def read_arguments(text: str) -> JsonObject | None:
    """The arguments of a call, or None when they are not a JSON object. Nothing at all means none (LOOP-7)."""
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


def input_hash(chat_id: str, run_id: str, tool_call_id: str, arguments: JsonObject) -> str:
    """Binds an approval to chat, run, call and arguments (DESIGN §11)."""
    return _digest([chat_id, run_id, tool_call_id, arguments])


def effect_hash(tool_name: str, arguments: JsonObject) -> str:
    """Names an effect: the same tool with the same arguments."""
    return _digest([tool_name, arguments])


_canonical = msgspec.json.Encoder(order="sorted")


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]
