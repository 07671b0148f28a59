"""Answers of Chat Completions when the connection is cut, the worker dies, or the answer waits for a person."""

from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest

from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, command, serving
from tests.support.tokens import bearer, token_of, tokens
from tests.support.unicode import UNICODE_TEXTS
from tests.torture.proxy import Proxy

pytestmark = pytest.mark.anyio

ESSAY = "demo/essay?words=200&rate=100"
SUM: Any = [{"role": "user", "content": 'call calculator {"expression":"6*7"}'}]
ASKS = '[server]\npublic_url = "http://127.0.0.1"\n[tools.calculator]\npolicy = "ask"\n'


def client_of(url: str, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=DEADLINE_SECONDS)


def asking(text: str, chat_id: str, model: str = ESSAY) -> Any:
    return {"model": model, "messages": [{"role": "user", "content": text}], "metadata": {"chat_id": chat_id}}


async def test_an_answer_goes_on_when_its_worker_is_killed(tmp_path: Path) -> None:
    with fleet_on_new_store(tmp_path, limits=FAST) as fleet:
        await fleet.open()
        async with client_of(fleet.url) as client, watching(fleet.url, "killed") as tab:
            stream = await client.chat.completions.create(**asking("x", "killed"), stream=True)
            said, is_killed = "", False
            async for chunk in stream:
                said += chunk.choices[0].delta.content or ""
                if len(said) > 40 and not is_killed:
                    with anyio.fail_after(DEADLINE_SECONDS):
                        while not fleet.kill_owner("killed"):
                            await anyio.sleep(0.01)
                    is_killed = True
            await tab.at_rest()
            assert chunk.choices[0].finish_reason == "stop" and is_killed
            assert tab.messages == [("user", "x"), ("assistant", said)] and len(said.split()) == 200


@pytest.mark.parametrize(
    ("setting", "model", "outcome"), [("abort", "demo/hang?after=50", "aborted"), ("continue", ESSAY, "complete")]
)
async def test_after_a_cut_the_run_ends_as_the_operator_wants(
    tmp_path: Path, setting: str, model: str, outcome: str
) -> None:
    async with serving(tmp_path, config=f'[doors.openai]\non_disconnect = "{setting}"\n') as server:
        port = int(server.url.rpartition(":")[2])
        async with (
            Proxy("client > server", target=("127.0.0.1", port)) as proxy,
            client_of(f"http://127.0.0.1:{proxy.port}") as client,
            watching(server.url, "cut") as tab,
        ):
            stream = await client.chat.completions.create(**asking("x", "cut", model), stream=True)
            said = ""
            with pytest.raises((openai.APIConnectionError, httpx2.TransportError, OSError)):
                async for chunk in stream:
                    said += chunk.choices[0].delta.content or ""
                    if len(said) > 40:
                        proxy.reset()
            await tab.at_rest()
            assert [frame["outcome"] for frame in tab.frames if frame.get("outcome")] == [outcome]
            (_, kept) = tab.messages[1]
            assert kept.startswith(said) and (len(kept.split()) == 200) == (outcome == "complete")
            again = await client.chat.completions.create(**asking("y", "cut", "demo/echo?rate=0"))
            assert again.choices[0].message.content == "You said: y"  # the chat continues over a new connection


@pytest.mark.parametrize("accepted", [True, False])
async def test_after_the_decision_of_a_person_the_conversation_goes_on(tmp_path: Path, accepted: bool) -> None:
    async with serving(tmp_path, config=ASKS) as server, client_of(server.url) as client:
        paused = await client.chat.completions.create(
            model="demo/tools?rate=0", messages=SUM, metadata={"chat_id": "asks"}, stream=True
        )
        chunks = [chunk async for chunk in paused]
        notice = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert notice.endswith("[Waiting for approval: http://127.0.0.1/c/asks]")
        assert chunks[-1].choices[0].finish_reason == "stop"
        async with watching(server.url, "asks") as tab:
            assert tab.state is not None
            (asked,) = tab.state.runtime.pause_reasons
            decision = {"type": "tool_decision", "client_request_id": "d", "accepted": accepted}
            await command(server.url, "asks", {**decision, "tool_call_id": asked.tool_call_id})
            await tab.at_rest()
            answer = tab.messages[-1][1]
        assert ("42" in answer) == accepted
        history = [*SUM, {"role": "assistant", "content": notice}, {"role": "user", "content": "and?"}]
        done = await client.chat.completions.create(
            model="demo/echo?rate=0", messages=history, metadata={"chat_id": "asks"}
        )
        assert done.choices[0].message.content == "You said: and?"
        async with watching(server.url, "asks") as tab:
            assert tab.messages[-3:] == [("assistant", answer), ("user", "and?"), ("assistant", "You said: and?")]


async def test_a_quota_is_429_in_openais_form(tmp_path: Path) -> None:
    config = tokens(ann="turns_per_hour = 1")
    async with serving(tmp_path, config=config) as server, client_of(server.url, token_of("ann")) as client:
        await client.chat.completions.create(**asking("x", "c", "demo/echo?rate=0"))
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**asking("y", "c", "demo/echo?rate=0"))
    assert (refused.value.code, refused.value.type) == ("rate_limited", "rate_limit_error")
    assert 0 < int(refused.value.response.headers["Retry-After"]) <= 3_600


async def test_another_callers_chat_is_taken_to_begin_and_unknown_to_continue(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, config=tokens(ann="", bob="")) as server,
        client_of(server.url, token_of("ann")) as ann,
        client_of(server.url, token_of("bob")) as bob,
        httpx2.AsyncClient(base_url=server.url, headers=bearer("ann"), timeout=DEADLINE_SECONDS) as http,
    ):
        await ann.chat.completions.create(**asking("ann's words", "ann-s", "demo/echo?rate=0"))
        before = (await http.get("/v1/chats/ann-s")).json()
        with pytest.raises(openai.ConflictError) as taken:
            await bob.chat.completions.create(**asking("x", "ann-s"))
        assert (taken.value.code, taken.value.param) == ("id_taken", "metadata.chat_id")
        bodies = []
        for chat_id in ("ann-s", "nobody-s"):
            for metadata in ({"chat_id": chat_id}, {}):
                messages: Any = [{"role": "tool", "tool_call_id": f"call_1@{chat_id}", "content": "x"}]
                with pytest.raises(openai.NotFoundError) as missing:
                    await bob.chat.completions.create(model=ESSAY, messages=messages, metadata=metadata)
                bodies.append(missing.value.body)
        assert bodies[:2] == bodies[2:]
        strange = asking("x", "ann's chät", "demo/echo?rate=0")  # each caller has its own chat of this name
        for caller in (ann, bob):
            answer = await caller.chat.completions.create(**strange)
            assert getattr(answer, "metadata", None) == {"chat_id": "ann's chät"}
        assert (await http.get("/v1/chats/ann-s")).json() == before


async def test_every_character_of_unicode_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server.url) as client:
        for number, text in enumerate(UNICODE_TEXTS):
            wish = asking(text, f"u-{number}", "demo/echo?rate=0")
            stream = await client.chat.completions.create(**wish, stream=True)
            said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert said == f"You said: {text}"
