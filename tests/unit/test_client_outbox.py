"""The outbox's law: it holds each command once, in order, from `add` to `remove`; in a file, a command also survives
the process."""

import errno
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast_client import outbox as outboxes
from threadcast_client.errors import OutboxFull, OutboxInUse
from threadcast_client.outbox import EXEMPT_MAX_COUNT, WAITING_MAX_COUNT, FileOutbox, Held, MemoryOutbox
from threadcast_client.sender import held_of
from threadcast_protocol.wire.commands import Abort, IdeToolClaim, UserMessage


def message(number: int, chat_id: str = "c1") -> Held:
    return held_of(chat_id, UserMessage(client_request_id=f"r{number}", content=f"ä\n{number}"))


STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "reopen"]), st.integers(0, 8), st.sampled_from("ab")))


@given(STEPS, st.integers(1, 5), st.binary(max_size=20))
def test_a_file_holds_what_was_added_and_not_removed_in_order_and_once(
    steps: list[tuple[str, int, str]], rewritten: int, torn: bytes
) -> None:
    model: dict[tuple[str, str], bytes] = {}
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(outboxes, "REWRITTEN_LINES", rewritten)
        file = Path(directory) / "outbox.jsonl"
        outbox = FileOutbox(file)
        for step, number, chat_id in steps:
            if step == "add":
                held = message(number, chat_id)
                outbox.add(held)
                model.setdefault((chat_id, held.request_id), bytes(held.body))
            elif step == "remove":
                outbox.remove(chat_id, f"r{number}")
                model.pop((chat_id, f"r{number}"), None)
            else:
                outbox.close()
                with file.open("ab") as end:
                    end.write(torn)
                outbox = FileOutbox(file)
            for chat in "ab":
                kept = [(held.chat_id, held.request_id, bytes(held.body)) for held in outbox.held(chat)]
                assert kept == [(*key, body) for key, body in model.items() if key[0] == chat]
        assert set(outbox.chats()) == {chat for chat, _ in model}
        outbox.close()


def test_a_chat_holds_as_many_messages_as_the_server_queues_and_then_says_so() -> None:
    outbox = MemoryOutbox()
    for number in range(WAITING_MAX_COUNT):
        outbox.add(message(number))
    with pytest.raises(OutboxFull, match=r"100 commands of chat 'c1' wait .*await chat.settled"):
        outbox.add(message(1_000))
    outbox.add(message(0))  # it is there already
    outbox.add(message(0, "another"))
    for number in range(EXEMPT_MAX_COUNT):
        outbox.add(held_of("c1", Abort(client_request_id=f"a{number}")))
    with pytest.raises(OutboxFull):
        outbox.add(held_of("c1", Abort(client_request_id="one-more")))
    assert len(outbox.held("c1")) == WAITING_MAX_COUNT + EXEMPT_MAX_COUNT


def test_only_the_owner_of_a_file_may_read_it(tmp_path: Path) -> None:
    FileOutbox(tmp_path / "outbox", is_synced=True).close()
    assert stat.S_IMODE((tmp_path / "outbox").stat().st_mode) == 0o600


def test_a_file_is_one_programs_alone(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="this platform locks no files", exc_type=ImportError)
    outbox = FileOutbox(tmp_path / "outbox")
    with pytest.raises(OutboxInUse, match="file of its own"):
        FileOutbox(tmp_path / "outbox")
    outbox.close()
    FileOutbox(tmp_path / "outbox").close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which files are open")
def test_a_file_is_renamed_while_it_is_closed_where_the_platform_demands_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        are_open = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
        if {os.path.realpath(self), os.path.realpath(target)} & are_open:
            raise PermissionError(errno.EACCES, "the file is open")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(PermissionError):
        FileOutbox(tmp_path / "open")
    monkeypatch.setattr(outboxes, "_RENAMES_OPEN_FILES", False)
    monkeypatch.setattr(outboxes, "REWRITTEN_LINES", 3)
    for start in range(2):
        outbox = FileOutbox(tmp_path / "outbox")
        for number in range(5):
            outbox.add(message(5 * start + number))
        outbox.close()
    again = FileOutbox(tmp_path / "outbox")
    assert [held.request_id for held in again.held("c1")] == [f"r{number}" for number in range(10)]
    again.close()


def test_the_claim_of_a_program_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    outbox = FileOutbox(tmp_path / "outbox")
    outbox.add(held_of("c1", IdeToolClaim(client_request_id="c", tool_call_id="k", claimer="me")))
    outbox.add(message(1))
    assert len(outbox.held("c1")) == 2
    outbox.close()
    again = FileOutbox(tmp_path / "outbox")
    assert [held.request_id for held in again.held("c1")] == ["r1"]
    again.close()


class _FullDisk:
    """`os.write` to a disk that is full after this number of bytes."""

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._write = os.write

    def __call__(self, file: int, data: bytes) -> int:
        if not self._free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(file, data[: self._free_bytes])
        self._free_bytes -= written
        return written


def test_on_a_full_disk_what_is_refused_was_not_added_and_what_was_added_is_not_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = FileOutbox(tmp_path / "outbox")
    for number in (1, 2):
        outbox.add(message(number))
    with monkeypatch.context() as full:
        full.setattr(os, "write", _FullDisk(free_bytes=10))
        with pytest.raises(OSError, match="No space"):
            outbox.add(message(3))
        outbox.remove("c1", "r1")
        assert [held.request_id for held in outbox.held("c1")] == ["r2"]
    outbox.add(message(4))
    outbox.close()
    again = FileOutbox(tmp_path / "outbox")
    assert [held.request_id for held in again.held("c1")] == ["r2", "r4"]
    again.close()


def test_the_new_name_of_a_file_is_synced_with_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def note(file: int) -> None:
        names = sorted(each.name for each in tmp_path.iterdir())
        synced.append((stat.S_ISDIR(os.fstat(file).st_mode), names))

    monkeypatch.setattr(os, "fsync", note)
    FileOutbox(tmp_path / "outbox").close()
    assert synced == [(False, ["outbox.lock", "outbox.new"]), (True, ["outbox", "outbox.lock"])]


def test_a_file_that_cannot_be_written_anew_goes_on_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = FileOutbox(tmp_path / "outbox")
    monkeypatch.setattr(outboxes, "REWRITTEN_LINES", 2)
    (tmp_path / "outbox.new").mkdir()
    for number in range(4):
        outbox.add(message(number))
    outbox.close()
    (tmp_path / "outbox.new").rmdir()
    again = FileOutbox(tmp_path / "outbox")
    assert len(again.held("c1")) == 4
    again.close()
