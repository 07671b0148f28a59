"""The conversation in AG-UI's form: the messages that a run receives, and the messages of the run that are kept. Pure.

With each message of the chat, the agent's messages that it shows are kept, so that the agent reads its own ids and
encrypted values again. Other messages are translated from the form that clients see.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from threadcast.custom_agents.pieces import KEEP_MAX_BYTES, Keep
from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.messages import AudioPart, FilePart, ImagePart, JsonObject, Part, TextPart, text_of

__all__ = ["Conversation", "Kept", "conversation_of", "keep_of", "tool_message"]

SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg"}


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The private state of one message of the chat. `messages` are the agent's own messages, `calls` the agent's ids of
    the shown calls, and `state` the agent's state after these messages."""

    messages: list[JsonObject]
    calls: list[str] = []
    state: Any = None  # Any: JSON


class Conversation:
    """The messages of a conversation, and the agent's state."""

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []
        self.state: Any = None  # Any: JSON
        self._newest: dict[object, JsonObject] = {}

    @property
    def ids(self) -> set[str]:
        return {str(message.get("id")) for message in self.messages}

    def add(self, messages: Iterable[JsonObject]) -> None:
        """Add messages. An assistant message with a known id continues the known message."""
        for message in messages:
            known = self._newest.get(message.get("id"))
            if known is None or message["role"] != "assistant" or known["role"] != "assistant":
                self.messages.append(message)
                self._newest[message.get("id")] = message
                continue
            if message.get("content"):
                known["content"] = f"{known.get('content') or ''}{message['content']}"
            if message.get("toolCalls"):
                known["toolCalls"] = [*known.get("toolCalls", []), *message["toolCalls"]]


def keep_of(kept: Kept) -> list[Keep]:
    """Return the piece that keeps the state; no piece if the state is larger than a message may keep."""
    data = msgspec.json.encode(kept)
    return [Keep(data)] if len(data) <= KEEP_MAX_BYTES else []


def conversation_of(messages: Sequence[RoundMessage]) -> Conversation:
    """Return the conversation before a run."""
    found = Conversation()
    own_ids: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            call_id = own_ids.get(message.tool_call_id or "", message.tool_call_id or "")
            found.add([tool_message(message.message_id, call_id, text_of(message.content))])
            continue
        kept = _kept(message)
        if kept is None:
            found.add([_translated(message)])
            continue
        own_ids.update(zip((call.id for call in message.tool_calls), kept.calls, strict=False))
        found.add(kept.messages)
        found.state = kept.state
    return found


def tool_message(message_id: str, call_id: str, text: str) -> JsonObject:
    return {"id": message_id, "role": "tool", "content": text, "toolCallId": call_id}


def _kept(message: RoundMessage) -> Kept | None:
    try:
        return decoder(Kept).decode(message.keep) if message.keep else None
    except msgspec.DecodeError:  # another version of this code wrote this state
        return None


def _translated(message: RoundMessage) -> JsonObject:
    """Return a message as clients see it."""
    if message.role != "assistant":
        role = message.role if message.role in ("system", "developer") else "user"
        content = message.content
        is_text = role != "user" or isinstance(content, str)
        return {
            "id": message.message_id,
            "role": role,
            "content": text_of(content) if is_text or isinstance(content, str) else [_part(each) for each in content],
        }
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in message.tool_calls
    ]
    found = {"id": message.message_id, "role": "assistant", "content": text_of(message.content)}
    return {**found, "toolCalls": calls} if calls else found


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(image_url=image):
            return {"type": "image", "source": _source(image.url, image.mime)}
        case AudioPart(input_audio=sound):
            mime = SOUNDS.get(sound.format, f"audio/{sound.format or 'wav'}")
            return {"type": "audio", "source": {"type": "data", "value": sound.data, "mimeType": mime}}
        case FilePart(data=str(data)):
            source = {"type": "data", "value": data, "mimeType": part.mime}
            return {"type": "document", "source": source, "metadata": {"name": part.name}}
        case FilePart():
            return {"type": "text", "text": f"[file {part.name}]\n{part.text or ''}"}


def _source(url: str, mime: str | None) -> JsonObject:
    head, comma, data = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        return {"type": "data", "value": data, "mimeType": head.removeprefix("data:").removesuffix(";base64")}
    return {"type": "url", "value": url, **({"mimeType": mime} if mime else {})}
