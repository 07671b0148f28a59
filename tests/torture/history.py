"""Reads one chat's whole log for the verdict: the chain of its entries, each event, and each claim.

The module folds with the product's reducer, as clients do, but has separate code for the chain, the acks and the
answers' texts.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

import msgspec

from tests.torture.answers import expected_text
from tests.torture.evidence import ChatEvidence, InboxId
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_facts
from threadcast.chat.facts import Progressed, RunStarted
from threadcast.chat.relations import ChildEnded
from threadcast.store.load import NewerVersion, fold_loaded
from threadcast_protocol.fold.reducer import Gap, reduce_event
from threadcast_protocol.fold.snapshot import active_path, snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import ChatState, empty_state
from threadcast_protocol.framing.codec import decode_events, encode
from threadcast_protocol.wire.events import (
    Ack,
    BranchSelected,
    Event,
    IdeToolRequired,
    MessageAdded,
    StreamStarted,
    SubchatUpdate,
    ThreadUpdated,
    ToolStatus,
)
from threadcast_protocol.wire.messages import FilePart, Message, text_of

__all__ = ["NOTE_KEY", "Reading", "Result", "read_history"]

NOTE_KEY = "note"
"""The key of the thread's metadata in which a `set_params` leaves its request id."""

DEATHS_OF_POISON = 3
"""After this many takeovers in a row without progress, the first command is given up (PROTOCOL §18)."""


class Result(NamedTuple):
    """A tool message."""

    call_id: str
    tool_name: str
    text: str
    has_failed: bool
    was_asked: bool = False
    """Whether a client was asked for the call. An interrupted call that no client was asked for fails."""


class Reading(msgspec.Struct, kw_only=True):
    """The content of a log.

    Some fields are keyed by request id: `said` holds the messages that the command added, `acks` its acks, `runs` the
    number of runs that it began, `notes` the number of times that its parameters were set, and `files` the hash of its
    blob. `given_up` holds the request ids that were refused as poison. `taken_up` lists all request ids in the order of
    their first acks; `spoken` lists them in the order of their first user messages. `deaths` counts takeovers since the
    chat last made progress. `wrong` lists impossible contents, each as a kind and a sentence.

    For tools, `results` holds all tool messages by id, `done_calls` the calls of our counting tools that gave a result,
    `required` the number of times that a client was asked for a call, and `asked_calls` the calls of the newest message
    that names their id (a model may reuse an id). `claims` holds the claimants of a call with the end of each claim;
    the pair ("", 0) marks each request of the call.

    For sub-chats, `children` maps a sub-chat's id to its call, `answers` holds the results of these calls, and `ended`
    the ends of sub-chats as reported to the parent, as (outcome, text).
    """

    chat_id: str
    accepted: dict[str, InboxId] = {}
    position: int = 0
    snapshot: bytes = b""
    state: str = ""
    queue: int = 0
    said: dict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    acks: dict[str, list[bool]] = msgspec.field(default_factory=lambda: defaultdict(list))
    given_up: set[str] = set()
    taken_up: list[str] = []
    spoken: list[str] = []
    runs: Counter[str] = msgspec.field(default_factory=Counter)
    notes: Counter[str] = msgspec.field(default_factory=Counter)
    codes: Counter[str] = msgspec.field(default_factory=Counter)
    fences: Counter[str] = msgspec.field(default_factory=Counter)
    deaths: int = 0
    answers_count: int = 0
    done_calls: set[str] = msgspec.field(default_factory=set)
    tool_names: dict[str, str] = {}
    results: dict[str, Result] = {}
    answers: dict[str, Result] = {}
    required: Counter[str] = msgspec.field(default_factory=Counter)
    asked_calls: set[str] = msgspec.field(default_factory=set)
    claims: dict[str, list[tuple[str, int]]] = msgspec.field(default_factory=lambda: defaultdict(list))
    children: dict[str, str] = {}
    ended: dict[str, list[tuple[str, str]]] = msgspec.field(default_factory=lambda: defaultdict(list))
    files: dict[str, str] = {}
    last_text: str = ""
    wrong: list[tuple[str, str]] = []


def read_history(chat: ChatEvidence) -> Reading:
    """Read the content of this log, and its broken promises."""
    reading = Reading(chat_id=chat.chat_id, accepted=chat.accepted)
    state, head = empty_state(chat.chat_id), ""
    asked: dict[str, list[list[Message]]] = defaultdict(list)
    halfway: ChatState | None = None
    for number, entry in enumerate(chat.entries):
        if entry.before != head:
            reading.wrong.append(("hole", f"entry {entry.entry_id} follows {entry.before!r}, not {head!r}"))
            return reading
        events = decode_events(entry.events)
        if entry.position != state.position + len(events):
            reading.wrong.append(("hole", f"entry {entry.entry_id} ends at {entry.position}, not where it counts to"))
            return reading
        for event in events:
            _note(reading, state, event, asked)
            state = reduce_event(state, event)
        _note_facts(reading, entry)
        state, head = msgspec.structs.replace(state, position=entry.position), entry.head
        # A reader knows only a part of the tree, so it receives a snapshot when the chat changes to another branch.
        is_new = halfway is not None and any(isinstance(event, BranchSelected) for event in events)
        if number == len(chat.entries) // 2 or is_new:
            halfway = state_from_snapshot(chat.chat_id, snapshot_of(state), state.position)
    reading.position = state.position
    reading.snapshot = encode(snapshot_of(state))
    reading.last_text = text_of(state.leaf.content) if state.leaf is not None else ""
    reading.state, reading.queue = state.runtime.state, state.runtime.queue_size
    _compare(reading, chat, halfway)
    return reading


