"""The requests of Anthropic's Messages API, into which a chat is translated. No socket."""

import pytest

from tests.unit.anthropic_words import asking, body_of, call, message, text, turns_of
from threadcast.providers.anthropic.request import request_body, takes_prefill
from threadcast.providers.base import ModelParams, Request, ToolSpec
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    ImageUrl,
    InputAudio,
    JsonObject,
    Message,
    Part,
    TextPart,
)

PIXEL = "data:image/jpg;base64,/9j/4A=="


@pytest.mark.row("LOOP-4")
def test_results_of_a_round_stand_in_one_user_turn_after_the_calls_they_answer() -> None:
    turns = turns_of(
        message("user", "What time is it?"),
        asking(call("c1"), call("c2", 1, ""), content="Let me look."),
        message("tool", "noon", tool_call_id="c1"),
        message("tool", "no such zone", tool_call_id="c2", tool_failed=True),
        message("user", "Hurry up."),
    )
    assert turns == [
        {"role": "user", "content": [text("What time is it?")]},
        {
            "role": "assistant",
            "content": [
                text("Let me look."),
                {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": 1}},
                {"type": "tool_use", "id": "c2", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("noon")]},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("no such zone")], "is_error": True},
                text("Hurry up."),
            ],
        },
    ]


KEPT: list[JsonObject] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
    text("Searching."),
    {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
    {"type": "tool_use", "call": 1},
    {"type": "tool_use", "call": 0, "caller": {"type": "direct"}},
]


@pytest.mark.row("PROV-4")
def test_kept_blocks_go_back_in_their_order_with_the_calls_as_the_chat_knows_them() -> None:
    asked = asking(call("made-anew"), call("c2", 1, '{"edited":true}'), content="Searching.")
    results = [message("tool", "x", tool_call_id="made-anew"), message("tool", "y", tool_call_id="c2")]
    turns = turns_of(message("user", "hi"), asked, *results, provider_data={"a": KEPT})
    assert turns[1]["content"] == [
        *KEPT[:3],
        {"type": "tool_use", "id": "c2", "name": "clock", "input": {"edited": True}},
        {"type": "tool_use", "id": "made-anew", "name": "clock", "input": {"zone": 1}, "caller": {"type": "direct"}},
    ]


def test_blocks_of_an_answer_that_broke_off_are_completed_from_the_message() -> None:
    asked = asking(call("c1"), content="Searching. And th")
    turns = turns_of(
        message("user", "hi"), asked, message("tool", "x", tool_call_id="c1"), provider_data={"a": KEPT[:2]}
    )
    assert turns[1]["content"][:-1] == [*KEPT[:2], text(" And th")]
    assert turns[1]["content"][-1]["id"] == "c1"


def test_call_without_a_result_is_left_out_of_the_kept_blocks_too() -> None:
    turns = turns_of(message("user", "hi"), asking(content="Searching."), provider_data={"a": KEPT})
    assert turns[1]["content"] == KEPT[:3]


def test_conversation_begins_and_ends_with_the_user_whatever_is_left_of_it() -> None:
    turns = turns_of(message("assistant", "Hello."))
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns_of(message("user", " \n"), message("assistant", "")) == []


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("claude-3-5-sonnet-20241022", True),
        ("claude-2.1", True),
        ("claude-instant-1.2", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-opus-4-1@20250805", True),
        ("claude-haiku-4-5", True),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-6-20260217", False),
        ("claude-opus-4-10", False),
        ("claude-sonnet-5", False),
        ("claude-mythos-5", False),
        ("claude-20", False),
        ("my-own-name", False),
    ],
)
def test_models_up_to_4_5_take_the_beginning_of_their_answer_and_no_others_that_we_know(
    model: str, takes: bool
) -> None:
    assert takes_prefill(model) == takes


def test_prefix_is_the_last_word_and_nothing_is_thought_after_it() -> None:
    params = ModelParams(thinking_budget=5_000)
    body = body_of(message("user", "hi"), prefix="Once upon", params=params)
    assert body["messages"][-1] == {"role": "assistant", "content": [text("Once upon")]}
    assert "thinking" not in body


def test_words_of_the_system_within_a_conversation_are_marked_as_such() -> None:
    body = body_of(message("system", "Be brief."), message("user", "hi"), message("system", "Noon."), system="Be kind.")
    assert body["system"] == [text("Be kind.\n\nBe brief.")]
    assert body["messages"] == [{"role": "user", "content": [text("hi"), text("<system>\nNoon.\n</system>")]}]


def test_round_that_another_provider_began_goes_on_without_thinking_and_the_next_one_thinks_again() -> None:
    params = ModelParams(thinking_budget=2_000)
    messages = [message("user", "hi"), asking(call("c1")), message("tool", "noon", tool_call_id="c1")]
    signed = {"a": [{"type": "thinking", "thinking": "", "signature": "s"}]}
    assert "thinking" not in body_of(*messages, params=params)
    assert "thinking" in body_of(*messages, params=params, provider_data=signed)
    assert "thinking" in body_of(
        *messages, message("assistant", "It is noon."), message("user", "And now?"), params=params
    )


