"""Applies the decisions of users about tool calls of a paused run, questions, the limit of rounds, browser data and
previews.

A decision applies only to the call, the run and the arguments that the user was shown. Users need the permission to
approve, except to answer a question (PROTOCOL §11). After a decision, the remaining reasons of the pause are published
again. When no reason remains, the pause ends. Previews can be decided whether a run is open or not, and `previews.py`
applies these decisions.
"""

import msgspec

from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.entry_builder import EntryBuilder, shown_name
from threadcast.chat.facts import CallDecided, RoundsGranted, ToolAllowed
from threadcast.chat.internal_commands import AnswerQuestion
from threadcast.chat.owner_state import OwnerState, Run
from threadcast.chat.previews import decide_preview, open_preview
from threadcast.chat.questions import check_decision
from threadcast.chat.runs import blame, end_run
from threadcast.chat.runtime import say_runtime
from threadcast.chat.starts import start_next
from threadcast_protocol.wire.commands import BrowserContextDecision, Decision
from threadcast_protocol.wire.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NoPendingDecision,
    OtherApproverNeeded,
    TooLarge,
)
from threadcast_protocol.wire.events import PauseCleared, PauseReason, PauseRequired
from threadcast_protocol.wire.failures import ROUND_LIMIT
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.tool_names import all_of_server

__all__ = [
    "answer_question",
    "decide_browser_context",
    "decide_calls",
    "forget_tool",
    "limit_call_id",
    "requesters",
]


EDITED_PREVIEW_MAX_BYTES = 256_000
"""The maximum bytes of an edited preview as JSON, because every snapshot contains the preview. A tool's payload has the
same maximum (PROTOCOL §18)."""

INPUT_HASH_MISSING = (
    "this server accepts an approval only with input_hash, the hash that the question shows beside the arguments; "
    "update the client, or set approvals.require_input_hash = false"
)


def decide_calls(
    builder: EntryBuilder, decisions: list[Decision], request_id: str, by: Principal, rules: ApprovalRules
) -> None:
    """Apply the decisions whose call or preview is still pending. The ack lists the ids of all other decisions as
    `not_pending`.

    Raises:
        NoPendingDecision: no call or preview waits for any of the decisions.
        Forbidden: the principal may not approve, and not all decisions are about questions.
        OtherApproverNeeded: the principal accepts a call that another principal must accept.
        BadRequest: a decision lacks the hash of the arguments that it accepts, and `rules` require the hash. Or a
            decision accepts a question without a valid answer.
        TooLarge: the edited object of a preview is too large.
        Conflict: the arguments of a call, or a preview, have changed since they were shown.
    """
    run = builder.state.private.run
    reasons = {reason.tool_call_id: reason for reason in builder.state.runtime.pause_reasons} if run is not None else {}
    calls: dict[str, Decision] = {}  # of several decisions about the same call or preview, only the first counts
    previews: dict[str, Decision] = {}
    missed: list[str | None] = []
    for decision in decisions:
        call_id, payload_id = decision.tool_call_id, decision.payload_id
        if call_id is not None and call_id in reasons and call_id not in calls:
            calls[call_id] = decision
        elif payload_id not in previews and open_preview(builder.state, payload_id) is not None:
            previews[payload_id or ""] = decision
        else:
            missed.append(call_id or payload_id)
    if not calls and not previews:
        raise NoPendingDecision("no such decision is pending; it may have been taken in another tab")
    questions = {key for key in calls if reasons[key].type == "question"}
    if "approve" not in by.permissions and (previews or len(questions) < len(calls)):
        raise Forbidden("this token may not approve tool calls; the operator can give it the permission `approve`")
    needs_another = any(decision.accepted and reasons[key].approver == "another" for key, decision in calls.items())
    if needs_another and by.id in requesters(builder.state):
        raise OtherApproverNeeded(
            "this tool needs the approval of another person than the one who asked for the call; ask someone who may "
            "approve for you, or deny the call"
        )
    shown = {key: payload for key in previews if (payload := open_preview(builder.state, key)) is not None}
    hashes = {key: reason.input_hash for key, reason in reasons.items()}
    hashes |= {key: payload.input_hash or "" for key, payload in shown.items()}
    for key, decision in (*calls.items(), *previews.items()):
        if decision.input_hash is not None and decision.input_hash != hashes[key]:
            raise Conflict("input_hash does not match: the call or the preview has changed since it was shown")
        if decision.input_hash is None and decision.accepted and hashes[key] and rules.requires_input_hash:
            raise BadRequest(INPUT_HASH_MISSING, path="/input_hash")
    for key in questions:
        check_decision(reasons[key], calls[key])
    for decision in previews.values():
        if len(msgspec.json.encode(decision.edited_input)) > EDITED_PREVIEW_MAX_BYTES:
            raise TooLarge(f"an edited preview may have {EDITED_PREVIEW_MAX_BYTES} bytes", path="/edited_input")
    for key, payload in shown.items():
        decide_preview(builder, payload, previews[key], request_id, by)
    result: JsonObject = {"queued": True, "not_pending": missed} if missed else {"queued": True}
    if run is not None and calls:
        for key, decision in calls.items():
            _note_decision(builder, run, reasons[key], decision, by)
        left = [reason for key, reason in reasons.items() if key not in calls]
        builder.say(PauseRequired(left) if left else PauseCleared())
        if not left:
            limit = calls.get(limit_call_id(run.run_id))
            if limit is not None and not limit.accepted:
                blame(builder, ROUND_LIMIT)
                end_run(builder, "limit", then=lambda: builder.accept(request_id, result, by=by, final=True))
                return
            # in other states a task works on the run, and this task publishes the state
            if builder.state.runtime.state == "paused":
                say_runtime(builder, "executing_tools")
    builder.accept(request_id, result, by=by, final=True)
    start_next(builder)


