"""Durable agents of an operator's file over HTTP: their operations, their pauses, and forbidden behaviour."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, start, user_message
from threadcast_protocol.wire.events import AgentStep, ErrorHappened, PauseReason, PauseRequired, Question

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-2")]

APP = ROOT / "tests/integration/durable_app.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("durable")
    settings = directory / "threadcast.toml"
    settings.write_text("[limits]\nagent_awake_seconds = 2\n")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP), "--config", str(settings)]
    with start(*line, log=directory / "log", environment={"EFFECTS": str(directory / "effects")}) as process:
        yield process.wait_ready()


def effects(server: Process) -> list[str]:
    file = server.log.parent / "effects"
    return file.read_text().splitlines() if file.exists() else []


@asynccontextmanager
async def asked(server: Process, mode: str, text: str = "hello") -> AsyncIterator[tuple[str, Watcher]]:
    """Ask the agent in a new chat; yields the chat's id and a reader."""
    chat_id = f"{mode}-{time.monotonic_ns()}"
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", text, params={"mode": mode}))
        yield chat_id, watcher


async def answered(server: Process, mode: str, text: str = "hello") -> Watcher:
    async with asked(server, mode, text) as (_, watcher):
        await watcher.at_rest()
        return watcher


async def paused(watcher: Watcher, count: int = 1) -> list[PauseReason]:
    """Wait until the run is paused with this number of questions, and return them."""
    await watcher.until(
        lambda w: (
            w.state is not None and w.state.runtime.state == "paused" and len(w.state.runtime.pause_reasons) == count
        )
    )
    assert watcher.state is not None
    return watcher.state.runtime.pause_reasons


async def decide(server: Process, chat_id: str, reason: PauseReason, accepted: bool, **more: Any) -> httpx2.Response:
    decision = {"tool_call_id": reason.tool_call_id, "accepted": accepted, "input_hash": reason.input_hash, **more}
    body = {"type": "tool_decisions", "client_request_id": f"d-{reason.tool_call_id}", "decisions": [decision]}
    return await command(server.url, chat_id, body)


def steps_of(watcher: Watcher) -> list[tuple[str, str, str]]:
    assert watcher.state is not None
    return [(each.kind, each.name, each.status) for each in watcher.state.runtime.agent_steps]


def error_of(watcher: Watcher) -> ErrorHappened:
    return next(event for event in watcher.events if isinstance(event, ErrorHappened))


async def test_steps_return_their_decoded_results_and_errors_and_are_shown(server: Process) -> None:
    watcher = await answered(server, "steps", "tea")
    assert watcher.messages[-1] == ("assistant", "tea [1, 2] 7 KeyError/'gone' ")
    assert steps_of(watcher) == [("step", "plan", "done"), ("step", "number", "done"), ("step", "fails", "failed")]


async def test_calls_return_values_and_raise_what_failed(server: Process) -> None:
    watcher = await answered(server, "calls")
    assert [role for role, _ in watcher.messages] == ["user", *["assistant", "tool"] * 4, "assistant"]
    assert watcher.messages[-1][1] == (
        "['tea-1', 'tea-2'] 7 dollars The tool failed: ValueError. There is no tool 'nothing'. Av "
    )


async def test_calls_of_several_branches_are_asked_about_together_and_decided_alone(server: Process) -> None:
    async with asked(server, "approvals") as (chat_id, watcher):
        one, two = await paused(watcher, 2)
        assert ("step", "other", "done") in steps_of(watcher), "the third branch has gone on meanwhile"
        await decide(server, chat_id, one, True)
        [left] = await paused(watcher, 1)
        assert left.tool_call_id == two.tool_call_id
        assert effects(server)[-1] == "charge 1"
        await decide(server, chat_id, left, False, note="too much")
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "{'charged': 1} denied(too much) other ")
    assert "charge 2" not in effects(server)
    assert sum(isinstance(event, PauseRequired) for event in watcher.events) == 2


async def test_questions_are_answered_or_rejected(server: Process) -> None:
    async with asked(server, "asks") as (chat_id, watcher):
        [question] = await paused(watcher)
        assert question.type == "question"
        assert isinstance(question.question, Question)
        assert question.question.options == ["short", "long"]
        refused = await decide(server, chat_id, question, True, edited_input={"answer": "medium"})
        assert refused.status_code == 202, "the log refuses it"
        await watcher.until(lambda w: any(getattr(event, "accepted", None) is False for event in w.events))
        body = {"tool_call_id": question.tool_call_id, "accepted": True, "input_hash": question.input_hash}
        body |= {"type": "tool_decision", "client_request_id": "again", "edited_input": {"answer": "short"}}
        await command(server.url, chat_id, body)
        await watcher.until(
            lambda w: (
                w.state is not None
                and bool(w.state.runtime.pause_reasons)
                and w.state.runtime.pause_reasons[0].tool_call_id != question.tool_call_id
            )
        )
        [free] = await paused(watcher)
        await decide(server, chat_id, free, False, note="no")
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "short rejected(no) ")


async def test_a_sleep_ends_in_time_and_clock_and_chance_are_the_same_afterwards(server: Process) -> None:
    async with asked(server, "sleeps") as (_, watcher):
        await watcher.until(lambda w: w.state is not None and "sleeping until" in (w.state.runtime.status_text or ""))
        begun = time.monotonic()
        await watcher.at_rest()
        assert time.monotonic() - begun > 0.5
    assert watcher.messages[-1] == ("assistant", "slept")
    assert effects(server).count("awake") == 1


