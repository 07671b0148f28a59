"""Pages of the AI SDK, with npm `ai` as it is published, on a real server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.doors.daisdk.page import opened_page, text_in
from tests.integration.oneshot_client import prepare
from tests.integration.server_fixtures import chat_id
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, started_server, user_message
from tests.support.unicode import UNICODE_TEXTS
from threadcast.compat.ai_sdk.parts import PENDING

__all__ = ["chat_id"]

pytestmark = pytest.mark.anyio

TOOLS = Path(__file__).parents[2] / "integration/misbehaving_tools.py"
WEATHER = {"name": "weather", "description": "The weather of a city.", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with started_server(tmp_path_factory.mktemp("aisdk"), app=TOOLS) as process:
        yield process.wait_ready()


async def read(server: Process, chat_id: str) -> list[Any]:
    """Return the UI messages that the server gives a newly loaded page."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        got = await client.get(f"/ai-sdk/chat/{chat_id}")
        assert got.status_code == 200, got.text
        found: list[Any] = got.json()
        return found


async def rejoined(server: Process, chat_id: str) -> int:
    async with (
        httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", f"/ai-sdk/chat/{chat_id}/stream") as answer,
    ):
        return answer.status_code


def bare(messages: list[Any]) -> list[Any]:
    """Return messages without the fields that a page adds itself: empty fields, and the states of parts."""
    kept = {"type", "text", "toolCallId", "toolName", "state", "input", "output", "errorText", "url", "data"}
    found = []
    for message in messages:
        parts = [{k: v for k, v in part.items() if k in kept and v is not None} for part in message["parts"]]
        for part in parts:
            if part["type"] in ("text", "reasoning"):
                part.pop("state", None)
        found.append((message["id"], message["role"], parts))
    return found