def decide_browser_context(
    builder: EntryBuilder, command: BrowserContextDecision, by: Principal, rules: ApprovalRules
) -> None:
    """Accept a browser tool's call, and add the user's choice of shared data to the arguments of the call (CMD-16). To
    refuse the call, clients send a `tool_decision`.

    Raises:
        NoPendingDecision: no call with this id waits for a browser context.
        Forbidden, BadRequest, Conflict: for the same reasons as in `decide_calls`.
    """
    asked = [
        reason
        for reason in builder.state.runtime.pause_reasons
        if reason.type == "browser_context" and reason.tool_call_id == command.pending_message_id
    ]
    if not asked:
        raise NoPendingDecision("no decision about a browser context is pending for this pending_message_id")
    shared = {
        name: value
        for name, value in msgspec.structs.asdict(command).items()
        if name.startswith(("include_", "last_n_")) and value is not None
    }
    run = builder.state.private.run
    gate = run.gates.get(command.pending_message_id) if run is not None else None
    hidden = gate.hidden_input if gate is not None else None
    decision = Decision(
        tool_call_id=command.pending_message_id,
        accepted=True,
        edited_input={**(hidden or asked[0].input), **shared},
        input_hash=command.input_hash,
    )
    decide_calls(builder, [decision], command.client_request_id, by, rules)


def answer_question(builder: EntryBuilder, command: AnswerQuestion, by: Principal, rules: ApprovalRules) -> None:
    """Accept or deny one call. A caller other than the requester may decide only about calls that need another
    approver.

    Raises:
        NoPendingDecision: no such question is open.
        Forbidden, OtherApproverNeeded, Conflict: for the same reasons as in `decide_calls`.
    """
    asked = [each for each in builder.state.runtime.pause_reasons if each.tool_call_id == command.tool_call_id]
    if not asked or (asked[0].approver != "another" and by.id not in requesters(builder.state)):
        raise NoPendingDecision("no such decision is pending; it may have been taken already")
    decision = Decision(
        tool_call_id=command.tool_call_id, accepted=command.accepted, input_hash=command.input_hash or None
    )
    decide_calls(builder, [decision], command.client_request_id, by, rules)


def requesters(state: OwnerState) -> frozenset[str]:
    """Return the ids of the principals on whose behalf the open run makes its calls. These are the principal that began
    the run, and the authors of all user messages on the path, because merged messages may have several authors. The run
    of a sub-chat has the principal of its parent's run, so the requester is the person who uses the root chat."""
    run = state.private.run
    authors = {message.by for key in state.path if (message := state.nodes[key]).role == "user" and message.by}
    return frozenset(authors if run is None else authors | {run.principal.id})


def forget_tool(builder: EntryBuilder, tool_name: str) -> bool:
    """Require approval for calls of this tool again, beginning with the next call. Returns False if the tool was not in
    the chat's list of allowed tools."""
    is_allowed = tool_name in builder.state.private.allowed_tools
    if is_allowed:
        builder.note(ToolAllowed(tool_name=tool_name, is_over=True))
    return is_allowed


def _note_decision(builder: EntryBuilder, run: Run, reason: PauseReason, decision: Decision, by: Principal) -> None:
    if reason.type == "round_limit":
        if decision.accepted:
            granted = reason.input.get("max_rounds")
            more = granted if isinstance(granted, int) else 1
            builder.note(RoundsGranted(rounds_allowed=run.round + 1 + more))
        return
    builder.note(
        CallDecided(
            tool_call_id=reason.tool_call_id,
            accepted=decision.accepted,
            edited_input=decision.edited_input,
            note=decision.note,
            by=shown_name(by),
        )
    )
    if reason.type == "question":
        return
    if decision.accepted and decision.remember in ("tool", "server") and not reason.once:
        name = reason.tool_name
        widest = all_of_server(name)
        shown = builder.state.private.shown_definitions.get(widest)  # None if an older worker asked the question
        if decision.remember == "server":
            builder.note(ToolAllowed(tool_name=widest, definitions=shown))
        else:
            own = {name: shown[name]} if shown is not None and name in shown else None
            builder.note(ToolAllowed(tool_name=name, definitions=own))


def limit_call_id(run_id: str) -> str:
    """Return the id that takes the place of a call's id in the pause at the limit of rounds (PROTOCOL §11)."""
    return f"limit-{run_id}"
