"""The whole path with an OpenAI-compatible server behind it: text, reasoning, tools, failures, and where secrets may
appear."""

import json
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.integration.fake_openai import (
    CUT,
    DONE,
    STOP,
    FakeOpenAI,
    Reply,
    Step,
    chunk,
    failure,
    text,
)
from tests.support.reader import Watcher, watching
from tests.support.server import command, serving, user_message

pytestmark = pytest.mark.anyio

SECRET = "sk-do-not-show-this"


def fragment(index: int, arguments: str, name: str | None = None, call_id: str | None = None) -> bytes:
    call: dict[str, object] = {"index": index, "function": {"arguments": arguments, **({"name": name} if name else {})}}
    return chunk(delta={"tool_calls": [{**call, **({"id": call_id} if call_id else {})}]})


@pytest.mark.row("PROV-2", "PROV-4", "ERR-2", "LOOP-14", "EVT-14", "EVT-12")
async def test_text_tools_and_failures_come_through_and_no_secret_does(tmp_path: Path, fake: FakeOpenAI) -> None:
    environment = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": SECRET, "OPENAI_MODEL": "tiny"}
    environment["THREADCAST_MODELS__DEMO"] = "true"  # for its tools
    async with serving(tmp_path, "--data-dir", str(tmp_path / "data"), environment=environment) as server:
        async with watching(server.url, "c1") as watcher:
            await _plain_answer(fake, server.url, watcher)
            await _tool_round(fake, server.url, watcher)
            await _failures(fake, server.url, watcher)
            frames = json.dumps(watcher.frames)
        async with watching(server.url, "c1") as late:
            assert late.snapshot == watcher.snapshot
        said = server.log_text()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    for where in (frames, late.snapshot.decode(), said, stored.decode("latin-1")):
        assert SECRET not in where
    assert fake.asked[0].headers["authorization"] == f"Bearer {SECRET}"


async def _plain_answer(fake: FakeOpenAI, url: str, watcher: Watcher) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    fake.replies = [
        Reply([chunk(delta={"reasoning_content": "hm"}), text("Hel"), text("lo\n\ndata: x"), STOP, _usage(usage), DONE])
    ]
    await command(url, "c1", user_message("a", "hi"))
    await watcher.at_rest()
    assert watcher.state is not None
    answer = watcher.state.nodes[watcher.state.path[-1]]
    assert (answer.content, answer.reasoning_content) == ("Hello\n\ndata: x", "hm")
    assert (answer.finish_reason, answer.model) == ("stop", "tiny-2026")
    assert answer.usage is not None and answer.usage.total_tokens == 5
    asked = fake.asked[-1].body
    assert (asked["model"], asked["stream"]) == ("tiny", True)
    assert asked["messages"][-1] == {"role": "user", "content": "hi"}


def _usage(usage: dict[str, int]) -> bytes:
    return b"data: " + json.dumps({"model": "tiny-2026", "choices": [], "usage": usage}).encode() + b"\n\n"


async def _tool_round(fake: FakeOpenAI, url: str, watcher: Watcher) -> None:
    asks: list[Step] = [
        fragment(0, "", "calculator", "call_1"),
        fragment(0, '{"expres'),
        fragment(0, 'sion":"6*7"}'),
        fragment(1, '{"expression":"1+1"}', "calculator", "call_1"),
        chunk(finish_reason="tool_calls"),
        DONE,
    ]
    fake.replies = [Reply(asks), Reply([text("42 and 2"), STOP, DONE])]
    await command(url, "c1", user_message("b", "compute"))
    await watcher.at_rest(2)
    assert watcher.messages[-3:] == [("tool", "42"), ("tool", "2"), ("assistant", "42 and 2")]
    assert watcher.state is not None
    asked = next(m for m in watcher.state.nodes.values() if m.tool_calls)
    ids = [call.id for call in asked.tool_calls]
    assert ids[0] == "call_1" and len(set(ids)) == 2, "an id used twice was replaced"
    sent = fake.asked[-1].body["messages"]
    assert [m["role"] for m in sent[-4:]] == ["user", "assistant", "tool", "tool"]
    assert [m["tool_call_id"] for m in sent[-2:]] == ids


async def _failures(fake: FakeOpenAI, url: str, watcher: Watcher) -> None:
    cases = [
        ([Reply([text("half"), CUT])], "stream_error"),
        ([failure(401, {"message": f"bad key {SECRET}"})], "auth_failed"),
        ([failure(400, {"message": "too long", "code": "context_length_exceeded"})], "context_overflow"),
        ([Reply([text("x"), b"data: {broken\n\n"])], "stream_error"),
    ]
    for number, (replies, code) in enumerate(cases):
        fake.replies = replies
        await command(url, "c1", user_message(f"f{number}", "again"))
        await watcher.at_rest(3 + number)
        errors = [frame["code"] for frame in watcher.frames if frame["type"] == "error"]
        assert errors[number] == code
    fake.replies = [Reply([text("fine again"), STOP, DONE])]
    await command(url, "c1", user_message("last", "once more"))
    await watcher.at_rest(3 + len(cases))
    assert watcher.messages[-1] == ("assistant", "fine again")


async def test_an_abort_closes_the_connection_to_a_silent_model(tmp_path: Path, fake: FakeOpenAI) -> None:
    fake.replies = [Reply([text("begin"), "hang"])]
    environment = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": "x", "OPENAI_MODEL": "tiny"}
    async with serving(tmp_path, environment=environment) as server:
        async with watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "hi"))
            await watcher.until(lambda w: "stream_delta" in w.types())
            answer = await command(server.url, "c1", {"type": "abort", "client_request_id": "stop"})
            assert answer.json()["status"] == "aborted"
            await watcher.at_rest()
        with anyio.fail_after(30):
            assert await anyio.to_thread.run_sync(fake.client_left.wait, 5)
    assert watcher.messages[-1] == ("assistant", "begin")
