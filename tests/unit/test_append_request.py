"""An append of text alone equals the append that an `EntryBuilder` makes of the same text."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from threadcast.actor.append_request import Prepared, entry_append, is_indexed, text_append
from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.fold.state import Draft
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.events import StreamDelta
from threadcast_protocol.wire.ids import EntryId
from threadcast_protocol.wire.messages import Message

LAST = EntryId(7, 3)
TEXTS = st.builds(lambda kind, text: kind(text), st.sampled_from([AppendContent, AppendReasoning]), st.text(min_size=1))


def answering(said: str = "so far") -> OwnerState:
    """Return the state of a chat with an open answer."""
    message = Message(role="assistant", content="", message_id="msg_1")
    return replace(
        empty_owner_state("c1"),
        head="7-3 00ff 12",
        position=12,
        epoch=7,
        nodes={"msg_1": message},
        path=("msg_1",),
        draft=Draft(message, GrowingText(said), GrowingText()),
    )


def by_builder(before: OwnerState, text: AppendContent | AppendReasoning, policy: CheckpointPolicy) -> Prepared:
    def prepared(*events: StreamDelta, meta_before: tuple[tuple[str, str], ...] = ()) -> Prepared:
        builder = EntryBuilder(before, 0, lambda prefix: prefix)
        for event in events:
            builder.say(event)
        return entry_append(before, LAST, builder, (), worker="w1", owner="me", meta_before=meta_before, policy=policy)

    meta = prepared().request.meta
    return prepared(StreamDelta("msg_1", [text]), meta_before=meta)


def by_text(
    before: OwnerState, text: AppendContent | AppendReasoning, policy: CheckpointPolicy | None = None
) -> Prepared | None:
    return text_append(before, LAST, text, worker="w1", owner="me", policy=policy or CheckpointPolicy())


@given(TEXTS)
def test_text_alone_makes_the_same_append_as_a_builder(text: AppendContent | AppendReasoning) -> None:
    before = answering()
    assert is_indexed(before)
    fast = by_text(before, text)
    if "blob" in text.text:
        assert fast is None
    else:
        assert fast == by_builder(before, text, CheckpointPolicy())


def test_text_that_may_name_a_blob_or_needs_a_checkpoint_or_has_no_answer_is_left_to_a_builder() -> None:
    text = AppendContent("hello")
    assert by_text(answering(), AppendContent('/blobs/"blob"')) is None
    assert by_text(answering(), text, CheckpointPolicy(pending_events=10_000)) is None
    assert by_text(replace(answering(), draft=None), text) is None


def test_a_chat_that_expires_or_is_imported_is_not_indexed() -> None:
    chat = answering()
    assert not is_indexed(replace(chat, nodes={}))
    assert not is_indexed(replace(chat, thread=replace(chat.thread, temporary=True)))
