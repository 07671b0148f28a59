"""Ids of other servers' formats become ids of chats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.compat.foreign_ids import FOREIGN_ID_MAX_CHARACTERS, chat_id_of
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import RESERVED_CHAT_IDS, is_id

KEY, OTHER_KEY = b"k" * 32, b"o" * 32

ids = st.text(min_size=1, max_size=FOREIGN_ID_MAX_CHARACTERS)


@given(ids)
def test_every_id_becomes_a_valid_id_and_a_fitting_one_stays(foreign_id: str) -> None:
    found = chat_id_of(foreign_id, "ai_sdk", "ann", KEY)
    assert is_id(found)
    assert found not in RESERVED_CHAT_IDS
    assert found == chat_id_of(foreign_id, "ai_sdk", "ann", KEY)
    assert (found == foreign_id) == (is_id(foreign_id) and foreign_id not in RESERVED_CHAT_IDS)


def test_caller_door_and_secret_are_part_of_a_mapped_id() -> None:
    found = {
        chat_id_of("my chat!", *rest)
        for rest in [
            ("ai_sdk", "ann", KEY),
            ("ai_sdk", "bob", KEY),
            ("ag_ui", "ann", KEY),
            ("ai_sdk", "ann", OTHER_KEY),
        ]
    }
    assert len(found) == 4
    assert chat_id_of("b/c", "a", "x", KEY) != chat_id_of("c", "a", "x\0b", KEY)


@pytest.mark.parametrize("foreign_id", ["", "x" * (FOREIGN_ID_MAX_CHARACTERS + 1)])
def test_an_empty_or_long_id_is_refused(foreign_id: str) -> None:
    with pytest.raises(BadRequest, match="1 to 512 characters") as refused:
        chat_id_of(foreign_id, "ai_sdk", "ann", KEY, "/id")
    assert refused.value.path == "/id"
