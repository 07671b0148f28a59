"""Answers to a posted command: acceptance, repeats, refusals and limits. Every bad input gets a clear error."""

import json
from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


def ack_of(watcher: Watcher, request_id: str) -> list[JsonObject]:
    return [f for f in watcher.frames if f["type"] == "ack" and f["client_request_id"] == request_id]


@pytest.mark.row("CMD-2")
async def test_the_same_command_posted_50_times_at_once_takes_effect_once(server: Process, chat_id: str) -> None:
    body = user_message("same", "only once")
    answers: list[httpx2.Response] = []
    async with watching(server.url, chat_id) as watcher:

        async def post() -> None:
            answers.append(await command(server.url, chat_id, body))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(post)
        await watcher.at_rest()
        again = await command(server.url, chat_id, body)
    statuses = sorted((a.status_code, a.json()["status"]) for a in answers)
    assert statuses == [(200, "duplicate")] * 49 + [(202, "accepted")]
    assert again.json() == {"status": "duplicate"}
    assert [role for role, _ in watcher.messages] == ["user", "assistant"]
    assert len(ack_of(watcher, "same")) == 1


@pytest.mark.row("CMD-2")
async def test_the_same_id_with_another_body_is_a_mismatch(server: Process, chat_id: str) -> None:
    await command(server.url, chat_id, user_message("a", "one"))
    answer = await command(server.url, chat_id, user_message("a", "two"))
    assert answer.status_code == 409
    assert answer.json()["status"] == "idempotency_mismatch"


async def test_key_order_and_spaces_do_not_make_another_body(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    body = user_message("a", "one")
    await command(server.url, chat_id, body)
    turned = json.dumps(dict(reversed(body.items())), indent=3)
    answer = await client.post(f"/v1/chats/{chat_id}/commands", content=turned)
    assert answer.json() == {"status": "duplicate"}


@pytest.mark.row("CMD-19", "ERR-5")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", None),
        (b"{", None),
        (b"\xff\xfe", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"type":"fly","client_request_id":"a"}', "/type"),
        (b'{"type":"user_message","client_request_id":"a"}', None),
        (b'{"type":"user_message","client_request_id":7,"content":"x"}', "/client_request_id"),
        (b'{"type":"user_message","client_request_id":"../a","content":"x"}', "/client_request_id"),
        (b'{"type":"user_message","client_request_id":"a\\n","content":"x"}', "/client_request_id"),
        (b'{"type":"user_message","client_request_id":"a","content":"x","priority":"yes"}', "/priority"),
        (b'{"type":"cancel","client_request_id":"a","target":"b"}', "/type"),
        (b'{"type":"refused","client_request_id":"a","target":"b","code":"x","error":"y"}', "/type"),
    ],
)
async def test_a_malformed_command_is_400_with_the_place_and_nothing_is_stored(
    client: httpx2.AsyncClient, chat_id: str, body: bytes, path: str | None
) -> None:
    answer = await client.post(f"/v1/chats/{chat_id}/commands", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_request"
    assert answer.json()["detail"]
    assert answer.json().get("path") == path
    assert (await client.get(f"/v1/chats/{chat_id}")).status_code == 404


async def test_a_compressed_body_and_a_request_without_a_host_are_told_so(
    client: httpx2.AsyncClient, chat_id: str
) -> None:
    path = f"/v1/chats/{chat_id}/commands"
    compressed = await client.post(path, content=b"x", headers={"Content-Encoding": "gzip"})
    assert (compressed.status_code, compressed.json()["code"]) == (400, "bad_request")
    assert "Content-Encoding: gzip" in compressed.json()["detail"]
    nameless = await client.get("/v1/chats", headers={"Host": ""})
    assert (nameless.status_code, nameless.json()["code"]) == (400, "bad_request")
    assert "no Host header" in nameless.json()["detail"]


@pytest.mark.parametrize("name", ["..%2Fetc", "a%20b", "a%0Ab", "x" * 129, "subscribe", "feed", "import", "%00"])
async def test_chat_ids_that_are_no_ids_are_refused(client: httpx2.AsyncClient, name: str) -> None:
    answer = await client.post(f"/v1/chats/{name}/commands", json=user_message("a", "x"))
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["code"] in ("bad_request", "not_found")


async def test_a_body_of_17_mib_is_413_whether_or_not_its_size_is_told(
    client: httpx2.AsyncClient, chat_id: str
) -> None:
    big = b'{"type":"user_message","client_request_id":"a","content":"' + b"x" * (17 * 1024 * 1024) + b'"}'

    async def in_pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 1024 * 1024):
            yield big[start : start + 1024 * 1024]

    for content in (big, in_pieces()):
        try:
            answer = await client.post(f"/v1/chats/{chat_id}/commands", content=content)
        except httpx2.TransportError:
            continue  # the server closed the connection of a sender that did not stop
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert (await client.get("/v1/ping")).text == "pong"


