"""Agents of the OpenAI Agents SDK behind a server: text, tools, approvals, handoffs, guardrails, and the state after a
crash."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, failure, serve_fake_openai, text
from tests.integration.test_durable_agents_http import answered, asked, decide, effects, error_of, paused
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, start, user_message
from tests.unit.pictures import data_url, png_of
from threadcast_protocol.wire.events import PayloadAdded, RuntimeUpdated
from threadcast_protocol.wire.messages import Message

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-8")]

APP = ROOT / "tests/agents/oai_app.py"


@pytest.fixture(scope="module")
def model() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as model:
        yield model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: FakeOpenAI) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("openai_agents")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP)]
    environment = {"EFFECTS": str(directory / "effects"), "PYTHONPATH": str(ROOT), "FAKE_OPENAI": model.base_url}
    with start(*line, log=directory / "log", environment=environment) as process:
        yield process.wait_ready()


def nodes(watcher: Watcher) -> list[Message]:
    state = watcher.state
    assert state is not None
    return [state.nodes[key] for key in state.path]


async def test_text_calls_an_approval_and_the_context(server: Process) -> None:
    async with asked(server, "bank") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("charge", {"dollars": 7})
        assert effects(server).count("balance of Ada") == 1
        await decide(server, chat_id, reason, True, edited_input={"dollars": 5})
        await watcher.at_rest()
    first, last = nodes(watcher)[1], nodes(watcher)[-1]
    assert [each.role for each in nodes(watcher)] == ["user", "assistant", "tool", "tool", "assistant"]
    assert (first.reasoning_content, "speaker" in first.extra) == ("I think.", False)
    assert [call.function.name for call in first.tool_calls] == ["balance", "charge"]
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.total_tokens, first.usage.cache_read_input_tokens) == (10, 15, 4)
    assert str(last.content).endswith("word19 balance of Ada | charged 5 in bank of 7 items")
    assert effects(server)[-2:] == ["charge 5", "charged 5 in bank"]


async def test_a_denied_call_is_told_to_the_model_and_the_next_run_reads_the_same_history(server: Process) -> None:
    async with asked(server, "bank") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, False, note="too much")
        await watcher.at_rest()
        assert watcher.messages[-1][1].endswith(
            "word19 balance of Ada | Tool execution was not approved. Note: too much of 7 items"
        )
        await command(server.url, chat_id, user_message("b", "again", params={"mode": "bank"}))
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    # the first question, 4 items of its response, 2 outputs and the answer; the second question, 4 items and 2 outputs
    assert watcher.messages[-1][1].endswith("of 15 items")


async def test_a_function_decides_which_calls_need_an_approval_and_outputs_keep_their_images(server: Process) -> None:
    watcher = await answered(server, "clerk", "transfer 5")
    assert watcher.messages[-1][1] == '[{"type": "input_text", "text": "small"}]'
    async with asked(server, "clerk", "transfer 50") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert "transfer 50" not in effects(server), "a person is asked before the effect"
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
        assert watcher.messages[-2] == ("tool", "large\n[image]")
        assert '"image_url": "data:image/png;base64,AAAA"' in watcher.messages[-1][1]
        await command(server.url, chat_id, user_message("b", "remember", params={"mode": "clerk"}))
        await watcher.at_rest(runs=2)
    assert watcher.messages[-1][1] == "1 images", "the next run reads the output without loss"
    assert effects(server).count("transfer 50") == 1


async def test_failing_tools_are_shown_as_failed_and_guardrails_of_tools_run(server: Process) -> None:
    watcher = await answered(server, "clerk", "broken")
    assert nodes(watcher)[2].tool_failed
    assert "An error occurred while running the tool" in watcher.messages[-1][1], "the SDK's own text for the model"
    watcher = await answered(server, "clerk", "fatal")
    assert error_of(watcher).message == "The agent failed: KeyError: 'the end'"
    watcher = await answered(server, "clerk", "feed cat")
    assert watcher.messages[-1][1] == "No cats."
    assert "fed cat" not in effects(server)


async def test_a_tool_of_a_client(server: Process) -> None:
    async with asked(server, "clerk", "look") as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.ide_calls))
        assert watcher.state is not None
        [open_call] = watcher.state.runtime.ide_calls
        result = {"tool_call_id": open_call.tool_call_id, "content": "a blue sky"}
        await command(server.url, chat_id, {"type": "ide_tool_result", "client_request_id": "r", **result})
        await watcher.at_rest()
    assert watcher.messages[-1][1] == "a blue sky"


async def test_a_handoff_changes_the_speaker_and_a_replay_repeats_nothing(server: Process) -> None:
    async with asked(server, "triage", "hello") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
        assert watcher.messages[-1][1] == "I support. hallo Welt signed 1"
        statuses = [event.status_text for event in watcher.events if isinstance(event, RuntimeUpdated)]
        assert "Handed over to support" in statuses
        assert {each.extra["speaker"] for each in nodes(watcher) if each.role == "assistant"} == {"support"}
        assert [call.function.name for node in nodes(watcher) for call in node.tool_calls] == ["translate", "sign"]
        # The pause suspended the function; then the function ran again from its beginning.
        done = ["handed over", "nested model call", "guardrail of triage"]
        assert [effects(server).count(each) for each in done] == [1, 1, 1]
        await command(server.url, chat_id, user_message("b", "more", params={"mode": "triage"}))
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True)
        await watcher.at_rest(runs=2)
    assert watcher.messages[-1][1] == "I support. hallo Welt signed 1"
    assert effects(server).count("handed over") == 1, "the agent that spoke last goes on"


async def test_guardrails_end_the_run_with_their_names(server: Process) -> None:
    watcher = await answered(server, "guarded", "a dog")
    assert error_of(watcher).message == "The input guardrail 'no_dogs' stopped the run: Dogs stay outside."
    watcher = await answered(server, "guarded", "a" * 60)
    assert error_of(watcher).message == "The output guardrail 'short answers' stopped the run."
    watcher = await answered(server, "guarded", "a cat")
    assert watcher.messages[-1] == ("assistant", "You said: a cat")


async def test_a_guardrail_that_trips_while_the_model_speaks_stops_the_model(server: Process) -> None:
    watcher = await answered(server, "watched")
    assert error_of(watcher).message == "The input guardrail 'slow_check' stopped the run: Not so fast."
    assert 0 < len(watcher.messages[1][1].split()) < 50, "what people have seen stays"


async def test_structured_output_is_a_payload(server: Process) -> None:
    watcher = await answered(server, "weather")
    [payload] = [event for event in watcher.events if isinstance(event, PayloadAdded)]
    assert (payload.payload_type, payload.data) == ("Weather", {"city": "Ulm", "degrees": 7})
    assert watcher.messages[-1][1] == '{"city": "Ulm", "degrees": 7}'


async def test_too_many_turns_and_a_failed_model_have_clear_errors(server: Process) -> None:
    error = error_of(await answered(server, "endless"))
    assert (error.code, error.message) == ("limit", "The agent has asked its model 3 times, its limit for one run.")
    error = error_of(await answered(server, "lost"))
    assert error.message == "The agent failed (ConnectionError)."


async def test_tools_of_an_mcp_server_run_under_the_policies(server: Process) -> None:
    async with asked(server, "reader") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("add", {"a": 2, "b": 3})
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert "sum 5" in watcher.messages[-1][1]


async def test_an_mcp_server_that_cannot_be_reached_is_named(server: Process) -> None:
    error = error_of(await answered(server, "unreachable"))
    assert (error.code, error.message) == ("connection", "The agent cannot reach its MCP servers: gone.")


async def test_stop_ends_the_run_and_keeps_the_text(server: Process) -> None:
    async with asked(server, "unending") as (chat_id, watcher):
        await watcher.until(
            lambda w: w.state is not None and w.state.draft is not None and "word2" in str(w.state.draft.content)
        )
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
    assert "word2" in watcher.messages[1][1]
    assert len(watcher.messages) == 2


async def test_kill_9_in_a_response_a_pause_and_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "effects"
    for name, value in {"EFFECTS": str(file), "PYTHONPATH": str(ROOT), "CHARGE_SECONDS": "5"}.items():
        monkeypatch.setenv(name, value)
    with fleet_on_new_store(tmp_path, "--app", str(APP), limits=FAST) as fleet:
        await fleet.open()
        async with watching(fleet.url, "killed") as watcher:
            await command(fleet.url, "killed", user_message("a", "go", params={"mode": "bank"}))
            await watcher.until(lambda w: w.state is not None and w.state.draft is not None and w.state.draft.content)
            fleet.kill_owner("killed")
            await fleet.add_worker()
            [reason] = await paused(watcher)
            fleet.kill_owner("killed")
            await fleet.add_worker()
            decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
            body = {"type": "tool_decisions", "client_request_id": "yes", "decisions": [decision]}
            await command(fleet.url, "killed", body)
            with anyio.fail_after(DEADLINE_SECONDS):
                while "charge 7" not in file.read_text():
                    await anyio.sleep(0.02)
            fleet.kill_owner("killed")
            await fleet.add_worker()
            await watcher.at_rest()
    lines = file.read_text().splitlines()
    assert (lines.count("balance of Ada"), lines.count("charge 7"), lines.count("charged 7 in kill")) == (1, 1, 0)
    assert "the outcome of 'charge' is unknown" in watcher.messages[-1][1]


async def test_an_image_reaches_the_model_whole(server: Process) -> None:
    image = data_url(png_of(50_000))
    content = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": image}}]
    async with watching(server.url, "picture") as watcher:
        asking = user_message("a", "", params={"mode": "eyes"}) | {"content": content}
        await command(server.url, "picture", asking)
        await watcher.at_rest()
    assert watcher.messages[-1][1] == f"data:image/png;base64,{len(image)}, what?"


async def test_a_model_of_the_sdk_over_http(server: Process, model: FakeOpenAI) -> None:
    called = {"index": 0, "id": "call_w", "type": "function", "function": {"name": "balance", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"owner": "Bo"}'}}
    usage = chunk(usage={"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9})
    model.replies = [
        Reply(
            [
                text("One "),
                chunk(delta={"tool_calls": [called]}),
                chunk(delta={"tool_calls": [more]}),
                STOP,
                usage,
                DONE,
            ]
        ),
        Reply([text("It is "), text("so."), STOP, DONE]),
    ]
    params = {"mode": "wired", "temperature": 0.25}
    async with watching(server.url, "wired") as watcher:
        await command(server.url, "wired", user_message("a", "how much?", params=params))
        await watcher.at_rest()
        assert watcher.messages == [
            ("user", "how much?"),
            ("assistant", "One "),
            ("tool", "balance of Bo"),
            ("assistant", "It is so."),
        ]
        first = nodes(watcher)[1]
        assert first.usage is not None
        assert first.usage.total_tokens == 9
        asked = model.asked[-1].body
        assert (asked["temperature"], asked["stream"]) == (0.25, True)
        assert [each["role"] for each in asked["messages"]] == ["system", "user", "assistant", "tool"]
        assert asked["messages"][-1] == {"role": "tool", "tool_call_id": "call_w", "content": "balance of Bo"}
        model.replies = [failure(401, {"message": "a secret key"})]
        await command(server.url, "wired", user_message("b", "again", params=params))
        await watcher.at_rest(runs=2)
    assert len(model.asked[-1].body["messages"]) == 6, "the kept history and the new message"
    assert error_of(watcher).message == "The agent failed (AuthenticationError)."


async def test_calls_of_hosted_tools_are_answered_and_kept(server: Process) -> None:
    async with watching(server.url, "searcher") as watcher:
        for number in (1, 2):
            body = user_message(f"s{number}", "tea?", params={"mode": "searcher"})
            await command(server.url, "searcher", body)
            await watcher.at_rest(runs=number)
    [first, result] = nodes(watcher)[1:3]
    assert [call.function.name for call in first.tool_calls] == ["openai_web_search"]
    assert (result.role, result.content, result.tool_failed) == ("tool", "completed", False)
    assert [text for role, text in watcher.messages if role == "assistant"] == [
        "Found among 1 items.",
        "Found among 4 items.",
    ]


async def test_the_output_of_a_tool_may_be_the_answer(server: Process) -> None:
    watcher = await answered(server, "teller")
    assert watcher.messages[-2:] == [("tool", "balance of Teller"), ("assistant", "balance of Teller")]


async def test_the_retry_policy_of_the_sdk_asks_the_model_again_but_not_in_a_replay(server: Process) -> None:
    async with asked(server, "flaky") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "It works.")
    assert effects(server).count("flaky") == 2
