"""Translates the messages of a chat for AG-UI clients, and the messages of a client for a new chat. Pure.

An answer's reasoning is a separate message before the answer. Messages without visible content are left out.
"""

import base64
from collections.abc import Iterable, Sequence

from threadcast.compat.ag_ui.bodies import SentMessage, content_of, result_of
from threadcast.compat.ag_ui.message_ids import SentIds, restored_id_of
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.blobs import blob_url
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    JsonObject,
    Message,
    Part,
    TextPart,
    text_of,
)

__all__ = [
    "History",
    "failure_metadata",
    "given_message",
    "is_in_step",
    "path_of",
    "reasoning_id",
    "restored",
    "snapshots",
]

_SOUND_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def path_of(state: ChatState) -> list[Message]:
    """Return the messages of the active path, including the present text of the answer that a model is writing."""
    draft = state.draft
    return [
        drafted_message(draft) if draft is not None and draft.message.message_id == key else state.nodes[key]
        for key in state.path
    ]


def reasoning_id(message_id: str) -> str:
    """Return the id of the message with the reasoning of the answer `message_id`."""
    return f"{message_id}-reasoning"


def failure_metadata(message: Message) -> JsonObject:
    """Return the field that marks the result of a failed call, both in events and in messages."""
    return {"metadata": {"threadcast": {"tool_failed": True}}} if message.tool_failed else {}


class History:
    """Translates messages of one chat. `public_url` is put before the addresses of stored files."""

    def __init__(self, chat_id: str, ids: SentIds, public_url: str = "") -> None:
        self._chat_id = chat_id
        self._ids = ids
        self._public_url = public_url.rstrip("/")

    def of(self, path: Iterable[Message]) -> list[JsonObject]:
        """Return all messages of a path."""
        return [shown for message in path for shown in self.translated(message)]

    def translated(self, message: Message) -> list[JsonObject]:
        """Return the client's messages for one stored message: no message, one message, or a reasoning message and its
        answer."""
        if message.hidden:
            return []
        shown_id = self._ids.shown_id(message)
        if message.role == "user":
            return [{"id": shown_id, "role": "user", "content": self._content(message)}]
        if message.role == "tool":
            told = {"id": shown_id, "role": "tool", "content": text_of(message.content)}
            return [{**told, "toolCallId": message.tool_call_id or "", **failure_metadata(message)}]
        if message.role != "assistant":
            return []
        found: list[JsonObject] = []
        if message.reasoning_content:
            told = {"id": reasoning_id(message.message_id), "role": "reasoning", "content": message.reasoning_content}
            found.append(told)
        text = text_of(message.content)
        if text or message.tool_calls:
            answer: JsonObject = {"id": shown_id, "role": "assistant", "content": text}
            if message.tool_calls:
                answer["toolCalls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.function.name, "arguments": call.function.arguments},
                    }
                    for call in message.tool_calls
                ]
            found.append(answer)
        return found

    def _content(self, message: Message) -> object:
        content = message.content
        return content if isinstance(content, str) else [self._part(part) for part in content]

    def _part(self, part: Part) -> JsonObject:
        match part:
            case TextPart(text=text):
                return {"type": "text", "text": text}
            case ImagePart(image_url=image):
                return {"type": "image", "source": self._source(image.url, image.mime or "")}
            case AudioPart(input_audio=sound):
                mime = _SOUND_TYPES.get(sound.format, f"audio/{sound.format or 'wav'}")
                return {"type": "audio", "source": self._stored(sound.blob, sound.data, mime)}
            case FilePart():
                data = part.data
                if data is None:
                    data = base64.b64encode((part.text or "").encode("utf-8", "surrogatepass")).decode()
                source = self._stored(part.blob or part.text_blob, data, part.mime)
                return {"type": "document", "source": source, "metadata": {"filename": part.name}}

    def _stored(self, blob: str | None, data: str, mime: str) -> JsonObject:
        if blob:
            return self._source(blob_url(self._chat_id, blob), mime)
        return {"type": "data", "value": data, "mimeType": mime}

    def _source(self, url: str, mime: str) -> JsonObject:
        head, comma, data = url.partition(",")
        if comma and head.startswith("data:"):
            return {"type": "data", "value": data, "mimeType": head.removeprefix("data:").removesuffix(";base64")}
        address = f"{self._public_url}{url}" if url.startswith("/") else url
        return {"type": "url", "value": address, **({"mimeType": mime} if mime else {})}


