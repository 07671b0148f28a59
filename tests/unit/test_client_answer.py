"""The answer to one message: its text equals the server's text, and its pieces report removed text."""

import pytest

from tests.unit.client_harness import Server, accepted, frame, live, message, snapshot, stream
from threadcast_client import Answer, AnswerFailed
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

RUN: JsonObject = {"run_id": "run1"}


def begun() -> list[bytes]:
    """Return the turn up to the answer: events 1 to 3."""
    return [
        frame(1, "runtime_updated", state="generating", **RUN),
        frame(2, "message_added", message=message("u1", "user", "hi", client_request_id="r1"), index=0),
        frame(3, "stream_started", message_id="a1", **RUN),
    ]


def says(seq: int, text: str, message_id: str = "a1") -> bytes:
    return frame(seq, "stream_delta", message_id=message_id, ops=[{"op": "append_content", "text": text}])


def done(seq: int, text: str, message_id: str = "a1", outcome: str = "complete") -> bytes:
    added: JsonObject = {"message": message(message_id, "assistant", text, finish_reason="stop"), "index": 1}
    return frame(seq, "message_added", **added) + frame(
        seq + 1, "runtime_updated", state="idle", outcome=outcome, **RUN
    )


async def asked(*streams: bytes, then: bytes | None = None) -> tuple[list[str], Answer]:
    """Return the pieces of the answer to message `r1`, read from a stream of these blocks and from a second stream
    after it."""
    server = Server(stream(snapshot(), *streams, *([] if then else ["hold"])), on_post=lambda body: accepted())
    if then:
        server._streams.append(stream(then, "hold"))
    body: JsonObject = {"type": "user_message", "client_request_id": "r1", "content": "hi"}
    pieces: list[str] = []
    async with live(server, wait=False) as chat:
        answer = Answer(chat.send(body), chat.events())
        try:
            async for piece in answer:
                pieces.append(piece)
        except AnswerFailed as wrong:
            pieces.append(f"<{wrong.outcome}: {wrong.text}>")
    return pieces, answer


async def test_pieces_joined_are_the_text() -> None:
    pieces, answer = await asked(*begun(), says(4, "one "), says(5, "two"), done(6, "one two"))
    assert (pieces, answer.text, answer.restarts, answer.run_id) == (["one ", "two"], "one two", 0, "run1")


async def test_rounds_are_parted_by_a_blank_line_and_the_last_one_is_the_text() -> None:
    second = frame(6, "stream_started", message_id="a2", **RUN)
    ends = frame(5, "message_added", message=message("a1", "assistant", "Let me see."), index=1)
    pieces, answer = await asked(*begun(), says(4, "Let me see."), ends, second, says(7, "4", "a2"), done(8, "4", "a2"))
    assert "".join(pieces) == "Let me see.\n\n4"
    assert (answer.text, answer.texts) == ("4", ["Let me see.", "4"])


async def test_a_text_that_is_taken_back_is_counted_and_the_new_one_is_the_answer() -> None:
    again = frame(5, "message_removed", message_id="a1") + frame(6, "stream_started", message_id="a2", **RUN)
    pieces, answer = await asked(*begun(), says(4, "wro"), again, says(7, "right", "a2"), done(8, "right", "a2"))
    assert (pieces, answer.text, answer.restarts) == (["wro", "right"], "right", 1)


async def test_a_snapshot_in_the_middle_gives_what_was_missed_and_no_more() -> None:
    messages = [message("u1", "user", "hi", client_request_id="r1"), message("a1", "assistant", "one two")]
    middle = snapshot(base=30, messages=messages, runtime={"state": "generating", **RUN})
    ends = frame(2, "message_added", base=30, message=message("a1", "assistant", "one two three"), index=1)
    rest = frame(3, "runtime_updated", base=30, state="idle", outcome="complete", **RUN)
    pieces, answer = await asked(
        *begun(), says(4, "one "), then=middle + frame(1, "pause_cleared", base=30) + ends + rest
    )
    assert "".join(pieces) == answer.text == "one two three"
    assert answer.restarts == 0


async def test_a_run_that_ended_while_the_line_was_down_is_ended() -> None:
    messages = [
        message("u1", "user", "hi", client_request_id="r1"),
        message("a1", "assistant", "all of it", finish_reason="stop"),
    ]
    after = snapshot(base=30, messages=messages, runtime={"state": "idle", "outcome": "complete", **RUN})
    pieces, answer = await asked(*begun(), says(4, "all"), then=after)
    assert ("".join(pieces), answer.text) == ("all of it", "all of it")


async def test_a_message_that_is_no_more_after_a_loss_of_the_log_is_told() -> None:
    pieces, _ = await asked(*begun(), says(4, "all"), then=snapshot(base=2))
    assert pieces[-1] == "<lost: all>"


@pytest.mark.parametrize("outcome", ["error", "aborted", "limit", "interrupted"])
async def test_a_run_that_did_not_complete_is_an_error_with_what_was_said(outcome: str) -> None:
    pieces, _ = await asked(*begun(), says(4, "so far"), done(5, "so far", outcome=outcome))
    assert pieces == ["so far", f"<{outcome}: so far>"]
