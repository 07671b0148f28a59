"""Packed texts: unpacking returns the same text in any number of pieces, damage is an error, and ids and counts need
few bytes."""

import secrets
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.store.packing import Packed

TOKENS = st.one_of(
    st.integers(0, 3).map(lambda n: f"msg_{n:020x}"),
    st.integers(0, 3).map(lambda n: f"req_{n:032x}"),
    st.uuids().map(str),
    st.integers(0, 10**20).map(str),
    st.integers(1_795_000_000_000, 1_795_000_000_050).map(str),
    st.from_regex(r"[0-9a-f-]{1,60}", fullmatch=True),
    st.sampled_from(["0" * 13, "0123456789012", "-12", "1.50e10", "00", "\n", "é", "\x7f"]),
    st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=5),
)
TEXTS = st.lists(TOKENS, max_size=60).map(lambda each: " ".join(each).encode())


@given(st.lists(TEXTS, max_size=5))
def test_a_text_comes_out_as_it_went_in_whether_added_at_once_or_in_pieces(pieces: list[bytes]) -> None:
    packed = Packed()
    for piece in pieces:
        packed = Packed.decode(packed.plus(piece).encode())
    whole = b"".join(pieces)
    assert packed.text() == whole
    assert packed.size_bytes == len(whole) == Packed.size_of(packed.encode())
    assert Packed().plus(whole).text() == whole


@given(TEXTS, st.data())
def test_damaged_bytes_are_an_error_or_another_text_of_the_same_size(text: bytes, data: st.DataObject) -> None:
    stored = bytearray(Packed().plus(text).encode())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    stored = stored[: data.draw(st.integers(0, len(stored)))]
    try:
        found = Packed.decode(bytes(stored), max_bytes=1_000_000)
        assert len(found.text()) == found.size_bytes <= 1_000_000
    except ValueError:
        pass


@pytest.mark.parametrize(
    "packed", [Packed(20, b"\x05"), Packed(3, b"four"), Packed(4, b"four", ids=b"x"), Packed(4, b"four", last_ms=1)]
)
def test_parts_that_do_not_fit_together_are_an_error(packed: Packed) -> None:
    with pytest.raises(ValueError, match="packed text"):
        packed.text()


@pytest.mark.parametrize("distance", range(20, 35))
def test_a_token_that_is_too_far_away_is_written_again(distance: int) -> None:
    tokens = [f"{number:020x}" for number in range(distance)]
    text = " ".join([*tokens, tokens[0]]).encode()
    assert Packed().plus(text).text() == text


def test_a_text_with_control_characters_is_refused() -> None:
    for character in (b"\x01", b"\t", b"\x1f"):
        with pytest.raises(ValueError, match="control characters"):
            Packed().plus(b"a" + character)


def test_a_text_above_the_bound_is_not_unpacked() -> None:
    stored = Packed().plus(b'{"id":"msg_0123456789abcdef0123"}' * 1_000).encode()
    with pytest.raises(ValueError, match="at most"):
        Packed.decode(stored, max_bytes=32_999)
    assert Packed.decode(stored, max_bytes=33_000).size_bytes == 33_000


def test_much_text_at_once_stays_as_it_is() -> None:
    line = b'{"id":"msg_0123456789abcdef0123"}'
    packed = Packed().plus(line).plus(line * 10_000).plus(line)
    assert packed.text() == line * 10_002
    assert len(packed.skeleton) > 300_000


def test_a_repeated_shape_costs_its_random_bytes_and_little_more() -> None:
    packed = Packed()
    for turn in range(200):
        message, request, at = secrets.token_hex(10), str(uuid.uuid4()), 1_795_000_000_000 + turn * 977
        line = f'{{"id":"msg_{message}","parent":"msg_{message}","request":"{request}","at":{at},"again":{at}}}\n'
        packed = packed.plus(line.encode())
    random_bytes = 200 * (10 + 16)
    assert len(packed.encode()) - random_bytes < 200 * 4
