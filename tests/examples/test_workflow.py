"""The workflow assistant: the commands print what its page shows, and the model receives what the page describes."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.examples.console import play
from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, serve_fake_openai, text
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, start, user_message
from threadcast_protocol.wire.events import PayloadAdded, ToolStatus
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

EXAMPLE = ROOT / "examples" / "workflow"
OPEN_ID = "3f2a6b1c-7d58-4e0f-b1a2-94c0d7e8f903"
REPORT_ID = "5d0c7a9e-2f41-4c7b-9a55-1c8f0e6b7a01"
PAGE: JsonObject = {"workflow": {"id": OPEN_ID}}
WAIT = {"Prefer": "wait=10"}
ACTIONS: list[JsonObject] = [
    {"name": "Daily", "type": "schedule"},
    {"name": "Any?", "type": "condition", "after": "Daily"},
    {"name": "Mail", "type": "send_mail", "after": "Any?:no"},
]
EDGES = [
    {"target": "Daily"},
    {"target": "Any?", "source": "Daily", "port": "out"},
    {"target": "Mail", "source": "Any?", "port": "no"},
]


async def test_every_line_of_the_page_is_printed(tmp_path: Path) -> None:
    await play(EXAMPLE / "README.md", tmp_path)


def calling(name: str, /, **arguments: object) -> Reply:
    """The model calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    called = chunk(delta={"tool_calls": [{"index": 0, "id": f"call_{name}", "function": function}]})
    return Reply([called, chunk(finish_reason="tool_calls"), DONE])


def saying(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


class Desk(NamedTuple):
    """The example's server with a model whose answers a test sets, and a tab that watches the chat."""

    server: Process
    model: FakeOpenAI
    tab: Watcher

    async def say(self, *replies: Reply, context: JsonObject = PAGE) -> list[JsonObject]:
        """Post one message and wait for its whole run. Returns the messages of the model's last request."""
        self.model.replies = list(replies)
        before = self.tab.runs_ended
        request = user_message(f"r{before}", "please", context=context)
        assert (await command(self.server.url, "desk", request)).status_code == 202
        await self.tab.until(lambda w: w.runs_ended > before)
        sent: list[JsonObject] = self.model.asked[-1].body["messages"]
        return sent

    async def decide(self, shown: PayloadAdded, accepted: bool) -> None:
        request_id = f"{shown.payload_id}-{accepted}"
        body = {"type": "tool_decision", "client_request_id": request_id, "accepted": accepted}
        answer = await command(self.server.url, "desk", {**body, "payload_id": shown.payload_id}, WAIT)
        assert answer.json()["accepted"] is True

    def shown(self) -> list[PayloadAdded]:
        return [event for event in self.tab.events if isinstance(event, PayloadAdded)]

    def statuses(self, name: str) -> list[ToolStatus]:
        return [event for event in self.tab.events if isinstance(event, ToolStatus) and event.name == name]


@pytest.fixture(scope="module")
def model() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as fake:
        yield fake


@asynccontextmanager
async def open_desk(model: FakeOpenAI, base: Path) -> AsyncIterator[Desk]:
    environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}
    arguments = ["--config", str(EXAMPLE / "threadcast.toml"), "--model", "openai/fake-1", "--port", "0"]
    arguments += ["--data-dir", str(base / "data")]
    with start("serve", *arguments, log=base / "log", environment=environment) as server:
        await server.ready()
        async with watching(server.url, "desk") as tab:
            yield Desk(server, model, tab)


