"""The queue of a chat: commands that wait for their turn, in order, priority before all others (PROTOCOL §9).

An interrupting message goes before messages with priority, too. It waits only while accepted previews are carried out.

What waits is a private fact; what people see of it is `queue_updated`, said after every change. Nothing leaves the
queue in silence: a command is taken up (`starts.py`), or ends in a final ack. Bounds are the store's business, which
counts what waits before it accepts.
"""

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from protocol.commands import (
    Command,
    ContinueMessage,
    EditQueued,
    InternalCommand,
    Queueable,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
    encode_command,
)
from protocol.content import content_text, edited, preview_of, read_content
from protocol.errors import BadRequest, NotFound, Refused
from protocol.events import QueuedItem, QueueUpdated
from protocol.facts import CommandEdited, CommandQueued, CommandsDequeued
from protocol.ledger import Ledger
from protocol.principal import Principal
from protocol.state import ChatState, Queued
from protocol.thread import read_patch

__all__ = [
    "cancel",
    "decode_queued",
    "drop",
    "edit_queued",
    "enqueue",
    "interrupts",
    "is_steered",
    "mergeable",
    "say_queue",
]

WithContent: TypeAlias = UserMessage | RetryFromIndex | UpdateMessage

_queued: msgspec.json.Decoder[Queueable] = msgspec.json.Decoder(Queueable)


def decode_queued(item: Queued) -> Queueable:
    return _queued.decode(item.body)


def enqueue(ledger: Ledger, command: Command, by: Principal) -> None:
    """Queue `command` at its place and append the event. An interrupting message gets priority and the head."""
    index = _priority_count(ledger.state) if command.priority else len(ledger.state.private.queue)
    if isinstance(command, UserMessage) and command.interrupt:
        command, index = replace(command, priority=True, interrupt=False), 0
    ledger.note(
        CommandQueued(
            request_id=command.client_request_id,
            principal=by,
            body=encode_command(command).decode(),
            at_ms=ledger.now_ms,
            index=index,
        )
    )
    say_queue(ledger)
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=False)


def _priority_count(state: ChatState) -> int:
    """How many items stand before all others; the queue keeps them first."""
    return sum(1 for item in state.runtime.queued_items if item.priority)


def interrupts(command: Command | InternalCommand | None, state: ChatState) -> bool:
    """Return whether `command` ends the open run so that it, or the waiting command that it names, runs next
    (PROTOCOL §9). False for a command that will be refused, or whose target does not wait any more."""
    if state.private.run is None:
        return False
    try:
        match command:
            case UserMessage(interrupt=True):
                read_content(command.content, command.attachments)
                read_patch(command.params)
                return True
            case EditQueued(interrupt=True):
                _reworded(state, command)
                return True
    except Refused:
        pass
    return False


def cancel(ledger: Ledger, target: str) -> bool:
    """Take one waiting command back; False when it does not wait."""
    waits = any(item.request_id == target for item in ledger.state.private.queue)
    if waits:
        drop(ledger, [target])
    return waits


def drop(ledger: Ledger, request_ids: list[str]) -> None:
    """Take waiting commands out; each ends in a final ack, so that no accepted command just vanishes."""
    dropped = [item for item in ledger.state.private.queue if item.request_id in request_ids]
    ledger.note(CommandsDequeued(request_ids=request_ids))
    say_queue(ledger)
    for item in dropped:
        ledger.refuse(item.request_id, "cancelled", "taken back before it ran", by=item.principal)