async def test_a_clients_call_parks_and_goes_on_with_its_result(server: Process) -> None:
    async with asked(server, "clients") as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and w.state.runtime.state == "waiting_ide")
        assert watcher.state is not None
        [call] = watcher.state.runtime.ide_calls
        body = {"type": "ide_tool_result", "client_request_id": "i", "tool_call_id": call.tool_call_id}
        await command(server.url, chat_id, {**body, "content": "blue"})
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "blue 3 ")


async def test_sub_chats_run_sixteen_at_once_and_the_others_follow(server: Process) -> None:
    watcher = await answered(server, "parents")
    pages = "".join(f"read page{number} " for number in range(20))
    assert watcher.messages[-1] == ("assistant", f"{pages}There is no mode 'nowher ")
    running = 0
    most = 0
    for event in watcher.events:
        if isinstance(event, AgentStep):
            running += {"running": 1, "done": -1}.get(event.status, 0)
            most = max(most, running)
    assert 16 <= most < 20, "a sub-chat may begin after the end of another and before its step has ended"


async def test_the_first_branch_wins_and_the_others_are_cancelled(server: Process) -> None:
    watcher = await answered(server, "races")
    assert watcher.messages[-1] == ("assistant", "1 quick ")
    assert ("sleep", "", "cancelled") in steps_of(watcher)
    assert "charge 5" not in effects(server)


async def test_a_restart_begins_again_with_its_state(server: Process) -> None:
    watcher = await answered(server, "restarts")
    assert watcher.messages[-1] == ("assistant", "3 ")
    assert [line for line in effects(server) if line.startswith("round")] == [f"round {n}" for n in range(4)]


async def test_messages_with_priority_wait_until_the_agent_takes_them(server: Process) -> None:
    async with asked(server, "steered") as (chat_id, watcher):
        [question] = await paused(watcher)
        await command(server.url, chat_id, {**user_message("s", "faster"), "priority": True})
        await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 1)
        await decide(server, chat_id, question, True, edited_input={"answer": "yes"})
        await watcher.at_rest()
    assert watcher.messages[1:] == [("user", "faster"), ("assistant", "faster ")]


async def test_a_large_result_comes_back_and_no_request_can_fetch_it(server: Process) -> None:
    async with asked(server, "unruly", "large") as (_, watcher):
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "3000000 ")


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("elsewhere", "llm_error", "The agent 'unruly' failed (RuntimeError)."),
        ("raises", "llm_error", "The agent 'unruly' failed (RuntimeError)."),
        ("many", "limit", "The agent made more than 10,000 operations; agents without an end begin again with "),
        ("busy", "limit", "The agent worked for 2 s without beginning or ending an operation, and was stopped."),
    ],
)
async def test_an_agent_that_breaks_a_rule_ends_its_run(server: Process, text: str, code: str, sentence: str) -> None:
    error = error_of(await answered(server, "unruly", text))
    assert error.code == code
    assert error.message.startswith(sentence)


async def test_a_step_that_uses_the_context_fails(server: Process) -> None:
    watcher = await answered(server, "unruly", "inside")
    assert "inner" not in effects(server)
    assert steps_of(watcher) == [("step", "outer", "failed")]
    assert error_of(watcher).message == "The agent 'unruly' failed (its step 'outer' raised RuntimeError)."


@pytest.mark.parametrize("text", ["finally", "swallow"])
async def test_an_abort_ends_the_run_within_a_second_even_if_it_is_swallowed(server: Process, text: str) -> None:
    async with asked(server, "unruly", text) as (chat_id, watcher):
        await watcher.until(lambda w: bool(steps_of(w)))
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        async with asyncio.timeout(DEADLINE_SECONDS):
            await watcher.at_rest()
        assert watcher.state is not None
        assert watcher.state.runtime.outcome == "aborted"
    if text == "finally":
        assert effects(server)[-2:] == ["cleaned", "refused"]
    else:
        assert "swallowed" in effects(server)


async def test_the_answer_of_a_durable_agent_cannot_be_continued(server: Process) -> None:
    async with asked(server, "echo", "once") as (chat_id, watcher):
        await watcher.at_rest()
        assert watcher.state is not None
        body = {"type": "continue_message", "client_request_id": "c", "message_id": watcher.state.path[-1]}
        answer = await command(server.url, chat_id, body)
        await watcher.until(lambda w: any(getattr(event, "client_request_id", "") == "c" for event in w.events))
        assert answer.status_code == 202
        mode = {"type": "set_params", "client_request_id": "p", "patch": {"mode": "echo"}}
        await command(server.url, chat_id, mode)
        regenerate = {"type": "regenerate", "client_request_id": "r"}
        await command(server.url, chat_id, regenerate)
        await watcher.at_rest(2)
    assert watcher.messages[-1] == ("assistant", "once")


async def test_parameters_count_from_the_next_run(server: Process) -> None:
    async with asked(server, "steered") as (chat_id, watcher):
        [question] = await paused(watcher)
        await command(
            server.url, chat_id, {"type": "set_params", "client_request_id": "p", "patch": {"mode": "echo", "seed": 1}}
        )
        await decide(server, chat_id, question, True, edited_input={"answer": "yes"})
        await watcher.at_rest()
        assert watcher.messages[-1] == ("assistant", "")


async def test_arguments_that_no_operation_takes_are_errors_of_the_agent_and_texts_are_mended(server: Process) -> None:
    watcher = await answered(server, "careless")
    assert watcher.messages[-1] == ("assistant", "11 ['half \ufffd-1', 'half \ufffd-2'] half \ufffd half \ufffd ")


async def test_an_answer_that_waits_for_a_tool_is_not_awake(server: Process) -> None:
    watcher = await answered(server, "patient")
    assert [content for _, content in watcher.messages[2:]] == ["pondered", "after it "]
