"""A chat at rest: readers resume exactly for an hour, and earlier states can be read after that hour.

The tests delete the key that would expire after the hour.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast.store.redis.keys import Keys

pytestmark = pytest.mark.anyio

KEYS = Keys(16).chat("c1")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    with fleet_on_new_store(tmp_path, limits={"COMPACT_AFTER_SECONDS": "0"}) as opened:
        await opened.open(workers=1)
        yield opened


async def rests(fleet: Fleet) -> None:
    """Wait until no worker owns the chat, and no work is due in it."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while fleet.store.client.zscore(KEYS.due, KEYS.chat_id) is not None:
            await anyio.sleep(0.02)


def end_of_window(fleet: Fleet) -> None:
    assert fleet.store.client.delete(KEYS.recent) == 1


async def at(http: httpx2.AsyncClient, position: int) -> object:
    answer = await http.get("/v1/chats/c1", params={"at": position})
    assert answer.status_code == 200, (position, answer.text)
    return answer.json()


async def test_a_reader_that_left_in_mid_answer_resumes_exactly_at_rest_and_begins_anew_after_an_hour(
    fleet: Fleet,
) -> None:
    left = Watcher("c1")
    async with watching(fleet.url, "c1") as whole:
        async with watching(fleet.url, "c1", watcher=left):
            await command(fleet.url, "c1", user_message("a", "one two three", params={"model": "demo/echo?rate=20"}))
            await left.until(lambda w: "stream_delta" in w.types())
        seen, place = len(left.frames), left.last_id
        await whole.at_rest()
    await rests(fleet)
    assert fleet.store.client.exists(KEYS.log) == 0, "its log has another name, which expires"
    assert seen < len(whole.frames)
    async with watching(fleet.url, "c1", headers={"Last-Event-ID": place}, watcher=left):
        await left.until(lambda w: len(w.frames) == len(whole.frames))
    assert (left.frames, left.snapshot, left.snapshots) == (whole.frames, whole.snapshot, 1)

    end_of_window(fleet)
    late = Watcher("c1")
    async with watching(fleet.url, "c1", headers={"Last-Event-ID": place}, watcher=late):
        await late.until(lambda w: w.state is not None)
        assert (late.types(), late.snapshot) == (["snapshot"], whole.snapshot)
        await command(fleet.url, "c1", user_message("b", "four", params={"model": "demo/echo?rate=0"}))
        await late.at_rest(2)
    assert late.snapshots == 1


async def test_every_earlier_state_is_shown_from_the_history_as_it_was_from_the_log(fleet: Fleet) -> None:
    async with (
        httpx2.AsyncClient(base_url=fleet.url, timeout=DEADLINE_SECONDS) as http,
        watching(fleet.url, "c1") as tab,
    ):
        for turn in range(3):
            asked = user_message(f"r{turn}", f"{turn} and more", params={"model": "demo/echo?rate=0"})
            await command(fleet.url, "c1", asked)
            await tab.at_rest(turn + 1)
            await rests(fleet)
            assert tab.state is not None
            shown = [await at(http, position) for position in range(tab.state.position + 1)]
            end_of_window(fleet)
            assert [await at(http, position) for position in range(tab.state.position + 1)] == shown
        assert tab.snapshots == 1
        assert (await http.get("/v1/chats/c1", params={"at": len(shown)})).status_code == 404


async def test_an_imported_chat_is_compacted_like_any_other(fleet: Fleet) -> None:
    async with httpx2.AsyncClient(base_url=fleet.url, timeout=DEADLINE_SECONDS) as http:
        async with watching(fleet.url, "c1") as tab:
            for turn in range(5):
                await command(fleet.url, "c1", user_message(f"r{turn}", "again", params={"model": "demo/echo?rate=0"}))
                await tab.at_rest(turn + 1)
        exported = (await http.get("/v1/chats/c1/export")).content.replace(b'"c1"', b'"copy"')
        assert (await http.post("/v1/chats/import", content=exported)).json()["imported"] == ["copy"]
        copy = Keys(16).chat("copy")
        with anyio.fail_after(DEADLINE_SECONDS):
            while not fleet.store.client.exists(copy.recent):
                await anyio.sleep(0.02)
        assert fleet.store.client.exists(copy.log) == 0
        before = (await http.get("/v1/chats/copy")).json()["messages"]
        fleet.store.client.delete(copy.recent)
        assert sum(fleet.store.client.memory_usage(key, samples=0) or 0 for key in (copy.snap, copy.history)) < 6_000
        again = (await http.get("/v1/chats/copy")).json()["messages"]
        assert again == before and len(again) == 10
