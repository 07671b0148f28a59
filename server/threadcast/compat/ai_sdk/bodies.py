"""The bodies that `DefaultChatTransport` sends, and their meaning (`HttpChatTransport` in npm `ai` 6).

A body contains all messages that the page knows. The server has the chat, so it reads only one of these messages: the
last user message for a new turn, or else the assistant message to which the page has added approvals or tool results.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from threadcast.compat.ai_sdk.message_ids import MESSAGE_ID_MAX_BYTES
from threadcast.compat.foreign_ids import FOREIGN_ID_MAX_CHARACTERS
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.commands import DECLARED_TOOLS_MAX, DeclaredTool
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import Name
from threadcast_protocol.wire.messages import JsonObject, TextPart, content_text

__all__ = [
    "Approval",
    "ChatRequest",
    "Content",
    "UIMessage",
    "UIPart",
    "content_of",
    "read_chat",
    "same_text",
    "tool_parts",
]

Content: TypeAlias = str | list[JsonObject]


class Approval(msgspec.Struct, frozen=True):
    """The approval of a tool part. `approved` is absent until a person has decided."""

    id: str
    approved: bool | None = None
    reason: str | None = None


class UIPart(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a UI message. Only the fields of texts, files and tools are read."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = None
    filename: str | None = None
    tool_call_id: str = ""
    state: str | None = None
    output: Any | UnsetType = UNSET  # Any: the tool's own JSON
    error_text: str | None = None
    approval: Approval | None = None


class UIMessage(msgspec.Struct, frozen=True):
    """A message in the form that pages keep."""

    id: Annotated[str, Meta(min_length=1, max_length=MESSAGE_ID_MAX_BYTES)]
    role: Literal["system", "user", "assistant"]
    parts: list[UIPart]


class ChatRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The body of `POST /ai-sdk/chat`. `tools`, `model` and `mode` are additional keys that a page gives its transport
    as `body`: tools that the page carries out, and the model and profile of a new chat or message."""

    id: Annotated[str, Meta(min_length=1, max_length=FOREIGN_ID_MAX_CHARACTERS)]
    messages: Annotated[list[UIMessage], Meta(min_length=1)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    tools: Annotated[list[DeclaredTool], Meta(max_length=DECLARED_TOOLS_MAX)] = []
    model: Name | None = None
    mode: Name | None = None

    @property
    def answered(self) -> UIMessage | None:
        """The assistant message that the page sends back with approvals or results; None for a new turn. If an earlier
        message waits for these answers, the page names that message in `messageId`."""
        if self.trigger != "submit-message":
            return None
        named = next((message for message in self.messages if message.id == self.message_id), self.messages[-1])
        return named if named.role == "assistant" else None

    @property
    def asked(self) -> tuple[int, UIMessage]:
        """The last user message and its index. Raises BadRequest if the body has no user message."""
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role == "user":
                return index, self.messages[index]
        raise BadRequest("messages has no message of the user", path="/messages")


_requests: msgspec.json.Decoder[ChatRequest] = decoder(ChatRequest)


def read_chat(body: bytes) -> ChatRequest:
    """Decode a body. Raises BadRequest with the path of the wrong value."""
    return decode_body(_requests, body)


def tool_parts(message: UIMessage) -> dict[str, UIPart]:
    """Return the tool parts by the id of their call."""
    return {
        part.tool_call_id: part
        for part in message.parts
        if part.tool_call_id and (part.type == "dynamic-tool" or part.type.startswith("tool-"))
    }


def content_of(message: UIMessage, path: str) -> Content:
    """Return the content of a user message for a command: its text, or its parts in their order. Parts of other types,
    such as `data-*`, are left out, because models cannot read them.

    Raises:
        BadRequest: a file is no data URL, or an image is neither a data URL nor an image of this server.
    """
    parts: list[JsonObject] = []
    for index, part in enumerate(message.parts):
        if part.type == "text" and part.text:
            parts.append({"type": "text", "text": part.text})
        elif part.type == "file":
            parts.append(_file(part, f"{path}/parts/{index}"))
    if all(part["type"] == "text" for part in parts) and len(parts) <= 1:
        return str(parts[0]["text"]) if parts else ""
    return parts


def _file(part: UIPart, path: str) -> JsonObject:
    url, mime = part.url or "", part.media_type or ""
    if mime.startswith("image/") and url.startswith(("data:", "/v1/")):
        return {"type": "image_url", "image_url": {"url": url}}
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise BadRequest("a file must be a data URL in base64; this server fetches no other addresses", path=path)
    return {"type": "file", "name": part.filename or "file", "mime": mime or head[5:-7], "data": data}


def same_text(content: Content, stored: object) -> bool:
    """Return whether a resent message has the text of the stored message. Of files only the number is compared, since
    the address of a stored file differs from the address that the page sent."""
    mine = content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)
    theirs = stored if isinstance(stored, str) else content_text(stored, 1 << 62)
    return mine == theirs and _files(content) == _files(stored)


def _files(content: object) -> int:
    if not isinstance(content, list):
        return 0
    return sum(1 for part in content if not (isinstance(part, TextPart) or (isinstance(part, dict) and "text" in part)))
