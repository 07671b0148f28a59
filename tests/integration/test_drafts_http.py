"""Drafts of workflows over real HTTP: they survive a restart, and no other chat sees them."""

import json
from pathlib import Path

import pytest

from protocol.events import PayloadAdded
from tests.integration.harness import Watcher, command, start, user_message, watching

pytestmark = pytest.mark.anyio

DRAFT = {"draft": "welcome"}


def calls(*wanted: tuple[str, dict[str, str]]) -> str:
    """The words that make the demo model call these tools."""
    return "\n".join(f"call {name} {json.dumps({**DRAFT, **arguments})}" for name, arguments in wanted)


def results(watcher: Watcher) -> list[str]:
    return [content for role, content in watcher.messages if role == "tool"]


@pytest.mark.row("TOOL-11", "TOOL-10")
async def test_a_draft_survives_its_server_and_stays_in_its_chat(tmp_path: Path) -> None:
    app = str(Path(__file__).with_name("draft_tools_app.py"))
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--app", app]
    arguments += ["--model", "demo/tools?rate=0"]
    begun = calls(
        ("start_draft", {}),
        ("add_action", {"name": "Greet", "type": "mail"}),
        ("add_action", {"name": "Pause", "type": "wait", "after": "Greet"}),
    )
    with start(*arguments, log=tmp_path / "log") as first:
        await first.ready()
        async with watching(first.url, "c1") as watcher:
            await command(first.url, "c1", user_message("a", begun))
            await watcher.at_rest()
            assert "The draft has 2 actions" in results(watcher)[-1]
            assert b'"actions":' not in watcher.snapshot
        first.kill()
    with start(*arguments, log=tmp_path / "log") as second:
        await second.ready()
        async with watching(second.url, "c1") as watcher, watching(second.url, "c2") as other:
            for chat_id, seen in (("c1", watcher), ("c2", other)):
                await command(second.url, chat_id, user_message("b", calls(("preview_draft", {}))))
                await seen.until(lambda w: any(frame.get("outcome") for frame in w.frames))
            shown = json.loads(results(watcher)[-1])
            assert "There is no draft 'welcome'" in results(other)[-1]
    assert shown["edges"] == [{"target": "Greet"}, {"target": "Pause", "source": "Greet", "port": "out"}]
    (payload,) = [event for event in watcher.events if isinstance(event, PayloadAdded)]
    assert (payload.payload_type, payload.data, payload.summary) == ("workflow_draft", shown, "welcome: 2 actions")