async def test_a_text_above_256_kb_is_too_large_and_says_so_to_those_who_watch(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        answer = await command(server.url, chat_id, user_message("a", "x" * 300_000))
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        await watcher.until(lambda w: ack_of(w, "a"))
    assert ack_of(watcher, "a")[0]["result"]["code"] == "too_large"


async def test_empty_content_is_refused_with_an_ack_and_the_id_is_not_burnt(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        answer = await command(server.url, chat_id, user_message("a", "  "))
        assert answer.status_code == 400
        assert answer.json()["status"] == "invalid_content"
        await watcher.until(lambda w: ack_of(w, "a"))
        assert ack_of(watcher, "a")[0]["accepted"] is False
        assert (await command(server.url, chat_id, user_message("a", "now with text"))).status_code == 202
        await watcher.at_rest()
    assert [a["accepted"] for a in ack_of(watcher, "a")] == [False, True]


async def test_a_bad_body_under_an_accepted_id_leaves_that_commands_outcome_alone(
    server: Process, chat_id: str
) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "hi"))
        assert (await command(server.url, chat_id, user_message("a", "  "))).status_code == 400
        assert (await command(server.url, chat_id, user_message("b", "  "))).status_code == 400
        await watcher.until(lambda w: ack_of(w, "b"))
        await watcher.at_rest()
    assert [a["accepted"] for a in ack_of(watcher, "a")] == [True]


@pytest.mark.row("SET-2", "CMD-15")
async def test_set_params_applies_all_or_nothing_and_echoes_what_now_is(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        good = {"type": "set_params", "client_request_id": "p", "patch": {"temperature": 1, "title": "T", "zzz": 1}}
        answer = await command(server.url, chat_id, good)
        assert (answer.status_code, answer.json()["status"]) == (200, "applied")
        bad = {"type": "set_params", "client_request_id": "q", "patch": {"temperature": 5, "title": "no"}}
        refused = await command(server.url, chat_id, bad)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
        assert refused.json()["path"] == "/patch/temperature"
        unknown = {"type": "set_params", "client_request_id": "m", "patch": {"mode": "nope"}}
        assert (await command(server.url, chat_id, unknown)).status_code == 400
        await watcher.until(lambda w: ack_of(w, "q") and ack_of(w, "m"))
        assert watcher.state is not None
        assert (watcher.state.thread.title, watcher.state.thread.temperature) == ("T", 1.0)
    updates = [f for f in watcher.frames if f["type"] == "thread_updated"]
    assert [{k: v for k, v in f.items() if k not in ("chat_id", "seq", "type")} for f in updates] == [
        {"title": "T", "temperature": 1.0}
    ]


@pytest.mark.row("CMD-4")
async def test_abort_of_an_unknown_chat_is_200_and_stores_nothing_others_are_404(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    answer = await command(server.url, chat_id, {"type": "abort", "client_request_id": "x"})
    assert (answer.status_code, answer.json()) == (200, {"status": "aborted"})
    other = await command(server.url, chat_id, {"type": "regenerate", "client_request_id": "y"})
    assert (other.status_code, other.json()["code"]) == (404, "not_found")
    assert (await client.get(f"/v1/chats/{chat_id}")).status_code == 404
    assert (await command(server.url, chat_id, user_message("z", "it can still be made"))).status_code == 202


async def test_a_command_that_cannot_be_applied_is_accepted_and_then_honestly_refused(
    server: Process, chat_id: str
) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "hi"))
        await watcher.at_rest()
        body = {"type": "select_branch", "client_request_id": "s", "message_id": "m1"}
        waited = await command(server.url, chat_id, body, {"Prefer": "wait=5"})
        assert waited.status_code == 200
        assert waited.json()["accepted"] is False
        assert waited.json()["result"]["code"] == "not_found"
        await watcher.until(lambda w: ack_of(w, "s"))


async def test_prefer_wait_answers_with_the_effect(server: Process, chat_id: str) -> None:
    answer = await command(server.url, chat_id, user_message("a", "hi"), {"Prefer": "wait=5"})
    assert (answer.status_code, answer.json()["accepted"]) == (200, True)


