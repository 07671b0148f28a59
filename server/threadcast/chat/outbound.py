"""Records outbound messages to other chats in the same log entry as their cause (decision 0012).

`owe` records a message. The owner of the chat delivers the message after the commit (`actor/outbox_sender.py`) and
records the delivery; a new owner delivers the remaining messages. Receivers are chats of the same principal. One append
stores an effect and its outbound messages, so the log has both the effect and the messages or neither of them. All
functions are pure.
"""

from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.internal_commands import InternalCommand, StopSubchat, SubchatFinished
from threadcast.chat.relations import CallClosed, Child, OutboundMessage, OutboundQueued, ParentTold
from threadcast_protocol.wire.commands import encode_command
from threadcast_protocol.wire.messages import text_of

__all__ = [
    "OPENING_MAX_OUTBOUND",
    "OUTBOX_MAX",
    "REPORT_MAX_CHARACTERS",
    "close_children",
    "deleted",
    "owe",
    "stop",
    "tell_parent",
]

OPENING_MAX_OUTBOUND = 32
"""No child is opened while the chat has this many undelivered messages. So many undelivered messages mean that another
chat or the store does not respond."""

OUTBOX_MAX = 64
"""The maximum number of undelivered messages. The code needs no check of this limit, because no child is opened after
OPENING_MAX_OUTBOUND messages. Each of the 16 running children may then need one message to stop, and the chat sends one
message to its parent."""

REPORT_MAX_CHARACTERS = 64_000
"""The maximum length of a child's last answer in its report to the parent, which is enough for a long document. The
child's own log has the whole answer."""


def owe(builder: EntryBuilder, chat_id: str, command: InternalCommand, *, creates: bool = False) -> None:
    """Record that `command` must be posted to another chat. The request id of the command identifies the outbound
    message. With `creates`, the message may create the chat."""
    relations = builder.state.private.relations
    outbound_id = command.client_request_id
    if any(message.outbound_id == outbound_id for message in relations.outbox):
        return
    body = encode_command(command).decode()
    builder.note(
        OutboundQueued(message=OutboundMessage(outbound_id=outbound_id, chat_id=chat_id, body=body, creates=creates))
    )


def tell_parent(builder: EntryBuilder, outcome: str, error: str | None = None) -> None:
    """Report the end of a sub-chat to its parent. The sub-chat must have no open run. Only the first end is reported,
    because later runs are started by users."""
    state = builder.state
    parent = state.private.relations.parent
    if parent is None or parent.is_told:
        return
    builder.note(ParentTold())
    leaf = state.leaf
    answer = leaf if leaf is not None and leaf.role == "assistant" else None
    text = error or (text_of(answer.content) if answer is not None else "")
    finished = _finished(state.chat_id, outcome, text, answer.message_id if answer else None)
    owe(builder, parent.chat_id, replace(finished, tainted_by=list(state.private.tainted_by)))


def _finished(chat_id: str, outcome: str, text: str, message_id: str | None) -> SubchatFinished:
    if len(text) > REPORT_MAX_CHARACTERS:
        text = f"{text[:REPORT_MAX_CHARACTERS]}\n[cut: {len(text)} characters in all, in chat {chat_id}]"
    return SubchatFinished(
        client_request_id=f"finished:{chat_id}",
        subchat_id=chat_id,
        outcome=outcome,
        text=text,
        message_id=message_id,
    )


def stop(child: Child) -> StopSubchat:
    """Return the command that stops `child`."""
    return StopSubchat(client_request_id=f"stop:{child.chat_id}")


def close_children(builder: EntryBuilder, tool_call_id: str) -> None:
    """Stop the running children of a call that was answered. Children in the background continue."""
    mine = [child for child in builder.state.private.relations.children if child.tool_call_id == tool_call_id]
    for child in mine:
        if child.outcome is None and not child.is_background:
            owe(builder, child.chat_id, stop(child))
    if mine:
        builder.note(CallClosed(tool_call_id=tool_call_id))


def deleted(chat_id: str) -> SubchatFinished:
    """Return the report to the parent of a deleted chat. A parent that already has a report of this chat ignores the
    second report."""
    return _finished(chat_id, "aborted", "The chat was deleted.", None)
