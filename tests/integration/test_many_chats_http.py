"""Many chats on one stream: each chat is complete and in order and resumes exactly, and another process can change the
stream."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import anyio
import httpx2
import pytest

from tests.integration.many import ManyWatcher, TwoWebs, two_webs, watching_many
from tests.integration.store_fixtures import fresh_url
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from threadcast.store.embedded.server_process import ServerProcess
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


def some_chats(count: int) -> list[str]:
    run = uuid4().hex[:8]
    return [f"many-{run}-{number}" for number in range(count)]


@pytest.fixture
async def webs(valkey_server: ServerProcess, tmp_path: Path) -> AsyncIterator[TwoWebs]:
    async with two_webs(fresh_url(valkey_server), tmp_path) as running:
        yield running


async def change(url: str, stream_id: str, body: object, headers: dict[str, str] | None = None) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return await client.post(f"{url}/v1/streams/{stream_id}", json=body, headers=headers or {})


async def say_to_all(url: str, chats: list[str], request_id: str, text: str = "hello") -> None:
    async with anyio.create_task_group() as tasks:
        for chat in chats:
            tasks.start_soon(command, url, chat, user_message(request_id, text))


async def test_20_chats_on_one_stream_each_with_its_run_and_its_own_seq(server: Process) -> None:
    chats = some_chats(20)
    async with watching_many(server.url, chats) as many:
        await many.until(lambda w: len(w.chats) == 20)
        await say_to_all(server.url, chats, "a")
        await many.at_rest(chats)
        for chat in chats:
            assert many.seqs(chat) == list(range(len(many.seqs(chat)))), "a snapshot, then 1, 2, 3, …"
            assert [role for role, _ in many.chats[chat].messages] == ["user", "assistant"]
            async with watching(server.url, chat) as alone:
                assert alone.snapshot == many.chats[chat].snapshot
        assert many.comments == 1, "one sign of life for the stream, not one for each chat"
        assert len(many.last_id) < 2_500


async def test_a_stream_cut_in_the_middle_goes_on_after_its_last_id_with_each_event_exactly_once(
    server: Process,
) -> None:
    chats = some_chats(8)
    words = "one two three four five six seven eight nine ten"
    async with watching_many(server.url, chats) as many:
        await many.until(lambda w: len(w.chats) == len(chats))
        await say_to_all(server.url, chats, "a", words)
        await many.until(lambda w: all(len(chat.events) > 3 for chat in w.chats.values()))
    counts = {chat: len(many.chats[chat].frames) for chat in chats}
    await say_to_all(server.url, chats, "b", words)
    # A client may list the chats in another order, because each position names its chat.
    headers = {"Last-Event-ID": many.last_id}
    async with watching_many(server.url, reversed(chats), headers=headers, watcher=many):
        await many.at_rest(chats, runs=2)
    for chat in chats:
        assert many.chats[chat].snapshots == 1
        assert many.seqs(chat) == list(range(len(many.seqs(chat))))
        assert len(many.seqs(chat)) > counts[chat]


async def test_each_chat_resumes_or_gets_a_snapshot_of_its_own_and_nothing_malformed_is_an_error(
    server: Process,
) -> None:
    known, new = some_chats(2)
    async with watching(server.url, known) as alone:
        await command(server.url, known, user_message("a", "hello"))
        await alone.at_rest()
    async with watching_many(server.url, [known], query="stream_id=s1") as many:
        await many.until(lambda w: known in w.chats)
    place = many.last_id
    async with watching_many(server.url, [known, new], query=f"from={place}", watcher=many):
        await many.until(lambda w: new in w.chats)
        await command(server.url, known, user_message("b", "again"))
        await many.at_rest([known], runs=2)
    assert (many.chats[known].snapshots, many.chats[new].snapshots) == (1, 1)
    for bad in ("x", "a.b.c", "......", f"{place}.{place}", "zzzzzz-1-1-1", "9" * 3_000, alone.last_id):
        async with watching_many(server.url, [known, new], headers={"Last-Event-ID": bad}) as begun:
            await begun.until(lambda w: len(w.chats) == 2)
            assert begun.chats[known].types() == begun.chats[new].types() == ["snapshot"], bad


async def test_one_chat_without_a_name_keeps_the_plain_id_and_goes_on_from_an_id_of_many(
    server: Process, chat_id: str
) -> None:
    (other,) = some_chats(1)
    async with watching(server.url, chat_id) as alone:
        await command(server.url, chat_id, user_message("a", "hello"))
        await alone.at_rest()
        async with watching_many(server.url, [chat_id, other]) as many:
            await many.until(lambda w: len(w.chats) == 2)
        state = many.chats[chat_id].state
        await command(server.url, chat_id, user_message("b", "more"))
        await alone.at_rest(runs=2)
        alone.state = state
        seen = len(alone.frames)
        headers = {"Last-Event-ID": many.last_id}
        async with watching(server.url, chat_id, headers=headers, watcher=alone):
            await alone.at_rest(runs=2)
    assert "snapshot" not in alone.types()[seen:]
    assert len(alone.last_id.split("-")) == 3


async def test_what_cannot_be_on_a_stream_is_refused_before_its_first_byte(
    server: Process, client: httpx2.AsyncClient
) -> None:
    gone, fine = some_chats(2)
    await command(server.url, gone, user_message("a", "x"))
    assert (await client.delete(f"/v1/chats/{gone}")).status_code == 200
    refused = await client.get(f"/v1/chats/subscribe?chat_id={fine}&chat_id={gone}")
    assert (refused.status_code, refused.json()["detail"]) == (404, "no such chat")
    for query in (
        "&".join(f"chat_id=c{number}" for number in range(65)),
        "chat_id=a&chat_id=b/c",
        "chat_id=a&stream_id=no+id!",
        "presence=1",
        "&".join(["chat_id=a"] * 201),
    ):
        answer = await client.get(f"/v1/chats/subscribe?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), query
    bodies: list[tuple[object, int]] = [
        ({"add": "x"}, 400),
        ([], 400),
        ({"add": [{"chat_id": "subscribe"}]}, 400),
        ({"remove": ["a b"]}, 400),
        ({"add": [{"chat_id": f"c{number}"} for number in range(65)]}, 400),
        ({"add": [{"chat_id": gone}]}, 404),
        ({}, 404),
    ]
    for body, status in bodies:
        assert (await change(server.url, "nobody-holds-it", body)).status_code == status, body


async def test_unknown_chats_are_empty_snapshots_and_are_stored_nowhere(
    server: Process, client: httpx2.AsyncClient
) -> None:
    chats = some_chats(3)
    async with watching_many(server.url, chats) as many:
        await many.until(lambda w: len(w.chats) == 3)
        assert all(chat.messages == [] for chat in many.chats.values())
        for chat in chats:
            assert (await client.get(f"/v1/chats/{chat}")).status_code == 404


async def test_chats_are_added_and_removed_from_another_process_while_the_stream_runs(webs: TwoWebs) -> None:
    first, second, third = some_chats(3)
    stream = str(uuid4())
    async with watching_many(webs.one.url, [first], query=f"stream_id={stream}") as many:
        await many.until(lambda w: first in w.chats)
        await say_to_all(webs.two.url, [first, second], "a")
        await many.at_rest([first])
        added = await change(webs.two.url, stream, {"add": [{"chat_id": second}, {"chat_id": third}]})
        assert (added.status_code, added.json()) == (200, {"status": "applied"})
        await many.at_rest([second])
        await many.until(lambda w: third in w.chats)
        removed = await change(webs.two.url, stream, {"remove": [second, "never-there"]})
        assert removed.status_code == 200
        await many.until(lambda w: w.said("chat_removed", second))
        assert many.said("chat_removed", second) == [{"chat_id": second, "type": "chat_removed", "reason": "removed"}]
        count = len(many.chats[second].frames)
        place = many.last_id
        await say_to_all(webs.two.url, [first, second, third], "b")
        await many.at_rest([first], runs=2)
        await many.at_rest([third])
        assert len(many.chats[second].frames) == count
        before = many.chats[third].snapshots
        # A chat that is removed and added with its position continues without a snapshot.
        both = {"remove": [third], "add": [{"chat_id": third, "from": many.last_id}]}
        assert (await change(webs.one.url, stream, both)).status_code == 200
        await say_to_all(webs.two.url, [third], "c")
        await many.at_rest([third], runs=2)
        assert many.chats[third].snapshots == before
        too_many = {"add": [{"chat_id": f"c{number}"} for number in range(63)]}
        assert (await change(webs.two.url, stream, too_many)).status_code == 400
        assert place != many.last_id
    assert (await change(webs.two.url, stream, {})).status_code == 404, "nobody holds it any more"


async def test_a_stream_opened_again_under_its_name_ends_the_older_one_in_any_process(webs: TwoWebs) -> None:
    (chat,) = some_chats(1)
    query = f"stream_id={uuid4()}"
    async with watching_many(webs.one.url, [chat], query=query) as older:
        await older.until(lambda w: chat in w.chats)
        async with watching_many(webs.two.url, [chat], query=query) as newer:
            await newer.until(lambda w: chat in w.chats)
            await older.until(lambda w: w.has_ended)
            assert (older.has_goodbye, newer.has_ended) == (False, False)
            assert (await change(webs.one.url, query[10:], {"remove": [chat]})).status_code == 200
            await newer.until(lambda w: w.said("chat_removed", chat))


async def test_a_chat_deleted_in_mid_stream_ends_alone_and_a_stream_of_one_with_it(
    server: Process, client: httpx2.AsyncClient
) -> None:
    doomed, other = some_chats(2)
    await say_to_all(server.url, [doomed, other], "a")
    async with (
        watching_many(server.url, [doomed, other]) as many,
        watching(server.url, doomed) as alone,
    ):
        await many.at_rest([doomed, other])
        assert (await client.delete(f"/v1/chats/{doomed}")).status_code == 200
        await alone.until(lambda w: w.has_ended)
        await many.until(lambda w: w.said("chat_removed", doomed))
        assert many.said("chat_removed", doomed)[0]["reason"] == "not_found"
        await command(server.url, other, user_message("b", "still here"))
        await many.at_rest([other], runs=2)
        assert not many.has_ended


@pytest.mark.row("NET-6")
async def test_a_reader_of_many_that_reads_nothing_delays_nobody_and_ends_right(server: Process) -> None:
    chats = some_chats(3)
    params: JsonObject = {"model": "demo/echo?rate=0"}
    text = "word " * 8_000
    slow = ManyWatcher()
    async with (
        watching_many(server.url, chats, watcher=slow),
        watching_many(server.url, chats) as fast,
    ):
        await slow.until(lambda w: len(w.chats) == 3)
        slow.is_reading = anyio.Event()
        for number in range(6):
            async with anyio.create_task_group() as tasks:
                for chat in chats[:2]:
                    tasks.start_soon(command, server.url, chat, user_message(f"r{number}", text, params=params))
            await fast.at_rest(chats[:2], runs=number + 1)
        assert all(fast.chats[chat].snapshots == 1 for chat in chats)
        slow.is_reading.set()
        await slow.at_rest(chats[:2], runs=6)
        for chat in chats:
            assert slow.chats[chat].snapshot == fast.chats[chat].snapshot
        assert max(slow.chats[chat].snapshots for chat in chats[:2]) >= 2
        assert slow.chats[chats[2]].snapshots == 1, "what lost nothing is not sent again"


async def test_streams_of_one_caller_are_counted_and_more_than_allowed_are_told_to_wait(tmp_path: Path) -> None:
    async with serving(tmp_path, config="[limits]\nstreams_per_principal = 2\n") as process:
        url = process.url
        async with httpx2.AsyncClient(base_url=url) as client:
            async with watching(url, "a"), watching(url, "b"):
                refused = await client.get("/v1/chats/subscribe?chat_id=c")
                assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
                assert int(refused.headers["Retry-After"]) > 0
            with anyio.fail_after(DEADLINE_SECONDS):
                while "inflight 0.0" not in (await client.get("/metrics")).text:
                    await anyio.sleep(0.02)
            async with watching(url, "c"):
                pass
            counted = (await client.get("/metrics")).text
        assert 'threadcast_http_requests_total{route="subscribe",status="200"} 3.0' in counted
        assert 'threadcast_http_requests_total{route="subscribe",status="429"} 1.0' in counted
