"""Converts a neutral request into the body of Anthropic's Messages API. Pure: no socket and no SDK; `messages.py` calls
it.

The API has turns of blocks instead of messages: adjacent messages of one role become one turn, so one user turn
contains all results of a round. An answer that this provider gave with thinking, or with tools of its own, is sent back
as the original blocks, because the signatures in them cover their order. Answers of other providers are sent as text
and calls alone. The API accepts the request whatever the history contains.
"""

import hashlib
import re

from threadcast.providers.base import ModelParams, Request
from threadcast.providers.turns import Turns, answer_blocks, arguments_object, split_data_url
from threadcast_protocol.wire.messages import (
    FilePart,
    ImagePart,
    JsonObject,
    Message,
    Part,
    TextPart,
    ToolCall,
    text_of,
)

__all__ = ["DEFAULT_MAX_TOKENS", "request_body", "takes_prefill"]

DEFAULT_MAX_TOKENS = 8_192
"""The token limit of requests that set no limit, since the API requires a limit. Every model since 3.5 accepts this
value; `max_output_tokens` of a model overrides it."""

THINKING_MIN_TOKENS = 1_024
"""The smallest thinking budget that the API accepts."""

_NAME = re.compile(r"claude-(?:opus|sonnet|haiku)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(?:instant|[23])(?!\d)")

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_EPHEMERAL = {"type": "ephemeral"}
_EFFORTS = {"minimal": "low"}
"""Effort names of other providers, mapped to Anthropic's."""


def request_body(request: Request, *, max_tokens: int = DEFAULT_MAX_TOKENS, is_caching: bool = True) -> JsonObject:
    """Return the JSON body; `max_tokens` applies to requests without a token limit. `extra_body` overrides all fields
    (PROV-5).

    With `is_caching`, the provider is asked to cache the request up to the newest message for a few minutes: the next
    round then reads these tokens at a tenth of the price.
    """
    turns = Turns("assistant", "content")
    heading = [request.system] if request.system else []
    messages = list(request.messages)
    while messages and messages[0].role == "system":
        heading.append(text_of(messages.pop(0).content))
    for message in messages:
        _add(turns, message, request.provider_data.get(message.message_id, []))
    turns.begin_and_end_with_the_user(_text("[Earlier messages are left out.]"), _text("[Continue.]"))
    if is_caching and turns.last:
        turns.last[-1] = {**turns.last[-1], "cache_control": _EPHEMERAL}
    prefix = request.prefix
    if prefix:
        turns.answer([_text(prefix)])
    body: JsonObject = {
        "model": request.model,
        "messages": turns.turns,
        "stream": True,
        **_params(request.params, max_tokens, may_think=not prefix and not _is_round_unsigned(turns.turns)),
    }
    if heading:
        system = _text("\n\n".join(heading))
        body["system"] = [{**system, "cache_control": _EPHEMERAL} if is_caching else system]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        if request.params.parallel_tool_calls is not None:
            is_serial = not request.params.parallel_tool_calls
            body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": is_serial}
    if request.user:
        # The API asks for an id that does not identify the person.
        body["metadata"] = {"user_id": hashlib.sha256(request.user.encode()).hexdigest()[:32]}
    return {**body, **request.params.extra_body}


def takes_prefill(model: str) -> bool:
    """Return whether the model of this name accepts the beginning of an answer and continues it. Claude 4.6 and newer
    models refuse a prefill (Anthropic's "What's new in Claude 4.6", prefill removal). Returns False for a name without
    a version number."""
    if _OLD_NAME.search(model):
        return True
    found = _NAME.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) <= (4, 5)


