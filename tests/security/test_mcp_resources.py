"""Resources and prompts of MCP servers are fetched without approval, so a caller gets only those that the operator
allows."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import httpx2
import pytest

from tests.support.server import DEADLINE_SECONDS, start, user_message
from tests.support.tokens import bearer, tokens
from threadcast_protocol.wire.messages import JsonObject

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-6")]

SHADOW = {"type": "mcp_resource", "server": "files", "uri": "file:///etc/shadow"}
PACKING = {"type": "mcp_resource", "server": "files", "uri": "notes://packing"}
GREET = {"type": "mcp_prompt", "server": "files", "name": "greet"}
HIDDEN = {"type": "mcp_prompt", "server": "files", "name": "hidden"}

CALLERS = tokens(ann='permissions = []\nroles = ["reader"]', bob="permissions = []")


class Attacker:
    """One server with the MCP server `files`, its callers, and the record of the MCP server's requests."""

    def __init__(self, client: httpx2.AsyncClient, record: Path) -> None:
        self.client = client
        self._record = record
        self._count = 0

    async def attach(self, attachment: JsonObject, caller: str | None = "ann") -> httpx2.Response:
        self._count += 1
        return await self.client.post(
            f"/v1/chats/chat-{self._count}/commands",
            json=user_message(f"r{self._count}", "look", attachments=[attachment]),
            headers=bearer(caller) if caller else {},
        )

    async def lists(self, caller: str | None = "ann") -> tuple[list[str], list[str], list[JsonObject]]:
        """Return the URIs of resources, the names of prompts, and all errors that the caller receives."""
        headers = bearer(caller) if caller else {}
        resources = (await self.client.get("/v1/mcp/resources", headers=headers)).json()
        prompts = (await self.client.get("/v1/mcp/prompts", headers=headers)).json()
        return (
            [item["uri"] for item in resources["resources"]],
            [item["name"] for item in prompts["prompts"]],
            resources["errors"] + prompts["errors"],
        )

    @property
    def fetched(self) -> list[str]:
        return [json.loads(line) for line in self._record.read_text().splitlines()] if self._record.exists() else []


class Attack(Protocol):
    def __call__(self, lines: str, callers: str = CALLERS) -> AbstractAsyncContextManager[Attacker]: ...


@pytest.fixture
def attack(tmp_path: Path) -> Attack:
    """Return a function that starts a server. The function's argument is added to the configuration of the MCP server
    `files` and of a second MCP server, `dead`, which never answers."""

    @asynccontextmanager
    async def attack(lines: str, callers: str = CALLERS) -> AsyncIterator[Attacker]:
        record, file = tmp_path / "record", tmp_path / "threadcast.toml"
        program = Path(__file__).with_name("mcp_files.py")
        file.write_text(
            f'[mcp.files]\ncommand = "{sys.executable}"\nargs = ["{program}", "{record}"]\n{lines}\n'
            f'[mcp.dead]\ncommand = "{tmp_path}/no-such-program"\n{lines}\n{callers}'
        )
        arguments = ("serve", "--memory", "--port", "0", "--config", str(file))
        with start(*arguments, log=tmp_path / "log") as server:
            await server.ready()
            with anyio.fail_after(DEADLINE_SECONDS):
                while "mcp.connected" not in server.log_text():
                    await anyio.sleep(0.05)
            async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
                yield Attacker(client, record)

    return attack


async def test_with_tokens_no_resource_or_prompt_is_given_until_the_operator_allows_it(attack: Attack) -> None:
    async with attack("") as attacker:
        for attachment in (SHADOW, PACKING, GREET, HIDDEN):
            answer = await attacker.attach(attachment)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_content")
            assert "no MCP server 'files'" in answer.json()["detail"]
        assert await attacker.lists() == ([], [], [])
        assert attacker.fetched == []


async def test_only_listed_resources_and_prompts_are_given(attack: Attack) -> None:
    async with attack('resources = "listed"\nprompts = "listed"') as attacker:
        uris, names, errors = await attacker.lists()
        assert (uris, names) == (["notes://packing"], ["greet"]), "without those that have control characters"
        assert [error["server"] for error in errors] == ["dead", "dead"]
        beside = [f"notes://packing{end}" for end in ("/", "#", "?", "/../packing", "%00", "/../../etc/shadow")]
        other = ["NOTES://packing", "notes://PACKING", " notes://packing", "notes:packing", *beside]
        for attachment in (SHADOW, HIDDEN, *({**PACKING, "uri": uri} for uri in other)):
            answer = await attacker.attach(attachment)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_content")
            assert "does not list" in answer.json()["detail"]
        assert attacker.fetched == []
        for attachment in (PACKING, GREET):
            assert (await attacker.attach(attachment)).status_code == 202
        assert attacker.fetched == ["notes://packing", "greet"]


async def test_control_characters_are_refused_even_where_any_uri_is_allowed(attack: Attack) -> None:
    async with attack('resources = "any"\nprompts = "any"') as attacker:
        for character in "\x00\n\r\t\x7f\x85\u2028\u2029\u202e\u200b\ufeff":
            for attachment in ({**SHADOW, "uri": f"file:///a{character}b"}, {**HIDDEN, "name": f"a{character}b"}):
                answer = await attacker.attach(attachment)
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid_content"), repr(character)
                assert "control characters" in answer.json()["detail"]
        assert attacker.fetched == []
        assert (await attacker.attach(SHADOW)).status_code == 202
        assert attacker.fetched == ["file:///etc/shadow"]


async def test_without_the_role_a_server_looks_like_one_that_does_not_exist(attack: Attack) -> None:
    async with attack('resources = "any"\nprompts = "listed"\nattach_role = "reader"') as attacker:
        assert await attacker.lists("bob") == ([], [], [])
        for attachment in (SHADOW, PACKING, GREET):
            foreign = await attacker.attach(attachment, "bob")
            unknown = await attacker.attach({**attachment, "server": "other"}, "bob")
            assert foreign.status_code == unknown.status_code == 400
            assert foreign.json()["detail"].replace("'files'", "'other'") == unknown.json()["detail"]
        assert attacker.fetched == []
        uris, names, _ = await attacker.lists("ann")
        assert (uris, names) == (["notes://packing"], ["greet"])
        assert (await attacker.attach(PACKING, "ann")).status_code == 202


@pytest.mark.parametrize("kind", ["retry_from_index", "update_message", "edit_queued"])
async def test_no_other_command_attaches_what_a_message_may_not(attack: Attack, kind: str) -> None:
    async with attack('resources = "listed"') as attacker:
        more: dict[str, JsonObject] = {
            "retry_from_index": {"index": 0, "content": "again"},
            "update_message": {"message_id": "m", "content": "new"},
            "edit_queued": {"target_request_id": "q", "content": "new"},
        }
        body = {"type": kind, "client_request_id": "r", **more[kind], "attachments": [SHADOW]}
        answer = await attacker.client.post("/v1/chats/c/commands", json=body, headers=bearer("ann"))
        assert answer.status_code == 400
        assert "does not list" in answer.json()["detail"]
        assert attacker.fetched == []


async def test_without_tokens_the_local_user_may_attach_any_resource(attack: Attack) -> None:
    async with attack("", callers="") as attacker:
        assert (await attacker.attach(SHADOW, None)).status_code == 202
        assert attacker.fetched == ["file:///etc/shadow"]
