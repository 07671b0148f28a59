"""Decides the effects of a command and adds them to an entry of the chat's log.

`decide` is pure and raises no error for any command that a client can send. A command that cannot be applied gets a
final negative ack, so that no accepted command remains without a final ack (PROTOCOL §3). Commands that start runs or
edit the tree are queued. Aborts, parameters, decisions, results of client tools and edits of the queue take effect at
once.
"""

from collections.abc import Callable

from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.copies import branch_from, restore
from threadcast.chat.decisions import answer_question, decide_browser_context, decide_calls, forget_tool
from threadcast.chat.edits import select_branch
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Progressed
from threadcast.chat.ide import claim, take_result
from threadcast.chat.imports import import_chat
from threadcast.chat.internal_commands import (
    AnswerQuestion,
    BeginSubchat,
    CancelQueued,
    ForgetTool,
    ImportChat,
    InternalCommand,
    Refuse,
    StopSubchat,
    SubchatFinished,
)
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import APPROVES_WHOLESALE
from threadcast.chat.queue import drop, edit_queued, enqueue, interrupts
from threadcast.chat.runs import blame, close_calls, close_draft, end_run
from threadcast.chat.starts import start_next
from threadcast.chat.subchats import begin_subchat, child_ended
from threadcast.chat.taint import note_imported
from threadcast_protocol.wire.commands import (
    Abort,
    BranchFromChat,
    BrowserContextDecision,
    Command,
    EditQueued,
    IdeToolClaim,
    IdeToolResult,
    Queueable,
    RestoreMessages,
    SelectBranch,
    SetParams,
    ToolDecision,
    ToolDecisions,
)
from threadcast_protocol.wire.errors import Conflict, Forbidden, Refused
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.failures import STOPPED
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import read_patch

__all__ = ["decide"]

_NO_RULES = ApprovalRules()


def decide(
    builder: EntryBuilder,
    command: Command | InternalCommand,
    by: Principal,
    *,
    source: OwnerState | None = None,
    rules: ApprovalRules = _NO_RULES,
) -> None:
    """Add the effects of `command` to the entry, including its ack. `source` is the chat that a `branch_from_chat`
    names, or None if the caller has no such chat. `rules` are the operator's rules about approvals."""
    request_id = command.client_request_id
    is_interrupting = interrupts(command, builder.state)
    builder.note(Progressed())
    try:
        with builder.all_or_nothing():
            if builder.state.private.importing is not None and not isinstance(command, InternalCommand | Abort):
                raise Conflict("the chat is being imported; wait until the import is complete, or delete the chat")
            match command:
                case Refuse():
                    builder.refuse(command.target, command.code, command.error, by=by)
                    builder.settle(request_id, accepted=True)
                case CancelQueued():
                    builder.settle(request_id, accepted=drop(builder, [command.target]))
                case ForgetTool():
                    builder.settle(request_id, accepted=forget_tool(builder, command.tool_name))
                case AnswerQuestion():
                    answer_question(builder, command, by, rules)
                case ImportChat():
                    import_chat(builder, command)
                    note_imported(builder, rules)
                case BeginSubchat():
                    begin_subchat(builder, command)
                case SubchatFinished():
                    child_ended(builder, command)
                case StopSubchat():
                    _stop(builder, command)
                case Abort():
                    _abort(builder, command, by)
                case SetParams():
                    _set_params(builder, command, by)
                case ToolDecision():
                    decide_calls(builder, [command.decision], request_id, by, rules)
                case ToolDecisions():
                    decide_calls(builder, command.decisions, request_id, by, rules)
                case BrowserContextDecision():
                    decide_browser_context(builder, command, by, rules)
                case IdeToolClaim():
                    claim(builder, command, by)
                case IdeToolResult():
                    take_result(builder, command, by)
                case BranchFromChat():
                    branch_from(builder, command, by, source)
                case RestoreMessages():
                    restore(builder, command, by, rules)
                case SelectBranch():
                    _select_branch(builder, command, by)
                case EditQueued():
                    edit_queued(builder, command, by)
                case _ if isinstance(command, Queueable):
                    enqueue(builder, command, by)
                    start_next(builder)
            if is_interrupting:
                _abort_run(builder)  # the same entry then starts the first waiting command
    except Refused as refusal:
        builder.refuse(request_id, refusal.code, refusal.message, by=by)


def _select_branch(builder: EntryBuilder, command: SelectBranch, by: Principal) -> None:
    if builder.state.private.run is not None:
        raise Conflict("a run is open; stop it before you change to another branch")
    select_branch(builder, command.message_id)
    builder.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _abort(builder: EntryBuilder, command: Abort, by: Principal) -> None:
    run = builder.state.private.run
    is_other_run = command.run_id is not None and (run is None or run.run_id != command.run_id)
    if command.clear_queue and not is_other_run:
        drop(builder)
    if run is None or is_other_run:
        builder.accept(command.client_request_id, {"aborted": True, "noop": True}, by=by, final=True)
        return
    _abort_run(builder, lambda: builder.accept(command.client_request_id, {"aborted": True}, by=by, final=True))


def _stop(builder: EntryBuilder, command: StopSubchat) -> None:
    """Abort the run of a sub-chat and clear its queue. The end of the run is reported to the parent."""
    drop(builder)
    if builder.state.private.run is not None:
        _abort_run(builder)
    builder.settle(command.client_request_id, accepted=True)


def _abort_run(builder: EntryBuilder, then: Callable[[], None] | None = None) -> None:
    keep = builder.param("on_abort") != "discard"
    close_draft(builder, finish_reason="abort", status="partial", keep=keep)
    close_calls(builder, "Aborted by the user before it finished.", "aborted")
    leaf = builder.state.leaf
    if leaf is not None and leaf.role != "assistant":  # an answer has its own `finish_reason`
        blame(builder, STOPPED)
    end_run(builder, "aborted", then=then)


def _set_params(builder: EntryBuilder, command: SetParams, by: Principal) -> None:
    changes = read_patch(command.patch)
    if "approve" not in by.permissions and any(changes.get(key) for key in APPROVES_WHOLESALE):
        raise Forbidden("this token may not approve tool calls, so it may not switch approvals off")
    if changes.get("temporary") and builder.state.nodes and not builder.state.thread.temporary:
        raise Conflict("a chat with messages cannot become temporary; delete it, or begin a new chat")
    if changes:
        builder.say(ThreadUpdated(**changes))
    builder.accept(command.client_request_id, {"applied": True}, by=by, final=True)
