"""Calls that a client carries out: the claim of one IDE, the result of any (PROTOCOL §12, CMD-14).

Which calls wait stands in `runtime.ide_calls`, for every connection at every node; the plan puts them there and answers
the ones whose deadline has passed. The first result counts, claimed or not: a client that knows no claims just answers.
"""

from protocol.commands import IdeToolClaim, IdeToolResult
from protocol.content import check_text
from protocol.errors import AlreadyClaimed, NoPendingDecision
from protocol.events import IdeCall, ToolStatus
from protocol.ledger import Ledger
from protocol.messages import ToolCall
from protocol.principal import Principal
from protocol.runs import answer_call, open_calls

__all__ = ["CLAIM_MS", "claim", "take_result"]

CLAIM_MS = 60_000
"""How long a claim keeps others away without result or renewal (PROTOCOL §12)."""


def claim(ledger: Ledger, command: IdeToolClaim, by: Principal) -> None:
    """Give the call to one IDE for a minute; the same one may renew.

    Raises:
        NoPendingDecision: the call does not wait.
        AlreadyClaimed: somebody else has it, and their claim still holds.
    """
    waiting, _ = _waiting(ledger, command.tool_call_id)
    claimer = command.claimer or command.client_request_id
    holds = waiting.claim_expires_at is not None and waiting.claim_expires_at > ledger.now_ms
    if holds and waiting.claimed_by != claimer:
        raise AlreadyClaimed(f"another client has claimed this call; its claim ends at {waiting.claim_expires_at}")
    expires_at = ledger.now_ms + CLAIM_MS
    told = next((tool for tool in ledger.state.runtime.tools if tool.tool_call_id == command.tool_call_id), None)
    ledger.say(
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
    ledger.accept(command.client_request_id, {"claimed": True, "claim_expires_at": expires_at}, by=by, final=True)


def take_result(ledger: Ledger, command: IdeToolResult, by: Principal) -> None:
    """The call's answer; the model goes on when it was the last one of its round.

    Raises:
        NoPendingDecision: the call does not wait, or is answered already.
        TooLarge: more than 256 kB.
    """
    _, call = _waiting(ledger, command.tool_call_id)
    content = check_text(command.content, "/content")
    answer_call(
        ledger,
        call,
        content,
        status="error" if command.tool_failed else "done",
        attachments=command.attachments,
        extra={"files_changed": command.files_changed} if command.files_changed else None,
    )
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _waiting(ledger: Ledger, tool_call_id: str) -> tuple[IdeCall, ToolCall]:
    waits = {call.tool_call_id: call for call in ledger.state.runtime.ide_calls}
    for call in open_calls(ledger.state):
        if call.id == tool_call_id and call.id in waits:
            return waits[call.id], call
    raise NoPendingDecision("no such call waits for a client; it may have been answered, aborted or timed out")
