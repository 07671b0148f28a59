"""Known mistakes of other systems (PROTOCOL §4, §9), each with a test that fails if Threadcast makes the same mistake.

These tests bring a real server into the state of each mistake over HTTP; `test_traps_of_readers.py` has the tests that
need a store that can be paused.
"""

import json
import re
from pathlib import Path

import anyio
import httpx2
import pytest
import redis

from tests.integration.store_fixtures import fresh_url
from tests.support.fleet import running_fleet
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, start, user_message
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.redis.keys import Keys
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.wire.events import PauseRequired
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

HANG: JsonObject = {"model": "demo/hang?after=3&rate=0"}
NOTE = 'call write_note {"name":"trap.md","text":"x"}'
TOOLS: JsonObject = {"model": "demo/tools?rate=0"}
WAIT = {"Prefer": "wait=5"}


def hears_idle(watcher: Watcher) -> bool:
    return watcher.state is not None and watcher.state.is_at_rest and watcher.state.runtime.outcome is not None


async def test_trap_empty_draft_missing_from_the_snapshot(server: Process, chat_id: str) -> None:
    """A reader that joins between `stream_started` and the first word gets a snapshot without the answer, so every
    following delta belongs to a message that the reader does not know."""
    async with watching(server.url, chat_id) as first:
        await command(server.url, chat_id, user_message("a", "hi", params={"model": "demo/hang?rate=0"}))
        await first.until(lambda w: "stream_started" in w.types())
        async with watching(server.url, chat_id) as late:
            shown = late.frames[0]["messages"][-1]
            assert (shown["role"], shown["content"]) == ("assistant", "")
            assert shown["message_id"] == first.frames[-1]["message_id"]
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})


async def test_trap_seq_restarting_with_no_sign(tmp_path: Path) -> None:
    """The log begins a new life whose positions start again. A client that continues from position 7 of the old life
    would miss the events 1 to 7 of the new life. The position of another life must be answered by a snapshot."""
    seen: list[Watcher] = []
    for words in ("in the first life", "in the second life"):
        async with serving(tmp_path) as process:
            async with watching(process.url, "c1") as watcher:
                patch = {"type": "set_params", "client_request_id": "a", "patch": {"title": words}}
                await command(process.url, "c1", patch)
                await watcher.until(lambda w: "ack" in w.types())
            if seen:
                before = Watcher("c1")
                async with watching(
                    process.url, "c1", headers={"Last-Event-ID": seen[0].last_id}, watcher=before
                ) as again:
                    await again.until(lambda w: w.frames)
                assert again.frames[0]["type"] == "snapshot"
                assert again.frames[0]["seq"] == "0"
                assert again.snapshot == watcher.snapshot
            seen.append(watcher)
    assert seen[0].frames[-1]["seq"] == seen[1].frames[-1]["seq"], "only the epoch tells the two apart"


async def test_trap_parameters_echoed_as_sent(server: Process, chat_id: str) -> None:
    """The mistake: `thread_updated` repeats the patch, with unknown keys and with values that were changed or cleared,
    so tabs that received the event differ from tabs that received a snapshot."""
    patch: JsonObject = {"temperature": 1, "reasoning_effort": "", "title": "T", "unheard_of": {"x": 1}, "reason": "y"}
    async with watching(server.url, chat_id) as watcher:
        answer = await command(server.url, chat_id, {"type": "set_params", "client_request_id": "p", "patch": patch})
        assert answer.status_code == 200
        await watcher.until(lambda w: "ack" in w.types())
        async with watching(server.url, chat_id) as fresh:
            assert fresh.snapshot == watcher.snapshot
    (told,) = [frame for frame in watcher.frames if frame["type"] == "thread_updated"]
    assert "unheard_of" not in told and "reason" not in told
    assert isinstance(told["temperature"], float)
    assert told.get("reasoning_effort") is None
    assert fresh.frames[0]["thread"]["temperature"] == told["temperature"]


async def test_trap_history_changed_with_no_event(server: Process, chat_id: str) -> None:
    """The mistake: an edit changes the stored text and the model's input, but open tabs show the old text for ever."""
    async with watching(server.url, chat_id) as tab:

        async def after(body: JsonObject, *expected: str) -> None:
            since = len(tab.frames)
            answer = await command(server.url, chat_id, body, WAIT)
            assert answer.json()["accepted"], answer.text
            await tab.until(lambda w: hears_idle(w) and set(expected) <= set(w.types()[since:]))
            async with watching(server.url, chat_id) as fresh:
                await tab.until(lambda w: w.state and fresh.state and w.state.position >= fresh.state.position)
                assert tab.snapshot == fresh.snapshot

        await after(user_message("a", "one"), "message_added")
        assert tab.state is not None
        user, first = tab.state.path
        name = {"message_id": user}
        await after({"type": "update_message", "client_request_id": "b", **name, "content": "uno"}, "message_updated")
        await after(
            {"type": "regenerate", "client_request_id": "c", "message_id": first},
            "messages_truncated",
            "stream_finished",
        )
        await after({"type": "select_branch", "client_request_id": "d", "message_id": first}, "snapshot")
        await after({"type": "remove_message", "client_request_id": "e", "message_id": first}, "message_removed")
        retry = {"type": "retry_from_index", "client_request_id": "f", "index": 1, "content": "two", "prune": True}
        await after(retry, "message_removed", "message_added")
    assert [text for _, text in tab.messages] == ["uno", "two", "You said: two"]


