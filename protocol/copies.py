"""A chat that begins with another one's words: fork of a path, and messages handed back by a client (CMD-12).

Both fill a chat that has none yet, at once and not through the queue, so that what is posted next already follows on
them. Where the source comes from and whose it is was looked up before, what a client hands back is read by
`restores.py`; what stands here is pure.
"""

import msgspec
from msgspec.structs import replace

from protocol.blobs import attachments_of, move_to
from protocol.commands import BranchFromChat, RestoreMessages
from protocol.errors import Conflict, NotFound
from protocol.events import ThreadUpdated
from protocol.facts import ArgumentsHidden, ResultWithheld
from protocol.ledger import Ledger, shown_name
from protocol.messages import JsonObject, Message
from protocol.principal import Principal
from protocol.restores import read_messages
from protocol.snapshot import active_path
from protocol.starts import first_line
from protocol.state import ChatState
from protocol.thread import Thread, ThreadPatch
from protocol.tree import way_to

__all__ = ["branch_from", "restore"]


def branch_from(ledger: Ledger, command: BranchFromChat, by: Principal, source: ChatState | None) -> None:
    """Copy the path up to a message of `source` under new ids. `source` None: no such chat of this caller.

    Raises:
        Conflict: this chat has messages.
        NotFound: no such chat, or no such message in it.
    """
    _must_be_empty(ledger.state)
    if source is None:
        raise NotFound("there is no such chat to branch from", path="/source_chat_id")
    way = way_to(source.nodes, command.up_to_message_id)
    if not way:
        raise NotFound("the source chat has no such message", path="/up_to_message_id")
    shown = {message.message_id: message for message in active_path(source)}  # an unfinished answer as it now is
    taken = {
        key: value
        for key in ThreadPatch.__struct_fields__
        if (value := getattr(source.thread, key)) != getattr(Thread(id=source.chat_id), key)
    }
    changes: JsonObject = {
        **taken,
        **_birth(ledger, by),
        "parent_id": source.chat_id,
        "link_type": "branch",
        "root_chat_id": source.thread.root_chat_id or source.chat_id,
        "forked_from": {"chat_id": source.chat_id, "message_id": command.up_to_message_id},
    }
    ledger.say(ThreadUpdated(**changes))
    copies: list[Message] = []
    for key in way:
        message = shown.get(key, source.nodes[key])
        if source.draft is not None and key == source.draft.message.message_id:
            message = replace(message, finish_reason="abort", status="partial", tool_calls=[])
        here = _moved(message, ledger.state.chat_id)
        copies.append(replace(here, message_id=ledger.new_id("msg"), payloads=[], active_payload_id=None))
    ledger.begin_with(copies)
    for key, copy in zip(way, copies, strict=True):
        _take_what_is_private(ledger, source, key, copy)
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _take_what_is_private(ledger: Ledger, source: ChatState, key: str, copy: Message) -> None:
    """The copy means to the model what the message `key` meant: what clients do not see goes along, unseen."""
    withheld = source.private.withheld.get(key)
    if withheld is not None:
        ledger.note(ResultWithheld(message_id=copy.message_id, content=withheld))
    for call in copy.tool_calls:
        arguments = source.private.hidden_arguments.get(call.id)
        if arguments is not None:
            ledger.note(ArgumentsHidden(tool_call_id=call.id, arguments=arguments))


def _moved(message: Message, chat_id: str) -> Message:
    """`message` with its references leading to the blobs of this chat, where the actor has copied them."""
    if isinstance(message.content, str) and not message.attachments:
        return message
    return msgspec.json.decode(move_to(chat_id, msgspec.json.encode(message)), type=Message)


def restore(ledger: Ledger, command: RestoreMessages, by: Principal) -> None:
    """Begin the chat with these messages.

    Raises:
        Conflict: this chat has messages.
        BadRequest, TooLarge: as `read_messages`.
    """
    _must_be_empty(ledger.state)
    messages = read_messages(command.messages)
    title = first_line(messages[0]) if messages and ledger.state.thread.title == Thread(id="-").title else ""
    changes: JsonObject = {**_birth(ledger, by), **({"title": title} if title else {})}
    ledger.say(ThreadUpdated(**changes))
    used: set[str] = set()
    restored: list[Message] = []
    for message in messages:
        keeps_id = message.message_id and message.message_id not in used
        message_id = message.message_id if keeps_id else ledger.new_id("msg")
        used.add(message_id)
        attachments = attachments_of(message.content, ledger.state.chat_id)
        born_at = message.created_at or ledger.now_ms
        restored.append(replace(message, message_id=message_id, attachments=attachments, created_at=born_at))
    ledger.begin_with(restored)
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def _must_be_empty(state: ChatState) -> None:
    if state.nodes or state.private.run is not None or state.private.queue:
        raise Conflict("this chat has messages already; choose a new chat_id")


def _birth(ledger: Ledger, by: Principal) -> JsonObject:
    name = shown_name(by)
    return {"created_at": ledger.now_ms, **({"owner": name} if name else {})}