def _params(params: ModelParams, max_tokens: int, *, may_think: bool) -> JsonObject:
    """Return the fields of the request for sampling and thinking. `thinking_budget` is for models with a budget (up to
    4.6), `reasoning_effort` for models with adaptive thinking (from 4.6 on). A continued answer, and an answer in a
    round that began without thinking, cannot use thinking."""
    chosen: JsonObject = {"max_tokens": params.max_tokens or max_tokens}
    effort = params.reasoning_effort
    if params.thinking_budget == 0 or effort == "none" or not may_think:
        is_thinking = False
    elif params.thinking_budget:
        is_thinking = True
        budget = max(params.thinking_budget, THINKING_MIN_TOKENS)
        chosen["thinking"] = {"type": "enabled", "budget_tokens": budget}
        if budget >= chosen["max_tokens"]:  # `max_tokens` counts the thinking too, and must leave room for the answer
            chosen["max_tokens"] += budget
    else:
        is_thinking = effort is not None
        if is_thinking:
            chosen["thinking"] = {"type": "adaptive", "display": "summarized"}
    if effort is not None and effort != "none":
        chosen["output_config"] = {"effort": _EFFORTS.get(effort, effort)}
    if params.stop:
        chosen["stop_sequences"] = params.stop
    if not is_thinking:  # thinking fixes the temperature, and models refuse thinking with a temperature
        if params.top_k:  # 0 means no bound, which is the API's default
            chosen["top_k"] = params.top_k
        if params.temperature is not None:
            chosen["temperature"] = params.temperature
        elif params.top_p is not None:
            chosen["top_p"] = params.top_p
    return chosen


def _is_round_unsigned(turns: list[JsonObject]) -> bool:
    """Return whether the open round of tools began without thinking, for instance at another provider."""
    for turn in reversed(turns):
        kinds = [block["type"] for block in turn["content"]]
        if turn["role"] == "user" and "tool_result" not in kinds:
            return False
        if turn["role"] == "assistant" and "tool_use" in kinds:
            return kinds[0] not in ("thinking", "redacted_thinking")
    return False


def _add(turns: Turns, message: Message, kept: list[JsonObject]) -> None:
    match message.role:
        case "user":
            turns.ask(_blocks(message.content))
        case "system":
            turns.ask([_text(f"<system>\n{text_of(message.content)}\n</system>")])
        case "tool":
            result: JsonObject = {"type": "tool_result", "tool_use_id": _call_id(message.tool_call_id or "")}
            if blocks := _blocks(message.content):
                result["content"] = blocks
            if message.tool_failed:
                result["is_error"] = True
            turns.ask([result])
        case "assistant":
            turns.answer(_answer(message, kept))


def _answer(message: Message, kept: list[JsonObject]) -> list[JsonObject]:
    """Return the blocks of an answer without blank texts, which the API refuses."""
    blocks = answer_blocks(message, kept, call=_call, text=_text, text_in=_text_in)
    return [block for block in blocks if block.get("type") != "text" or str(block["text"]).strip()]


def _text_in(block: JsonObject) -> str:
    return str(block["text"]) if block.get("type") == "text" else ""


def _call(call: ToolCall) -> JsonObject:
    return {
        "type": "tool_use",
        "id": _call_id(call.id),
        "name": call.function.name,
        "input": arguments_object(call.function.arguments),
    }


def _call_id(ours: str) -> str:
    """Return an id that the API accepts. The API would refuse some ids of calls in imported chats and of other
    providers."""
    return ours if _CALL_ID.fullmatch(ours) else f"call_{hashlib.sha256(ours.encode()).hexdigest()[:24]}"


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _blocks(content: str | list[Part]) -> list[JsonObject]:
    """Return the blocks of a message's content without empty texts, which the API refuses."""
    parts = [TextPart(content)] if isinstance(content, str) else content
    return [_block(part) for part in parts if not isinstance(part, TextPart) or part.text.strip()]


def _block(part: Part) -> JsonObject:
    match part:
        case TextPart():
            return _text(part.text)
        case ImagePart():
            mime, data = split_data_url(part.image_url.url)
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
        case FilePart(text=str() as text):
            return _text(f"File {part.name}:\n{text}")
        case FilePart(mime="application/pdf"):
            source = {"type": "base64", "media_type": part.mime, "data": part.data or ""}
            return {"type": "document", "title": part.name, "source": source}
        case FilePart():
            return _text(f"[file {part.name} left out: of such files this provider accepts only PDF]")
        case _:
            return _text("[audio left out: this provider takes no audio]")