@pytest.fixture
async def desk(model: FakeOpenAI, tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(model, tmp_path) as opened:
        yield opened


@pytest.mark.row("LOOP-11", "EVT-10")
async def test_the_pages_id_is_put_into_a_call_whose_result_only_the_model_reads(desk: Desk) -> None:
    sent = await desk.say(calling("read_workflow", workflow_id="the open one"), saying("I see."))
    assert desk.statuses("read_workflow")[0].input == {"workflow_id": OPEN_ID}
    assert json.loads(sent[-1]["content"])["name"] == "Monday mail"
    assert "mara@example.com" not in desk.tab.snapshot.decode()
    (offered,) = [t["function"] for t in desk.model.asked[-1].body["tools"] if t["function"]["name"] == "read_workflow"]
    assert "required" not in offered["parameters"]


@pytest.mark.row("TOOL-8")
async def test_the_model_reads_names_of_reports_and_people_all_of_them(desk: Desk) -> None:
    sent = await desk.say(calling("list_reports"), saying("Two."))
    assert [report.keys() for report in json.loads(sent[-1]["content"])] == [{"id", "name"}] * 2
    (shown,) = desk.shown()
    assert [item["rows_count"] for item in shown.data["items"]] == [412, 9_051]


@pytest.mark.row("TOOL-9")
async def test_a_reports_name_is_looked_up_once_and_an_unknown_one_names_the_tool_that_lists_them(desk: Desk) -> None:
    for _ in range(2):
        sent = await desk.say(calling("report_columns", report_id="Weekly report"), saying("Those."))
        assert json.loads(sent[-1]["content"]) == ["region", "orders", "revenue"]
    assert [status.message for status in desk.statuses("report_columns") if status.message] == [
        "looking for 'Weekly report'"
    ]
    sent = await desk.say(calling("report_columns", report_id="Moon"), saying("None."))
    assert sent[-1]["content"] == "There is no 'Moon'. Call list_reports to see what there is."


@pytest.mark.row("GATE-3", "GATE-4", "GATE-5", "TOOL-10")
async def test_a_proposal_is_saved_by_a_persons_yes_and_by_nothing_else(desk: Desk) -> None:
    proposal = calling("propose_workflow", name="Daily mail", actions=ACTIONS)
    sent = await desk.say(proposal, saying("Well?"))
    assert "nothing has been saved" in sent[-1]["content"]
    (shown,) = desk.shown()
    assert shown.data["object"]["edges"] == EDGES
    assert (shown.data["object_id"], shown.data["is_update"]) == (OPEN_ID, True)
    await desk.decide(shown, False)
    sent = await desk.say(calling("read_workflow"), saying("As it was."))
    assert json.loads(sent[-1]["content"])["name"] == "Monday mail"
    await desk.say(proposal, saying("Now?"))
    await desk.decide(desk.shown()[-1], True)
    await desk.tab.until(lambda w: any(frame.get("approval") == "committed" for frame in w.frames))
    sent = await desk.say(calling("read_workflow"), saying("Changed."))
    assert json.loads(sent[-1]["content"])["name"] == "Daily mail"
    offered = {each["function"]["name"] for each in desk.model.asked[-1].body["tools"]}
    assert "propose_workflow" in offered and "save_workflow" not in offered


@pytest.mark.row("GATE-3", "TOOL-10")
async def test_a_proposal_that_cannot_be_is_shown_to_nobody(desk: Desk) -> None:
    wrong = [*ACTIONS[:2], {**ACTIONS[2], "after": "Any?:perhaps"}]
    sent = await desk.say(calling("propose_workflow", name="Daily mail", actions=wrong), saying("No."))
    assert sent[-1]["content"] == "'Any?' has no port 'perhaps'. Ports of a condition: yes, no."
    assert desk.shown() == []


@pytest.mark.row("TOOL-11", "OLD-7")
async def test_a_draft_outlives_its_server_and_is_proposed_as_a_new_workflow(model: FakeOpenAI, tmp_path: Path) -> None:
    async with open_desk(model, tmp_path) as desk:
        added = [calling("add_action", draft="d", **action) for action in ACTIONS]
        oops = calling("add_action", draft="d", name="Oops", type="send_mail", after="Mail")
        taken = calling("remove_action", draft="d", name="Oops")
        sent = await desk.say(calling("start_draft", draft="d"), *added, oops, taken, saying("There."))
        assert sent[-1]["content"] == "Removed 'Oops'. The draft has 3 actions."
        desk.server.kill()
    async with open_desk(model, tmp_path) as desk:
        sent = await desk.say(calling("preview_draft", draft="d", name="Daily"), saying("Shall I?"))
        assert "nothing has been saved" in sent[-1]["content"]
        (proposed,) = desk.shown()
        assert (proposed.payload_type, proposed.approval, proposed.unregistered) == ("workflow", "pending", False)
        assert proposed.data["object"]["edges"] == EDGES
        assert proposed.data["is_update"] is False and "object_id" not in proposed.data
        await desk.decide(proposed, True)
        await desk.tab.until(lambda w: any(frame.get("approval") == "committed" for frame in w.frames))


@pytest.mark.row("LOOP-10")
async def test_an_answer_in_chinese_is_asked_for_again(desk: Desk) -> None:
    sent = await desk.say(saying("触发器是工作流程的开始。"), saying("A trigger begins it."))
    assert sent[-1] == {"role": "user", "content": "Answer again, in English."}
    assert desk.tab.messages[-1] == ("assistant", "A trigger begins it.")


@pytest.mark.row("OLD-1")
async def test_who_comes_by_openais_wire_meets_the_guest(desk: Desk) -> None:
    desk.model.replies = [saying("Hello.")]
    body: JsonObject = {"messages": [{"role": "user", "content": "hi"}]}
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        answer = await client.post(f"{desk.server.url}/v1/chat/completions", json=body)
    assert answer.status_code == 200
    sent = desk.model.asked[-1].body
    assert sent["messages"][0]["content"].startswith("You explain workflows.")
    assert {tool["function"]["name"] for tool in sent["tools"]} == {"list_reports", "read_workflow"}
