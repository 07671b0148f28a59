"""The conformance kit's reader of event streams: it must refuse streams that browsers accept and other clients do
not."""

import pytest

from threadcast.console.conformance.framing import Block, Framing
from threadcast.console.conformance.wire import Wire

SNAPSHOT = b'data: {"chat_id":"c","seq":"0"}\nid: 1-2-2\n\n'
GREETING = b"retry: 500\n: hb 1763690000\n"


def test_a_stream_as_the_protocol_has_it_breaks_nothing_wherever_it_is_cut() -> None:
    whole = SNAPSHOT + GREETING + 'data: {"text":"ž🐎"}\nid: 1-3-2\n\n'.encode() + b": hb 1763690015\nretry: 1200\n"
    for size in (1, 2, 7, len(whole)):
        framing = Framing(is_native=True)
        blocks = [block for at in range(0, len(whole), size) for block in framing.feed(whole[at : at + size])]
        assert blocks == [Block('{"chat_id":"c","seq":"0"}', "1-2-2"), Block('{"text":"ž🐎"}', "1-3-2")]
        assert (framing.broken, framing.heartbeats_count, framing.ends_with_retry) == ({}, 2, True)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"id: 1-2-2\ndata: {}\n\n", "framing-data-first"),
        (b"event: snapshot\ndata: {}\nid: 1-2-2\n\n", "framing-event-field"),
        (b"data: {\ndata: }\nid: 1-2-2\n\n", "framing-one-data-line"),
        (b"data: {}\nid: 1\nid: 2\n\n", "framing-one-id"),
        (b"data: {}\r\nid: 1-2-2\r\n\r\n", "framing-line-ends"),
        (b"data: \xff\nid: 1-2-2\n\n", "framing-utf-8"),
        (b"id: 1-2-2\n\n", "framing-no-data"),
        (b"data:{}\nid: 1-2-2\n\n", "framing-field"),
        (b"data: {}\n: hb 1763690000\nid: 1-2-2\n\n", "framing-comment-inside"),
        (SNAPSHOT + GREETING + b"\n", "framing-empty-event"),
        (SNAPSHOT + b": hb soon\n", "framing-heartbeat"),
        (SNAPSHOT + b": hb 1763690000\n", "early-retry"),
        (SNAPSHOT + b"retry: 3000\n: hb 1763690000\n", "early-retry"),
        (SNAPSHOT + b"retry: soon\n", "framing-retry"),
    ],
)
def test_what_differs_has_a_name(data: bytes, rule: str) -> None:
    framing = Framing(is_native=True)
    framing.feed(data)
    assert next(iter(framing.broken)) == rule


def test_an_older_wire_may_name_its_events_and_split_its_text() -> None:
    framing = Framing(is_native=False)
    blocks = framing.feed(b"event: text\ndata: one\ndata: two\nid: c\n\ndata: [DONE]\n\n")
    assert blocks == [Block("one\ntwo", "c", "text"), Block("[DONE]")]
    assert framing.broken == {}


def test_each_chat_of_a_stream_has_its_own_count_and_a_stranger_is_told() -> None:
    wire = Wire(["a", "b"])
    for chat_id, seq in (("a", 0), ("b", 0), ("a", 1), ("b", 1)):
        kind = b'"type":"pause_cleared"' if seq else b'"type":"process_completed"'
        wire.feed(b'data: {"chat_id":"%b","seq":"%d",%b}\nid: x\n\n' % (chat_id.encode(), seq, kind))
    assert not [each for stream in wire.chats.values() for each in stream.law.broken if "must follow" in each]
    wire.feed(b'data: {"chat_id":"a","seq":"3","type":"pause_cleared"}\nid: x\n\n')
    assert "seq '3' where '2' must follow" in wire.chats["a"].law.broken[-1]
    wire.feed(b'data: {"chat_id":"c","seq":"0","type":"pause_cleared"}\nid: x\n\n')
    assert list(wire.broken) == ["strange-chat"]


def test_a_feed_counts_without_ids() -> None:
    wire = Wire([])
    wire.feed(b'data: {"seq":"0","type":"feed_snapshot","chats":[]}\n\ndata: {"seq":"1","type":"chat_updated"}\n\n')
    assert wire.broken == {}
    wire.feed(b'data: {"seq":"1","type":"chat_updated"}\nid: 1\n\n')
    assert set(wire.broken) == {"feed-seq", "feed-id"}
