"""The largest `restore_messages`, and a branch of its chat, over real HTTP and a real store: nothing of them is a large
value of the store (CMD-12)."""

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import redis

from tests.support.fleet import fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, serving, user_message
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.slow(30), pytest.mark.row("CMD-12")]

MESSAGES, TEXT_BYTES = 80, 200_000
"""Messages of 16 MB in all; a request has at most 16 MiB."""

VALUE_MAX_BYTES = 1_100_000
"""The maximum size of an element of a stream or field of a hash: a part of 512 KiB with one message more, and the
largest command that the inbox holds itself."""

ROOM_BYTES = 6_000_000
"""Room for some parts of the copy, and for the fence of its worker."""

WAIT = {"Prefer": "wait=30"}


def restore(request_id: str, messages: int = MESSAGES, text: str = "x") -> JsonObject:
    texts: list[JsonObject] = [
        {"role": "assistant" if number % 2 else "user", "content": f"{number} ".ljust(TEXT_BYTES, text)}
        for number in range(messages)
    ]
    return {"type": "restore_messages", "client_request_id": request_id, "messages": texts}


def largest_value(store: "redis.Redis") -> int:
    """Return the size of the largest element of a stream and field of a hash in the store."""
    found: list[int] = []
    for key in store.scan_iter("*", _type="stream"):
        entries: Any = store.xrange(key)  # Any: their types allow for options that are not used here
        found += [len(value) for _, fields in entries for value in fields.values()]
    for key in store.scan_iter("*", _type="hash"):
        found += [len(value) for value in store.hvals(key)]
    return max(found)


async def bodies_gone(store: "redis.Redis") -> None:
    """Wait until no body is left. A worker deletes a body after its command has taken effect."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while list(store.scan_iter("*:blobs*")):
            await anyio.sleep(0.02)


async def test_16_mb_are_restored_and_branched_without_a_large_value_in_the_store(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--data-dir", str(tmp_path / "data")) as process,
        httpx2.AsyncClient(base_url=process.url, timeout=120) as client,
        watching(process.url, "a") as reader,
    ):
        (socket,) = (tmp_path / "data").rglob("*.sock")
        body = encode(restore("r"))
        assert 15_900_000 < len(body) < 16 * 1_024 * 1_024
        for status in ({"status": "applied", "accepted": True, "result": {"queued": True}}, {"status": "duplicate"}):
            answer = await client.post("/v1/chats/a/commands", content=body, headers=WAIT)
            assert (answer.status_code, answer.json()) == (200, status)
        other = encode(restore("r", text="y"))
        assert (await client.post("/v1/chats/a/commands", content=other, headers=WAIT)).status_code == 409
        messages = (await client.get("/v1/chats/a")).json()["messages"]
        assert [message["content"] for message in messages] == [each["content"] for each in restore("r")["messages"]]
        await reader.until(lambda w: len(w.messages) == MESSAGES)
        with redis.Redis.from_url(f"unix://{socket}") as store:
            await bodies_gone(store)  # also one that was sent again
            assert largest_value(store) < VALUE_MAX_BYTES
            last = messages[-1]["message_id"]
            fork = {"type": "branch_from_chat", "client_request_id": "f", "source_chat_id": "a"}
            answer = await client.post("/v1/chats/b/commands", json={**fork, "up_to_message_id": last}, headers=WAIT)
            assert answer.json()["accepted"] is True
            copies = (await client.get("/v1/chats/b")).json()["messages"]
            assert [copy["content"] for copy in copies] == [message["content"] for message in messages]
            assert largest_value(store) < VALUE_MAX_BYTES


async def test_a_restore_whose_worker_is_killed_between_two_parts_is_made_anew(tmp_path: Path) -> None:
    """The store has room for a few parts only, so the worker waits in the middle when it is killed."""
    with fleet_on_new_store(tmp_path) as fleet:
        await fleet.open(workers=0)
        async with watching(fleet.url, "a") as reader, httpx2.AsyncClient(base_url=fleet.url, timeout=60) as client:
            answer = await client.post("/v1/chats/a/commands", json=restore("r"))
            assert answer.status_code == 202
            used = fleet.store.ask("INFO", "memory")["used_memory"]
            fleet.store.ask("CONFIG", "SET", "maxmemory", used + ROOM_BYTES)
            worker = await fleet.add_worker()
            await reader.until(lambda w: len(w.messages) > 2)
            worker.kill()
            assert (await client.get("/v1/chats")).json()["items"] == [], "the chat is not complete"
            fleet.store.ask("CONFIG", "SET", "maxmemory", 0)
            await fleet.add_worker()
            answer = await client.post("/v1/chats/a/commands", json=user_message("u", "go on"), headers=WAIT)
            assert answer.json()["accepted"] is True
            await reader.until(lambda w: len(w.messages) == MESSAGES + 2)
            restored = (await client.get("/v1/chats/a")).json()["messages"][:MESSAGES]
            assert [message["content"] for message in restored] == [
                each["content"] for each in restore("r")["messages"]
            ]
            tree = (await client.get("/v1/chats/a", params={"view": "tree"})).json()["messages"]
            assert len(tree) == MESSAGES + 2, "nothing of the first try is left"
            listed = (await client.get("/v1/chats")).json()["items"]
            assert [item["message_count"] for item in listed] == [MESSAGES + 2]


async def test_a_large_command_that_is_refused_stores_nothing(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--data-dir", str(tmp_path / "data")) as process,
        httpx2.AsyncClient(base_url=process.url, timeout=60) as client,
    ):
        (socket,) = (tmp_path / "data").rglob("*.sock")
        assert (await client.post("/v1/chats/a/commands", json=restore("r", 1), headers=WAIT)).json()["accepted"]
        assert (await client.delete("/v1/chats/a")).status_code == 200
        answer = await client.post("/v1/chats/a/commands", json=restore("s", 10), headers=WAIT)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        await client.post("/v1/chats/b/commands", json=restore("r", 1), headers=WAIT)
        answer = await client.post("/v1/chats/b/commands", json=restore("s", 10), headers=WAIT)
        assert (answer.json()["status"], answer.json()["result"]["code"]) == ("refused", "conflict")
        with redis.Redis.from_url(f"unix://{socket}") as store:
            await bodies_gone(store)


async def test_a_large_command_for_a_full_queue_stores_nothing_and_others_keep_their_bodies(
    tmp_path: Path,
) -> None:
    with fleet_on_new_store(tmp_path) as fleet:
        await fleet.open(workers=0)
        async with httpx2.AsyncClient(base_url=fleet.url, timeout=60) as client:
            for number in range(100):
                answer = await client.post("/v1/chats/a/commands", json=restore(f"r{number}", 6 if number < 2 else 1))
                assert answer.status_code == 202
            answer = await client.post("/v1/chats/a/commands", json=restore("full", 6))
            assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")
            with redis.Redis.from_url(fleet.store.url) as store:
                bodies = list(store.scan_iter("*chat:a:blobs:*"))
                assert len(bodies) == 2 and all(store.ttl(body) > 6 * 86_400 for body in bodies)
                await fleet.add_worker()
                async with watching(fleet.url, "a") as reader:
                    await reader.until(lambda w: len(w.messages) == 6)
                    await client.post("/v1/chats/a/commands", json=user_message("u", "go on"), headers=WAIT)
                await bodies_gone(store)  # of the command that took effect, and of the refused
