"""Messages of users, models and tools: Message, its content parts, ToolCall, Usage (PROTOCOL §8).

Structs are frozen; empty fields are not encoded. A message is a node of the chat's tree: `parent_id` names the
message before it. `content.py` checks parts and refuses invalid ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

__all__ = [
    "CONTENT_TEXT_MAX_CHARACTERS",
    "COST_DECIMALS",
    "PREVIEW_MAX_CHARACTERS",
    "AudioPart",
    "FilePart",
    "FunctionCall",
    "ImagePart",
    "ImageUrl",
    "InputAudio",
    "JsonObject",
    "Message",
    "Part",
    "TextPart",
    "ToolCall",
    "Usage",
    "add_usage",
    "content_text",
    "preview_of",
    "text_of",
]

PREVIEW_MAX_CHARACTERS = 120
CONTENT_TEXT_MAX_CHARACTERS = 8_192
"""The maximum characters of a waiting command's preview and of its shown content (PROTOCOL §8)."""

JsonObject: TypeAlias = dict[str, Any]  # Any: JSON that this package passes on without reading it


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """A part of the content of a message."""


class TextPart(_Part, frozen=True, tag="text"):
    """Text."""

    text: str


class ImageUrl(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image. `url` is a data URL or the URL of a blob. For a blob, `mime` and `bytes` are its type and size
    (PROTOCOL §10)."""

    url: str
    detail: str | None = None
    mime: str | None = None
    bytes: int | None = None


class ImagePart(_Part, frozen=True, tag="image_url"):
    """An image."""

    image_url: ImageUrl


class InputAudio(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sound. `data` is the base64 of the sound. If the sound is stored as a blob, `data` is empty, `blob` is the hash
    of the blob and `bytes` its size."""

    data: str = ""
    format: str = ""
    blob: str | None = None
    bytes: int | None = None


class AudioPart(_Part, frozen=True, tag="input_audio"):
    """A sound."""

    input_audio: InputAudio


class FilePart(_Part, frozen=True, tag="file"):
    """A file: its base64 `data`, its extracted `text`, or the hash of a blob with its bytes (`blob`) or its text
    (`text_blob`). `bytes` is the size of the blob."""

    name: str
    mime: str
    data: str | None = None
    text: str | None = None
    blob: str | None = None
    text_blob: str | None = None
    bytes: int | None = None


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class FunctionCall(msgspec.Struct, frozen=True):
    """The tool that a model calls. `arguments` is the model's JSON text, unchanged."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool by the model. `id` is unique in the chat; `index` counts the calls of the message from 0."""

    id: str
    index: int
    function: FunctionCall
    type: str = "function"


COST_DECIMALS = 9
"""The decimal places of costs in USD. They are enough for a thousandth of a token of the cheapest models, and few
enough to keep rounding errors out of sums."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts of one model call, or their sums over a chat."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cost_usd: float | None = None
    """The cost of the call in USD, rounded to a billionth; absent if the model's price is unknown (PROTOCOL §8)."""


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """Return the sum of both usages. A missing usage counts as zero; the sum of two missing usages is None."""
    if a is None or b is None:
        return a or b

    def both(x: int | None, y: int | None) -> int | None:
        return None if x is None and y is None else (x or 0) + (y or 0)

    return Usage(
        a.prompt_tokens + b.prompt_tokens,
        a.completion_tokens + b.completion_tokens,
        a.total_tokens + b.total_tokens,
        both(a.cache_creation_input_tokens, b.cache_creation_input_tokens),
        both(a.cache_read_input_tokens, b.cache_read_input_tokens),
        None
        if a.cost_usd is None and b.cost_usd is None
        else round((a.cost_usd or 0.0) + (b.cost_usd or 0.0), COST_DECIMALS),
    )


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message of a chat. Times are Unix milliseconds."""

    role: str
    content: str | list[Part]
    message_id: str
    finish_reason: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    tool_failed: bool | None = None
    usage: Usage | None = None
    thinking_blocks: list[JsonObject] = []
    citations: list[JsonObject] = []
    server_content_blocks: list[JsonObject] = []
    extra: JsonObject = {}
    parent_id: str | None = None
    sibling_ids: list[str] = []
    sibling_index: int | None = None
    status: str | None = None
    model: str | None = None
    client_request_id: str | None = None
    by: str | None = None
    attachments: list[JsonObject] = []
    context_files: list[JsonObject] = []
    context: JsonObject = {}
    interaction: JsonObject | None = None
    payloads: list[str] = []
    active_payload_id: str | None = None
    warning: str | None = None
    suggested_values: list[JsonObject] = []
    suggested_actions: list[JsonObject] = []
    hidden: bool = False
    kind: str | None = None
    created_at: int | None = None


def text_of(content: str | list[Part]) -> str:
    """Return the text parts of `content`, joined by newlines. Other parts are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def content_text(content: object, limit: int = CONTENT_TEXT_MAX_CHARACTERS) -> str:
    """Return the first `limit` characters of the text parts, each part on a separate line.

    Accepts content in any form, checked or not, because the queue also shows commands that may be refused later.
    """
    if isinstance(content, str):
        return content[:limit]
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        return ""
    return "\n".join(text[:limit] for part in content if (text := _text_in(part)))[:limit]


def _text_in(part: object) -> str:
    if isinstance(part, TextPart):
        return part.text
    if not isinstance(part, Mapping):
        return ""
    value = part.get("text") if part.get("type") == "text" else None
    if value is None and part.get("m_type") == "text":
        value = part.get("m_content")
    return value if isinstance(value, str) else ""


def preview_of(content: object) -> str:
    """Return a short text for a waiting message. A message without text has only attachments, each of which the preview
    calls an image."""
    text = content_text(content, PREVIEW_MAX_CHARACTERS)
    return text if text.strip() else "[Image attachment]"