NOWHERE: list[JsonObject] = [
    {"type": "regenerate", "message_id": "nowhere"},
    {"type": "update_message", "message_id": "nowhere", "content": "x"},
    {"type": "remove_message", "message_id": "nowhere"},
    {"type": "continue_message", "message_id": "nowhere"},
    {"type": "retry_from_index", "index": 99, "content": "x"},
    {"type": "select_branch", "message_id": "nowhere"},
    {"type": "tool_decision", "tool_call_id": "nowhere", "accepted": True},
    {"type": "tool_decisions", "decisions": [{"tool_call_id": "nowhere", "accepted": True}]},
    {"type": "ide_tool_result", "tool_call_id": "nowhere", "content": "x"},
    {"type": "ide_tool_claim", "tool_call_id": "nowhere"},
    {"type": "edit_queued", "target_request_id": "nowhere", "content": "x"},
    {"type": "branch_from_chat", "source_chat_id": "nowhere", "up_to_message_id": "m"},
    {"type": "restore_messages", "messages": []},
    {"type": "browser_context_decision", "pending_message_id": "nowhere"},
]


async def test_trap_accepted_command_that_fails_in_silence(server: Process, chat_id: str) -> None:
    """The mistake: the server answers 202, cannot apply the command, and reports that only in a log file. Each command
    must end in a final ack with a code."""
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", "hi"))
        await tab.at_rest()
        before = tab.messages
        for number, body in enumerate(NOWHERE):
            answer = await command(server.url, chat_id, {**body, "client_request_id": f"n{number}"})
            assert answer.status_code == 202, (body, answer.text)
        names = {f"n{number}" for number in range(len(NOWHERE))}

        def refused(watcher: Watcher) -> set[str]:
            acks = [frame for frame in watcher.frames if frame["type"] == "ack" and not frame["accepted"]]
            assert all(ack["result"]["code"] and ack["result"]["error"] for ack in acks)
            return {ack["client_request_id"] for ack in acks}

        await tab.until(lambda w: refused(w) >= names)
        assert tab.messages == before


async def test_trap_duplicate_window_in_memory_only(tmp_path: Path) -> None:
    """The mistake: only the process that took a command remembers its id, so after the process's death a client's retry
    runs a second time."""
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    body = user_message("once", "only once")
    with start(*arguments, log=tmp_path / "log") as first:
        await first.ready()
        async with watching(first.url, "c1") as tab:
            await command(first.url, "c1", body)
            await tab.at_rest()
        first.kill()
    with start(*arguments, log=tmp_path / "log") as second:
        await second.ready()
        assert (await command(second.url, "c1", body)).json() == {"status": "duplicate"}
        assert (await command(second.url, "c1", user_message("once", "other"))).status_code == 409
        async with watching(second.url, "c1") as after:
            await command(second.url, "c1", user_message("next", "and then"))
            await after.at_rest(2)
    assert [text for role, text in after.messages if role == "user"] == ["only once", "and then"]


async def test_trap_cancelled_id_that_can_never_be_used(server: Process, chat_id: str) -> None:
    """The mistake: a cancel that arrives before its command, or after the command ran, leaves a mark, and the command's
    id is refused for ever."""
    await command(server.url, chat_id, user_message("first", "hi"))
    async with watching(server.url, chat_id) as tab, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        await tab.at_rest()
        for name in ("later", "first"):
            answer = await client.delete(f"{server.url}/v1/chats/{chat_id}/queue/{name}")
            assert (answer.status_code, answer.json()["status"]) == (404, "not_found")
        assert (await command(server.url, chat_id, user_message("later", "now"))).status_code == 202
        await tab.at_rest(2)
    assert [text for role, text in tab.messages if role == "user"] == ["hi", "now"]


