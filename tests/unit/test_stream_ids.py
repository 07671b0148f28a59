"""The id of a stream of many chats can be read back in any order of the chats, and never raises an error."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from threadcast_protocol.framing.stream_ids import CHATS_MAX, parse_stream_ids, stream_id_word, tag_of
from threadcast_protocol.wire.ids import Position

_ids = st.text("abcXYZ019_-", min_size=1, max_size=128)
_positions = st.builds(
    lambda epoch, base, seq: Position(epoch, base + seq, base),
    st.integers(0, 10**13),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
)


def id_of(stream_positions: dict[str, Position]) -> str:
    return ".".join(stream_id_word(tag_of(chat_id), place) for chat_id, place in stream_positions.items())


@given(st.dictionaries(_ids, _positions, max_size=CHATS_MAX), st.randoms())
def test_places_are_read_back_in_any_order_and_for_any_part_of_the_chats(
    stream_positions: dict[str, Position], random: Random
) -> None:
    if len({tag_of(chat_id) for chat_id in stream_positions}) < len(stream_positions):
        return
    asked = [*stream_positions, "another chat"]
    random.shuffle(asked)
    text = id_of(stream_positions)
    assert parse_stream_ids(text, asked) == stream_positions
    some = [*asked[: len(asked) // 2], "and one more"]
    assert parse_stream_ids(text, some) == {
        chat_id: place for chat_id, place in stream_positions.items() if chat_id in some
    }


def test_64_chats_make_an_id_that_fits_into_a_header() -> None:
    largest = Position(9_999_999_999_999, 10**14, 0)
    text = id_of({f"chat-{number}": largest for number in range(CHATS_MAX)})
    assert len(text) <= 2_500 + CHATS_MAX
    assert len(parse_stream_ids(text, [f"chat-{number}" for number in range(CHATS_MAX)])) == CHATS_MAX


def test_the_id_of_a_single_chat_will_do_for_one_and_not_for_several() -> None:
    place = Position(1_763_690_000_000, 107, 100)
    assert parse_stream_ids(str(place), ["c1"]) == {"c1": place}
    assert parse_stream_ids(str(place), ["c1", "c2"]) == {}
    assert parse_stream_ids(id_of({"c1": place}), ["c1"]) == {"c1": place}


def test_a_place_told_twice_or_behind_its_own_base_counts_as_none() -> None:
    place = Position(5, 7, 3)
    word = stream_id_word(tag_of("c1"), place)
    assert parse_stream_ids(f"{word}.{word}", ["c1", "c2"]) == {}
    assert parse_stream_ids(f"{tag_of('c1')}-5-7-8", ["c1", "c2"]) == {}


@given(st.text(max_size=300))
def test_whatever_a_client_sends_is_read_without_an_error(text: str) -> None:
    parse_stream_ids(text, ["c1", "c2"])
    parse_stream_ids(text, ["c1"])
