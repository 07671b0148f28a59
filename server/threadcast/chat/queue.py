"""Manages the queue of a chat's waiting commands (PROTOCOL §9). Commands with priority come first. Otherwise commands
keep the order of their arrival until an edit moves them.

An interrupting message is inserted before all other commands, and waits only while accepted previews are carried out.

The full commands are private facts; clients see the queue in `queue_updated`, which follows every change. A command
leaves the queue only when it is started (`starts.py`) or refused by a final negative ack. The store limits the length
of the queue by counting the waiting commands before it accepts another command.
"""

from collections.abc import Collection
from itertools import takewhile
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import CommandEdited, CommandQueued, CommandsDequeued
from threadcast.chat.internal_commands import InternalCommand
from threadcast.chat.owner_state import OwnerState, Queued
from threadcast_protocol.wire.commands import (
    Command,
    ContinueMessage,
    EditQueued,
    Queueable,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
    encode_command,
)
from threadcast_protocol.wire.content import edited, read_content
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest, NotFound, Refused
from threadcast_protocol.wire.events import QueuedItem, QueueUpdated
from threadcast_protocol.wire.messages import content_text, preview_of
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import read_patch

__all__ = [
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

_queued: msgspec.json.Decoder[Queueable] = decoder(Queueable)


def decode_queued(item: Queued) -> Queueable:
    """Decode the command of a waiting item."""
    return _queued.decode(item.body)


def enqueue(builder: EntryBuilder, command: Command, by: Principal) -> None:
    """Insert `command` into the queue. An interrupting message gets priority and becomes the first command."""
    index = _priority_count(builder.state) if command.priority else len(builder.state.private.queue)
    if isinstance(command, UserMessage) and command.interrupt:
        command, index = replace(command, priority=True, interrupt=False), 0
    builder.note(
        CommandQueued(
            request_id=command.client_request_id,
            principal=by,
            body=encode_command(command).decode(),
            at_ms=builder.now_ms,
            index=index,
        )
    )
    say_queue(builder)
    builder.accept(command.client_request_id, {"queued": True}, by=by, final=False)


def _priority_count(state: OwnerState) -> int:
    """Return the number of commands with priority, which are always first in the queue."""
    return sum(1 for item in state.runtime.queued_items if item.priority)


def interrupts(command: Command | InternalCommand | None, state: OwnerState) -> bool:
    """Return whether `command` interrupts the open run (PROTOCOL §9). After the interruption, the command itself, or
    the waiting command that it names, runs next. Returns False if the command will be refused, or if its target no
    longer waits."""
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


def drop(builder: EntryBuilder, request_ids: Collection[str] | None = None) -> bool:
    """Remove the waiting commands with these request ids, or all waiting commands; return whether any command was
    removed.

    Each removed command gets a final negative ack, so that no accepted command remains without a final ack.
    """
    queue = builder.state.private.queue
    dropped = [item for item in queue if request_ids is None or item.request_id in request_ids]
    if dropped:
        builder.note(CommandsDequeued(request_ids=[item.request_id for item in dropped]))
        say_queue(builder)
    for item in dropped:
        builder.refuse(item.request_id, "cancelled", "withdrawn before it ran", by=item.principal)
    return bool(dropped)


def edit_queued(builder: EntryBuilder, command: EditQueued, by: Principal) -> None:
    """Change the content of a waiting command, or its place among the commands with the same priority (CMD-17). An edit
    with priority gives the command priority; an edit with `interrupt` makes it the first command.

    Raises:
        NotFound: the command to edit is not in the queue, or is no longer there.
        BadRequest: the edit has new content, but the command has no content.
        InvalidContent, TooLarge: the new content is invalid or too large. The rules are those for messages.
    """
    index, waiting = _reworded(builder.state, command)
    first = _priority_count(builder.state)
    if (command.priority or command.interrupt) and not waiting.priority:
        waiting, index, first = replace(waiting, priority=True), first, first + 1
    if command.interrupt:
        index = 0
    elif command.position is not None:
        low, high = (0, first - 1) if waiting.priority else (first, len(builder.state.private.queue) - 1)
        index = min(max(command.position, low), high)
    body = encode_command(waiting).decode()
    builder.note(CommandEdited(request_id=command.target_request_id, body=body, index=index))
    say_queue(builder)
    builder.accept(command.client_request_id, {"queued": True, "position": index}, by=by, final=True)


def _reworded(state: OwnerState, command: EditQueued) -> tuple[int, Queueable]:
    """Return the target's position in the queue, from 0, and the edited command. Raises the same errors as
    `edit_queued`."""
    queue = state.private.queue
    at = next((i for i, item in enumerate(queue) if item.request_id == command.target_request_id), None)
    if at is None:
        raise NotFound("no such command is waiting; it may have started already", path="/target_request_id")
    waiting = decode_queued(queue[at])
    if command.content is not None or command.attachments is not None:
        if not isinstance(waiting, WithContent):
            raise BadRequest("this waiting command has no content to edit", path="/content")
        waiting = _edited(waiting, command)
    return at, waiting


def _edited(waiting: WithContent, command: EditQueued) -> WithContent:
    """Return the command with its new content. Raises InvalidContent, TooLarge."""
    if isinstance(waiting, UpdateMessage) and not isinstance(waiting.content, list):
        # An update may change only the text or only the attachments. The other field of the update is absent and stays
        # absent.
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


def mergeable(state: OwnerState) -> list[Queued]:
    """Return the commands that can be merged with the first command into one run. Only plain user messages can be
    merged (PROTOCOL §9)."""
    first, *others = state.private.queue
    return list(takewhile(_is_plain, others)) if _is_plain(first) else []


def _is_plain(item: Queued) -> bool:
    command = decode_queued(item)
    return isinstance(command, UserMessage) and not (
        command.priority or command.params or command.context or command.interaction
    )


def is_steered(state: OwnerState) -> bool:
    """Return whether the first waiting command has priority and starts a run. The open run then ends at its next step
    (PROTOCOL §9)."""
    queue = state.private.queue
    if not queue or not state.runtime.queued_items[0].priority:
        return False
    command = decode_queued(queue[0])
    return not isinstance(command, UpdateMessage | RemoveMessage) or command.regenerate


def say_queue(builder: EntryBuilder) -> None:
    """Add a `queue_updated` event with the present queue."""
    items = [_as_item(queued) for queued in builder.state.private.queue]
    builder.say(QueueUpdated(len(items), items))


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
