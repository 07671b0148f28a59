"""Checks the calls and questions of LangGraph's graphs over HTTP: the policy of each tool applies to its calls, and
each answer reaches the node that asked."""

from collections.abc import Iterator

import pytest

from tests.agents.test_lg_http import APP, WORDS, question
from tests.integration.test_durable_agents_http import answered, asked, decide, effects, error_of, paused
from tests.support.server import Process, command, start, user_message
from threadcast_protocol.wire.events import AgentData

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-7")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("langgraph")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP)]
    with start(*line, log=directory / "log", environment={"EFFECTS": str(directory / "effects")}) as process:
        yield process.wait_ready()


async def test_tools_of_an_agent_that_is_a_node_are_under_the_policies_and_a_subgraph_asks_twice(
    server: Process,
) -> None:
    async with asked(server, "team") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("team_locate", {"city": "Graz"})
        assert "located Graz" not in effects(server)
        await decide(server, chat_id, reason, True)
        await question(watcher, server, chat_id, "First?", "one")
        await question(watcher, server, chat_id, "Other?", "two")
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "one and two.")
    assert effects(server).count("located Graz") == 1


@pytest.mark.parametrize("city", ["Linz", "Wels"])
async def test_a_call_that_no_model_has_shown_is_shown_and_asks(server: Process, city: str) -> None:
    async with asked(server, "unseen" if city == "Linz" else "changed") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert reason.input == {"city": city}, "what runs is what the person sees"
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert watcher.messages[-1] == ("tool", f"located {city}")
    assert effects(server).count(f"located {city}") == 1


async def test_a_denied_tool_does_not_run_in_silence(server: Process) -> None:
    watcher = await answered(server, "unheard")
    assert "located Steyr" not in effects(server)
    assert watcher.messages[-1][0] == "tool"
    assert "denied" in watcher.messages[-1][1]


async def test_a_call_id_that_is_used_again_is_another_call(server: Process) -> None:
    watcher = await answered(server, "reused")
    assert [text for role, text in watcher.messages if role == "tool"] == ["located city1", "located city3"]


async def test_a_person_answers_in_place_of_a_tool_and_approves_another(server: Process) -> None:
    async with asked(server, "wondering") as (chat_id, watcher):
        reasons = {reason.type: reason for reason in await paused(watcher, 2)}
        assert reasons["question"].command == "Why?"
        await decide(server, chat_id, reasons["question"], True, edited_input={"answer": "Because."})
        approval = next(reason for kind, reason in reasons.items() if kind != "question")
        assert approval.tool_name == "w_pay"
        await decide(server, chat_id, approval, True, edited_input={"dollars": 2})
        await watcher.at_rest()
    tools = [text for role, text in watcher.messages if role == "tool"]
    assert tools[0] == "Because."
    assert '{"dollars":2}' in tools[1], "the graph does not allow edits, so the model reads what the person wants"
    assert "paid 2" not in effects(server)


async def test_the_middleware_may_ask_for_each_call_alone(server: Process) -> None:
    async with asked(server, "each_alone") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("each_pay", {"dollars": 7})
        await decide(server, chat_id, reason, True, edited_input={"dollars": 3})
        await watcher.at_rest()
    assert watcher.messages[-1][1].endswith("paid 3 ")
    assert effects(server).count("paid 3") == 1


async def test_a_node_that_may_run_once_and_asks_is_not_taken_for_a_cut_one(server: Process) -> None:
    async with asked(server, "asks_once") as (chat_id, watcher):
        await question(watcher, server, chat_id, "May I?", "yes")
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "once yes")
    assert effects(server).count("once yes") == 1


async def test_a_graph_s_store_is_used(server: Process) -> None:
    await answered(server, "storing", "Ada")
    assert (await answered(server, "storing", "Bo")).messages[-1] == ("assistant", "Ada, Bo")


async def test_odd_values_of_a_node_become_data_and_large_ones_are_left_out(server: Process) -> None:
    watcher = await answered(server, "flood")
    assert watcher.messages[-1] == ("assistant", "Flooded.")
    shown = [event.data for event in watcher.events if isinstance(event, AgentData)]
    assert shown[-1] == {"fine": 1}
    assert all(len(str(each)) < 1_000 for each in shown)


async def test_a_state_that_is_too_large_is_a_clear_error(server: Process) -> None:
    error = error_of(await answered(server, "growing"))
    assert error.code == "limit"
    assert error.message.startswith("The state of the graph is too large to be kept")


async def test_a_client_carries_out_a_tool_of_a_graph(server: Process) -> None:
    async with asked(server, "at_client") as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.ide_calls))
        assert watcher.state is not None
        [call] = watcher.state.runtime.ide_calls
        result = {"tool_call_id": call.tool_call_id, "content": "at home"}
        await command(server.url, chat_id, {"type": "ide_tool_result", "client_request_id": "r", **result})
        await watcher.at_rest()
        assert watcher.messages[-1] == ("assistant", f"{WORDS}at home ")
        await command(server.url, chat_id, user_message("b", "again", params={"mode": "at_client"}))
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.ide_calls))
    assert "located here" not in effects(server)
