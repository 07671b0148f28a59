"""A chat can be imported in several parts: until the last part it accepts no other change, and each part takes effect
once."""

import tempfile
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from tests.unit.import_files import read_exports
from tests.unit.pure_chat import PureChat, acks, say
from threadcast.api.spool import Spool
from threadcast.chat import import_files
from threadcast.chat.exports import export_lines, export_of
from threadcast.chat.import_files import LineSpan
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.fold.reducer import reduce_added, reduce_payloads
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import Abort, SetParams, encode_command
from threadcast_protocol.wire.errors import TooLarge
from threadcast_protocol.wire.events import MessageAdded, MessagesTruncated, PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import SYSTEM

pytestmark = pytest.mark.row("SES-6")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 3)


def tree(count: int) -> bytes:
    """A branchy chat, written in an order in which children do not follow their parents directly."""
    lines: list[JsonObject] = [
        {
            "type": "message",
            "message": Message(
                role="user",
                content=f"text {number}",
                message_id=f"m{number}",
                parent_id=None if number == 0 else f"m{number // 2}" if number > 1 else "m0",
            ),
        }
        for number in range(count)
    ]
    head = {"type": "chat", "format": 1, "chat_id": "c1", "leaf_id": f"m{count - 1}", "thread": {"title": "T"}}
    counts = {"message_count": count, "payload_count": 1, "agent_count": 1}
    payload = {"payload_id": "p", "payload_type": "t", "data": {}, "summary": "", "source": "tool", "message_id": "m1"}
    more: list[JsonObject] = [
        {"type": "payload", "payload": payload},
        {"type": "background_agent", "agent": {"id": "a"}},
    ]
    return b"\n".join(encode(line) for line in [{**head, **counts}, *lines, *more])


def test_parts_of_two_versions_that_divide_a_file_in_other_ways_are_never_mixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (ours,) = read_exports(tree(10))
    monkeypatch.setattr(import_files, "PART_MAX_BYTES", 2 * import_files.PART_MAX_BYTES)
    (theirs,) = read_exports(tree(10))
    chat = PureChat()
    chat.command(ours.parts[0], by=SYSTEM)
    ((_, accepted, result),) = [each[:3] for each in acks(chat.command(theirs.parts[1], by=SYSTEM))]
    assert (accepted, result["code"]) == (False, "conflict")
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1_000)
    head = {"type": "chat", "format": 1, "chat_id": "c1", "leaf_id": None, "thread": {}}
    (single,) = read_exports(encode({**head, "message_count": 0, "payload_count": 0, "agent_count": 0}))
    assert len(single.parts) == 1 and len(single.parts[0].import_id) == 32, "as every version names it"


def test_a_part_with_many_branches_costs_one_copy_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1_000)
    copies: list[int] = []

    def counting(state: OwnerState, events: Sequence[MessageAdded | MessagesTruncated]) -> OwnerState:
        copies.append(len(events))
        return reduce_added(state, events)

    monkeypatch.setattr("threadcast.chat.entry_builder.reduce_added", counting)
    monkeypatch.setattr("threadcast_protocol.fold.reducer.reduce_added", counting)
    (whole,) = read_exports(tree(200))
    chat = PureChat()
    whole.imported_into(chat)
    assert len(chat.state.nodes) == 200
    assert copies == [299, 299], "once as it is written, once as the entry is read: cuts included"


def test_a_large_chat_is_read_in_parts_and_becomes_the_same_chat_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    body = tree(40)
    (in_parts,) = read_exports(body)
    assert [part.part for part in in_parts.parts] == list(range(15)), (
        "14 parts of messages, and one of what else there is"
    )
    assert {part.parts for part in in_parts.parts} == {15} and len({part.import_id for part in in_parts.parts}) == 1
    chat, whole = PureChat(), PureChat()
    in_parts.imported_into(chat)
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1_000)
    read_exports(body)[0].imported_into(whole)
    assert list(export_lines(export_of(chat.state))) == list(export_lines(export_of(whole.state)))
    assert len(chat.state.nodes) == 40 and chat.state.path[-1] == "m39"
    assert chat.state.nodes["m5"].sibling_ids == ["m4", "m5"]
    assert chat.state.private.importing is None


def test_while_parts_are_to_come_nothing_else_happens_to_the_chat() -> None:
    (read,) = read_exports(tree(10))
    chat = PureChat()
    chat.command(replace(read.parts[0], client_request_id="i0"), by=SYSTEM)
    for command in (say("hello"), SetParams(client_request_id="p", patch={"title": "x"})):
        ((_, accepted, result),) = [each[:3] for each in acks(chat.command(command))]
        assert (accepted, result["code"]) == (False, "conflict")
    ((_, accepted, result),) = [each[:3] for each in acks(chat.command(Abort(client_request_id="a")))]
    assert accepted and result["noop"]
    for part in read.parts[1:]:
        chat.command(replace(part, client_request_id=f"i{part.part}"), by=SYSTEM)
    assert len(chat.state.nodes) == 10
    chat.command(say("now"))
    assert chat.state.private.run is not None


