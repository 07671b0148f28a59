"""Background agents, without any I/O: they outlive their call, and wake their chat when they end."""

from functools import partial

import pytest

from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.pure_family import TOOLS, calling, deliver, opened, outbound_of
from tests.unit.test_tree import check_law
from threadcast.agent_loop.steps import CallModel
from threadcast.chat.internal_commands import ImportChat, StopSubchat, SubchatFinished
from threadcast.chat.subchats import Wanted, open_child, stop_agent
from threadcast.chat.wakes import WAKES_MAX
from threadcast_protocol.wire.commands import Abort
from threadcast_protocol.wire.errors import NotFound
from threadcast_protocol.wire.principal import LOCAL
from threadcast_protocol.wire.thread import ThreadChanges


def test_an_agent_is_not_stopped_by_its_calls_end_and_its_model_reads_of_its_end() -> None:
    chat = calling()
    agent = opened(chat, is_background=True)
    deliver(chat)
    chat.tool_answers(agent.chat_id)
    chat.command(Abort(client_request_id="stop"))
    assert outbound_of(chat) == []
    chat.command(
        SubchatFinished(client_request_id="f", subchat_id=agent.chat_id, outcome="limit", text="as far as I came")
    )
    assert chat.state.background_agents[0]["status"] == "completed"
    assert chat.state.background_agents[0]["summary"] == "as far as I came"
    (aside,) = chat.state.private.asides
    assert aside.after == chat.state.path[-1]
    assert chat.is_waiting
    assert chat.state.private.relations.children == ()
    check_law(chat)


def ended_agent(chat: PureChat) -> None:
    (child,) = chat.state.private.relations.children
    chat.command(SubchatFinished(client_request_id="f", subchat_id=child.chat_id, outcome="complete"))


def waking() -> PureChat:
    chat = calling()
    opened(chat, is_background=True, wakes=True)
    deliver(chat)
    return chat


def test_a_wake_at_rest_begins_a_run_for_who_started_the_agent() -> None:
    chat = waking()
    chat.tool_answers("started")
    chat.finish()
    assert chat.is_waiting
    ended_agent(chat)
    assert isinstance(chat.step, CallModel)
    assert chat.state.private.run is not None and chat.state.private.run.principal == LOCAL
    check_law(chat)


def test_a_chat_wakes_only_so_often_until_somebody_asks_it_something() -> None:
    chat = waking()
    chat.tool_answers("started")
    chat.finish()
    for number in range(WAKES_MAX + 5):
        (child,) = chat.state.private.relations.children
        chat.command(SubchatFinished(client_request_id=f"f{number}", subchat_id=child.chat_id, outcome="complete"))
        if chat.is_waiting:
            break
        chat.asks(call(f"w{number}", "delegate"))
        wanted = Wanted(f"w{number}", "again", is_background=True, wakes=True)
        chat.write(partial(open_child, wanted=wanted))
        deliver(chat)
        chat.tool_answers("started")
        chat.finish()
    assert (number, chat.state.private.wakes_count) == (WAKES_MAX, WAKES_MAX)
    chat.command(say("b", "go on"))
    assert isinstance(chat.step, CallModel) and chat.state.private.wakes_count == 0
    check_law(chat)


def test_a_wake_during_a_run_is_read_by_its_next_round_and_no_run_follows() -> None:
    chat = waking()
    ended_agent(chat)
    chat.tool_answers("started")
    chat.finish()
    assert chat.is_waiting and chat.state.private.run is None
    assert chat.state.private.relations.wake is None


def test_a_wake_during_a_runs_last_round_has_a_run_of_its_own() -> None:
    chat = waking()
    chat.tool_answers("started")
    ended_agent(chat)
    chat.finish()
    assert isinstance(chat.step, CallModel)
    chat.finish()
    assert chat.is_waiting and chat.state.private.run is None


def test_after_an_abort_nothing_is_woken() -> None:
    chat = waking()
    chat.tool_answers("started")
    ended_agent(chat)
    chat.command(Abort(client_request_id="stop"))
    assert chat.is_waiting and chat.state.private.run is None
    assert chat.state.private.relations.wake is None


def test_an_agent_that_ran_when_its_chat_was_exported_does_not_run_where_it_is_imported() -> None:
    chat = PureChat(table(TOOLS))
    agents = [{"id": "a", "status": "running"}, {"id": "b", "status": "completed"}]
    chat.command(ImportChat(client_request_id="x", thread=ThreadChanges(), messages=[], agents=agents))
    assert [agent["status"] for agent in chat.state.background_agents] == ["aborted", "completed"]


def test_an_agent_is_stopped_by_its_id_and_no_other_chat_is() -> None:
    chat = calling()
    agent = opened(chat, is_background=True)
    waited_for = opened(chat, name="other")
    deliver(chat)
    for name in ("nobody", waited_for.chat_id):
        with pytest.raises(NotFound):
            chat.write(partial(stop_agent, agent_id=name))
    chat.write(lambda builder: stop_agent(builder, agent.chat_id))
    (command,) = outbound_of(chat)
    assert command == StopSubchat(client_request_id=f"stop:{agent.chat_id}")
