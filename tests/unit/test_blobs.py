"""The pure parts of blobs: which content is stored as a blob, how references are found, and how bytes replace
references."""

import base64
import json
from collections.abc import Callable
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pictures import JPEG, PNG, hash_of, png_of
from threadcast.chat.facts import CommandQueued
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import (
    INLINE_MAX_BYTES,
    LARGE_PART_BYTES,
    Blob,
    BlobCollector,
    BlobFacts,
    attachments_of,
    blob_hashes,
    blob_url,
    data_url,
    decode_base64,
    encode_base64,
    image_mime,
    move_to,
    parse_blob_url,
    put_inline,
    with_facts,
)
from threadcast_protocol.wire.commands import UserMessage, decode_command, encode_command
from threadcast_protocol.wire.content import read_content
from threadcast_protocol.wire.errors import InvalidContent
from threadcast_protocol.wire.events import MessageAdded
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    ImageUrl,
    InputAudio,
    JsonObject,
    Message,
    Part,
    TextPart,
)
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.row("ATT-5")

sizes = st.sampled_from([1, 100, LARGE_PART_BYTES, 60_000])


def _payload(seed: int, size: int) -> bytes:
    return (seed.to_bytes(2, "big") * size)[:size]


def _image(seed: int, size: int) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": data_url("image/png", PNG + _payload(seed, size))}}


def _audio(seed: int, size: int) -> JsonObject:
    return {"type": "input_audio", "input_audio": {"data": encode_base64(_payload(seed, size)), "format": "wav"}}


def _file(seed: int, size: int) -> JsonObject:
    return {"type": "file", "name": "a b", "mime": "x/y", "data": encode_base64(_payload(seed, size))}


def _text_file(seed: int, size: int) -> JsonObject:
    return {"type": "file", "name": "a", "mime": "text/x", "text": ("é" + chr(65 + seed % 26) * size)[:size]}


kinds = st.sampled_from([_image, _audio, _file, _text_file])
recipes = st.lists(st.tuples(kinds, st.integers(0, 60_000), sizes), min_size=1, max_size=4)
"""Four blobs of the maximum size contain less text than a message may have."""

Recipe: TypeAlias = list[tuple[Callable[[int, int], JsonObject], int, int]]


def made(recipe: Recipe) -> list[JsonObject]:
    return [kind(seed, size) for kind, seed, size in recipe]


def shelved(content: object, chat_id: str = "c1") -> tuple[list[Part], BlobCollector]:
    collector = BlobCollector(chat_id)
    read = read_content(content, [], collector=collector)
    assert not isinstance(read, str)
    return read, collector


@given(recipes)
def test_putting_the_bytes_back_gives_what_the_client_sent(recipe: Recipe) -> None:
    content = made(recipe)
    read, collector = shelved(content)
    plain = read_content(content, [])
    back = json.loads(put_inline(msgspec.json.encode(read), collector.blobs))
    for part in back:
        for place in (part, part.get("image_url", {}), part.get("input_audio", {})):
            place.pop("bytes", None)
            place.pop("mime", None) if place is not part else None
    assert msgspec.convert(back, list[Part]) == plain


@given(recipes)
def test_every_reference_is_found_in_events_and_in_commands_inside_of_facts(recipe: Recipe) -> None:
    read, collector = shelved(made(recipe))
    command = UserMessage(client_request_id="r", content=read)
    body = encode_command(command).decode()
    fact = CommandQueued(request_id="r", principal=LOCAL, body=body, at_ms=1, index=0)
    event = MessageAdded(Message(role="user", content=read, message_id="m"), 0)
    assert set(blob_hashes(encode([event]))) == set(collector.blobs)
    assert set(blob_hashes(b"[]", encode([fact]))) == set(collector.blobs)


@given(recipes)
def test_what_is_read_a_second_time_is_the_same_and_needs_no_bytes(recipe: Recipe) -> None:
    read, _ = shelved(made(recipe))
    again = decode_command(encode_command(UserMessage(client_request_id="r", content=read)))
    assert isinstance(again, UserMessage)
    assert read_content(again.content, []) == read


def test_a_part_is_large_above_32_kb_or_when_small_ones_add_up() -> None:
    fits = LARGE_PART_BYTES // 4 * 3
    _, collector = shelved([_audio(1, fits)])
    assert collector.blobs == {}
    _, collector = shelved([_audio(1, fits + 1)])
    assert len(collector.blobs) == 1
    _, collector = shelved([_audio(n, fits) for n in range(20)])
    assert len(collector.blobs) == 20 - INLINE_MAX_BYTES // LARGE_PART_BYTES


def test_the_same_bytes_are_put_aside_once() -> None:
    read, collector = shelved([_image(1, 50_000), _image(1, 50_000)])
    assert read[0] == read[1] and len(collector.blobs) == 1


def test_references_take_the_place_of_bytes() -> None:
    image, sound = png_of(40_000), bytes(40_000)
    (shown, heard, kept, said), _ = shelved(
        [
            {"type": "image_url", "image_url": {"url": data_url("image/png", image), "detail": "low"}},
            _audio(0, 40_000),
            {"type": "file", "name": "n", "mime": "x/y", "data": encode_base64(sound)},
            {"type": "file", "name": "n", "mime": "x/y", "text": "t" * 40_000},
        ]
    )
    assert shown == ImagePart(ImageUrl(blob_url("c1", hash_of(image)), "low", "image/png", 40_000))
    assert heard == AudioPart(InputAudio(format="wav", blob=hash_of(sound), bytes=40_000))
    assert kept == FilePart("n", "x/y", blob=hash_of(sound), bytes=40_000)
    assert said == FilePart("n", "x/y", text_blob=hash_of(b"t" * 40_000), bytes=40_000)


