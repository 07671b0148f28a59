"""The bodies of the Responses and Conversations APIs, translated into the parts of a command.

The functions are pure. Fields that this server cannot honour are refused by name; unknown fields are skipped, because
newer clients send more.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from threadcast.compat.foreign_ids import read_call_id
from threadcast.compat.responses.response_stream import APPROVAL_PREFIX
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.commands import Decision, DeclaredTool
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "INPUT_MAX_ITEMS",
    "Answers",
    "ConversationRequest",
    "Given",
    "ResponseRequest",
    "declared_tools",
    "read_conversation",
    "read_input",
    "read_response",
]

INPUT_MAX_ITEMS = 10_000
"""The maximum items of one request: as many as the messages that a chat can restore (PROTOCOL §18)."""

Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
"""OpenAI's bounds: 16 pairs, keys of 64 and values of 512 characters (its API reference, `metadata`)."""


class ConversationName(msgspec.Struct, frozen=True):
    """The conversation of a request, as an object."""

    id: str


class Reasoning(msgspec.Struct, frozen=True):
    """The request's parameters for reasoning."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/responses`. `conversation` is a chat."""

    input: str | list[JsonObject]
    model: Annotated[str, Meta(max_length=256)] | None = None
    instructions: Annotated[str, Meta(max_length=32_768)] | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    conversation: str | ConversationName | None = None
    previous_response_id: Annotated[str, Meta(max_length=256)] | None = None
    metadata: Metadata | None = None
    tools: list[JsonObject] = []
    tool_choice: object = None
    parallel_tool_calls: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    reasoning: Reasoning | None = None
    text: JsonObject | None = None
    prompt: object = None

    @property
    def conversation_id(self) -> str | None:
        named = self.conversation
        return named.id if isinstance(named, ConversationName) else named


class ConversationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/conversations`."""

    items: list[JsonObject] | None = None
    metadata: Metadata | None = None


class Answers(NamedTuple):
    """The answers that a run waits for: results of calls, as (call id, text), and decisions. `chat_id` is the chat that
    the ids of the calls contain; '' if they contain no chat."""

    results: list[tuple[str, str]]
    decisions: list[Decision]
    chat_id: str = ""


class Given(NamedTuple):
    """The input of a request. `content` holds the parts of the user's last messages, `history` all earlier messages."""

    instructions: str
    history: list[JsonObject]
    content: list[JsonObject]
    answers: Answers


_responses: msgspec.json.Decoder[ResponseRequest] = decoder(ResponseRequest)
_conversations: msgspec.json.Decoder[ConversationRequest] = decoder(ConversationRequest)

_SKIPPED = frozenset({"reasoning", "mcp_approval_request", "mcp_call", "mcp_list_tools"})
"""Types of items that are skipped, because clients only send them back and the chat already has them."""


def read_response(body: bytes) -> ResponseRequest:
    """Decode the body of `POST /v1/responses`.

    Raises:
        BadRequest: the body is malformed, or asks for something that this server does not support.
    """
    asked = decode_body(_responses, body)
    if asked.prompt is not None:
        raise BadRequest("prompt: this server has no stored prompts; send instructions", path="/prompt")
    if asked.tool_choice not in (None, "auto"):
        raise BadRequest("tool_choice: only auto is offered", path="/tool_choice")
    form = (asked.text or {}).get("format")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        raise BadRequest("text.format: only text is offered", path="/text/format")
    if asked.conversation is not None and asked.previous_response_id is not None:
        raise BadRequest("name a conversation or a previous response, not both", path="/previous_response_id")
    if asked.store is False and asked.background:
        raise BadRequest("a background response is always stored", path="/store")
    return asked


def read_conversation(body: bytes) -> ConversationRequest:
    """Decode the body of `POST /v1/conversations`. Raises BadRequest."""
    return decode_body(_conversations, body or b"{}")


def declared_tools(tools: Sequence[JsonObject]) -> list[DeclaredTool]:
    """Return function tools in the form in which a message declares tools. Raises BadRequest for any other tool."""
    found: list[DeclaredTool] = []
    for number, tool in enumerate(tools):
        if tool.get("type") != "function":
            raise BadRequest("tools: only functions are offered; the operator chooses others", path=f"/tools/{number}")
        made = {
            "name": tool.get("name"),
            "description": tool.get("description") or tool.get("name"),
            "input_schema": tool.get("parameters") or {},
        }
        try:
            found.append(msgspec.convert(made, DeclaredTool))
        except msgspec.ValidationError as wrong:
            raise BadRequest(f"tools: {wrong}", path=f"/tools/{number}") from None
    return found


def read_input(given: str | Sequence[JsonObject], path: str = "/input") -> Given:
    """Return the parts of a request's input. Results of functions at its end are answers that a run waits for; earlier
    results are part of the history, with their calls.

    Raises:
        BadRequest: an item has an unknown type or lacks a field; `path` points at it.
    """
    if isinstance(given, str):
        return Given("", [], [{"type": "text", "text": given}], Answers([], []))
    if len(given) > INPUT_MAX_ITEMS:
        raise BadRequest(f"at most {INPUT_MAX_ITEMS} items", path=path)
    instructions: list[str] = []
    messages: list[JsonObject] = []
    answers = Answers([], [])
    for number, item in enumerate(given):
        where = f"{path}/{number}"
        kind = item.get("type", "message")
        if kind == "message":
            role, parts = item.get("role"), _parts(item.get("content"), f"{where}/content")
            if role in ("system", "developer"):
                instructions.append("\n".join(part.get("text", "") for part in parts))
            elif role in ("user", "assistant"):
                messages.append({"role": role, "content": parts})
                answers.results.clear()
            else:
                raise BadRequest("the role of a message is user, assistant, system or developer", path=f"{where}/role")
        elif kind == "function_call_output":
            call_id, text = _text(item, "call_id", where), _output(item.get("output"), where)
            answers.results.append((call_id, text))
            messages.append({"role": "tool", "content": text, "tool_call_id": read_call_id(call_id)[0]})
        elif kind == "function_call":
            _add_call(messages, item, where)
        elif kind == "mcp_approval_response":
            answers.decisions.append(_decision(item, where))
        elif not isinstance(kind, str) or kind not in _SKIPPED:
            raise BadRequest("items of this type are not taken", path=f"{where}/type")
    first = len(messages)
    while first and messages[first - 1]["role"] == "user":
        first -= 1
    content = [part for message in messages[first:] for part in message["content"]]
    history = [
        {**message, "content": _joined(message["content"])} if message["role"] == "assistant" else message
        for message in messages[:first]
    ]
    chats = {read_call_id(call_id)[1] for call_id, _ in answers.results}
    if len(chats) > 1:
        raise BadRequest("input: the results are those of calls of one conversation", path=path)
    own = [(read_call_id(call_id)[0], text) for call_id, text in answers.results]
    return Given("\n\n".join(instructions), history, content, Answers(own, answers.decisions, "".join(chats)))


def _add_call(messages: list[JsonObject], item: JsonObject, where: str) -> None:
    """Add a call of the history to the assistant message that makes it."""
    call: JsonObject = {
        "id": read_call_id(_text(item, "call_id", where))[0],
        "type": "function",
        "function": {"name": _text(item, "name", where), "arguments": _text(item, "arguments", where)},
    }
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    messages[-1].setdefault("tool_calls", []).append(call)


def _joined(parts: Sequence[JsonObject]) -> str:
    return "".join(part.get("text", "") for part in parts)


def _text(item: JsonObject, key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{key} must be a text", path=f"{where}/{key}")
    return value


def _output(output: object, where: str) -> str:
    if isinstance(output, str):
        return output
    parts = _parts(output, f"{where}/output")
    if any(part["type"] != "text" for part in parts):
        raise BadRequest("the output of a function is a text here", path=f"{where}/output")
    return _joined(parts)


def _decision(item: JsonObject, where: str) -> Decision:
    call_id, accepted = _text(item, "approval_request_id", where), item.get("approve")
    if not call_id.startswith(APPROVAL_PREFIX) or not 0 < len(call_id) - len(APPROVAL_PREFIX) <= 128:
        raise BadRequest("no such approval request", path=f"{where}/approval_request_id")
    if not isinstance(accepted, bool):
        raise BadRequest("approve must be true or false", path=f"{where}/approve")
    note = item.get("reason")
    if note is not None and not (isinstance(note, str) and len(note) <= 8_192):
        raise BadRequest("reason must be a text of at most 8192 characters", path=f"{where}/reason")
    return Decision(tool_call_id=call_id.removeprefix(APPROVAL_PREFIX), accepted=accepted, note=note or None)


def _parts(content: object, path: str) -> list[JsonObject]:
    """Return OpenAI's content in the form of this server's protocol (PROTOCOL §10). Raises BadRequest."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise BadRequest("content must be a text or a list of parts", path=path)
    return [_part(part, f"{path}/{number}") for number, part in enumerate(content)]


_TEXTS: dict[object, Literal["text", "refusal"]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
}


def _part(part: object, path: str) -> JsonObject:
    if not isinstance(part, dict):
        raise BadRequest("a part must be an object", path=path)
    kind = part.get("type")
    key = _TEXTS.get(kind) if isinstance(kind, str) else None
    if key is not None:
        value = part.get(key)
        if not isinstance(value, str):
            raise BadRequest("text must be a text", path=f"{path}/{key}")
        return {"type": "text", "text": value}
    if kind == "input_image":
        return {"type": "image_url", "image_url": {"url": _text(part, "image_url", path)}}
    if kind == "input_file":
        data = _text(part, "file_data", path)
        mime, comma, encoded = data.removeprefix("data:").partition(";base64,")
        name = part.get("filename")
        return {
            "type": "file",
            "name": name if isinstance(name, str) and name else "file",
            "mime": mime if comma else "application/octet-stream",
            "data": encoded if comma else data,
        }
    raise BadRequest("parts are input_text, input_image and input_file", path=f"{path}/type")
