"""Traces of runs over real HTTP: their content, the permission to see them, and the times in messages."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, failure, serve_fake_openai, text
from tests.integration.mcp_servers import PIXEL
from tests.integration.oneshot_client import ask
from tests.integration.store_fixtures import eventually
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from tests.support.tokens import bearer, tokens
from threadcast.api.diagnostics import RunTrace, TracedRuns
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

ACCESS = tokens(ann='permissions = ["approve", "diagnostics"]', bob="")
PROMPT = "You are the keeper of a word that nobody may read."

CONFIG = """
[tools.calculator]

[models]
demo = true
{models}
[models.providers.fake]
base_url = "{url}"
models = [{{ name = "tiny" }}]

[profiles.agent]
system_prompt = "{prompt}"
"""


class Harness:
    """A server and its model, and the requests of its callers."""

    def __init__(self, server: Process, model: FakeOpenAI) -> None:
        self.server = server
        self.model = model

    async def say(self, chat_id: str, *replies: Reply, who: str = "ann", content: object = "hi", **more: object) -> str:
        """Post one message, wait until its run has ended, and return the run's id."""
        self.model.replies = list(replies)
        async with watching(self.server.url, chat_id, headers=bearer(who)) as watcher:
            await watcher.until(lambda w: w.state is not None)
            before = watcher.runs_ended
            body = {**user_message(f"r{before}", ""), "content": content, **more}
            assert (await command(self.server.url, chat_id, body, bearer(who))).status_code == 202
            await watcher.until(lambda w: w.runs_ended > before)
            return str(next(f["run_id"] for f in reversed(watcher.frames) if f.get("outcome")))

    async def get(self, path: str, who: str = "ann") -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            return await client.get(self.server.url + path, headers=bearer(who))

    async def trace(self, chat_id: str, run_id: str) -> Any:  # Any: JSON of which tests read parts
        """Return the whole trace; its last record is written a moment after the run's end."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                answer = await self.get(f"/v1/chats/{chat_id}/runs/{run_id}/diagnostics")
                if answer.status_code == 200 and answer.json()["outcome"] is not None:
                    msgspec.convert(answer.json(), RunTrace)
                    return answer.json()
                await anyio.sleep(0.02)


@asynccontextmanager
async def harness(tmp_path: Path, more: str = "", app: Path | None = None, models: str = "") -> AsyncIterator[Harness]:
    with serve_fake_openai() as model:
        config = ACCESS + CONFIG.format(url=model.base_url, prompt=PROMPT, models=models) + more
        async with serving(tmp_path, config=config, app=app) as process:
            yield Harness(process, model)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Harness]:
    async with harness(tmp_path) as started:
        yield started


def calls(name: str, arguments: JsonObject) -> Reply:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return Reply(
        [
            chunk(delta={"tool_calls": [{"index": 0, "id": "call_1", "function": function}]}),
            chunk(finish_reason="tool_calls"),
            DONE,
        ]
    )


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n'
FINE = Reply([text("It is "), text("42."), STOP, USAGE, DONE])


@pytest.mark.row("DIAG-1", "CTX-8")
async def test_a_trace_tells_what_was_asked_what_came_back_and_what_the_tools_did(here: Harness) -> None:
    params = {"temperature": 0.25}
    run_id = await here.say("c1", calls("calculator", {"expression": "6*7"}), FINE, params=params)
    trace = await here.trace("c1", run_id)
    assert (trace["outcome"], trace["principal"], trace["params"]) == ("complete", "ann", params)
    assert trace["started_at"] <= trace["rounds"][0]["attempts"][0]["asked_at_ms"] <= trace["ended_at"]
    first, second = trace["rounds"]
    assert first["system"] == PROMPT and second["system"] == PROMPT
    assert first["settings"]["temperature"] == {"value": 0.25, "layer": "command"}
    assert "calculator" in first["tools"] and first["params"]["temperature"] == 0.25
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert first["finish_reason"] == "tool_calls" and second["text"] == "It is 42."
    assert second["usage"]["prompt_tokens"] == 7
    (attempt,) = second["attempts"]
    assert (attempt["provider"], attempt["model"]) == ("fake", "tiny")
    assert 0 <= attempt["first_delta_ms"] <= attempt["total_ms"]
    (tool,) = first["tool_runs"]
    assert (tool["name"], json.loads(tool["input"]), tool["output"]) == ("calculator", {"expression": "6*7"}, "42")
    assert tool["outcome"] == "done" and tool["elapsed_ms"] >= 0

    runs = await here.get("/v1/chats/c1/runs")
    (run,) = msgspec.convert(runs.json(), TracedRuns).runs
    assert (run.run_id, run.outcome, run.rounds_count, run.tool_runs_count) == (run_id, "complete", 2, 1)
    shown = [await here.get(path) for path in ("/v1/chats/c1", "/v1/chats/c1/export", "/v1/chats/c1?view=tree")]
    assert not any(PROMPT in answer.text for answer in shown)
    said = here.server.log_text()
    assert PROMPT not in said


@pytest.mark.row("DIAG-1", "CTX-8")
async def test_only_an_owner_with_the_permission_sees_a_trace(here: Harness) -> None:
    mine = await here.say("c1", FINE)
    his = await here.say("c2", FINE, who="bob")
    for path in ("/v1/chats/c2/runs", f"/v1/chats/c2/runs/{his}/diagnostics"):
        refused = await here.get(path, "bob")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (await here.get(path, "ann")).status_code == 404
    for path in ("/v1/chats/c1/runs", f"/v1/chats/c1/runs/{mine}/diagnostics", "/v1/chats/none/runs"):
        assert (await here.get(path, "bob")).status_code == 404
    unknown = await here.get("/v1/chats/c1/runs/run_unknown/diagnostics")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert "no trace of such a run" in unknown.json()["detail"]
    await here.trace("c1", mine)
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        await client.delete(f"{here.server.url}/v1/chats/c1", headers=bearer("ann"))
    assert (await here.get(f"/v1/chats/c1/runs/{mine}/diagnostics")).status_code == 404


@pytest.mark.row("DIAG-1", "CTX-8")
async def test_the_page_chat_hands_out_the_trace_to_who_may_see_it_and_to_nobody_else(here: Harness) -> None:
    for who in ("ann", "bob"):
        here.model.replies = [FINE]
        shown = await ask(here.server.url, "/api/chat/stream", {"message": "hi"}, bearer(who))
        payload = shown.bodies[-1]["payload"]
        assert payload["message"] == "It is 42."
        assert ("diagnostics" in payload) == (who == "ann")
        assert (PROMPT in json.dumps(shown.bodies)) == (who == "ann")
        if who == "ann":
            assert payload["diagnostics"]["outcome"] == "complete"
            assert payload["diagnostics"]["rounds"][0]["text"] == "It is 42."


@pytest.mark.row("DIAG-1")
async def test_a_failed_call_leaves_the_providers_words_in_the_trace_alone_where_the_operator_wants_it(
    tmp_path: Path,
) -> None:
    async with harness(tmp_path, models="show_reasons = false") as here:
        run_id = await here.say("c1", failure(400, {"message": "the moon is in the way"}))
        trace = await here.trace("c1", run_id)
        assert trace["outcome"] == "error" and "moon" not in trace["error"]
        (attempt,) = trace["rounds"][0]["attempts"]
        assert attempt["code"] == "llm_error" and "the moon is in the way" in attempt["detail"]
        assert "moon" not in (await here.get("/v1/chats/c1")).text


@pytest.mark.row("PROV-8")
async def test_what_a_model_cannot_take_is_noted_in_the_trace(here: Harness) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    run_id = await here.say("c1", FINE, content=[{"type": "text", "text": "what is it?"}, picture])
    (round,) = (await here.trace("c1", run_id))["rounds"]
    assert len(round["left_out"]) == 1 and "image" in round["left_out"][0]
    assert PIXEL not in json.dumps(here.model.asked[-1].body)


MARKED = """\
payloads = ["article"]