def test_what_a_client_says_of_a_blob_is_replaced_by_what_is_known() -> None:
    hash = "a" * 64
    told: list[Part] = [
        ImagePart(ImageUrl(blob_url("c1", hash), mime="image/gif", bytes=1)),
        AudioPart(InputAudio(format="wav", blob=hash, bytes=1)),
        FilePart("n", "x/y", blob=hash),
        FilePart("n", "x/y", text_blob=hash, bytes=1),
        FilePart("n", "x/y", text="stays"),
    ]
    image, sound, file, text, plain = with_facts(told, {hash: BlobFacts("image/png", 7)})
    assert isinstance(image, ImagePart) and (image.image_url.mime, image.image_url.bytes) == ("image/png", 7)
    assert isinstance(sound, AudioPart) and sound.input_audio.bytes == 7
    assert isinstance(file, FilePart) and isinstance(text, FilePart) and (file.bytes, text.bytes) == (7, 7)
    assert plain == told[-1]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "name": "a", "mime": "b", "blob": "a" * 64, "data": "AAAA"},
        {"type": "file", "name": "a", "mime": "b", "blob": "a" * 63},
        {"type": "file", "name": "a", "mime": "b", "blob": "A" * 64},
        {"type": "file", "name": "a", "mime": "b", "text_blob": 5},
        {"type": "input_audio", "input_audio": {"blob": "../../x", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "/v1/chats/other/blobs/" + "a" * 64}},
    ],
)
def test_a_reference_of_another_form_or_chat_is_refused(part: JsonObject) -> None:
    with pytest.raises(InvalidContent):
        shelved([part])


@given(st.binary(max_size=700_000) | st.binary(max_size=100))
def test_base64_in_steps_is_base64(data: bytes) -> None:
    encoded = encode_base64(data)
    assert encoded == base64.b64encode(data).decode()
    assert decode_base64(encoded) == data


@pytest.mark.parametrize("at", [0, 262_143, 262_144, 300_000])
@pytest.mark.parametrize("wrong", ["=", "-", "é", "\n"])
def test_base64_with_one_wrong_character_anywhere_is_refused(at: int, wrong: str) -> None:
    encoded = encode_base64(bytes(300_000))
    with pytest.raises(ValueError):
        decode_base64(encoded[:at] + wrong + encoded[at + 1 :])


def test_padding_between_two_steps_is_refused() -> None:
    step = encode_base64(bytes(196_607))  # 262,144 characters, the last of them padding
    assert len(step) == 262_144 and step.endswith("=")
    with pytest.raises(ValueError):
        decode_base64(step + "AAAA")


def test_a_name_in_a_text_costs_nothing_and_harms_nothing() -> None:
    assert blob_hashes(b'{"text":"no blob here"}') == ()
    assert blob_hashes(b'{"text":"/v1/chats/c1/blobs/' + b"a" * 65 + b'"}') == ()
    assert blob_hashes(b'{"text":"see /v1/chats/c1/blobs/' + b"a" * 64 + b'"}') == ("a" * 64,)


def test_what_is_not_there_stays_a_reference() -> None:
    raw = msgspec.json.encode({"image_url": {"url": blob_url("c1", "a" * 64)}, "blob": "b" * 64})
    assert json.loads(put_inline(raw, {})) == json.loads(raw)
    held = {"a" * 64: Blob("a" * 64, "image/png", PNG)}
    assert json.loads(put_inline(raw, held))["image_url"]["url"] == data_url("image/png", PNG)


def test_copied_messages_refer_to_the_chat_they_are_in() -> None:
    hash = hash_of(PNG)
    raw = msgspec.json.encode([ImageUrl(blob_url("old-1", hash)), "/v1/chats/old-1/blobs/x"])
    moved = json.loads(move_to("new", raw))
    assert moved[0]["url"] == blob_url("new", hash) and parse_blob_url(moved[0]["url"]) == ("new", hash)
    assert moved[1] == "/v1/chats/old-1/blobs/x"


@pytest.mark.row("ATT-1")
def test_a_message_lists_its_attachments_for_people() -> None:
    assert attachments_of("words", "c1") == []
    listed = attachments_of(
        [
            TextPart("words"),
            ImagePart(ImageUrl(data_url("image/jpeg", JPEG))),
            FilePart("b.txt", "text/plain", text="é"),
            FilePart("c.bin", "x/y", blob="a" * 64, bytes=9),
        ],
        "c1",
    )
    assert listed == [
        {"type": "image_url", "mime": "image/jpeg", "bytes": len(JPEG)},
        {"type": "file", "name": "b.txt", "mime": "text/plain", "bytes": 2},
        {"type": "file", "name": "c.bin", "mime": "x/y", "bytes": 9, "url": blob_url("c1", "a" * 64)},
    ]


@pytest.mark.parametrize("mime", ["text/html\r\nX: y", "é/é", "nonsense", "", "a/" + "b" * 200])
def test_a_type_that_is_none_counts_as_bytes(mime: str) -> None:
    collector = BlobCollector("c1")
    assert collector.blobs[collector.put(b"x", mime)].mime == "application/octet-stream"
    assert collector.blobs[collector.put(PNG, mime)].mime == image_mime(PNG) == "image/png"
