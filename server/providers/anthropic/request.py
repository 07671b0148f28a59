"""A neutral request in the words of Anthropic's Messages API. Pure: no socket and no SDK; `anthropic.py` calls it.

The wire knows turns of blocks where we know messages: neighbours of one role become one turn, so all results of a
round stand in one user turn. An answer that this provider gave with thinking, or with tools of its own, goes back as
the blocks that it sent, because the signatures in them cover their order. Answers of other providers go
as text and calls alone. The one rule: whatever stands in a history, what comes out is a request the API takes.
"""

import hashlib
import re

from protocol.messages import FilePart, ImagePart, JsonObject, Message, Part, TextPart, ToolCall, text_of
from server.providers.base import ModelParams, Request
from server.providers.turns import Turns, arguments_object, split_data_url

__all__ = ["DEFAULT_MAX_TOKENS", "request_body", "takes_prefill"]

DEFAULT_MAX_TOKENS = 8_192
"""The API wants a number. Every model since 3.5 takes this one; `max_output_tokens` of a model raises it."""

THINKING_MIN_TOKENS = 1_024
"""Below this the API refuses a budget."""

_NAME = re.compile(r"claude-(?:opus|sonnet|haiku)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(?:instant|[23])(?!\d)")

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_EPHEMERAL = {"type": "ephemeral"}
_EFFORTS = {"minimal": "low"}
"""Words of other providers for efforts that this one calls otherwise."""


def request_body(request: Request, *, max_tokens: int = DEFAULT_MAX_TOKENS, is_caching: bool = True) -> JsonObject:
    """The JSON body; `max_tokens` is for requests that name none. `extra_body` has the last word (PROV-5).

    With `is_caching`, everything up to the newest message is marked to be kept at the provider for a few minutes: the
    next round reads it at a tenth of the price.
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
        # The API asks for a name that says nothing about the person.
        body["metadata"] = {"user_id": hashlib.sha256(request.user.encode()).hexdigest()[:32]}
    return {**body, **request.params.extra_body}


def takes_prefill(model: str) -> bool:
    """Return whether the model of this name accepts the beginning of its answer. Claude 4.6 and newer refuse it
    (Anthropic's "What's new in Claude 4.6", prefill removal); the function returns False for a name that does not tell
    its generation."""
    if _OLD_NAME.search(model):
        return True
    found = _NAME.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) <= (4, 5)


def _params(params: ModelParams, max_tokens: int, *, may_think: bool) -> JsonObject:
    """`thinking_budget` is for models that take a budget (up to 4.6), `reasoning_effort` for those that think as much
    as they see fit (from 4.6 on). An answer that is continued, and one in the middle of a round that began without
    thinking, cannot have any."""
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
    if not is_thinking:  # thinking takes no other temperature than its own, and models of today not both
        if params.top_k:  # 0 means no bound, which is what it does without one
            chosen["top_k"] = params.top_k
        if params.temperature is not None:
            chosen["temperature"] = params.temperature
        elif params.top_p is not None:
            chosen["top_p"] = params.top_p
    return chosen


def _is_round_unsigned(turns: list[JsonObject]) -> bool:
    """Whether the open round of tools began without thinking, at another provider's for instance."""
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
    """The blocks of an answer: those that were kept of it, with its calls in their places, and what they do not hold
    because the stream broke before they were whole."""
    calls = {call.index: call for call in message.tool_calls}
    blocks: list[JsonObject] = []
    said = ""
    for block in kept:
        if "call" in block:
            # Only the place is kept: the id may have been replaced, the arguments edited, and the message knows both.
            call = calls.pop(block["call"], None)
            if call is not None:
                blocks.append({**{k: v for k, v in block.items() if k != "call"}, **_call(call)})
        elif block.get("type") == "text":
            said += str(block["text"])
            if str(block["text"]).strip():
                blocks.append(block)
        else:
            blocks.append(block)
    text = text_of(message.content)
    rest = text[len(said) :] if text.startswith(said) else ""
    if rest.strip():
        blocks.append(_text(rest))
    return blocks + [_call(call) for call in calls.values()]


def _call(call: ToolCall) -> JsonObject:
    return {
        "type": "tool_use",
        "id": _call_id(call.id),
        "name": call.function.name,
        "input": arguments_object(call.function.arguments),
    }


def _call_id(ours: str) -> str:
    """Calls of imported chats and other providers have ids that this API refuses."""
    return ours if _CALL_ID.fullmatch(ours) else f"call_{hashlib.sha256(ours.encode()).hexdigest()[:24]}"


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _blocks(content: str | list[Part]) -> list[JsonObject]:
    """The API refuses blocks without text."""
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
            return _text(f"[file {part.name} left out: this provider takes no files of this kind but PDF]")
        case _:
            return _text("[audio left out: this provider takes no audio]")
