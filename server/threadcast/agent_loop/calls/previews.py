"""Shows the payloads and the preview of a tool's result, and plans the call that carries out an accepted preview
(PROTOCOL §11).

The functions are pure. They are called when a tool has ended, and during planning while the open run is a commit. Data
that violates the schema of its type is not shown. A note to the model then says which part of the data is invalid.
"""

import msgspec
from msgspec.structs import replace

from threadcast.agent_loop.calls.gates import effect_hash, input_hash
from threadcast.agent_loop.steps import RunTool, Step
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import OutcomeUnknown, ToolStarted
from threadcast.chat.owner_state import Commit, PendingPreview, Run
from threadcast.chat.previews import commit_call_id, payload_of, settle_commit
from threadcast.chat.runs import end_run
from threadcast.chat.runtime import say_runtime
from threadcast.profiles.payload_types import preview_problem, problem_with, summary_of
from threadcast.profiles.profile import ChatTools
from threadcast.tools.base import Tool, ToolResult, read_arguments
from threadcast_protocol.wire.events import PayloadAdded, ToolStatus
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, ToolCall

__all__ = [
    "NOT_RUN_BY_SERVER",
    "PREVIEW_SENT",
    "Shown",
    "has_begun_commit",
    "next_commit",
    "recover_commit",
    "shown_of",
]

PREVIEW_SENT = (
    "Preview sent to the user; nothing has been saved. Do not persist it yourself and do not send it again: "
    "wait for the user's decision."
)

VALIDATION_ERROR = "_validation_error"
"""The suffix that is added to a payload type to name the type of its validation errors (GATE-4)."""

NOT_RUN_BY_SERVER = frozenset({"deny", "client", "preview"})
"""The policies of tools that cannot carry out an accepted preview."""


class Shown(msgspec.Struct, frozen=True):
    """The parts of a tool's result. The model gets `result`. People see `payloads`, which have no message id yet.
    `preview` waits for a decision."""

    result: ToolResult
    payloads: list[PayloadAdded] = []
    preview: PendingPreview | None = None


def shown_of(builder: EntryBuilder, call: ToolCall, tool: Tool | None, result: ToolResult, table: ChatTools) -> Shown:
    """Return the parts of `result`. A preview is shown without other payloads, and the model gets only the text
    PREVIEW_SENT. Data that violates the schema of its type is not shown, and a note in the model's result says which
    part is invalid."""
    if tool is not None and not result.failed:
        if result.preview is not None:
            return _preview(builder, call, tool, result, table)
        if tool.policy == "preview":
            text = f"The tool {tool.name} made no preview, so nothing was shown and nothing may be saved."
            return Shown(ToolResult(content=text, failed=True))
    payloads: list[PayloadAdded] = []
    problems: list[str] = []
    for payload in result.payloads:
        kind = table.profile.payload_types.get(payload.type)
        problem = problem_with(kind, payload.data) if kind is not None else ""
        if problem:
            problems.append(f"\n[The data of type {payload.type} was not shown to the user: {problem}]")
            continue
        is_error = payload.type.removesuffix(VALIDATION_ERROR) in table.profile.payload_types
        payloads.append(
            PayloadAdded(
                payload_id=builder.new_id("pl"),
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


def _preview(builder: EntryBuilder, call: ToolCall, tool: Tool, result: ToolResult, table: ChatTools) -> Shown:
    preview, run = result.preview, builder.state.private.run
    if preview is None or run is None:  # impossible: the caller has checked the preview, and tools run inside runs
        return Shown(result)
    name = tool.traits.payload_type or tool.name
    kind, schema = table.profile.payload_types.get(name), tool.traits.preview_schema
    problem = preview_problem(kind, name, schema, preview.object)
    if problem:
        text = f"The preview was not shown, since it does not fit: {problem}. Correct the arguments and call again."
        return Shown(ToolResult(content=text, failed=True))
    payload_id = builder.new_id("pl")
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
        input_hash=input_hash(builder.state.chat_id, run.run_id, payload_id, preview.data),
        unregistered=kind is None and not schema,
    )
    pending = PendingPreview(tool_name=tool.name, commit_tool=tool.traits.commit_tool, context=run.context)
    return Shown(replace(result, content=PREVIEW_SENT, payloads=[], preview=None), [payload], pending)


def next_commit(builder: EntryBuilder, run: Run, commit: Commit, table: ChatTools) -> Step | None:
    """Announce the call of `commit` and return its step. If the call has been answered, end the run of the commit and
    return None. If the call cannot run, settle the commit as failed and return None."""
    if run.calls_count:
        end_run(builder, "complete")
        return None
    tool = table.commit_tool(commit.tool_name)
    preview = payload_of(builder.state, commit.payload_id)
    if tool is None or (why := _why_not(tool, commit) or _misfit(preview, tool, table)):
        why = "there is no such tool" if tool is None else why
        settle_commit(builder, "commit_failed", f"It cannot be run: {why}.", status="error")
        return None
    call_id = commit_call_id(commit.payload_id)
    say_runtime(builder, "executing_tools", status_text=f"running {tool.name}", active_tool=tool.name)
    builder.note(ToolStarted(tool_call_id=call_id, tool_name=tool.name))
    builder.say(
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
    return RunTool(run.run_id, call, commit.arguments, at_ms=builder.now_ms)


def _why_not(tool: Tool, commit: Commit) -> str:
    """Return the reason why `tool` may not run for the user who accepted the preview, or '' if the tool may run."""
    role = tool.traits.required_role
    if tool.policy in NOT_RUN_BY_SERVER:
        return f"its policy is {tool.policy}"
    return f"the accepting user does not have the role {role}" if role and role not in commit.principal.roles else ""


def _misfit(preview: PayloadAdded | None, tool: Tool, table: ChatTools) -> str:
    """Return how the accepted object violates its schema, or '' if the object is valid. An accepted object may be
    invalid because the user may have edited it."""
    if preview is None:
        return ""
    kind, name = table.profile.payload_types.get(preview.payload_type), preview.payload_type
    problem = preview_problem(kind, name, tool.traits.preview_schema, preview.data.get("object"))
    return f"the preview does not fit: {problem}" if problem else ""


def has_begun_commit(run: Run, commit: Commit, table: ChatTools) -> bool:
    """Return whether the call of the commit has started, has no answer, and may not run twice."""
    started = run.gates.get(commit_call_id(commit.payload_id))
    tool = table.commit_tool(commit.tool_name)
    return started is not None and not run.calls_count and tool is not None and tool.retry not in ("safe", "idempotent")


def recover_commit(builder: EntryBuilder, run: Run, commit: Commit, table: ChatTools) -> None:
    """Settle a commit whose owner died. A call that was started but not answered runs again only if its tool is safe or
    idempotent (DESIGN §7)."""
    if not has_begun_commit(run, commit, table):
        return
    arguments: JsonObject = read_arguments(commit.arguments) or {}
    builder.note(OutcomeUnknown(input_hash=effect_hash(commit.tool_name, arguments)))
    text = "The server stopped while the call ran. Do not send the preview again before the user has looked."
    settle_commit(builder, "outcome_unknown", text, status="outcome_unknown")
