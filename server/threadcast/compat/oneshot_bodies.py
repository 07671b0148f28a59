"""The bodies of the one-shot endpoints. Each body is turned into an `Ask`: an ordinary `user_message` and its
projection.

The functions are pure: ids and the time are arguments. The message is never merged with others that wait in the queue
(`merge_queued` is false), so its run belongs to its caller alone and can be aborted when the caller disconnects.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from threadcast.chat.scopes import (
    SCOPE_MAX_DEPTH,
    SCOPE_NAME_MAX_CHARACTERS,
    is_declared,
    path_of,
    read_scope,
    scope_of_page,
)
from threadcast.compat.agent_chat import AgentChat
from threadcast.compat.base import Projection
from threadcast.compat.page_chat import PageChat
from threadcast.compat.text_chat import TextChat
from threadcast.profiles.profile import Profile, Profiles
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.commands import Interaction, InteractionType, UserMessage
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest, Refused
from threadcast_protocol.wire.http import ChatIdOrEmpty
from threadcast_protocol.wire.ids import check_chat_id
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "AgentChatRequest",
    "Ask",
    "Fresh",
    "OnDisconnect",
    "OneShotRequest",
    "PageChatRequest",
    "TextChatRequest",
    "check_scope",
    "read_agent_chat",
    "read_page_chat",
    "read_text_chat",
]

OnDisconnect: TypeAlias = Literal["abort", "detach"]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]

_SCOPE_NAME = rf"[^\s/]{{1,{SCOPE_NAME_MAX_CHARACTERS}}}"
ScopeOfRequest: TypeAlias = Annotated[
    object,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"type": "string", "pattern": rf"^{_SCOPE_NAME}(/{_SCOPE_NAME}){{0,{SCOPE_MAX_DEPTH - 1}}}$"},
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": SCOPE_MAX_DEPTH,
                    "items": {"type": "string", "pattern": f"^{_SCOPE_NAME}$"},
                },
            ]
        }
    ),
]
"""A path of names, or a list of names, the widest scope first. `read_scope` checks the value, for better error
messages."""


class Fresh(msgspec.Struct, frozen=True):
    """The values of a command that no body contains: unused ids, and the time."""

    chat_id: str
    request_id: str
    now_seconds: int


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A one-shot request, decoded. `is_new` is true if the body names no chat. `makes_chat` is true if the request
    creates the named chat when that chat does not exist. `mode` is the unchecked value of the body. `wants_stream` is
    None if the `Accept` header decides. `content_path` and `scope_path` are the places of the message and the scope in
    the body; a scope without a path is never refused."""

    chat_id: str
    is_new: bool
    command: UserMessage
    projection: Projection
    makes_chat: bool = False
    mode: object = None
    on_disconnect: OnDisconnect | None = None
    wants_stream: bool | None = None
    content_path: str = "/message"
    scope_path: str = ""

    def in_mode(self, mode: str) -> "Ask":
        """Return the same request with another profile for this run alone."""
        return replace(self, command=replace(self.command, params={**self.command.params, "mode": mode}))

    def in_body(self, refusal: Refused) -> Refused:
        """Return the refusal of the command with its path changed, so that it points into the caller's body."""
        path = refusal.path or ""
        if path.startswith("/content"):
            refusal.path = self.content_path + path.removeprefix("/content")
        elif path.startswith(("/patch", "/params")):
            refusal.path = path.removeprefix("/patch").removeprefix("/params")
        return refusal


class OneShotRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every one-shot body. `mode` names a profile, where the operator allows it."""

    mode: object = None
    on_disconnect: OnDisconnect | None = None


class TextChatRequest(OneShotRequest, frozen=True, kw_only=True):
    """The body of `POST /chat`. Without `session_id` the request creates a chat."""

    message: Text
    session_id: ChatIdOrEmpty | None = None


class AgentChatRequest(OneShotRequest, frozen=True, kw_only=True):
    """The body of `POST /v1/agent/chat`. `context_type` is the scope: a name, or up to three names, the widest scope
    first. If no conversation has the `conversation_id`, the request creates the conversation."""

    message: Text
    context_type: ScopeOfRequest
    context: JsonObject | None = None
    conversation_id: ChatIdOrEmpty | None = None


class PageChatRequest(OneShotRequest, frozen=True, kw_only=True):
    """The body of `POST /api/chat/stream`. `current_page`, `active_tab` and `subtab` of the context form the scope.
    Their values need not be declared scopes."""

    message: Text
    context: JsonObject | None = None
    interaction_type: str | None = None
    conversation_id: ChatIdOrEmpty | int | None = None


WORD_MAX = 256
"""Maximum characters that are kept of an unknown interaction type."""

_SCOPE_KEYS = ("current_page", "active_tab", "subtab")
"""Keys of a page's context that make up the scope, the widest first."""

