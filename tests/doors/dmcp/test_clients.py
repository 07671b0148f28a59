"""The door of MCP with the published client: asking, progress, approvals, reading, deciding, and other callers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.doors.dmcp.clients import Mode, Person, opened_client, result_of
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, started_server, user_message
from tests.support.tokens import bearer, tokens
from tests.support.unicode import UNICODE_TEXTS
from tests.torture.proxy import Proxy

pytestmark = pytest.mark.anyio

TOOLS = Path(__file__).parents[1] / "dagui/tools.py"
CALCULATE = 'call calculator {"expression": "6*7"}'
MODES: list[Mode] = ["legacy", "2026-07-28"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    config = '[models]\ndefault = "demo/tools"\n[tools.calculator]\npolicy = "ask"\n'
    with started_server(tmp_path_factory.mktemp("mcp"), config=config, app=TOOLS) as process:
        yield process.wait_ready()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


@pytest.mark.row("DOOR-5")
async def test_a_client_asks_reads_lists_searches_and_goes_on(server: Process, mode: Mode) -> None:
    word = f"marmalade{mode.replace('-', '')}"
    async with opened_client(server.url, mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"ask", "list_chats", "read_chat", "search_chats", "decide"}
        told = await result_of(client, "ask", text=f"the {word}", model="demo/echo")
        assert (told["text"], told["state"], told["pending"]) == (f"You said: the {word}", "complete", [])
        again = await result_of(client, "ask", text="more", chat_id=told["chat_id"], model="demo/echo")
        assert again["chat_id"] == told["chat_id"] and again["text"] == "You said: more"
        read = await result_of(client, "read_chat", chat_id=told["chat_id"])
        assert [message["text"] for message in read["messages"]] == [
            f"the {word}",
            f"You said: the {word}",
            "more",
            "You said: more",
        ]
        assert read["messages"][-1]["message_id"] == again["message_id"] and read["is_whole"]
        last = await result_of(client, "read_chat", chat_id=told["chat_id"], last=1)
        assert [message["text"] for message in last["messages"]] == ["You said: more"] and not last["is_whole"]
        listed = await result_of(client, "list_chats", query=word)
        assert [chat["chat_id"] for chat in listed["chats"]] == [told["chat_id"]]
        found = await result_of(client, "search_chats", query="you SAID: More")
        assert told["chat_id"] in [chat["chat_id"] for chat in found["chats"]]


@pytest.mark.row("DOOR-5")
async def test_progress_has_every_word_in_order(server: Process, mode: Mode) -> None:
    heard: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")
        assert progress == len("".join(heard))

    async with opened_client(server.url, mode) as client:
        asked = {"text": "go", "model": "demo/essay?words=60&rate=200"}
        result = await client.call_tool("ask", asked, progress_callback=on_progress)
    told: Any = result.structured_content
    assert "".join(heard) == told["text"]
    assert len(heard) > 3


@pytest.mark.row("DOOR-5")
async def test_a_person_approves_in_the_client(server: Process, mode: Mode) -> None:
    person = Person(approved=True)
    async with opened_client(server.url, mode, person) as client:
        told = await result_of(client, "ask", text=CALCULATE)
    assert told["state"] == "complete" and "42" in told["text"]
    (asked,) = person.asked
    assert "calculator" in asked.message
    assert set(asked.requested_schema["properties"]) == {"approved", "note", "arguments"}


async def test_other_arguments_come_as_json(server: Process, mode: Mode) -> None:
    person = Person(approved=True, arguments='{"expression": "6*8"}')
    async with opened_client(server.url, mode, person) as client:
        told = await result_of(client, "ask", text=CALCULATE)
    assert "48" in told["text"]


@pytest.mark.parametrize("person", [Person("decline"), Person(approved=False, note="too dear")])
async def test_a_person_rejects(server: Process, mode: Mode, person: Person) -> None:
    async with opened_client(server.url, mode, person) as client:
        told = await result_of(client, "ask", text=CALCULATE)
        read = await result_of(client, "read_chat", chat_id=told["chat_id"])
    assert told["state"] == "complete" and "42" not in told["text"]
    (result,) = [message for message in read["messages"] if message["role"] == "tool"]
    assert "denied" in result["text"].lower()


async def test_a_question_that_is_cancelled_stays_open_and_is_decided_later(server: Process, mode: Mode) -> None:
    async with opened_client(server.url, mode, Person("cancel")) as client:
        told = await result_of(client, "ask", text=CALCULATE)
        assert told["state"] == "paused"
        (pending,) = told["pending"]
        assert pending["tool_name"] == "calculator" and pending["arguments"] == {"expression": "6*7"}
        refused = await client.call_tool("ask", {"text": "next", "chat_id": told["chat_id"]})
        assert refused.is_error
        async with watching(server.url, told["chat_id"]) as watcher:
            decision = {"chat_id": told["chat_id"], "tool_call_id": pending["tool_call_id"], "accepted": True}
            await result_of(client, "decide", **decision)
            await watcher.at_rest()
            assert "42" in watcher.messages[-1][1]
        late = await client.call_tool("decide", decision)
        assert late.is_error


async def test_a_client_that_cannot_ask_is_told_what_waits(server: Process, mode: Mode) -> None:
    async with opened_client(server.url, mode) as client:
        told = await result_of(client, "ask", text=CALCULATE)
        assert (told["state"], [each["type"] for each in told["pending"]]) == ("paused", ["confirmation"])


async def test_a_question_of_a_tool_is_answered_in_the_client(server: Process, mode: Mode) -> None:
    person = Person(answer="left")
    async with opened_client(server.url, mode, person) as client:
        told = await result_of(client, "ask", text="call which {}")
    assert "the answer is left" in told["text"]
    assert person.asked[0].requested_schema["properties"]["answer"]["enum"] == ["left", "right"]


async def test_leaving_a_call_stops_its_run(server: Process, mode: Mode) -> None:
    chat_id = f"left-{mode}"
    async with opened_client(server.url, mode) as client, watching(server.url, chat_id) as watcher:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await client.call_tool("ask", {"text": "x", "chat_id": chat_id, "model": "demo/hang?after=2&rate=0"})

            tasks.start_soon(ask)
            await watcher.until(lambda w: "stream_delta" in w.types())
            tasks.cancel_scope.cancel()
        await watcher.at_rest()
        assert watcher.state is not None
        assert watcher.state.runtime.outcome == "aborted"


async def test_a_cut_line_stops_nothing_before_2026(server: Process) -> None:
    port = int(server.url.rpartition(":")[2])
    asked = {"text": "x", "chat_id": "cut", "model": "demo/essay?words=80&rate=100"}
    async with watching(server.url, "cut") as watcher, Proxy("client > server", target=("127.0.0.1", port)) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        async with opened_client(url, "legacy") as client, anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(MCPError):
                    await client.call_tool("ask", asked)

            tasks.start_soon(ask)
            await watcher.until(lambda w: "stream_delta" in w.types())
            proxy.reset()
            await watcher.at_rest()
        assert watcher.state is not None
        assert watcher.state.runtime.outcome == "complete"


async def test_errors_are_results_that_a_model_can_read(server: Process, mode: Mode) -> None:
    async with opened_client(server.url, mode) as client:
        for tool, arguments, words in (
            ("read_chat", {"chat_id": "nowhere"}, "no such chat"),
            ("ask", {"text": "x", "mode": "nobody"}, "nobody"),
            ("ask", {"text": "x", "model": "nowhere/none"}, "nowhere/none"),
            ("read_chat", {"chat_id": "nowhere", "last": 1000}, "last"),
            ("search_chats", {"query": " "}, "query"),
            ("decide", {"chat_id": "nowhere", "tool_call_id": "x", "accepted": True}, "no such chat"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error and words in str(result.content), (tool, arguments, result)
        failed = await client.call_tool("ask", {"text": "x", "model": "demo/error"})
        told: Any = failed.structured_content
        assert failed.is_error and told["state"] == "error"
        for tool, wrong in (("ask", {}), ("ask", {"text": "x", "more": 1}), ("nothing", {})):
            with pytest.raises(MCPError):
                await client.call_tool(tool, wrong)


async def test_all_of_unicode_comes_back(server: Process, mode: Mode) -> None:
    async with opened_client(server.url, mode) as client:
        for text in UNICODE_TEXTS:
            told = await result_of(client, "ask", text=text, model="demo/echo?rate=0")
            assert told["text"] == f"You said: {text}"


@pytest.mark.row("DOOR-5")
@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_chats_are_resources_and_changes_are_told(server: Process, mode: Mode) -> None:
    chat_id = f"watched-{mode}"
    await command(server.url, chat_id, user_message("a", "hello"))
    uri = f"threadcast://chats/{chat_id}"
    told = anyio.Event()

    async def on_message(message: Any) -> None:
        if uri in str(message):
            told.set()

    async with opened_client(server.url, mode, message_handler=on_message) as client:
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "threadcast://chats/{chat_id}"
        assert uri in [resource.uri for resource in (await client.list_resources()).resources]
        (content,) = (await client.read_resource(uri)).contents
        assert json.loads(content.text)["chat_id"] == chat_id  # type: ignore[union-attr]  # it is a text
        with pytest.raises(MCPError):
            await client.read_resource("threadcast://chats/nowhere")
        with anyio.fail_after(DEADLINE_SECONDS):
            if mode == "legacy":
                await client.subscribe_resource(uri)
                await command(server.url, chat_id, user_message("b", "more"))
                await told.wait()
                await client.unsubscribe_resource(uri)
            else:
                async with client.listen(resource_subscriptions=[uri]) as changes:
                    await command(server.url, chat_id, user_message("b", "more"))
                    async for change in changes:
                        assert change.uri == uri  # type: ignore[union-attr]  # only resources were asked for
                        break


async def test_a_caller_has_only_its_own_chats_and_its_own_rights(tmp_path: Path, mode: Mode) -> None:
    config = tokens(ann="", bob="permissions = []") + '\n[models]\ndefault = "demo/tools"\n'
    config += '[tools.calculator]\npolicy = "ask"\n'
    with started_server(tmp_path, config=config) as starting:
        server = starting.wait_ready()
        async with opened_client(server.url, mode, headers=bearer("ann")) as ann:
            mine = await result_of(ann, "ask", text="hello", model="demo/echo")
        person = Person(approved=True)
        async with opened_client(server.url, mode, person, headers=bearer("bob")) as bob:
            for tool, more in (
                ("read_chat", {}),
                ("ask", {"text": "x"}),
                ("decide", {"tool_call_id": "x", "accepted": True}),
            ):
                result = await bob.call_tool(tool, {"chat_id": mine["chat_id"], **more})
                assert result.is_error, tool
            assert (await result_of(bob, "list_chats"))["chats"] == []
            with pytest.raises(MCPError):
                await bob.read_resource(f"threadcast://chats/{mine['chat_id']}")
            paused = await result_of(bob, "ask", text=CALCULATE)
            assert paused["state"] == "paused" and not person.asked, "who may not approve is not asked to"
            decision = {"chat_id": paused["chat_id"], "accepted": True}
            decided = await bob.call_tool("decide", {**decision, "tool_call_id": paused["pending"][0]["tool_call_id"]})
            assert decided.is_error and "may not approve" in str(decided.content)
