"""Checks the translation between LangGraph's messages, decisions and checkpoints and Threadcast's. These tests do no
I/O and use a dict in place of the journal."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents.middleware.human_in_the_loop import _decision_schema
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Interrupt
from pydantic import TypeAdapter

from threadcast.agents.langgraph.history import messages_of, pieces_in, usage_of
from threadcast.agents.langgraph.interrupts import allowed_in, decision_of
from threadcast.agents.langgraph.saver import INTERRUPT, RESUME, JournalSaver, dumps, loads
from threadcast.agents.langgraph.shown import arguments_of, digest
from threadcast.custom_agents.pieces import Reasoning, Usage
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.custom_agents.seam import Approval, Seam, ShownCall
from threadcast_protocol.wire.messages import AudioPart, FilePart, FunctionCall, ImagePart, ImageUrl, TextPart, ToolCall

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(min_size=1, max_size=8), json_values, max_size=4)


class Journal:
    """The part of a `Seam` that keeps private values."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def put(self, key: str, value: Any) -> None:
        self.values[key] = value

    async def get(self, key: str) -> Any:
        return self.values.get(key)


def saver_of(journal: Journal, kept: bytes = b"") -> JournalSaver:
    return JournalSaver(cast(Seam, journal), kept)  # cast: only these two methods are used


def config(namespace: str = "", checkpoint_id: str | None = None) -> Any:
    ids = {"thread_id": "t", "checkpoint_ns": namespace}
    return {"configurable": ids | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


async def put(saver: JournalSaver, namespace: str, **values: Any) -> Any:
    checkpoint = empty_checkpoint() | {"channel_values": values}
    return await saver.aput(config(namespace), cast(Any, checkpoint), {"step": 1}, {})


def test_messages_of_the_chat_are_messages_of_langchain() -> None:
    call = ToolCall(id="c1", index=0, function=FunctionCall(name="pay", arguments='{"dollars": 7}'))
    said = messages_of(
        [
            RoundMessage(role="system", content="Be brief.", message_id="m0"),
            RoundMessage(role="user", content="hello", message_id="m1"),
            RoundMessage(role="assistant", content="yes", message_id="m2", tool_calls=[call]),
            RoundMessage(role="tool", content="broken", message_id="m3", tool_call_id="c1", tool_failed=True),
        ]
    )
    assert said == [
        SystemMessage(content="Be brief.", id="m0"),
        HumanMessage(content="hello", id="m1"),
        AIMessage(content="yes", id="m2", tool_calls=[{"id": "c1", "name": "pay", "args": {"dollars": 7}}]),
        ToolMessage(content="broken", id="m3", tool_call_id="c1", status="error"),
    ]


def test_a_picture_a_file_and_a_text_are_blocks_and_broken_arguments_are_none() -> None:
    parts: list[TextPart | ImagePart | AudioPart | FilePart] = [
        TextPart(text="look"),
        ImagePart(image_url=ImageUrl(url="data:image/png;base64,AAAA")),
        FilePart(name="a.pdf", mime="application/pdf", data="BBBB"),
        FilePart(name="b.txt", mime="text/plain", text="words"),
    ]
    [message] = messages_of([RoundMessage(role="user", content=parts, message_id="m")])
    assert message.content == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "file", "base64": "BBBB", "mime_type": "application/pdf", "filename": "a.pdf"},
        {"type": "text", "text": "[file b.txt]\nwords"},
    ]
    call = ToolCall(id="c1", index=0, function=FunctionCall(name="pay", arguments='{"dollars"'))
    [message] = messages_of([RoundMessage(role="assistant", content="", message_id="m", tool_calls=[call])])
    assert isinstance(message, AIMessage)
    assert message.tool_calls[0]["args"] == {}


def test_text_and_reasoning_of_content_blocks() -> None:
    blocks = [
        "plain",
        {"type": "text", "text": "said"},
        {"type": "reasoning", "reasoning": "why"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "input": {}},
        7,
    ]
    assert list(pieces_in(blocks)) == ["plain", "said", Reasoning("why"), Reasoning("hm")]
    assert list(pieces_in("")) == []


def test_tokens_of_a_message() -> None:
    told: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    assert usage_of(AIMessage("", usage_metadata=told)) == Usage(7, 3, 10)
    assert usage_of(AIMessage("")) is None