@pytest.mark.row("DOOR-3")
async def test_a_page_streams_an_answer_and_a_second_one_loads_the_same(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/reasoning?words=5&rate=0")
    async with opened_page(server.url, chat_id) as page:
        assert (await page.send("one"))["error"] is None
        assert (await page.send("two"))["status"] == "ready"
        messages = await page.messages()
        assert [message["role"] for message in messages] == ["user", "assistant"] * 2
        assert [part["type"] for part in messages[1]["parts"]] == ["step-start", "reasoning", "text"]
        assert messages[1]["metadata"]["usage"]["completion_tokens"] > 0
        loaded = await read(server, chat_id)
        assert bare(loaded) == bare(messages)
        assert loaded[1]["metadata"] == messages[1]["metadata"]
    assert await rejoined(server, chat_id) == 204


@pytest.mark.row("DOOR-3")
@pytest.mark.parametrize("approved", [True, False])
async def test_one_run_is_one_message_also_across_an_approval(server: Process, chat_id: str, approved: bool) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_page(server.url, chat_id, automatic=True) as page:
        await page.send('call asks {"text": "x"}')
        (_, asked) = await page.messages()
        part = asked["parts"][-1]
        assert part["state"] == "approval-requested" and part["input"] == {"text": "x"}
        assert await rejoined(server, chat_id) == 204, "the run waits for a person"
        assert bare(await read(server, chat_id)) == bare(await page.messages())
        await page.tell("approve", id=part["approval"]["id"], approved=approved)
        await page.until(lambda line: line.get("requests") == 2 and line["status"] == "ready")
        messages = await page.messages()
        assert [message["id"] for message in messages][1] == asked["id"] and len(messages) == 2
        call = messages[1]["parts"][2]
        assert call["state"] == ("output-available" if approved else "output-denied")
        assert ("allowed: x" in text_in(messages[1])) == approved
        assert bare(await read(server, chat_id)) == bare(messages)
        assert (await page.shown())["requests"] == 2, "the AI SDK does not send it again"


async def test_a_stale_approval_ends_quietly_and_asks_no_model(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_page(server.url, chat_id, automatic=True) as first:
        await first.send("call asks {}")
        copy = await first.messages()
        approval = copy[1]["parts"][-1]["approval"]["id"]
        async with opened_page(server.url, chat_id, automatic=True, messages=copy) as second:
            await first.tell("approve", id=approval, approved=True)
            await first.until(lambda line: line.get("requests") == 2 and line["status"] == "ready")
            before = await read(server, chat_id)
            await second.tell("approve", id=approval, approved=False)
            await second.until(lambda line: line.get("requests") == 1 and line["status"] == "ready")
            shown = await second.shown()
            assert bare(shown["messages"]) == bare(before) == bare(await first.messages())
            assert shown["requests"] == 1
        assert await read(server, chat_id) == before


async def test_an_approval_of_a_call_that_no_chat_knows_is_answered_once(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with opened_page(server.url, chat_id) as page:
        await page.send("hello")
        copy = await page.messages()
    part = {"type": "tool-x", "toolCallId": "no-such", "state": "approval-requested", "input": {}}
    strange = [*copy, {"id": "m", "role": "assistant", "parts": [part | {"approval": {"id": "no-such.1"}}]}]
    async with opened_page(server.url, chat_id, automatic=True, messages=strange) as page:
        await page.tell("approve", id="no-such.1", approved=True)
        await page.until(lambda line: line.get("requests") == 1 and line["status"] == "ready")
        shown = await page.shown()
        assert shown["messages"][-1]["parts"][0]["state"] == "output-error" and shown["requests"] == 1
    assert len(await read(server, chat_id)) == 2


@pytest.mark.row("DOOR-3")
async def test_the_page_carries_out_a_tool_of_its_own(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_page(server.url, chat_id, automatic=True, body={"tools": [WEATHER]}) as page:
        await page.send('call weather {"city": "Bonn"}\ncall clock {}')
        shown = await page.shown()
        ours = [part for part in shown["messages"][1]["parts"] if part["type"].startswith("tool-")]
        assert [part["state"] for part in ours] == ["input-available", "output-available"]
        assert [call["toolName"] for call in shown["calls"]] == ["weather"], "server tools are not the page's"
        await page.tell("output", toolCallId=ours[0]["toolCallId"], tool="weather", output={"sun": 1})
        await page.until(lambda line: line.get("requests") == 2 and line["status"] == "ready")
        messages = await page.messages()
        assert len(messages) == 2 and '{"sun":1}' in text_in(messages[1])
        assert (await page.shown())["requests"] == 2


async def test_a_call_beside_an_approval_lets_the_page_answer_and_has_its_output_afterwards(
    server: Process, chat_id: str
) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_page(server.url, chat_id) as page:
        await page.send('call asks {"text": "x"}\ncall clock {}')
        copy = await page.messages()
    loaded = await read(server, chat_id)
    for messages in (copy, loaded):
        (asks, clock) = [part for part in messages[1]["parts"] if part["type"].startswith("tool-")]
        assert (asks["state"], clock["state"], clock["output"]) == ("approval-requested", "output-available", PENDING)
        assert clock["providerExecuted"] is True
    async with opened_page(server.url, chat_id, automatic=True, messages=copy) as page:
        await page.tell("approve", id=asks["approval"]["id"], approved=True)
        await page.until(lambda line: line.get("requests") == 1 and line["status"] == "ready")
        messages = await page.messages()
    assert bare(await read(server, chat_id)) == bare(messages)
    (asks, clock) = [part for part in messages[1]["parts"] if part["type"].startswith("tool-")]
    assert (asks["output"], clock["state"]) == ("allowed: x", "output-available") and clock["output"] != PENDING


async def test_stop_leaves_the_run_going_on_and_the_page_can_join_it_again(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/essay?words=60&rate=100")
    async with opened_page(server.url, chat_id) as page:
        await page.tell("send", message={"text": "x"})
        await page.until(lambda line: line["length"] > 10)
        await page.do("stop")
        assert (await page.do("resume"))["error"] is None
        messages = await page.messages()
        assert len(messages) == 2 and len(text_in(messages[1]).split()) == 60
        assert bare(await read(server, chat_id)) == bare(messages)


async def test_with_abort_a_stop_stops_the_run(tmp_path: Path) -> None:
    with started_server(tmp_path, config='[doors.ai_sdk]\non_disconnect = "abort"\n') as server:
        await server.ready()
        await prepare(server, "c", "demo/hang?after=2&rate=0")
        async with watching(server.url, "c") as watcher, opened_page(server.url, "c") as page:
            await page.tell("send", message={"text": "x"})
            await page.until(lambda line: line["length"] > 2)
            await page.do("stop")
            await watcher.at_rest()
            assert watcher.state is not None and watcher.state.runtime.outcome == "aborted"


async def test_an_abort_by_another_client_ends_the_stream(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with opened_page(server.url, chat_id) as page:
        await page.tell("send", message={"text": "x"}, wait=True)
        await page.until(lambda line: line.get("length", 0) > 2)
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        assert (await page.until(lambda line: line.get("done")))["status"] == "ready"


async def test_a_failed_run_is_an_error_of_the_chat(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/error?after=3")
    async with opened_page(server.url, chat_id) as page:
        told = await page.send("x")
        assert told["status"] == "error" and told["error"]
        assert "Traceback" not in told["error"]


async def test_refusals_have_the_form_that_the_client_shows(server: Process, chat_id: str) -> None:
    async with opened_page(server.url, chat_id) as page:
        told = await page.send(" ")
        assert json.loads(told["error"])["code"] == "invalid_content"
    async with opened_page(server.url, chat_id, body={"tools": [{}] * 33}) as page:
        told = await page.send("x")
        assert json.loads(told["error"])["code"] == "bad_request"


async def test_all_of_unicode_comes_through(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo?rate=0")
    async with opened_page(server.url, chat_id) as page:
        for words in UNICODE_TEXTS:
            assert (await page.send(words))["error"] is None
        messages = await page.messages()
    wanted = [text for words in UNICODE_TEXTS for text in (words, f"You said: {words}")]
    assert [text_in(message) for message in messages] == wanted
    assert bare(await read(server, chat_id)) == bare(messages)


async def test_a_tab_that_knows_less_appends_and_never_erases(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with opened_page(server.url, chat_id) as first, opened_page(server.url, chat_id) as second:
        await first.send("one")
        await second.send("two")
        assert len(await second.messages()) == 2
    assert [text_in(message) for message in await read(server, chat_id)][::2] == ["one", "two"]


async def test_an_edited_message_makes_a_branch(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with opened_page(server.url, chat_id) as page:
        await page.send("one")
        (mine, answer) = await page.messages()
        for words in ("two", "one", "two"):
            assert (await page.send(words, messageId=mine["id"]))["error"] is None
            messages = await page.messages()
            assert [text_in(message) for message in messages] == [words, f"You said: {words}"]
            assert messages[0]["id"] == mine["id"] and messages[1]["id"] != answer["id"]
            assert bare(await read(server, chat_id)) == bare(messages)
    async with watching(server.url, chat_id) as watcher:
        assert watcher.state is not None
        leaf = watcher.state.nodes[watcher.state.path[0]]
        assert len(leaf.sibling_ids) == 4, "the old messages stay in the tree"


async def test_regenerate_answers_anew(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with opened_page(server.url, chat_id) as page:
        await page.send("one")
        before = await page.messages()
        assert (await page.do("regenerate"))["error"] is None
        messages = await page.messages()
        assert text_in(messages[1]) == text_in(before[1]) and messages[1]["id"] != before[1]["id"]
        assert bare(await read(server, chat_id)) == bare(messages)


async def test_a_page_and_our_own_client_end_equal(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with watching(server.url, chat_id) as watcher, opened_page(server.url, chat_id) as page:
        await page.send("from the page")
        await watcher.at_rest()
        await command(server.url, chat_id, user_message("ours", "from us"))
        await watcher.at_rest(2)
        loaded = await read(server, chat_id)
        assert [(m["role"], text_in(m)) for m in loaded] == watcher.messages
    async with opened_page(server.url, chat_id, messages=loaded) as page:
        assert (await page.send("again"))["error"] is None
        assert bare(await page.messages()) == bare(await read(server, chat_id))


async def test_a_strange_id_of_a_chat_and_of_a_message_come_back(server: Process, chat_id: str) -> None:
    strange = f"{chat_id} / ünï"
    async with opened_page(server.url, strange, body={"model": "demo/echo"}) as page:
        message = {"id": "ä/1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
        assert (await page.do("send", message=message))["error"] is None
        messages = await page.messages()
        async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
            got = await client.get("/ai-sdk/chat/" + strange.replace(" ", "%20").replace("/", "%2F"))
        assert bare(got.json()) == bare(messages) and messages[0]["id"] == "ä/1"
