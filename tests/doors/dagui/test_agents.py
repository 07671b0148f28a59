"""Pages of AG-UI, with `HttpAgent` of npm `@ag-ui/client` as it is published, on a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.dagui.agent import bare, opened_agent, runs_in, user
from tests.integration.oneshot_client import prepare
from tests.integration.server_fixtures import chat_id
from tests.support.reader import watching
from tests.support.server import Process, command, started_server, user_message
from tests.support.unicode import UNICODE_TEXTS

__all__ = ["chat_id"]

pytestmark = pytest.mark.anyio

TOOLS = Path(__file__).parents[2] / "integration/misbehaving_tools.py"
WEATHER = {"name": "weather", "description": "The weather of a city.", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with started_server(tmp_path_factory.mktemp("agui"), app=TOOLS) as process:
        yield process.wait_ready()


async def loaded(server: Process, thread_id: str) -> list[Any]:
    """Return the messages of a newly loaded page, which begins without messages and runs its agent without a new
    message."""
    async with opened_agent(server.url, thread_id) as page:
        assert await page.run() is None
        shown = await page.shown()
        runs_in(shown["events"])
        found: list[Any] = shown["messages"]
        return found


def types(run: list[Any]) -> list[str]:
    """Return the types of events, with consecutive equal types once."""
    found = [event["type"] for event in run]
    return [kind for at, kind in enumerate(found) if at == 0 or found[at - 1] != kind]


@pytest.mark.row("DOOR-4")
async def test_an_agent_streams_an_answer_and_a_page_that_loads_has_the_same(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/reasoning?words=5&rate=0")
    async with opened_agent(server.url, chat_id) as page:
        assert await page.run(words="one") is None
        assert await page.run(words="two", runId="their-run") is None
        shown = await page.shown()
    first, second = runs_in(shown["events"])
    assert types(first) == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert second[0]["runId"] == second[-1]["runId"] == "their-run" and second[0]["threadId"] == chat_id
    assert second[-1]["outcome"] == {"type": "success"} and second[-1]["usage"][0]["outputTokens"] > 0
    assert [message["role"] for message in shown["messages"]] == ["user", "reasoning", "assistant"] * 2
    assert await loaded(server, chat_id) == shown["messages"]


async def test_resent_messages_are_never_added_twice(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with opened_agent(server.url, chat_id) as page:
        assert await page.run(words="one") is None
        mine = await page.messages()
        await page.tell("forget")
        assert await page.run() is None, "nothing is new, so nothing is asked"
        shown = await page.shown()
        assert types(shown["events"]) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert shown["messages"] == mine
        assert await page.run(words="two") is None
        assert [each["content"] for each in (await page.messages())[::2]] == ["one", "two"]
    async with watching(server.url, chat_id) as watcher:
        assert [role for role, _ in watcher.messages] == ["user", "assistant"] * 2


async def test_a_thread_that_does_not_exist_is_empty_and_is_not_made(server: Process, chat_id: str) -> None:
    assert await loaded(server, chat_id) == []
    assert (await command(server.url, chat_id, {"type": "regenerate", "client_request_id": "r"})).status_code == 404


@pytest.mark.row("DOOR-4")
@pytest.mark.parametrize("approved", [True, False])
async def test_a_pause_is_an_interrupt_and_resume_goes_on_with_the_same_run(
    server: Process, chat_id: str, approved: bool
) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_agent(server.url, chat_id) as page:
        assert await page.run(words='call asks {"text": "x"}') is None
        shown = await page.shown()
        (asked,) = shown["interrupts"]
        assert asked["reason"] == "tool_call" and asked["metadata"]["threadcast"]["arguments"] == {"text": "x"}
        assert asked["toolCallId"] == shown["messages"][1]["toolCalls"][0]["id"]
        assert asked["responseSchema"]["required"] == ["approved"]
        refused = await page.run(words="a message meanwhile")
        assert "pending interrupt" in refused["message"], "the client itself refuses"
    async with opened_agent(server.url, chat_id, messages=bare(shown["messages"])) as page:
        assert await page.run() is None
        assert (await page.shown())["interrupts"] == [asked], "a page that loads is asked the same"
        await page.tell("forget")
        answer = {"approved": approved, "note": "because", "arguments": {"text": "y"}}
        resume = [{"interruptId": asked["id"], "status": "resolved", "payload": answer}]
        assert await page.run(resume=resume) is None
        shown = await page.shown()
        (run,) = runs_in(shown["events"])
        assert types(run)[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
        (result,) = [event for event in run if event["type"] == "TOOL_CALL_RESULT"]
        assert ("allowed: y" in result["content"]) == approved
        assert run[-1]["outcome"] == {"type": "success"} and shown["interrupts"] == []
        assert await loaded(server, chat_id) == shown["messages"]
    async with watching(server.url, chat_id) as watcher:
        assert [role for role, _ in watcher.messages] == ["user", "assistant", "tool", "assistant"]


async def test_cancelled_denies(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_agent(server.url, chat_id) as page:
        await page.run(words="call asks {}")
        (asked,) = (await page.shown())["interrupts"]
        assert await page.run(resume=[{"interruptId": asked["id"], "status": "cancelled"}]) is None
        shown = await page.shown()
    (result,) = [event for event in shown["events"] if event["type"] == "TOOL_CALL_RESULT"]
    assert "denied by user" in result["content"] and result["metadata"]["threadcast"] == {"tool_failed": True}
    assert await loaded(server, chat_id) == shown["messages"]


async def test_a_stale_answer_has_no_effect_and_asks_no_model(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_agent(server.url, chat_id) as first, opened_agent(server.url, chat_id) as second:
        await first.run(words="call asks {}")
        assert await second.run() is None
        (asked,) = (await second.shown())["interrupts"]
        yes = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        assert await first.run(resume=yes) is None
        before = await first.messages()
        no = [{"interruptId": asked["id"], "status": "cancelled"}]
        assert await second.run(resume=no) is None
        shown = await second.shown()
    assert shown["messages"] == before and shown["interrupts"] == []


@pytest.mark.row("DOOR-4")
async def test_the_page_carries_out_a_tool_of_its_own(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_agent(server.url, chat_id, tools=[WEATHER]) as page:
        assert await page.run(words='call weather {"city": "Bonn"}\ncall clock {}') is None
        shown = await page.shown()
        (end,) = shown["finished"]
        (call,) = [call for call in shown["messages"][1]["toolCalls"] if call["function"]["name"] == "weather"]
        assert end == {"outcome": "success", "pendingToolCallIds": [call["id"]]}
        result = {"id": "r1", "role": "tool", "toolCallId": call["id"], "content": '{"sun": 1}'}
        assert await page.run(message=result) is None
        shown = await page.shown()
        runs_in(shown["events"])
        assert '{"sun": 1}' in shown["messages"][-1]["content"]
        assert sum(message.get("toolCallId") == call["id"] for message in shown["messages"]) == 1
        known = shown["messages"]
        assert await page.run(words="thanks") is None
        shown = await page.shown()
        assert "MESSAGES_SNAPSHOT" not in types(runs_in(shown["events"])[-1]), "the page knows all messages"
        assert shown["messages"][: len(known)] == known
    roles = [message["role"] for message in bare(shown["messages"])]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]


async def test_a_new_message_ends_a_run_that_waits_for_the_page_alone(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_agent(server.url, chat_id, tools=[WEATHER]) as page:
        await page.run(words="call weather {}")
        assert await page.run(words="never mind") is None
        shown = await page.shown()
        assert await loaded(server, chat_id) == shown["messages"]
    assert shown["finished"][-1]["outcome"] == "success"


async def test_a_result_and_a_new_message_come_in_one_request(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_agent(server.url, chat_id, tools=[WEATHER]) as page:
        await page.run(words="call weather {}")
        (call,) = (await page.messages())[1]["toolCalls"]
        result = {"id": "r1", "role": "tool", "toolCallId": call["id"], "content": "sunny"}
        assert await page.run(messages=[result, user("and now?")]) is None
        shown = await page.shown()
        runs_in(shown["events"])
        mine = [(message["role"], message.get("content")) for message in bare(shown["messages"])]
        assert mine[:5:2] == [("user", "call weather {}"), ("tool", "sunny"), ("user", "and now?")]
        others = bare(await loaded(server, chat_id))
        assert [(message["role"], message.get("content")) for message in others] == mine


async def test_stop_leaves_the_run_going_on_and_the_page_can_join_it_again(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/essay?words=60&rate=100")
    async with opened_agent(server.url, chat_id) as page:
        await page.tell("run", message=user("x"))
        await page.until(lambda line: line.get("event") == "TEXT_MESSAGE_CONTENT")
        await page.tell("stop")
        await page.until(lambda line: line.get("done") == "run")
        assert await page.run() is None
        messages = await page.messages()
    assert len(messages) == 2 and len(messages[1]["content"].split()) == 60
    assert await loaded(server, chat_id) == messages


async def test_with_abort_a_stop_stops_the_run(tmp_path: Path) -> None:
    with started_server(tmp_path, config='[doors.ag_ui]\non_disconnect = "abort"\n') as server:
        await server.ready()
        await prepare(server, "c", "demo/hang?after=2&rate=0")
        async with (
            watching(server.url, "c") as watcher,
            opened_agent(server.url, "c") as page,
            opened_agent(server.url, "c") as other,
        ):
            await page.tell("run", message=user("x"))
            await page.until(lambda line: line.get("event") == "TEXT_MESSAGE_CONTENT")
            await other.tell("run")
            await other.until(lambda line: line.get("event") == "MESSAGES_SNAPSHOT")
            await other.tell("stop")
            await other.until(lambda line: line.get("done") == "run")
            assert watcher.state is not None and not watcher.state.is_at_rest, "a page that only joined stops nothing"
            await page.tell("stop")
            await watcher.at_rest()
            assert watcher.state.runtime.outcome == "aborted"


async def test_an_abort_by_another_client_ends_the_run_as_cancelled(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with opened_agent(server.url, chat_id) as page:
        await page.tell("run", message=user("x"))
        await page.until(lambda line: line.get("event") == "TEXT_MESSAGE_CONTENT")
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        assert (await page.until(lambda line: line.get("done")))["error"] is None
        shown = await page.shown()
        (run,) = runs_in(shown["events"])
        assert run[-1]["outcome"] == {"type": "cancelled"}
        assert await loaded(server, chat_id) == shown["messages"]


async def test_a_failed_run_is_an_error_of_the_agent(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/error?after=3")
    async with opened_agent(server.url, chat_id) as page:
        await page.run(words="x")
        (run,) = runs_in((await page.shown())["events"])
        assert run[-1]["type"] == "RUN_ERROR" and run[-1]["code"] and "Traceback" not in run[-1]["message"]


async def test_refusals_are_errors_of_the_protocol(server: Process, chat_id: str) -> None:
    async with opened_agent(server.url, chat_id) as page:
        refused = await page.run(words=" ")
        assert (refused["status"], refused["payload"]["type"]) == (400, "RUN_ERROR")
        assert (refused["payload"]["code"], refused["payload"]["path"]) == ("invalid_content", "/messages/0/content")
    async with opened_agent(server.url, chat_id) as page:
        state = {"large": "x" * 70_000}
        refused = await page.run(words="x", state=state)
        assert (refused["status"], refused["payload"]["path"]) == (413, "/state")
    async with opened_agent(server.url, chat_id, mode="/no-such") as page:
        assert (await page.run(words="x"))["payload"]["code"] == "not_found"


async def test_all_of_unicode_comes_through(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo?rate=0")
    async with opened_agent(server.url, chat_id) as page:
        for part in UNICODE_TEXTS:
            assert await page.run(words=part) is None
        shown = await page.shown()
    runs_in(shown["events"])
    answers = [message["content"] for message in shown["messages"] if message["role"] == "assistant"]
    assert answers == [f"You said: {part}" for part in UNICODE_TEXTS]
    assert await loaded(server, chat_id) == shown["messages"]


async def test_a_page_and_our_own_client_end_equal(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with watching(server.url, chat_id) as watcher, opened_agent(server.url, chat_id) as page:
        assert await page.run(words="from the page") is None
        await watcher.at_rest()
        await command(server.url, chat_id, user_message("ours", "from us"))
        await watcher.at_rest(2)
        assert await page.run(words="again") is None, "the page learns what it did not know"
        await watcher.at_rest(3)
        shown = await page.shown()
        assert [(m["role"], m["content"]) for m in shown["messages"]] == watcher.messages
        assert "MESSAGES_SNAPSHOT" in types(runs_in(shown["events"])[-1])
        assert await loaded(server, chat_id) == shown["messages"]


async def test_strange_ids_come_back_unchanged(server: Process, chat_id: str) -> None:
    strange = f"{chat_id} / ünï"
    long_id = "ü" * 300
    async with opened_agent(server.url, strange, mode="/agent") as page:
        for key in ("ä/1", long_id):
            assert await page.run(message={"id": key, "role": "user", "content": f"call {key[:3]}"}) is None
        shown = await page.shown()
        assert [message["id"] for message in shown["messages"][::2]] == ["ä/1", long_id]
        assert all("MESSAGES_SNAPSHOT" not in types(run) for run in runs_in(shown["events"]))
        assert shown["events"][0]["threadId"] == strange
        assert await page.run() is None
        assert await page.messages() == shown["messages"]


async def test_a_given_history_begins_a_new_chat(server: Process, chat_id: str) -> None:
    history = [
        {"id": "h/1", "role": "user", "content": "before"},
        {"id": "h2", "role": "assistant", "content": "an answer of another server"},
    ]
    async with opened_agent(server.url, chat_id, messages=history) as page:
        assert await page.run(words="now") is None
        shown = await page.shown()
        assert "MESSAGES_SNAPSHOT" not in types(shown["events"])
        assert shown["messages"][:2] == history
    async with watching(server.url, chat_id) as watcher:
        texts = [words for _, words in watcher.messages]
    assert texts[:3] == ["before", "an answer of another server", "now"] and len(texts) == 4


async def test_state_of_the_client_reaches_the_run_and_a_page_that_loads(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with opened_agent(server.url, chat_id) as page:
        context = [{"description": "place", "value": "Bonn"}]
        assert await page.run(words="x", state={"cart": [1]}, context=context) is None
    async with watching(server.url, chat_id) as watcher:
        assert watcher.state is not None
        kept = watcher.state.nodes[watcher.state.path[0]].context
    assert kept == {"ag_ui_state": {"cart": [1]}, "ag_ui_context": context}
    async with opened_agent(server.url, chat_id) as page:
        assert await page.run() is None
        assert (await page.shown())["state"] == {"cart": [1]}
