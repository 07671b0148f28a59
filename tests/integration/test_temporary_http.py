"""Temporary chats: no list and no feed shows such chats; the chats are kept while they run, and expire an hour after
their last change."""

from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.test_declared_tools_http import CALL, OPEN, answer_call
from tests.integration.test_feed_http import listening
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast.store.bounds import SEEN_TTL_SECONDS, TEMPORARY_CHAT_TTL_SECONDS, TEMPORARY_RUN_TTL_SECONDS
from threadcast_protocol.wire.events import IdeToolRequired, SubchatUpdate
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS: JsonObject = {"model": "demo/tools?rate=0"}
KEYS = ("log", "head", "snap", "inbox", "meta")


def lifetimes(fleet: Fleet, chat_id: str) -> dict[str, int]:
    """Return the seconds until each of a chat's keys expires, rounded to a minute; -1 for a key that never expires."""
    found: dict[str, int] = {}
    for key in fleet.store.client.scan_iter(f"tc:*:chat:{chat_id}:*"):
        if (left_ms := fleet.store.client.pttl(key)) != -2:  # the key was not renamed or deleted meanwhile
            found[key.decode().rpartition(":")[2]] = round(left_ms / 60_000) * 60 or -1
    return found


async def set_temporary(fleet: Fleet, chat_id: str, value: bool | None, request_id: str) -> httpx2.Response:
    body = {"type": "set_params", "client_request_id": request_id, "patch": {"temporary": value}}
    return await command(fleet.url, chat_id, body)


async def test_a_temporary_chat_is_listed_nowhere_and_expires_an_hour_after_its_last_change(tmp_path: Path) -> None:
    app = Path(__file__).with_name("delegating_tools.py")
    with fleet_on_new_store(tmp_path, limits={"COMPACT_AFTER_SECONDS": "0"}) as fleet:
        await fleet.open(workers=0)
        await fleet.add_worker(app)
        async with (
            httpx2.AsyncClient(base_url=fleet.url, timeout=DEADLINE_SECONDS) as http,
            listening(fleet.url, "/v1/chats/feed") as feed,
            watching(fleet.url, "brief") as tab,
        ):

            async def listed(query: str = "") -> list[str]:
                return [chat["id"] for chat in (await http.get(f"/v1/chats{query}")).json()["items"]]

            assert (await set_temporary(fleet, "brief", True, "t")).is_success
            asked = user_message("a", CALL, params=TOOLS, tools=[OPEN])
            assert (await command(fleet.url, "brief", asked)).status_code == 202
            await tab.until(lambda w: any(isinstance(event, IdeToolRequired) for event in w.events))
            waiting = {key: seconds for key, seconds in lifetimes(fleet, "brief").items() if key in KEYS}
            assert set(waiting.values()) == {TEMPORARY_RUN_TTL_SECONDS} and await listed() == []
            await answer_call(http, tab, 0, chat_id="brief")
            await tab.at_rest()
            with anyio.fail_after(DEADLINE_SECONDS):
                while "history" not in (resting := lifetimes(fleet, "brief")):
                    await anyio.sleep(0.05)
            assert {resting.pop("seen"), resting.pop("traces", SEEN_TTL_SECONDS)} == {SEEN_TTL_SECONDS}
            assert set(resting.values()) == {TEMPORARY_CHAT_TTL_SECONDS}
            assert set(resting) <= {*KEYS, "recent", "history"}

            delegated = user_message("b", 'call delegate {"task": "hello"}', params=TOOLS)
            assert (await command(fleet.url, "brief", delegated)).status_code == 202
            await tab.at_rest(2)
            child = next(event.subchat_id for event in tab.events if isinstance(event, SubchatUpdate))
            assert lifetimes(fleet, child)["head"] == TEMPORARY_CHAT_TTL_SECONDS
            assert (await http.get(f"/v1/chats/{child}")).json()["thread"]["temporary"] is True
            assert await listed() == await listed("?q=open") == await listed("?parent_id=brief") == []

            await command(fleet.url, "lasting", user_message("a", "hello", params=TOOLS))
            await feed.until(lambda f: f.chats.get("lasting", {}).get("message_count") == 2)
            assert set(feed.chats) == {"lasting"} and '"brief"' not in str(feed.frames)
            late = await set_temporary(fleet, "lasting", True, "t")
            assert (late.json()["status"], late.json()["result"]["code"]) == ("refused", "conflict")

            assert (await set_temporary(fleet, "brief", None, "keep")).is_success
            await feed.until(lambda f: "brief" in f.chats)
            assert set(await listed()) == {"brief", "lasting"}
            kept = lifetimes(fleet, "brief")
            assert {kept[key] for key in ("head", "snap", "meta", "history")} == {-1}