[[profiles.agent.actions]]
action = "publish"
label = "Publish"

[payloads.article]
marker = "ARTICLE"
"""


@pytest.mark.row("DIAG-2", "PAY-6")
async def test_an_answer_is_shown_clean_and_its_trace_has_it_as_the_model_wrote_it(tmp_path: Path) -> None:
    actions = [{"label": "Publish", "action": "publish"}, {"label": "Burn", "action": "burn"}]
    raw = f'Here it is.\nARTICLE: {{"title": "Moss"}}\nSUGGESTED_ACTIONS: {json.dumps(actions)}'
    async with harness(tmp_path, MARKED) as here:
        run_id = await here.say("c1", Reply([text(raw), STOP, DONE]))
        raws = (await here.trace("c1", run_id))["raw_answers"]
        shown = (await here.get("/v1/chats/c1")).json()
    answer = shown["messages"][-1]
    assert (answer["content"], [each["action"] for each in answer["suggested_actions"]]) == ("Here it is.", ["publish"])
    assert [payload["data"] for payload in shown["payloads"]] == [{"title": "Moss"}]
    assert raws == {answer["message_id"]: {"text": raw, "dropped_actions_count": 1}}
    assert "burn" not in json.dumps(shown)


@pytest.mark.row("DIAG-1", "DIAG-3")
async def test_a_call_that_was_aborted_is_in_the_trace_with_the_time_it_had(tmp_path: Path) -> None:
    app = Path(__file__).with_name("misbehaving_tools.py")
    async with harness(tmp_path, app=app) as here:
        here.model.replies = [calls("hang", {})]
        async with watching(here.server.url, "c1", headers=bearer("ann")) as watcher:
            await watcher.until(lambda w: w.state is not None)
            await command(here.server.url, "c1", user_message("r1", "hi"), bearer("ann"))
            await watcher.until(lambda w: w.state is not None and w.state.runtime.active_tool == "hang")
            await command(here.server.url, "c1", {"type": "abort", "client_request_id": "r2"}, bearer("ann"))
            await watcher.until(lambda w: w.runs_ended)
            run_id = str(next(f["run_id"] for f in reversed(watcher.frames) if f.get("outcome")))
        trace = await here.trace("c1", run_id)
    ((tool,),) = [each["tool_runs"] for each in trace["rounds"]]
    assert (tool["name"], tool["outcome"], tool["output"], tool["is_abandoned"]) == ("hang", "aborted", "", False)
    assert tool["elapsed_ms"] >= 0 and trace["outcome"] == "aborted"


@pytest.mark.row("DIAG-1", "HIST-4")
async def test_what_the_summarizer_said_and_how_it_failed_is_in_the_trace(tmp_path: Path) -> None:
    summed = 'summarizer = "fake/tiny"\nparams = { max_history_messages = 2 }\n'
    async with harness(tmp_path, summed) as here:
        await here.say("c1", FINE)
        failed = await here.say("c1", failure(400, {"message": "no summaries today"}), FINE)
        fine = await here.say("c1", Reply([text("They greeted."), STOP, USAGE, DONE]), FINE)
        (broken,) = (await here.trace("c1", failed))["summaries"]
        (summary,) = (await here.trace("c1", fine))["summaries"]
    assert (broken["code"], broken["text"]) == ("llm_error", "") and "no summaries today" in broken["detail"]
    assert (summary["model"], summary["round"], summary["text"]) == ("fake/tiny", 0, "They greeted.")
    assert summary["code"] is None and summary["covered"] > 0 and summary["usage"]["prompt_tokens"] == 7


async def test_no_traces_are_kept_where_they_are_switched_off(tmp_path: Path) -> None:
    async with harness(tmp_path, "[limits]\ntrace_hours = 0\n") as here:
        await here.say("c1", FINE)
        assert (await here.get("/v1/chats/c1/runs")).json() == {"runs": []}
        here.model.replies = [FINE]
        shown = await ask(here.server.url, "/api/chat/stream", {"message": "hi"}, bearer("ann"))
        assert "diagnostics" not in shown.bodies[-1]["payload"]


@pytest.mark.row("DIAG-5")
async def test_times_are_on_the_message_also_after_a_reload(here: Harness) -> None:
    theirs = b'data: {"choices":[],"timings":{"prompt_ms":3.5,"predicted_per_second":80.0}}\n\n'
    await here.say("c1", FINE)
    await here.say("c2", Reply([text("quick"), STOP, theirs, DONE]))
    measured, told = [
        (await here.get(f"/v1/chats/{chat_id}")).json()["messages"][-1]["extra"]["timings"] for chat_id in ("c1", "c2")
    ]
    assert 0 <= measured["measured_first_delta_ms"] <= measured["measured_total_ms"]
    assert all(name.startswith("measured_") for name in measured)
    assert told == {"prompt_ms": 3.5, "predicted_per_second": 80.0}


@pytest.mark.row("DIAG-4")
async def test_one_line_tells_a_runs_story(here: Harness) -> None:
    run_id = await here.say("c1", calls("calculator", {"expression": "6*7"}), FINE)

    def told() -> list[JsonObject]:
        lines = [json.loads(line) for line in here.server.log_text().splitlines() if line.startswith("{")]
        return [each for each in lines if each["event"] == "run.finished"]

    async def is_told() -> bool:
        return bool(told())

    await eventually(is_told)  # the line is written after the last event
    (line,) = told()
    assert (line["chat_id"], line["run_id"], line["outcome"], line["rounds"]) == ("c1", run_id, "complete", 2)
    assert (line["prompt_tokens"], line["completion_tokens"], line["calls"]) == (7, 2, 1)
    assert line["tools_used"] == ["calculator"] and line["duration_ms"] >= 0
