"""The whole path with Anthropic's wire: thinking, a person's decision, kill -9 in between, and the next request.

aimock runs strictly here: like the API, it refuses a tool round whose answer does not begin with its signed thinking.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.peers.aimock import Aimock
from tests.peers.recorder import recording
from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

KEY = "sk-of-the-peer-tests"


@contextmanager
def serving(base: Path, base_url: str) -> Iterator[Process]:
    """`threadcast serve` with a model that thinks, on the data of the previous server."""
    config = base / "threadcast.toml"
    config.write_text(
        f"""
        [models]
        default = "claude/peer-1"
        demo = true
        [models.providers.claude]
        kind = "anthropic"
        base_url = "{base_url}"
        api_key_env = "CLAUDE_KEY"
        models = [{{ name = "peer-1" }}]
        [profiles.agent]
        params = {{ thinking_budget = 2000 }}
        """,
        "utf-8",
    )
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--config", str(config)]
    limits = {"THREADCAST_LIMITS__LEASE_SECONDS": "1.0", "THREADCAST_LIMITS__BEAT_SECONDS": "0.3"}
    with start(*arguments, log=base / "log", environment={"CLAUDE_KEY": KEY, **limits}) as process:
        yield process


def thinking(body: JsonObject) -> list[JsonObject]:
    blocks = [block for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]]
    return [block for block in blocks if block["type"] == "thinking"]


@pytest.mark.row("PROV-2", "EVT-7")
async def test_thinking_signed_by_the_provider_survives_the_death_of_the_server_between_two_rounds(
    aimock: Aimock, tmp_path: Path
) -> None:
    with recording(aimock.url) as recorder:
        with serving(tmp_path, recorder.url) as first:
            await first.ready()
            async with watching(first.url, "c1") as watcher:
                by_bare_name: JsonObject = {"model": "peer-1"}  # of the first provider
                await command(first.url, "c1", user_message("a", "Please note it down.", params=by_bare_name))
                await watcher.until(lambda w: "pause_required" in w.types())
                first.kill()
            shown = json.dumps(watcher.frames)
        assert "A note is what is wanted." in shown

        with serving(tmp_path, recorder.url) as second:
            await second.ready()
            async with watching(second.url, "c1") as watcher:
                assert watcher.state is not None
                (reason,) = watcher.state.runtime.pause_reasons
                yes = {"type": "tool_decision", "tool_call_id": reason.tool_call_id, "accepted": True}
                await command(second.url, "c1", {"client_request_id": "b", **yes})
                await watcher.at_rest()
                assert watcher.messages[-1] == ("assistant", "I noted it.")
                blocks = [
                    message.thinking_blocks for message in watcher.state.nodes.values() if message.thinking_blocks
                ]
                assert [block["thinking"] for (block,) in blocks] == ["A note is what is wanted.", "It is noted."]
                await command(second.url, "c1", user_message("c", "Then say hello."))
                await watcher.at_rest(2)
                shown += json.dumps(watcher.frames) + watcher.snapshot.decode()
            said = second.log_text()

    once = {"type": "thinking", "thinking": "A note is what is wanted.", "signature": "signature of the first round"}
    twice = {"type": "thinking", "thinking": "It is noted.", "signature": "signature of the second round"}
    assert [thinking(body) for body in recorder.bodies] == [[], [once], [once, twice]]
    assert "signature of" not in shown + said
    assert KEY not in shown + said
    assert [entry["response"]["status"] for entry in aimock.journal()] == [200, 200, 200]
