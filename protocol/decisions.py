"""What a person decides about a paused run: which calls may run, whether a limit is lifted, what a browser shares.

A decision counts only for the call, run and arguments that were shown, and only from somebody who may approve
(PROTOCOL §11). What is left to decide is said again; when nothing is left the pause is over.
"""

import msgspec

from protocol.commands import BrowserContextDecision, Decision
from protocol.errors import Conflict, Forbidden, NoPendingDecision
from protocol.events import PauseCleared, PauseReason, PauseRequired
from protocol.facts import CallDecided, RoundsGranted, ToolAllowed
from protocol.ledger import Ledger, shown_name
from protocol.messages import JsonObject
from protocol.principal import Principal
from protocol.runs import end_run
from protocol.runtime import say_runtime
from protocol.state import Run
from protocol.tool_names import all_of_server

__all__ = ["decide_browser_context", "decide_calls", "limit_call_id"]


def decide_calls(ledger: Ledger, decisions: list[Decision], request_id: str, by: Principal) -> None:
    """Take the decisions that something waits for, and say which waited for nothing.

    Raises:
        NoPendingDecision: none of them does.
        Forbidden: this principal may not approve.
        Conflict: the arguments are not the ones that were shown.
    """
    run = ledger.state.private.run
    pending = {reason.tool_call_id: reason for reason in ledger.state.runtime.pause_reasons}
    first = {d.tool_call_id: d for d in reversed(decisions)}  # of several for one call the first one counts
    known = [d for d in first.values() if d.tool_call_id in pending][::-1]
    if run is None or not known:
        raise NoPendingDecision("no such decision is pending; it may have been taken in another tab")
    if "approve" not in by.permissions:
        raise Forbidden("this token may not approve tool calls")
    for decision in known:
        shown = pending[decision.tool_call_id or ""]
        if decision.input_hash is not None and decision.input_hash != shown.input_hash:
            raise Conflict("input_hash does not match the arguments that are waiting; look at the call again")
    for decision in known:
        _note_decision(ledger, run, pending[decision.tool_call_id or ""], decision, by)
    missed = [d.tool_call_id for d in decisions if not any(d is counted for counted in known)]
    result: JsonObject = {"queued": True, "not_pending": missed} if missed else {"queued": True}
    limit_refused = any(not d.accepted for d in known if d.tool_call_id == limit_call_id(run.run_id))
    decided = {d.tool_call_id for d in known}
    if _clear(ledger, [r for r in ledger.state.runtime.pause_reasons if r.tool_call_id not in decided]):
        if limit_refused:
            end_run(ledger, "limit", then=lambda: ledger.accept(request_id, result, by=by, final=True))
            return
        say_runtime(ledger, "executing_tools")
    ledger.accept(request_id, result, by=by, final=True)


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
