"""Agents of an operator's file answer chats over HTTP, in place of a model."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, command, start, user_message
from threadcast_protocol.wire.events import AgentData, ErrorHappened, PauseRequired

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-1")]

APP = ROOT / "tests/integration/agents_app.py"


@asynccontextmanager
async def server(tmp_path: Path, config: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    settings = tmp_path / "threadcast.toml"
    settings.write_text(config)
    with start(
        *("serve", "--port", "0", "--app", str(APP), "--data-dir", str(tmp_path / "data"), "--config", str(settings)),
        log=tmp_path / "log",
    ) as process:
        await process.ready()
        async with httpx2.AsyncClient(base_url=process.url, timeout=DEADLINE_SECONDS) as client:
            yield client


def url_of(client: httpx2.AsyncClient) -> str:
    return str(client.base_url).rstrip("/")


async def answered(client: httpx2.AsyncClient, mode: str, text: str = "hello", **params: object) -> Watcher:
    """Return the reader of a new chat, once the agent has answered."""
    chat_id = f"chat-{mode}"
    async with watching(url_of(client), chat_id) as watcher:
        await command(url_of(client), chat_id, user_message("a", text, params={"mode": mode, **params}))
        await watcher.at_rest()
    return watcher


def last(watcher: Watcher) -> Any:  # Any: a message, whose fields each test reads
    assert watcher.state is not None
    return watcher.state.leaf


async def test_each_piece_reaches_the_readers(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        watcher = await answered(client, "pieces")
    answer = last(watcher)
    assert answer.content == "One. Two."
    assert answer.reasoning_content == "I think. "
    assert answer.citations == [{"url": "http://localhost/source"}]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 4)
    assert answer.model == "agents/pieces"
    (data,) = [event for event in watcher.events if isinstance(event, AgentData)]
    assert (data.data_type, data.data, data.message_id) == ("chart", {"bars": [1, 2]}, answer.message_id)


@pytest.mark.parametrize(
    ("mode", "text"), [("listing", "abc"), ("slow", "".join(f"word{number} " for number in range(60)))]
)
async def test_a_function_may_return_its_pieces_or_yield_them_in_a_thread(tmp_path: Path, mode: str, text: str) -> None:
    async with server(tmp_path) as client:
        assert last(await answered(client, mode)).content == text


async def test_an_agent_is_a_profile_with_parameters_of_its_own(tmp_path: Path) -> None:
    mirror = '[profiles.mirror]\ntitle = "The mirror"\nsystem_prompt = "Be glass."\nparams = { seed = 5 }\n'
    async with server(tmp_path, mirror) as client:
        modes = {mode["id"]: mode for mode in (await client.get("/v1/chat-modes")).json()["modes"]}
        assert modes["mirror"]["title"] == "The mirror"
        assert modes["bank"]["title"] == "Bank"
        assert modes["bank"]["model"] == "agents/bank"
        assert modes["bank"]["description"] == "Charges the amount in the user's message."
        caps = (await client.get("/v1/caps")).json()
        assert {"bank", "mirror", "pieces"} <= set(caps["profiles"])
        assert not any(model.startswith("agents/") for model in caps["chat_models"])
        tools = (await client.get("/v1/tools", params={"mode": "bank"})).json()
        assert {tool["name"]: tool["policy"] for tool in tools} == {"balance": "auto", "charge": "ask"}
        watcher = await answered(client, "mirror", temperature=0.5, model="demo/echo")
    told = json.loads(last(watcher).content)
    assert told["roles"] == ["user"]
    assert told["tools"] == ["balance"]
    assert (told["params"]["seed"], told["params"]["temperature"]) == (5, 0.5)
    assert told["params"]["model"] == "demo/echo", "the agent may follow the model that a person chose"
    assert told["principal"] == "local"
    assert "Be glass." in told["system"]
    assert (told["number"], told["shown"]) == (0, "")


async def test_calls_are_approved_and_run_by_the_server_and_the_next_round_has_their_results(tmp_path: Path) -> None:
    async with server(tmp_path) as client, watching(url_of(client), "c1") as watcher:
        await command(url_of(client), "c1", user_message("a", "charge me", params={"mode": "bank"}))
        await watcher.until(lambda w: any(isinstance(event, PauseRequired) for event in w.events))
        (pause,) = [event for event in watcher.events if isinstance(event, PauseRequired)]
        (reason,) = pause.reasons
        assert not [*(tmp_path / "data").rglob("charges")], "nobody has approved it yet"
        decision = {"tool_call_id": reason.tool_call_id, "accepted": True}
        body = {"type": "tool_decisions", "client_request_id": "b", "decisions": [decision]}
        await command(url_of(client), "c1", body)
        await watcher.at_rest()
        exported = (await client.get("/v1/chats/c1/export")).text
    assert watcher.state is not None
    roles = [watcher.state.nodes[key].role for key in watcher.state.path]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert [watcher.state.nodes[key].content for key in watcher.state.path[2:4]] == ["charged 300", "7 dollars"]
    calls = watcher.state.nodes[watcher.state.path[1]].tool_calls
    assert [(call.id, call.function.name) for call in calls][1] == ("my-own-id", "balance")
    assert last(watcher).content.endswith("kept: ['planned by round 0']"), "the agent's state comes back to it"
    sent = json.dumps(watcher.frames) + exported
    assert base64.b64encode(b"planned by round 0").decode() not in sent, "what is kept never leaves the server"


@pytest.mark.parametrize(
    ("mode", "sentence", "logged"),
    [
        ("broken", "The agent 'broken' failed (LookupError).", "the secret is 42"),
        ("wrong", "The agent 'wrong' failed (TypeError).", "not int"),
        ("greedy", "The agent 'greedy' failed (ValueError).", "at most 256000 bytes"),
    ],
)
async def test_an_agent_that_fails_is_told_without_its_secrets(
    tmp_path: Path, mode: str, sentence: str, logged: str
) -> None:
    async with server(tmp_path) as client:
        watcher = await answered(client, mode)
        assert "secret" not in json.dumps(watcher.frames)
        (error,) = [event for event in watcher.events if isinstance(event, ErrorHappened)]
        assert (error.code, error.message) == ("llm_error", sentence)
        assert logged in (tmp_path / "log").read_text()
        if mode == "broken":
            assert last(watcher).content == "Half an ans"


async def test_an_agent_cannot_be_given_a_model_by_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "threadcast.toml"
    settings.write_text('[profiles.bank]\nmodel = "demo/echo"\n')
    with start(
        *("serve", "--port", "0", "--app", str(APP), "--config", str(settings), "--data-dir", str(tmp_path / "data")),
        log=tmp_path / "log",
    ) as process:
        assert await process.ended() == 1
    assert (
        "profiles.bank: the agent 'bank' of server.app answers here; leave out model and fallback"
        in (tmp_path / "log").read_text()
    )


async def test_an_agent_called_agent_answers_chats_that_choose_no_mode(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from threadcast import Round, agent\n\n\n"
        '@agent("agent", tools=[])\n'
        "async def mine(round: Round) -> str:\n"
        '    return f"mine: {round.messages[-1].content}"\n'
    )
    with start("serve", "--port", "0", "--memory", "--app", str(app), log=tmp_path / "log") as process:
        await process.ready()
        async with watching(process.url, "c1") as watcher:
            await command(process.url, "c1", user_message("a", "hello"))
            await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "mine: hello")
