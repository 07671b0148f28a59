"""The bodies of the one-shot endpoints, each read into an `Ask`: an ordinary `user_message` and its projection.

Pure but for ids and time, which come in; `oneshot.py` calls it before the first byte of an answer. The message takes a
turn of its own (`merge_queued` false for it), so that its run is its caller's alone and may be aborted with the caller.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from protocol.bodies import decode_body
from protocol.commands import Interaction, InteractionType, UserMessage
from protocol.errors import BadRequest, Refused
from protocol.ids import check_chat_id
from protocol.messages import JsonObject
from protocol.params import SAMPLERS
from server.agent.place.profile import Profile, Profiles
from server.agent.place.scopes import is_declared, path_of, read_scope, scope_of_page
from server.projections.agent_chat import AgentChat
from server.projections.base import Projection
from server.projections.openai_chunks import OpenAIChunks
from server.projections.page_chat import PageChat
from server.projections.text_chat import TextChat
from server.tools.traits import SCOPE_MAX_DEPTH, SCOPE_NAME_MAX_CHARACTERS

__all__ = ["Ask", "Fresh", "check_scope", "read_agent_chat", "read_completions", "read_page_chat", "read_text_chat"]

OnDisconnect: TypeAlias = Literal["abort", "detach"]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]


class Fresh(msgspec.Struct, frozen=True):
    """What a body cannot give: unused ids, and the time."""

    chat_id: str
    request_id: str
    now_seconds: int


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a one-shot request asks. `is_new`: the caller named no chat. `makes_chat`: a chat that the caller names and
    that does not exist is made. `mode` is what the body says of it, unread. `wants_stream`: None when the `Accept`
    header says it. `content_path` and `scope_path` are where its words and its scope stand in the body; a scope without
    a path is never refused."""

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
        """A refusal of the command, with its path pointing into the caller's own body."""
        path = refusal.path or ""
        if path.startswith("/content"):
            refusal.path = self.content_path + path.removeprefix("/content")
        elif path.startswith(("/patch", "/params")):
            refusal.path = path.removeprefix("/patch").removeprefix("/params")
        return refusal


class _TextChat(msgspec.Struct, frozen=True):
    message: Text
    session_id: str | None = None
    mode: object = None
    on_disconnect: OnDisconnect | None = None


class _AgentChat(msgspec.Struct, frozen=True):
    message: Text
    context_type: object
    context: JsonObject | None = None
    conversation_id: str | None = None
    mode: object = None
    on_disconnect: OnDisconnect | None = None


class _PageChat(msgspec.Struct, frozen=True):
    message: Text
    context: JsonObject | None = None
    interaction_type: str | None = None
    conversation_id: str | int | None = None
    mode: object = None
    on_disconnect: OnDisconnect | None = None


class _Said(msgspec.Struct, frozen=True):
    role: str
    content: object = None


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class _Completions(msgspec.Struct, frozen=True):
    messages: list[_Said]
    model: str = ""
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    metadata: JsonObject | None = None
    max_completion_tokens: object = None
    max_tokens: object = None
    temperature: object = None
    top_p: object = None
    frequency_penalty: object = None
    presence_penalty: object = None
    reasoning_effort: object = None
    parallel_tool_calls: object = None
    seed: object = None
    stop: object = None
    top_k: object = None
    min_p: object = None
    repetition_penalty: object = None
    mode: object = None
    on_disconnect: OnDisconnect | None = None


_PARAMS = (
    "max_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "parallel_tool_calls",
    *SAMPLERS,
)
"""Passed on as parameters of the run, with the bounds of PROTOCOL §16."""

WORD_MAX = 256
"""Characters of a foreign word that are kept."""

_PLACES = ("current_page", "active_tab", "subtab")
"""Keys of a page's context that say where its user is, the widest first."""

_INTERACTIONS: dict[str, InteractionType] = {
    **{kind: kind for kind in get_args(InteractionType)},
    "text_input": "text",
    "action_executed": "action_selected",
}
"""The kinds of interactions, by the words that clients of `/api/chat/stream` use."""


