"""Checks that a message with priority waits for the end of a framework agent's run, and is answered next."""

from pathlib import Path

import pytest

from tests.agents import test_acp_http, test_ag_ui_http
from tests.integration.test_durable_agents_http import asked
from tests.support.reader import Watcher
from tests.support.server import ROOT, Process, command, start, user_message

pytestmark = pytest.mark.anyio


def speaks(watcher: Watcher) -> bool:
    return watcher.state is not None and watcher.state.draft is not None and bool(watcher.state.draft.content)


def waits(watcher: Watcher) -> bool:
    return watcher.state is not None and watcher.state.runtime.queue_size == 1


async def interject(server: Process, chat_id: str, watcher: Watcher, mode: str, text: str) -> None:
    """Send a message with priority while the agent writes, and wait until it is in the queue."""
    await watcher.until(speaks)
    await command(server.url, chat_id, user_message("b", text, priority=True, params={"mode": mode}))
    await watcher.until(waits)


async def test_a_message_with_priority_waits_for_the_end_of_the_run(tmp_path: Path) -> None:
    line = ["serve", "--port", "0", "--memory", "--app", str(ROOT / "tests/agents/priority_app.py")]
    with start(*line, log=tmp_path / "log") as process:
        server = process.wait_ready()
        for mode in ("pydantic_ai", "langgraph", "openai_agents"):
            async with asked(server, mode, "first") as (chat_id, watcher):
                await interject(server, chat_id, watcher, mode, "second")
                await watcher.at_rest(2)
            said = [(role, text.split()[-1]) for role, text in watcher.messages]
            assert said == [("user", "first"), ("assistant", "first"), ("user", "second"), ("assistant", "second")]


async def test_a_message_with_priority_waits_for_an_agent_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    with test_ag_ui_http.remote(tmp_path / "remote") as url:
        file = test_acp_http.settings(tmp_path, extra=f'[agents.weather]\nkind = "ag_ui"\nurl = "{url}"')
        line = ["serve", "--port", "0", "--memory", "--config", str(file)]
        with start(*line, log=tmp_path / "log", environment={"SHARED": "yes"}) as process:
            server = process.wait_ready()
            for mode, text in (("coder", "slow"), ("weather", "hangs")):
                async with asked(server, mode, text) as (chat_id, watcher):
                    await interject(server, chat_id, watcher, mode, "hello")
                    await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
                    await watcher.at_rest(2)
                assert [role for role, text in watcher.messages if text] == ["user", "assistant"] * 2
