"""The whole path over real HTTP: one command is posted, and every tab receives the same answer."""

import re
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, serving, start, user_message

pytestmark = pytest.mark.anyio

PLAIN_TURN = [
    "snapshot",
    "queue_updated",
    "ack",
    "runtime_updated",
    "queue_updated",
    "message_added",
    "thread_updated",
    "stream_started",
    "stream_delta",
    "stream_finished",
    "message_added",
    "thread_updated",
    "runtime_updated",
]


@pytest.mark.row("CMD-1", "EVT-1", "EVT-6", "NET-1")
async def test_a_message_is_answered_on_the_stream_in_the_order_of_the_wire(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        answer = await command(server.url, chat_id, user_message("a", "hello there"))
        assert (answer.status_code, answer.json()) == (202, {"status": "accepted"})
        await watcher.at_rest()
    seen = [t for i, t in enumerate(watcher.types()) if t != "stream_delta" or watcher.types()[i - 1] != t]
    assert seen == PLAIN_TURN
    assert watcher.messages == [("user", "hello there"), ("assistant", "You said: hello there")]


async def test_text_streams_in_many_deltas_before_the_answer_is_done(server: Process, chat_id: str) -> None:
    model = "demo/essay?words=60&rate=100"
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "write", params={"model": model}))
        await watcher.at_rest()
    assert watcher.types().count("stream_delta") >= 5


@pytest.mark.row("FE-9", "FE-4")
async def test_two_tabs_and_a_late_joiner_end_with_the_same_state(server: Process, chat_id: str) -> None:
    model = "demo/essay?words=80&rate=100"
    async with watching(server.url, chat_id) as one, watching(server.url, chat_id) as two:
        await command(server.url, chat_id, user_message("a", "write", params={"model": model}))
        await one.until(lambda w: w.types().count("stream_delta") > 2)
        async with watching(server.url, chat_id) as late:
            assert late.state is not None
            assert late.state.draft is not None, "the unfinished answer is in the snapshot"
            begun = late.messages[-1][1]
            for watcher in (one, two, late):
                await watcher.at_rest()
    assert begun and one.messages[-1][1].startswith(begun), "with the text that was streamed so far"
    assert one.snapshot == two.snapshot == late.snapshot
    assert [f["seq"] for f in one.frames] == [f["seq"] for f in two.frames]


