"""The content that a message may have, row by row of the contract's table; other content is always refused with one of
Threadcast's errors."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pictures import JPEG, PNG, data_url
from threadcast_protocol.wire.content import (
    BINARY_MAX_BYTES,
    CONTEXT_FILE_NOTES_MAX_BYTES,
    MESSAGE_TEXT_MAX_BYTES,
    PARTS_MAX_COUNT,
    check_text,
    read_content,
    read_context_files,
)
from threadcast_protocol.wire.errors import InvalidContent, Refused, TooLarge
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    ImageUrl,
    InputAudio,
    JsonObject,
    Part,
    TextPart,
    content_text,
    preview_of,
)

GIF = b"GIF89a" + bytes(16)
WEBP = b"RIFF\x10\0\0\0WEBP" + bytes(16)


def image(url: object) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": url}}


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def refusal(content: object, attachments: list[JsonObject] | None = None) -> InvalidContent:
    with pytest.raises(InvalidContent) as refused:
        read_content(content, attachments or [])
    return refused.value


# --- what is accepted


def test_string_stays_a_string() -> None:
    assert read_content(" hello\nworld ", []) == " hello\nworld "


@pytest.mark.row("ATT-1")
def test_every_kind_of_part_is_read_in_order() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    file = {"type": "file", "name": "a.pdf", "mime": "application/pdf", "data": "AAAA"}
    note = {"type": "file", "name": "b 👩\u200d🚀.txt", "mime": "text/plain", "text": "hello"}
    expected: list[Part] = [
        TextPart("look"),
        ImagePart(ImageUrl(data_url(PNG), "low")),
        AudioPart(InputAudio("AAAA", "wav")),
        FilePart("a.pdf", "application/pdf", data="AAAA"),
        FilePart("b 👩\u200d🚀.txt", "text/plain", text="hello"),
    ]
    picture = {"type": "image_url", "image_url": {"url": data_url(PNG), "detail": "low"}}
    assert read_content([text("look"), picture, audio, file, note], []) == expected


def test_attachments_are_appended_to_the_parts() -> None:
    short = {"image_url": {"url": data_url(PNG)}}
    expected = [TextPart("look"), ImagePart(ImageUrl(data_url(PNG))), TextPart("and this")]
    assert read_content("look", [short, text("and this")]) == expected
    assert read_content([text("look")], [short, text("and this")]) == expected


@pytest.mark.parametrize("blank", ["", " \n", []])
def test_blank_content_with_an_attachment_is_the_attachment(blank: object) -> None:
    assert read_content(blank, [image(data_url(PNG))]) == [ImagePart(ImageUrl(data_url(PNG)))]


@pytest.mark.parametrize(
    "url",
    [data_url(PNG), data_url(JPEG, "jpeg"), data_url(JPEG, "jpg"), data_url(GIF, "gif"), data_url(WEBP, "webp")],
)
def test_image_of_the_four_formats_is_accepted(url: str) -> None:
    assert read_content([image(url)], []) == [ImagePart(ImageUrl(url))]


def test_reference_to_a_blob_of_ours_is_accepted_as_an_image() -> None:
    url = "/v1/chats/c-1/blobs/" + "0a" * 32
    assert read_content([image(url)], []) == [ImagePart(ImageUrl(url))]


def test_parts_of_the_older_form_are_read() -> None:
    encoded = base64.b64encode(PNG).decode()
    older = [{"m_type": "text", "m_content": "look"}, {"m_type": "image/png", "m_content": encoded}]
    assert read_content(older, []) == [TextPart("look"), ImagePart(ImageUrl(data_url(PNG)))]


def test_image_of_exactly_the_largest_size_is_accepted() -> None:
    largest = PNG + bytes(BINARY_MAX_BYTES - len(PNG))
    assert isinstance(read_content([image(data_url(largest))], []), list)
    with pytest.raises(InvalidContent, match="Invalid image"):
        read_content([image(data_url(largest + b"\0"))], [])


def test_twenty_images_are_accepted_and_one_more_is_not() -> None:
    twelve, eight = [image(data_url(PNG))] * 12, [image(data_url(PNG))] * 8
    assert len(read_content(twelve, eight)) == 20
    with pytest.raises(InvalidContent, match="image"):
        read_content(twelve, [*eight, {"image_url": {"url": data_url(PNG)}}])
    with pytest.raises(InvalidContent, match="at most 2 images"):
        read_content(twelve, [], max_images=2)


# --- what is refused


@pytest.mark.parametrize(
    ("content", "path", "words"),
    [
        ("", "/content", "empty"),
        (" \t\n", "/content", "empty"),
        ([], "/content", "empty"),
        ([text(" ")], "/content", "empty"),
        (None, "/content", "string or a list"),
        (7, "/content", "string or a list"),
        ({"type": "text", "text": "a"}, "/content", "string or a list"),
        (["a"], "/content/0", "type"),
        ([text("a"), {"text": "b"}], "/content/1", "type"),
        ([{"type": None, "text": "b"}], "/content/0", "type"),
        ([{"type": "video"}], "/content/0/type", "type"),
        ([{"m_type": "video/mp4", "m_content": "AAAA"}], "/content/0/m_type", "type"),
        ([{"m_type": "text"}], "/content/0/m_content", "string"),
        ([{"type": "text"}], "/content/0/text", "text"),
        ([{"type": "text", "text": 5}], "/content/0/text", "text"),
        ([{"type": "image_url"}], "/content/0/image_url", "image_url.url"),
        ([{"type": "image_url", "image_url": "x"}], "/content/0/image_url", "image_url.url"),
        ([image(None)], "/content/0/image_url", "image_url.url"),
        ([{"type": "image_url", "image_url": {"url": data_url(PNG), "detail": 1}}], "/content/0/image_url/detail", ""),
        ([{"type": "input_audio"}], "/content/0/input_audio", "input_audio"),
        ([{"type": "input_audio", "input_audio": {"data": "A"}}], "/content/0/input_audio/data", "base64"),
        ([{"type": "input_audio", "input_audio": {"data": "AAAA"}}], "/content/0/input_audio/format", "string"),
        ([{"type": "file", "mime": "a/b", "text": "x"}], "/content/0/name", "string"),
        ([{"type": "file", "name": "a\nb", "mime": "a/b", "text": "x"}], "/content/0/name", "one line"),
        ([{"type": "file", "name": "a", "mime": "a/b"}], "/content/0", "either"),
        ([{"type": "file", "name": "a", "mime": "a/b", "text": "x", "data": "AAAA"}], "/content/0", "either"),
        ([{"type": "file", "name": "a", "mime": "a/b", "data": "A A="}], "/content/0/data", "base64"),
    ],
)
def test_malformed_content_is_refused_with_the_place_and_the_reason(content: object, path: str, words: str) -> None:
    refused = refusal(content)
    assert (refused.code, refused.path) == ("invalid_content", path)
    assert words in refused.message


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://example.org/a.png",
        "javascript:alert(1)//" + data_url(PNG),
        " " + data_url(PNG),
        data_url(PNG) + "\n",
        data_url(PNG) + '" onerror="x',
        data_url(PNG).replace("base64", "charset=utf-8;base64"),
        data_url(PNG, "svg+xml"),
        data_url(PNG, "PNG"),
        "data:image/png," + base64.b64encode(PNG).decode(),
        "data:text/html;base64,AAAA",
        "/v1/chats/c1/blobs/../../x",
        "/v1/chats/c1/blobs/a?b",
        "/v1/chats/c1/blobs/",
        "//evil/v1/chats/c1/blobs/a",
        data_url(PNG)[:-6] + "é",
    ],
)
def test_image_url_that_is_neither_whole_data_nor_our_blob_is_refused(url: str) -> None:
    for refused in (refusal([image(url)]), refusal("look", [{"image_url": {"url": url}}])):
        assert refused.message.startswith("Invalid image URL")


@pytest.mark.parametrize("encoded", ["", "A", "AAA", "AAAA=", "AA=A", "====", base64.b64encode(b"<svg>").decode()])
def test_image_of_broken_base64_or_unknown_header_is_refused(encoded: str) -> None:
    assert refusal([image(f"data:image/png;base64,{encoded}")]).message.startswith("Invalid image")


def test_refused_attachment_is_named_by_its_own_place() -> None:
    assert refusal("look", [text("fine"), {"type": "text"}]).path == "/attachments/1/text"


def test_text_of_a_message_is_bounded_over_all_its_parts() -> None:
    half = "é" * (MESSAGE_TEXT_MAX_BYTES // 4)
    note = {"type": "file", "name": "a", "mime": "text/plain", "text": half}
    assert len(read_content([text(half), note], [])) == 2
    assert read_content(half + half, []) == half + half
    for content in (half + half + "x", [text(half), note, text("x")], "x" * (MESSAGE_TEXT_MAX_BYTES + 1)):
        with pytest.raises(TooLarge):
            read_content(content, [])


def test_text_of_an_ide_result_is_bounded() -> None:
    assert check_text("é" * (MESSAGE_TEXT_MAX_BYTES // 2), "/content")
    with pytest.raises(TooLarge) as refused:
        check_text("é" * (MESSAGE_TEXT_MAX_BYTES // 2) + "x", "/content")
    assert refused.value.path == "/content"


def test_count_of_parts_is_bounded() -> None:
    assert len(read_content([text("a")] * PARTS_MAX_COUNT, [])) == PARTS_MAX_COUNT
    assert "parts" in refusal([text("a")] * PARTS_MAX_COUNT, [text("a")]).message


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
_keys = st.sampled_from(
    ["type", "text", "image_url", "url", "detail", "input_audio", "data", "format", "name", "mime", "m_type",
     "m_content", "file_content", "content"]
)  # fmt: skip
_words = st.sampled_from(["text", "image_url", "input_audio", "file", "image/png", "AAAA", data_url(PNG), "a"])
_parts = st.recursive(
    _words | _json, lambda inner: st.dictionaries(_keys, inner, max_size=5) | st.lists(inner, max_size=3), max_leaves=12
)


@given(_parts, st.lists(st.dictionaries(_keys, _parts, max_size=4), max_size=2))
def test_arbitrary_json_is_read_or_refused_and_never_raises_anything_else(
    content: object, attachments: list[JsonObject]
) -> None:
    preview_of(content)
    for read in (lambda: read_content(content, attachments), lambda: read_context_files(attachments)):
        try:
            read()
        except Refused as refused:
            assert refused.path is not None
            assert refused.path.startswith("/")


# --- context files


def test_context_files_are_kept_as_they_came() -> None:
    files: list[JsonObject] = [
        {"file_name": "a.py", "file_content": "x" * 30_000, "line1": 1},
        {"name": "b", "content": "y" * 20_000},
    ]
    assert read_context_files(files) == files


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ([{"content": "a"}] * 6, "/context_files"),
        ([{"content": "a" * 50_001}], "/context_files/0/content"),
        ([{"file_content": "a" * 30_000}, {"content": "a" * 20_001}], "/context_files/1/content"),
        ([{"name": "a"}], "/context_files/0/content"),
        ([{"content": "a"}, {"content": 7}], "/context_files/1/content"),
        ([{"content": "a", "name": "b" * CONTEXT_FILE_NOTES_MAX_BYTES}], "/context_files/0"),
    ],
)
def test_too_many_too_long_or_textless_context_files_are_refused(files: list[JsonObject], path: str) -> None:
    with pytest.raises(InvalidContent) as refused:
        read_context_files(files)
    assert refused.value.path == path


# --- the items of a queue


def test_preview_is_the_beginning_of_the_text_or_says_that_it_is_an_attachment() -> None:
    assert preview_of("é" * 500) == "é" * 120
    assert preview_of([image(data_url(PNG)), text("look"), {"m_type": "text", "m_content": "here"}]) == "look\nhere"
    assert preview_of([TextPart("read")]) == "read"
    for without_text in ("", " ", [], [image(data_url(PNG))], [ImagePart(ImageUrl("x"))], None):
        assert preview_of(without_text) == "[Image attachment]"


def test_content_text_is_cut_at_its_limit() -> None:
    assert content_text("x" * 9000) == "x" * 8192
    assert content_text([text("x" * 8000), text("y" * 8000)]) == "x" * 8000 + "\n" + "y" * 191
    assert content_text(None) == ""
