"""Behaviour that front ends rely on: no event before the first snapshot, phases, codes, used tools, long silences,
fields, titles."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from threadcast_protocol.fold.phase import PhaseReader, is_busy
from threadcast_protocol.wire.events import ErrorHappened
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS: JsonObject = {"model": "demo/tools?rate=0"}
NOTE = 'call write_note {"name":"phase.md","text":"x"}'
SUM = 'call calculator {"expression":"6*7"}'


@asynccontextmanager
async def configured(tmp_path: Path, toml: str, environment: dict[str, str] | None = None) -> AsyncIterator[Process]:
    async with serving(tmp_path, config=toml, environment=environment) as process:
        yield process


def outcomes(watcher: Watcher) -> list[str]:
    """Return the outcomes of the runs that ended while it watched."""
    told = [frame for frame in watcher.frames if frame["type"] == "runtime_updated"]
    return [frame["outcome"] for frame in told if frame.get("outcome")]


def threads(watcher: Watcher, key: str) -> list[object]:
    """Return the values of one key in the `thread_updated` events, in order."""
    return [frame[key] for frame in watcher.frames if frame["type"] == "thread_updated" and key in frame]


def phases_of(watcher: Watcher) -> list[str]:
    reader = PhaseReader()
    return [phase for phase, _ in groupby(reader.feed(frame) for frame in watcher.frames)]


@pytest.mark.row("FE-2")
async def test_a_snapshot_is_first_whenever_one_comes_and_commands_need_not_wait_for_it(
    server: Process, chat_id: str
) -> None:
    answer = await command(server.url, chat_id, user_message("before", "nobody watches", params=TOOLS))
    assert answer.status_code == 202
    async with watching(server.url, chat_id) as first:
        await first.at_rest()
        async with anyio.create_task_group() as tasks:  # the command may arrive before or after the new reader
            model = {"model": "demo/hang?after=2&rate=0"}
            tasks.start_soon(command, server.url, chat_id, user_message("meanwhile", "and again", params=model))
            async with watching(server.url, chat_id) as second:
                await second.until(lambda w: w.state is not None and w.state.draft is not None)
                async with watching(server.url, chat_id) as third:
                    assert third.state is not None and third.state.draft is not None
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await first.until(lambda w: outcomes(w)[-1:] == ["aborted"])
    for watcher in (first, second, third):
        assert (watcher.frames[0]["type"], watcher.frames[0]["seq"]) == ("snapshot", "0")
        assert watcher.types().count("snapshot") == 1
    assert [text for role, text in first.messages if role == "user"] == ["nobody watches", "and again"]


@pytest.mark.row("FE-3")
async def test_a_clients_phase_is_a_function_of_the_events_of_a_real_run(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", NOTE, params=TOOLS))
        await tab.until(lambda w: w.state is not None and w.state.runtime.paused)
        assert phases_of(tab) == ["idle", "waiting", "streaming", "waiting", "paused"]
        async with watching(server.url, chat_id) as late:
            assert phases_of(late) == ["paused"]
        assert tab.state is not None
        (reason,) = tab.state.runtime.pause_reasons
        yes: JsonObject = {"type": "tool_decision", "tool_call_id": reason.tool_call_id, "accepted": True}
        await command(server.url, chat_id, {**yes, "client_request_id": "yes"})
        await tab.at_rest()
        assert phases_of(tab)[5:] == ["waiting", "streaming", "idle"]
        await command(server.url, chat_id, user_message("b", "x", params={"model": "demo/hang?after=2&rate=0"}))
        await tab.until(lambda w: w.state is not None and w.state.draft is not None)
        async with watching(server.url, chat_id) as late:
            assert phases_of(late) == ["streaming"]
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await tab.until(lambda w: outcomes(w)[-1:] == ["aborted"])
        assert phases_of(tab)[8:] == ["waiting", "streaming", "stopped"]
        await command(server.url, chat_id, user_message("c", "x", params={"model": "demo/error"}))
        await tab.until(lambda w: outcomes(w)[-1:] == ["error"])
        assert phases_of(tab)[11:] == ["waiting", "streaming", "stopped"]
    assert [is_busy(p) for p in ("idle", "waiting", "streaming", "paused", "stopped")] == [
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.row("FE-6")
async def test_a_code_tells_a_timeout_from_every_other_failure(server: Process, chat_id: str) -> None:
    codes = ["timeout", "llm_error", "connection", "rate_limited", "auth_failed", "context_overflow", "stream_error"]
    async with watching(server.url, chat_id) as tab:
        for number, code in enumerate(codes, start=1):
            model = f"demo/error?code={code}&at=start"
            await command(server.url, chat_id, user_message(f"a{number}", "hi", params={"model": model}))
            await tab.until(lambda w: len(outcomes(w)) == number)  # noqa: B023 - awaited at once
    errors = [event for event in tab.events if isinstance(event, ErrorHappened)]
    assert [(error.code, error.fatal) for error in errors] == [(code, True) for code in codes]
    assert outcomes(tab) == ["error"] * len(codes)
    assert len({error.message for error in errors if error.code in ("timeout", "llm_error", "connection")}) == 3


@pytest.mark.row("EVT-9", "EVT-2")
async def test_who_joins_after_a_tools_progress_sees_what_it_was_begun_with(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as tab:
        begun = {"start": 100, "interval_seconds": 0.2}
        text = f"call countdown {json.dumps(begun)}"
        await command(server.url, chat_id, user_message("a", text, params=TOOLS))
        await tab.until(lambda w: any(frame.get("status") == "progress" for frame in w.frames))
        async with watching(server.url, chat_id) as late:
            (tool,) = late.frames[0]["runtime"]["tools"]
            assert (tool["status"], tool["input"]) == ("progress", begun)
        assert tab.state is not None and tab.state.runtime.tools[0].input == begun
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await tab.at_rest()


@pytest.mark.row("FE-7")
async def test_the_end_of_a_run_names_the_tools_that_ran_in_it_and_in_no_other(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", f"{SUM}\n{SUM}\ncall clock", params=TOOLS))
        await tab.until(lambda w: len(outcomes(w)) == 1)
        assert tab.frames[-1]["tools_used"] == ["calculator", "clock"]
        async with watching(server.url, chat_id) as fresh:
            assert fresh.frames[0]["runtime"]["tools_used"] == ["calculator", "clock"]
        await command(server.url, chat_id, user_message("b", "no tools now"))
        await tab.until(lambda w: len(outcomes(w)) == 2)
        assert not tab.frames[-1].get("tools_used")


SILENCE = """
[limits]
heartbeat_seconds = 0.1
lease_seconds = 0.8
subscriber_stall_seconds = 0.4
tool_timeout_seconds = 0.3
drain_seconds = 0.5
"""
"""The default heartbeat is 15 s. With a heartbeat of a 150th of 15 s, 2 s of silence stand for five minutes."""


@pytest.mark.row("NET-3")
async def test_a_model_that_says_nothing_for_long_costs_neither_its_stream_nor_its_run(tmp_path: Path) -> None:
    async with configured(tmp_path, SILENCE) as server, watching(server.url, "c1") as tab:
        model = "demo/slow?delay=2&rate=0&words=5"
        beats = 0
        address = f"{server.url}/v1/chats/subscribe?chat_id=c1"
        async with (
            httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client,
            client.stream("GET", address) as answer,
        ):
            await command(server.url, "c1", user_message("a", "take your time", params={"model": model}))
            raw = b""
            async for chunk in answer.aiter_raw():
                raw += chunk
                if b'"type":"stream_started"' in raw and b"append_content" not in raw:
                    beats += chunk.count(b": hb ")
                if b'"outcome":"complete"' in raw:
                    break
        await tab.at_rest()
        assert beats >= 2, "the line was kept alive while the model was silent"
        assert (tab.snapshots, outcomes(tab)) == (1, ["complete"])
        assert len(tab.messages[-1][1].split()) == 5
        assert tab.types().count("stream_started") == 1, "the call was made once"
        async with httpx2.AsyncClient() as client:
            metrics = (await client.get(f"{server.url}/metrics")).text
        assert "threadcast_takeovers_total 0.0" in metrics


OWNED = """
[[auth.tokens]]
id = "ann"
sha256 = "{}"
permissions = ["approve"]
""".format(hashlib.sha256(b"ann-secret-token").hexdigest())
ANN = {"Authorization": "Bearer ann-secret-token"}


@pytest.mark.row("SES-2")
async def test_a_thread_knows_its_owner_its_times_its_usage_and_its_leaf(tmp_path: Path) -> None:
    async with configured(tmp_path, OWNED) as server:

        async def post(chat_id: str, body: JsonObject) -> None:
            assert (await command(server.url, chat_id, body, ANN)).status_code in (200, 202)

        async with watching(server.url, "c1", headers=ANN) as tab:
            patch = {"metadata": {"topic": "x"}, "temperature": 0.5}
            await post("c1", {"type": "set_params", "client_request_id": "p", "patch": patch})
            await post("c1", user_message("a", "What is a thread?\nReally."))
            await tab.until(lambda w: outcomes(w) == ["complete"])
            first = threads(tab, "last_active")
            assert len(first) == 1
            await post("c1", user_message("b", "x", params={"model": "demo/hang?after=1&rate=0"}))
            await tab.until(lambda w: w.state is not None and w.state.draft is not None)
            assert threads(tab, "last_active") == first, "a run that goes on has not ended"
            await post("c1", {"type": "abort", "client_request_id": "stop"})
            await tab.until(lambda w: outcomes(w) == ["complete", "aborted"])
            await post("c1", user_message("c", "x", params={"model": "demo/error"}))
            await tab.until(lambda w: outcomes(w) == ["complete", "aborted", "error"])
        assert tab.state is not None
        active = threads(tab, "last_active")
        assert len(active) == 3, "every run says when it ended, however it ended"
        async with httpx2.AsyncClient(headers=ANN) as client:
            thread = (await client.get(f"{server.url}/v1/chats/c1")).json()["thread"]
    assert (thread["id"], thread["owner"], thread["title"], thread["mode"]) == (
        "c1",
        "ann",
        "What is a thread?",
        "agent",
    )
    assert (thread["metadata"], thread["temperature"]) == ({"topic": "x"}, 0.5)
    assert thread["created_at"] <= thread["last_active"] == active[-1]
    assert thread["usage"]["total_tokens"] > 0
    assert thread["leaf_id"] == tab.state.path[-1]
    assert "forked_from" not in thread


@pytest.mark.row("TREE-5")
async def test_a_title_is_the_first_line_unless_a_person_chose_one(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", "\n  How do tides work?  \nIn detail."))
        await tab.until(lambda w: len(outcomes(w)) == 1)
        assert threads(tab, "title") == ["How do tides work?"]
        await command(
            server.url, chat_id, {"type": "set_params", "client_request_id": "p", "patch": {"title": "Tides"}}
        )
        await command(server.url, chat_id, user_message("b", "And the moon?"))
        await tab.until(lambda w: len(outcomes(w)) == 2)
    assert threads(tab, "title") == ["How do tides work?", "Tides"]


@pytest.mark.row("TREE-5")
async def test_a_model_makes_the_title_and_never_touches_a_persons_own(tmp_path: Path) -> None:
    async with configured(tmp_path, '[models]\ntitle = "demo/echo?rate=0"\n') as server:
        async with watching(server.url, "mine") as mine, watching(server.url, "theirs") as theirs:
            patch = {"type": "set_params", "client_request_id": "p", "patch": {"title": "My own"}}
            await command(server.url, "mine", patch)
            await command(server.url, "mine", user_message("a", "Tell me of tides"))
            await mine.until(lambda w: len(outcomes(w)) == 1)
            await command(server.url, "theirs", user_message("a", "Tell me of tides"))
            await theirs.until(lambda w: len(threads(w, "title")) == 2)
            assert threads(theirs, "title") == ["Tell me of tides", "You said: user: Tell me of tides"]
            assert threads(theirs, "is_title_generated") == [True]
            await command(server.url, "theirs", {**patch, "patch": {"title": "Theirs"}})
            for name, tab in (("mine", mine), ("theirs", theirs)):
                await command(server.url, name, user_message("b", "Tell me more"))
                await tab.until(lambda w: len(outcomes(w)) == 2)
        async with httpx2.AsyncClient() as client:
            shown = {c["id"]: c["title"] for c in (await client.get(f"{server.url}/v1/chats")).json()["items"]}
    assert shown == {"mine": "My own", "theirs": "Theirs"}
    assert threads(mine, "title") == ["My own"]


@pytest.mark.row("TREE-5")
@pytest.mark.parametrize("model", ["demo/error?code=auth_failed&at=start", "demo/error?after=3"])
async def test_a_title_that_the_model_cannot_make_is_reported_and_the_first_line_stays(
    tmp_path: Path, model: str
) -> None:
    async with (
        configured(tmp_path, f'[models]\ntitle = "{model}"\n') as server,
        watching(server.url, "c1") as tab,
    ):
        await command(server.url, "c1", user_message("a", "Tell me of tides"))
        await tab.until(lambda w: any(isinstance(event, ErrorHappened) for event in w.events))
        (error,) = [frame for frame in tab.frames if frame["type"] == "error"]
    assert error["code"] == ("auth_failed" if "auth" in model else "stream_error")
    assert (error["fatal"], error["details"]["task"], error["details"]["model"]) == (False, "title", model)
    assert (outcomes(tab), threads(tab, "title")) == (["complete"], ["Tell me of tides"])
    assert tab.state is not None and tab.state.runtime.error is None
