"""decide(command) -> what happens, purely: each accepted command becomes lines in a ledger.

Never raises for anything a client can send: what cannot be applied ends in a final negative ack, so that an accepted
command never just vanishes (PROTOCOL §3). Commands whose effect is not there yet honestly say `not_implemented`.
"""

from protocol.commands import (
    STARTS_RUN,
    Abort,
    CancelQueued,
    Command,
    Decision,
    InternalCommand,
    Refuse,
    SetParams,
    ToolDecision,
    ToolDecisions,
    encode_command,
)
from protocol.errors import Conflict, Forbidden, NoPendingDecision, NotImplementedYet, Refused
from protocol.events import PauseCleared, PauseReason, PauseRequired, ThreadUpdated
from protocol.facts import (
    CallDecided,
    CommandQueued,
    CommandsDequeued,
    Progressed,
    RoundsGranted,
    ToolAllowed,
)
from protocol.ledger import Ledger, shown_name
from protocol.principal import Principal
from protocol.runs import close_calls, close_draft, end_run, say_queue, say_runtime, start_next
from protocol.state import Run
from protocol.thread import read_patch

__all__ = ["decide", "limit_call_id"]


APPROVES_WHOLESALE = ("autonomous_no_confirm", "auto_approve_editing_tools", "auto_approve_dangerous_commands")
"""Parameters that decide in advance; setting one is an approval (PROTOCOL §11)."""


def decide(ledger: Ledger, command: Command | InternalCommand, by: Principal) -> None:
    """Write down what `command` does to the chat, its ack included."""
    request_id = command.client_request_id
    ledger.note(Progressed())
    try:
        match command:
            case Refuse():
                ledger.refuse(command.target, command.code, command.error, by=by)
                ledger.settle(request_id, accepted=True)
            case CancelQueued():
                _cancel(ledger, command)
            case Abort():
                _abort(ledger, command, by)
            case SetParams():
                _set_params(ledger, command, by)
            case ToolDecision():
                _decide_calls(ledger, [command.decision], request_id, by)
            case ToolDecisions():
                _decide_calls(ledger, command.decisions, request_id, by)
            case _ if isinstance(command, STARTS_RUN):
                _enqueue(ledger, command, by)
            case _:
                raise NotImplementedYet("this server does not carry out this command yet")
    except Refused as refusal:
        ledger.refuse(request_id, refusal.code, refusal.message, by=by)


def _enqueue(ledger: Ledger, command: Command, by: Principal) -> None:
    queue = ledger.state.private.queue
    index = len(queue)
    if command.priority:
        priorities = [item.priority for item in ledger.state.runtime.queued_items]
        index = priorities.index(False) if False in priorities else len(queue)
    ledger.note(
        CommandQueued(
            request_id=command.client_request_id,
            principal=by,
            body=encode_command(command).decode(),
            at_ms=ledger.now_ms,
            index=index,
        )
    )
    say_queue(ledger)
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=False)
    start_next(ledger)


def _cancel(ledger: Ledger, command: CancelQueued) -> None:
    waiting = [item for item in ledger.state.private.queue if item.request_id == command.target]
    if waiting:
        _drop_queued(ledger, [command.target])
    ledger.settle(command.client_request_id, accepted=bool(waiting))


def _drop_queued(ledger: Ledger, request_ids: list[str]) -> None:
    """Take waiting commands out; each ends in a final ack, so that no accepted command just vanishes."""
    dropped = [item for item in ledger.state.private.queue if item.request_id in request_ids]
    ledger.note(CommandsDequeued(request_ids=request_ids))
    say_queue(ledger)
    for item in dropped:
        ledger.refuse(item.request_id, "cancelled", "taken back before it ran", by=item.principal)


def _abort(ledger: Ledger, command: Abort, by: Principal) -> None:
    run = ledger.state.private.run
    is_other_run = command.run_id is not None and (run is None or run.run_id != command.run_id)
    if command.clear_queue and not is_other_run and ledger.state.private.queue:
        _drop_queued(ledger, [item.request_id for item in ledger.state.private.queue])
    if run is None or is_other_run:
        ledger.accept(command.client_request_id, {"aborted": True, "noop": True}, by=by, final=True)
        return
    keep = ledger.state.thread.on_abort != "discard"
    close_draft(ledger, finish_reason="abort", status="partial", keep=keep)
    close_calls(ledger, "Aborted by the user before it finished.", "aborted")
    end_run(
        ledger,
        "aborted",
        then=lambda: ledger.accept(command.client_request_id, {"aborted": True}, by=by, final=True),
    )


def _set_params(ledger: Ledger, command: SetParams, by: Principal) -> None:
    changes = read_patch(command.patch)
    if "approve" not in by.permissions and any(changes.get(key) for key in APPROVES_WHOLESALE):
        raise Forbidden("this token may not approve tool calls, so it may not switch approvals off")
    if changes:
        ledger.say(ThreadUpdated(**changes))
    ledger.accept(command.client_request_id, {"applied": True}, by=by, final=True)


def _decide_calls(ledger: Ledger, decisions: list[Decision], request_id: str, by: Principal) -> None:
    """A decision counts only for the call, run and arguments that were shown (PROTOCOL §11)."""
    run = ledger.state.private.run
    pending = {reason.tool_call_id: reason for reason in ledger.state.runtime.pause_reasons}
    known = [d for d in decisions if d.tool_call_id in pending]
    if run is None or not known:
        raise NoPendingDecision("no such decision is pending; it may have been taken in another tab")
    if "approve" not in by.permissions:
        raise Forbidden("this token may not approve tool calls")
    for decision in known:
        shown = pending[decision.tool_call_id or ""]
        if decision.input_hash is not None and decision.input_hash != shown.input_hash:
            raise Conflict("input_hash does not match the arguments that are waiting; look at the call again")
    for decision in known:
        reason = pending.pop(decision.tool_call_id or "", None)
        if reason is not None:
            _note_decision(ledger, run, reason, decision, by)
    missed = [d.tool_call_id for d in decisions if d not in known]
    result = {"queued": True, "not_pending": missed} if missed else {"queued": True}
    if pending:
        ledger.say(PauseRequired(list(pending.values())))
        ledger.accept(request_id, result, by=by, final=True)
        return
    ledger.say(PauseCleared())
    limit_refused = any(not d.accepted for d in known if d.tool_call_id == limit_call_id(run.run_id))
    if limit_refused:
        end_run(ledger, "limit", then=lambda: ledger.accept(request_id, result, by=by, final=True))
        return
    say_runtime(ledger, "executing_tools")
    ledger.accept(request_id, result, by=by, final=True)


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
        ledger.note(ToolAllowed(tool_name=reason.tool_name))


def limit_call_id(run_id: str) -> str:
    """What a round limit asks with in place of a call (PROTOCOL §11)."""
    return f"limit-{run_id}"