def edit_queued(ledger: Ledger, command: EditQueued, by: Principal) -> None:
    """Change the words of a waiting command, or its place among those of its priority; an edit with priority gives the
    command priority, so that it steers, and one with `interrupt` puts it before all others (CMD-17).

    Raises:
        NotFound: it does not wait, or not any more.
        BadRequest: new content for a command that has none.
        InvalidContent, TooLarge: as for a message.
    """
    index, waiting = _reworded(ledger.state, command)
    first = _priority_count(ledger.state)
    if (command.priority or command.interrupt) and not waiting.priority:
        waiting, index, first = replace(waiting, priority=True), first, first + 1
    if command.interrupt:
        index = 0
    elif command.position is not None:
        low, high = (0, first - 1) if waiting.priority else (first, len(ledger.state.private.queue) - 1)
        index = min(max(command.position, low), high)
    body = encode_command(waiting).decode()
    ledger.note(CommandEdited(request_id=command.target_request_id, body=body, index=index))
    say_queue(ledger)
    ledger.accept(command.client_request_id, {"queued": True, "position": index}, by=by, final=True)


def _reworded(state: ChatState, command: EditQueued) -> tuple[int, Queueable]:
    """Return the target's position in the queue, from 0, and the edited command. Raises as `edit_queued` does."""
    queue = state.private.queue
    at = next((i for i, item in enumerate(queue) if item.request_id == command.target_request_id), None)
    if at is None:
        raise NotFound("no such command is waiting; it may have been taken up", path="/target_request_id")
    waiting = decode_queued(queue[at])
    if command.content is not None or command.attachments is not None:
        if not isinstance(waiting, WithContent):
            raise BadRequest("this waiting command has no content to edit", path="/content")
        waiting = _edited(waiting, command)
    return at, waiting


def _edited(waiting: WithContent, command: EditQueued) -> WithContent:
    """Raises InvalidContent, TooLarge."""
    if isinstance(waiting, UpdateMessage) and not isinstance(waiting.content, list):
        # The waiting command may itself edit words or attachments alone: a field that it leaves absent stays absent.
        content = waiting.content if command.content is None else command.content
        is_whole = isinstance(command.content, list)
        attachments = waiting.attachments if command.attachments is None and not is_whole else command.attachments
        if content is not None or attachments:
            read_content([] if content is None else content, attachments or [])
        return replace(waiting, content=content, attachments=attachments)
    now = read_content(waiting.content, waiting.attachments or [])
    content, kept = edited(now, command.content, command.attachments)
    read_content(content, kept)
    return replace(waiting, content=content, attachments=kept)


def mergeable(state: ChatState) -> list[Queued]:
    """What follows the head of the queue and may join its turn: plain user messages (PROTOCOL §9)."""
    if not _is_plain(state.private.queue[0]):
        return []
    joined: list[Queued] = []
    for item in state.private.queue[1:]:
        if not _is_plain(item):
            break
        joined.append(item)
    return joined


def _is_plain(item: Queued) -> bool:
    command = decode_queued(item)
    return isinstance(command, UserMessage) and not (
        command.priority or command.params or command.context or command.interaction
    )


def is_steered(state: ChatState) -> bool:
    """Somebody sent a command with priority that starts a run: the open run gives way at its next step
    (PROTOCOL §9)."""
    queue = state.private.queue
    if not queue or not state.runtime.queued_items[0].priority:
        return False
    command = decode_queued(queue[0])
    return not isinstance(command, UpdateMessage | RemoveMessage) or command.regenerate


def say_queue(ledger: Ledger) -> None:
    """`queue_updated` as the queue now is."""
    items = [_as_item(queued) for queued in ledger.state.private.queue]
    ledger.say(QueueUpdated(len(items), items))


def _as_item(queued: Queued) -> QueuedItem:
    command = decode_queued(queued)
    preview, content = _shown(command)
    kind = str(type(command).__struct_config__.tag)
    return QueuedItem(queued.request_id, command.priority, kind, preview, content)


def _shown(command: Queueable) -> tuple[str, str]:
    match command:
        case UserMessage() | RetryFromIndex() | UpdateMessage():
            return preview_of(command.content), content_text(command.content)
        case Regenerate():
            return "regenerate", ""
        case RemoveMessage():
            return "remove a message", ""
        case ContinueMessage():
            return "continue", ""