_INTERACTIONS: dict[str, InteractionType] = {
    **{kind: kind for kind in get_args(InteractionType)},
    "text_input": "text",
    "action_executed": "action_selected",
}
"""The types of interactions by the names that clients of `/api/chat/stream` send."""


def read_text_chat(body: bytes, fresh: Fresh, profiles: Profiles) -> Ask:
    """Read the body of `POST /chat`. Raises BadRequest."""
    asked = _decode(body, TextChatRequest)
    chat_id, is_new = _chat(asked.session_id, fresh, "/session_id")
    return Ask(
        chat_id=chat_id,
        is_new=is_new,
        command=_message(fresh, asked.message),
        projection=TextChat(chat_id),
        mode=asked.mode,
        on_disconnect=asked.on_disconnect,
    )


def read_agent_chat(body: bytes, fresh: Fresh, profiles: Profiles) -> Ask:
    """Read the body of `POST /v1/agent/chat`. A conversation that does not exist is created under the client's id.
    Raises BadRequest."""
    asked = _decode(body, AgentChatRequest)
    chat_id, is_new = _chat(asked.conversation_id, fresh, "/conversation_id")
    params = {"scope": _scope(asked.context_type, "/context_type")}
    command = _message(fresh, asked.message, params=params, context=asked.context)
    return Ask(
        chat_id=chat_id,
        is_new=is_new,
        command=command,
        projection=AgentChat(chat_id),
        makes_chat=True,
        mode=asked.mode,
        on_disconnect=asked.on_disconnect,
        scope_path="/context_type",
    )


def read_page_chat(body: bytes, fresh: Fresh, profiles: Profiles) -> Ask:
    """Read the body of `POST /api/chat/stream`. A page may have any name; the nearest enclosing scope that the profile
    declares applies. Raises BadRequest."""
    asked = _decode(body, PageChatRequest)
    named = None if asked.conversation_id is None else str(asked.conversation_id)
    chat_id, is_new = _chat(named, fresh, "/conversation_id")
    context = asked.context or {}
    scope = scope_of_page(context.get(key) for key in _SCOPE_KEYS)
    params: JsonObject = {"scope": list(scope)} if scope else {}
    interaction = _interaction(asked.interaction_type)
    command = _message(fresh, asked.message, params=params, context=context, interaction=interaction)
    return Ask(
        chat_id=chat_id,
        is_new=is_new,
        command=command,
        projection=PageChat(chat_id),
        mode=asked.mode,
        on_disconnect=asked.on_disconnect,
    )


def check_scope(ask: Ask, profile: Profile) -> None:
    """Check that the profile declares the scope of the body. A profile without scopes accepts any scope.

    Raises:
        BadRequest: the profile has no such scope; `path` is the scope's place in the body.
    """
    scope = read_scope(ask.command.params.get("scope")) if ask.scope_path else None
    if scope is not None and not is_declared(scope, profile.scopes):
        known = ", ".join(sorted(map(path_of, profile.scopes)))
        raise BadRequest(
            f"unknown scope {path_of(scope)!r}; the profile {profile.name!r} has {known}", path=ask.scope_path
        )


def _scope(scope: object, path: str) -> list[str]:
    """Return the scope as the thread holds it. The body has a name, a path of names, or a list of up to three names,
    the widest first. Raises BadRequest."""
    names = read_scope(scope)
    if not names:
        raise BadRequest(
            f"unknown scope: it must be 1 to {SCOPE_MAX_DEPTH} names, each of 1 to {SCOPE_NAME_MAX_CHARACTERS} "
            "printable characters without white space, as a list or with / between",
            path=path,
        )
    return list(names)


def _chat(named: str | None, fresh: Fresh, path: str) -> tuple[str, bool]:
    """Return the id of the chat, and whether the chat is new. Some foreign clients send "" if they have no id."""
    if not named:
        return fresh.chat_id, True
    try:
        return check_chat_id(named), False
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=path) from None


def _interaction(word: str | None) -> Interaction | None:
    """Return the interaction. An interaction of an unknown type becomes a `text`. Its data contains the type's name for
    prompts and tools."""
    if not word:
        return None
    kind = _INTERACTIONS.get(word)
    return Interaction(type=kind) if kind else Interaction(type="text", data={"interaction_type": word[:WORD_MAX]})


def _message(
    fresh: Fresh,
    content: object,
    *,
    params: JsonObject | None = None,
    context: JsonObject | None = None,
    interaction: Interaction | None = None,
) -> UserMessage:
    return UserMessage(
        client_request_id=fresh.request_id,
        content=content,
        params={"merge_queued": False, **(params or {})},  # a message with parameters is never merged with others
        context=context or {},
        interaction=interaction,
    )


_T = TypeVar("_T")


def _decode(body: bytes, wanted: type[_T]) -> _T:
    bodies: msgspec.json.Decoder[_T] = decoder(wanted)
    return decode_body(bodies, body)
