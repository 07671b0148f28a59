"""Handles the claims and results of tool calls that a client carries out (PROTOCOL §12, CMD-14).

`runtime.ide_calls` lists the waiting calls for all clients. The agent's plan adds calls to this list, and answers calls
whose deadline has passed. The first result of a call is used even if its client has not claimed the call, because some
clients do not support claims.
"""

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.runs import answer_call, open_calls
from threadcast_protocol.wire.commands import IdeToolClaim, IdeToolResult
from threadcast_protocol.wire.content import check_text
from threadcast_protocol.wire.errors import AlreadyClaimed, NoPendingDecision
from threadcast_protocol.wire.events import IdeCall, ToolStatus
from threadcast_protocol.wire.messages import ToolCall
from threadcast_protocol.wire.principal import Principal

__all__ = ["CLAIM_MS", "claim", "take_result"]

CLAIM_MS = 60_000
"""The duration of a claim in milliseconds. Afterwards other clients may claim the call (PROTOCOL §12)."""


def claim(builder: EntryBuilder, command: IdeToolClaim, by: Principal) -> None:
    """Reserve the call for one client for a minute. The same client may renew its claim.

    Raises:
        NoPendingDecision: the call does not wait for a client.
        AlreadyClaimed: another client has a claim that has not expired.
    """
    waiting, _ = _waiting(builder, command.tool_call_id)
    claimer = command.claimer or command.client_request_id
    holds = waiting.claim_expires_at is not None and waiting.claim_expires_at > builder.now_ms
    if holds and waiting.claimed_by != claimer:
        raise AlreadyClaimed(f"another client has claimed this call; its claim ends at {waiting.claim_expires_at}")
    expires_at = builder.now_ms + CLAIM_MS
    told = next((tool for tool in builder.state.runtime.tools if tool.tool_call_id == command.tool_call_id), None)
    builder.say(
        ToolStatus(
            tool_call_id=waiting.tool_call_id,
            name=waiting.tool_name,
            message_id=told.message_id if told else "",
            index=told.index if told else 0,
            status="running",
            input=told.input if told else None,
            claimed_by=claimer,
            claim_expires_at=expires_at,
        )
    )
    builder.accept(command.client_request_id, {"claimed": True, "claim_expires_at": expires_at}, by=by, final=True)


def take_result(builder: EntryBuilder, command: IdeToolResult, by: Principal) -> None:
    """Answer the call with the client's result. The run continues when all calls of its round are answered.

    Raises:
        NoPendingDecision: the call does not wait for a client, or is already answered.
        TooLarge: the result has more than 256 kB.
    """
    _, call = _waiting(builder, command.tool_call_id)
    content = check_text(command.content, "/content")
    answer_call(
        builder,
        call,
        content,
        status="error" if command.tool_failed else "done",
        attachments=command.attachments,
        extra={"files_changed": command.files_changed} if command.files_changed else None,
    )
    builder.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _waiting(builder: EntryBuilder, tool_call_id: str) -> tuple[IdeCall, ToolCall]:
    waits = {call.tool_call_id: call for call in builder.state.runtime.ide_calls}
    for call in open_calls(builder.state):
        if call.id == tool_call_id and call.id in waits:
            return waits[call.id], call
    raise NoPendingDecision("no such call waits for a client; it may have been answered, aborted or timed out")