def _compare(reading: Reading, chat: ChatEvidence, halfway: ChatState | None) -> None:
    """Compare the owner's state, the law and the answer of HTTP with the fold of all entries."""
    try:
        owner = encode(snapshot_of(fold_loaded(chat.chat_id, chat.loaded, with_facts=True)))
    except (Gap, NewerVersion) as wrong:
        reading.wrong.append(("hole", f"its owner could not read it: {wrong}"))
        return
    if owner != reading.snapshot:
        reading.wrong.append(("diverged", "checkpoint and entries fold to another state than the whole log"))
    if chat.http_snapshot != reading.snapshot:
        reading.wrong.append(("diverged", "the snapshot over HTTP is not the fold of the log"))
    if halfway is not None:
        start = halfway.position
        for entry in chat.entries:
            if entry.position > start:
                for event in decode_events(entry.events):
                    halfway = reduce_event(halfway, event)
        if encode(snapshot_of(halfway)) != reading.snapshot:
            reading.wrong.append(("law", f"the snapshot at {start} and the events after it are not the final state"))


def _note(reading: Reading, state: ChatState, event: Event, asked: dict[str, list[list[Message]]]) -> None:
    """Note the event. `asked` holds the paths that each answer was asked with: more than one if its question was edited
    before it was continued."""
    match event:
        case Ack():
            if event.client_request_id not in reading.acks:
                reading.taken_up.append(event.client_request_id)
            reading.acks[event.client_request_id].append(event.accepted)
            if not event.accepted:
                reading.codes[str(event.result.get("code"))] += 1
                if event.result.get("code") == "poison":
                    _note_given_up(reading, event.client_request_id)
        case ThreadUpdated() if isinstance(event.metadata, dict) and isinstance(event.metadata.get(NOTE_KEY), str):
            reading.notes[event.metadata[NOTE_KEY]] += 1
        case StreamStarted():
            asked[event.message_id].append(active_path(state))
        case MessageAdded(message=message):
            if message.role == "user" and message.client_request_id is not None:
                if message.client_request_id not in reading.said:
                    reading.spoken.append(message.client_request_id)
                reading.said[message.client_request_id].add(message.message_id)
                _note_files(reading, message, message.client_request_id)
            elif message.role == "tool" and message.tool_call_id is not None:
                _note_result(reading, message, message.tool_call_id)
            elif message.role == "assistant":
                reading.tool_names.update({call.id: call.function.name for call in message.tool_calls})
                reading.asked_calls.difference_update(call.id for call in message.tool_calls)
                if message.message_id in asked:
                    _check_answer(reading, message, asked[message.message_id])
                else:  # an import brought it
                    asked[message.message_id].append(active_path(state))
        case IdeToolRequired():
            reading.required[event.tool_call_id] += 1
            reading.asked_calls.add(event.tool_call_id)
            reading.claims[event.tool_call_id].append(("", 0))
        case ToolStatus() if event.claimed_by is not None and event.claim_expires_at is not None:
            reading.claims[event.tool_call_id].append((event.claimed_by, event.claim_expires_at))
        case SubchatUpdate():
            reading.children[event.subchat_id] = event.tool_call_id
        case _:
            pass


def _note_given_up(reading: Reading, request_id: str) -> None:
    reading.given_up.add(request_id)
    if reading.deaths < DEATHS_OF_POISON:
        words = f"{request_id} was given up after {reading.deaths} takeovers"
        reading.wrong.append(("poison", words))


def _note_files(reading: Reading, message: Message, request_id: str) -> None:
    for part in message.content if not isinstance(message.content, str) else ():
        if isinstance(part, FilePart) and part.blob is not None:
            reading.files[request_id] = part.blob


def _note_result(reading: Reading, message: Message, call_id: str) -> None:
    name = reading.tool_names.get(call_id, "")
    was_asked = call_id in reading.asked_calls
    result = Result(call_id, name, text_of(message.content), bool(message.tool_failed), was_asked)
    if message.message_id not in reading.results:  # the message may return to the path when its sibling is removed
        reading.results[message.message_id] = result
        waiting = [key for key, by in reading.children.items() if by == call_id and key not in reading.answers]
        reading.answers.update(dict.fromkeys(waiting, result))
    if name.startswith("count_") and not message.tool_failed:
        reading.done_calls.add(call_id)


def _check_answer(reading: Reading, message: Message, asked: list[list[Message]]) -> None:
    """Check the texts of answers: a finished answer is exactly the model's text, a broken answer is a beginning of that
    text."""
    said, texts = text_of(message.content), [expected_text(message.model or "", path) for path in asked]
    wanted = [text for text in texts if text is not None]
    reading.answers_count += 1
    if not wanted:
        reading.wrong.append(("text", f"{message.message_id} is by {message.model!r}, whom nobody asked"))
        return
    is_whole = message.finish_reason in ("stop", "tool_calls") and message.status is None
    if not any(said == text if is_whole else text.startswith(said) for text in wanted):
        words = " or ".join(repr(text[:200]) for text in dict.fromkeys(wanted))
        reading.wrong.append(
            ("text", f"{message.message_id} ({message.finish_reason}) says {said[:200]!r}, not {words}")
        )


def _note_facts(reading: Reading, entry: RawEntry) -> None:
    if entry.fence is not None:
        reading.fences[entry.fence.why] += 1
        reading.deaths += entry.fence.why == "takeover"
    for fact in decode_facts(entry.facts) if entry.facts else ():
        if isinstance(fact, RunStarted):
            reading.runs.update(fact.request_ids)
        elif isinstance(fact, ChildEnded):
            reading.ended[fact.chat_id].append((fact.outcome, fact.text))
        elif isinstance(fact, Progressed):
            reading.deaths = 0
