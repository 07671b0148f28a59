"""A coding agent as people install it, the Gemini CLI, behind ACP: unpatched, with a model on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.test_acp_http import paused
from tests.peers.installed import node_package
from tests.ports import free_port
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import ROOT, command, user_message
from threadcast_protocol.wire.events import PayloadAdded

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-9")]

USER = "root" if os.geteuid() == 0 else ""

SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True},
}
"""The program's own settings: it calls the model with a key, trusts its folder, and sends no usage data."""


@contextmanager
def coding(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run the model, and yield a configuration in which the agent `gemini` is the Gemini CLI."""
    program = json.dumps([*node_package("@google/gemini-cli", "bundle/gemini.js"), "--acp"])
    home, port = directory / "home", free_port()
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini" / "settings.json").write_text(json.dumps(SETTINGS))
    url = f"http://127.0.0.1:{port}"
    for name, value in {"HOME": str(home), "GEMINI_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": url}.items():
        monkeypatch.setenv(name, value)
    config = directory / "threadcast.toml"
    config.write_text(
        f'[server]\nprograms_user = "{USER}"\n[agents.gemini]\nkind = "acp"\ncommand = {program}\nfiles = "none"\n'
        f'env = ["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"]\nworkspace = "{directory}/workspaces"\n'
    )
    line = [sys.executable, "-m", "tests.peers.gemini_model", str(port), str(directory)]
    with subprocess.Popen(line, cwd=ROOT) as model:
        try:
            yield config
        finally:
            model.terminate()


async def ask(url: str, request_id: str, text: str) -> None:
    await command(url, "work", user_message(request_id, text, params={"mode": "gemini"}))


def has_text(watcher: Watcher, text: str) -> bool:
    return watcher.state is not None and watcher.state.draft is not None and text in str(watcher.state.draft.content)


async def test_a_coding_agent_asks_writes_stops_and_goes_on_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        coding(tmp_path, monkeypatch) as config,
        fleet_on_new_store(tmp_path, "--config", str(config), limits=FAST) as fleet,
    ):
        await fleet.open()
        async with watching(fleet.url, "work") as watcher, watching(fleet.url, "work") as second_tab:
            await ask(fleet.url, "a", "write hello.txt")
            await paused(watcher)
            [reason] = await paused(second_tab)  # a person decides in another tab
            assert reason.tool_name == "gemini_edit"
            file = tmp_path / "workspaces" / "work" / "hello.txt"
            assert not file.exists()
            decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
            await command(fleet.url, "work", {"type": "tool_decision", "client_request_id": "yes", **decision})
            await watcher.at_rest()
            assert file.read_text() == "from the agent\n"
            assert watcher.messages[-1] == ("assistant", "It is written.")
            [card] = [each for each in watcher.events if isinstance(each, PayloadAdded)]
            assert (card.payload_type, card.data["after"]) == ("diff", "from the agent\n")

            await ask(fleet.url, "b", "wait here")
            await watcher.until(lambda w: has_text(w, "I wait."))
            await command(fleet.url, "work", {"type": "abort", "client_request_id": "stop"})
            await watcher.at_rest(2)
            assert watcher.messages[-1][1].startswith("I wait. ")

            await ask(fleet.url, "c", "wait again")
            await watcher.until(lambda w: has_text(w, "I wait."))
            fleet.kill_owner("work")
            await fleet.add_worker()
            await watcher.at_rest(3)
            assert watcher.state is not None
            assert watcher.state.runtime.outcome == "interrupted"
            await ask(fleet.url, "d", "and now")
            await watcher.at_rest(4)
            assert watcher.messages[-1] == ("assistant", "You said and now.")
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert asked[0][0] == "write hello.txt"
    words, conversation = asked[-1]
    assert words == "and now"
    assert "wait again" in conversation, "the session goes on; if the program cannot load it, a new one gets the chat"
