"""Tests the accepted forms of ids and positions, and that each kind of position is read back as it was written."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import RESERVED_CHAT_IDS, EntryId, Head, Position, check_chat_id, check_id

ID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@given(st.text(ID_CHARACTERS, min_size=1, max_size=128))
@example("x" * 128)
@example("-")
def test_id_of_allowed_characters_is_returned_unchanged(value: str) -> None:
    assert check_id(value, "message_id") == value


@pytest.mark.parametrize(
    "value", ["", "x" * 129, "../etc", "a/b", "a b", "a\n", "\na", "a\0", "é", "a.b", "a:b", "a%2f", "١", "{a}"]
)
def test_id_that_could_leave_its_place_is_refused_by_name(value: str) -> None:
    with pytest.raises(BadRequest, match="message_id") as refused:
        check_id(value, "message_id")
    assert refused.value.path == "/message_id"
    with pytest.raises(BadRequest):
        check_chat_id(value)


@given(st.text())
def test_any_text_is_an_id_or_refused(value: str) -> None:
    is_id = 1 <= len(value) <= 128 and set(value) <= set(ID_CHARACTERS)
    try:
        check_id(value, "id")
    except BadRequest:
        assert not is_id
    else:
        assert is_id


@pytest.mark.parametrize("name", sorted(RESERVED_CHAT_IDS))
def test_chat_cannot_be_called_like_a_route(name: str) -> None:
    with pytest.raises(BadRequest, match="reserved"):
        check_chat_id(name)
    assert check_chat_id(name + "d") == name + "d"
    assert check_id(name, "message_id") == name


_numbers = st.integers(0, 10**15 - 1)


@given(st.integers(0, 2**63 - 1), _numbers, _numbers)
def test_position_reads_back_as_written(epoch: int, position: int, base: int) -> None:
    base, position = sorted((base, position))
    place = Position(epoch, position, base)
    assert Position.parse(str(place)) == place
    assert place.seq == position - base


def test_position_looks_as_the_contract_shows_it() -> None:
    assert str(Position(1_763_690_000_000, 107, 100)) == "1763690000000-107-100"


@pytest.mark.row("EVT-4")
@pytest.mark.parametrize(
    "text",
    ["", "1", "1-2", "1-2-1-0", "a-2-1", "1-2-1 ", " 1-2-1", "1-2-1\n", "-1-2-1", "1--2-1", "1-2-3", "1-+2-1",
     "١-2-1", "1-٢-1", "1-2-١",
     "1" * 20 + "-2-1", "1-" + "2" * 16 + "-1", "1_0-2-1", "9" * 100_000],
)  # fmt: skip
def test_malformed_position_is_none_and_no_error(text: str) -> None:
    assert Position.parse(text) is None


@given(st.text() | st.from_regex(r"[0-9-]{1,40}"))
def test_any_text_is_a_position_or_none(text: str) -> None:
    place = Position.parse(text)
    assert place is None or place.base <= place.position


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.text("0123456789abcdef", min_size=1), _numbers)
def test_entry_ids_and_heads_read_back_as_written(epoch: int, n: int, digest: str, position: int) -> None:
    head = Head(EntryId(epoch, n), digest, position)
    assert Head.parse(str(head)) == head
    assert EntryId.parse(str(head.entry_id)) == head.entry_id


def test_entry_ids_are_ordered_by_epoch_then_number_as_redis_does() -> None:
    assert EntryId(9, 100) < EntryId(10, 1) < EntryId(10, 2)
