"""The limits that keep the memory and the time of an import in proportion to its size."""

import json
import tempfile
import threading
import time
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.requests import ClientDisconnect, Request

from tests.unit.import_files import read_exports
from tests.unit.test_transfer_pure import header, message, payload
from threadcast.api import transfer
from threadcast.api.spool import Spool
from threadcast.chat import import_files
from threadcast_protocol.wire.errors import BadRequest, TooLarge
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.row("SES-6")


@pytest.mark.parametrize("extra", [payload(), {"type": "background_agent", "agent": {}}])
def test_reading_stops_at_the_first_line_that_the_header_does_not_count(extra: JsonObject) -> None:
    body = "\n".join([json.dumps(header()), json.dumps(extra), "this line is never read"])
    with pytest.raises(BadRequest, match="line 1: the header counts 0 messages, 0 payloads, 0 agents") as caught:
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


def test_a_body_may_hold_a_thousand_empty_lines_and_is_refused_at_the_next() -> None:
    body = b"\n" * 500 + body_of([message()]) + b"\n" + b" \r\n" * 500
    assert len(read_exports(body)[0].messages) == 1
    with pytest.raises(BadRequest, match="line 1003: a body may hold 1000 empty lines") as caught:
        read_exports(body + b"\t\n" + b"\n" * 1_000_000)
    assert caught.value.path == "/1003"


def test_reading_ends_before_the_next_piece_once_the_caller_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadcast.api.spool.PIECE_BYTES", 8)
    read: list[bytes | None] = []
    with tempfile.TemporaryFile() as file:
        file.write(b"one\ntwo\nthree\nfour\n")
        file.flush()
        with pytest.raises(ClientDisconnect):
            read += [raw for _, raw in Spool(file).until(lambda: True).spans()]
        lines = Spool(file).until(lambda: bool(read)).spans()
        with pytest.raises(ClientDisconnect):
            for _, raw in lines:
                read.append(raw)
    assert read == [b"one", b"two"]


class Caller:
    """A client that has sent a body, and waits for the answer until `leaves` is set."""

    def __init__(self) -> None:
        self.leaves = anyio.Event()
        self.request = Request({"type": "http", "method": "POST", "headers": []}, self._receive)
        self.outcome = ""

    async def _receive(self) -> MutableMapping[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def check(self, file: Spool) -> None:
        try:
            await transfer._check(self.request, file, 5)
            self.outcome = "checked"
        except ClientDisconnect:
            self.outcome = "left"


@pytest.mark.anyio
async def test_two_threads_read_imports_and_end_when_their_callers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Semaphore(0)

    def slow(lines: Spool, _: int) -> list[import_files.ChatInFile]:
        begun.release()
        until = time.monotonic() + 20
        while time.monotonic() < until:  # stands for a body that takes very long to read
            list(lines.spans())
        raise AssertionError("nobody stopped this thread")

    monkeypatch.setattr(transfer, "check_exports", slow)
    callers = [Caller() for _ in range(3)]
    with tempfile.TemporaryFile() as file, anyio.fail_after(30):
        file.write(b"a line\n")
        file.flush()
        async with anyio.create_task_group() as tasks:
            for caller in callers:
                tasks.start_soon(caller.check, Spool(file))
            for _ in range(2):
                assert await anyio.to_thread.run_sync(partial(begun.acquire, timeout=20)), "other work has threads"
            while transfer._threads.statistics().tasks_waiting != 1:
                await anyio.lowlevel.checkpoint()
            waiting = callers[2]
            waiting.leaves.set()
            while not waiting.outcome:
                await anyio.lowlevel.checkpoint()
            assert [caller.outcome for caller in callers] == ["", "", "left"]
            callers[0].leaves.set()
            while not callers[0].outcome:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()  # as at the end of the process: the thread of the second body must also end
    assert [caller.outcome for caller in callers] == ["left", "", "left"]
    assert not begun.acquire(blocking=False), "the third never had a thread"
    assert transfer._threads.statistics().borrowed_tokens == 0


@pytest.mark.anyio
async def test_a_check_whose_caller_stays_gives_its_chats_or_its_refusal() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(body_of([message()]))
        file.flush()
        (chat,) = await transfer._check(Caller().request, Spool(file), 5)
        assert chat.header.message_count == 1
        with pytest.raises(TooLarge):
            await transfer._check(Caller().request, Spool(file), 0)
