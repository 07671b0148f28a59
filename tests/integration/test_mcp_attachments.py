"""Resources and prompts of real MCP servers: listed, attached to messages, refused with a reason."""

from pathlib import Path

import pytest

from tests.integration.mcp_harness import STDIO, get, harness, shop_port
from tests.integration.store_fixtures import fresh_url
from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from threadcast.store.embedded.server_process import ServerProcess
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["harness", "shop_port"]

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio


@pytest.mark.row("MCP-3", "MCP-4", "MCP-5")
async def test_resources_and_prompts_are_listed_and_dead_servers_named(harness: Process) -> None:
    resources = (await get(harness, "/v1/mcp/resources")).json()
    packing = {
        "server": "desk",
        "uri": "notes://packing",
        "name": "packing",
        "description": "What to take along",
        "mime_type": "text/plain",
    }
    assert packing in resources["resources"]
    assert {item["server"] for item in resources["resources"]} == {"desk", "brittle", "careful", "shop"}
    (error,) = resources["errors"]
    assert error["server"] == "dead" and "not connected" in error["error"]
    prompts = (await get(harness, "/v1/mcp/prompts")).json()
    assert {
        "server": "shop",
        "name": "greet",
        "description": "Greet somebody.",
        "arguments": [{"name": "name", "description": "", "required": True}],
    } in prompts["prompts"]
    assert [error["server"] for error in prompts["errors"]] == ["dead"]


@pytest.mark.row("ATT-3", "MCP-3", "MCP-4")
async def test_resources_and_prompts_are_attached_with_their_content(harness: Process, chat_id: str) -> None:
    attachments = [
        {"type": "mcp_resource", "server": "desk", "uri": "notes://packing"},
        {"type": "mcp_resource", "server": "desk", "uri": "notes://pixel"},
        {"type": "mcp_prompt", "server": "shop", "name": "greet", "args": {"name": "Bo"}},
    ]
    async with watching(harness.url, chat_id) as watcher:
        answer = await command(harness.url, chat_id, user_message("a", "Look", attachments=attachments))
        assert answer.status_code == 202, answer.text
        await watcher.at_rest()
    message = next(frame["message"] for frame in watcher.frames if frame["type"] == "message_added")
    text, packing, label, image, prompt = message["content"]
    assert text == {"type": "text", "text": "Look"}
    assert packing == {"type": "file", "name": "desk: notes://packing", "mime": "text/plain", "text": "socks, map"}
    assert label["text"] == "[desk: notes://pixel]"
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert prompt["text"] == "[prompt shop: greet]\nSay hello to Bo."


@pytest.mark.row("ATT-3")
@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        ({"type": "mcp_resource", "server": "desk", "uri": "notes://none"}, "notes://none"),
        ({"type": "mcp_resource", "server": "nobody", "uri": "x"}, "there is no MCP server 'nobody'"),
        ({"type": "mcp_prompt", "server": "dead", "name": "greet"}, "not connected"),
        ({"type": "mcp_prompt", "server": "desk", "name": "greet"}, "greet"),
        ({"type": "mcp_prompt", "server": "desk"}, "name"),
    ],
)
async def test_what_cannot_be_fetched_refuses_the_command_with_the_reason(
    harness: Process, chat_id: str, attachment: JsonObject, words: str
) -> None:
    answer = await command(harness.url, chat_id, user_message("a", "Look", attachments=[attachment]))
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_content" and words in answer.json()["detail"]
    assert answer.json()["path"].startswith("/attachments/0")
    assert (await get(harness, f"/v1/chats/{chat_id}")).status_code == 404, "nothing was kept"


@pytest.mark.row("ATT-3")
async def test_more_attachments_than_ten_are_not_fetched(harness: Process, chat_id: str) -> None:
    many = [{"type": "mcp_resource", "server": "desk", "uri": "notes://packing"}] * 11
    answer = await command(harness.url, chat_id, user_message("a", "Look", attachments=many))
    assert answer.status_code == 400 and "at most 10" in answer.json()["detail"]


@pytest.mark.row("MCP-3")
async def test_a_web_process_alone_connects_when_it_is_asked(tmp_path: Path, valkey_server: ServerProcess) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(f"[mcp.desk]\n{STDIO}\n")
    environment = {"REDIS_URL": fresh_url(valkey_server)}
    arguments = ["web", "--port", "0", "--config", str(file)]
    with start(*arguments, log=tmp_path / "log", environment=environment) as process:
        await process.ready()
        assert "mcp.connected" not in process.log_text()
        resources = (await get(process, "/v1/mcp/resources")).json()
    assert resources["errors"] == []
    assert [item["uri"] for item in resources["resources"]] == ["notes://packing", "notes://pixel"]
