"""A chat that begins with another one's words: fork of a path, and messages handed back by a client (CMD-12).

Both fill a chat that has none yet, at once and not through the queue, so that what is posted next already follows on
them. Where the source comes from and whose it is was looked up before; what stands here is pure.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from protocol.blobs import move_to
from protocol.commands import BranchFromChat, RestoreMessages
from protocol.content import check_text
from protocol.errors import BadRequest, Conflict, NotFound, explain
from protocol.events import ThreadUpdated
from protocol.ids import check_id
from protocol.ledger import Ledger, shown_name
from protocol.messages import JsonObject, Message, text_of
from protocol.principal import Principal
from protocol.snapshot import active_path
from protocol.starts import first_line
from protocol.state import ChatState
from protocol.thread import Thread, ThreadPatch
from protocol.tree import way_to

__all__ = ["RESTORED_MAX_COUNT", "branch_from", "read_messages", "restore"]

RESTORED_MAX_COUNT = 10_000
"""Messages of one `restore_messages`: as long as the longest chats that are measured (DESIGN §13)."""

ROLE_MAX_CHARACTERS = 64


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
    for key in way:
        message = shown.get(key, source.nodes[key])
        if source.draft is not None and key == source.draft.message.message_id:
            message = replace(message, finish_reason="abort", status="partial", tool_calls=[])
        here = _moved(message, ledger.state.chat_id)
        ledger.add_message(replace(here, message_id=ledger.new_id("msg"), payloads=[]))
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=True)


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
    for message in messages:
        keeps_id = message.message_id and message.message_id not in used
        message_id = message.message_id if keeps_id else ledger.new_id("msg")
        used.add(message_id)
        ledger.add_message(replace(message, message_id=message_id, created_at=message.created_at or ledger.now_ms))
    ledger.accept(command.client_request_id, {"queued": True}, by=by, final=True)


def read_messages(messages: Sequence[JsonObject]) -> list[Message]:
    """Foreign messages as ours: ids may be missing, content may be null, unknown keys are left out.

    Raises:
        BadRequest: not a message; `path` points at it.
        TooLarge: more text in one than a message may hold.
    """
    if len(messages) > RESTORED_MAX_COUNT:
        raise BadRequest(f"at most {RESTORED_MAX_COUNT} messages can be restored", path="/messages")
    return [_read(message, f"/messages/{i}") for i, message in enumerate(messages)]


def _read(foreign: JsonObject, path: str) -> Message:
    known = {key: value for key, value in foreign.items() if key in _READABLE and value is not None}
    known.setdefault("content", "")
    known.setdefault("message_id", "")
    known["tool_calls"] = [
        {**call, "index": number} if isinstance(call, Mapping) else call
        for number, call in enumerate(known.get("tool_calls", []))
    ]
    try:
        message = msgspec.convert(known, Message)
    except msgspec.ValidationError as wrong:
        text, place = explain(wrong)
        raise BadRequest(text, path=path + place) from None
    if message.message_id:
        check_id(message.message_id, "message_id")
    if not 1 <= len(message.role) <= ROLE_MAX_CHARACTERS:
        raise BadRequest(f"role must be 1 to {ROLE_MAX_CHARACTERS} characters", path=f"{path}/role")
    check_text(text_of(message.content), f"{path}/content")
    return message


_READABLE = frozenset(Message.__struct_fields__) - {
    "parent_id", "sibling_ids", "sibling_index", "payloads", "client_request_id", "by", "hidden"
}  # fmt: skip
"""Places in the tree are ours to give, payloads are not here, and nobody speaks in somebody else's name."""


def _must_be_empty(state: ChatState) -> None:
    if state.nodes or state.private.run is not None or state.private.queue:
        raise Conflict("this chat has messages already; choose a new chat_id")


def _birth(ledger: Ledger, by: Principal) -> JsonObject:
    name = shown_name(by)
    return {"created_at": ledger.now_ms, **({"owner": name} if name else {})}