def given_message(message: SentMessage) -> JsonObject:
    """Return a message as the client sent it, for a snapshot before the chat contains it."""
    told: JsonObject = {"id": message.id, "role": message.role, "content": message.content}
    if message.role == "tool":
        told["toolCallId"] = message.tool_call_id
        if message.error is not None:
            told["error"] = message.error
    return told


def snapshots(before: Sequence[str], shown: Sequence[JsonObject]) -> list[list[JsonObject]]:
    """Return the snapshots after which a client that has the messages `before` has exactly the messages `shown`.

    One snapshot is enough if the known messages come first. Otherwise an additional snapshot of the equal beginning
    comes first, because `@ag-ui/client` 1.0 keeps the positions of known messages and appends the others. The client
    also keeps its own reasoning if a snapshot contains no reasoning, so snapshots contain an empty reasoning message.
    """
    ids = [message["id"] for message in shown]
    known = set(ids)
    kept = [key for key in before if key in known]
    if kept == ids[: len(kept)]:
        return [list(shown)]
    equal = next(at for at, key in enumerate(kept) if key != ids[at])
    beginning = list(shown[:equal])
    has_reasoning = any(message["role"] == "reasoning" for message in beginning)
    if not has_reasoning and any(message["role"] == "reasoning" for message in shown):
        beginning.append({"id": "reasoning-of-later-messages", "role": "reasoning", "content": ""})
    return [beginning, list(shown)]


def is_in_step(sent: Sequence[SentMessage], path: Sequence[JsonObject]) -> bool:
    """Return whether the client's messages equal the path, so that the client needs no snapshot. Contents of the user's
    messages are not compared, since the address of a stored file differs from the address that the client sent.
    Reasoning, activities and instructions are not compared either: clients need not send them."""
    return [_mark_of_sent(each) for each in sent if each.role in ("user", "assistant", "tool")] == [
        _mark_of_shown(each) for each in path if each["role"] in ("user", "assistant", "tool")
    ]


def _mark_of_sent(message: SentMessage) -> object:
    if message.role != "assistant":
        return message.id, message.role
    calls = [(call.id, call.function.arguments) for call in message.tool_calls or ()]
    return message.id, message.role, message.text, calls


def _mark_of_shown(message: JsonObject) -> object:
    if message["role"] != "assistant":
        return message["id"], message["role"]
    calls = [(call["id"], call["function"]["arguments"]) for call in message.get("toolCalls", ())]
    return message["id"], message["role"], message["content"], calls


def restored(messages: Sequence[SentMessage]) -> list[JsonObject]:
    """Return the given history of a new chat for `restore_messages`. Instructions, reasoning and activities are left
    out. Raises BadRequest as `content_of`."""
    found: list[JsonObject] = []
    for number, message in enumerate(messages):
        path = f"/messages/{number}"
        told: JsonObject = {"message_id": restored_id_of(message.id), "role": message.role}
        match message.role:
            case "user":
                found.append({**told, "content": content_of(message, path)})
            case "assistant":
                calls = [
                    {"id": call.id, "function": {"name": call.function.name, "arguments": call.function.arguments}}
                    for call in message.tool_calls or ()
                ]
                found.append({**told, "content": message.text, **({"tool_calls": calls} if calls else {})})
            case "tool":
                text, is_failed = result_of(message, path)
                failed = {"tool_failed": True} if is_failed else {}
                found.append({**told, "content": text, "tool_call_id": message.tool_call_id, **failed})
            case _:
                pass
    return found
