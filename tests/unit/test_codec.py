"""The codec reads its own output back as the same state. For other input the codec raises an error with a sentence, and
never returns a state that fails later."""

import msgspec
import pytest

from tests.unit.pure_chat import PureChat, say
from threadcast.chat.entry_codec import decode_state, encode_state
from threadcast_protocol.wire.deltas import AppendContent


def test_a_growing_text_that_is_no_text_is_refused_when_it_is_read() -> None:
    chat = PureChat(None, say("a", "go"))
    chat.stream(AppendContent("growing"))
    written = encode_state(chat.state)
    assert written.count(b'"growing"') == 1
    assert encode_state(decode_state(written)) == written
    for wrong in (b"[true]", b"7", b'{"a":1}'):
        with pytest.raises(msgspec.DecodeError):
            decode_state(written.replace(b'"growing"', wrong))
