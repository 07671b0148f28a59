"""Edits over real HTTP: an image that an edit does not name remains in the message, as a blob of its chat; [] removes
the image."""

import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, user_message
from tests.unit.pictures import data_url, png_of
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("CMD-7", "CMD-17")]

WAIT = {"Prefer": "wait=20"}


def parts_of(message: JsonObject) -> list[str]:
    """Return the text of text parts, and the type of every other part."""
    content = message["content"]
    return [content] if isinstance(content, str) else [part.get("text") or part["type"] for part in content]


async def messages(server: Process, chat_id: str) -> list[JsonObject]:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        found: list[JsonObject] = (await client.get(f"{server.url}/v1/chats/{chat_id}")).json()["messages"]
    return found


async def edit(server: Process, tab: Watcher, request_id: str, **what: object) -> JsonObject:
    """Edits the first message and returns it."""
    target = (await messages(server, tab.chat_id))[0]["message_id"]
    body = {"type": "update_message", "client_request_id": request_id, "message_id": target, **what}
    assert (await command(server.url, tab.chat_id, body, WAIT)).json()["accepted"] is True
    return (await messages(server, tab.chat_id))[0]


@pytest.mark.parametrize("mode", ["in_place", "branch"])
async def test_new_words_leave_the_image_and_an_empty_list_removes_it(server: Process, chat_id: str, mode: str) -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(png_of(100_000))}}
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", "what is it?", attachments=[image]))
        await tab.at_rest()
        edited = await edit(server, tab, "b", content="and now?", mode=mode)
        assert parts_of(edited) == ["and now?", "image_url"]
        assert edited["content"][1]["image_url"]["url"].startswith(f"/v1/chats/{chat_id}/blobs/")
        assert len(edited["attachments"]) == 1
        more = await edit(server, tab, "c", attachments=[image, image], mode=mode)
        assert parts_of(more) == ["and now?", "image_url", "image_url"]
        assert parts_of(await edit(server, tab, "d", attachments=[], mode=mode)) == ["and now?"]
        nothing = {"type": "update_message", "client_request_id": "e", "message_id": edited["message_id"]}
        refused = await command(server.url, chat_id, nothing)
        assert (refused.status_code, refused.json()["path"]) == (400, "/content")


async def test_a_waiting_message_is_edited_by_the_same_rule(server: Process, chat_id: str) -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(png_of(100_000))}}
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("first", "x", params={"model": "demo/hang"}))
        await tab.until(lambda w: "stream_started" in w.types())
        await command(server.url, chat_id, user_message("w", "old", attachments=[image]))
        for name, what in (("e", {"content": "new"}), ("f", {"attachments": []}), ("g", {"attachments": [image]})):
            body = {"type": "edit_queued", "client_request_id": name, "target_request_id": "w", **what}
            assert (await command(server.url, chat_id, body, WAIT)).json()["accepted"] is True
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await tab.at_rest(2)
    asked = [message for message in await messages(server, chat_id) if message["role"] == "user"]
    assert parts_of(asked[1]) == ["new", "image_url"]
