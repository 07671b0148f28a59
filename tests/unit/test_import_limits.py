"""What an import may hold: the limits that keep the memory and the time of one import in proportion to its size."""

import json

import pytest

from protocol import import_files
from protocol.errors import BadRequest, TooLarge
from protocol.messages import JsonObject
from tests.unit.import_files import read_exports
from tests.unit.test_transfer_pure import header, message, payload

pytestmark = pytest.mark.row("SES-6")


@pytest.mark.parametrize("extra", [payload(), {"type": "background_agent", "agent": {}}])
def test_reading_stops_at_the_first_line_that_the_header_does_not_count(extra: JsonObject) -> None:
    body = "\n".join([json.dumps(header()), json.dumps(extra), "this line is never read"])
    with pytest.raises(BadRequest, match="line 1: it tells of 0 messages, 0 payloads, 0 agents") as caught:
        read_exports(body.encode())
    assert caught.value.path == "/1"


def family(count: int, parent_id: str | None) -> list[JsonObject]:
    return [message(message_id=f"of-{parent_id}-{number}", parent_id=parent_id) for number in range(count)]


def body_of(messages: list[JsonObject]) -> bytes:
    return "\n".join(map(json.dumps, [header(message_count=len(messages)), *messages])).encode()


def test_more_than_a_thousand_children_of_one_message_are_too_large_and_so_are_roots() -> None:
    roots = family(1_001, None)
    below = [message(), *family(1_001, "m1")]
    assert len(read_exports(body_of(roots[:-1]))[0].messages) == 1_000
    assert len(read_exports(body_of(below[:-1]))[0].messages) == 1_001
    for messages, line, whose in ((roots, 1_002, "without a parent"), (below, 1_003, "with the parent 'm1'")):
        with pytest.raises(TooLarge, match=f"line {line}: more than 1000 messages {whose}") as caught:
            read_exports(body_of(messages))
        assert caught.value.path == f"/{line}/message/parent_id"


def test_the_sibling_lists_of_a_chat_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert import_files.IMPORT_MAX_SIBLINGS == 2_000_000
    monkeypatch.setattr(import_files, "IMPORT_MAX_SIBLINGS", 100)
    at_limit = [*family(9, None), *family(4, "of-None-0"), *(family(1, f"of-None-{n}")[0] for n in (1, 2, 3))]
    assert len(read_exports(body_of(at_limit))[0].messages) == 16
    with pytest.raises(TooLarge, match=r"line 18: .* more than 100 ids together") as caught:
        read_exports(body_of([*at_limit, *family(1, "of-None-4")]))
    assert caught.value.path == "/18/message/parent_id"
