"""Translates the reasons of a pause into AG-UI's interrupts, and answers to interrupts into decisions (PROTOCOL §11).
Pure."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, UnsetType

from threadcast.compat.ag_ui.bodies import ResumeEntry
from threadcast_protocol.wire.commands import Decision
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PauseReason
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["APPROVAL_SCHEMA", "NOTE_MAX_CHARACTERS", "decisions_in", "interrupt_id", "interrupt_of"]

NOTE_MAX_CHARACTERS = 8_192
"""The longest `note` of an approval: the limit of a decision's note (PROTOCOL §18)."""

APPROVAL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "note": {"type": "string", "maxLength": NOTE_MAX_CHARACTERS},
        "arguments": {"type": "object"},
    },
    "required": ["approved"],
}
"""The JSON Schema of the answer to an approval. The model reads `note`; `arguments` replace the arguments of the
call."""

_NO_CALL = frozenset({"question", "round_limit"})
"""Reasons of a pause whose `tool_call_id` is not the id of a tool call."""


class ApprovalAnswer(msgspec.Struct, frozen=True):
    approved: bool
    note: Annotated[str, Meta(max_length=NOTE_MAX_CHARACTERS)] | None = None
    arguments: JsonObject | None = None


def interrupt_id(reason: PauseReason) -> str:
    """Return the id of an interrupt. The id contains the hash of the shown arguments, so that an answer to an older
    question is recognised."""
    return f"{reason.tool_call_id}.{reason.input_hash}" if reason.input_hash else reason.tool_call_id


def interrupt_of(reason: PauseReason) -> JsonObject:
    """Return the interrupt for a reason of a pause."""
    told: JsonObject = {"type": reason.type, "toolName": reason.tool_name}
    if reason.rule:
        told["rule"] = reason.rule
    if not isinstance(reason.approver, UnsetType):
        told["approver"] = reason.approver
    if not isinstance(reason.change, UnsetType):
        told["change"] = msgspec.to_builtins(reason.change)
    found: JsonObject = {"id": interrupt_id(reason), "metadata": {"threadcast": told}}
    if reason.type == "question" and not isinstance(reason.question, UnsetType):
        question = reason.question
        schema: JsonObject = {"type": "string", **({"enum": question.options} if question.options else {})}
        return {
            **found,
            "reason": "input_required",
            "message": question.text,
            "responseSchema": schema if question.schema is None else question.schema,
        }
    if reason.type not in _NO_CALL:
        found["toolCallId"] = reason.tool_call_id
        told["arguments"] = reason.input
    words = reason.command or f"Approve {reason.tool_name or reason.type}?"
    why = "confirmation" if reason.type in _NO_CALL else "tool_call"
    return {**found, "reason": why, "message": words, "responseSchema": APPROVAL_SCHEMA}


def decisions_in(entries: Sequence[ResumeEntry], reasons: Sequence[PauseReason]) -> list[Decision]:
    """Return the decisions for the answers that the chat still waits for. An answer to an older question has no effect.
    `cancelled` denies.

    Raises:
        BadRequest: an answer does not have the form of its interrupt.
    """
    open_reasons = {interrupt_id(reason): reason for reason in reasons}
    found: dict[str, Decision] = {}
    for number, entry in enumerate(entries):
        reason = open_reasons.get(entry.interrupt_id)
        if reason is not None:
            found[reason.tool_call_id] = _decision(entry, reason, f"/resume/{number}/payload")
    return list(found.values())


def _decision(entry: ResumeEntry, reason: PauseReason, path: str) -> Decision:
    call_id, hash = reason.tool_call_id, reason.input_hash or None
    if entry.status == "cancelled":
        return Decision(tool_call_id=call_id, accepted=False, input_hash=hash)
    if reason.type == "question":
        return Decision(tool_call_id=call_id, accepted=True, input_hash=hash, edited_input={"answer": entry.payload})
    try:
        answer = msgspec.convert(entry.payload, ApprovalAnswer)
    except msgspec.ValidationError as wrong:
        what = "the answer to an approval is {approved: boolean, note?: string, arguments?: object}"
        raise BadRequest(f"{what}: {wrong}", path=path) from None
    return Decision(
        tool_call_id=call_id,
        accepted=answer.approved,
        input_hash=hash,
        note=answer.note or None,
        edited_input=answer.arguments if answer.approved else None,
    )
