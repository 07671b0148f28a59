"""Samplers from the command to the model's server, and that server's progress in reading a prompt, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, serve_fake_openai, text
from tests.integration.test_model_lists import caps_of, models
from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

ALL = {"top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1, "seed": 7, "stop": ["END", "\n\n"]}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as server:
        server.lists = models("tiny", owned_by="llamacpp")
        yield server


@pytest.fixture(scope="module")
def server(fake: FakeOpenAI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("samplers")
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data")]
    environment = {"OPENAI_BASE_URL": fake.base_url, "THREADCAST_MODELS__DEMO": "true"}
    with start(*arguments, log=base / "log", environment=environment) as process:
        anyio.run(process.ready)
        yield process


def answers() -> Reply:
    return Reply([text("Hello."), STOP, DONE])


def set_params(patch: JsonObject) -> JsonObject:
    return {"type": "set_params", "client_request_id": f"p-{len(str(patch))}", "patch": patch}


@pytest.mark.row("OLD-9", "SET-1")
async def test_samplers_are_parameters_of_thread_and_command_and_reach_the_server(
    server: Process, fake: FakeOpenAI
) -> None:
    fake.replies, fake.asked = [answers(), answers(), answers()], []
    async with watching(server.url, "c1") as watcher:
        assert (await command(server.url, "c1", set_params(ALL))).json()["status"] == "applied"
        await watcher.until(lambda w: any(frame["type"] == "thread_updated" for frame in w.frames))
        told = next(frame for frame in watcher.frames if frame["type"] == "thread_updated")
        assert {key: told[key] for key in ALL} == ALL
        await command(server.url, "c1", user_message("a", "hi"))
        await watcher.at_rest()
        await command(server.url, "c1", user_message("b", "hi", params={"seed": 8, "stop": ["."]}))
        await watcher.at_rest(2)
        cleared = dict.fromkeys(ALL)
        await command(server.url, "c1", set_params(cleared))
        await command(server.url, "c1", user_message("c", "hi"))
        await watcher.at_rest(3)
    first, second, third = (asked.body for asked in fake.asked)
    names = {"repetition_penalty": "repeat_penalty"}  # llama.cpp's own
    assert {key: first[names.get(key, key)] for key in ALL} == ALL
    assert "repetition_penalty" not in first
    assert {key: second[names.get(key, key)] for key in ALL} == {**ALL, "seed": 8, "stop": ["."]}
    assert not {names.get(key, key) for key in ALL} & set(third)
    async with httpx2.AsyncClient(base_url=server.url) as client:
        thread = (await client.get("/v1/chats/c1")).json()["thread"]
        assert not set(ALL) & set(thread)


@pytest.mark.parametrize(
    "patch",
    [
        {"top_k": -1},
        {"top_k": 1.5},
        {"min_p": 1.1},
        {"repetition_penalty": 0},
        {"repetition_penalty": 2.1},
        {"seed": -1},
        {"seed": 2**31},
        {"stop": "END"},
        {"stop": ["a", "b", "c", "d", "e"]},
        {"stop": [""]},
        {"stop": ["x" * 257]},
    ],
)
async def test_samplers_have_bounds(server: Process, patch: JsonObject) -> None:
    refused = await command(server.url, "c2", set_params(patch))
    (key,) = patch
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
    assert refused.json()["path"].startswith(f"/patch/{key}")


@pytest.mark.row("SET-3", "OLD-9")
async def test_caps_say_which_samplers_each_model_takes(server: Process) -> None:
    caps = await caps_of(server.url)
    assert caps["chat_models"]["openai/tiny"]["samplers"] == list(ALL)
    assert caps["chat_models"]["demo/echo"]["samplers"] == []
    assert caps["samplers"] == {"openai": list(ALL), "demo": []}


async def test_keys_that_nobody_knows_are_left_out_and_counted(server: Process) -> None:
    async def count() -> float:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            lines = (await client.get("/metrics")).text.splitlines()
        return float(next(line for line in lines if line.startswith("threadcast_params_ignored_total ")).split()[1])

    before = await count()
    patch = {"temperature": 0.5, "mirostat": 2, "typical_p": 0.9}
    assert (await command(server.url, "c3", set_params(patch))).json()["status"] == "applied"
    assert await count() == before + 2


@pytest.mark.row("OLD-9")
async def test_a_sampler_that_no_configured_provider_takes_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "threadcast.toml").write_text(
        '[models.providers.claude]\nkind = "anthropic"\napi_key = "k"\nmodels = [{ name = "m" }]\n'
    )
    arguments = [
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(tmp_path / "d"),
        "--config",
        str(tmp_path / "threadcast.toml"),
    ]
    with start(*arguments, log=tmp_path / "log") as process:
        await process.ready()
        for key in ("min_p", "repetition_penalty", "seed"):
            refused = await command(process.url, "c1", set_params({"temperature": 0.1, key: ALL[key]}))
            assert (refused.status_code, refused.json()["path"]) == (400, f"/patch/{key}")
            assert refused.json()["detail"] == f"{key}: no configured provider takes it; they take top_k, stop"
        refused = await command(process.url, "c1", user_message("a", "hi", params={"seed": 1}))
        assert (refused.status_code, refused.json()["path"]) == (400, "/params/seed")
        taken = await command(process.url, "c1", set_params({"top_k": 5, "stop": ["x"]}))
        assert taken.json()["status"] == "applied"
        async with httpx2.AsyncClient(base_url=process.url) as client:
            params = (await client.get("/v1/chats/c1/params")).json()["params"]
        assert params["temperature"]["value"] is None, "nothing of a refused patch applies"


async def test_openais_own_wire_passes_samplers_on(server: Process, fake: FakeOpenAI) -> None:
    fake.replies, fake.asked = [answers()], []
    body = {"messages": [{"role": "user", "content": "hi"}], "seed": 3, "stop": "END", "top_k": 5}
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        refused = await client.post("/v1/chat/completions", json={**body, "seed": -1})
    assert [(asked.body["seed"], asked.body["stop"], asked.body["top_k"]) for asked in fake.asked] == [(3, ["END"], 5)]
    assert refused.status_code == 400


def progress(processed: int, total: int = 1_000) -> bytes:
    told = {"total": total, "cache": 100, "processed": processed, "time_ms": processed}
    return chunk(delta={"role": "assistant", "content": None}, prompt_progress=told)


@pytest.mark.row("EVT-12", "OLD-12")
async def test_how_far_a_prompt_is_read_is_told_while_it_is_read(server: Process, fake: FakeOpenAI) -> None:
    fake.asked = []
    fake.replies = [Reply([progress(100), progress(400), progress(401), progress(1_000), text("Hello."), STOP, DONE])]
    async with watching(server.url, "c4") as watcher:
        await command(server.url, "c4", user_message("a", "hi"))
        await watcher.at_rest()
        assert watcher.state is not None and watcher.state.leaf is not None
        leaf = watcher.state.leaf
        frames = list(watcher.frames)
    assert fake.asked[0].body["return_progress"] is True
    said = [frame.get("status_text") for frame in frames if frame["type"] == "runtime_updated"]
    assert said == [None, *[f"reading the prompt: {n} %" for n in (10, 40, 100)], None, None]
    shown = [
        op["extra"]["prompt_progress"]["processed"]
        for frame in frames
        if frame["type"] == "stream_delta"
        for op in frame["ops"]
        if op["op"] == "merge_extra" and "prompt_progress" in op["extra"]
    ]
    assert shown == [100, 400, 1_000]
    assert leaf.content == "Hello."
    assert leaf.extra["prompt_progress"] == {"total": 1_000, "cache": 100, "processed": 1_000, "time_ms": 1_000}