@pytest.mark.row("CMD-17")
async def test_queued_messages_are_shown_merged_and_can_be_taken_back(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    slow = user_message("a", "write", params={"model": "demo/hang"})
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, slow)
        await watcher.until(lambda w: "stream_started" in w.types())
        for name in ("b", "c", "d"):
            await command(server.url, chat_id, user_message(name, f"text {name}"))
        await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 3)
        cancelled = await client.delete(f"/v1/chats/{chat_id}/queue/c")
        assert (cancelled.status_code, cancelled.json()) == (200, {"status": "cancelled"})
        gone = await client.delete(f"/v1/chats/{chat_id}/queue/c")
        assert (gone.status_code, gone.json()["status"]) == (404, "not_found")
        duplicate = await command(server.url, chat_id, user_message("c", "text c"))
        assert duplicate.json() == {"status": "duplicate"}
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest(2)  # the waiting messages were answered together
    assert [text for role, text in watcher.messages if role == "user"] == ["write", "text b", "text d"]
    assert ack_of(watcher, "c")[-1]["result"]["code"] == "cancelled"


async def test_cancelling_an_id_before_it_is_posted_does_not_burn_it(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    await command(server.url, chat_id, user_message("a", "hi"))
    async with watching(server.url, chat_id) as watcher:
        assert (await client.delete(f"/v1/chats/{chat_id}/queue/later")).status_code == 404
        await command(server.url, chat_id, user_message("later", "still works"))
        await watcher.at_rest(2)


async def test_more_than_100_waiting_commands_are_refused_but_an_abort_never(server: Process, chat_id: str) -> None:
    await command(server.url, chat_id, user_message("first", "x", params={"model": "demo/hang"}))
    async with watching(server.url, chat_id) as watcher:
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None)
        for number in range(100):
            assert (await command(server.url, chat_id, user_message(f"q{number}", "x"))).status_code == 202
        full = await command(server.url, chat_id, user_message("over", "x"))
        assert (full.status_code, full.json()["status"]) == (429, "queue_full")
        assert "retry-after" in full.headers
        await watcher.until(lambda w: ack_of(w, "over"))
        stop = {"type": "abort", "client_request_id": "stop", "clear_queue": True}
        assert (await command(server.url, chat_id, stop)).status_code == 200
        await watcher.until(lambda w: w.state is not None and w.state.is_at_rest)


@pytest.mark.row("NET-7")
async def test_pages_from_elsewhere_are_refused(server: Process, client: httpx2.AsyncClient, chat_id: str) -> None:
    path = f"{server.url}/v1/chats/{chat_id}/commands"
    foreign = await client.post(path, json=user_message("a", "x"), headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    rebound = await client.post(path, json=user_message("a", "x"), headers={"Host": "evil.example"})
    assert rebound.status_code == 403
    own = await client.post(path, json=user_message("a", "x"), headers={"Origin": server.url})
    assert own.status_code == 202


async def test_lists_show_the_callers_chats_with_their_state_newest_first(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "hi"))
        await watcher.at_rest()
    listed = (await client.get("/v1/chats?limit=1")).json()
    assert listed["items"][0]["id"] == chat_id
    assert (listed["items"][0]["state"], listed["items"][0]["message_count"]) == ("idle", 2)
    read = (await client.get(f"/v1/chats/{chat_id}")).json()
    assert [m["role"] for m in read["messages"]] == ["user", "assistant"]
    assert (await client.get("/v1/chats?limit=x")).status_code == 400
    assert (await client.delete(f"/v1/chats/{chat_id}")).json() == {"status": "deleted"}
    assert (await client.get(f"/v1/chats/{chat_id}")).status_code == 404
    assert (await command(server.url, chat_id, user_message("z", "back?"))).status_code == 404


async def test_what_clients_ask_for_at_start(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/ping")).text == "pong"
    assert (await client.get("/livez")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json()["status"] == "ready"
    caps = (await client.get("/v1/caps")).json()
    assert caps["chat_default_model"] in caps["chat_models"]
    assert "user_message" in caps["commands"] and "cancel" not in caps["commands"]
    assert {tool["name"] for tool in (await client.get("/v1/tools")).json()} >= {"clock", "calculator"}
    assert (await client.get("/v1/chat-modes")).json()["modes"][0]["id"] == "agent"
    assert (await client.get("/v1/providers")).json()["providers"][0]["name"] == "demo"
    assert "threadcast_commands_accepted_total" in (await client.get("/metrics")).text
    nothing = await client.get("/v1/nothing")
    assert (nothing.status_code, nothing.json()["code"]) == (404, "not_found")
    wrong = await client.put("/v1/chats")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "bad_request")
