"""What a tool's result shows to people: payloads that fit their types, a preview that waits for a decision, and the
call that carries an accepted one out (PROTOCOL §11).

Pure; called when a tool has ended, and by the plan while the open run is a commit. The one rule: what is shown fits its
type, and where it does not the model is told the place instead.
"""

import msgspec
from msgspec.structs import replace

from protocol.events import PayloadAdded, ToolStatus
from protocol.facts import OutcomeUnknown, ToolStarted
from protocol.ledger import Ledger
from protocol.messages import FunctionCall, JsonObject, ToolCall
from protocol.previews import commit_call_id, payload_of, settle_commit
from protocol.runs import end_run
from protocol.runtime import say_runtime
from protocol.state import Commit, PendingPreview, Run
from server.agent.calls.gates import ToolTable, effect_hash, input_hash
from server.agent.place.payload_types import preview_problem, problem_with, summary_of
from server.agent.steps import RunTool, Step
from server.tools.base import Tool, ToolResult, read_arguments

__all__ = ["NOT_RUN_BY_SERVER", "PREVIEW_SENT", "Shown", "next_commit", "recover_commit", "shown_of"]

PREVIEW_SENT = (
    "Preview sent to the user; nothing has been saved. Do not persist it yourself and do not send it again: "
    "wait for the user's decision."
)

VALIDATION_ERROR = "_validation_error"
"""What a payload type is followed by in the type of its errors (GATE-4)."""

NOT_RUN_BY_SERVER = frozenset({"deny", "client", "preview"})
"""Policies of tools that cannot carry a preview out."""


class Shown(msgspec.Struct, frozen=True):
    """`result` as the model gets it; `payloads` still without the message they stand on."""

    result: ToolResult
    payloads: list[PayloadAdded] = []
    preview: PendingPreview | None = None


def shown_of(ledger: Ledger, call: ToolCall, tool: Tool | None, result: ToolResult, table: ToolTable) -> Shown:
    """What of `result` people are shown. A preview is shown alone, with nothing but a fixed sentence for the model;
    data that breaks its type's schema is not shown, and the model reads where it breaks it."""
    if tool is not None and not result.failed:
        if result.preview is not None:
            return _preview(ledger, call, tool, result, table)
        if tool.policy == "preview":
            text = f"The tool {tool.name} made no preview, so nothing was shown and nothing may be saved."
            return Shown(ToolResult(content=text, failed=True))
    payloads: list[PayloadAdded] = []
    problems: list[str] = []
    for payload in result.payloads:
        kind = table.payload_types.get(payload.type)
        problem = problem_with(kind, payload.data) if kind is not None else ""
        if problem:
            problems.append(f"\n[The data of type {payload.type} was not shown to the user: {problem}]")
            continue
        is_error = payload.type.removesuffix(VALIDATION_ERROR) in table.payload_types
        payloads.append(
            PayloadAdded(
                payload_id=ledger.new_id("pl"),
                payload_type=payload.type,
                data=payload.data,
                summary=payload.summary.strip() or summary_of(kind, payload.type, payload.data),
                source="tool",
                message_id="",
                tool_call_id=call.id,
                unregistered=kind is None and not is_error,
            )
        )
    return Shown(replace(result, content=result.content + "".join(problems)), payloads)


def _preview(ledger: Ledger, call: ToolCall, tool: Tool, result: ToolResult, table: ToolTable) -> Shown:
    preview, run = result.preview, ledger.state.private.run
    if preview is None or run is None:  # cannot be: asked for above, and tools run inside of runs
        return Shown(result)
    name = tool.traits.payload_type or tool.name
    kind, schema = table.payload_types.get(name), tool.traits.preview_schema
    problem = preview_problem(kind, name, schema, preview.object)
    if problem:
        text = f"The preview was not shown, since it does not fit: {problem}. Correct the arguments and call again."
        return Shown(ToolResult(content=text, failed=True))
    payload_id = ledger.new_id("pl")
    said = summary_of(kind, name, preview.object) if kind is not None and (kind.summary or kind.summarize) else ""
    payload = PayloadAdded(
        payload_id=payload_id,
        payload_type=name,
        data=preview.data,
        summary=said or preview.description.strip() or summary_of(None, name, preview.object),
        source="preview",
        message_id="",
        tool_call_id=call.id,
        approval="pending",
        input_hash=input_hash(ledger.state.chat_id, run.run_id, payload_id, preview.data),
        unregistered=kind is None and not schema,
    )
    pending = PendingPreview(tool_name=tool.name, commit_tool=tool.traits.commit_tool, context=run.context)
    return Shown(replace(result, content=PREVIEW_SENT, payloads=[], preview=None), [payload], pending)


def next_commit(ledger: Ledger, run: Run, commit: Commit, table: ToolTable) -> Step | None:
    """The commit's call, announced before it runs; the end of its run once it has answered."""
    if run.calls_count:
        end_run(ledger, "complete")
        return None
    tool = table.commit_tool(commit.tool_name)
    preview = payload_of(ledger.state, commit.payload_id)
    if tool is None or (why := _why_not(tool, commit) or _misfit(preview, tool, table)):
        why = "there is no such tool" if tool is None else why
        settle_commit(ledger, "commit_failed", f"It cannot be run: {why}.", status="error")
        return None
    call_id = commit_call_id(commit.payload_id)
    say_runtime(ledger, "executing_tools", status_text=f"running {tool.name}", active_tool=tool.name)
    ledger.note(ToolStarted(tool_call_id=call_id, tool_name=tool.name))
    ledger.say(
        ToolStatus(
            tool_call_id=call_id,
            name=tool.name,
            message_id=preview.message_id if preview is not None else "",
            index=0,
            status="running",
            input=None if tool.hide_input else read_arguments(commit.arguments),
        )
    )
    call = ToolCall(id=call_id, index=0, function=FunctionCall(tool.name, commit.arguments))
    return RunTool(run.run_id, call, commit.arguments, at_ms=ledger.now_ms)


def _why_not(tool: Tool, commit: Commit) -> str:
    """What keeps the tool from being run for who accepted; '' when nothing does."""
    role = tool.traits.required_role
    if tool.policy in NOT_RUN_BY_SERVER:
        return f"its policy is {tool.policy}"
    return f"who accepted has not the role {role}" if role and role not in commit.principal.roles else ""


def _misfit(preview: PayloadAdded | None, tool: Tool, table: ToolTable) -> str:
    """What is wrong with the object as it was accepted: who edited it was held to no schema. '' for nothing."""
    if preview is None:
        return ""
    kind, name = table.payload_types.get(preview.payload_type), preview.payload_type
    problem = preview_problem(kind, name, tool.traits.preview_schema, preview.data.get("object"))
    return f"the preview does not fit: {problem}" if problem else ""


def recover_commit(ledger: Ledger, run: Run, commit: Commit, table: ToolTable) -> None:
    """Its owner died. What was started and has not answered runs again only where that does no harm (DESIGN §7)."""
    started = run.gates.get(commit_call_id(commit.payload_id))
    tool = table.commit_tool(commit.tool_name)
    if started is None or run.calls_count or tool is None or tool.retry in ("safe", "idempotent"):
        return
    arguments: JsonObject = read_arguments(commit.arguments) or {}
    ledger.note(OutcomeUnknown(input_hash=effect_hash(commit.tool_name, arguments)))
    text = "The server stopped while it ran. Do not send the preview again before the user has looked."
    settle_commit(ledger, "outcome_unknown", text, status="outcome_unknown")
