"""The approvals and tool results in an assistant message that a page sends back, as commands (PROTOCOL §11, §12).

Only answers that the chat still waits for become commands. An answer to an older question, or about an ended call, has
no effect; the stream then shows the page the present state.
"""

import secrets

from msgspec import UnsetType

from threadcast.compat.ai_sdk.bodies import UIMessage, UIPart, tool_parts
from threadcast.compat.ai_sdk.parts import approval_id
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import Command, Decision, IdeToolResult, ToolDecisions
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PauseReason

__all__ = ["NOTE_MAX_CHARACTERS", "answers_in"]

NOTE_MAX_CHARACTERS = 8_192
"""The maximum length of an approval's `reason`: the limit of a decision's note (PROTOCOL §18)."""

_DECISIONS_MAX = 100
"""The maximum decisions in one command (PROTOCOL §18)."""


def answers_in(message: UIMessage, state: ChatState) -> list[Command]:
    """Return the commands for the answers in `message` that `state` waits for.

    Raises:
        BadRequest: the reason of an approval is too long.
    """
    parts = tool_parts(message)
    results: list[Command] = [
        IdeToolResult(
            client_request_id=_request_id(), tool_call_id=call.tool_call_id, content=told[0], tool_failed=told[1]
        )
        for call in state.runtime.ide_calls
        if (part := parts.get(call.tool_call_id)) is not None and (told := _result(part)) is not None
    ]
    decisions = [
        decision
        for reason in state.runtime.pause_reasons
        if (part := parts.get(reason.tool_call_id)) is not None and (decision := _decision(part, reason)) is not None
    ][:_DECISIONS_MAX]
    if decisions:
        results.append(ToolDecisions(client_request_id=_request_id(), decisions=decisions))
    return results


def _request_id() -> str:
    """Return a new request id. A repeated request may use another id, because the chat accepts only one decision about
    each call."""
    return f"ai-sdk-{secrets.token_hex(12)}"


def _result(part: UIPart) -> tuple[str, bool] | None:
    """Return the text of a result and whether the call failed; None if the part has no result."""
    if part.state == "output-error":
        return part.error_text or "the tool failed", True
    if part.state != "output-available":
        return None
    output = part.output
    return (output, False) if isinstance(output, str) else (encode(_json(output)).decode(), False)


def _json(output: object) -> object:
    return None if isinstance(output, UnsetType) else output


def _decision(part: UIPart, reason: PauseReason) -> Decision | None:
    call_id, hash = reason.tool_call_id, reason.input_hash or None
    if reason.type == "question":
        if part.state == "output-error":
            return Decision(tool_call_id=call_id, accepted=False, input_hash=hash)
        if part.state != "output-available":
            return None
        answer = {"answer": _json(part.output)}
        return Decision(tool_call_id=call_id, accepted=True, input_hash=hash, edited_input=answer)
    approval = part.approval
    if approval is None or approval.approved is None or part.state != "approval-responded":
        return None
    if approval.id != approval_id(reason):
        return None
    if approval.reason is not None and len(approval.reason) > NOTE_MAX_CHARACTERS:
        raise BadRequest(f"the reason of an approval has at most {NOTE_MAX_CHARACTERS} characters", path="/messages")
    return Decision(tool_call_id=call_id, accepted=approval.approved, input_hash=hash, note=approval.reason or None)
