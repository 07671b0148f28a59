"""The feed of chats and the foreign sidebar over HTTP: a snapshot, then every change, and an orderly end."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.test_auth_http import guarded
from tests.integration.test_chats_http import get, talk, title
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from tests.support.tokens import bearer
from threadcast_protocol.framing.sse import CommentFrame, EventFrame, FrameParser, RetryFrame
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


class Sidebar:
    """The events of one stream of the feed, and the list of chats to which they fold."""

    def __init__(self) -> None:
        self.headers = httpx2.Headers()
        self.frames: list[JsonObject] = []
        self.chats: dict[str, JsonObject] = {}
        self.heartbeats = 0
        self.retry_ms: int | None = None
        self.has_ended = False
        self._changed = anyio.Event()

    def take(self, frame: object) -> None:
        self.retry_ms = None
        if isinstance(frame, EventFrame):
            body: JsonObject = json.loads(frame.data)
            self.frames.append(body)
            match body.get("type"):
                case "feed_snapshot":
                    assert body["seq"] == "0"
                    self.chats = {chat["id"]: chat for chat in body["chats"]}
                case "chat_updated":
                    self.chats[body["chat"]["id"]] = body["chat"]
                case "chat_removed":
                    self.chats.pop(body["chat_id"], None)
        elif isinstance(frame, CommentFrame):
            self.heartbeats += 1
        elif isinstance(frame, RetryFrame):
            self.retry_ms = frame.milliseconds
        self.tell()

    def tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, wanted: Callable[["Sidebar"], object]) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while not wanted(self):
                await self._changed.wait()


@asynccontextmanager
async def listening(url: str, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[Sidebar]:
    """Open a stream until the block ends; the block begins after its first frame."""
    mine = Sidebar()
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client, anyio.create_task_group() as tasks:

        async def read() -> None:
            parser = FrameParser()
            async with client.stream("GET", url + path, headers=headers or {}) as answer:
                assert answer.status_code == 200, await answer.aread()
                mine.headers = answer.headers
                async for chunk in answer.aiter_raw():
                    for frame in parser.feed(chunk):
                        mine.take(frame)
            mine.has_ended = True
            mine.tell()

        tasks.start_soon(read)
        await mine.until(lambda s: s.frames)
        yield mine
        tasks.cancel_scope.cancel()


@pytest.mark.row("SES-5", "NET-2")
async def test_the_feed_shows_a_chat_come_run_change_and_go_without_holes(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    async with listening(server.url, "/v1/chats/feed") as feed:
        assert feed.headers["content-type"] == "text/event-stream"
        assert (feed.headers["cache-control"], feed.headers["x-accel-buffering"]) == ("no-cache", "no")
        assert feed.frames[0]["type"] == "feed_snapshot"
        assert feed.frames[0]["chats"] == (await get(server.url, "/v1/chats", limit=200))["items"]
        await talk(server.url, chat_id, "hello")
        await feed.until(lambda f: f.chats.get(chat_id, {}).get("message_count") == 2)
        await title(server.url, chat_id, "Tea")
        await feed.until(lambda f: f.chats[chat_id]["title"] == "Tea")
        (item,) = [each for each in (await get(server.url, "/v1/chats"))["items"] if each["id"] == chat_id]
        assert feed.chats[chat_id] == item
        await client.delete(f"/v1/chats/{chat_id}")
        await feed.until(lambda f: chat_id not in f.chats)
        assert [int(frame["seq"]) for frame in feed.frames] == list(range(len(feed.frames)))
        assert feed.frames[-1] == {"seq": str(len(feed.frames) - 1), "type": "chat_removed", "chat_id": chat_id}


async def test_a_running_chat_is_seen_running(server: Process, chat_id: str) -> None:
    async with listening(server.url, "/v1/chats/feed") as feed:
        await command(server.url, chat_id, user_message("a", "hello", params={"model": "demo/slow"}))
        await feed.until(lambda f: f.chats.get(chat_id, {}).get("state") == "generating")
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "b"})
        await feed.until(lambda f: f.chats[chat_id]["state"] == "idle")


@pytest.mark.row("AUTH-2")
async def test_feeds_and_trajectories_show_the_callers_chats_alone_and_ask_who_calls(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, httpx2.AsyncClient(base_url=server.url) as client:
        for path in ("/v1/chats/feed", "/v1/sidebar/subscribe", "/v1/trajectories", "/v1/trajectories/anns"):
            refused = await client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized"), path
        async with listening(server.url, "/v1/chats/feed", bearer("bob")) as bobs:
            await talk(server.url, "anns", "x", headers=bearer("ann"))
            await talk(server.url, "bobs", "x", headers=bearer("bob"))
            await bobs.until(lambda f: f.chats.get("bobs", {}).get("message_count") == 2)
        assert set(bobs.chats) == {"bobs"}
        listed = (await client.get("/v1/trajectories", headers=bearer("bob"))).json()
        assert ([item["id"] for item in listed["items"]], listed["total_count"]) == (["bobs"], 1)
        for verb in ("GET", "DELETE"):
            assert (await client.request(verb, "/v1/trajectories/anns", headers=bearer("bob"))).status_code == 404


@pytest.mark.row("NET-2")
@pytest.mark.parametrize("path", ["/v1/chats/feed", "/v1/sidebar/subscribe"])
async def test_at_shutdown_a_feed_says_when_to_come_back_and_ends(tmp_path: Path, path: str) -> None:
    async with (
        serving(tmp_path, config="[limits]\nheartbeat_seconds = 1\n") as process,
        listening(process.url, path) as feed,
    ):
        await feed.until(lambda f: f.heartbeats >= 2)
        assert await process.stop() == 0
        await feed.until(lambda f: f.has_ended)
    assert feed.retry_ms is not None
    assert 500 <= feed.retry_ms <= 3_000


META = {
    "id",
    "title",
    "created_at",
    "updated_at",
    "model",
    "mode",
    "message_count",
    "session_state",
    "root_chat_id",
    "total_lines_added",
    "total_lines_removed",
    "tasks_total",
    "tasks_done",
    "tasks_failed",
}


async def test_the_foreign_sidebar_is_ready_at_once_and_shows_chats_again_when_they_change(
    server: Process, chat_id: str
) -> None:
    async with listening(server.url, "/v1/sidebar/subscribe") as sidebar:
        await sidebar.until(lambda s: len(s.frames) >= 4)
        sections = {frame["event"]["section"]: frame["event"]["snapshot"] for frame in sidebar.frames[:4]}
        assert list(sections) == ["workspace", "chats", "tasks", "buddy"]
        assert sections["workspace"] == {"workspace_roots": []}
        assert (sections["tasks"], sections["buddy"]) == ({"tasks": []}, {"buddy": None})
        assert set(sections["chats"]) == {"trajectories", "pagination"}
        await talk(server.url, chat_id, "hello")

        def shows(sidebar: Sidebar) -> bool:
            newest = sidebar.frames[-1]["event"]["snapshot"].get("trajectories") or [{}]
            return bool(newest[0].get("id") == chat_id and newest[0]["message_count"] == 2)

        await sidebar.until(shows)
        for number, frame in enumerate(sidebar.frames):
            assert set(frame) == {"protocol_version", "seq", "subscription_id", "event"}
            assert (frame["protocol_version"], frame["seq"]) == (2, number)
            assert set(frame["event"]) == {"type", "section", "status", "snapshot"}
            assert (frame["event"]["type"], frame["event"]["status"]) == ("section_snapshot", "ready")
        assert len({frame["subscription_id"] for frame in sidebar.frames}) == 1
        section = sidebar.frames[-1]["event"]["snapshot"]
        assert set(section["trajectories"][0]) == META
        pagination = section["pagination"]
        assert set(pagination) == {"next_cursor", "has_more", "total_count"}
        listed = await get(server.url, "/v1/trajectories", limit=200)
        assert pagination["total_count"] == listed["total_count"] == len(listed["items"])


async def test_foreign_trajectories_page_read_and_delete(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    other = f"{chat_id}-2"
    for name in (chat_id, other):
        await talk(server.url, name, "hello")
    first = await get(server.url, "/v1/trajectories", limit=1)
    assert set(first) == {"items", "next_cursor", "has_more", "total_count"}
    (item,) = first["items"]
    assert set(item) == META
    assert (item["id"], item["session_state"], item["message_count"]) == (other, "idle", 2)
    assert item["created_at"].endswith("Z")
    second = await get(server.url, "/v1/trajectories", limit=1, cursor=first["next_cursor"])
    assert [each["id"] for each in second["items"]] == [chat_id]
    whole = await get(server.url, f"/v1/trajectories/{chat_id}")
    assert (whole["id"], [message["role"] for message in whole["messages"]]) == (chat_id, ["user", "assistant"])
    assert whole["updated_at"] == second["items"][0]["updated_at"]
    assert (await client.delete(f"/v1/trajectories/{chat_id}")).status_code == 200
    await get(server.url, f"/v1/trajectories/{chat_id}", 404)
    await get(server.url, f"/v1/chats/{chat_id}", 404)
