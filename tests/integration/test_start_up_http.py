"""The first requests of clients: the answers have exactly the fields of PROTOCOL §13, and the listed limits hold."""

from typing import get_args

import httpx2
import msgspec
import pytest
from msgspec import Meta

from tests.integration.test_chats_http import get
from tests.support.server import Process, command, user_message
from threadcast.actor.actor import POISON_ATTEMPTS
from threadcast.api import limits
from threadcast_protocol.wire import server_info as answers
from threadcast_protocol.wire.commands import Command, Decision, Note, ToolDecisions
from threadcast_protocol.wire.errors import CODES
from threadcast_protocol.wire.events import Event
from threadcast_protocol.wire.ids import check_id
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return set(struct.__struct_fields__)


@pytest.mark.row("SET-3")
async def test_caps_tell_models_profiles_scopes_types_codes_and_limits(server: Process) -> None:
    caps = await get(server.url, "/v1/caps")
    assert set(caps) == fields(answers.Capabilities)
    msgspec.convert(caps, answers.Capabilities)
    assert caps["chat_default_model"] in caps["chat_models"]
    for model_id, model in caps["chat_models"].items():
        assert set(model) == fields(answers.ModelCapabilities)
        assert (model["id"], model["type"], model["enabled"]) == (model_id, "chat", True)
        assert (model["tokenizer"], model["supports_clicks"], model["supports_agent"]) == ("", False, True)
    assert (caps["completion_models"], caps["metadata"]) == ({}, None)
    assert set(caps["scopes"]) == set(caps["profiles"]) >= {"agent"}
    assert set(caps["commands"]) == {member.__struct_config__.tag for member in get_args(Command)}
    assert set(caps["events"]) == {"snapshot", *(member.__struct_config__.tag for member in get_args(Event))}
    assert set(caps["codes"]) == CODES
    units = ("_bytes", "_count", "_characters", "_seconds", "_rounds")
    for name, number in caps["limits"].items():
        assert name.endswith(units), name
        assert number > 0, name


@pytest.mark.row("SET-3")
async def test_limits_of_caps_are_those_that_refuse(server: Process, chat_id: str) -> None:
    told = (await get(server.url, "/v1/caps"))["limits"]
    assert (await get(server.url, "/v1/chats", 400, limit=told["list_max_count"] + 1))["path"] == "/limit"
    await get(server.url, "/v1/chats", limit=told["list_max_count"])
    await get(server.url, "/v1/chats", 400, q="x" * (told["search_max_characters"] + 1))
    await get(server.url, f"/v1/chats/{'x' * (told['id_max_characters'] + 1)}", 400)
    for extra, status in ((0, 202), (1, 413)):
        text = "x" * (told["text_max_bytes"] + extra)
        assert (await command(server.url, chat_id, user_message(f"a{extra}", text))).status_code == status


def _bound(annotated: object, name: str) -> object:
    _, *notes = get_args(annotated)
    return next(getattr(note, name) for note in notes if isinstance(note, Meta))


def test_limits_that_are_written_twice_agree() -> None:
    assert limits.WORKER_DEATHS_MAX_COUNT == POISON_ATTEMPTS
    assert _bound(Note, "max_length") == limits.NOTE_MAX_CHARACTERS
    assert check_id("x" * limits.ID_MAX_CHARACTERS, "id")
    decisions = [Decision(accepted=True)] * limits.DECISIONS_MAX_COUNT
    body: JsonObject = {"type": "tool_decisions", "client_request_id": "a", "decisions": decisions}
    msgspec.convert(msgspec.to_builtins(body), ToolDecisions)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins({**body, "decisions": [*decisions, decisions[0]]}), ToolDecisions)


async def test_providers_modes_tools_and_ping_have_the_shapes_of_the_foreign_gui(
    server: Process, client: httpx2.AsyncClient
) -> None:
    assert (await client.get("/v1/ping")).text == "pong"
    listed = await get(server.url, "/v1/providers")
    assert set(listed) == {"providers"}
    for provider in listed["providers"]:
        assert set(provider) == fields(answers.ProviderInfo)
        assert (provider["enabled"], provider["readonly"], provider["has_credentials"]) == (True, True, True)
        assert provider["status"] == "active"
        assert provider["model_count"] >= 1
    modes = await get(server.url, "/v1/chat-modes")
    assert set(modes) == {"modes", "errors"}
    for mode in modes["modes"]:
        assert set(mode) == fields(answers.ChatMode)
        assert set(mode["thread_defaults"]) == fields(answers.ThreadDefaults)
        assert all(isinstance(value, bool) for value in mode["thread_defaults"].values())
        assert set(mode["ui"]) == {"order", "tags"}
    tools: list[JsonObject] = (await client.get("/v1/tools")).json()
    msgspec.convert(tools, list[answers.ToolInfo])
    assert all(set(tool) == fields(answers.ToolInfo) for tool in tools)
