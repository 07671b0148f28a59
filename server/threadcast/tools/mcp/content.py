"""Converts results of MCP tools, resources and prompts into text for models and attachments of messages.

Pure: this module reads the fields of the SDK's blocks without importing the SDK. An image becomes a separate line with
a data URI, structured content is used in the absence of text, and a note replaces content that models cannot read.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from threadcast_protocol.wire.messages import JsonObject

if TYPE_CHECKING:
    import mcp_types

__all__ = ["prompt_attachment", "resource_attachments", "result_text"]

_SHOWABLE = re.compile(r"image/(?:png|jpeg|jpg|webp|gif)")
LABEL_MAX_CHARACTERS = 255
"""Maximum characters of a part's name (PROTOCOL §10)."""


def result_text(result: "mcp_types.CallToolResult") -> str:
    """Return the text of a tool's answer for the model."""
    lines = [text for block in result.content if (text := _block_text(block))]
    if not any(block.type == "text" for block in result.content) and result.structured_content is not None:
        lines.append(msgspec.json.encode(result.structured_content).decode())
    return "\n".join(lines)


def _block_text(block: "mcp_types.ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image":
            return f"data:{block.mime_type};base64,{block.data}"
        case "audio":
            return f"[audio, {block.mime_type}, {len(block.data) * 3 // 4} bytes: not shown]"
        case "resource_link":
            return f"[resource {block.name}: {block.uri}]"
        case "resource":
            held = block.resource
            text = getattr(held, "text", None)
            if isinstance(text, str):
                return f"[resource {held.uri}]\n{text}"
            if _SHOWABLE.fullmatch(held.mime_type or ""):
                return f"data:{held.mime_type};base64,{getattr(held, 'blob', '')}"
            return f"[resource {held.uri}, {held.mime_type or 'of unknown type'}: not shown]"


def resource_attachments(server: str, uri: str, result: "mcp_types.ReadResourceResult") -> list[JsonObject]:
    """Return attachments in the form of PROTOCOL §10: text and data become files named by the resource's URI, and
    images become images."""
    parts: list[JsonObject] = []
    for held in result.contents:
        mime = held.mime_type or ""
        label = _label(f"{server}: {held.uri or uri}")
        text = getattr(held, "text", None)
        if isinstance(text, str):
            parts.append({"type": "file", "name": label, "mime": mime or "text/plain", "text": text})
        elif _SHOWABLE.fullmatch(mime):
            parts.append({"type": "text", "text": f"[{label}]"})
            parts.append({"type": "image_url", "image_url": {"url": f"data:{mime};base64,{_blob(held)}"}})
        else:
            mime = mime or "application/octet-stream"
            parts.append({"type": "file", "name": label, "mime": mime, "data": _blob(held)})
    return parts


def _blob(held: object) -> str:
    return str(getattr(held, "blob", ""))


def prompt_attachment(server: str, name: str, result: "mcp_types.GetPromptResult") -> list[JsonObject]:
    """Return one text with a header that names its source, and the prompt's images."""
    lines = [f"[prompt {_label(f'{server}: {name}')}]"]
    images: list[JsonObject] = []
    for message in result.messages:
        block = message.content
        if block.type == "image" and _SHOWABLE.fullmatch(block.mime_type):
            images.append({"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}})
            continue
        text = _block_text(block)
        lines.append(text if message.role == "user" else f"{message.role}: {text}")
    return [{"type": "text", "text": "\n".join(lines)}, *images]


def _label(text: str) -> str:
    """Return the text on one line, cut to the maximum length of a name."""
    return re.sub(r"[\x00-\x1f\x7f]", " ", text)[:LABEL_MAX_CHARACTERS]
