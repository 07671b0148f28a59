"""Chats over HTTP: lists and their pages, the tree, earlier positions, and deletion."""

import secrets
import uuid
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.test_auth_http import guarded
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, user_message
from tests.support.tokens import bearer
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


async def talk(url: str, chat_id: str, *texts: str, headers: dict[str, str] | None = None) -> None:
    """Make a chat with these questions and their answers."""
    async with watching(url, chat_id, headers=headers) as watcher:
        for number, text in enumerate(texts, start=1):
            await command(url, chat_id, user_message(f"r-{uuid.uuid4().hex}", text), headers)
            await watcher.at_rest(number)


async def title(url: str, chat_id: str, text: str) -> None:
    body = {"type": "set_params", "client_request_id": f"t-{uuid.uuid4().hex}", "patch": {"title": text}}
    assert (await command(url, chat_id, body)).status_code == 200


async def get(url: str, path: str, status: int = 200, **query: str | int) -> JsonObject:
    async with httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client:
        answer = await client.get(path, params=query)
    assert answer.status_code == status, answer.text
    body: JsonObject = answer.json()
    return body


@pytest.mark.row("SES-5")
async def test_lists_page_newest_first_and_filter_by_title_and_state(server: Process) -> None:
    mark = uuid.uuid4().hex[:8]
    names = [f"list-{mark}-{n}" for n in range(5)]
    for name in names:
        await talk(server.url, name, "hi")
        await title(server.url, name, f"About ÄPFEL {mark}" if name != names[2] else f"Other {mark}")
    pages, cursor = [], ""
    while True:
        page = await get(server.url, "/v1/chats", limit=2, q=f"äpfel {mark}", cursor=cursor, state="idle")
        pages.append([item["id"] for item in page["items"]])
        assert page["has_more"] is (page["next_cursor"] is not None)
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
    wanted = [names[4], names[3], names[1], names[0]]
    assert pages == [wanted[:2], wanted[2:]]
    assert (await get(server.url, "/v1/chats", q=mark, state="paused"))["items"] == []
    (item,) = (await get(server.url, "/v1/chats", q=f"other {mark}"))["items"]
    assert (item["title"], item["state"], item["message_count"], item["queue_size"]) == (f"Other {mark}", "idle", 2, 0)
    assert 0 < item["created_at"] <= item["last_active"]
    plain = await get(server.url, "/v1/chats", limit=5)
    assert [each["id"] for each in plain["items"]] == names[::-1]


@pytest.mark.parametrize(
    "query",
    [{"limit": "0"}, {"limit": "201"}, {"limit": "x"}, {"cursor": "x"}, {"cursor": "1:../x"}, {"q": "x" * 201}],
)
async def test_a_list_parameter_out_of_bounds_is_400_with_its_name(server: Process, query: dict[str, str]) -> None:
    refused = await get(server.url, "/v1/chats", 400, **query)
    assert (refused["code"], refused["path"]) == ("bad_request", "/" + next(iter(query)))


@pytest.mark.row("SES-5")
async def test_the_tree_holds_every_answer_with_its_siblings(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "hi"))
        await watcher.at_rest()
        before = len(watcher.frames)
        await command(server.url, chat_id, {"type": "regenerate", "client_request_id": "b"})
        await watcher.until(lambda w: any(f.get("outcome") for f in w.frames[before:]))
    tree = await get(server.url, f"/v1/chats/{chat_id}", view="tree")
    question, first, second = tree["messages"]
    assert (tree["type"], tree["leaf_id"], tree["runtime"]["state"]) == ("tree", second["message_id"], "idle")
    assert first["parent_id"] == second["parent_id"] == question["message_id"]
    family = [first["message_id"], second["message_id"]]
    assert first["sibling_ids"] == second["sibling_ids"] == family
    assert (first.get("sibling_index"), second["sibling_index"]) == (0, 1)
    assert "parent_id" not in question
    assert (await get(server.url, f"/v1/chats/{chat_id}", 400, view="forest"))["path"] == "/view"


@pytest.mark.row("SES-5")
async def test_a_chat_can_be_read_as_it_was_at_each_position(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "one"))
        await watcher.at_rest()
        await command(server.url, chat_id, user_message("b", "two"))
        await watcher.at_rest(2)
        last = int(watcher.last_id.split("-")[1])
        for position in range(1, last + 1):
            then = await get(server.url, f"/v1/chats/{chat_id}", at=position)
            assert then["position"] == position
            place = {key: then.pop(key) for key in ("chat_id", "position", "id")}
            assert place["chat_id"] == chat_id
            assert then == httpx2.Response(200, content=encode(snapshot_of(watcher.state_after(position)))).json()
    empty = await get(server.url, f"/v1/chats/{chat_id}", at=0)
    assert (empty["messages"], empty["position"]) == ([], 0)
    by_id = await get(server.url, f"/v1/chats/{chat_id}", at=watcher.last_id, view="tree")
    assert (by_id["position"], len(by_id["messages"])) == (last, 4)
    ahead = await get(server.url, f"/v1/chats/{chat_id}", 404, at=last + 1)
    assert (ahead["code"], str(last) in ahead["detail"]) == ("not_found", True)
    assert (await get(server.url, f"/v1/chats/{chat_id}", 404, at=f"7-{last}-0"))["code"] == "not_found"
    for bad in ("x", "-1", "1.5", "", "1-2"):
        assert (await get(server.url, f"/v1/chats/{chat_id}", 400, at=bad))["path"] == "/at"