@pytest.mark.parametrize(
    ("approval", "allowed", "decision"),
    [
        (Approval(True), {"approve"}, {"type": "approve"}),
        (Approval(True, arguments={"a": 1}), {"approve"}, {"type": "approve"}),
        (Approval(True), {"edit", "reject"}, {"type": "edit", "edited_action": {"name": "pay", "args": {"a": 1}}}),
        (
            Approval(True, arguments={"a": 2}),
            {"approve", "edit"},
            {"type": "edit", "edited_action": {"name": "pay", "args": {"a": 2}}},
        ),
        (
            Approval(True, arguments={"a": 2}),
            {"approve"},
            {"type": "reject", "message": 'The person wants other arguments: {"a":2}'},
        ),
        (Approval(False), {"approve"}, {"type": "reject"}),
        (Approval(False, note="no"), {"approve"}, {"type": "reject", "message": "no"}),
    ],
)
def test_an_approval_is_a_decision_of_the_middleware(approval: Approval, allowed: set[str], decision: Any) -> None:
    assert decision_of(approval, "pay", {"a": 1}, allowed) == decision


@given(st.sets(st.sampled_from(["approve", "edit", "reject", "respond"]), min_size=1))
def test_the_schema_of_the_middleware_tells_what_it_allows(allowed: set[str]) -> None:
    schema = TypeAdapter(_decision_schema(cast(Any, sorted(allowed)), "pay", None)).json_schema()
    assert allowed_in(schema) == allowed


def test_a_schema_of_somebody_else_allows_nothing() -> None:
    assert allowed_in(None) == allowed_in({"properties": {"type": 7}}) == allowed_in({"anyOf": "x"}) == set()


@given(arguments, arguments)
def test_a_digest_tells_calls_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (digest({"name": "pay", "args": one}) == digest({"name": "pay", "args": other})) == (one == other)


def test_arguments_that_are_no_json_are_those_of_no_call() -> None:
    assert arguments_of(ShownCall("c", "c", "pay", '{"a": 1}')) == {"a": 1}
    assert arguments_of(ShownCall("c", "c", "pay", "")) == {}
    assert arguments_of(ShownCall("c", "c", "pay", '{"a"')) is None


@given(arguments)
def test_a_checkpoint_is_read_back_as_it_was(values: dict[str, Any]) -> None:
    async def check() -> None:
        journal = Journal()
        written = await put(saver_of(journal), "", values=values, said=AIMessage("hello"))
        again = saver_of(journal)
        assert await again.load()
        found = await again.aget_tuple(written)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"values": values, "said": AIMessage("hello")}

    asyncio.run(check())


def test_an_answered_interrupt_is_not_asked_again_although_the_graph_above_still_waits() -> None:
    async def check() -> None:
        journal = Journal()
        saver = saver_of(journal)
        root = await put(saver, "")
        below = await put(saver, "inner:1")
        asks = Interrupt(value="First?", id="i1")
        await saver.aput_writes(below, [(INTERRUPT, (asks,))], "task-below")
        await saver.aput_writes(root, [(INTERRUPT, (asks,))], "task-above")
        assert not saver.is_answered("i1")
        await saver.aput_writes(
            below, [(INTERRUPT, (Interrupt(value="Other?", id="i2"),)), (RESUME, ["one"])], "task-below"
        )
        again = saver_of(journal)
        await again.load()
        assert again.is_answered("i1")
        assert not again.is_answered("i2")

    asyncio.run(check())


def test_the_state_of_the_next_run_is_the_graph_s_and_that_of_lasting_subgraphs() -> None:
    async def check() -> None:
        journal = Journal()
        saver = saver_of(journal)
        await put(saver, "lasting", a=1)
        await put(saver, "inner:1", b=2)
        await put(saver, "", c=3)
        next_run = saver_of(Journal(), saver.packed())
        found = {name: await next_run.aget_tuple(config(name)) for name in ("", "lasting", "inner:1")}
        assert found["inner:1"] is None
        assert [each.checkpoint["channel_values"] for each in found.values() if each] == [{"c": 3}, {"a": 1}]

    asyncio.run(check())


def test_a_value_of_the_framework_is_json_between() -> None:
    saver = saver_of(Journal())
    message = ToolMessage("done", tool_call_id="c", artifact=b"bytes")
    assert loads(saver, dumps(saver, message)) == message
