"""The JSON Schema of message content, equivalent to the checks of `wire/content.py`.

No struct describes content, because each part is checked while it is read, with messages of its own. JSON Schema cannot
express sizes in bytes, valid base64, or whether bytes are an image.
"""

import msgspec

from threadcast.api.attachments import McpPromptAttachment, McpResourceAttachment
from threadcast_protocol.wire.content import IMAGE_MIME_PATTERN, LABEL_PATTERN
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["content_components"]

_TEXT: JsonObject = {"type": "string"}
_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}
_LABEL: JsonObject = {"type": "string", "pattern": f"^{LABEL_PATTERN}$"}
_HASH: JsonObject = {"type": "string", "pattern": "^[0-9a-f]{64}$(?!\\n)"}
_NOT_READ: JsonObject = {"description": "The server replaces the client's value."}

_BLOB_URL = "/v1/chats/[A-Za-z0-9_-]{1,128}/blobs/[0-9a-f]{64}"
_IMAGE_URL: JsonObject = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {
            "type": "string",
            "pattern": f"^(data:{IMAGE_MIME_PATTERN};base64,|{_BLOB_URL}$(?!\\n))",
            "description": "A base64 data URL, or the `url` of an upload to the same chat.",
        },
        "detail": _TEXT_OR_NULL,
        "mime": _NOT_READ,
        "bytes": _NOT_READ,
    },
}


def content_components(ref_template: str) -> JsonObject:
    """Return the schemas of `Content`, `ContentPart`, `Attachment` and `ContextFile`, by name."""

    def ref(name: str) -> JsonObject:
        return {"$ref": ref_template.format(name=name)}

    mcp = [msgspec.json.schema(kind)["$defs"] for kind in (McpResourceAttachment, McpPromptAttachment)]
    return {
        "Content": {
            "title": "Content",
            "description": "Text, or parts. Parts of the older form {m_type, m_content} are accepted too.",
            "anyOf": [_TEXT, {"type": "array", "items": ref("ContentPart")}],
        },
        "ContentPart": {"title": "ContentPart", "anyOf": [_text(), _image(), _audio(), _file(), _older_part()]},
        "Attachment": {
            "title": "Attachment",
            "description": "A part, an image without `type`, or a resource or prompt of an MCP server.",
            "anyOf": [
                {
                    "allOf": [
                        ref("ContentPart"),
                        {"if": {"required": ["image_url"]}, "then": {"required": ["type"]}},
                    ]
                },
                _image() | {"required": ["image_url"], "not": {"required": ["type"]}},
                *(schema for each in mcp for schema in each.values()),
            ],
        },
        "ContextFile": {
            "title": "ContextFile",
            "description": "`content` is read if there is no `file_content`.",
            "type": "object",
            "properties": {"file_content": _TEXT},
            "allOf": [
                {
                    "if": {"not": {"required": ["file_content"]}},
                    "then": {"required": ["content"], "properties": {"content": _TEXT}},
                }
            ],
        },
    }


def _part(tag: str, required: list[str], properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "required": ["type", *required],
        "properties": {"type": {"enum": [tag]}, **properties},
    }


def _text() -> JsonObject:
    return _part("text", ["text"], {"text": _TEXT})


def _image() -> JsonObject:
    return _part("image_url", ["image_url"], {"image_url": _IMAGE_URL})


def _audio() -> JsonObject:
    sound = {
        "type": "object",
        "required": ["format"],
        "properties": {"data": _TEXT_OR_NULL, "format": _LABEL, "blob": _TEXT_OR_NULL, "bytes": _NOT_READ},
        "oneOf": [
            {"required": ["data"], "properties": {"data": {"type": "string", "minLength": 1}}},
            {"required": ["blob"], "properties": {"blob": _HASH, "data": {"enum": ["", None]}}},
        ],
    }
    return _part("input_audio", ["input_audio"], {"input_audio": sound})


def _file() -> JsonObject:
    ways: dict[str, JsonObject] = {
        "data": {"type": "string", "minLength": 1},
        "text": _TEXT,
        "blob": _HASH,
        "text_blob": _HASH,
    }
    properties = {"name": _LABEL, "mime": _LABEL, **dict.fromkeys(ways, _TEXT_OR_NULL), "bytes": _NOT_READ}
    part = _part("file", ["name", "mime"], properties)
    return part | {
        "oneOf": [
            {
                "required": [way],
                "properties": {way: kind, **{other: {"type": "null"} for other in ways if other != way}},
            }
            for way, kind in ways.items()
        ]
    }


def _older_part() -> JsonObject:
    return {
        "type": "object",
        "required": ["m_type", "m_content"],
        "properties": {
            "m_type": {"type": "string", "pattern": f"^(text|{IMAGE_MIME_PATTERN})$(?!\\n)"},
            "m_content": _TEXT,
        },
        "not": {"required": ["type"]},
    }
