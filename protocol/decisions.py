"""What a person decides: which calls of a paused run may run, whether a limit is lifted, what a browser shares, and
what becomes of a preview.

A decision counts only for the call, run and arguments that were shown, and only from somebody who may approve
(PROTOCOL §11). What is left to decide is said again; when nothing is left the pause is over. Previews are decided in
any state; `previews.py` says what follows.
"""

import msgspec

from protocol.commands import BrowserContextDecision, Decision
from protocol.errors import Conflict, Forbidden, NoPendingDecision, TooLarge
from protocol.events import PauseCleared, PauseReason, PauseRequired
from protocol.facts import CallDecided, RoundsGranted, ToolAllowed
from protocol.failures import ROUND_LIMIT
from protocol.ledger import Ledger, shown_name
from protocol.messages import JsonObject
from protocol.previews import decide_preview, open_preview
from protocol.principal import Principal
from protocol.runs import blame, end_run
from protocol.runtime import say_runtime
from protocol.starts import start_next
from protocol.state import Run
from protocol.tool_names import all_of_server

__all__ = ["decide_browser_context", "decide_calls", "forget_tool", "limit_call_id"]


EDITED_PREVIEW_MAX_BYTES = 256_000
"""As much as a tool may show in the first place (PROTOCOL §18); it stands in every snapshot."""


def decide_calls(ledger: Ledger, decisions: list[Decision], request_id: str, by: Principal) -> None:
    """Take the decisions that a call or a preview waits for, and say which waited for nothing.

    Raises:
        NoPendingDecision: none of them does.
        Forbidden: this principal may not approve.
        TooLarge: the edited object of a preview.
        Conflict: the arguments, or the preview, are not what was shown.
    """
    run = ledger.state.private.run
    reasons = {reason.tool_call_id: reason for reason in ledger.state.runtime.pause_reasons} if run is not None else {}
    calls: dict[str, Decision] = {}  # of several decisions about one thing the first one counts
    previews: dict[str, Decision] = {}
    missed: list[str | None] = []
    for decision in decisions:
        call_id, payload_id = decision.tool_call_id, decision.payload_id
        if call_id is not None and call_id in reasons and call_id not in calls:
            calls[call_id] = decision
        elif payload_id not in previews and open_preview(ledger.state, payload_id) is not None:
            previews[payload_id or ""] = decision
        else:
            missed.append(call_id or payload_id)
    if not calls and not previews:
        raise NoPendingDecision("no such decision is pending; it may have been taken in another tab")
    if "approve" not in by.permissions:
        raise Forbidden("this token may not approve tool calls")
    shown = {key: payload for key in previews if (payload := open_preview(ledger.state, key)) is not None}
    hashes = {key: reason.input_hash for key, reason in reasons.items()}
    hashes |= {key: payload.input_hash or "" for key, payload in shown.items()}
    for key, decision in (*calls.items(), *previews.items()):
        if decision.input_hash is not None and decision.input_hash != hashes[key]:
            raise Conflict("input_hash does not match what is waiting; look at the call or the preview again")
    for decision in previews.values():
        if len(msgspec.json.encode(decision.edited_input)) > EDITED_PREVIEW_MAX_BYTES:
            raise TooLarge(f"an edited preview may have {EDITED_PREVIEW_MAX_BYTES} bytes", path="/edited_input")
    for key, payload in shown.items():
        decide_preview(ledger, payload, previews[key], request_id, by)
    result: JsonObject = {"queued": True, "not_pending": missed} if missed else {"queued": True}
    if run is not None and calls:
        for key, decision in calls.items():
            _note_decision(ledger, run, reasons[key], decision, by)
        if _clear(ledger, [reason for key, reason in reasons.items() if key not in calls]):
            limit = calls.get(limit_call_id(run.run_id))
            if limit is not None and not limit.accepted:
                blame(ledger, ROUND_LIMIT)
                end_run(ledger, "limit", then=lambda: ledger.accept(request_id, result, by=by, final=True))
                return
            say_runtime(ledger, "executing_tools")
    ledger.accept(request_id, result, by=by, final=True)
    start_next(ledger)


def decide_browser_context(ledger: Ledger, command: BrowserContextDecision, by: Principal) -> None:
    """What of the browser a tool may see; the choice joins the arguments of the call that asked (CMD-16). The call is
    refused as any other, by a `tool_decision`.

    Raises:
        NoPendingDecision: no pause of this id asks for it.
        Forbidden: this principal may not approve.
    """
    asked = [
        reason
        for reason in ledger.state.runtime.pause_reasons
        if reason.type == "browser_context" and reason.tool_call_id == command.pending_message_id
    ]
    if not asked:
        raise NoPendingDecision("no browser context of this pending_message_id waits for a decision")
    shared = {
        name: value
        for name, value in msgspec.structs.asdict(command).items()
        if name.startswith(("include_", "last_n_")) and value is not None
    }
    decision = Decision(
        tool_call_id=command.pending_message_id, accepted=True, edited_input={**asked[0].input, **shared}
    )
    decide_calls(ledger, [decision], command.client_request_id, by)


def forget_tool(ledger: Ledger, tool_name: str) -> bool:
    """Calls of this tool are asked about again, from the next one on; False when they were not allowed for good."""
    is_allowed = tool_name in ledger.state.private.allowed_tools
    if is_allowed:
        ledger.note(ToolAllowed(tool_name=tool_name, is_over=True))
    return is_allowed


def _clear(ledger: Ledger, left: list[PauseReason]) -> bool:
    """Say what is left to decide; True when that is nothing."""
    ledger.say(PauseRequired(left) if left else PauseCleared())
    return not left


def _note_decision(ledger: Ledger, run: Run, reason: PauseReason, decision: Decision, by: Principal) -> None:
    if reason.type == "round_limit":
        if decision.accepted:
            granted = reason.input.get("max_rounds")
            more = granted if isinstance(granted, int) else 1
            ledger.note(RoundsGranted(rounds_allowed=run.round + 1 + more))
        return
    ledger.note(
        CallDecided(
            tool_call_id=reason.tool_call_id,
            accepted=decision.accepted,
            edited_input=decision.edited_input,
            note=decision.note,
            by=shown_name(by),
        )
    )
    if decision.accepted and decision.remember in ("tool", "server"):
        name = reason.tool_name
        ledger.note(ToolAllowed(tool_name=all_of_server(name) if decision.remember == "server" else name))


def limit_call_id(run_id: str) -> str:
    """What a round limit asks with in place of a call (PROTOCOL §11)."""
    return f"limit-{run_id}"
