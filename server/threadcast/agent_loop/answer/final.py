"""Cleans a run's answers at its end: removes markers from the texts, and adds suggestions and payloads to the messages
(EVT-18, PAY-3).

Pure. The raw text was streamed; the message keeps the cleaned text, and a private fact keeps the raw text for traces
(DIAG-2). An answer without markers is not changed, so cleaning twice has no further effect.
"""

from functools import partial

from msgspec.structs import replace

from threadcast.agent_loop.answer.markers import Accepts, Found, cut_out
from threadcast.agent_loop.answer.suggestions import suggested_actions, suggested_values
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import AnswerCleaned
from threadcast.chat.owner_state import OwnerState, RawAnswer
from threadcast.chat.runtime import context_use
from threadcast.profiles.payload_types import PayloadType, problem_with, summary_of
from threadcast.profiles.profile import ChatTools
from threadcast_protocol.wire.events import MessageUpdated, PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["say_final_word"]

VALUES, ACTIONS = "SUGGESTED_VALUES", "SUGGESTED_ACTIONS"


def say_final_word(builder: EntryBuilder, table: ChatTools) -> None:
    """Clean each answer of the run. For each answer, add the events of its payloads, and then one `message_updated` if
    the message has changed."""
    run = builder.state.private.run
    if run is None:
        return
    of_run = builder.state.path[run.first_index :]
    by_tools = {
        payload.payload_type
        for payload in builder.state.payloads
        if payload.message_id in set(of_run) and payload.source != "llm"
    }
    for key in of_run:
        message = builder.state.nodes[key]
        if message.role == "assistant" and isinstance(message.content, str):
            final = _cleaned(builder, message, message.content, table, by_tools)
            if key == of_run[-1]:
                final = _with_all_of_run(builder.state, final, set(of_run), table.profile.context_warn_ratio)
            if final != message:
                builder.say(MessageUpdated(key, final))


def _cleaned(builder: EntryBuilder, message: Message, raw: str, table: ChatTools, by_tools: set[str]) -> Message:
    kinds = {kind.marker: kind for kind in table.profile.payload_types.values() if kind.marker}
    markers: dict[str, Accepts] = {marker: partial(_fits, kind) for marker, kind in kinds.items()}
    text, found = cut_out(raw, {VALUES: _anything, ACTIONS: _anything, **markers})
    if not found:
        return message
    actions, dropped_count = suggested_actions(_after(ACTIONS, found), table.profile.actions)
    builder.note(AnswerCleaned(message_id=message.message_id, raw=RawAnswer(raw, dropped_count)))
    payload_ids: list[str] = []
    for marker, value in found:
        kind = kinds.get(marker)
        if kind is not None and kind.name not in by_tools and isinstance(value, dict):  # no tool has shown this type
            payload_ids.append(_publish(builder, kind, value, message.message_id))
    return replace(
        message,
        content=text,
        suggested_values=suggested_values(_after(VALUES, found)) or message.suggested_values,
        suggested_actions=actions or message.suggested_actions,
        payloads=[*message.payloads, *payload_ids],
    )


def _publish(builder: EntryBuilder, kind: PayloadType, data: JsonObject, message_id: str) -> str:
    payload_id = builder.new_id("pl")
    builder.say(
        PayloadAdded(
            payload_id=payload_id,
            payload_type=kind.name,
            data=data,
            summary=summary_of(kind, kind.name, data),
            source="llm",
            message_id=message_id,
        )
    )
    return payload_id


def _with_all_of_run(state: OwnerState, answer: Message, of_run: set[str], warn_ratio: float) -> Message:
    """Return the last answer with the ids of all payloads of its run, in order. The newest payload is the active
    payload, which clients show first (PAY-4)."""
    payloads = [payload.payload_id for payload in state.payloads if payload.message_id in of_run]
    use = context_use(state)
    is_tight = use is not None and use.total is not None and use.used >= warn_ratio * use.total
    return replace(
        answer,
        payloads=payloads,
        active_payload_id=payloads[-1] if payloads else None,
        warning="The conversation fills most of the model's window; begin a new one soon." if is_tight else None,
    )


def _fits(kind: PayloadType, value: object) -> bool:
    return not problem_with(kind, value)


def _anything(_: object) -> bool:
    return True


def _after(marker: str, found: list[Found]) -> list[object]:
    return [each.value for each in found if each.marker == marker]