def test_a_part_that_does_not_follow_is_refused_and_the_import_goes_on_with_the_one_that_does() -> None:
    (read,) = read_exports(tree(10))
    (other,) = read_exports(tree(9))
    chat = PureChat()
    chat.command(read.parts[0], by=SYSTEM)
    nodes = dict(chat.state.nodes)
    for wrong in (read.parts[0], read.parts[2], other.parts[1], other.parts[0]):
        ((_, accepted, result),) = [each[:3] for each in acks(chat.command(wrong, by=SYSTEM))]
        assert (accepted, result["code"]) == (False, "conflict")
    assert chat.state.nodes == nodes
    for part in read.parts[1:]:
        chat.command(part, by=SYSTEM)
    assert chat.state.path[-1] == "m9"


def test_a_part_holds_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1_000)
    monkeypatch.setattr(import_files, "PART_MAX_BYTES", 300)
    (read,) = read_exports(tree(40))
    assert len(read.parts) > 10 and len(read.messages) == 40


def test_a_part_counts_the_lists_of_siblings_that_its_messages_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1_000)
    monkeypatch.setattr(import_files, "PART_MAX_BYTES", 100_000)
    head = {"type": "chat", "format": 1, "chat_id": "c1", "leaf_id": None, "thread": {}, "payload_count": 0}
    roots: list[JsonObject] = [
        {"type": "message", "message": {"role": "user", "content": "x", "message_id": f"{number:0128}"}}
        for number in range(200)
    ]
    (read,) = read_exports(
        b"\n".join(encode(line) for line in [{**head, "message_count": 200, "agent_count": 0}, *roots])
    )
    assert len(read.messages) == 200 and all(len(message.sibling_ids) == 200 for message in read.messages)
    assert max(len(encode_command(part)) for part in read.parts) <= 100_000 + 30_000, "the limit, and one more message"


def test_payloads_of_a_part_cost_one_copy_of_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "PART_MAX_MESSAGES", 1_000)
    copies: list[int] = []

    def counting(state: OwnerState, events: Sequence[PayloadAdded]) -> OwnerState:
        copies.append(len(events))
        return reduce_payloads(state, events)

    monkeypatch.setattr("threadcast.chat.entry_builder.reduce_payloads", counting)
    monkeypatch.setattr("threadcast_protocol.fold.reducer.reduce_payloads", counting)
    head = {"type": "chat", "format": 1, "chat_id": "c1", "leaf_id": None, "thread": {}, "message_count": 0}
    payload = {"payload_type": "t", "data": {}, "summary": "", "source": "tool", "message_id": "m"}
    lines = [{"type": "payload", "payload": {**payload, "payload_id": f"p{number}"}} for number in range(300)]
    (read,) = read_exports(
        b"\n".join(encode(line) for line in [{**head, "payload_count": 300, "agent_count": 0}, *lines])
    )
    chat = PureChat()
    read.imported_into(chat)
    assert [payload.payload_id for payload in chat.state.payloads] == [f"p{number}" for number in range(300)]
    assert copies == [300, 300], "once as it is written, once as the entry is read"


def test_a_line_longer_than_any_of_an_export_is_refused_without_being_held(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("threadcast.api.spool",):
        monkeypatch.setattr(f"{room}.LINE_MAX_BYTES", 1_000)
    with pytest.raises(TooLarge) as refused:
        read_exports(tree(2) + b"\n" + b"x" * 5_000_000)
    assert refused.value.path == "/6"


def _read_lines(spool: Spool, start: int = 0, end: int | None = None) -> Iterator[tuple[LineSpan, bytes]]:
    for span, known in spool.spans(start, end):
        with spool.line(span, known) as raw:
            yield span, raw


@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_lines_are_found_wherever_the_file_is_cut_into_pieces(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr("threadcast.api.spool.PIECE_BYTES", piece)
    body = b"one\n\n \r\ntwo\n" + "dré".encode() + b"\n" + b"x" * 100
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.flush()
        spool = Spool(file)
        found = list(_read_lines(spool))
        assert [(place.number, raw) for place, raw in found] == [
            (1, b"one"), (4, b"two"), (5, "dré".encode()), (6, b"x" * 100),
        ]  # fmt: skip
        assert [spool.read(place.offset, place.length) for place, _ in found] == [raw for _, raw in found]
        start = found[1][0].offset
        assert [raw for _, raw in _read_lines(spool, start, found[3][0].offset)] == [b"two", "dré".encode()]
