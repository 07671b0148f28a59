"""Messages and requests in few words, for the tests of Anthropic's Messages API."""

import msgspec

from threadcast.providers.anthropic.request import request_body
from threadcast.providers.base import Request
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, Message, ToolCall

__all__ = [
    "asking",
    "body_of",
    "call",
    "message",
    "text",
    "turns_of",
]


def message(role: str, content: str, message_id: str = "m", **fields: object) -> Message:
    return msgspec.convert({"role": role, "content": content, "message_id": message_id, **fields}, Message)


def asking(*calls: ToolCall, content: str = "", message_id: str = "a") -> Message:
    return Message(role="assistant", content=content, message_id=message_id, tool_calls=list(calls))


def call(call_id: str, index: int = 0, arguments: str = '{"zone":1}') -> ToolCall:
    return ToolCall(call_id, index, FunctionCall("clock", arguments))


def body_of(*messages: Message, **fields: object) -> JsonObject:
    return request_body(Request(model="m", messages=list(messages), **fields), is_caching=False)  # type: ignore[arg-type]  # the caller's words


def turns_of(*messages: Message, **fields: object) -> list[JsonObject]:
    turns: list[JsonObject] = body_of(*messages, **fields)["messages"]
    return turns


def text(said: str) -> JsonObject:
    return {"type": "text", "text": said}
