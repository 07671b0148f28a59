"""decide(command) -> what happens, purely: each accepted command becomes lines in a ledger.

Never raises for anything a client can send: what cannot be applied ends in a final negative ack, so that an accepted
command never just vanishes (PROTOCOL §3). What may wait goes into the queue; abort, parameters, decisions, answers of
clients and changes of the queue act when they are taken up.
"""

from collections.abc import Callable

from protocol.commands import (
    Abort,
    BeginSubchat,
    BranchFromChat,
    BrowserContextDecision,
    CancelQueued,
    Command,
    EditQueued,
    ForgetTool,
    IdeToolClaim,
    IdeToolResult,
    ImportChat,
    InternalCommand,
    Queueable,
    Refuse,
    RestoreMessages,
    SelectBranch,
    SetParams,
    StopSubchat,
    SubchatFinished,
    ToolDecision,
    ToolDecisions,
)
from protocol.copies import branch_from, restore
from protocol.decisions import decide_browser_context, decide_calls, forget_tool
from protocol.edits import select_branch
from protocol.errors import Conflict, Forbidden, Refused
from protocol.events import ThreadUpdated
from protocol.facts import Progressed
from protocol.failures import STOPPED
from protocol.ide import claim, take_result
from protocol.imports import import_chat
from protocol.ledger import Ledger
from protocol.principal import Principal
from protocol.queue import cancel, drop, edit_queued, enqueue, interrupts
from protocol.runs import blame, close_calls, close_draft, end_run
from protocol.starts import start_next
from protocol.state import ChatState
from protocol.subchats import begin_subchat, child_ended
from protocol.thread import read_patch

__all__ = ["APPROVES_WHOLESALE", "decide"]


APPROVES_WHOLESALE = ("autonomous_no_confirm", "auto_approve_editing_tools", "auto_approve_dangerous_commands")
"""Parameters that decide in advance; setting one is an approval (PROTOCOL §11)."""


def decide(
    ledger: Ledger, command: Command | InternalCommand, by: Principal, *, source: ChatState | None = None
) -> None:
    """Write down what `command` does to the chat, its ack included. `source` is the chat that a `branch_from_chat`
    names, if it is there and the caller's own."""
    request_id = command.client_request_id
    is_interrupting = interrupts(command, ledger.state)
    ledger.note(Progressed())
    try:
        if ledger.state.private.importing is not None and not isinstance(command, InternalCommand | Abort):
            raise Conflict("the chat is being imported; wait until it is complete, or delete it")
        match command:
            case Refuse():
                ledger.refuse(command.target, command.code, command.error, by=by)
                ledger.settle(request_id, accepted=True)
            case CancelQueued():
                ledger.settle(request_id, accepted=cancel(ledger, command.target))
            case ForgetTool():
                ledger.settle(request_id, accepted=forget_tool(ledger, command.tool_name))
            case ImportChat():
                import_chat(ledger, command)
            case BeginSubchat():
                begin_subchat(ledger, command)
            case SubchatFinished():
                child_ended(ledger, command)
            case StopSubchat():
                _stop(ledger, command)
            case Abort():
                _abort(ledger, command, by)
            case SetParams():
                _set_params(ledger, command, by)
            case ToolDecision():
                decide_calls(ledger, [command.decision], request_id, by)
            case ToolDecisions():
                decide_calls(ledger, command.decisions, request_id, by)
            case BrowserContextDecision():
                decide_browser_context(ledger, command, by)
            case IdeToolClaim():
                claim(ledger, command, by)
            case IdeToolResult():
                take_result(ledger, command, by)
            case BranchFromChat():
                branch_from(ledger, command, by, source)
            case RestoreMessages():
                restore(ledger, command, by)
            case SelectBranch():
                _select_branch(ledger, command, by)
            case EditQueued():
                edit_queued(ledger, command, by)
            case _ if isinstance(command, Queueable):
                enqueue(ledger, command, by)
                start_next(ledger)
        if is_interrupting:
            _abort_run(ledger, lambda: None)  # and the head of the queue is taken up in the same entry
    except Refused as refusal:
        ledger.refuse(request_id, refusal.code, refusal.message, by=by)


def _select_branch(ledger: Ledger, command: SelectBranch, by: Principal) -> None:
    if ledger.state.private.run is not None:
        raise Conflict("a run is open; stop it before you change to another branch")
    select_branch(ledger, command.message_id)
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _abort(ledger: Ledger, command: Abort, by: Principal) -> None:
    run = ledger.state.private.run
    is_other_run = command.run_id is not None and (run is None or run.run_id != command.run_id)
    if command.clear_queue and not is_other_run and ledger.state.private.queue:
        drop(ledger, [item.request_id for item in ledger.state.private.queue])
    if run is None or is_other_run:
        ledger.accept(command.client_request_id, {"aborted": True, "noop": True}, by=by, final=True)
        return
    _abort_run(ledger, lambda: ledger.accept(command.client_request_id, {"aborted": True}, by=by, final=True))


def _stop(ledger: Ledger, command: StopSubchat) -> None:
    """As an abort that clears the queue; whoever asked hears of it when the child has ended."""
    if ledger.state.private.queue:
        drop(ledger, [item.request_id for item in ledger.state.private.queue])
    if ledger.state.private.run is not None:
        _abort_run(ledger, lambda: None)
    ledger.settle(command.client_request_id, accepted=True)


def _abort_run(ledger: Ledger, then: Callable[[], None]) -> None:
    keep = ledger.param("on_abort") != "discard"
    close_draft(ledger, finish_reason="abort", status="partial", keep=keep)
    close_calls(ledger, "Aborted by the user before it finished.", "aborted")
    leaf = ledger.state.leaf
    if leaf is not None and leaf.role != "assistant":  # an answer has its own `finish_reason`
        blame(ledger, STOPPED)
    end_run(ledger, "aborted", then=then)


def _set_params(ledger: Ledger, command: SetParams, by: Principal) -> None:
    changes = read_patch(command.patch)
    if "approve" not in by.permissions and any(changes.get(key) for key in APPROVES_WHOLESALE):
        raise Forbidden("this token may not approve tool calls, so it may not switch approvals off")
    if changes:
        ledger.say(ThreadUpdated(**changes))
    ledger.accept(command.client_request_id, {"applied": True}, by=by, final=True)
