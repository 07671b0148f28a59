"""One full example of every command and of every event, for the tests of decoding, schema and protocol.

A test checks that no type is missing, so every new type must be added here.
"""

from typing import get_args

from threadcast_protocol.wire import events as ev
from threadcast_protocol.wire.commands import Command
from threadcast_protocol.wire.deltas import (
    AddCitation,
    AddServerContentBlock,
    AppendContent,
    AppendReasoning,
    MergeExtra,
    SetReasoning,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, Message, TextPart, ToolCall, Usage
from threadcast_protocol.wire.thread import Thread

__all__ = ["COMMANDS", "EVENTS", "SNAPSHOT", "tags_of"]


def tags_of(union: object) -> set[str]:
    """Return the wire's names of the structs in a union."""
    return {str(kind.__struct_config__.tag) for kind in get_args(union)}


_DECISION: JsonObject = {
    "tool_call_id": "call:1",
    "accepted": True,
    "payload_id": "p1",
    "remember": "tool",
    "edited_input": {"a": 1},
    "input_hash": "abc",
    "note": "careful",
}

_TOOLS: list[JsonObject] = [{"name": "open_tab", "description": "Opens a tab.", "input_schema": {"type": "object"}}]

COMMANDS: dict[str, JsonObject] = {
    "user_message": {
        "content": [{"type": "text", "text": "hi"}],
        "attachments": [{"image_url": {"url": f"/v1/chats/c/blobs/{'ab' * 32}"}}],
        "context_files": [{"file_name": "a", "file_content": "b"}],
        "context": {"page": "x"},
        "interaction": {"type": "value_selected", "action": "a", "data": {"b": 1}},
        "params": {"temperature": 0.5},
        "tools": _TOOLS,
        "interrupt": True,
    },
    "retry_from_index": {"index": 2, "content": "again", "attachments": [], "prune": True, "tools": _TOOLS},
    "regenerate": {"message_id": "m1", "model": "demo/echo"},
    "abort": {"run_id": "r1", "clear_queue": True},
    "set_params": {"patch": {"title": "New", "temperature": None}},
    "update_message": {
        "message_id": "m1",
        "content": "x",
        "attachments": [],
        "regenerate": True,
        "mode": "branch",
        "tools": _TOOLS,
    },
    "remove_message": {"message_id": "m1", "regenerate": True},
    "tool_decision": _DECISION,
    "tool_decisions": {"decisions": [_DECISION, {"accepted": False, "payload_id": "p2"}]},
    "ide_tool_result": {"tool_call_id": "c1", "content": "done", "tool_failed": True, "files_changed": ["a.py"]},
    "ide_tool_claim": {"tool_call_id": "c1"},
    "branch_from_chat": {"source_chat_id": "c2", "up_to_message_id": "m1"},
    "restore_messages": {"messages": [{"role": "user", "content": "hi"}]},
    "browser_context_decision": {
        "pending_message_id": "m1",
        **{f"include_{what}": False for what in ("actions", "console", "network", "mutations", "screenshot")},
        **{f"last_n_{what}": 5 for what in ("actions", "console", "network", "mutations")},
    },
    "edit_queued": {"target_request_id": "q1", "content": "x", "position": 0, "interrupt": True},
    "continue_message": {"message_id": "m1"},
    "select_branch": {"message_id": "m1"},
}
"""The fields of each command type, besides the common ones."""

for _tag, _fields in COMMANDS.items():
    _fields.update({"type": _tag, "client_request_id": "req-1", "priority": False})

_USAGE = Usage(10, 5, 15, cache_read_input_tokens=3)
_CALL = ToolCall("call-1", 0, FunctionCall("clock", '{"zone":"UTC"}'))
_USER = Message(role="user", content=[TextPart("hi")], message_id="m1", client_request_id="req-1", by="local")
_ANSWER = Message(
    role="assistant", content="", message_id="m2", tool_calls=[_CALL], usage=_USAGE, extra={"k": 1}, created_at=1
)
_REASON = ev.PauseReason(type="confirmation", tool_name="clock", tool_call_id="call-1", input={"a": 1}, input_hash="h")
_QUESTION = ev.PauseReason(
    type="question",
    tool_name="",
    tool_call_id="q1",
    command="Which?",
    input_hash="h",
    question=ev.Question(text="Which?", options=["a", "b"]),
)
_QUEUED = ev.QueuedItem("req-2", False, "user_message", "hi", "hi")
_STATUS = ev.ToolStatus(
    tool_call_id="call-1", name="clock", message_id="m2", index=0, status="progress", progress=0.5, data={"a": 1}
)
_STEP = ev.AgentStep(
    run_id="r1",
    step_id="3.0.1",
    kind="chat",
    name="read",
    status="failed",
    started_at=5,
    elapsed_ms=3,
    until=9,
    subchat_id="c2",
    error="ValueError",
)
_PAYLOAD: JsonObject = {
    "payload_id": "p1",
    "payload_type": "table",
    "data": {"rows": []},
    "summary": "a table",
    "source": "tool",
    "message_id": "m2",
    "approval": "pending",
}

EVENTS: list[ev.Event] = [
    ev.Ack("req-1", True, {"queued": True}, by="local"),
    ev.QueueUpdated(1, [_QUEUED]),
    ev.RuntimeUpdated(state="idle", run_id="r1", outcome="complete", tools_used=["clock"]),
    ev.RuntimeUpdated(state="generating", run_id="r1", round=0, context=ev.ContextUse(10, None)),
    ev.ThreadUpdated(title="T", temperature=None, usage=_USAGE),
    ev.MessageAdded(_USER, 0),
    ev.MessageUpdated("m2", _ANSWER),
    ev.MessageRemoved("m2"),
    ev.MessagesTruncated(1),
    ev.BranchSelected("m2"),
    ev.StreamStarted(message_id="m2", run_id="r1", round=0, model="demo/echo", append=True, parent_id="m1"),
    ev.StreamDelta(
        "m2",
        [
            AppendContent("a"),
            AppendReasoning("b"),
            SetReasoning("c"),
            SetToolCalls([_CALL]),
            SetThinkingBlocks([{"d": 1}]),
            AddCitation({"e": 1}),
            AddServerContentBlock({"f": 1}),
            SetUsage(_USAGE),
            MergeExtra({"g": 1}),
        ],
    ),
    ev.StreamFinished(message_id="m2", finish_reason="stop", usage=_USAGE, timings={"ttft_ms": 5}),
    ev.PauseRequired([_REASON, _QUESTION]),
    ev.PauseCleared(),
    ev.IdeToolRequired(tool_call_id="call-1", tool_name="open", args={"a": 1}, deadline_at=5),
    ev.SubchatUpdate(tool_call_id="call-1", subchat_id="c2", attached_files=["a"]),
    ev.BackgroundAgentUpdated({"id": "a"}),
    ev.AgentData("m1", "chart", {"bars": [1, 2]}),
    _STEP,
    ev.ProcessCompleted(process_id="p", status="done", exit_code=None, short_description="d", mode="m"),
    _STATUS,
    ev.PayloadAdded(**_PAYLOAD),
    ev.PayloadUpdated(**_PAYLOAD),
    ev.ErrorHappened(code="llm_error", message="failed", fatal=True, run_id="r1", details={"a": 1}),
    ev.BrowserFrame(),
    ev.BrowserStatus(),
    ev.BrowserClosed(),
    ev.BrowserTimeline(),
    ev.BrowserContextOversize(),
    ev.BrowserToolbarAction(),
]

SNAPSHOT = ev.Snapshot(
    thread=Thread(id="c1", temperature=0.5, usage=_USAGE, metadata={"a": 1}),
    runtime=ev.Runtime(
        state="paused",
        paused=True,
        error=None,
        queue_size=1,
        queued_items=[_QUEUED],
        pause_reasons=[_REASON, _QUESTION],
        is_compressing=False,
        tools=[_STATUS],
        ide_calls=[ev.IdeCall(tool_call_id="call-1", tool_name="open", args={})],
        agent_steps=[_STEP],
    ),
    messages=[_USER, _ANSWER],
    background_agents=[{"id": "a"}],
    payloads=[ev.PayloadAdded(**_PAYLOAD)],
    recent_acks=[ev.Ack("req-1", True, {"queued": True})],
)

assert tags_of(Command) == set(COMMANDS)
assert tags_of(ev.Event) == {str(event.__struct_config__.tag) for event in EVENTS}
