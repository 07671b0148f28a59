"""Translates the reasons of a pause into MCP's form, and people's answers into decisions (PROTOCOL §11). Pure."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UnsetType

from threadcast_protocol.wire.commands import Decision
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.events import PauseReason
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["NOTE_MAX_CHARACTERS", "decision_of", "elicitation_of", "is_question", "pending_of"]

NOTE_MAX_CHARACTERS = 8_192
"""The longest `note` of an approval: the limit of a decision's note (PROTOCOL §18)."""

APPROVAL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Approve"},
        "note": {"type": "string", "title": "Note for the model", "maxLength": NOTE_MAX_CHARACTERS},
        "arguments": {"type": "string", "title": "Other arguments, as JSON", "description": "An object, in JSON."},
    },
    "required": ["approved"],
}
"""The form of an approval. Forms of MCP have only plain fields, so the field for edited arguments is a text that
contains JSON."""


def is_question(reason: PauseReason) -> bool:
    return reason.type == "question"


def pending_of(reasons: Sequence[PauseReason]) -> list[JsonObject]:
    """Return the decisions that a run waits for."""
    found: list[JsonObject] = []
    for reason in reasons:
        told: JsonObject = {"tool_call_id": reason.tool_call_id, "type": reason.type, "message": _words(reason)}
        if reason.tool_name:
            told["tool_name"] = reason.tool_name
        if not is_question(reason) and reason.input is not None:
            told["arguments"] = reason.input
        if is_question(reason) and not isinstance(reason.question, UnsetType) and reason.question.options:
            told["options"] = reason.question.options
        found.append(told)
    return found


def elicitation_of(reason: PauseReason) -> JsonObject:
    """Return the parameters of `elicitation/create` that ask a person for this decision."""
    schema = APPROVAL_SCHEMA
    if is_question(reason):
        answer: JsonObject = {"type": "string", "title": "Answer"}
        if not isinstance(reason.question, UnsetType) and reason.question.options:
            answer["enum"] = reason.question.options
        schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return {"message": _words(reason), "requestedSchema": schema}


def _words(reason: PauseReason) -> str:
    if is_question(reason) and not isinstance(reason.question, UnsetType):
        return reason.question.text
    return reason.command or f"Approve {reason.tool_name or reason.type}?"


def decision_of(reason: PauseReason, answer: Mapping[str, object]) -> Decision | None:
    """Return the decision in the answer to an elicitation; None leaves the call undecided, because the person has
    cancelled or the answer has another form."""
    call_id, hash = reason.tool_call_id, reason.input_hash or None
    content = answer.get("content")
    content = content if isinstance(content, dict) else {}
    match answer.get("action"):
        case "decline":
            return Decision(tool_call_id=call_id, accepted=False, input_hash=hash)
        case "accept" if is_question(reason) and "answer" in content:
            edited: JsonObject = {"answer": _answer_of(content["answer"], reason)}
            return Decision(tool_call_id=call_id, accepted=True, input_hash=hash, edited_input=edited)
        case "accept" if isinstance(approved := content.get("approved"), bool):
            note = content.get("note")
            arguments = content.get("arguments") if approved else None
            if arguments:
                arguments = _object(arguments)
                if arguments is None:
                    return None
            return Decision(
                tool_call_id=call_id,
                accepted=approved,
                input_hash=hash,
                note=note[:NOTE_MAX_CHARACTERS] if isinstance(note, str) and note else None,
                edited_input=arguments or None,
            )
        case _:
            return None


def _answer_of(given: object, reason: PauseReason) -> object:
    """Return an answer in the form that the question needs: fields of the form are texts, so other values are JSON."""
    if isinstance(reason.question, UnsetType) or reason.question.schema is None or not isinstance(given, str):
        return given
    try:
        return decode_any(given)
    except (msgspec.DecodeError, RecursionError):
        return given


def _object(text: object) -> JsonObject | None:
    try:
        found = decode_any(text) if isinstance(text, str) else text
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
