"""Export and import over HTTP: an imported chat equals the exported chat byte for byte, no chat is overwritten, and no
chat is imported partially."""

import json
import uuid
from base64 import b64encode
from pathlib import Path

import httpx2
import pytest

from tests.integration.test_auth_http import guarded
from tests.integration.test_chats_http import talk, title
from tests.integration.test_clients_rely_on import configured
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, user_message
from tests.support.tokens import bearer
from tests.unit.pictures import png_of
from threadcast_protocol.wire.errors import IdTaken
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

NOTHING: JsonObject = {"imported": [], "skipped": [], "accepted": [], "failed": []}


def client_of(server: Process, name: str | None = None) -> httpx2.AsyncClient:
    headers = bearer(name) if name else {}
    return httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS, headers=headers)


@pytest.mark.row("SES-6")
async def test_export_delete_import_export_is_byte_identical_for_several_chats_at_once(server: Process) -> None:
    names = [f"move-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for name in names:
        await talk(server.url, name, "hello", "and again")
        await title(server.url, name, f"Title of {name} \u2028")
    async with watching(server.url, names[0]) as watcher:
        await command(server.url, names[0], {"type": "regenerate", "client_request_id": "again"})
        await watcher.until(lambda w: any(f.get("outcome") for f in w.frames[1:]))
    async with client_of(server) as client:
        answers = [await client.get(f"/v1/chats/{name}/export") for name in names]
        assert answers[0].headers["content-type"] == "application/jsonl"
        assert f'filename="{names[0]}.jsonl"' in answers[0].headers["content-disposition"]
        assert [json.loads(line)["type"] for line in answers[0].text.split("\n") if line] == ["chat", *["message"] * 5]
        body = b"".join(answer.content for answer in answers)
        before = [(await client.get(f"/v1/chats/{name}")).json()["messages"] for name in names]
        for name in names:
            await client.delete(f"/v1/chats/{name}")
        imported = await client.post("/v1/chats/import", content=body)
        assert (imported.status_code, imported.json()) == (200, {**NOTHING, "imported": names})
        again = [await client.get(f"/v1/chats/{name}/export") for name in names]
        assert [answer.content for answer in again] == [answer.content for answer in answers]
        after = [(await client.get(f"/v1/chats/{name}")).json()["messages"] for name in names]
        assert [[m["content"] for m in chat] for chat in after] == [[m["content"] for m in chat] for chat in before]
        listed = (await client.get("/v1/chats", params={"q": names[1]})).json()["items"]
        assert [item["message_count"] for item in listed] == [4]
        assert (await client.post("/v1/chats/import", content=body)).json() == {**NOTHING, "skipped": names}
    await talk(server.url, names[2], "it goes on as any chat")


@pytest.mark.row("SES-6")
async def test_large_parts_go_with_their_chat(server: Process, chat_id: str) -> None:
    data = b"a long text \x00" * 10_000
    file = {"type": "file", "name": "a.bin", "mime": "application/octet-stream", "data": b64encode(data).decode()}
    content = [{"type": "text", "text": "see"}, file]
    async with watching(server.url, chat_id) as watcher:
        assert (await command(server.url, chat_id, user_message("a", "x") | {"content": content})).status_code == 202
        await watcher.at_rest()
    async with client_of(server) as client:
        exported = (await client.get(f"/v1/chats/{chat_id}/export")).content
        header, *_, last = [json.loads(line) for line in exported.splitlines()]
        assert (header["blob_count"], last["type"]) == (1, "blob")
        path = f"/v1/chats/{chat_id}/blobs/{last['hash']}"
        assert (await client.get(path)).content == data
        await client.delete(f"/v1/chats/{chat_id}")
        assert (await client.get(path)).status_code == 404
        assert (await client.post("/v1/chats/import", content=exported)).json()["imported"] == [chat_id]
        assert (await client.get(path)).content == data
        assert (await client.get(f"/v1/chats/{chat_id}/export")).content == exported


@pytest.mark.row("SES-6")
async def test_an_import_revives_a_deleted_chat_as_often_as_its_owner_says(server: Process, chat_id: str) -> None:
    await talk(server.url, chat_id, "hello")
    async with client_of(server) as client:
        exported = (await client.get(f"/v1/chats/{chat_id}/export")).content
        for _ in range(2):
            await client.delete(f"/v1/chats/{chat_id}")
            assert (await command(server.url, chat_id, user_message("x", "back?"))).status_code == 404
            answer = await client.post("/v1/chats/import", content=exported)
            assert answer.json() == {**NOTHING, "imported": [chat_id]}
        assert (await client.get(f"/v1/chats/{chat_id}/export")).content == exported


async def test_an_import_changes_no_chat_that_is_there_and_a_bad_line_imports_nothing(
    server: Process, chat_id: str
) -> None:
    await talk(server.url, chat_id, "mine")
    async with client_of(server) as client:
        exported = (await client.get(f"/v1/chats/{chat_id}/export")).content
        fresh = exported.replace(chat_id.encode(), f"{chat_id}-2".encode())
        changed = exported.replace(b"mine", b"other")
        answer = await client.post("/v1/chats/import", content=changed)
        assert answer.json() == {**NOTHING, "skipped": [chat_id]}
        assert (await client.get(f"/v1/chats/{chat_id}/export")).content == exported
        for bad in (fresh + b"{", fresh + b"\n\n" + fresh[: len(fresh) // 2], b"", b"\xff"):
            answer = await client.post("/v1/chats/import", content=bad)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        line = len((fresh + b"{").split(b"\n"))
        answer = await client.post("/v1/chats/import", content=fresh + b"{")
        assert answer.json()["path"] == f"/{line}"
        assert (await client.get(f"/v1/chats/{chat_id}-2")).status_code == 404
        assert (await client.post("/v1/chats/import", content=fresh)).json()["imported"] == [f"{chat_id}-2"]


async def test_a_chat_with_parameters_but_no_messages_takes_an_import(server: Process, chat_id: str) -> None:
    await talk(server.url, chat_id, "hello")
    async with client_of(server) as client:
        exported = (await client.get(f"/v1/chats/{chat_id}/export")).content
        await client.delete(f"/v1/chats/{chat_id}")
        other = f"{chat_id}-2"
        await title(server.url, other, "empty yet")
        answer = await client.post("/v1/chats/import", content=exported.replace(chat_id.encode(), other.encode()))
        assert answer.json()["imported"] == [other]
        assert (await client.get(f"/v1/chats/{other}")).json()["thread"]["title"] == "hello"


async def test_a_chat_with_more_pictures_than_a_body_may_hold_comes_back_whole(server: Process, chat_id: str) -> None:
    pictures = [png_of(7_000_000), png_of(7_000_001)]
    async with client_of(server) as client:
        parts: list[JsonObject] = [{"type": "text", "text": "look"}]
        for picture in pictures:
            stored = (await client.post(f"/v1/chats/{chat_id}/blobs", content=picture)).json()
            parts.append({"type": "image_url", "image_url": {"url": stored["url"]}})
        async with watching(server.url, chat_id) as watcher:
            await command(server.url, chat_id, {**user_message("a", ""), "content": parts})
            await watcher.at_rest()
        exported = (await client.get(f"/v1/chats/{chat_id}/export")).content
        assert len(exported) > 16 * 1024 * 1024
        await client.delete(f"/v1/chats/{chat_id}")
        assert (await client.post("/v1/chats/import", content=exported)).json()["imported"] == [chat_id]
        assert (await client.get(f"/v1/chats/{chat_id}/export")).content == exported


async def test_bodies_of_more_chats_messages_or_bytes_than_are_taken_are_413(tmp_path: Path) -> None:
    counts = '"leaf_id":null,"message_count":{},"payload_count":0,"agent_count":0,"thread":{{}}'
    line = '{{"type":"chat","format":1,"chat_id":"c{}",' + counts + "}}"
    chats = "\n".join(line.format(number, 0) for number in range(1_001))
    limits = "[limits]\nimport_max_bytes = 1_000_000\nimport_max_messages = 20\n"
    async with configured(tmp_path, limits) as server, client_of(server) as client:
        caps = (await client.get("/v1/caps")).json()["limits"]
        assert (caps["import_max_bytes"], caps["import_messages_max_count"]) == (1_000_000, 20)
        for content in (chats.encode(), line.format("x", 21).encode(), b" " * 1_000_001):
            try:
                answer = await client.post("/v1/chats/import", content=content)
            except httpx2.TransportError:
                continue  # the server closed the connection of a sender that did not stop
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert (await client.get("/v1/chats/c1000")).status_code == 404


@pytest.mark.row("AUTH-2")
async def test_an_import_goes_to_the_caller_and_never_into_somebody_elses_chat(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, client_of(server, "ann") as ann, client_of(server, "bob") as bob:
        await talk(server.url, "c1", "anns own", headers=bearer("ann"))
        exported = (await ann.get("/v1/chats/c1/export")).content
        assert (await bob.get("/v1/chats/c1/export")).json() == (await bob.get("/v1/chats/never/export")).json()
        failed = [{"id": "c1", "code": "id_taken", "error": IdTaken().message}]
        assert (await bob.post("/v1/chats/import", content=exported)).json() == {**NOTHING, "failed": failed}
        await ann.delete("/v1/chats/c1")
        assert (await bob.post("/v1/chats/import", content=exported)).json() == {**NOTHING, "failed": failed}
        mine = exported.replace(b'"c1"', b'"c2"')
        assert (await bob.post("/v1/chats/import", content=mine)).json()["imported"] == ["c2"]
        assert (await ann.get("/v1/chats/c2")).status_code == 404
        header, rest = mine.replace(b'"c2"', b'"c3"').split(b"\n", 1)
        thread = {**json.loads(header)["thread"], "autonomous_no_confirm": True}
        sly = json.dumps({**json.loads(header), "thread": thread}).encode() + b"\n" + rest
        (refused,) = (await bob.post("/v1/chats/import", content=sly)).json()["failed"]
        assert (refused["id"], refused["code"]) == ("c3", "forbidden")
        for method, path in (("GET", "/v1/chats/c1/export"), ("POST", "/v1/chats/import")):
            nobody = await ann.request(method, path, headers={"Authorization": "Bearer nobody"})
            assert nobody.status_code == 401
