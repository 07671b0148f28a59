"""Blobs over HTTP: references to them, how their bytes are served, and which uploads are refused."""

import base64

import httpx2
import pytest

from tests.integration.many import watching_many
from tests.support.reader import Watcher, watching
from tests.support.server import Process, user_message
from tests.unit.pictures import JPEG, PNG, hash_of, png_of
from threadcast_protocol.wire.messages import ImagePart, JsonObject

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": {"url": f"/v1/chats/c1/blobs/{'0' * 64}"}}, "no such blob"),
        ({"type": "image_url", "image_url": {"url": f"/v1/chats/c2/blobs/{hash_of(JPEG)}"}}, "another chat"),
        ({"type": "image_url", "image_url": {"url": f"/v1/chats/c1/blobs/{hash_of(b'text')}"}}, "Invalid image"),
        ({"type": "input_audio", "input_audio": {"blob": "0" * 64, "format": "wav"}}, "no such blob"),
        ({"type": "file", "name": "a", "mime": "b/c", "blob": "0" * 64}, "no such blob"),
        ({"type": "file", "name": "a", "mime": "b/c", "blob": "nonsense"}, "SHA-256"),
    ],
)
async def test_a_reference_to_what_this_chat_does_not_hold_is_refused(
    client: httpx2.AsyncClient, part: JsonObject, words: str
) -> None:
    await client.post("/v1/chats/c1/blobs", content=b"text", headers={"Content-Type": "text/plain"})
    await client.post("/v1/chats/c2/blobs", content=JPEG)
    for body in (
        {**user_message("a", ""), "content": [part]},
        {"type": "retry_from_index", "client_request_id": "b", "index": 0, "content": "x", "attachments": [part]},
        {"type": "edit_queued", "client_request_id": "c", "target_request_id": "x", "content": [part]},
    ):
        answer = await client.post("/v1/chats/c1/commands", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_content")
        assert words in answer.json()["error"]


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/javascript", ""])
async def test_bytes_that_could_be_a_page_are_never_shown_as_one(
    client: httpx2.AsyncClient, chat_id: str, kind: str
) -> None:
    page = b"<script>alert(1)</script>"
    uploaded = await client.post(f"/v1/chats/{chat_id}/blobs", content=page, headers={"Content-Type": kind})
    answer = await client.get(uploaded.json()["url"])
    assert answer.content == page
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["cross-origin-resource-policy"] == "same-site"


async def test_a_blob_is_cached_for_ever_and_asked_for_by_its_tag(client: httpx2.AsyncClient, chat_id: str) -> None:
    url = (await client.post(f"/v1/chats/{chat_id}/blobs", content=PNG)).json()["url"]
    answer = await client.get(url)
    assert (answer.headers["content-type"], answer.headers["content-disposition"]) == ("image/png", "inline")
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    tag = answer.headers["etag"]
    known = await client.get(url, headers={"If-None-Match": tag})
    assert (known.status_code, known.content) == (304, b"")
    other = url.replace(hash_of(PNG), hash_of(JPEG))
    unknown = await client.get(other, headers={"If-None-Match": f'"{hash_of(JPEG)}"'})
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"", "image/png", 400, "bad_request"),
        (b"not a picture", "image/png", 400, "invalid_content"),
        (png_of(12_000_001), "image/png", 413, "too_large"),
        (bytes(16 * 1024 * 1024 + 1), "application/octet-stream", 413, "too_large"),
    ],
)
async def test_an_upload_out_of_bounds_is_refused(
    client: httpx2.AsyncClient, chat_id: str, content: bytes, kind: str, status: int, code: str
) -> None:
    answer = await client.post(f"/v1/chats/{chat_id}/blobs", content=content, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.row("ATT-5")
async def test_who_cannot_fetch_is_sent_data_in_events_in_snapshots_and_on_a_stream_of_many(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    picture = "data:image/png;base64," + base64.b64encode(png_of(200_000)).decode()
    body = {**user_message("a", "look"), "attachments": [{"image_url": {"url": picture}}]}
    async with (
        watching(server.url, chat_id) as plain,
        watching(server.url, chat_id, query="&blobs=inline") as inlined,
    ):
        await inlined.until(lambda w: w.state is not None)
        assert (await client.post(f"/v1/chats/{chat_id}/commands", json=body)).status_code == 202
        await plain.at_rest()
        await inlined.at_rest()
    async with watching(server.url, chat_id, query="&blobs=inline") as late:
        await late.until(lambda w: w.state is not None)
    async with watching_many(server.url, [chat_id, f"{chat_id}-2"], query="blobs=inline") as many:
        await many.until(lambda w: chat_id in w.chats)
    assert picture_in(plain).startswith(f"/v1/chats/{chat_id}/blobs/")
    assert [picture_in(w) for w in (inlined, late, many.chats[chat_id])] == [picture] * 3
    assert inlined.snapshot == late.snapshot
    assert (inlined.last_id, len(inlined.events)) == (plain.last_id, len(plain.events))


def picture_in(watcher: Watcher) -> str:
    assert watcher.state is not None
    content = watcher.state.nodes[watcher.state.path[0]].content
    (picture,) = [part for part in content if isinstance(part, ImagePart)]
    return picture.image_url.url
