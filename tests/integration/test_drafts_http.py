"""Drafts of workflows over real HTTP: drafts survive a restart, and no other chat can read them."""

import json
from pathlib import Path

import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import command, start, user_message
from threadcast.agent_loop.calls.previews import PREVIEW_SENT
from threadcast_protocol.wire.events import PayloadAdded, PayloadUpdated

pytestmark = pytest.mark.anyio

DRAFT = {"draft": "welcome"}


def calls(*wanted: tuple[str, dict[str, str]]) -> str:
    """Return the words that make the demo model call these tools."""
    return "\n".join(f"call {name} {json.dumps({**DRAFT, **arguments})}" for name, arguments in wanted)


def results(watcher: Watcher) -> list[str]:
    return [content for role, content in watcher.messages if role == "tool"]


@pytest.mark.row("TOOL-11", "TOOL-10", "OLD-7")
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
                await command(second.url, chat_id, user_message("b", calls(("preview_draft", {"workflow_id": "w-7"}))))
                await seen.until(lambda w: any(frame.get("outcome") for frame in w.frames))
            assert results(watcher)[-1] == PREVIEW_SENT
            assert "There is no draft 'welcome'" in results(other)[-1]

            # The draft can be approved as shown, and nothing is saved before that.
            (payload,) = [event for event in watcher.events if isinstance(event, PayloadAdded)]
            assert (payload.payload_type, payload.approval, payload.unregistered) == ("workflow", "pending", False)
            assert payload.summary == "Change to 'welcome': 2 actions"
            assert payload.data["object"] == {
                "name": "welcome",
                "actions": [
                    {"name": "Greet", "type": "mail", "after": "", "parameters": {}},
                    {"name": "Pause", "type": "wait", "after": "Greet", "parameters": {}},
                ],
                "edges": [{"target": "Greet"}, {"target": "Pause", "source": "Greet", "port": "out"}],
            }
            accepts = {"type": "tool_decision", "client_request_id": "yes", "payload_id": payload.payload_id}
            await command(second.url, "c1", {**accepts, "accepted": True, "input_hash": payload.input_hash})
            await watcher.until(lambda w: any(frame.get("approval") == "committed" for frame in w.frames))
    approvals = [event.approval for event in watcher.events if isinstance(event, PayloadUpdated)]
    assert approvals == ["accepted", "committed"]
