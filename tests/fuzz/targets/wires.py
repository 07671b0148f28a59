"""Valid streams as models' servers write them, with every field that our adapters read."""

import json

__all__ = ["ANTHROPIC", "GOOGLE", "OPENAI_CHAT", "OPENAI_RESPONSES"]


def _stream(*events: object, named: bool = False, done: bool = False) -> bytes:
    blocks = [
        (f"event: {event['type']}\n" if named and isinstance(event, dict) else "")
        + f"data: {json.dumps(event, separators=(',', ':'))}\n\n"
        for event in events
    ]
    return "".join([*blocks, "data: [DONE]\n\n" if done else ""]).encode()


def _choice(finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


_COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1}}


def _fragment(**more: object) -> dict[str, object]:
    return {"index": 0, "id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"a":'}, **more}


OPENAI_CHAT = [
    _stream(
        _choice(role="assistant", content=""),
        _choice(content="hel"),
        _choice(content="lo"),
        _choice("stop"),
        {"choices": [], "usage": _COUNTS, "timings": {"x": 1}},
        done=True,
    ),
    _stream(
        _choice(reasoning_content="hm"),
        _choice(tool_calls=[_fragment()]),
        _choice(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
        _choice("tool_calls", annotations=[{"url": "x"}]),
        done=True,
    ),
    _stream({"model": "m", "choices": [{"message": {"content": "whole", "refusal": None}, "finish_reason": "stop"}]}),
    _stream(_choice(content="a"), {"error": {"message": "no", "type": "server_error", "code": 500}}),
]

_ITEM = {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": ""}
_MESSAGE = {
    "type": "message",
    "content": [{"type": "output_text", "text": "hello", "annotations": [{"type": "url_citation", "url": "x"}]}],
}
_REASONING = {"type": "reasoning", "summary": [{"text": "hm"}], "encrypted_content": "xx", "status": None}
_USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 1}}

OPENAI_RESPONSES = [
    _stream(
        {"type": "response.created", "response": {"model": "m", "status": "in_progress"}},
        {"type": "response.reasoning_summary_part.added", "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.output_item.done", "output_index": 0, "item": _REASONING},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "hello"},
        {"type": "response.output_text.annotation.added", "annotation": {"url": "x"}},
        {"type": "response.output_item.done", "output_index": 1, "item": _MESSAGE},
        {"type": "response.output_item.added", "output_index": 2, "item": _ITEM},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 2, "item": _ITEM},
        {"type": "response.output_item.done", "output_index": 3, "item": {"type": "web_search_call", "id": "w"}},
        {"type": "response.completed", "response": {"model": "m", "status": "completed", "usage": _USAGE}},
        named=True,
    ),
    _stream({"model": "m", "status": "completed", "output": [_REASONING, _MESSAGE, _ITEM], "usage": _USAGE}),
    _stream({"type": "error", "error": {"message": "no", "code": "rate_limit_exceeded"}}, named=True),
    _stream(
        {"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "x"}}}
    ),
]


def _block(index: int, block: dict[str, object], *deltas: dict[str, object]) -> list[dict[str, object]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


ANTHROPIC = [
    _stream(
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "ping"},
        *_block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "xx"},
        ),
        *_block(
            1,
            {"type": "text", "text": "", "citations": None},
            {"type": "text_delta", "text": "hello"},
            {"type": "citations_delta", "citation": {"url": "x", "encrypted_index": "y"}},
        ),
        *_block(2, {"type": "server_tool_use", "name": "s"}, {"type": "input_json_delta", "partial_json": '{"q":1}'}),
        *_block(3, {"type": "tool_use", "id": "t", "name": "n"}, {"type": "input_json_delta", "partial_json": '{"a"'}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
        named=True,
    ),
    _stream(
        {"type": "message_start", "message": {"model": "m"}},
        *_block(0, {"type": "redacted_thinking", "data": "zz"}),
        {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "no"}}},
        named=True,
    ),
    _stream(
        *_block(0, {"type": "text", "text": "a"}),
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
        {"type": "message_stop"},
        named=True,
    ),
    _stream({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, named=True),
]


def _candidate(finish: str | None = None, *parts: dict[str, object]) -> dict[str, object]:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}], "modelVersion": "m"}


_GOOGLE_COUNTS = {"promptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 1}

GOOGLE = [
    _stream(
        _candidate(None, {"text": "hm", "thought": True}),
        _candidate(None, {"text": "hello", "thoughtSignature": "xx"}),
        _candidate(None, {"functionCall": {"name": "clock", "id": None, "args": {"a": 1}}}),
        _candidate(None, {"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}),
        {
            "candidates": [{"finishReason": "STOP", "groundingMetadata": {"groundingChunks": [{"web": {"uri": "x"}}]}}],
            "usageMetadata": _GOOGLE_COUNTS,
        },
    ),
    _stream(_candidate("MALFORMED_FUNCTION_CALL")),
    _stream({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"}}),
]
"""Answers with the names of Google's REST API (GenerateContentResponse), one JSON object in each event."""
