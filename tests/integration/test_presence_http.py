"""Presence and typing: readers in any process receive both on request, and neither is in the log."""

from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests.integration.many import ManyWatcher, TwoWebs, two_webs, watching_many
from tests.integration.store_fixtures import fresh_url
from tests.integration.test_auth_http import CONFIG
from tests.support.reader import watching
from tests.support.server import Process, command, user_message
from tests.support.tokens import bearer
from threadcast.store.embedded.server_process import ServerProcess

pytestmark = pytest.mark.anyio


@pytest.fixture
async def webs(valkey_server: ServerProcess, tmp_path: Path) -> AsyncIterator[TwoWebs]:
    config = tmp_path / "threadcast.toml"
    config.write_text(CONFIG)
    async with two_webs(fresh_url(valkey_server), tmp_path, "--config", str(config)) as running:
        yield running


async def types(url: str, chat_id: str, body: object, headers: dict[str, str] | None = None) -> int:
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{url}/v1/chats/{chat_id}/typing", json=body, headers=headers or {})
        return answer.status_code


def changes(watcher: ManyWatcher) -> list[tuple[bool, str]]:
    """Return the changes of typing in c1. Equal reports in a row count as one, because the server passes on repeated
    reports that are more than a second apart, as happens on a busy machine."""
    return [change for change, _ in groupby((body["typing"], body["by"]) for body in watcher.said("typing", "c1"))]


async def test_readers_that_ask_see_who_comes_and_goes_over_two_processes(webs: TwoWebs) -> None:
    ann = bearer("ann")
    async with watching_many(webs.one.url, ["c1"], query="presence=1&stream_id=s1", headers=ann) as first:
        await first.until(lambda w: w.said("presence", "c1"))
        assert first.transient == [{"chat_id": "c1", "type": "presence", "count": 1, "names": ["ann"]}]
        async with watching_many(webs.two.url, ["c1", "c2"], query="presence=1", headers=ann) as second:
            both = {"chat_id": "c1", "type": "presence", "count": 2, "names": ["ann"]}
            await first.until(lambda w: both in w.transient)
            await second.until(lambda w: both in w.transient)
            async with watching_many(webs.two.url, ["c1"], query="presence=1", headers=bearer("bob")) as stranger:
                await stranger.until(lambda w: w.said("presence", "c1"))
                assert stranger.transient[0]["names"] == ["bob"], "an id that is nobody's chat yet joins nobody"
        await first.until(lambda w: w.transient[-1]["count"] == 1)
        assert all(body["names"] == ["ann"] for body in first.transient)


async def test_typing_is_told_to_the_others_in_other_processes_and_not_to_the_stream_it_comes_from(
    webs: TwoWebs,
) -> None:
    ann = bearer("ann")
    async with (
        watching_many(webs.one.url, ["c1"], query="presence=1&stream_id=typist", headers=ann) as typist,
        watching_many(webs.two.url, ["c1"], query="presence=1", headers=ann) as other,
        watching_many(webs.one.url, ["c1", "c2"], headers=ann) as indifferent,
    ):
        await command(webs.one.url, "c1", user_message("a", "hi"), ann)
        await other.until(lambda w: w.said("presence", "c1"))
        assert await types(webs.one.url, "c1", {"typing": True, "stream_id": "typist"}, ann) == 204
        await other.until(lambda w: w.said("typing", "c1"))
        for _ in range(3):
            assert await types(webs.one.url, "c1", {"typing": True, "stream_id": "typist"}, ann) == 204
        assert await types(webs.one.url, "c1", {"typing": False, "stream_id": "typist"}, ann) == 204
        assert await types(webs.one.url, "c1", {"typing": True, "stream_id": "typist"}, ann) == 204
        await other.until(lambda w: len(changes(w)) == 3)
        assert changes(other) == [(True, "ann"), (False, "ann"), (True, "ann")], "a change is never dropped"
        await indifferent.at_rest(["c1"])
        assert indifferent.transient == [] == typist.said("typing", "c1")
        assert await types(webs.two.url, "c1", {"typing": True}, bearer("bob")) == 404
        assert await types(webs.two.url, "c1", {"typing": "yes"}, ann) == 400


async def test_who_does_not_ask_sees_neither_and_nothing_of_it_is_stored(server: Process) -> None:
    chat = f"presence-{uuid4().hex[:8]}"
    async with watching(server.url, chat) as plain, watching_many(server.url, [chat], query="presence=1") as asks:
        await command(server.url, chat, user_message("a", "hello"))
        await plain.at_rest()
        assert await types(server.url, chat, {"typing": True}) == 204
        await asks.until(lambda w: w.said("typing", chat))
        assert asks.said("presence", chat)[0] == {"chat_id": chat, "type": "presence", "count": 1}
        assert asks.said("typing", chat) == [{"chat_id": chat, "type": "typing", "typing": True}]
        await command(server.url, chat, user_message("b", "more"))
        await plain.at_rest(runs=2)
        assert not {"presence", "typing"} & set(plain.types())
        async with watching(server.url, chat) as late:
            assert late.snapshot == plain.snapshot
