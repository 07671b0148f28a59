"""The trace of a request that is too large to store is cut before it is encoded, and reports the cut."""

import msgspec

from threadcast.actor.traces import compose
from threadcast.agent_loop.tracing import RoundRecord
from threadcast.base.redaction import Redactor
from threadcast.store.trace_records import RECORD_MAX_BYTES, RECORD_TEXT_MAX_BYTES, decompose
from threadcast_protocol.wire.messages import Message


class Counting(Redactor):
    """Counts the records that it received."""

    seen = 0

    def text(self, text: str) -> str:
        self.seen += len(text)
        return super().text(text)


def record_of(messages: int, text: str) -> RoundRecord:
    return RoundRecord(
        run_id="r",
        round=0,
        message_id="m",
        principal="ann",
        scope=[],
        context={},
        run_params={},
        run_started_at_ms=1,
        settings={},
        model="demo/echo",
        messages=[Message(message_id=f"m{number}", role="user", content=text) for number in range(messages)],
    )


def test_a_request_of_any_size_leaves_a_record_of_its_two_ends() -> None:
    redactor = Counting()
    (record,) = compose([record_of(4_000, "x" * 10_000)], redactor)
    assert redactor.seen < RECORD_TEXT_MAX_BYTES, "all of it is 40 MB"
    assert len(record.data) <= RECORD_MAX_BYTES
    (read,) = decompose(record.data)
    assert "messages" in msgspec.convert(read["cut"], list[str])
    names = [each["message_id"] for each in msgspec.convert(read["messages"], list[dict[str, object]])]
    assert (names[0], names[-1]) == ("m0", "m3999")


def test_a_request_that_can_be_written_down_is_not_cut() -> None:
    (record,) = compose([record_of(300, "short")], Redactor())
    assert len(msgspec.convert(decompose(record.data)[0]["messages"], list[object])) == 300
