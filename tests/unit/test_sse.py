"""Framing in both directions: the reader receives exactly the sent text, wherever the bytes are cut, and no text can
forge a field."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadcast_protocol.framing.codec import encode
from threadcast_protocol.framing.sse import (
    CommentFrame,
    EventFrame,
    Frame,
    FrameParser,
    ParsedFrame,
    RetryFrame,
    encode_event,
    heartbeat,
    retry,
    snapshot_frame,
    transient_frame,
)
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.errors import BadRequest, Internal, ThreadcastError, TooLarge
from threadcast_protocol.wire.events import PauseCleared, StreamDelta
from threadcast_protocol.wire.ids import Position

EPOCH = 1_763_690_000_000


def parse(*chunks: bytes, max_bytes: int = 1000) -> tuple[list[ParsedFrame], bool]:
    """Return all frames of these chunks, and whether the parser gave up."""
    parser = FrameParser(max_bytes)
    frames: list[ParsedFrame] = []
    try:
        for chunk in (*chunks, b""):
            frames += parser.feed(chunk)
    except TooLarge:
        return frames, True
    return frames, False


def events_of(data: bytes) -> list[ParsedFrame]:
    return parse(data, max_bytes=1_000_000)[0]


# --- the way out


@pytest.mark.row("EVT-1", "EVT-3")
def test_frame_has_the_data_line_first_and_splices_seq_and_base_per_reader() -> None:
    event = StreamDelta("m2", [AppendContent("hé\n")])
    frame = Frame("c1", encode(event), EPOCH, 107)
    head = b'data: {"chat_id":"c1","seq":"%d","type":"stream_delta","message_id":"m2",'
    body = '"ops":[{"op":"append_content","text":"hé\\n"}]}'.encode()
    tail = b"\nid: 1763690000000-107-%d\n\n"
    assert frame.for_base(100) == head % 7 + body + tail % 100
    assert frame.for_base(0) == head % 107 + body + tail % 0
    assert frame.for_base(100) == head % 7 + body + tail % 100


def test_readers_with_one_base_share_the_same_bytes() -> None:
    frame = Frame("c1", encode(PauseCleared()), EPOCH, 5)
    assert frame.for_base(4) is frame.for_base(4)


def test_snapshot_frame_has_seq_zero_and_is_its_own_base() -> None:
    frame = snapshot_frame("c1", b'{"type":"snapshot"}', EPOCH, 107)
    assert frame == b'data: {"chat_id":"c1","seq":"0","type":"snapshot"}\nid: 1763690000000-107-107\n\n'


def test_transient_frame_has_neither_seq_nor_id() -> None:
    assert transient_frame("c1", b'{"type":"typing"}') == b'data: {"chat_id":"c1","type":"typing"}\n\n'


@pytest.mark.row("NET-4")
def test_heartbeat_is_a_comment_and_retry_a_field_and_neither_ends_an_event() -> None:
    assert heartbeat(1_763_690_000) == b": hb 1763690000\n"
    assert retry(750) == b"retry: 750\n"


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_raw_line_end_in_event_json_is_refused(line_end: str) -> None:
    forged = b'{"type":"x","text":"a' + line_end.encode() + b'id: 9-9-9"}'
    for make in (lambda: Frame("c1", forged, 1, 1), lambda: snapshot_frame("c1", forged, 1, 1)):
        with pytest.raises(Internal):
            make()
    with pytest.raises(Internal):
        transient_frame("c1", forged)


@pytest.mark.parametrize("not_an_event", [b"", b"{}", b'{"kind":1}', b' {"type":"x"}', b'[{"type":"x"}]'])
def test_json_that_does_not_begin_with_its_type_is_refused(not_an_event: bytes) -> None:
    with pytest.raises(Internal):
        Frame("c1", not_an_event, 1, 1)


def test_chat_id_that_could_leave_its_string_is_refused() -> None:
    with pytest.raises(BadRequest):
        Frame('c1","seq":"9', b'{"type":"x"}', 1, 1)


@given(st.text(), st.integers(0, 10**9), st.integers(1, 10**6), st.integers(0, 10**15))
def test_client_reads_back_text_seq_and_position(text: str, base: int, ahead: int, epoch: int) -> None:
    event = StreamDelta("m2", [AppendContent(text)])
    (frame,) = events_of(Frame("c1", encode(event), epoch, base + ahead).for_base(base))
    assert isinstance(frame, EventFrame)
    assert json.loads(frame.data) == {
        "chat_id": "c1",
        "seq": str(ahead),
        "type": "stream_delta",
        "message_id": "m2",
        "ops": [{"op": "append_content", "text": text}],
    }
    assert Position.parse(frame.last_event_id) == (epoch, base + ahead, base)


def test_line_ends_in_data_become_further_data_lines() -> None:
    assert encode_event("text", "a\nid: 7\r\n\r") == b"event: text\ndata: a\ndata: id: 7\ndata: \ndata: \n\n"


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "\n", "a\0"])
def test_line_end_or_nul_in_event_or_id_is_refused(bad: str) -> None:
    with pytest.raises(Internal):
        encode_event(bad, "x")
    with pytest.raises(Internal):
        encode_event(None, "x", id=bad)


_plain = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=10)


@given(st.none() | _plain, st.text(), st.none() | _plain)
@example("", "", "")
@example(" a", " b", " c")
def test_encoding_then_parsing_is_identity_but_for_the_kind_of_line_end(
    event: str | None, data: str, id: str | None
) -> None:
    read = events_of(encode_event(event, data, id))
    data_read = re.sub("\r\n|\r", "\n", data).encode("utf-8", "replace").decode()
    assert read == [EventFrame(data_read, event or "message", id or "")]


# --- the way in


@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        (b"data: a\n\n", [EventFrame("a")]),
        (b"data:a\r\rdata: b\r\n\r\n", [EventFrame("a"), EventFrame("b")]),
        (b"data:  a\ndata\ndata:\ndata: b:c\n\n", [EventFrame(" a\n\n\nb:c")]),
        (b"data: a\r\ndata: b\r\n\r\n", [EventFrame("a\nb")]),
        (b"data\n\n", [EventFrame("")]),
        (b"\xef\xbb\xbfdata: a\n\n", [EventFrame("a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [EventFrame("a")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [EventFrame("a", "x"), EventFrame("b")]),
        (b"event: x\n\ndata: b\n\n", [EventFrame("b")]),
        (b"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", [EventFrame("a", "message", "7"),
         EventFrame("b", "message", "7"), EventFrame("c")]),
        (b"id: 7\n\ndata: a\n\n", [EventFrame("a", "message", "7")]),
        (b"id: 7\nid: 8\0\ndata: a\n\n", [EventFrame("a", "message", "7")]),
        (b": hb 5\n\n:\n", [CommentFrame("hb 5"), CommentFrame("")]),
        (b"data: a\n: between\ndata: b\n\n", [CommentFrame("between"), EventFrame("a\nb")]),
        (b"retry: 750\nretry: 7x\nretry:\nretry: -1\nretry: \xd9\xa3\n\n", [RetryFrame(750)]),
        (b"retry: " + b"9" * 5000 + b"\n", []),
        (b"unknown: a\nDATA: b\n data: c\n\n", []),
        (b"data: \xff\xf0\x9f\n\n", [EventFrame("\ufffd\ufffd")]),
        (b"data: unfinished\n", []),
        (b"", []),
    ],
)  # fmt: skip
def test_parser_follows_the_html_standard(stream: bytes, frames: list[ParsedFrame]) -> None:
    assert events_of(stream) == frames
    assert parse(*(bytes([byte]) for byte in stream), max_bytes=1_000_000) == (frames, False)


_pieces = st.sampled_from(
    [b"data: ", b"data", b"id: ", b"event:", b"retry: 3", b": hb", b"\n", b"\r", b"\r\n", b"\n\n", b"\xef\xbb\xbf",
     "é😀".encode(), b"\xf0\x9f", b"\0", b" ", b"text", b"x" * 60]
)  # fmt: skip
_streams = st.lists(_pieces | st.binary(max_size=8), max_size=40).map(b"".join)


@given(_streams, st.lists(st.integers(0, 400), max_size=12), st.sampled_from([20, 80, 1000]))
def test_bytes_cut_anywhere_parse_to_the_same_frames(stream: bytes, cuts: list[int], max_bytes: int) -> None:
    edges = [0, *sorted(cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    whole = parse(stream, max_bytes=max_bytes)
    assert parse(*chunks, max_bytes=max_bytes) == whole
    assert parse(*(bytes([byte]) for byte in stream), max_bytes=max_bytes) == whole


@pytest.mark.parametrize(
    "before", [b"", b"data: a\n", b"event: e\n", b"id: 1\n", b"da", b"\n\r", b"\xef\xbb\xbf", b"id\r"]
)
@pytest.mark.parametrize("after", [b"", b"\n", b"\xef\xbb\xbfdata: b\n\n", b"data: b"])
@pytest.mark.parametrize("max_bytes", [18, 1_000])
def test_blocks_that_come_whole_read_as_those_that_come_byte_by_byte(
    before: bytes, after: bytes, max_bytes: int
) -> None:
    blocks = b"data: some words\nid: 7-8-9\n\ndata: more\nid: 7-9-9\n\n"
    by_bytes = parse(*(bytes([byte]) for byte in before + blocks + after), max_bytes=max_bytes)
    assert parse(before, blocks, after, max_bytes=max_bytes) == by_bytes


@given(st.lists(st.binary()))
def test_arbitrary_bytes_raise_nothing_but_our_own_error(chunks: list[bytes]) -> None:
    parser = FrameParser(max_bytes=30)
    for chunk in chunks:
        try:
            parser.feed(chunk)
        except ThreadcastError as ours:
            assert isinstance(ours, TooLarge)


@pytest.mark.parametrize("block", [b"data: " + b"x" * 95, b"data: xxxx\n" * 11, b":" + b"x" * 100, b"x" * 101])
def test_parser_refuses_to_hold_more_than_its_bound_and_stays_broken(block: bytes) -> None:
    parser = FrameParser(max_bytes=100)
    assert parser.feed(b"data: a\n\n" + block) == [EventFrame("a")]
    for chunk in (b"", b"\n\ndata: b\n\n"):
        with pytest.raises(TooLarge):
            parser.feed(chunk)


def test_any_number_of_frames_within_the_bound_is_read() -> None:
    frames, gave_up = parse(b"data: xxxx\n: hb\n\n" * 1000, max_bytes=20)
    assert (len(frames), gave_up) == (2000, False)