@pytest.mark.row("EVT-4")
async def test_resume_at_every_position_gives_exactly_the_rest(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as whole:
        await command(server.url, chat_id, user_message("a", "one two three"))
        await whole.at_rest()
    base = int(whole.last_id.split("-")[2])
    epoch = whole.last_id.split("-")[0]
    rest = [frame for frame in whole.frames if frame["type"] != "snapshot"]
    for seq in range(1, len(rest)):
        place = f"{epoch}-{base + seq}-{base}"
        for headers, query in (({"Last-Event-ID": place}, ""), (None, f"&from={place}")):
            resumed = Watcher(chat_id)
            resumed.state = whole.state_after(seq)
            async with watching(server.url, chat_id, headers=headers, query=query, watcher=resumed):
                await resumed.until(lambda w: len(w.frames) == len(rest) - seq)  # noqa: B023 - awaited at once
            assert resumed.frames == rest[seq:]
            assert resumed.snapshot == whole.snapshot


@pytest.mark.row("EVT-3", "EVT-4")
@pytest.mark.parametrize("place", ["", "x", "1-2", "9-9-9", "0-0-0", "1-5-9", "99999999999999-3-0", "{epoch}-999-0"])
async def test_a_position_that_cannot_be_continued_gets_a_snapshot_never_an_error(
    server: Process, chat_id: str, place: str
) -> None:
    async with watching(server.url, chat_id) as whole:
        await command(server.url, chat_id, user_message("a", "hi"))
        await whole.at_rest()
    place = place.replace("{epoch}", whole.last_id.split("-")[0])
    async with watching(server.url, chat_id, headers={"Last-Event-ID": place}) as watcher:
        await watcher.until(lambda w: w.state is not None)
        assert watcher.types()[0] == "snapshot"
        assert watcher.snapshot == whole.snapshot


@pytest.mark.row("EVT-4")
async def test_who_comes_back_to_a_chat_that_is_not_there_gets_a_snapshot_and_sees_it_begin(
    server: Process, chat_id: str
) -> None:
    async with watching(server.url, chat_id) as first:
        place = first.last_id
    async with watching(server.url, chat_id, headers={"Last-Event-ID": place}) as again:
        await again.until(lambda w: w.state is not None)
        await command(server.url, chat_id, user_message("a", "hi"))
        await again.at_rest()
    assert again.snapshots == 1


@pytest.mark.row("NET-2", "NET-4")
async def test_the_stream_has_its_headers_and_a_heartbeat_after_the_first_snapshot(
    server: Process, chat_id: str
) -> None:
    async with (
        httpx2.AsyncClient(timeout=5) as client,
        client.stream("GET", f"{server.url}/v1/chats/subscribe?chat_id={chat_id}") as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["connection"] == "keep-alive"
        text = b""
        async for chunk in answer.aiter_raw():
            text += chunk
            if b": hb " in text:
                break
    first, _, greeting = text.partition(b"\n\n")
    assert first.startswith(b'data: {"chat_id":"' + chat_id.encode() + b'","seq":"0","type":"snapshot"')
    assert first.endswith(b"\nid: 0-0-0")
    assert re.fullmatch(rb"retry: 500\n: hb \d+\n", greeting), "and no empty line, which would end an event"


async def test_watching_an_unknown_chat_stores_nothing(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    async with watching(server.url, chat_id) as watcher:
        assert watcher.messages == []
    assert (await client.get(f"/v1/chats/{chat_id}")).status_code == 404


@pytest.mark.row("SES-3")
async def test_after_ctrl_c_and_after_kill_9_the_chat_is_still_there(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    async with serving(tmp_path, *data) as first:
        async with watching(first.url, "c1") as watcher:
            await command(first.url, "c1", user_message("a", "remember me"))
            await watcher.at_rest()
        assert await first.stop() == 0, first.log_text()
    async with serving(tmp_path, *data) as second:
        async with watching(second.url, "c1") as again:
            assert again.snapshot == watcher.snapshot
            await command(second.url, "c1", user_message("b", "and me"))
            await again.at_rest(2)
        seen = again.snapshot
        second.kill()
    async with serving(tmp_path, *data) as third, watching(third.url, "c1") as after:
        assert after.snapshot == seen
        resumed = Watcher("c1")
        resumed.state = again.state
        async with watching(third.url, "c1", headers={"Last-Event-ID": again.last_id}, watcher=resumed):
            await command(third.url, "c1", user_message("c", "three"))
            await resumed.at_rest(3)
            await after.at_rest(3)
        assert resumed.snapshots == 0, "a position from before the restart is good after it"
        assert resumed.snapshot == after.snapshot


async def test_a_second_server_on_one_data_dir_is_refused_with_the_url_of_the_first(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    async with serving(tmp_path, *arguments[3:]) as first:
        with start(*arguments, log=tmp_path / "log2") as second:
            assert await second.ended() == 1
            assert first.url in second.log_text()


async def test_ctrl_c_ends_streams_cleanly_and_tells_when_to_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as process:
        text = b""
        async with (
            httpx2.AsyncClient(timeout=10) as client,
            client.stream("GET", f"{process.url}/v1/chats/subscribe?chat_id=c1") as answer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(process.stop)
            async for chunk in answer.aiter_raw():
                text += chunk
        goodbye = re.search(rb"\n: hb \d+\nretry: (\d+)\n$", text)
        assert goodbye is not None, text[-200:]
        assert 500 <= int(goodbye[1]) <= 3_000
