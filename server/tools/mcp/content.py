"""What MCP servers say, as what models and messages hold: results of tools, resources and prompts.

Pure, and it knows the SDK's blocks by their fields alone, so that it needs no import. An image becomes a line of its
own with a data URI; structured content speaks where there is no text; what no model can read is named, not dropped.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from protocol.messages import JsonObject

if TYPE_CHECKING:
    import mcp_types

__all__ = ["prompt_attachment", "resource_attachments", "result_text"]

_SHOWABLE = re.compile(r"image/(?:png|jpeg|jpg|webp|gif)")
LABEL_MAX_CHARACTERS = 255
"""Of a part's name (PROTOCOL §10)."""


def result_text(result: "mcp_types.CallToolResult") -> str:
    """A tool's answer as the model reads it."""
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
    """Attachments as PROTOCOL §10 has them: text and data as files under the resource's URI, images as images."""
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
    """One text, headed by where it is from; images of the prompt beside it."""
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
    """On one line and no longer than a name may be."""
    return re.sub(r"[\x00-\x1f\x7f]", " ", text)[:LABEL_MAX_CHARACTERS]
