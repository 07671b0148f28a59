"""The list of models that a provider's server reports: in `/v1/caps`, as the default model, and when the server
fails."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, serve_fake_openai, text
from tests.ports import free_port
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, command, serving, start, user_message
from threadcast.providers import lists
from threadcast.providers.lists import ListRequest, ModelList, list_request
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


def models(*names: str, **more: object) -> Reply:
    body = {"object": "list", "data": [{"id": name, **more} for name in names]}
    return Reply([json.dumps(body).encode()], headers={"content-type": "application/json"})


async def caps_of(url: str) -> JsonObject:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        caps: JsonObject = (await client.get(f"{url}/v1/caps")).json()
        return caps


@pytest.mark.row("SET-3")
async def test_a_server_with_nothing_but_its_address_works_with_the_first_model_that_it_lists(
    fake: FakeOpenAI, tmp_path: Path
) -> None:
    fake.lists = models("llama3.2:latest", "qwen3:8b", owned_by="library")
    async with serving(tmp_path, is_durable=True, environment={"OPENAI_BASE_URL": fake.base_url}) as server:
        caps = await caps_of(server.url)
        assert sorted(caps["chat_models"]) == ["openai/llama3.2:latest", "openai/qwen3:8b"], "no demo models"
        assert caps["chat_default_model"] == "openai/llama3.2:latest"
        async with httpx2.AsyncClient(base_url=server.url) as client:
            providers = (await client.get("/v1/providers")).json()["providers"]
            assert [(each["name"], each["model_count"]) for each in providers] == [("openai", 2)]
            offered = [tool["name"] for tool in (await client.get("/v1/tools")).json()]
            assert offered == ["get_payload"], "no demo tools"
        fake.replies = [Reply([text("Hello."), STOP, DONE])]
        async with watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "hi"))
            await watcher.at_rest()
            started = [frame["model"] for frame in watcher.frames if frame["type"] == "stream_started"]
        assert started == ["openai/llama3.2:latest"]
        assert [asked.body["model"] for asked in fake.asked] == ["llama3.2:latest"]


async def test_a_server_of_models_that_comes_later_costs_neither_the_start_nor_the_first_answer(tmp_path: Path) -> None:
    """When a model is needed, the server requests the list again, and then knows the names of the models."""
    port = free_port()
    environment = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    async with serving(tmp_path, is_durable=True, environment=environment) as server:
        assert (await caps_of(server.url))["chat_models"] == {}
        with serve_fake_openai(port) as fake:
            fake.lists = models("late")
            with anyio.fail_after(DEADLINE_SECONDS):
                while not (caps := await caps_of(server.url))["chat_models"]:
                    await anyio.sleep(0.2)  # the server requests the list again at most every `lists.RETRY_SECONDS`
            assert caps["chat_default_model"] == "openai/late"


@pytest.mark.parametrize("demo", ["true", "false"])
async def test_the_operator_brings_demo_models_and_tools_back(fake: FakeOpenAI, tmp_path: Path, demo: str) -> None:
    environment = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_MODEL": "tiny", "THREADCAST_MODELS__DEMO": demo}
    async with serving(tmp_path, is_durable=True, environment=environment) as server:
        caps = await caps_of(server.url)
        assert ("demo/echo" in caps["chat_models"]) == (demo == "true")
        assert "openai/tiny" in caps["chat_models"]
        async with httpx2.AsyncClient(base_url=server.url) as client:
            offered = [tool["name"] for tool in (await client.get("/v1/tools")).json()]
        assert ("clock" in offered) == (demo == "true")


async def test_without_a_model_of_openais_own_a_chat_says_what_to_choose(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    config = tmp_path / "threadcast.toml"
    config.write_text('[models.providers.claude]\nkind = "anthropic"\n')
    with start(*arguments, "--config", str(config), log=tmp_path / "log") as server:
        await server.ready()
        assert (await caps_of(server.url))["chat_default_model"] == ""
        async with watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "hi"))
            await watcher.until(lambda w: w.runs_ended == 1)
            errors = [(frame["code"], frame["message"]) for frame in watcher.frames if frame["type"] == "error"]
        assert errors == [
            (
                "llm_error",
                "'' names no model; choose one, or name a default: OPENAI_MODEL, models.default or --model.",
            )
        ]


# One list.


@asynccontextmanager
async def kept(request: ListRequest) -> AsyncIterator[ModelList]:
    found = ModelList("p", request)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(found.keep)
            yield found
            tasks.cancel_scope.cancel()


def request_to(fake: FakeOpenAI, kind: str = "openai_chat") -> ListRequest:
    request = list_request(kind, fake.base_url, "sk-key")
    assert request is not None
    return request


@pytest.mark.parametrize(
    ("kind", "path", "header"),
    [
        ("openai_chat", "/v1/models", "authorization"),
        ("anthropic", "/v1/models", "x-api-key"),
        ("google", "/v1/v1beta/models", "x-goog-api-key"),
    ],
)
async def test_each_kind_is_asked_in_its_own_way(fake: FakeOpenAI, kind: str, path: str, header: str) -> None:
    fake.lists = models("one")
    async with kept(request_to(fake, kind)) as found:
        assert [info.name for info in (await found.latest()).models] == ["one"]
    assert [(asked.path, asked.headers[header].removeprefix("Bearer ")) for asked in fake.listed] == [(path, "sk-key")]


async def test_a_list_is_fetched_anew_when_it_is_old_and_a_failure_keeps_the_last(
    fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.lists = models("one")
    async with kept(request_to(fake)) as found:
        await found.latest()
        for _ in range(3):
            await found.latest()
        assert len(fake.listed) == 1, "a fresh list is not asked for"
        monkeypatch.setattr(lists, "FRESH_SECONDS", 0.0)
        monkeypatch.setattr(lists, "RETRY_SECONDS", 0.0)
        for reply in (Reply([b"<html>"]), Reply([b"no"], 500), Reply([b'{"data"', "cut"])):
            fake.lists, before = reply, len(fake.listed)
            with anyio.fail_after(DEADLINE_SECONDS):
                while len(fake.listed) == before:
                    assert [info.name for info in (await found.latest()).models] == ["one"]
                    await anyio.sleep(0.01)
        fake.lists = models("two")
        with anyio.fail_after(DEADLINE_SECONDS):
            while [info.name for info in (await found.latest()).models] != ["two"]:
                await anyio.sleep(0.01)


async def test_a_silent_server_is_waited_for_only_a_moment_and_then_given_up(
    fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(lists, "DEADLINE_SECONDS", 0.5)
    fake.lists = Reply(hangs=True)
    async with kept(request_to(fake)) as found:
        assert (await found.latest()).models == []
        with anyio.fail_after(DEADLINE_SECONDS):
            await anyio.to_thread.run_sync(fake.client_left.wait, DEADLINE_SECONDS)
        assert fake.client_left.is_set(), "the deadline ended the request"


async def test_a_list_without_end_is_cut(fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LIST_MAX_BYTES", 100_000)
    fake.lists = Reply([b'{"data": ['] + [b'{"id": "x"},' * 100] * 1_000)
    async with kept(request_to(fake)) as found:
        assert (await found.latest()).models == []
        assert found.offer is None
