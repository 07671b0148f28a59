"""The UI messages of a chat: the active path in the form that pages of the AI SDK keep (`UIMessage` in npm `ai` 6).

All messages between two messages of the user form one UI message, which has the id of the first answer. One run is
therefore one UI message, even if the run pauses for approvals. Each answer of a model is a step in this UI message.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from threadcast.compat.ai_sdk.message_ids import ui_id_of
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.blobs import blob_url
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.events import PauseReason, PayloadAdded, PayloadUpdated, Runtime
from threadcast_protocol.wire.messages import FilePart, ImagePart, JsonObject, Message, TextPart, add_usage, text_of

__all__ = [
    "APPROVED_TYPES",
    "PENDING",
    "approval_id",
    "arguments_of",
    "calls_at_work",
    "data_type",
    "files_in",
    "is_at_pause",
    "metadata_of",
    "output_of",
    "path_of",
    "payload_data",
    "question_input",
    "source_of",
    "turn_after",
    "ui_messages",
]

_DENIED_BY_USER = "The call was denied by user."
_DENIED_BY_POLICY = "is denied by policy."
"""The texts that the results of denied calls have (PROTOCOL §11)."""

APPROVED_TYPES = frozenset({"confirmation", "browser_context", "denial", "outcome_unknown", "round_limit"})
"""Reasons of a pause that are answered with yes or no."""

PENDING = "There is no result yet, because the run waits for an answer."
"""The output of a call without a result while the run waits for a page. The AI SDK sends the answers of a page only
when all calls of the step have an output or an answer. The result replaces this output later."""

_TYPE_MAX_CHARACTERS = 64


def path_of(state: ChatState) -> list[Message]:
    """Return the messages of the active path, including the present text of the answer that a model is writing."""
    draft = state.draft
    return [
        drafted_message(draft) if draft is not None and draft.message.message_id == key else state.nodes[key]
        for key in state.path
    ]


def turn_after(path: Sequence[Message], user_id: str | None = None) -> list[Message]:
    """Return the messages that follow the user message `user_id`, by default the last one, up to the next user message;
    [] if the path has no such message."""
    begin = None if user_id else 0
    for index, message in enumerate(path):
        if message.role == "user" and user_id in (None, message.message_id):
            begin = index + 1
    rest = [] if begin is None else path[begin:]
    end = next((index for index, message in enumerate(rest) if message.role == "user"), len(rest))
    return [message for message in rest[:end] if not message.hidden]


def ui_messages(state: ChatState, public_url: str = "") -> list[JsonObject]:
    """Return all UI messages of the active path. `public_url` is put before the addresses of stored files."""
    found: list[JsonObject] = []
    path = [message for message in path_of(state) if not message.hidden]
    index = 0
    while index < len(path):
        message = path[index]
        if message.role == "user":
            found.append(_user(state.chat_id, message, public_url))
            index += 1
            continue
        end = index
        while end < len(path) and path[end].role != "user":
            end += 1
        turn = path[index:end]
        if any(each.role in ("assistant", "error") for each in turn):
            found.append(_assistant(state, turn, public_url))
        index = end
    return found


def _user(chat_id: str, message: Message, public_url: str) -> JsonObject:
    content = message.content
    parts: list[JsonObject] = [{"type": "text", "text": content}] if isinstance(content, str) else []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
    parts += files_in(chat_id, message, public_url)
    told = {"createdAt": message.created_at} if message.created_at else {}
    return {"id": ui_id_of(message), "role": "user", "metadata": told, "parts": parts}


def _assistant(state: ChatState, turn: Sequence[Message], public_url: str) -> JsonObject:
    parts: list[JsonObject] = []
    calls: dict[str, JsonObject] = {}
    first = next((each for each in turn if each.role in ("assistant", "error")), turn[0])
    drafted = state.draft.message.message_id if state.draft is not None else None
    waiting = {call.tool_call_id for call in state.runtime.ide_calls}
    at_work = calls_at_work(state)
    is_pausing = not state.is_at_rest and turn[-1].message_id == state.path[-1] and is_at_pause(state.runtime)
    for message in turn:
        if message.role == "assistant":
            progress = {"state": "streaming" if message.message_id == drafted else "done"}
            parts.append({"type": "step-start"})
            if message.reasoning_content:
                parts.append({"type": "reasoning", "text": message.reasoning_content, **progress})
            if text := text_of(message.content):
                parts.append({"type": "text", "text": text, **progress})
            parts += [chunk for citation in message.citations if (chunk := source_of(citation))]
            for call in message.tool_calls:
                is_placed = is_pausing or state.is_at_rest or call.id in waiting or call.id in at_work
                part: JsonObject = {
                    "type": f"tool-{call.function.name}",
                    "toolCallId": call.id,
                    "state": "input-available" if is_placed else "input-streaming",
                    "input": arguments_of(call.function.arguments),
                }
                if is_placed and call.id not in waiting:
                    part["providerExecuted"] = True
                calls[call.id] = part
                parts.append(part)
            parts += _payload_parts(state, message.message_id)
        elif message.role == "tool":
            if (answered := calls.get(message.tool_call_id or "")) is not None:
                answered |= output_of(message)
            parts += files_in(state.chat_id, message, public_url)
    asked = {reason.tool_call_id for reason in state.runtime.pause_reasons if reason.type in APPROVED_TYPES}
    for call_id, part in calls.items() if is_pausing else ():
        if part["state"] == "input-available" and call_id not in waiting | asked:
            part |= {"state": "output-available", "output": PENDING}
    for reason in state.runtime.pause_reasons:
        _ask(parts, calls, reason)
    return {"id": first.message_id, "role": "assistant", "metadata": metadata_of(turn), "parts": parts}


def is_at_pause(runtime: Runtime) -> bool:
    """Return whether the open run needs an answer of a page before it can continue."""
    if runtime.pause_reasons:
        return True
    calls = {call.tool_call_id for call in runtime.ide_calls}
    return bool(calls) and all(tool.tool_call_id in calls for tool in runtime.tools)


def calls_at_work(state: ChatState) -> set[str]:
    """Return the calls that the server has begun. Whether the server or a page carries out the other calls of an open
    run is not known yet. Until then their input is shown as incomplete, so that no page mistakes such a call for a call
    of its own tools."""
    return {tool.tool_call_id for tool in state.runtime.tools if tool.status != "queued"}


def _ask(parts: list[JsonObject], calls: dict[str, JsonObject], reason: PauseReason) -> None:
    """Add a reason of a pause to the part of its call, or as a separate part."""
    part = calls.get(reason.tool_call_id)
    if reason.type == "question" or part is None:
        shown = question_input(reason)
        part = {"type": "dynamic-tool", "toolName": reason.type, "toolCallId": reason.tool_call_id, "input": shown}
        part["state"] = "input-available"
        parts.append(part)
    if reason.type != "question":
        part |= {"state": "approval-requested", "approval": {"id": approval_id(reason)}}


def _payload_parts(state: ChatState, message_id: str) -> list[JsonObject]:
    return [
        {"type": data_type(payload.payload_type), "id": payload.payload_id, "data": payload_data(payload)}
        for payload in state.payloads
        if payload.message_id == message_id
    ]


def question_input(reason: PauseReason) -> JsonObject:
    """Return the shown input of a question, `{text, options?, schema?}`, or of a reason without a call."""
    if isinstance(reason.question, msgspec.UnsetType):
        return {"text": reason.command}
    return {"tool": reason.tool_name, **msgspec.to_builtins(reason.question)}


def approval_id(reason: PauseReason) -> str:
    """Return the id of an approval. The id contains the hash of the shown arguments, so that a decision about an older
    question is recognised."""
    return f"{reason.tool_call_id}.{reason.input_hash}"


def arguments_of(text: str) -> object:
    """Return the arguments of a call as JSON; the text itself if it is not JSON."""
    try:
        return decode_any(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return text


def output_of(message: Message) -> JsonObject:
    """Return the fields of a tool part that its result sets."""
    text = text_of(message.content)
    if not message.tool_failed:
        return {"state": "output-available", "output": text}
    if text.startswith(_DENIED_BY_USER) or text.endswith(_DENIED_BY_POLICY):
        return {
            "state": "output-denied",
            "approval": {"id": f"{message.tool_call_id}.", "approved": False, "reason": text},
        }
    return {"state": "output-error", "errorText": text}


def files_in(chat_id: str, message: Message, public_url: str) -> list[JsonObject]:
    """Return the files of a message, as parts that are also chunks of the stream."""
    content = message.content if isinstance(message.content, list) else []
    shown = [_file(chat_id, part, public_url) for part in content if isinstance(part, ImagePart | FilePart)]
    if message.role == "tool":
        for item in message.attachments:
            url = item.get("url") or (item.get("image_url") or {}).get("url")
            mime = item.get("mime") or (item.get("image_url") or {}).get("mime") or "application/octet-stream"
            if isinstance(url, str):
                shown.append({"type": "file", "mediaType": str(mime), "url": _address(url, public_url)})
    return shown


def _file(chat_id: str, part: ImagePart | FilePart, public_url: str) -> JsonObject:
    if isinstance(part, ImagePart):
        url = part.image_url.url
        mime = part.image_url.mime or url.partition(";")[0].removeprefix("data:")
        return {"type": "file", "mediaType": mime, "url": _address(url, public_url)}
    stored = part.blob or part.text_blob
    if stored:
        url = _address(blob_url(chat_id, stored), public_url)
    elif part.data is not None:
        url = f"data:{part.mime};base64,{part.data}"
    else:
        url = f"data:{part.mime},"
    return {"type": "file", "mediaType": part.mime, "url": url, "filename": part.name}


def _address(url: str, public_url: str) -> str:
    return f"{public_url.rstrip('/')}{url}" if public_url and url.startswith("/") else url


def source_of(citation: JsonObject) -> JsonObject | None:
    """Return a citation as a source part, which is also a chunk of the stream; None if it names no source."""
    url = citation.get("url") or citation.get("uri")
    title = citation.get("title") or citation.get("document_title")
    named = {"title": title} if isinstance(title, str) else {}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "source-url", "sourceId": _hash(url), "url": url, **named}
    if named:
        return {"type": "source-document", "sourceId": _hash(str(title)), "mediaType": "text/plain", **named}
    return None


def _hash(words: str) -> str:
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def data_type(kind: str) -> str:
    """Return the type of a data part for a payload or data of this kind. Characters that names may not have become
    underscores, since tools choose the kinds."""
    return (
        "data-"
        + "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in kind)[:_TYPE_MAX_CHARACTERS]
    )


def payload_data(payload: PayloadAdded | PayloadUpdated) -> JsonObject:
    """Return the data of a payload's part: `{data, summary, source, approval?}`."""
    told: JsonObject = {"data": payload.data, "summary": payload.summary, "source": payload.source}
    return told if payload.approval is None else {**told, "approval": payload.approval}


def metadata_of(turn: Iterable[Message]) -> JsonObject:
    """Return the metadata of a UI message: `createdAt` (Unix milliseconds), `model`, `usage` summed over its answers,
    and `failure` if a command of the message failed. Unknown fields are absent."""
    told: JsonObject = {}
    usage = None
    for message in turn:
        if message.role == "assistant":
            told.setdefault("createdAt", message.created_at)
            model = message.model or message.extra.get("model")
            told |= {"model": model} if model else {}
            usage = add_usage(usage, message.usage)
        elif message.role == "error":
            told["failure"] = text_of(message.content)
    if usage is not None:
        told["usage"] = msgspec.to_builtins(usage)
    return {key: value for key, value in told.items() if value is not None}
