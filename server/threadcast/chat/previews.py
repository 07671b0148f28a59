"""Applies decisions about previews, and starts and settles the tool call that carries out an accepted preview (PROTOCOL
§11).

A waiting preview is stored in the log and needs no worker, so it can be decided during a run or long after the run. An
accepted preview with a commit tool waits until no run is open, and then becomes a run that calls this tool and no
model. Each preview is decided once, and each decision is carried out at most once, even if workers crash.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict, replace

from threadcast.chat.entry_builder import EntryBuilder, shown_name
from threadcast.chat.facts import PreviewDecided, Progressed, RunStarted, ToolFinished
from threadcast.chat.owner_state import Commit, OwnerState
from threadcast.chat.runtime import say_runtime
from threadcast.chat.wakes import tell_model
from threadcast_protocol.wire.commands import Decision
from threadcast_protocol.wire.events import PayloadAdded, PayloadUpdated, ToolStatus
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

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
"""The maximum length of a commit tool's result for the model. A user's note has the same maximum."""


def commit_call_id(payload_id: str) -> str:
    """Return the id of the tool call that carries out an accepted preview."""
    return f"commit-{payload_id}"


def payload_of(state: OwnerState, payload_id: str) -> PayloadAdded | None:
    """Return the newest payload with this id, or None."""
    return next((payload for payload in reversed(state.payloads) if payload.payload_id == payload_id), None)


def open_preview(state: OwnerState, payload_id: str | None) -> PayloadAdded | None:
    """Return the undecided preview with this id, or None. Previews of an imported chat cannot be decided."""
    if payload_id is None or payload_id not in state.private.previews:
        return None
    return payload_of(state, payload_id)


def decide_preview(
    builder: EntryBuilder, preview: PayloadAdded, decision: Decision, request_id: str, by: Principal
) -> None:
    """Publish the decision, report the decision to the model, and queue an accepted preview that has a commit tool.

    `edited_input` replaces the object in the preview's data.
    """
    pending = builder.state.private.previews[preview.payload_id]
    data = preview.data
    if decision.accepted and decision.edited_input is not None:
        data = {**data, "object": decision.edited_input}
    approval = "accepted" if decision.accepted else "rejected"
    _update(builder, replace(preview, data=data, approval=approval, by=shown_name(by)))
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
    builder.note(PreviewDecided(payload_id=preview.payload_id, commit=commit))
    edited = " They edited it first." if data is not preview.data else ""
    note = f" Their note: {decision.note}" if decision.note else ""
    follows = f" The tool {commit.tool_name} will save it." if commit is not None else ""
    _tell_model(builder, preview, f"The user {approval} the preview {_named(preview)}.{edited}{note}{follows}")


def _arguments(data: JsonObject) -> JsonObject:
    """Return the arguments of the commit tool: the fields of the preview's object, and `object_id` if the preview
    changes an existing object."""
    named: JsonObject = {"object_id": data["object_id"]} if "object_id" in data else {}
    return {**data["object"], **named}


def open_commit(builder: EntryBuilder) -> None:
    """Open a run for the first waiting commit. The agent's plan then calls the tool of the commit."""
    commit = builder.state.private.commits[0]
    builder.note(
        RunStarted(
            run_id=builder.new_id("run"),
            principal=commit.principal,
            request_ids=[],
            at_ms=builder.now_ms,
            first_index=len(builder.state.path),
            context=commit.context,
            commit=commit,
        )
    )
    say_runtime(builder, "executing_tools", round=0)


def settle_commit(
    builder: EntryBuilder,
    approval: str,
    text: str,
    *,
    status: str,
    elapsed_ms: int | None = None,
    end_state: str | None = None,
    payloads: Sequence[PayloadAdded] = (),
) -> None:
    """Record the result of the commit that the open run carried out. `approval` is committed, commit_failed or
    outcome_unknown; `text` is the result that the model reads. The tool's `payloads` are added to the message of the
    preview."""
    run = builder.state.private.run
    commit = run.commit if run is not None else None
    preview = payload_of(builder.state, commit.payload_id) if commit is not None else None
    if commit is None or preview is None:  # cannot happen: payloads are never removed
        return
    _update(builder, replace(preview, approval=approval))
    for payload in payloads:
        builder.say(replace(payload, message_id=preview.message_id))
    builder.say(
        ToolStatus(
            tool_call_id=commit_call_id(commit.payload_id),
            name=commit.tool_name,
            message_id=preview.message_id,
            index=0,
            status=status,
            elapsed_ms=elapsed_ms,
        )
    )
    builder.note(ToolFinished(end_state=end_state))
    builder.note(Progressed())
    outcome = _OUTCOMES[approval].format(_named(preview), commit.tool_name)
    _tell_model(builder, preview, f"{outcome} {text[:RESULT_MAX_CHARACTERS]}".strip())


_OUTCOMES = {
    "committed": "The preview {0} was carried out by {1}. Its result:",
    "commit_failed": "The preview {0} was accepted, but {1} failed. Its error:",
    "outcome_unknown": "The preview {0} was accepted, but whether {1} saved it is unknown.",
}


def abandon_commit(builder: EntryBuilder, text: str, *, status: str) -> None:
    """If the open run has a commit without a result, end the commit with an unknown outcome."""
    run = builder.state.private.run
    if run is not None and run.commit is not None and not run.calls_count:
        settle_commit(builder, "outcome_unknown", text, status=status)


def _update(builder: EntryBuilder, preview: PayloadAdded) -> None:
    builder.say(PayloadUpdated(**asdict(preview)))


def _named(preview: PayloadAdded) -> str:
    return f"{preview.payload_id} ({preview.payload_type}: {preview.summary})"


def _tell_model(builder: EntryBuilder, preview: PayloadAdded, text: str) -> None:
    """Add a message for the model at the end of the exchange that made the preview. On each branch, the model then
    reads either both the exchange and this message, or neither of them."""
    tell_model(builder, f"[{text}]", _end_of_its_exchange(builder.state, preview.message_id))


def _end_of_its_exchange(state: OwnerState, message_id: str) -> str:
    if message_id not in state.path:
        return message_id
    drafted = state.draft.message.message_id if state.draft is not None else None
    last = message_id
    for key in state.path[state.path.index(message_id) + 1 :]:
        if state.nodes[key].role == "user":
            break
        last = key if key != drafted else last
    return last
