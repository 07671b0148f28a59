"""Tools that clients carry out, over real HTTP and several processes: any connection may answer, and a missing answer
has a deadline."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.store_fixtures import fresh_url
from tests.support.fleet import running_fleet
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast.store.embedded.server_process import ServerProcess
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CONFIG = """
[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
timeout_seconds = {}
"""

ASK = user_message("a", 'call open_file {"path":"a.py"}', params={"model": "demo/tools?rate=0"})
WAIT = {"Prefer": "wait=5"}


@pytest.fixture
async def harness(
    valkey_server: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[str, str]]:
    """Yield the addresses of two web processes, which share a store with a worker. The fixture's parameter is the
    tool's deadline."""
    config = tmp_path / "threadcast.toml"
    config.write_text(CONFIG.format(request.param))
    with running_fleet(tmp_path, fresh_url(valkey_server), "--config", str(config)) as fleet:
        await fleet.open(1)
        yield fleet.url, (await fleet.add_web()).url


def result(tool_call_id: str, content: str, request_id: str) -> JsonObject:
    return {
        "type": "ide_tool_result",
        "client_request_id": request_id,
        "tool_call_id": tool_call_id,
        "content": content,
        "files_changed": ["a.py"],
    }


@pytest.mark.row("CMD-14")
@pytest.mark.parametrize("harness", [600], indirect=True, ids=["10 min"])
async def test_a_result_may_come_through_another_process_than_the_call_was_seen_at(harness: tuple[str, str]) -> None:
    here, there = harness
    async with watching(here, "c1") as tab:
        await command(here, "c1", ASK)
        await tab.until(lambda w: w.state is not None and w.state.runtime.state == "waiting_ide")
        required = next(frame for frame in tab.frames if frame["type"] == "ide_tool_required")
        assert (required["tool_name"], required["args"]) == ("open_file", {"path": "a.py"})
        async with watching(there, "c1") as late:
            assert late.state is not None
            (waiting,) = late.state.runtime.ide_calls
        assert waiting.tool_call_id == required["tool_call_id"]
        nobody = await command(there, "c1", result("nobody-asked", "x", "r0"), WAIT)
        assert (nobody.json()["accepted"], nobody.json()["result"]["code"]) == (False, "no_pending_decision")
        first = await command(there, "c1", result(waiting.tool_call_id, "print(1)", "r1"), WAIT)
        assert first.json()["accepted"] is True
        await tab.at_rest()
        second = await command(here, "c1", result(waiting.tool_call_id, "print(2)", "r2"), WAIT)
        assert second.json()["accepted"] is False
    assert [role for role, _ in tab.messages] == ["user", "assistant", "tool", "assistant"]
    assert tab.messages[2][1] == "print(1)"
    assert tab.messages[3][1] == "The tools have answered.\n\n- open_file: print(1)"
    answer = next(f["message"] for f in tab.frames if f["type"] == "message_added" and f["message"]["role"] == "tool")
    assert answer["extra"]["files_changed"] == ["a.py"]


@pytest.mark.row("CMD-14")
@pytest.mark.parametrize("harness", [1], indirect=True, ids=["1 s"])
async def test_silence_has_an_end_although_nobody_is_there_and_nothing_comes(harness: tuple[str, str]) -> None:
    """No stream is open and no command is posted: the chat's own timer wakes it, and the model goes on."""
    here, _ = harness
    await command(here, "c1", ASK)
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                read = await client.get(f"{here}/v1/chats/c1")  # reads the store without waking a worker
                if read.status_code == 200 and read.json()["runtime"].get("outcome"):
                    break
                await anyio.sleep(0.05)
    messages = read.json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert (messages[2]["content"], messages[2]["tool_failed"]) == ("No client answered this call within 1 s.", True)
    assert read.json()["runtime"]["outcome"] == "complete"
    late = await command(here, "c1", result(messages[2]["tool_call_id"], "too late", "r1"), WAIT)
    assert late.json()["result"]["code"] == "no_pending_decision"
