"""Imports while the store fails or the worker is late: an import reports each stored chat exactly once."""

import json

import anyio
import httpx2
import pytest

from tests.unit.actor_harness import Harness, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.test_commands_edge import edge
from threadcast.api import transfer
from threadcast.chat import import_files
from threadcast.store.bounds import INBOX_MAX
from threadcast.store.load import load_folded
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio

NOTHING: JsonObject = {"imported": [], "skipped": [], "accepted": [], "failed": []}


def export(*chat_ids: str) -> bytes:
    """Return chats of one question each."""
    lines: list[JsonObject] = []
    for chat_id in chat_ids:
        counts = {"message_count": 1, "payload_count": 0, "agent_count": 0}
        lines.append({"type": "chat", "format": 1, "chat_id": chat_id, "leaf_id": "m", "thread": {}, **counts})
        lines.append({"type": "message", "message": {"role": "user", "content": "hi", "message_id": "m"}})
    return "\n".join(map(json.dumps, lines)).encode()


async def send(client: httpx2.AsyncClient, body: bytes) -> JsonObject:
    answer = await client.post("/v1/chats/import", content=body)
    assert answer.status_code == 200, answer.text
    report: JsonObject = answer.json()
    return report


async def test_what_no_worker_takes_up_in_time_is_accepted_and_imported_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("IMPORT_WAIT_SECONDS", "PART_WAIT_SECONDS"):
        monkeypatch.setattr(transfer, bound, 0.05)
    async with edge(harness) as client:
        assert await send(client, export("a", "b")) == {**NOTHING, "accepted": ["a", "b"]}
        monkeypatch.setattr(transfer, "IMPORT_WAIT_SECONDS", DEADLINE_SECONDS)
        async with harness.hosting("w1"):
            with anyio.fail_after(DEADLINE_SECONDS):
                while await harness.store.count_chats("local") < 2:
                    await anyio.sleep(0.01)
            assert await send(client, export("a", "b", "c")) == {**NOTHING, "skipped": ["a", "b"], "imported": ["c"]}


async def test_the_same_import_sent_twice_at_once_takes_effect_once(harness: Harness) -> None:
    reports: list[JsonObject] = []
    async with edge(harness) as client, harness.hosting("w1"):

        async def again() -> None:
            reports.append(await send(client, export("a")))

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(again)
        assert len((await client.get("/v1/chats/a")).json()["messages"]) == 1
    assert all(report["failed"] == [] for report in reports)
    assert any(report["imported"] == ["a"] for report in reports)
    assert len([request for request in harness.store.requests if b"import-" in request.acks]) == 1


@pytest.mark.parametrize("call", ["meta", "follow", "post"])
async def test_what_cannot_be_laid_down_is_reported_and_can_be_sent_again(harness: Harness, call: str) -> None:
    async with edge(harness) as client, harness.hosting("w1"):
        harness.store.away.add(call)
        report = await send(client, export("a"))
        (failed,) = report["failed"]
        assert (failed["id"], failed["code"]) == ("a", "unavailable")
        harness.store.away.clear()
        assert await send(client, export("a")) == {**NOTHING, "imported": ["a"]}


async def test_a_post_whose_answer_is_lost_is_one_import(harness: Harness) -> None:
    async with edge(harness) as client, harness.hosting("w1"):
        harness.store.fail("post", "lost reply")
        assert await send(client, export("a")) == {**NOTHING, "imported": ["a"]}
    assert harness.store.calls["post"] == 2


async def test_an_import_that_revives_a_chat_and_is_sent_again_before_it_is_taken_up_is_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("IMPORT_WAIT_SECONDS", "PART_WAIT_SECONDS"):
        monkeypatch.setattr(transfer, bound, 0.05)
    await harness.post(say("first"), chat_id="a")
    await harness.store.delete("a", LOCAL.id, "n")
    async with edge(harness) as client:
        for _ in range(2):
            assert await send(client, export("a")) == {**NOTHING, "accepted": ["a"]}
        assert len(await harness.store.read_inbox("a", 9)) == 1
        harness.store.clock.now_ms += 1
        await harness.store.delete("a", LOCAL.id, "n2")
        assert await send(client, export("a")) == {**NOTHING, "accepted": ["a"]}
    assert len(await harness.store.read_inbox("a", 9)) == 1, "after another delete it is a new one"


async def test_parts_wait_for_room_in_the_inbox_but_not_for_ever(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INBOX_MAX, "exempt", 1)
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1)
    monkeypatch.setattr(transfer, "ROOM_PAUSE_SECONDS", 0.01)
    lines: list[JsonObject] = [
        {"type": "chat", "format": 1, "chat_id": "a", "leaf_id": "m3", "thread": {}}
        | {"message_count": 4, "payload_count": 0, "agent_count": 0}
    ]
    for number in range(4):
        parent = {"parent_id": f"m{number - 1}"} if number else {}
        message = {"role": "user", "content": "hi", "message_id": f"m{number}", **parent}
        lines.append({"type": "message", "message": message})
    body = "\n".join(map(json.dumps, lines)).encode()
    async with edge(harness) as client:
        monkeypatch.setattr(transfer, "PART_WAIT_SECONDS", 0.05)
        (failed,) = (await send(client, body))["failed"]
        assert failed["code"] == "queue_full" and len(await harness.store.read_inbox("a", 9)) == 1
        monkeypatch.setattr(transfer, "PART_WAIT_SECONDS", DEADLINE_SECONDS)
        async with harness.hosting("w1"):
            assert await send(client, body) == {**NOTHING, "imported": ["a"]}
    state = (await load_folded(harness.store, "a", with_facts=True)).state
    assert state.path == ("m0", "m1", "m2", "m3") and state.private.importing is None
