"""The body of an AG-UI request, `RunAgentInput` (ag-ui.com/spec/1.0, and PyPI `ag-ui-protocol` 1.0), and its content.

Unknown fields are skipped. A body contains all messages that the client knows; messages that the chat already has are
skipped.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from threadcast.compat.foreign_ids import FOREIGN_ID_MAX_CHARACTERS
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.commands import DECLARED_TOOLS_MAX, DeclaredTool, ToolName
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "CONTEXTS_MAX",
    "RESUMES_MAX",
    "Content",
    "ResumeEntry",
    "RunInput",
    "SentMessage",
    "content_of",
    "read_run",
    "result_of",
]

Content: TypeAlias = str | list[JsonObject]

ForeignId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=FOREIGN_ID_MAX_CHARACTERS)]

RESUMES_MAX = 100
"""The maximum answers in one request: as many as one command may decide (PROTOCOL §18)."""

CONTEXTS_MAX = 100
"""The maximum entries of `context` in one request. The entries and the state together have at most 65,536 bytes
(PROTOCOL §18)."""

MESSAGES_MAX_COUNT = 10_000
"""The maximum messages in one request: as many as `restore_messages` takes (PROTOCOL §18)."""

SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """The source of a part's bytes: `value` is an address, or data in base64."""

    type: str
    value: str
    mime_type: str = ""


class SentPart(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a message's content. `metadata` may have a `filename`. The last four fields belong to the part
    `binary`, which clients before 1.0 send."""

    type: str
    text: str = ""
    source: Source | None = None
    metadata: Any = None  # Any: the application's JSON
    mime_type: str = ""
    data: str | None = None
    url: str | None = None
    filename: str | None = None


class SentFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class SentCall(msgspec.Struct, frozen=True):
    id: str
    function: SentFunction


class SentMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message in the client's form. `content` is read when it is needed, because its type depends on the role."""

    id: ForeignId
    role: str
    content: Any = None  # Any: a text, a list of parts, or an activity's object
    tool_call_id: str = ""
    error: str | None = None
    tool_calls: list[SentCall] | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else ""


class SentTool(msgspec.Struct, frozen=True):
    """A tool that the client carries out. `parameters` is a JSON Schema."""

    name: ToolName
    description: Annotated[str, Meta(max_length=8_192)] = ""
    parameters: JsonObject | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    description: str
    value: str


class ResumeEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to one interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None  # Any: the answer's JSON


class RunInput(msgspec.Struct, frozen=True, rename="camel"):
    """The body of `POST /ag-ui`."""

    thread_id: ForeignId
    run_id: ForeignId
    messages: Annotated[list[SentMessage], Meta(max_length=MESSAGES_MAX_COUNT)]
    protocol_version: str | None = None
    parent_run_id: str | None = None
    state: Any | UnsetType = UNSET  # Any: JSON
    tools: Annotated[list[SentTool], Meta(max_length=DECLARED_TOOLS_MAX)] | None = None
    context: Annotated[list[ContextEntry], Meta(max_length=CONTEXTS_MAX)] | None = None
    forwarded_props: Any = None  # Any: JSON
    resume: Annotated[list[ResumeEntry], Meta(max_length=RESUMES_MAX)] | None = None

    @property
    def is_1_0(self) -> bool:
        """Whether the client knows outcomes that AG-UI 1.0 added. Clients before 1.0 send no version."""
        return self.protocol_version is not None

    @property
    def declared_tools(self) -> list[DeclaredTool]:
        return [
            DeclaredTool(name=tool.name, description=tool.description or tool.name, input_schema=tool.parameters or {})
            for tool in self.tools or ()
        ]

    @property
    def untrusted_context(self) -> JsonObject:
        """The client's information about itself, for the context of the run: only prompts and tools read these keys."""
        told: JsonObject = {}
        if not isinstance(self.state, UnsetType) and self.state not in (None, {}):
            told["ag_ui_state"] = self.state
        if self.context:
            told["ag_ui_context"] = msgspec.to_builtins(self.context)
        if self.forwarded_props not in (None, {}):
            told["ag_ui_forwarded_props"] = self.forwarded_props
        return told


_runs: msgspec.json.Decoder[RunInput] = decoder(RunInput)


def read_run(body: bytes) -> RunInput:
    """Decode a body. Raises BadRequest with the path of the wrong value."""
    return decode_body(_runs, body)


def content_of(message: SentMessage, path: str) -> Content:
    """Return the content of a user's message for a command: its text, or its parts in their order.

    Raises:
        BadRequest: the content has another form, or a part names an address that this server would have to fetch.
    """
    if isinstance(message.content, str):
        return message.content
    parts = [
        found
        for number, part in enumerate(_parts(message.content, path))
        if (found := _part(part, f"{path}/content/{number}")) is not None
    ]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def result_of(message: SentMessage, path: str) -> tuple[str, bool]:
    """Return the text of a tool's result, and whether the tool failed. An image that contains its data becomes a
    separate line of the text, the form of images in results (PROTOCOL §10). Raises BadRequest if the content is neither
    a text nor parts."""
    if isinstance(message.content, str):
        text = message.content
    else:
        found = (_line(part) for part in _parts(message.content, path))
        text = "\n".join(line for line in found if line)
    if message.error is None:
        return text, False
    return (text if message.error in text else f"{message.error}\n{text}".strip()), True


def _parts(content: Any, path: str) -> list[SentPart]:  # Any: JSON
    try:
        return msgspec.convert(content, list[SentPart])
    except msgspec.ValidationError as wrong:
        raise BadRequest(f"content is a text or a list of parts: {wrong}", path=f"{path}/content") from None


def _line(part: SentPart) -> str:
    if part.type == "text":
        return part.text
    source = part.source
    if part.type == "image" and source is not None and source.type == "data":
        return f"data:{source.mime_type};base64,{source.value}"
    return ""


def _part(part: SentPart, path: str) -> JsonObject | None:
    if part.type == "text":
        return {"type": "text", "text": part.text} if part.text else None
    mime, data, address = part.mime_type, part.data, part.url or ""
    if part.source is not None:
        mime = part.source.mime_type
        is_data = part.source.type == "data"
        data, address = (part.source.value, "") if is_data else (None, part.source.value)
    if data is None and address.startswith("data:"):
        head, _, data = address.partition(",")
        mime = head.removeprefix("data:").removesuffix(";base64")
    is_image = part.type == "image" or mime.startswith("image/")
    if is_image and data is None and address.startswith("/v1/"):
        return {"type": "image_url", "image_url": {"url": address}}
    if data is None:
        raise BadRequest("send the data itself; this server fetches no addresses and no files of providers", path=path)
    if is_image:
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
    if mime in SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": data, "format": SOUNDS[mime]}}
    named = part.metadata.get("filename") if isinstance(part.metadata, dict) else None
    name = named if isinstance(named, str) and named else part.filename or "file"
    return {"type": "file", "name": name, "mime": mime or "application/octet-stream", "data": data}