async def test_trap_pause_lost_at_restart(tmp_path: Path) -> None:
    """The mistake: the question exists only in a coroutine. When its process dies, the chat waits for an answer that no
    code will receive."""
    async with serving(tmp_path, is_durable=True) as first:
        async with watching(first.url, "c1") as tab:
            await command(first.url, "c1", user_message("a", NOTE, params=TOOLS))
            await tab.until(lambda w: w.state is not None and w.state.runtime.paused)
        first.kill()
    async with serving(tmp_path, is_durable=True) as second, watching(second.url, "c1") as again:
        assert again.snapshot == tab.snapshot
        assert again.state is not None and again.state.runtime.state == "paused"
        (reason,) = again.state.runtime.pause_reasons
        yes: JsonObject = {"type": "tool_decision", "tool_call_id": reason.tool_call_id, "accepted": True}
        await command(second.url, "c1", {**yes, "client_request_id": "yes"})
        await again.until(hears_idle)
    assert [role for role, _ in again.messages] == ["user", "assistant", "tool", "assistant"]
    assert again.messages[2][1] == "Wrote trap.md (1 bytes)."


async def test_trap_terminal_event_missed_by_a_late_reconnect(server: Process, chat_id: str) -> None:
    """The mistake: the run ended while the connection was down, its last event went only to connected readers, and the
    tab that reconnects shows a spinner for ever."""
    model = "demo/essay?words=40&rate=80"
    async with watching(server.url, chat_id) as stayed:
        async with watching(server.url, chat_id) as gone:
            await command(server.url, chat_id, user_message("a", "write", params={"model": model}))
            await gone.until(lambda w: "stream_delta" in w.types())
        assert not hears_idle(gone)
        await stayed.at_rest()
        gone.has_ended = False
        async with watching(server.url, chat_id, headers={"Last-Event-ID": gone.last_id}, watcher=gone) as back:
            await back.until(hears_idle)
        assert back.frames[-1]["type"] == "runtime_updated"
        assert back.frames[-1]["outcome"] == "complete"
        assert back.snapshot == stayed.snapshot
        async with watching(server.url, chat_id) as fresh:
            assert hears_idle(fresh), "and so do those who have nothing to come back to"


async def test_trap_approval_announced_before_its_message(server: Process, chat_id: str) -> None:
    """The mistake: `pause_required` arrives before the message whose call it asks about, so the tab has no place to
    show it."""
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", NOTE, params=TOOLS))
        await tab.until(lambda w: w.state is not None and w.state.runtime.paused)
        at = tab.types().index("pause_required")
        then = tab.state_after(at - 1)
        asked = next(event for event in tab.events if isinstance(event, PauseRequired))
        message = snapshot_of(then).messages[-1]
        assert message.role == "assistant" and message.finish_reason == "tool_calls"
        assert [call.id for call in message.tool_calls] == [reason.tool_call_id for reason in asked.reasons]
        assert tab.types().index("runtime_updated", at) > at, "and the state is paused only when the question is there"
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})


FORGED = "one\n\nid: 9-9-9\ndata: {}\r\n\r\nevent: evil\rdata: x\u2028\u0085end\x00"


async def test_trap_raw_newline_in_a_delta_forging_an_sse_field(server: Process, chat_id: str) -> None:
    """The mistake: a model writes a line end and `id:`, the text is sent unchanged, and the client treats the model's
    line as a field from the server."""
    raw = b""
    async with watching(server.url, chat_id) as tab, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        address = f"{server.url}/v1/chats/subscribe?chat_id={chat_id}"
        async with client.stream("GET", address) as answer:
            await command(server.url, chat_id, user_message("a", FORGED))
            await tab.at_rest()
            with anyio.fail_after(DEADLINE_SECONDS):
                async for chunk in answer.aiter_raw():
                    raw += chunk
                    if b'"outcome":"complete"' in raw and raw.endswith(b"\n\n"):
                        break
    assert tab.messages == [("user", FORGED), ("assistant", f"You said: {FORGED}")]
    assert b"\r" not in raw
    lines = b"".join(line for line in raw.splitlines(keepends=True) if not line.startswith((b":", b"retry:")))
    blocks = [block for block in lines.split(b"\n\n") if block]
    for block in blocks:
        data, place = block.split(b"\n")
        assert json.loads(data.removeprefix(b"data: "))["chat_id"] == chat_id
        assert re.fullmatch(rb"id: \d+-\d+-\d+", place)
    assert len(blocks) == len(tab.frames)


async def test_trap_half_open_blocking_read_that_swallows_work(valkey_server: ServerProcess, tmp_path: Path) -> None:
    """The mistake: a worker waits for a token, its machine vanishes, and Redis gives the next token to the dead
    connection. Work must not exist only as the token: the next sweep of any worker finds the work."""
    url = fresh_url(valkey_server)
    keys = Keys(16)
    with running_fleet(tmp_path, url) as fleet, redis.Redis.from_url(url) as ghost:
        web = await fleet.add_web()
        await command(web.url, "c1", user_message("a", "is anybody there?"))
        swallowed = ghost.blpop([keys.bell(keys.bucket_of("c1"))], timeout=DEADLINE_SECONDS)
        assert swallowed is not None, "the token went to the dead line"
        async with watching(web.url, "c1") as tab:
            await fleet.add_worker()
            await tab.at_rest()
    assert tab.messages[-1] == ("assistant", "You said: is anybody there?")
