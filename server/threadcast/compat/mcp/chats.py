"""Reads the caller's chats for MCP clients: lists, searches, messages and resources.

Texts of chats are data: they occur only in results, never in descriptions or instructions.
"""

from functools import partial

from threadcast.api.edge import Edge
from threadcast.api.listing import LIST_DEFAULT, SEARCH_MAX_CHARACTERS, cursor_in, find_chats
from threadcast.api.reading import read_chat_as
from threadcast.compat.mcp.decisions import pending_of
from threadcast.store.ports import ChatMeta, list_owner_of
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.errors import BadRequest, NotFound
from threadcast_protocol.wire.messages import JsonObject, Message, text_of
from threadcast_protocol.wire.principal import Principal

__all__ = [
    "LAST_MAX",
    "SEARCHED_MAX",
    "TEXTS_MAX_CHARACTERS",
    "chat_at",
    "chat_of",
    "listed",
    "read",
    "searched",
    "uri_of",
]

LAST_DEFAULT, LAST_MAX = 20, 200
"""The number of messages that `read_chat` returns, by default and at most."""

TEXTS_MAX_CHARACTERS = 400_000
"""The maximum characters of all texts in one result. If the texts are longer, earlier messages are left out, and
`is_whole` is false."""

SEARCHED_MAX = 20
"""The number of newest chats whose texts are searched. Titles are searched in up to 2,000 chats."""

SNIPPET_CHARACTERS = 200

_SCHEME = "threadcast://chats/"


def uri_of(chat_id: str) -> str:
    return f"{_SCHEME}{chat_id}"


def chat_at(uri: object) -> str:
    """Return the id of the chat in a resource's address. Raises NotFound: the address does not name a chat."""
    if not isinstance(uri, str) or not uri.startswith(_SCHEME) or len(uri) > len(_SCHEME) + 128:
        raise NotFound("no such resource; the address of a chat is threadcast://chats/ and its id")
    return uri.removeprefix(_SCHEME)


async def listed(edge: Edge, principal: Principal, query: str = "", cursor: str | None = None) -> JsonObject:
    """Return a page of the caller's chats, newest activity first. Raises BadRequest: this server did not make the
    cursor, or the query is too long."""
    if len(query) > SEARCH_MAX_CHARACTERS:
        raise BadRequest(f"query must be at most {SEARCH_MAX_CHARACTERS} characters")
    words = query.casefold()
    wanted = (lambda chat: words in chat.title.casefold()) if words else None
    after = cursor_in(cursor) if cursor else None
    found = await find_chats(edge.store, list_owner_of(principal.id, ""), LIST_DEFAULT, after, wanted)
    told: JsonObject = {"chats": [_summary(chat) for chat in found.chats]}
    return told if found.next_cursor is None else {**told, "next_cursor": found.next_cursor}


async def searched(edge: Edge, principal: Principal, query: str) -> JsonObject:
    """Return chats whose title contains the words. The messages of the newest `SEARCHED_MAX` chats are searched too.
    Raises BadRequest: the query is empty or too long."""
    if not 0 < len(query.strip()) <= SEARCH_MAX_CHARACTERS:
        raise BadRequest(f"query has 1 to {SEARCH_MAX_CHARACTERS} characters")
    words = query.strip().casefold()
    owner = list_owner_of(principal.id, "")
    by_title = await find_chats(edge.store, owner, LIST_DEFAULT, None, lambda chat: words in chat.title.casefold())
    found = {chat.chat_id: _summary(chat) for chat in by_title.chats}
    newest = await find_chats(edge.store, owner, SEARCHED_MAX, None)
    for chat in newest.chats:
        snippet = await read_chat_as(edge.store, chat.chat_id, partial(_snippet, words=words))
        if snippet:
            found[chat.chat_id] = {**_summary(chat), "text": snippet}
    return {"chats": list(found.values())}


async def read(edge: Edge, principal: Principal, chat_id: str, last: int = LAST_DEFAULT) -> JsonObject:
    """Return the newest messages of a chat.

    Raises:
        BadRequest: `last` is out of bounds.
        NotFound: the caller has no such chat.
    """
    if not 1 <= last <= LAST_MAX:
        raise BadRequest(f"last is a number from 1 to {LAST_MAX}")
    await edge.own(chat_id, principal)
    return await read_chat_as(edge.store, chat_id, partial(chat_of, last=last))


def chat_of(state: ChatState, last: int) -> JsonObject:
    """Return the newest `last` messages of the active path, and the chat's open decisions. Pure."""
    path = [state.nodes[key] for key in state.path]
    shown = [message for message in path if not message.hidden]
    messages: list[JsonObject] = []
    characters = 0
    for message in reversed(shown[-last:]):
        told = _message(message)
        characters += len(told["text"]) + sum(len(call["arguments"]) for call in told.get("tool_calls", ()))
        if characters > TEXTS_MAX_CHARACTERS and messages:
            break
        messages.append(told)
    messages.reverse()
    return {
        "chat_id": state.chat_id,
        "title": state.thread.title or "New Chat",
        "state": "paused" if state.runtime.paused else state.runtime.state,
        "messages": messages,
        "is_whole": len(messages) == len(shown),
        "pending": pending_of(state.runtime.pause_reasons),
    }


def _message(message: Message) -> JsonObject:
    told: JsonObject = {"message_id": message.message_id, "role": message.role, "text": text_of(message.content)}
    if message.tool_calls:
        told["tool_calls"] = [
            {"tool_call_id": call.id, "name": call.function.name, "arguments": call.function.arguments}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        told["tool_call_id"] = message.tool_call_id
    return told


def _snippet(state: ChatState, words: str) -> str:
    """Return the text around the newest occurrence of the words; '' if no message contains them."""
    for key in reversed(state.path):
        message = state.nodes[key]
        if message.hidden:
            continue
        text = text_of(message.content)
        at = text.casefold().find(words)
        if at >= 0:
            return text[max(0, at - SNIPPET_CHARACTERS // 2) : at + SNIPPET_CHARACTERS]
    return ""


def _summary(chat: ChatMeta) -> JsonObject:
    return {
        "chat_id": chat.chat_id,
        "title": chat.title or "New Chat",
        "state": chat.state,
        "last_active": chat.last_active,
    }