@pytest.mark.row("SES-5")
async def test_a_position_no_longer_held_is_410_and_names_the_earliest_that_is(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    """The test sets parameters of 60 kB that hardly compress, and lets the chat rest after each, until the chat's
    history has lost its beginning. Entries that are trimmed before a rest do not reach the history."""
    await talk(server.url, chat_id, "hello")
    path = f"/v1/chats/{chat_id}"
    for number in range(100):
        patch = {"metadata": {"n": number, "text": secrets.token_urlsafe(45_000)}}
        body = {"type": "set_params", "client_request_id": f"p{number}", "patch": patch}
        assert (await client.post(f"{path}/commands", json=body)).status_code in (200, 202)
        with anyio.fail_after(DEADLINE_SECONDS):
            while "threadcast_chats_active 0.0" not in (await client.get("/metrics")).text:
                await anyio.sleep(0.01)
        if (gone := await client.get(path, params={"at": 1})).status_code != 200:
            break
    assert (gone.status_code, gone.json()["code"]) == (410, "gone"), gone.text[:200]
    first = gone.json()["first"]
    assert str(first) in gone.json()["detail"]
    assert (await client.get(path, params={"at": first - 1})).json()["first"] == first
    then = (await client.get(path, params={"at": first})).json()
    last = (await client.get(path)).json()
    assert 1 < then["position"] == first <= last["position"]
    assert then["thread"]["metadata"]["n"] <= last["thread"]["metadata"]["n"] == number


@pytest.mark.row("SES-5")
async def test_a_deleted_chat_ends_its_streams_and_answers_404_to_every_verb(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    bodies: list[JsonObject] = [
        user_message("n", "back?"),
        {"type": "set_params", "client_request_id": "p", "patch": {"title": "x"}},
        {"type": "regenerate", "client_request_id": "g"},
        {"type": "retry_from_index", "client_request_id": "i", "index": 0, "content": "x"},
        {"type": "update_message", "client_request_id": "u", "message_id": "m", "content": "x"},
        {"type": "remove_message", "client_request_id": "v", "message_id": "m"},
        {"type": "restore_messages", "client_request_id": "w", "messages": []},
        {"type": "branch_from_chat", "client_request_id": "x", "source_chat_id": "s", "up_to_message_id": "m"},
        {"type": "select_branch", "client_request_id": "y", "message_id": "m"},
        {"type": "tool_decision", "client_request_id": "z", "tool_call_id": "c", "accepted": True},
        {"type": "ide_tool_result", "client_request_id": "t", "tool_call_id": "c", "content": "x"},
    ]
    await talk(server.url, chat_id, "hello")
    path = f"/v1/chats/{chat_id}"
    assert (await client.delete(path)).json() == {"status": "deleted"}
    for body in bodies:
        answer = await command(server.url, chat_id, body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), body
    for answer in (
        await client.get(path),
        await client.get(path, params={"view": "tree"}),
        await client.get(f"{path}/export"),
        await client.get("/v1/chats/subscribe", params={"chat_id": chat_id}),
        await client.delete(path),
        await client.delete(f"{path}/queue/a"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), answer.url
    listed = (await client.get("/v1/chats", params={"limit": 200})).json()["items"]
    assert chat_id not in [item["id"] for item in listed]


async def test_a_stream_opened_after_the_delete_is_refused_although_others_still_watch(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    await talk(server.url, chat_id, "hello")
    async with watching(server.url, chat_id) as watcher:
        await watcher.until(lambda each: each.snapshots)
        assert (await client.delete(f"/v1/chats/{chat_id}")).status_code == 200
        answer = await client.get("/v1/chats/subscribe", params={"chat_id": chat_id})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.row("AUTH-2", "CMD-4")
async def test_abort_answers_the_same_for_an_unknown_a_foreign_and_a_deleted_chat(tmp_path: Path) -> None:
    abort = {"type": "abort", "client_request_id": "stop"}
    async with guarded(tmp_path) as server:
        for name in ("anns", "gone"):
            await command(server.url, name, user_message("a", "x"), bearer("ann"))
        async with httpx2.AsyncClient(base_url=server.url) as client:
            assert (await client.delete("/v1/chats/gone", headers=bearer("ann"))).status_code == 200
        answers = [
            await command(server.url, "never-was", abort, bearer("bob")),
            await command(server.url, "anns", abort, bearer("bob")),
            await command(server.url, "gone", abort, bearer("ann")),
            await command(server.url, "gone", abort, bearer("bob")),
        ]
        assert {(answer.status_code, answer.text) for answer in answers} == {(200, '{"status":"aborted"}')}
