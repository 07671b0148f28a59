"""Translates the chat into the input items of a run, and keeps the items of a response with its message. Pure.

Each message keeps its own items and the outputs of earlier calls, as the model has read them. A message without kept
items, because it is from another assistant or older than the newest 256, is translated from the form that clients see.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from threadcast.custom_agents.pieces import KEEP_MAX_BYTES, Keep
from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.messages import FilePart, ImagePart, JsonObject, Message, TextPart, text_of

__all__ = ["NOT_CARRIED_OUT", "Kept", "input_of", "keep_of"]

NOT_CARRIED_OUT = "The call was not carried out."
"""The output that the model reads for a call that was not made before its run ended, because the API requires an
output."""


class Kept(msgspec.Struct, frozen=True):
    """The private state of one message. `items` are input items of the SDK, `calls` are the ids that the model gave the
    shown calls, in the order of the calls, and `agent` is the name of the agent that answered."""

    agent: str
    items: list[JsonObject]
    calls: list[str]


def keep_of(kept: Kept) -> list[Keep]:
    """Return the piece that keeps the state. If the outputs of tools are too large, they are left out first, because
    the chat has their text. If the state is still larger than a message may keep, nothing is kept."""
    for candidate in (kept, Kept(kept.agent, [each for each in kept.items if not _is_output(each)], kept.calls)):
        data = msgspec.json.encode(candidate)
        if len(data) <= KEEP_MAX_BYTES:
            return [Keep(data)]
    return []


def input_of(messages: Sequence[RoundMessage]) -> tuple[list[Any], str]:  # Any: the SDK's `TResponseInputItem`
    """Return the input items of a run, and the name of the agent that answered last, or '' if no name is kept."""
    items: list[JsonObject] = []
    agent = ""
    own_ids: dict[str, str] = {}
    outputs: dict[str, JsonObject] = {}
    for message in messages:
        if message.role == "tool":
            call_id = own_ids.get(message.tool_call_id or "", message.tool_call_id or "")
            outputs[call_id] = _output(call_id, text_of(message.content))
            continue
        kept = _kept(message)
        if kept is not None:
            for item in kept.items:
                if _is_output(item):
                    outputs.pop(str(item.get("call_id")), None)
        items.extend(outputs.values())
        outputs.clear()
        if kept is not None:
            agent = kept.agent
            items.extend(kept.items)
            own_ids.update(zip((call.id for call in message.tool_calls), kept.calls, strict=False))
        else:
            items.extend(_items(message))
    items.extend(outputs.values())
    return _answered(items), agent


def _kept(message: RoundMessage) -> Kept | None:
    """Return the kept state of a message; None if nothing is kept, or if another version of this code wrote the
    state."""
    try:
        return decoder(Kept).decode(message.keep) if message.keep else None
    except msgspec.DecodeError:
        return None


def _items(message: Message) -> list[JsonObject]:
    """Return the input items of a message in the form that clients see."""
    if message.role != "assistant":
        role = message.role if message.role in ("user", "system", "developer") else "user"
        return [{"role": role, "content": _content(message)}]
    text = text_of(message.content)
    items: list[JsonObject] = [{"role": "assistant", "content": text}] if text else []
    items.extend(
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.function.name,
            "arguments": call.function.arguments or "{}",
        }
        for call in message.tool_calls
    )
    return items


def _content(message: Message) -> str | list[JsonObject]:
    """Return the content of a message of a person."""
    if isinstance(message.content, str):
        return message.content
    parts: list[JsonObject] = []
    for part in message.content:
        match part:
            case TextPart(text=text):
                parts.append({"type": "input_text", "text": text})
            case ImagePart(image_url=image):
                parts.append({"type": "input_image", "image_url": image.url, "detail": image.detail or "auto"})
            case FilePart(data=str(data)):
                url = f"data:{part.mime};base64,{data}"
                parts.append({"type": "input_file", "filename": part.name, "file_data": url})
            case FilePart():
                parts.append({"type": "input_text", "text": f"[file {part.name}]\n{part.text or ''}"})
            case _:
                parts.append({"type": "input_text", "text": "[a sound, which this agent cannot hear]"})
    return parts


def _answered(items: list[JsonObject]) -> list[JsonObject]:
    """Return the items with exactly one output for each function call. The API refuses calls without outputs and
    outputs without calls."""
    with_output = {str(each.get("call_id")) for each in items if _is_output(each)}
    called = {str(each.get("call_id")) for each in items if each.get("type") == "function_call"}
    found: list[JsonObject] = []
    for item in items:
        if item.get("type") == "function_call_output" and str(item.get("call_id")) not in called:
            continue  # the item of a hosted tool contains the result
        found.append(item)
        if item.get("type") == "function_call" and str(item.get("call_id")) not in with_output:
            found.append(_output(str(item.get("call_id")), NOT_CARRIED_OUT))
    return found


def _output(call_id: str, text: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def _is_output(item: JsonObject) -> bool:
    return str(item.get("type", "")).endswith("_output") and "call_id" in item
