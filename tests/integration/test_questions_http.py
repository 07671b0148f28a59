"""Questions of running tools over real HTTP: the tests check what readers see, which callers may answer, and what ends
a question."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.bars import bar_seconds
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, started_server, user_message
from tests.support.tokens import bearer, tokens
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

APP = Path(__file__).with_name("asking_tools.py")
WRITER = {"Authorization": "Bearer ann-may-not-approve"}
WRITER_HASH = hashlib.sha256(b"ann-may-not-approve").hexdigest()
CONFIG = (
    '[models]\ndefault = "demo/tools?rate=0"\n[limits]\nquestion_seconds = 8\n'
    + tokens(ann="", bob="")
    + f'[[auth.tokens]]\nid = "ann"\nsha256 = "{WRITER_HASH}"\npermissions = []\n'
)
"""The principal ann has a second token, which may not approve."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("questions")
    config = base / "threadcast.toml"
    config.write_text(CONFIG)
    with started_server(base, "--config", str(config), "--app", str(APP)) as process:
        yield process


@pytest.fixture
async def server(started: Process) -> Process:
    return started if started.url else await started.ready()


async def call(server: Process, chat_id: str, *calls: str, request_id: str = "a") -> None:
    text = "\n".join(f"call {one}" for one in calls)
    answer = await command(server.url, chat_id, user_message(request_id, text), bearer("ann"))
    assert answer.status_code == 202, answer.text


_numbers = itertools.count()


def questions(tab: Watcher) -> list[JsonObject]:
    """The open questions, with the text of each under "text"."""
    if tab.state is None:
        return []
    asked = [each for each in tab.state.runtime.pause_reasons if each.type == "question"]
    return [
        {"id": each.tool_call_id, "text": each.question.text, "hash": each.input_hash, "tool": each.tool_name}
        for each in asked
        if each.question
    ]


def is_asked(tab: Watcher) -> bool:
    return bool(questions(tab))


def results(tab: Watcher) -> list[str]:
    assert tab.state is not None
    return [str(message.content) for message in tab.state.nodes.values() if message.role == "tool"]


async def decide(
    server: Process, chat_id: str, question: JsonObject, headers: dict[str, str] | None = None, **more: object
) -> httpx2.Response:
    body = {
        "type": "tool_decision",
        "client_request_id": f"d{next(_numbers)}",
        "tool_call_id": question["id"],
        "input_hash": question["hash"],
        "accepted": True,
        **more,
    }
    return await command(server.url, chat_id, body, headers or bearer("ann"))


def answer(value: object) -> JsonObject:
    return {"answer": value}


async def test_a_tool_asks_and_two_tabs_see_the_question_and_its_end(server: Process) -> None:
    async with (
        watching(server.url, "two", headers=bearer("ann")) as one,
        watching(server.url, "two", headers=bearer("ann")) as other,
    ):
        await call(server, "two", 'ask {"text":"Which one?","options":["short","long"]}')
        await one.until(is_asked)
        await other.until(is_asked)
        assert one.state is not None
        assert (one.state.runtime.state, one.state.runtime.paused) == ("executing_tools", False)
        (asked,) = questions(one)
        assert (asked["text"], asked["tool"]) == ("Which one?", "ask")
        await anyio.sleep(0.8)  # longer than the tool's time limit, which must not include the question's time
        async with watching(server.url, "two", headers=bearer("ann")) as late:
            await late.until(is_asked)
            assert questions(late) == [asked]
        await decide(server, "two", asked, edited_input=answer("long"))
        await one.at_rest()
        await other.at_rest()
        assert results(one) == ["the answer is long"]
        assert one.snapshot == other.snapshot
        assert one.types().count("pause_cleared") == 1


