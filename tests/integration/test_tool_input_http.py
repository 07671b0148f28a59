"""The visible part of a call's input, over real HTTP: its label, or nothing if the tool hides its input."""

import json
from pathlib import Path

import httpx2
import pytest

from tests.integration.fake_openai import DONE, STOP, Reply, chunk, serve_fake_openai, text
from tests.integration.oneshot_client import PATHS, body_for, opened
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message
from threadcast_protocol.wire.events import ToolStatus

pytestmark = pytest.mark.anyio

SECRET = "heliotrope-5521"

CONFIG = """
[server]
log_level = "debug"
[models.providers.fake]
base_url = "{url}"
models = [{{ name = "tiny" }}]
[tools.write_note]
policy = "auto"
hide_input = true
"""


@pytest.mark.row("TOOL-13")
async def test_an_argument_labels_its_call(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        say = user_message("a", 'call calculator {"expression":"6*7"}', params={"model": "demo/tools"})
        await command(server.url, chat_id, say)
        await watcher.at_rest()
    (running,) = [e for e in watcher.events if isinstance(e, ToolStatus) and e.status == "running"]
    assert (running.label, running.input) == ("6*7", {"expression": "6*7"})


@pytest.mark.row("EVT-8")
async def test_the_input_of_a_tool_that_hides_it_is_nowhere_but_with_tool_and_model(
    tmp_path: Path, chat_id: str
) -> None:
    arguments = json.dumps({"name": "plan.md", "text": SECRET})
    pieces = [arguments[:9], arguments[9:30], arguments[30:]]
    said = [_fragment(0, {"id": "c0", "function": {"name": "write_note", "arguments": pieces[0]}})]
    said += [_fragment(0, {"function": {"arguments": piece}}) for piece in pieces[1:]]
    replies = [
        Reply([*said, chunk(finish_reason="tool_calls"), DONE]),
        Reply([text("I wrote it down."), STOP, DONE]),
    ]
    with serve_fake_openai() as model:
        config = tmp_path / "threadcast.toml"
        config.write_text(CONFIG.format(url=model.base_url))
        with start(
            "serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config), log=tmp_path / "log"
        ) as server:
            await server.ready()
            seen: dict[str, str] = {}
            model.replies = list(replies)
            async with watching(server.url, chat_id) as watcher:
                await command(server.url, chat_id, user_message("a", "write the word down"))
                await watcher.at_rest()
                seen["events"] = json.dumps(watcher.frames)
            for path in PATHS:
                model.replies = list(replies)
                async with opened(server.url, path, body_for(path, "write it down")) as answer:
                    seen[path] = (await answer.aread()).decode()
            async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=server.url) as client:
                for path in ("", "?view=tree", "/export"):
                    seen[path] = (await client.get(f"/v1/chats/{chat_id}{path}")).text
            seen["log"] = server.log_text()
        written = [file.read_text() for file in (tmp_path / "data").rglob("plan.md")]
    assert SECRET in written, "the tool had it"
    assert SECRET in json.dumps([asked.body for asked in model.asked]), "and the model reads what it wrote"
    for where, words in seen.items():
        if where != "/api/chat/stream":  # the answer's last frame has the trace, for callers who may see it
            assert SECRET not in words, where
    assert '"write_note"' in seen["events"]


def _fragment(index: int, part: dict[str, object]) -> bytes:
    return chunk(delta={"tool_calls": [{"index": index, **part}]})