@pytest.mark.parametrize("role", ["event", "diff", "plan", "error", "context_file", "User"])
def test_messages_of_pass_through_roles_never_reach_a_model(role: str) -> None:
    assert turns_of(message(role, "secret")) == []


def test_images_and_documents_take_anthropics_shape_and_what_it_does_not_take_is_named() -> None:
    parts: list[Part] = [
        TextPart("Look:"),
        ImagePart(ImageUrl(PIXEL)),
        FilePart("a.pdf", "application/pdf", data="JVBERg=="),
        FilePart("b.txt", "text/plain", text="hello"),
        FilePart("c.docx", "application/msword", data="AAAA"),
        AudioPart(InputAudio("AAAA", "wav")),
    ]
    (turn,) = turns_of(Message(role="user", content=parts, message_id="u"))
    assert turn["content"][:4] == [
        text("Look:"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4A=="}},
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        },
        text("File b.txt:\nhello"),
    ]
    assert [block["text"].partition(" left")[0] for block in turn["content"][4:]] == ["[file c.docx", "[audio"]


def test_image_that_a_tool_returned_stands_in_its_result() -> None:
    parts: list[Part] = [TextPart("a pixel"), ImagePart(ImageUrl(PIXEL))]
    result = Message(role="tool", content=parts, message_id="t", tool_call_id="c1")
    (block,) = turns_of(message("user", "hi"), asking(call("c1")), result)[-1]["content"]
    assert [part["type"] for part in block["content"]] == ["text", "image"]


def test_ids_that_the_api_refuses_are_replaced_alike_in_calls_and_results() -> None:
    turns = turns_of(message("user", "hi"), asking(call("call:1/é")), message("tool", "x", tool_call_id="call:1/é"))
    used, answered = turns[1]["content"][0]["id"], turns[2]["content"][0]["tool_use_id"]
    assert used == answered
    assert used.isascii() and used.replace("_", "").isalnum()


def test_misspelt_arguments_do_not_block_the_chat() -> None:
    turns = turns_of(
        message("user", "hi"), asking(call("c1", arguments="{oops")), message("tool", "x", tool_call_id="c1")
    )
    assert turns[1]["content"][0]["input"] == {"invalid_json": "{oops"}


@pytest.mark.row("PROV-5", "PROV-6")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (ModelParams(), {"max_tokens": 8_192}),
        (ModelParams(max_tokens=5, temperature=0.5, top_p=0.9), {"max_tokens": 5, "temperature": 0.5}),
        (ModelParams(top_p=0.9, frequency_penalty=1.0), {"max_tokens": 8_192, "top_p": 0.9}),
        (
            ModelParams(thinking_budget=2_000, temperature=0.5),
            {"max_tokens": 8_192, "thinking": {"type": "enabled", "budget_tokens": 2_000}},
        ),
        (
            ModelParams(thinking_budget=1, max_tokens=1_000),
            {"max_tokens": 2_024, "thinking": {"type": "enabled", "budget_tokens": 1_024}},
        ),
        (ModelParams(thinking_budget=0, top_p=0.9), {"max_tokens": 8_192, "top_p": 0.9}),
        (
            ModelParams(reasoning_effort="minimal", temperature=0.5),
            {
                "max_tokens": 8_192,
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
        (ModelParams(reasoning_effort="none", temperature=0.5), {"max_tokens": 8_192, "temperature": 0.5}),
        (ModelParams(extra_body={"max_tokens": 7, "top_k": 3}), {"max_tokens": 7, "top_k": 3}),
    ],
)
def test_parameters_become_what_the_api_takes_together(params: ModelParams, expected: JsonObject) -> None:
    body = body_of(message("user", "hi"), params=params)
    assert {key: body[key] for key in body if key not in ("model", "messages", "stream")} == expected


def test_tools_are_offered_and_parallel_calls_forbidden_only_on_request() -> None:
    tools = [ToolSpec("clock", "The time.", {"type": "object"})]
    offered = body_of(message("user", "hi"), tools=tools)
    assert offered["tools"] == [{"name": "clock", "description": "The time.", "input_schema": {"type": "object"}}]
    assert "tool_choice" not in offered
    serial = body_of(message("user", "hi"), tools=tools, params=ModelParams(parallel_tool_calls=False))
    assert serial["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_prompt_is_marked_for_the_cache_after_the_system_and_after_the_newest_message() -> None:
    request = Request(model="m", system="Be kind.", messages=[message("user", "hi")], prefix="Well,")
    body = request_body(request)
    marked = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{**text("Be kind."), **marked}]
    assert body["messages"][0]["content"] == [{**text("hi"), **marked}]
    assert body["messages"][1]["content"] == [text("Well,")]


def test_person_is_named_to_the_provider_by_nothing_that_says_who_it_is() -> None:
    assert "anna" not in body_of(message("user", "hi"), user="anna@example.org")["metadata"]["user_id"]
