"""The last word on a run's answers: markers out of the text, suggestions and payloads on the messages (EVT-18, PAY-3).

Pure. The raw text was streamed and stands in the log; what people keep is the cleaned one, and the raw one is a fact
for who may look at traces (DIAG-2). Where there is nothing to clean or to add, nothing is said; so a run that goes on
with an answer cleaned before finds no marker in it any more.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from protocol.events import MessageUpdated, PayloadAdded
from protocol.facts import AnswerCleaned
from protocol.ledger import Ledger
from protocol.messages import JsonObject, Message
from protocol.runtime import context_use
from protocol.state import ChatState, RawAnswer
from server.agent.answer.markers import Accepts, Found, cut_out
from server.agent.answer.suggestions import suggested_actions, suggested_values
from server.agent.place.payload_types import Action, PayloadType, problem_with, summary_of

__all__ = ["CONTEXT_WARN_RATIO", "Vocabulary", "say_final_word"]

CONTEXT_WARN_RATIO = 0.7
"""Of the model's window in use, from which on people are warned, unless a profile says otherwise (HIST-7)."""

VALUES, ACTIONS = "SUGGESTED_VALUES", "SUGGESTED_ACTIONS"


class Vocabulary(Protocol):
    """What answers may hold besides text in a chat's place, and when to warn of a full window."""

    @property
    def payload_types(self) -> Mapping[str, PayloadType]: ...

    @property
    def actions(self) -> Mapping[str, Action]: ...

    @property
    def context_warn_ratio(self) -> float: ...


def say_final_word(ledger: Ledger, table: Vocabulary) -> None:
    """For each answer of the run that becomes another by it: its payloads, then one `message_updated`."""
    run = ledger.state.private.run
    if run is None:
        return
    of_run = ledger.state.path[run.first_index :]
    by_tools = {
        payload.payload_type
        for payload in ledger.state.payloads
        if payload.message_id in set(of_run) and payload.source != "llm"
    }
    for key in of_run:
        message = ledger.state.nodes[key]
        if message.role == "assistant" and isinstance(message.content, str):
            final = _cleaned(ledger, message, message.content, table, by_tools)
            if key == of_run[-1]:
                final = _with_all_of_run(ledger.state, final, set(of_run), table.context_warn_ratio)
            if final != message:
                ledger.say(MessageUpdated(key, final))


def _cleaned(ledger: Ledger, message: Message, raw: str, table: Vocabulary, by_tools: set[str]) -> Message:
    kinds = {kind.marker: kind for kind in table.payload_types.values() if kind.marker}
    markers: dict[str, Accepts] = {marker: partial(_fits, kind) for marker, kind in kinds.items()}
    text, found = cut_out(raw, {VALUES: _anything, ACTIONS: _anything, **markers})
    if not found:
        return message
    actions, dropped_count = suggested_actions(_after(ACTIONS, found), table.actions)
    ledger.note(AnswerCleaned(message_id=message.message_id, raw=RawAnswer(raw, dropped_count)))
    payload_ids: list[str] = []
    for marker, value in found:
        kind = kinds.get(marker)
        if kind is not None and kind.name not in by_tools and isinstance(value, dict):  # the tool's own word counts
            payload_ids.append(_publish(ledger, kind, value, message.message_id))
    return replace(
        message,
        content=text,
        suggested_values=suggested_values(_after(VALUES, found)) or message.suggested_values,
        suggested_actions=actions or message.suggested_actions,
        payloads=[*message.payloads, *payload_ids],
    )


def _publish(ledger: Ledger, kind: PayloadType, data: JsonObject, message_id: str) -> str:
    payload_id = ledger.new_id("pl")
    ledger.say(
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


def _with_all_of_run(state: ChatState, answer: Message, of_run: set[str], warn_ratio: float) -> Message:
    """The last answer names every payload of its run, in order, the last one to be shown first (PAY-4)."""
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
