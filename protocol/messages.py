"""What people, models and tools say: Message, its content parts, ToolCall, Usage (PROTOCOL §8).

Structs are frozen; empty fields are not encoded. A message is a node of the chat's tree: `parent_id` names the
message before it. Which parts are acceptable, and in which words others are refused, is `content.py`'s business.
"""

from typing import Any, TypeAlias

import msgspec

__all__ = [
    "COST_DECIMALS",
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
    "text_of",
]

JsonObject: TypeAlias = dict[str, Any]  # Any: JSON that we carry and do not read


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    pass


class TextPart(_Part, frozen=True, tag="text"):
    text: str


class ImageUrl(msgspec.Struct, frozen=True, omit_defaults=True):
    """`url` is a data URL, or a reference to a blob; then `mime` and `bytes` say what lies there (PROTOCOL §10)."""

    url: str
    detail: str | None = None
    mime: str | None = None
    bytes: int | None = None


class ImagePart(_Part, frozen=True, tag="image_url"):
    image_url: ImageUrl


class InputAudio(msgspec.Struct, frozen=True, omit_defaults=True):
    """`data` is base64; '' when the sound lies in a blob, `blob` then is its hash and `bytes` its size."""

    data: str = ""
    format: str = ""
    blob: str | None = None
    bytes: int | None = None


class AudioPart(_Part, frozen=True, tag="input_audio"):
    input_audio: InputAudio


class FilePart(_Part, frozen=True, tag="file"):
    """A file by its base64 `data` or its extracted `text`; or by the hash of a blob that holds them, of `bytes`."""

    name: str
    mime: str
    data: str | None = None
    text: str | None = None
    blob: str | None = None
    text_blob: str | None = None
    bytes: int | None = None


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class FunctionCall(msgspec.Struct, frozen=True):
    """`arguments` is the model's JSON text, exactly as it came."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool by the model. `id` is unique in the chat; `index` counts within the message from 0."""

    id: str
    index: int
    function: FunctionCall
    type: str = "function"


COST_DECIMALS = 9
"""Of a USD: a thousandth of a token of the cheapest models, and sums stay free of float noise."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one model call, or summed over a chat."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cost_usd: float | None = None
    """What the call cost, where the operator set prices; rounded to a billionth (PROTOCOL §8)."""


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """The sum; a missing side counts as nothing."""
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
    """One message. Times are Unix milliseconds."""

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
    """The text parts of a content, joined by newlines; other parts are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))
