"""Stop and send, over real HTTP: one command ends the run and is executed next, and such commands of several tabs are
all executed."""

import json
import time
from collections.abc import Iterator

import anyio
import pytest

from tests.bars import bar_seconds
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message
from threadcast_client import Client
from threadcast_protocol.wire.events import RuntimeUpdated, SubchatUpdate, ToolStatus
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

HANG: JsonObject = {"params": {"model": "demo/hang?after=3&rate=0"}}
TOOLS: JsonObject = {"params": {"model": "demo/tools?rate=0"}}
STOP_SECONDS = 1.0
"""The deadline is the deadline of an abort (CMD-3)."""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("interrupt")
    (base / "app.py").write_text(
        "from tests.integration.misbehaving_tools import asks, leaves_a_mark, swallows_cancellation\n"
        "from tests.integration.delegating_tools import delegate\n"
    )
    (base / "threadcast.toml").write_text('[models]\ndefault = "demo/echo?rate=0"\n')
    arguments = ("--config", str(base / "threadcast.toml"), "--app", str(base / "app.py"))
    with start("serve", "--port", "0", "--data-dir", str(base / "data"), *arguments, log=base / "log") as process:
        anyio.run(process.ready)
        yield process


def send_now(request_id: str, target: str, **more: object) -> JsonObject:
    return {
        "type": "edit_queued",
        "client_request_id": request_id,
        "target_request_id": target,
        "interrupt": True,
        **more,
    }


def now(request_id: str, **more: object) -> JsonObject:
    return user_message(request_id, request_id, interrupt=True, **more)


def outcomes(watcher: Watcher) -> list[str]:
    return [e.outcome for e in watcher.events if isinstance(e, RuntimeUpdated) and e.outcome]


def questions(watcher: Watcher) -> list[str]:
    return [text for role, text in watcher.messages if role == "user"]


async def hanging(harness: Process, watcher: Watcher, *waiting: str) -> None:
    """Begin an answer that never ends, and queue these messages after it."""
    await command(harness.url, watcher.chat_id, user_message("first", "first", **HANG))
    await watcher.until(lambda w: "stream_delta" in w.types())
    for name in waiting:
        await command(harness.url, watcher.chat_id, user_message(name, name))


@pytest.mark.row("CMD-17", "CMD-3")
async def test_it_ends_a_hanging_answer_within_a_second_and_all_that_waits_follows(
    harness: Process, chat_id: str
) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await hanging(harness, watcher, "b", "c")
        await command(harness.url, chat_id, user_message("d", "d", priority=True))
        posted_at = time.monotonic()
        answer = await command(harness.url, chat_id, now("e"))
        assert (answer.status_code, answer.json()) == (202, {"status": "accepted"})
        await watcher.until(lambda w: "e" in questions(w))
        assert time.monotonic() - posted_at < bar_seconds(STOP_SECONDS)
        await watcher.at_rest(4)
        async with watching(harness.url, chat_id) as late:
            assert late.snapshot == watcher.snapshot
    assert questions(watcher) == ["first", "e", "d", "b", "c"], "b and c are one turn"
    assert outcomes(watcher) == ["aborted", "complete", "complete", "complete"]
    assert watcher.messages[1][1], "what was said is kept"


async def test_two_tabs_at_once_lose_nothing_and_never_come_between_end_and_message(
    harness: Process, chat_id: str
) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await hanging(harness, watcher, "b")
        async with anyio.create_task_group() as tasks:
            for name in ("one", "two", "three", "four"):
                tasks.start_soon(command, harness.url, chat_id, now(name, **HANG))
            tasks.start_soon(command, harness.url, chat_id, {"type": "abort", "client_request_id": "stop"})
            tasks.start_soon(command, harness.url, chat_id, user_message("c", "c"))
        await watcher.until(lambda w: {"one", "two", "three", "four"} <= set(questions(w)))
        await command(harness.url, chat_id, {"type": "abort", "client_request_id": "last"})
        await watcher.until(lambda w: {"b", "c"} <= set(questions(w)))
        await watcher.at_rest(5)
    assert sorted(questions(watcher)) == sorted(["first", "one", "two", "three", "four", "b", "c"])
    events = watcher.frames
    for name in ("one", "two", "three", "four"):
        said = next(at for at, e in enumerate(events) if e.get("message", {}).get("client_request_id") == name)
        taken = next(at for at, e in enumerate(events) if e.get("client_request_id") == name)
        between = [e["message"]["role"] for e in events[taken:said] if e["type"] == "message_added"]
        assert "user" not in between, "nobody else's message stands between"


