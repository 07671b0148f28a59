"""Modes over real HTTP: in upper or lower case, by an alias, and chats whose mode names no profile."""

import json
from collections.abc import Iterator

import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import Process, command, started_server, user_message

pytestmark = pytest.mark.anyio

CONFIG = """
[profiles.agent]
aliases = ["TASK_AGENT"]
model = "demo/echo?rate=0"

[profiles.explore]
aliases = ["NO_TOOLS", "look"]
tools = []
model = "demo/essay?words=2&rate=0"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("modes")
    with started_server(base, is_durable=True, config=CONFIG) as process:
        yield process.wait_ready()


@pytest.mark.parametrize("mode", ["EXPLORE", "no_tools", "NO_TOOLS", "Look", "explore"])
async def test_a_mode_is_found_in_any_case_and_by_its_aliases(server: Process, mode: str) -> None:
    name = f"by-{mode}"
    async with watching(server.url, name) as watcher:
        patch = {"type": "set_params", "client_request_id": "p", "patch": {"mode": mode}}
        assert (await command(server.url, name, patch)).status_code == 200
        await watcher.until(lambda w: any(frame["type"] == "thread_updated" for frame in w.frames))
        told = [frame["mode"] for frame in watcher.frames if frame["type"] == "thread_updated"]
        assert told == ["explore"], "the thread has the name of the profile, whatever word was used for it"
        await command(server.url, name, user_message("a", "hi"))
        await watcher.at_rest()
        assert watcher.state is not None and watcher.state.leaf is not None
        assert watcher.state.leaf.model == "demo/essay"
        assert [frame for frame in watcher.frames if frame["type"] == "error"] == []


async def test_a_message_and_the_list_of_tools_take_the_same_words(server: Process, client: httpx2.AsyncClient) -> None:
    async with watching(server.url, "of-a-message") as watcher:
        assert (
            await command(server.url, "of-a-message", user_message("a", "hi", params={"mode": "NO_TOOLS"}))
        ).status_code == 202
        await watcher.at_rest()
        assert watcher.state is not None and watcher.state.leaf is not None
        assert watcher.state.leaf.model == "demo/essay"
    refused = await command(server.url, "of-a-message", user_message("b", "hi", params={"mode": "NO_SUCH"}))
    assert (refused.status_code, refused.json()["path"]) == (400, "/params/mode")
    assert (await client.get("/v1/tools?mode=NO_TOOLS")).json() == []
    modes = (await client.get("/v1/chat-modes")).json()["modes"]
    assert [(mode["id"], mode["aliases"]) for mode in modes] == [
        ("agent", ["TASK_AGENT"]),
        ("explore", ["NO_TOOLS", "look"]),
    ]
    caps = (await client.get("/v1/caps")).json()
    assert caps["mode_aliases"] == {"TASK_AGENT": "agent", "NO_TOOLS": "explore", "look": "explore"}
    assert caps["profiles"] == ["agent", "explore"]


async def test_an_imported_chat_whose_mode_nobody_has_says_so_and_is_answered_by_the_default_profile(
    server: Process,
    client: httpx2.AsyncClient,
) -> None:
    async with watching(server.url, "moved") as watcher:
        await command(server.url, "moved", user_message("a", "hi"))
        await watcher.at_rest()
    header, *lines = (await client.get("/v1/chats/moved/export")).text.splitlines()
    chat = json.loads(header)
    chat["chat_id"] = "from-elsewhere"
    chat["thread"] |= {"mode": "ICHOR", "id": "from-elsewhere"}
    body = "\n".join([json.dumps(chat), *lines, ""])
    imported = await client.post("/v1/chats/import", content=body)
    assert imported.json()["imported"] == ["from-elsewhere"], imported.text
    async with watching(server.url, "from-elsewhere") as watcher:
        await command(server.url, "from-elsewhere", user_message("b", "and now?"))
        await watcher.at_rest()
        assert watcher.state is not None and watcher.state.leaf is not None
        assert watcher.state.leaf.content == "You said: and now?", "the default profile answers"
        errors = [frame for frame in watcher.frames if frame["type"] == "error"]
        assert [(each["code"], each["fatal"], each["details"]) for each in errors] == [
            ("unknown_mode", False, {"mode": "ICHOR"})
        ]
        ended = [frame["outcome"] for frame in watcher.frames if frame.get("outcome") and frame["seq"] != "0"]
        assert ended == ["complete"]
        patch = {"type": "set_params", "client_request_id": "p", "patch": {"mode": "look"}}
        await command(server.url, "from-elsewhere", patch)
        await command(server.url, "from-elsewhere", user_message("c", "and now?"))
        await watcher.until(lambda w: w.runs_ended == 2)
        assert len([frame for frame in watcher.frames if frame["type"] == "error"]) == 1
