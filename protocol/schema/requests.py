"""What the one-shot endpoints take (PROTOCOL §14), as structs that exist to be described.

The endpoints read their bodies by rules of their own (`server/api/oneshot_bodies.py`), since each older wire has its
own words of refusal.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from protocol.messages import JsonObject

__all__ = ["AgentChatRequest", "CompletionsRequest", "PageChatRequest", "TextChatRequest"]

OnDisconnect: TypeAlias = Literal["abort", "detach"]


class TextChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`POST /chat`. Without `session_id` a new chat is made. `mode` is read where the operator allows it."""

    message: str
    session_id: str | None = None
    mode: str | None = None
    on_disconnect: OnDisconnect | None = None


class AgentChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`POST /v1/agent/chat`. `context_type` is the scope: a name, or up to three, the widest first. The request creates
    a conversation under a `conversation_id` that does not exist. `mode` is read where the operator allows it."""

    message: str
    context_type: str | Annotated[list[str], Meta(min_length=1, max_length=3)]
    context: JsonObject | None = None
    conversation_id: str | None = None
    mode: str | None = None
    on_disconnect: OnDisconnect | None = None


class PageChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`POST /api/chat/stream`. `current_page`, `active_tab` and `subtab` of the context are the scope, under any names.
    `mode` is read where the operator allows it."""

    message: str
    context: JsonObject | None = None
    interaction_type: str | None = None
    conversation_id: str | int | None = None
    mode: str | None = None
    on_disconnect: OnDisconnect | None = None


class CompletionsRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`POST /v1/chat/completions`, as OpenAI has it; of `messages` the last one with role user is taken.
    `metadata.chat_id` names the chat. `mode` is read where the operator allows it."""

    messages: list[JsonObject]
    model: str | None = None
    stream: bool | None = None
    stream_options: JsonObject | None = None
    metadata: JsonObject | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    mode: str | None = None
    on_disconnect: OnDisconnect | None = None
