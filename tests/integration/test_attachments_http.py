"""Attachments over real HTTP, with a model that records its requests and a store that tests can inspect."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, serve_fake_openai, text
from tests.integration.store_fixtures import fresh_url
from tests.support.reader import Watcher, watching
from tests.support.server import command, serving, user_message
from tests.unit.pictures import JPEG, PNG, data_url, hash_of, png_of
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.redis.keys import Keys
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CONFIG = """
[models.providers.fake]
base_url = "{url}"

[[models.providers.fake.models]]
name = "sees"
supports_images = true
supports_audio = true
supports_files = true

[[models.providers.fake.models]]
name = "blind"

[tools.screenshot]
policy = "client"
description = "Takes a picture of the editor."
"""


@dataclass
class Desk:
    """A server, its model, and its store."""

    url: str
    model: FakeOpenAI
    store: redis.Redis
    log: Path

    async def say(self, watcher: Watcher, request_id: str, content: object, **more: object) -> JsonObject:
        """Post a message, wait for the answer, and return the messages that the model received."""
        self.model.replies = [Reply([text("I see"), STOP, DONE])]
        return await self.ask(watcher, {**user_message(request_id, ""), "content": content, **more})

    async def ask(self, watcher: Watcher, body: JsonObject) -> JsonObject:
        runs = sum(frame["type"] == "runtime_updated" and "outcome" in frame for frame in watcher.frames)
        answer = await command(self.url, watcher.chat_id, body)
        assert answer.status_code == 202, answer.text
        await watcher.until(lambda w: sum(f["type"] == "runtime_updated" and "outcome" in f for f in w.frames) > runs)
        assert watcher.frames[-1]["outcome"] == "complete", watcher.frames[-2:]
        return self.model.asked[-1].body

    def log_bytes(self, chat_id: str) -> int:
        """Return the size of the events, facts and acks of the chat's log. A release renames the log, so both names are
        read in one transaction."""
        keys = Keys(16).chat(chat_id)
        with self.store.pipeline() as transaction:
            for key in (keys.log, keys.recent):
                transaction.xrange(key)
            pages: Any = transaction.execute()  # Any: the stub describes all versions
        entries = [entry for page in pages for entry in page]
        return sum(len(fields.get(name, b"")) for _, fields in entries for name in (b"e", b"x", b"a"))


@asynccontextmanager
async def desk(tmp_path: Path, server: ServerProcess) -> AsyncIterator[Desk]:
    store_url = fresh_url(server)
    with serve_fake_openai() as model, redis.Redis.from_url(store_url) as store:
        config, environment = CONFIG.format(url=model.base_url), {"REDIS_URL": store_url}
        tools = Path(__file__).with_name("picture_tools.py")
        async with serving(
            tmp_path, "--data-dir", str(tmp_path), config=config, app=tools, environment=environment
        ) as process:
            yield Desk(process.url, model, store, tmp_path / "log")


@pytest.fixture
def image() -> bytes:
    return png_of(11_000_000)


def user_content(asked: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = next(m for m in reversed(asked["messages"]) if m["role"] == "user")["content"]
    return found


@pytest.mark.row("ATT-5", "ATT-1")
async def test_an_image_of_11_mb_costs_the_log_a_reference_and_reaches_the_model_whole(
    tmp_path: Path, valkey_server: ServerProcess, image: bytes
) -> None:
    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        await here.say(watcher, "a", "what is it?")
        plain_bytes = here.log_bytes("c1")
        content = [
            {"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": data_url(image)}},
        ]
        asked = await here.say(watcher, "b", content)
        assert here.log_bytes("c1") - 2 * plain_bytes < 1_000, "what the image costs, events and facts together"
        for key in (name for name in here.store.keys("*chat:c1:*") if b":blobs" not in name):
            assert int(here.store.memory_usage(key, samples=0) or 0) < 20_000, key
        url = f"/v1/chats/c1/blobs/{hash_of(image)}"
        shown, said = user_content(asked)
        assert shown == {"type": "image_url", "image_url": {"url": data_url(image)}}
        assert said == {"type": "text", "text": "what is it?"}
        assert watcher.state is not None
        message = next(m for m in watcher.state.nodes.values() if m.client_request_id == "b")
        assert message.attachments == [{"type": "image_url", "mime": "image/png", "bytes": len(image), "url": url}]
        assert max(len(json.dumps(frame)) for frame in watcher.frames) < 10_000
        async with httpx2.AsyncClient(base_url=here.url) as client:
            assert (await client.get(url)).content == image
            again = await client.post("/v1/chats/c1/commands", json={**user_message("b", ""), "content": content})
            assert again.json() == {"status": "duplicate"}, "the digest is that of the body as it came"
        (kept,) = here.store.keys(f"*chat:c1:blobs:{hash_of(image)}")
        assert here.store.ttl(kept) == -1, "an entry refers to it"
        async with httpx2.AsyncClient(base_url=here.url) as client:
            await client.delete("/v1/chats/c1")
            assert (await client.get(url)).status_code == 404
        assert here.store.keys("*blobs*") == []


@pytest.mark.row("ATT-1", "ATT-2")
async def test_every_kind_of_part_reaches_the_model_in_its_words_attachments_first(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    sound, pdf = bytes(50_000), b"%PDF-1.7" + bytes(40_000)
    table = "a;b\n1;2\n" * 5_000
    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        asked = await here.say(
            watcher,
            "a",
            "compare these",
            attachments=[
                {"image_url": {"url": data_url(PNG)}},
                {"type": "input_audio", "input_audio": {"data": _base64(sound), "format": "wav"}},
                {"type": "file", "name": "paper.pdf", "mime": "application/pdf", "data": _base64(pdf)},
                {"type": "file", "name": "table.csv", "mime": "text/csv", "data": _base64(table.encode())},
                {"type": "file", "name": "old.pdf", "mime": "application/pdf", "text": "what the paper says"},
            ],
            context_files=[{"file_name": "src/a.py", "file_content": "print(1)", "line1": 3, "line2": 4}],
        )
        assert user_content(asked) == [
            {"type": "text", "text": "File src/a.py (lines 3-4):\nprint(1)"},
            {"type": "image_url", "image_url": {"url": data_url(PNG)}},
            {"type": "input_audio", "input_audio": {"data": _base64(sound), "format": "wav"}},
            {
                "type": "file",
                "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{_base64(pdf)}"},
            },
            {"type": "text", "text": f"File table.csv:\n{table}"},
            {"type": "text", "text": "File old.pdf:\nwhat the paper says"},
            {"type": "text", "text": "compare these"},
        ]
        assert watcher.state is not None
        message = next(m for m in watcher.state.nodes.values() if m.client_request_id == "a")
        listed = [(item["type"], item.get("name"), item["bytes"], "url" in item) for item in message.attachments]
        assert listed == [
            ("image_url", None, len(PNG), False),
            ("input_audio", None, len(sound), True),
            ("file", "paper.pdf", len(pdf), True),
            ("file", "table.csv", len(table), True),
            ("file", "old.pdf", 19, False),
        ]


@pytest.mark.row("PROV-8")
async def test_what_a_model_cannot_take_is_left_out_noted_and_sent_to_the_next_that_can(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(png_of(50_000))}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "name": "x.bin", "mime": "application/octet-stream", "data": _base64(b"\0\xff")},
    ]
    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        asked = await here.say(watcher, "a", parts, params={"model": "fake/blind"})
        assert user_content(asked) == [
            {"type": "text", "text": "[image left out: this model takes no images]"},
            {"type": "text", "text": "[audio left out: this model takes no audio]"},
            {"type": "text", "text": "[file x.bin left out: this model takes no files of this kind]"},
        ]
        assert "attachments.left_out" in here.log.read_text()
        asked = await here.say(watcher, "b", "and you?", params={"model": "fake/sees"})
        first = next(m for m in asked["messages"] if m["role"] == "user")["content"]
        assert [part["type"] for part in first] == ["image_url", "input_audio", "file"]


@pytest.mark.row("ATT-4")
async def test_images_of_a_tool_stand_beside_its_text_and_go_back_to_models_that_see(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    large = png_of(100_000)
    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        here.model.replies = [_calls("draw", "broken_picture"), Reply([text("nice"), STOP, DONE])]
        asked = await here.ask(watcher, user_message("a", "draw"))
        drawn, broken = (m for m in asked["messages"] if m["role"] == "tool")
        placed = (
            f"Here they are:\n[image 1: image/png, {len(PNG)} bytes]\nand\n[image 2: image/png, 100000 bytes]\ndone"
        )
        assert drawn["content"] == placed
        assert broken["content"] == "data:image/png;base64," + _base64(b"not a picture")
        assert asked["messages"][-1] == {
            "role": "user",
            "content": [
                {"type": "text", "text": "The images that the tools above returned:"},
                {"type": "image_url", "image_url": {"url": data_url(PNG)}},
                {"type": "image_url", "image_url": {"url": data_url(large)}},
            ],
        }
        assert watcher.state is not None
        message = next(m for m in watcher.state.nodes.values() if m.content == placed)
        small, big = message.attachments
        assert small == {"type": "image_url", "name": "image 1", "mime": "image/png", "bytes": 12, "url": data_url(PNG)}
        assert big["url"] == f"/v1/chats/c1/blobs/{hash_of(large)}"
        assert here.store.ttl(here.store.keys("*blobs:*")[0]) == -1
        asked = await here.say(watcher, "b", "and now?", params={"model": "fake/blind"})
        assert "data:image/png;base64,iVBOR" not in json.dumps(asked)


@pytest.mark.row("ATT-4")
async def test_a_client_answers_with_a_picture_and_only_with_its_own(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    shot = png_of(60_000)
    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        here.model.replies = [_calls("screenshot"), Reply([text("nice"), STOP, DONE])]
        await command(here.url, "c1", user_message("a", "show me"))
        await watcher.until(lambda w: "ide_tool_required" in w.types())
        foreign = [{"type": "image_url", "url": "https://evil.example/a.png"}]
        answer = {
            "type": "ide_tool_result",
            "client_request_id": "b",
            "content": data_url(shot),
            "attachments": foreign,
        }
        asked = await here.ask(watcher, {**answer, "tool_call_id": "call_0"})
        assert asked["messages"][-2]["content"] == "[image 1: image/png, 60000 bytes]"
        assert asked["messages"][-1]["content"][1]["image_url"]["url"] == data_url(shot)
        assert watcher.state is not None
        (listed,) = next(m for m in watcher.state.nodes.values() if m.role == "tool").attachments
        assert listed["url"] == f"/v1/chats/c1/blobs/{hash_of(shot)}"


async def test_a_long_result_is_cut_for_the_model_and_kept_whole(tmp_path: Path, valkey_server: ServerProcess) -> None:
    whole = "report " * 60_000
    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        here.model.replies = [_calls("long_report"), Reply([text("long"), STOP, DONE])]
        asked = await here.ask(watcher, user_message("a", "report"))
        said = next(m for m in asked["messages"] if m["role"] == "tool")["content"]
        assert len(said) <= 256_000 and said.endswith(f"\n[cut: {len(whole)} bytes in all]")
        assert watcher.state is not None
        message = next(m for m in watcher.state.nodes.values() if m.role == "tool")
        (kept,) = message.attachments
        async with httpx2.AsyncClient(base_url=here.url) as client:
            answer = await client.get(kept["url"])
        assert answer.text == whole
        assert (kept["name"], kept["bytes"]) == ("long_report.txt", len(whole))
        assert answer.headers["content-disposition"] == "attachment"


@pytest.mark.row("ATT-5")
async def test_an_upload_is_referred_to_by_its_url_and_its_type_is_what_it_is(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    async with desk(tmp_path, valkey_server) as here, httpx2.AsyncClient(base_url=here.url) as client:
        uploaded = await client.post("/v1/chats/c1/blobs", content=JPEG, headers={"Content-Type": "image/png"})
        assert uploaded.status_code == 201
        url = f"/v1/chats/c1/blobs/{hash_of(JPEG)}"
        assert uploaded.json() == {"url": url, "hash": hash_of(JPEG), "mime": "image/jpeg", "bytes": len(JPEG)}
        assert (await client.get("/v1/chats/c1")).status_code == 404, "an upload makes no chat"
        async with watching(here.url, "c1") as watcher:
            lie = {"url": url, "mime": "image/gif", "bytes": 1}
            asked = await here.say(watcher, "a", [{"type": "image_url", "image_url": lie}])
        assert user_content(asked) == [{"type": "image_url", "image_url": {"url": data_url(JPEG, "jpeg")}}]
        assert watcher.state is not None
        (message,) = [m for m in watcher.state.nodes.values() if m.role == "user"]
        assert message.attachments == [{"type": "image_url", "mime": "image/jpeg", "bytes": len(JPEG), "url": url}]


@pytest.mark.row("ATT-5")
async def test_every_command_that_carries_content_leaves_large_parts_beside_the_log(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    first, second, third = (png_of(200_000 + n) for n in range(3))

    def part(image: bytes) -> JsonObject:
        return {"type": "image_url", "image_url": {"url": data_url(image)}}

    async with desk(tmp_path, valkey_server) as here, watching(here.url, "c1") as watcher:
        await here.say(watcher, "a", [part(first)])
        assert watcher.state is not None
        here.model.replies = [Reply([text("again"), STOP, DONE])]
        retry = {"type": "retry_from_index", "client_request_id": "b", "index": 0, "content": [part(second)]}
        asked = await here.ask(watcher, retry)
        assert user_content(asked) == [part(second)]
        message_id = watcher.state.path[0]
        here.model.replies = [Reply([text("and again"), STOP, DONE])]
        update = {"type": "update_message", "client_request_id": "c", "message_id": message_id, "regenerate": True}
        asked = await here.ask(watcher, {**update, "content": [part(third)]})
        assert user_content(asked) == [part(third)]
        (listed,) = watcher.state.nodes[message_id].attachments
        assert listed["url"] == f"/v1/chats/c1/blobs/{hash_of(third)}"
        assert here.log_bytes("c1") < 20_000
        branch = {"type": "branch_from_chat", "client_request_id": "d", "source_chat_id": "c1"}
        async with watching(here.url, "c2") as other, httpx2.AsyncClient(base_url=here.url) as client:
            await command(here.url, "c2", {**branch, "up_to_message_id": message_id})
            await other.until(lambda w: w.state is not None and len(w.state.path) == 1)
            await client.delete("/v1/chats/c1")
            assert other.state is not None
            (copy,) = other.state.nodes.values()
            (listed,) = copy.attachments
            assert listed["url"] == f"/v1/chats/c2/blobs/{hash_of(third)}"
            assert (await client.get(listed["url"])).content == third
            asked = await here.say(other, "e", "look again")
            assert [m["content"] for m in asked["messages"][-2:]] == [[part(third)], "look again"]
        restore = {"type": "restore_messages", "client_request_id": "f"}
        async with watching(here.url, "c3") as third_chat:
            messages = [{"role": "user", "content": [part(first)]}, {"role": "assistant", "content": "a picture"}]
            await command(here.url, "c3", {**restore, "messages": messages})
            await third_chat.until(lambda w: w.state is not None and len(w.state.path) == 2)
            assert here.log_bytes("c3") < 5_000


def _calls(*names: str) -> Reply:
    calls = [
        {"index": n, "id": f"call_{n}", "function": {"name": name, "arguments": "{}"}} for n, name in enumerate(names)
    ]
    return Reply([chunk(delta={"tool_calls": calls}), chunk(finish_reason="tool_calls"), DONE])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
