"""The agent loop over real HTTP: simultaneous tools, steering, limits, the reply guard, summaries, fallback models."""

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, serve_fake_openai, text
from tests.ports import free_port
from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, start, user_message
from threadcast_protocol.wire.events import ErrorHappened, RuntimeUpdated, ToolStatus
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CHINESE = "这个问题很有意思"

CONFIG = """
[models]
default = "demo/tools?rate=0"

[models.providers.fake]
base_url = "{fake}"

[models.providers.down]
base_url = "http://127.0.0.1:{closed_port}/v1"

[models.providers.gone]
base_url = "http://127.0.0.1:{closed_port}/v1"

[profiles.guarded]
model = "fake/tiny"
reply_guard = {{ forbid_scripts = ["Han"], instruction = "In English, please." }}

[profiles.summed]
model = "demo/echo?rate=0"
summarizer = "fake/small"
params = {{ max_history_messages = 2 }}

[profiles.covered]
model = "down/large"
fallback = ["gone/x", "fake/tiny"]
"""


@pytest.fixture(scope="module")
def model() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as fake:
        yield fake


@pytest.fixture(scope="module")
def harness(model: FakeOpenAI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("loop")
    config = base / "threadcast.toml"
    config.write_text(CONFIG.format(fake=model.base_url, closed_port=free_port()))
    tools = Path(__file__).with_name("loop_tools.py")
    with start(
        "serve", "--port", "0", "--memory", "--config", str(config), "--app", str(tools), log=base / "log"
    ) as it:
        anyio.run(it.ready)
        yield it


async def set_params(harness: Process, chat_id: str, **patch: object) -> None:
    body: JsonObject = {"type": "set_params", "client_request_id": f"p-{uuid.uuid4().hex}", "patch": patch}
    await command(harness.url, chat_id, body)


def said(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


def notes(watcher: Watcher) -> list[str]:
    return [e.status_text for e in watcher.events if isinstance(e, RuntimeUpdated) and e.status_text]


def outcomes(watcher: Watcher) -> list[str]:
    return [e.outcome for e in watcher.events if isinstance(e, RuntimeUpdated) and e.outcome]


@pytest.mark.row("LOOP-3")
async def test_safe_tools_that_wait_for_each_other_meet_and_answer_in_call_order(
    harness: Process, chat_id: str
) -> None:
    words = 'call meet {"me":"ann","other":"bob"}\ncall meet {"me":"bob","other":"ann"}'
    async with watching(harness.url, chat_id) as watcher:
        await command(harness.url, chat_id, user_message("a", words))
        await watcher.at_rest()
    results = [content for role, content in watcher.messages if role == "tool"]
    assert results == ["ann met bob", "bob met ann"]
    statuses = [(e.index, e.status) for e in watcher.events if isinstance(e, ToolStatus)]
    assert [status for status in statuses if status[1] != "progress"] == [
        (0, "running"),
        (1, "running"),
        (0, "done"),
        (1, "done"),
    ]
    heard = {(e.index, e.message) for e in watcher.events if isinstance(e, ToolStatus) and e.status == "progress"}
    assert heard <= {(0, "ann is here"), (1, "bob is here")} and heard, "each reports under its own number"


@pytest.mark.row("LOOP-13", "CMD-17")
async def test_steering_lets_the_running_tool_finish_answers_the_rest_unrun_and_begins_anew(
    harness: Process, chat_id: str
) -> None:
    words = f'call gate {{"name":"{chat_id}"}}\ncall gate {{"name":"never opened"}}'
    async with watching(harness.url, chat_id) as watcher:
        await command(harness.url, chat_id, user_message("a", words))
        await watcher.until(lambda w: "tool_status" in w.types())
        await command(harness.url, chat_id, user_message("b", "call clock {}", priority=True))
        await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 1)
        opener = f"{chat_id}-opener"
        await command(harness.url, opener, user_message("o", f'call open_gate {{"name":"{chat_id}"}}'))
        await watcher.at_rest(2)
    results = [content for role, content in watcher.messages if role == "tool"]
    assert results[:2] == ["through", "Interrupted by a new message before it was run."]
    assert len(results) == 3, "the new message had its own round of tools"
    assert outcomes(watcher) == ["interrupted", "complete"]
    assert [role for role, _ in watcher.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.row("LOOP-13")
async def test_steering_while_the_model_writes_lets_it_finish(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        slow = {"model": "demo/essay?words=12&rate=20"}
        await command(harness.url, chat_id, user_message("a", "write", params=slow))
        await watcher.until(lambda w: "stream_delta" in w.types())
        await command(harness.url, chat_id, user_message("b", "hello", priority=True))
        await watcher.at_rest(2)
    roles = [role for role, _ in watcher.messages]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert len(watcher.messages[1][1].split()) >= 12, "it was not cut"


@pytest.mark.row("LOOP-12")
async def test_a_tool_changes_the_threads_metadata_and_keeps_what_else_is_there(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await set_params(harness, chat_id, metadata={"project": 7})
        await command(harness.url, chat_id, user_message("a", 'call file_under {"key":"draft","value":"d1"}'))
        await watcher.at_rest()
        assert watcher.state is not None
        assert watcher.state.thread.metadata == {"project": 7, "draft": "d1"}
        async with watching(harness.url, chat_id) as late:
            assert late.snapshot == watcher.snapshot
    assert any(f["type"] == "thread_updated" and "metadata" in f and "draft" in f["metadata"] for f in watcher.frames)


def is_asked(rounds: int, watcher: Watcher) -> bool:
    """Return whether the chat is paused after this many rounds."""
    paused = watcher.state is not None and watcher.state.runtime.paused
    return paused and watcher.types().count("stream_started") == rounds


@pytest.mark.row("LOOP-2")
@pytest.mark.parametrize("on_limit", ["stop", "summarize"])
async def test_at_most_so_many_rounds_may_use_tools(harness: Process, chat_id: str, on_limit: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await set_params(harness, chat_id, max_rounds=2, on_limit=on_limit, model="demo/tools?rounds=9&rate=0")
        await command(harness.url, chat_id, user_message("a", 'call file_under {"key":"k","value":"v"}'))
        await watcher.at_rest()
    roles = [role for role, _ in watcher.messages]
    last_word = ["assistant"] if on_limit == "summarize" else []
    assert roles == ["user", "assistant", "tool", "assistant", "tool", *last_word]
    assert [(e.code, e.fatal) for e in watcher.events if isinstance(e, ErrorHappened)] == [("max_tool_rounds", False)]
    assert outcomes(watcher) == ["limit"]


@pytest.mark.row("LOOP-2")
async def test_who_is_asked_at_the_limit_may_grant_as_many_rounds_again_or_end_it(
    harness: Process, chat_id: str
) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await set_params(harness, chat_id, max_rounds=1, on_limit="ask", model="demo/tools?rounds=9&rate=0")
        await command(harness.url, chat_id, user_message("a", 'call file_under {"key":"k","value":"v"}'))
        for number, accepted in enumerate((True, False)):
            await watcher.until(partial(is_asked, number + 1))
            assert watcher.state is not None
            (reason,) = watcher.state.runtime.pause_reasons
            assert reason.type == "round_limit"
            decision: JsonObject = {"type": "tool_decision", "client_request_id": f"d{number}", "accepted": accepted}
            await command(harness.url, chat_id, {**decision, "tool_call_id": reason.tool_call_id})
        await watcher.at_rest()
    assert watcher.types().count("stream_started") == 2
    assert outcomes(watcher) == ["limit"]


@pytest.mark.row("LOOP-10")
async def test_an_answer_in_the_wrong_script_is_asked_for_again_and_nobody_sees_how(
    harness: Process, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [said(CHINESE), said("It is interesting.")]
    async with watching(harness.url, chat_id) as watcher:
        await set_params(harness, chat_id, mode="guarded")
        await command(harness.url, chat_id, user_message("a", "Is it?"))
        await watcher.at_rest()
        assert watcher.messages == [("user", "Is it?"), ("assistant", CHINESE), ("assistant", "It is interesting.")]
        assert "answering again: wrong language" in notes(watcher)
        assert b"In English" not in watcher.snapshot
    sent = model.asked[-1].body["messages"]
    assert [(m["role"], m["content"]) for m in sent][-2:] == [("assistant", CHINESE), ("user", "In English, please.")]


@pytest.mark.row("HIST-4", "HIST-6")
async def test_a_long_chat_is_summed_up_by_another_model(harness: Process, model: FakeOpenAI, chat_id: str) -> None:
    model.replies = [said("They said hello.")]
    async with watching(harness.url, chat_id) as watcher:
        await set_params(harness, chat_id, mode="summed")
        for number, words in enumerate(("hello", "and now?")):
            await command(harness.url, chat_id, user_message(f"a{number}", words))
            await watcher.at_rest(number + 1)
        assert watcher.state is not None
        compaction = watcher.state.thread.compaction or {}
        assert b"They said hello" not in watcher.snapshot
    assert [e.is_compressing for e in watcher.events if isinstance(e, RuntimeUpdated)].count(True) == 1
    assert (compaction["strategy"], compaction["before"], compaction["after"]) == ("summarize", 3, 2)
    asked = model.asked[-1].body
    assert (asked["model"], asked["temperature"]) == ("small", 0.2)
    assert 500 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))
    assert "hello" in str(asked["messages"][-1]["content"])
    assert [role for role, _ in watcher.messages] == ["user", "assistant"] * 2


@pytest.mark.row("EVT-14")
async def test_another_model_answers_in_the_same_message_when_the_first_is_down(
    harness: Process, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [said("I stand in.")]
    async with watching(harness.url, chat_id) as watcher:
        await set_params(harness, chat_id, mode="covered")
        await command(harness.url, chat_id, user_message("a", "Anybody?"))
        await watcher.at_rest()
        assert watcher.messages == [("user", "Anybody?"), ("assistant", "I stand in.")]
        assert watcher.state is not None
        assert watcher.state.nodes[watcher.state.path[-1]].model == "fake-1"
    assert watcher.types().count("stream_started") == 1
    assert notes(watcher) == ["asking gone/x instead", "asking fake/tiny instead"]
    assert "model.fallback" in harness.log_text()