async def test_a_one_shot_caller_is_told_that_a_person_is_asked(server: Process) -> None:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, headers=bearer("bob")) as client:
        body = {"model": "demo/tools?rate=0", "messages": [{"role": "user", "content": 'call ask {"text":"Well?"}'}]}
        told = await client.post(f"{server.url}/v1/chat/completions", json=body)
        assert told.status_code == 200 and "Waiting for approval: " in told.json()["choices"][0]["message"]["content"]
        (listed,) = (await client.get(f"{server.url}/v1/chats?state=paused")).json()["items"]
        async with watching(server.url, listed["id"], headers=bearer("bob")) as tab:
            await tab.until(is_asked)
            (asked,) = questions(tab)
            await decide(server, listed["id"], asked, bearer("bob"), edited_input=answer("yes"))
            await tab.at_rest()
            assert results(tab) == ["the answer is yes"]
        assert (await client.get(f"{server.url}/v1/chats?state=paused")).json()["items"] == []


async def test_a_rejection_and_silence_reach_the_tool(server: Process) -> None:
    for chat_id, expected in (("rejected", "rejected"), ("silent", "late")):
        async with watching(server.url, chat_id, headers=bearer("ann")) as tab:
            await call(server, chat_id, 'ask {"text":"Well?"}')
            await tab.until(is_asked)
            if expected == "rejected":
                (asked,) = questions(tab)
                await decide(server, chat_id, asked, accepted=False)
            await tab.at_rest()
            assert results(tab) == [f"no answer: {expected}"]
            assert not is_asked(tab)


async def test_a_wrong_answer_is_refused_and_a_right_one_follows(server: Process) -> None:
    async with watching(server.url, "form", headers=bearer("ann")) as tab:
        await call(server, "form", "ask_form")
        await tab.until(is_asked)
        (asked,) = questions(tab)
        for wrong in ({}, {"edited_input": answer({"name": "ann"})}, {"edited_input": answer("ann")}):
            await decide(server, "form", asked, **wrong)
        await tab.until(lambda tab: len([f for f in tab.frames if f["type"] == "ack" and not f["accepted"]]) == 3)
        refusals = [f["result"] for f in tab.frames if f["type"] == "ack" and not f["accepted"]]
        assert {refusal["code"] for refusal in refusals} == {"bad_request"}
        assert "'size' is a required property" in refusals[1]["error"]
        assert questions(tab) == [asked]
        await decide(server, "form", asked, edited_input=answer({"name": "ann", "size": "large"}))
        await tab.at_rest()
        assert results(tab) == ["{'name': 'ann', 'size': 'large'}"]


async def test_a_question_needs_no_permission_to_approve_and_an_approval_does(server: Process) -> None:
    async with watching(server.url, "writer", headers=WRITER) as tab:
        await call(server, "writer", 'ask {"text":"Well?"}', 'pay {"amount":5}')
        await tab.until(lambda tab: tab.state is not None and tab.state.runtime.paused)
        assert tab.state is not None
        (approval,) = tab.state.runtime.pause_reasons
        reason: JsonObject = {"id": approval.tool_call_id, "hash": approval.input_hash}
        refused = await decide(server, "writer", reason, WRITER, accepted=False)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        await decide(server, "writer", reason, accepted=False)
        await tab.until(is_asked)
        (asked,) = questions(tab)
        refused = await decide(server, "writer", asked, bearer("bob"), edited_input=answer("x"))
        assert refused.status_code == 404
        accepted = await decide(server, "writer", asked, WRITER, edited_input=answer("x"))
        assert accepted.status_code == 202, accepted.text
        await tab.at_rest()
        assert results(tab) == ["the answer is x", "The call was denied by user."]


async def test_a_durable_agents_question_needs_no_permission_to_approve_and_its_rejection_is_no_denial(
    server: Process,
) -> None:
    params: JsonObject = {"mode": "asker", "on_deny": "stop"}
    for chat_id, more, said in (
        ("agent-yes", {"edited_input": answer("long")}, "the answer is long"),
        ("agent-no", {"accepted": False}, "no answer"),
    ):
        async with watching(server.url, chat_id, headers=WRITER) as tab:
            await command(server.url, chat_id, user_message("a", "go", params=params), WRITER)
            await tab.until(is_asked)
            (asked,) = questions(tab)
            decided = await decide(server, chat_id, asked, WRITER, **more)
            assert decided.status_code == 202, decided.text
            await tab.at_rest()
            assert tab.messages[-1] == ("assistant", said)


