"""Fills a new chat with a copy of another chat's path, or with messages from a client (CMD-12).

The commands `branch_from_chat` and `restore_messages` take effect at once and do not wait in the queue, so that the
next command already finds the messages. The caller has loaded the source chat and checked its owner. `restores.py`
checks messages from clients. All functions are pure.

The writer divides a large copy into several entries (`actor/copy_parts.py`). If a worker dies between two of them, the
next owner first removes the messages that have arrived. It then carries the command out anew, which is still the first
in the inbox, unless the store has lost it.
"""

import msgspec
from msgspec.structs import replace

from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import ArgumentsHidden, ImportGoesOn, ResultWithheld
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.restores import read_messages
from threadcast.chat.starts import birth, first_line
from threadcast.chat.taint import note_restored, note_untrusted
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.fold.tree import way_to
from threadcast_protocol.wire.blobs import attachments_of, move_to
from threadcast_protocol.wire.commands import BranchFromChat, RestoreMessages
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import Conflict, NotFound
from threadcast_protocol.wire.events import MessageRemoved, ThreadUpdated
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import Thread, ThreadPatch, differences

__all__ = ["branch_from", "copy_id", "drop_copy", "has_unfinished_copy", "restore"]

_COPY = "copy:"

_messages: msgspec.json.Decoder[Message] = decoder(Message)


def copy_id(request_id: str) -> str:
    """Return the `import_id` of the copy that a command makes. The ids of imports never begin in this way."""
    return f"{_COPY}{request_id}"


def has_unfinished_copy(state: OwnerState) -> bool:
    """Whether a worker has begun to copy messages into the chat and has not completed the copy."""
    going = state.private.importing
    return going is not None and going.import_id.startswith(_COPY)


def drop_copy(builder: EntryBuilder) -> None:
    """Remove the messages of an unfinished copy, and what is withheld of them."""
    going = builder.state.private.importing
    if going is not None:
        if builder.state.path:
            builder.say(MessageRemoved(builder.state.path[0]))
        builder.note(ImportGoesOn(import_id=going.import_id, next_part=0, is_dropped=True))


def branch_from(builder: EntryBuilder, command: BranchFromChat, by: Principal, source: OwnerState | None) -> None:
    """Copy the path of `source` up to the command's message, with new ids. `source` is None if the caller has no chat
    with the command's `source_chat_id`.

    Raises:
        Conflict: this chat has messages, or the source chat is not complete.
        NotFound: the source chat does not exist, or has no such message.
    """
    _must_be_empty(builder.state)
    if source is None:
        raise NotFound("there is no such chat to branch from", path="/source_chat_id")
    if source.private.importing is not None:
        raise Conflict("the source chat is not complete yet; branch it when all its messages have arrived")
    way = way_to(source.nodes, command.up_to_message_id)
    if not way:
        raise NotFound("the source chat has no such message", path="/up_to_message_id")
    shown = {message.message_id: message for message in active_path(source)}  # the copy includes the text of a draft
    changes: JsonObject = {
        **differences(source.thread, Thread(id=source.chat_id), ThreadPatch.__struct_fields__),
        **birth(builder, by),
        "parent_id": source.chat_id,
        "link_type": "branch",
        "root_chat_id": source.thread.root_chat_id or source.chat_id,
        "forked_from": {"chat_id": source.chat_id, "message_id": command.up_to_message_id},
    }
    builder.say(ThreadUpdated(**changes))
    copies: list[Message] = []
    for key in way:
        message = shown.get(key, source.nodes[key])
        if source.draft is not None and key == source.draft.message.message_id:
            message = replace(message, finish_reason="abort", status="partial", tool_calls=[])
        here = _moved(message, builder.state.chat_id)
        copies.append(replace(here, message_id=builder.new_id("msg"), payloads=[], active_payload_id=None))
    builder.begin_with(copies, command.client_request_id)
    for key, copy in zip(way, copies, strict=True):
        _take_what_is_private(builder, source, key, copy)
    note_untrusted(builder, source.private.tainted_by)
    builder.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _take_what_is_private(builder: EntryBuilder, source: OwnerState, key: str, copy: Message) -> None:
    """Copy the private content of the message `key`, which models read and clients do not see."""
    withheld = source.private.withheld.get(key)
    if withheld is not None:
        builder.note(ResultWithheld(message_id=copy.message_id, content=withheld))
    for call in copy.tool_calls:
        arguments = source.private.hidden_arguments.get(call.id)
        if arguments is not None:
            builder.note(ArgumentsHidden(tool_call_id=call.id, arguments=arguments))


def _moved(message: Message, chat_id: str) -> Message:
    """Return `message` with its blob references changed to the chat `chat_id`. The actor has copied the blobs to this
    chat."""
    if isinstance(message.content, str) and not message.attachments:
        return message
    return _messages.decode(move_to(chat_id, msgspec.json.encode(message)))


def restore(builder: EntryBuilder, command: RestoreMessages, by: Principal, rules: ApprovalRules) -> None:
    """Fill the chat with the messages of the command. `rules` say which content is untrusted.

    Raises:
        Conflict: this chat has messages.
        BadRequest, TooLarge: `read_messages` refuses a message.
    """
    _must_be_empty(builder.state)
    messages = read_messages(command.messages)
    title = first_line(messages[0]) if messages and builder.state.thread.title == Thread(id="-").title else ""
    changes: JsonObject = {**birth(builder, by), **({"title": title} if title else {})}
    builder.say(ThreadUpdated(**changes))
    used: set[str] = set()
    restored: list[Message] = []
    for message in messages:
        keeps_id = message.message_id and message.message_id not in used
        message_id = message.message_id if keeps_id else builder.new_id("msg")
        used.add(message_id)
        attachments = attachments_of(message.content, builder.state.chat_id)
        born_at = message.created_at or builder.now_ms
        restored.append(replace(message, message_id=message_id, attachments=attachments, created_at=born_at))
    builder.begin_with(restored, command.client_request_id)
    note_restored(builder, restored, rules)
    builder.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _must_be_empty(state: OwnerState) -> None:
    if state.nodes or state.private.run is not None or state.private.queue:
        raise Conflict("this chat has messages already; choose a new chat_id")
