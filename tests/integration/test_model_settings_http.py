"""An operator's settings of a model over real HTTP: answers without streaming, additional fields of the body,
prices."""

import json
from pathlib import Path

import pytest

from tests.integration.fake_openai import DONE, STOP, Reply, chunk, serve_fake_openai, text
from tests.support.reader import watching
from tests.support.server import command, start, user_message
from threadcast_protocol.wire.deltas import AppendContent, MergeExtra, SetUsage
from threadcast_protocol.wire.events import StreamDelta, StreamFinished
from threadcast_protocol.wire.messages import JsonObject, Usage

pytestmark = pytest.mark.anyio

CONFIG = """
[models.providers.fake]
base_url = "{url}"

[[models.providers.fake.models]]
name = "tiny"
streams = false
extra_body = {{ top_k = 20 }}
price_input = 1.0
price_output = 4.0
price_cache_read = 0.1
"""


def whole(text: str) -> Reply:
    """Return an answer in one piece. The answer's usage reports 100 tokens read, 60 of them from the cache, and 50
    tokens written."""
    usage: JsonObject = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    usage["prompt_tokens_details"] = {"cached_tokens": 60}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice], "usage": usage}
    return Reply([json.dumps(body).encode()], headers={"content-type": "application/json"})


@pytest.mark.row("PROV-3", "PROV-5", "EVT-12")
async def test_a_model_that_does_not_stream_is_one_delta_and_answers_and_chats_say_what_they_cost(
    tmp_path: Path,
) -> None:
    with serve_fake_openai() as model:
        config = tmp_path / "threadcast.toml"
        config.write_text(CONFIG.format(url=model.base_url))
        arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
        with start(*arguments, log=tmp_path / "log") as server:
            await server.ready()
            async with watching(server.url, "c1") as watcher:
                for number, words in enumerate(["A whole answer.", "And another."], 1):
                    model.replies = [whole(words)]
                    await command(server.url, "c1", user_message(f"q{number}", "hello"))
                    await watcher.at_rest(number)
    ops = [op for event in watcher.events if isinstance(event, StreamDelta) for op in event.ops]
    said = [op.text for op in ops if isinstance(op, AppendContent)]
    assert said == ["A whole answer.", "And another."]
    assert [(asked.body.get("stream", False), asked.body["top_k"]) for asked in model.asked] == [(False, 20)] * 2
    state = watcher.state
    assert state is not None and state.thread.usage is not None
    each = (40 * 1.0 + 60 * 0.1 + 50 * 4.0) / 1_000_000
    costs = [state.nodes[key].usage for key in state.path if state.nodes[key].role == "assistant"]
    assert [usage.cost_usd if usage else None for usage in costs] == [pytest.approx(each)] * 2
    assert state.thread.usage.cost_usd == pytest.approx(2 * each)


@pytest.mark.row("EVT-12")
async def test_usage_and_timings_are_told_as_they_come_close_the_answer_and_sum_up_in_the_thread(
    tmp_path: Path,
) -> None:
    timings: JsonObject = {"prompt_ms": 12.5, "predicted_per_second": 40.0}
    usage: JsonObject = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    with serve_fake_openai() as model:
        config = tmp_path / "threadcast.toml"
        config.write_text(f'[models.providers.fake]\nbase_url = "{model.base_url}"\nmodels = [{{ name = "tiny" }}]\n')
        with start("serve", "--port", "0", "--memory", "--config", str(config), log=tmp_path / "log") as server:
            await server.ready()
            async with watching(server.url, "c1") as watcher:
                for number in (1, 2):
                    model.replies = [Reply([text("Hi."), STOP, chunk(usage=usage, timings=timings), DONE])]
                    await command(server.url, "c1", user_message(f"q{number}", "hello"))
                    await watcher.at_rest(number)
            async with watching(server.url, "c1") as late:
                assert late.snapshot == watcher.snapshot
    told = Usage(prompt_tokens=7, completion_tokens=2, total_tokens=9)
    ops = [op for event in watcher.events if isinstance(event, StreamDelta) for op in event.ops]
    assert [op.usage for op in ops if isinstance(op, SetUsage)] == [told, told]
    assert [op.extra["timings"] for op in ops if isinstance(op, MergeExtra) and "timings" in op.extra] == [timings] * 2
    ends = [event for event in watcher.events if isinstance(event, StreamFinished)]
    assert [(end.usage, end.timings, end.finish_reason) for end in ends] == [(told, timings, "stop")] * 2
    state = watcher.state
    assert state is not None
    assert [state.nodes[key].usage for key in state.path if state.nodes[key].role == "assistant"] == [told, told]
    assert state.thread.usage == Usage(prompt_tokens=14, completion_tokens=4, total_tokens=18)