async def test_a_durable_agent_and_its_tool_ask_in_the_same_run(server: Process) -> None:
    async with watching(server.url, "agent-calls", headers=bearer("ann")) as tab:
        await command(server.url, "agent-calls", user_message("a", "go", params={"mode": "caller"}), bearer("ann"))
        for text in ("For the tool?", "For the agent?"):  # the agent's own question is asked when all branches wait
            await tab.until(lambda tab: [asked["text"] for asked in questions(tab)] == [text])  # noqa: B023
            (asked,) = questions(tab)
            await decide(server, "agent-calls", asked, edited_input=answer(text.upper()))
        await tab.at_rest()
        assert tab.messages[-1] == ("assistant", "the answer is FOR THE TOOL?; FOR THE AGENT?")


async def test_two_questions_of_a_call_and_two_calls_ask_at_once(server: Process) -> None:
    async with watching(server.url, "many", headers=bearer("ann")) as tab:
        await call(server, "many", 'ask {"text":"third?"}', 'ask {"text":"fourth?"}')
        await tab.until(lambda tab: len(questions(tab)) == 2)
        for asked in questions(tab):
            await decide(server, "many", asked, edited_input=answer(asked["text"].upper()))
        await tab.at_rest()
        assert results(tab) == ["the answer is THIRD?", "the answer is FOURTH?"]
        await call(server, "many", "ask_twice", request_id="b")
        await tab.until(lambda tab: len(questions(tab)) == 2)
        for asked in questions(tab):
            await decide(server, "many", asked, edited_input=answer(asked["text"].upper()))
        await tab.at_rest(2)
        assert results(tab)[-1] == "FIRST? and SECOND?"


async def test_a_question_ends_with_its_call(server: Process) -> None:
    async with watching(server.url, "ended", headers=bearer("ann")) as tab:
        await call(server, "ended", "forget")
        await tab.until(is_asked)
        await tab.at_rest()
        assert results(tab) == ["went on"]
        assert not is_asked(tab)


async def test_the_tools_own_time_still_counts(server: Process) -> None:
    async with watching(server.url, "brief", headers=bearer("ann")) as tab:
        await call(server, "brief", "briefly")
        await tab.until(is_asked)
        (asked,) = questions(tab)
        await anyio.sleep(0.7)
        await decide(server, "brief", asked, edited_input=answer("yes"))
        await tab.at_rest()
        assert results(tab) == ["The tool did not finish within 0.5 s."]


async def test_an_abort_ends_the_question_and_the_call(server: Process) -> None:
    async with watching(server.url, "aborted", headers=bearer("ann")) as tab:
        await call(server, "aborted", 'ask_once {"text":"Well?"}')
        await tab.until(is_asked)
        (asked,) = questions(tab)
        begun_at = anyio.current_time()
        await command(server.url, "aborted", {"type": "abort", "client_request_id": "x"}, bearer("ann"))
        await tab.at_rest()
        assert anyio.current_time() - begun_at < bar_seconds(2)
        assert tab.state is not None
        assert (tab.state.runtime.outcome, tab.state.runtime.pause_reasons) == ("aborted", [])
        await decide(server, "aborted", asked, edited_input=answer("too late"))
        await tab.until(
            lambda tab: (
                [f["result"]["code"] for f in tab.frames if f["type"] == "ack" and not f["accepted"]]
                == ["no_pending_decision"]
            )
        )


async def test_a_question_of_a_sub_chat_is_asked_in_the_sub_chat(server: Process) -> None:
    text = json.dumps({"task": 'call ask {"text":"Down here?"}'})
    async with watching(server.url, "parent", headers=bearer("ann")) as parent:
        await call(server, "parent", f"delegate {text}")
        await parent.until(lambda tab: any(f["type"] == "subchat_update" for f in tab.frames))
        child_id = next(f["subchat_id"] for f in parent.frames if f["type"] == "subchat_update")
        async with watching(server.url, child_id, headers=bearer("ann")) as child:
            await child.until(is_asked)
            (asked,) = questions(child)
            await decide(server, child_id, asked, edited_input=answer("yes"))
            await child.at_rest()
            assert results(child) == ["the answer is yes"]
        await parent.at_rest()
        assert not is_asked(parent)
