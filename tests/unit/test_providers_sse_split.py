"""The reader of model streams: its output depends only on the bytes, never on how they were cut."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadcast.providers.sse_split import EventTooLarge, SseSplitter


def split(*pieces: bytes) -> list[bytes]:
    splitter = SseSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_end_a_line(end: bytes) -> None:
    assert split(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_data_lines_of_one_event_are_joined_by_a_line_feed() -> None:
    assert split(b"data: a\ndata:\ndata\ndata:  b\n\n") == [b"a\n\n\n b"]


def test_comments_and_other_fields_are_skipped() -> None:
    assert split(b": alive\n\nevent: x\nid: 1\nretry: 5\ndatabase: no\ndata:a\n: in between\n\n") == [b"a"]


def test_event_without_data_is_no_event() -> None:
    assert split(b"event: ping\n\n\n\n") == []


def test_byte_order_mark_is_dropped_at_the_start_only() -> None:
    bom = "\ufeff".encode()
    assert split(bom + b"data: a\n\n" + bom + b"data: lost\n\ndata: b\n\n") == [b"a", b"b"]


def test_unfinished_event_at_the_end_is_not_an_event() -> None:
    assert split(b"data: a\n\ndata: b\n") == [b"a"]


def test_event_is_given_out_at_its_cr_without_waiting_for_the_next_byte() -> None:
    assert split(b"data: a\r\r") == [b"a"]


def test_line_feed_after_a_cr_at_a_cut_belongs_to_it() -> None:
    assert split(b"data: a\r", b"\ndata: b\r", b"", b"\n\r", b"\n") == [b"a\nb"]


def test_event_that_never_ends_is_refused_before_it_fills_memory() -> None:
    splitter = SseSplitter(max_bytes=100)
    with pytest.raises(EventTooLarge):
        for _ in range(10):
            splitter.feed(b"data: " + b"x" * 20)


def test_event_of_many_short_lines_is_refused_too() -> None:
    splitter = SseSplitter(max_bytes=100)
    with pytest.raises(EventTooLarge):
        for _ in range(100):
            splitter.feed(b"data\n")


def test_size_counts_one_event_and_not_the_stream() -> None:
    splitter = SseSplitter(max_bytes=100)
    for piece in [b": comment that came in two", b" pieces\n", b"data: " + b"x" * 30, b"x" * 30 + b"\n\n"] * 50:
        splitter.feed(piece)


STREAMS = st.lists(
    st.sampled_from([b"data: ", b"data:", b"data", b": c", b"id: 1", b"\r", b"\n", b"\r\n", "é😀".encode(), b"x", b" "])
).map(b"".join)


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 200)))
@example(stream=b"data: a\r\n\r\ndata: b\r\n\r\n", cuts=[8, 10])
@example(stream="data: 😀\n\n".encode(), cuts=[7, 8, 9])
def test_bytes_cut_anywhere_give_the_same_events(stream: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert split(*pieces) == split(stream) == split(*(bytes([byte]) for byte in stream))


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=1)))
def test_what_a_server_encodes_is_what_comes_out(events: list[list[str]]) -> None:
    stream = "".join("".join(f"data: {line}\n" for line in lines) + "\n" for lines in events).encode()
    assert split(stream) == ["\n".join(lines).encode() for lines in events]