def read_text_chat(body: bytes, fresh: Fresh, profiles: Profiles) -> Ask:
    """`{message, session_id?, mode?}`. Raises BadRequest."""
    asked = _decode(body, _TextChat)
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
    """`{message, context_type, context?, conversation_id?, mode?}`; a conversation that does not exist is made under
    the client's own id. Raises BadRequest."""
    asked = _decode(body, _AgentChat)
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
    """`{message, context{current_page?, active_tab?, subtab?, …}, interaction_type?, conversation_id?, mode?}`. A page
    may have any name; the nearest place around it that the profile declares applies. Raises BadRequest."""
    asked = _decode(body, _PageChat)
    named = None if asked.conversation_id is None else str(asked.conversation_id)
    chat_id, is_new = _chat(named, fresh, "/conversation_id")
    context = asked.context or {}
    place = scope_of_page(context.get(key) for key in _PLACES)
    params: JsonObject = {"scope": list(place)} if place else {}
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


def read_completions(body: bytes, fresh: Fresh, profiles: Profiles) -> Ask:
    """OpenAI's request. Only the last user message is taken: the chat itself holds what came before. Raises
    BadRequest."""
    asked = _decode(body, _Completions)
    at = max((place for place, message in enumerate(asked.messages) if message.role == "user"), default=None)
    if at is None:
        raise BadRequest("messages must hold a user message", path="/messages")
    named = (asked.metadata or {}).get("chat_id")
    if named is not None and not isinstance(named, str):
        raise BadRequest("metadata.chat_id must be a string", path="/metadata/chat_id")
    chat_id, is_new = _chat(named, fresh, "/metadata/chat_id")
    params = {key: value for key in _PARAMS if (value := getattr(asked, key)) is not None}
    if isinstance(asked.stop, str):
        params["stop"] = [asked.stop]
    if asked.max_completion_tokens is not None:
        params["max_tokens"] = asked.max_completion_tokens
    if asked.model:
        params["model"] = asked.model
    projection = OpenAIChunks(
        chat_id,
        f"chatcmpl-{fresh.request_id}",
        model=asked.model or profiles.default_model,
        created_seconds=fresh.now_seconds,
        with_usage=asked.stream_options is not None and asked.stream_options.include_usage,
    )
    return Ask(
        chat_id=chat_id,
        is_new=is_new,
        command=_message(fresh, asked.messages[at].content, params=params),
        projection=projection,
        mode=asked.mode,
        on_disconnect=asked.on_disconnect,
        content_path=f"/messages/{at}/content",
        wants_stream=bool(asked.stream),  # OpenAI's clients accept application/json and nothing else, always
    )


def check_scope(ask: Ask, profile: Profile) -> None:
    """Refuse a scope that the body names and the profile does not declare. Where a profile declares no scopes, any name
    may be meant.

    Raises:
        BadRequest: no such scope; `path` is where it stands in the body.
    """
    scope = read_scope(ask.command.params.get("scope")) if ask.scope_path else None
    if scope is not None and not is_declared(scope, profile.scopes):
        known = ", ".join(sorted(map(path_of, profile.scopes)))
        raise BadRequest(
            f"unknown scope {path_of(scope)!r}; the profile {profile.name!r} has {known}", path=ask.scope_path
        )


def _scope(scope: object, path: str) -> list[str]:
    """A name, up to three (the widest first), or a path of them, as the thread holds it. Raises BadRequest."""
    names = read_scope(scope)
    if not names:
        raise BadRequest(
            f"unknown scope: it must be 1 to {SCOPE_MAX_DEPTH} names, each of 1 to {SCOPE_NAME_MAX_CHARACTERS} "
            "printable characters without white space, as a list or with / between",
            path=path,
        )
    return list(names)


def _chat(named: str | None, fresh: Fresh, path: str) -> tuple[str, bool]:
    """The chat to use, and whether it is a new one. Foreign clients send "" for none."""
    if not named:
        return fresh.chat_id, True
    try:
        return check_chat_id(named), False
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=path) from None


def _interaction(word: str | None) -> Interaction | None:
    """Return the kind of interaction. A word that this server does not know becomes a text, and the word is kept beside
    it for prompts and tools."""
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
        params={"merge_queued": False, **(params or {})},  # a message with parameters has a turn of its own
        context=context or {},
        interaction=interaction,
    )


_T = TypeVar("_T")


def _decode(body: bytes, wanted: type[_T]) -> _T:
    return decode_body(msgspec.json.Decoder(wanted), body)