async def test_a_row_is_sent_at_once_by_one_tab_and_the_other_is_told(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await hanging(harness, watcher, "b", "c")
        answers: list[JsonObject] = []

        async def press(name: str) -> None:
            body = send_now(name, "c", content="sea")
            answers.append((await command(harness.url, chat_id, body, {"Prefer": "wait=10"})).json())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(press, "e")
            tasks.start_soon(press, "f")
        await watcher.at_rest(3)
    assert sorted(answer["accepted"] for answer in answers) == [False, True]
    assert questions(watcher) == ["first", "sea", "b"]
    assert outcomes(watcher) == ["aborted", "complete", "complete"]


async def test_with_100_waiting_a_row_can_still_be_sent_at_once_but_nothing_new(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await hanging(harness, watcher, *(f"q{number}" for number in range(100)))
        full = await command(harness.url, chat_id, now("over"))
        assert (full.status_code, full.json()["code"]) == (429, "queue_full")
        assert outcomes(watcher) == [], "a refused message ends nothing"
        assert (await command(harness.url, chat_id, send_now("e", "q99"))).status_code == 202
        await watcher.until(lambda w: questions(w)[:2] == ["first", "q99"])
        await watcher.at_rest(3)
    assert len(questions(watcher)) == 101


@pytest.mark.parametrize("tool", ['leaves_a_mark {"seconds":60}', "swallows_cancellation {}"])
async def test_a_tool_that_runs_is_answered_as_aborted_and_not_run_again(
    harness: Process, chat_id: str, tool: str
) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await command(harness.url, chat_id, user_message("a", f"call {tool}", **TOOLS))
        await watcher.until(lambda w: any(isinstance(e, ToolStatus) and e.status == "running" for e in w.events))
        posted_at = time.monotonic()
        await command(harness.url, chat_id, now("b"))
        await watcher.until(lambda w: "b" in questions(w))
        assert time.monotonic() - posted_at < bar_seconds(STOP_SECONDS)
        await watcher.at_rest(2)
    statuses = [event.status for event in watcher.events if isinstance(event, ToolStatus)]
    assert statuses == ["running", "aborted"]
    assert watcher.messages[-1] == ("assistant", "You said: b")


@pytest.mark.row("GATE-7")
async def test_a_question_to_a_person_is_taken_back(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await command(harness.url, chat_id, user_message("a", "call asks {}", **TOOLS))
        await watcher.until(lambda w: w.state is not None and w.state.runtime.paused)
        await command(harness.url, chat_id, now("b", context={"page": "x"}, priority=True))
        await watcher.at_rest(2)
    assert "pause_cleared" in watcher.types()
    assert watcher.messages[-1] == ("assistant", "You said: b")


async def test_a_chat_below_is_ended_with_its_call(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        asked = json.dumps({"task": 'call leaves_a_mark {"seconds":60}'})
        await command(harness.url, chat_id, user_message("a", f"call delegate {asked}", **TOOLS))
        await watcher.until(lambda w: any(isinstance(e, SubchatUpdate) for e in w.events))
        child_id = next(e.subchat_id for e in watcher.events if isinstance(e, SubchatUpdate))
        async with watching(harness.url, child_id) as child:
            await child.until(lambda w: w.state is not None and w.state.runtime.active_tool == "leaves_a_mark")
            await command(harness.url, chat_id, now("b"))
            await watcher.at_rest(2)
            await child.until(lambda w: w.state is not None and w.state.is_at_rest)
            assert child.state is not None and child.state.runtime.outcome == "aborted"
    assert watcher.messages[-1] == ("assistant", "You said: b")


@pytest.mark.row("CMD-2", "CMD-19")
async def test_it_is_checked_and_repeated_as_any_command(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await hanging(harness, watcher)
        wrong = await command(harness.url, chat_id, {**now("x"), "interrupt": "yes"})
        assert (wrong.status_code, wrong.json()["path"]) == (400, "/interrupt")
        empty = await command(harness.url, chat_id, {**now("x"), "content": " "})
        assert (empty.status_code, empty.json()["code"]) == (400, "invalid_content")
        assert outcomes(watcher) == []
        word = await command(harness.url, chat_id, now("x"), {"Prefer": "wait=20"})
        assert (word.status_code, word.json()["accepted"]) == (200, True)
        await command(harness.url, chat_id, user_message("y", "y", **HANG))
        await watcher.until(lambda w: "y" in questions(w))
        again = await command(harness.url, chat_id, now("x"))
        assert again.json() == {"status": "duplicate"}
        other = await command(harness.url, chat_id, user_message("x", "x"))
        assert other.status_code == 409, "without the flag it is another body"
        await command(harness.url, chat_id, {"type": "abort", "client_request_id": "end"})
        await watcher.at_rest(3)
    assert questions(watcher) == ["first", "x", "y"], "the repeat ended nothing"


async def test_a_python_client_stops_and_sends(harness: Process, chat_id: str) -> None:
    async with Client(harness.url) as client, client.chat(chat_id) as chat:
        with anyio.fail_after(DEADLINE_SECONDS):
            chat.send("first", **HANG)
            await chat.until(lambda state: state.draft is not None)
            assert await chat.ask("rather this", interrupt=True) == "You said: rather this"
        assert [message.role for message in chat.messages] == ["user", "assistant", "user", "assistant"]
