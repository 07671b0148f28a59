"""Data in place of references to blobs, for clients that cannot fetch: `threadcast.api.blobs.inline_blobs`."""

import json

import pytest

from tests.unit.pictures import PNG, hash_of
from threadcast.api.blobs import inline_blobs
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import Blob, blob_url, data_url
from threadcast_protocol.wire.events import MessageAdded
from threadcast_protocol.wire.messages import AudioPart, FilePart, ImagePart, ImageUrl, InputAudio, Message

pytestmark = [pytest.mark.anyio, pytest.mark.row("ATT-5")]


async def test_an_event_carries_its_bytes_for_who_cannot_fetch() -> None:
    held = {hash_of(data): Blob(hash_of(data), mime, data) for data, mime in ((PNG, "image/png"), (b"t", "text/plain"))}
    asked: list[str] = []

    async def fetch(hash: str) -> Blob | None:
        asked.append(hash)
        return held.get(hash)

    url, gone = blob_url("c1", hash_of(PNG)), blob_url("c1", "a" * 64)
    message = Message(
        role="user",
        message_id="m",
        content=[
            ImagePart(ImageUrl(url, mime="image/png", bytes=len(PNG))),
            AudioPart(InputAudio(format="wav", blob=hash_of(b"t"))),
            FilePart("a", "b/c", blob=hash_of(b"t")),
            FilePart("a", "b/c", text_blob=hash_of(b"t")),
            ImagePart(ImageUrl(gone)),
        ],
        attachments=[{"type": "image_url", "url": url}],
    )
    shown = json.loads(await inline_blobs(encode(MessageAdded(message, 0)), fetch))["message"]
    image, sound, file, text, lost = shown["content"]
    assert image["image_url"]["url"] == shown["attachments"][0]["url"] == data_url("image/png", PNG)
    assert sound["input_audio"] == {"format": "wav", "data": "dA=="}
    assert (file["data"], text["text"]) == ("dA==", "t")
    assert lost["image_url"]["url"] == gone
    assert sorted(asked) == sorted([hash_of(PNG), hash_of(b"t"), "a" * 64]), "each is read once"


async def test_what_refers_to_nothing_passes_as_the_bytes_it_is() -> None:
    async def fetch(hash: str) -> Blob | None:
        raise AssertionError("nothing to fetch")

    raw = b'{"type":"stream_delta", "ops":[] }'
    assert await inline_blobs(raw, fetch) is raw
