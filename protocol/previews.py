"""What becomes of a preview: a person's word on it, and the one tool call that carries an accepted one out (PROTOCOL
§11).

A preview waits in the log, not in a worker: it can be decided while a run is open and long after. An accepted one with
a commit tool waits for the chat to rest and is then a run of its own, which calls no model. The one rule: each preview
is decided once, and each decision carried out at most once, whoever dies in between.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict, replace

from protocol.commands import Decision
from protocol.events import PayloadAdded, PayloadUpdated, ToolStatus
from protocol.facts import PreviewDecided, Progressed, RunStarted, SetAside, ToolFinished
from protocol.ledger import Ledger, shown_name
from protocol.messages import JsonObject, Message
from protocol.principal import Principal
from protocol.runtime import say_runtime
from protocol.state import Aside, ChatState, Commit

__all__ = [
    "abandon_commit",
    "commit_call_id",
    "decide_preview",
    "open_commit",
    "open_preview",
    "payload_of",
    "settle_commit",
]


RESULT_MAX_CHARACTERS = 8_192
"""Of what a commit tool said, for the model: as much as a person's own note may have."""


def commit_call_id(payload_id: str) -> str:
    """What the call that carries an accepted preview out is known as, on the wire and to the tool."""
    return f"commit-{payload_id}"


def payload_of(state: ChatState, payload_id: str) -> PayloadAdded | None:
    return next((payload for payload in reversed(state.payloads) if payload.payload_id == payload_id), None)


def open_preview(state: ChatState, payload_id: str | None) -> PayloadAdded | None:
    """The preview of that id, as long as nobody has decided it. One that came with an imported chat is nobody's."""
    if payload_id is None or payload_id not in state.private.previews:
        return None
    return payload_of(state, payload_id)


def decide_preview(ledger: Ledger, preview: PayloadAdded, decision: Decision, request_id: str, by: Principal) -> None:
    """Say the decision, tell the model of it, and let an accepted preview with a commit tool wait for its turn.

    `edited_input` takes the place of the object, and is shown there.
    """
    pending = ledger.state.private.previews[preview.payload_id]
    data = preview.data
    if decision.accepted and decision.edited_input is not None:
        data = {**data, "object": decision.edited_input}
    approval = "accepted" if decision.accepted else "rejected"
    _update(ledger, replace(preview, data=data, approval=approval, by=shown_name(by)))
    commit = None
    if decision.accepted and pending.commit_tool:
        commit = Commit(
            payload_id=preview.payload_id,
            tool_name=pending.commit_tool,
            arguments=msgspec.json.encode(_arguments(data)).decode(),
            principal=by,
            context=pending.context,
            request_id=request_id,
        )
    ledger.note(PreviewDecided(payload_id=preview.payload_id, commit=commit))
    edited = " They edited it first." if data is not preview.data else ""
    note = f" Their note: {decision.note}" if decision.note else ""
    follows = f" The tool {commit.tool_name} will save it." if commit is not None else ""
    _tell_model(ledger, preview, f"The user {approval} the preview {_named(preview)}.{edited}{note}{follows}")


def _arguments(data: JsonObject) -> JsonObject:
    """The object's own fields, and `object_id` beside them where something that exists is changed."""
    named: JsonObject = {"object_id": data["object_id"]} if "object_id" in data else {}
    return {**data["object"], **named}


def open_commit(ledger: Ledger) -> None:
    """The first commit that waits becomes the open run; the plan runs its tool."""
    commit = ledger.state.private.commits[0]
    ledger.note(
        RunStarted(
            run_id=ledger.new_id("run"),
            principal=commit.principal,
            request_ids=[],
            at_ms=ledger.now_ms,
            first_index=len(ledger.state.path),
            context=commit.context,
            commit=commit,
        )
    )
    say_runtime(ledger, "executing_tools", round=0)


def settle_commit(
    ledger: Ledger,
    approval: str,
    text: str,
    *,
    status: str,
    elapsed_ms: int | None = None,
    end_state: str | None = None,
    payloads: Sequence[PayloadAdded] = (),
) -> None:
    """How the open run's commit ended: committed, commit_failed or outcome_unknown; `text` is for the model. Its
    `payloads` stand on the message of the preview."""
    run = ledger.state.private.run
    commit = run.commit if run is not None else None
    preview = payload_of(ledger.state, commit.payload_id) if commit is not None else None
    if commit is None or preview is None:  # cannot be: payloads are never taken away
        return
    _update(ledger, replace(preview, approval=approval))
    for payload in payloads:
        ledger.say(replace(payload, message_id=preview.message_id))
    ledger.say(
        ToolStatus(
            tool_call_id=commit_call_id(commit.payload_id),
            name=commit.tool_name,
            message_id=preview.message_id,
            index=0,
            status=status,
            elapsed_ms=elapsed_ms,
        )
    )
    ledger.note(ToolFinished(end_state=end_state))
    ledger.note(Progressed())
    outcome = _OUTCOMES[approval].format(_named(preview), commit.tool_name)
    _tell_model(ledger, preview, f"{outcome} {text[:RESULT_MAX_CHARACTERS]}".strip())


_OUTCOMES = {
    "committed": "The preview {0} was carried out by {1}. Its result:",
    "commit_failed": "The preview {0} was accepted, but {1} failed. Its error:",
    "outcome_unknown": "The preview {0} was accepted, but whether {1} saved it is unknown.",
}


def abandon_commit(ledger: Ledger, text: str, *, status: str) -> None:
    """The open run ends before its commit has answered; no more is known than that it began. Else nothing."""
    run = ledger.state.private.run
    if run is not None and run.commit is not None and not run.calls_count:
        settle_commit(ledger, "outcome_unknown", text, status=status)


def _update(ledger: Ledger, preview: PayloadAdded) -> None:
    ledger.say(PayloadUpdated(**asdict(preview)))


def _named(preview: PayloadAdded) -> str:
    return f"{preview.payload_id} ({preview.payload_type}: {preview.summary})"


def _tell_model(ledger: Ledger, preview: PayloadAdded, text: str) -> None:
    """At the end of the turn that made the preview: a model which reads of the one reads of the other, on whatever
    branch the chat goes on."""
    message = Message(
        role="user", content=f"[{text}]", message_id=ledger.new_id("msg"), hidden=True, created_at=ledger.now_ms
    )
    ledger.note(SetAside(aside=Aside(message=message, after=_end_of_its_turn(ledger.state, preview.message_id))))


def _end_of_its_turn(state: ChatState, message_id: str) -> str:
    if message_id not in state.path:
        return message_id
    drafted = state.draft.message.message_id if state.draft is not None else None
    last = message_id
    for key in state.path[state.path.index(message_id) + 1 :]:
        if state.nodes[key].role == "user":
            break
        last = key if key != drafted else last
    return last
