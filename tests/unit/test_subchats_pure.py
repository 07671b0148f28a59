"""Two chats without any I/O: what one owes the other, what a letter does when it comes, and the bounds of it all."""

from functools import partial

import pytest

from protocol.commands import (
    Abort,
    BeginSubchat,
    Command,
    ImportChat,
    InternalCommand,
    SetParams,
    StopSubchat,
    SubchatFinished,
    decode_command,
    decode_inbox_body,
    encode_command,
)
from protocol.deltas import AppendContent, SetToolCalls
from protocol.errors import BadRequest, Conflict, Forbidden, NotFound, Refused
from protocol.events import BackgroundAgentUpdated, SubchatUpdate
from protocol.ledger import Ledger
from protocol.outbox import OPENING_MAX_MAIL, OUTBOX_MAX, REPORT_MAX_CHARACTERS, deleted, owe
from protocol.principal import LOCAL, Principal
from protocol.relations import Child, MailSent, Parent
from protocol.state import AGENTS_KEPT
from protocol.subchats import (
    CHILDREN_KEPT_MAX,
    DEPTH_MAX,
    RUNNING_MAX,
    Wanted,
    begin_failed,
    open_child,
    stop_agent,
)
from protocol.thread import ThreadChanges
from protocol.wakes import WAKES_MAX
from server.agent.steps import CallModel, RunTool
from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.test_tree import check_law

TOOLS = {"delegate": FakeTool(name="delegate"), "mail": FakeTool(name="mail", policy="ask")}


def calling(by: Principal = LOCAL, parent: PureChat | None = None) -> PureChat:
    """A chat in the middle of its call c0."""
    chat = parent or PureChat(table(TOOLS))
    chat.command(say("ask"), by)
    chat.stream(SetToolCalls([call("c0", "delegate")]))
    chat.finish()
    assert isinstance(chat.step, RunTool)
    return chat


def opened(chat: PureChat, **more: object) -> Child:
    found: list[Child] = []
    wanted = Wanted("c0", **{"prompt": "do it", **more})  # type: ignore[arg-type]  # keywords of a test
    chat.write(lambda ledger: found.append(open_child(ledger, wanted)))
    return found[0]


def letters(chat: PureChat) -> list[Command | InternalCommand]:
    return [decode_inbox_body(mail.body.encode()) for mail in chat.state.private.relations.outbox]


def deliver(chat: PureChat) -> list[Command | InternalCommand]:
    """What an owner does with its outbox."""
    found = letters(chat)
    chat.write(
        lambda ledger: ledger.note(MailSent(mail_ids=[mail.mail_id for mail in ledger.state.private.relations.outbox]))
    )
    assert chat.state.private.relations.outbox == ()
    return found


def begun(chat: PureChat) -> PureChat:
    """The child that `chat` owes its beginning."""
    (mail,) = chat.state.private.relations.outbox
    child = PureChat(table(TOOLS), chat_id=mail.chat_id)
    (letter,) = deliver(chat)
    child.command(letter)
    return child


def test_a_child_begins_by_one_letter_answers_and_owes_its_end_to_its_parent() -> None:
    chat = calling()
    opened(chat, params={"temperature": 1}, title="A child")
    child = begun(chat)
    assert isinstance(child.step, CallModel)
    thread = child.state.thread
    assert (thread.title, thread.temperature, thread.link_type) == ("A child", 1, "subchat")
    child.stream(AppendContent("done"))
    child.finish()
    (end,) = letters(child)
    assert isinstance(end, SubchatFinished)
    assert (end.outcome, end.text, end.message_id) == ("complete", "done", child.state.path[-1])
    chat.command(end)
    (kept,) = chat.state.private.relations.children
    assert (kept.outcome, kept.text) == ("complete", "done")
    chat.tool_answers("done")
    assert chat.state.private.relations.children == ()
    assert letters(chat) == []
    check_law(chat)
    check_law(child)


def test_the_same_call_and_name_is_the_same_child_and_another_name_another_one() -> None:
    chat = calling()
    first, again, other = opened(chat), opened(chat), opened(chat, name="other")
    assert first == again != other
    assert [type(event) for event in chat.events].count(SubchatUpdate) == 2
    assert len(letters(chat)) == 2


def test_a_letter_that_comes_twice_changes_nothing_the_second_time() -> None:
    chat = calling()
    opened(chat)
    (begin,) = deliver(chat)
    child = PureChat(table(TOOLS))
    child.command(begin)
    before = child.state.path
    assert isinstance(child.command(begin), list) and child.state.path == before
    child.command(StopSubchat(client_request_id="stop:x"))
    (end,) = letters(child)
    chat.command(end)
    kept = chat.state.private.relations
    chat.command(end)
    assert chat.state.private.relations == kept


def test_an_end_that_nobody_waits_for_is_taken_and_forgotten() -> None:
    chat = calling()
    before = chat.state.private.relations
    events = chat.command(SubchatFinished(client_request_id="finished:x", subchat_id="x", outcome="complete"))
    assert (events, chat.state.private.relations) == ([], before)
    assert chat.final_acks[-1] == ("finished:x", False)


@pytest.mark.parametrize("how", ["abort", "answer", "takeover"])
def test_whatever_answers_the_call_stops_its_children(how: str) -> None:
    chat = calling()
    child = opened(chat)
    deliver(chat)
    match how:
        case "abort":
            chat.command(Abort(client_request_id="stop"))
        case "answer":
            chat.tool_answers("too slow", failed=True)
        case _:
            chat.crash()
    (letter,) = letters(chat)
    assert isinstance(letter, StopSubchat)
    assert chat.state.private.relations.outbox[0].chat_id == child.chat_id
    assert chat.state.private.relations.children == ()
    check_law(chat)


@pytest.mark.row("CMD-3")
def test_a_child_that_is_stopped_while_a_person_is_asked_ends_and_tells_of_it() -> None:
    chat = calling()
    opened(chat)
    child = begun(chat)
    child.stream(SetToolCalls([call("c1", "mail")]))
    child.finish()
    assert child.state.runtime.paused
    child.command(StopSubchat(client_request_id="stop:x"))
    assert child.state.is_at_rest and not child.state.runtime.pause_reasons
    (end,) = letters(child)
    assert isinstance(end, SubchatFinished) and end.outcome == "aborted"
    check_law(child)


def test_a_child_with_something_in_its_queue_has_not_ended() -> None:
    chat = calling()
    opened(chat)
    child = begun(chat)
    child.command(say("more", "and this"))
    child.stream(AppendContent("first"))
    child.finish()
    assert letters(child) == []
    child.stream(AppendContent("second"))
    child.finish()
    (end,) = letters(child)
    assert isinstance(end, SubchatFinished) and end.text == "second"
    deliver(child)
    child.command(say("later", "a person's own"))
    child.stream(AppendContent("third"))
    child.finish()
    assert letters(child) == [], "only the first end is the parent's business"


def test_a_long_answer_is_cut_with_a_note() -> None:
    chat = calling()
    opened(chat)
    child = begun(chat)
    child.stream(AppendContent("x" * (REPORT_MAX_CHARACTERS + 1)))
    child.finish()
    (end,) = letters(child)
    assert isinstance(end, SubchatFinished)
    assert end.text.startswith("x" * REPORT_MAX_CHARACTERS + "\n[cut: ")


def test_a_child_that_cannot_begin_tells_its_parent() -> None:
    chat = calling()
    opened(chat)
    (begin,) = deliver(chat)
    assert isinstance(begin, BeginSubchat)
    child = PureChat(table(TOOLS))
    child.write(lambda ledger: begin_failed(ledger, begin, "It failed."))
    (end,) = letters(child)
    assert isinstance(end, SubchatFinished) and (end.outcome, end.text) == ("error", "It failed.")


# what is passed on, and what is not


def test_a_child_is_no_way_round_what_a_person_took_away_or_allowed() -> None:
    chat = PureChat(table(TOOLS))
    chat.command(
        SetParams(
            client_request_id="set",
            patch={"tools_disabled": ["mail"], "autonomous_no_confirm": True, "temperature": 1, "scope": ["a"]},
        )
    )
    calling(parent=chat)
    opened(chat)
    thread = begun(chat).state.thread
    assert (thread.tools_disabled, thread.autonomous_no_confirm, thread.scope) == (["mail"], True, ["a"])
    assert thread.temperature is None
    opened(chat, name="other", mode="another")
    thread = begun(chat).state.thread
    assert (thread.tools_disabled, thread.scope, thread.mode) == (["mail"], None, "another")


def test_a_call_may_take_more_from_its_child_and_give_nothing_back() -> None:
    chat = PureChat(table(TOOLS))
    patch = {"tools_disabled": ["mail"], "mcp_servers": ["a", "b"]}
    chat.command(SetParams(client_request_id="set", patch=patch))
    calling(parent=chat)
    opened(chat, params={"tools_disabled": ["clock"], "mcp_servers": ["b", "c"]})
    thread = begun(chat).state.thread
    assert (thread.tools_disabled, thread.mcp_servers) == (["mail", "clock"], ["b"])


def test_who_may_not_approve_has_no_children_that_need_no_approval() -> None:
    chat = calling(Principal("guest"))
    with pytest.raises(Forbidden):
        opened(chat, params={"autonomous_no_confirm": True})


@pytest.mark.parametrize("more", [{"prompt": ""}, {"params": {"temperature": 9}}, {"params": {"max_rounds": "x"}}])
def test_what_cannot_be_said_to_a_child_is_refused_before_anything_is_written(more: dict[str, object]) -> None:
    chat = calling()
    with pytest.raises(Refused):
        opened(chat, **more)
    assert letters(chat) == []


def test_a_thread_that_claims_a_parent_has_none() -> None:
    chat = PureChat(table(TOOLS))
    chat.command(SetParams(client_request_id="set", patch={"parent_id": "victim", "link_type": "subchat"}))
    chat.command(say("hello"))
    chat.stream(AppendContent("hi"))
    chat.finish()
    assert letters(chat) == []


# bounds


def test_chats_are_nested_four_deep_and_no_deeper() -> None:
    chat = calling()
    for depth in range(1, DEPTH_MAX + 1):
        opened(chat)
        above, chat = chat.chat_id, begun(chat)
        assert chat.state.private.relations.parent == Parent(chat_id=above, depth=depth)
        assert chat.state.thread.root_chat_id == "c1"
        chat.stream(SetToolCalls([call("c0", "delegate")]))
        chat.finish()
    with pytest.raises(Conflict, match="nested 4 deep"):
        opened(chat)


def test_sixteen_children_run_at_once_and_no_more() -> None:
    chat = calling()
    for number in range(RUNNING_MAX):
        opened(chat, name=str(number), is_background=number % 2 == 0)
    with pytest.raises(Conflict, match="16 chats"):
        opened(chat, name="one more")
    assert isinstance(opened(chat, name="0"), Child), "one that is there is found all the same"


def test_sixty_four_children_of_open_calls_are_kept_and_no_more() -> None:
    chat = calling()
    for number in range(CHILDREN_KEPT_MAX):
        child = opened(chat, name=str(number))
        deliver(chat)
        chat.command(SubchatFinished(client_request_id=f"f{number}", subchat_id=child.chat_id, outcome="complete"))
    with pytest.raises(Conflict, match="keeps 64"):
        opened(chat, name="one more")


def test_while_letters_pile_up_no_child_is_opened_and_the_outbox_stays_within_its_bound() -> None:
    chat = calling()
    for number in range(OPENING_MAX_MAIL // 2):
        opened(chat, name=str(number))

    def pile(ledger: Ledger) -> None:
        for number in range(OPENING_MAX_MAIL // 2):
            owe(ledger, f"x{number}", StopSubchat(client_request_id=f"stop:x{number}"))

    chat.write(pile)
    with pytest.raises(Conflict):
        opened(chat, name="one more")
    chat.command(Abort(client_request_id="stop"))
    assert len(chat.state.private.relations.outbox) == OPENING_MAX_MAIL + RUNNING_MAX <= OUTBOX_MAX


def test_a_snapshot_shows_the_agents_told_of_last() -> None:
    chat = PureChat(table(TOOLS))

    def tell(ledger: Ledger) -> None:
        for number in range(AGENTS_KEPT + 2):
            ledger.say(BackgroundAgentUpdated({"id": str(number)}))

    chat.write(tell)
    assert chat.state.background_agents[0]["id"] == "2"
    check_law(chat)


# in the background


def test_an_agent_is_not_stopped_by_its_calls_end_and_its_model_reads_of_its_end() -> None:
    chat = calling()
    agent = opened(chat, is_background=True)
    deliver(chat)
    chat.tool_answers(agent.chat_id)
    chat.command(Abort(client_request_id="stop"))
    assert letters(chat) == []
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
        chat.stream(SetToolCalls([call(f"w{number}", "delegate")]))
        chat.finish()
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
    chat.write(lambda ledger: stop_agent(ledger, agent.chat_id))
    (letter,) = letters(chat)
    assert letter == StopSubchat(client_request_id=f"stop:{agent.chat_id}")


# the end of a chat, and who may say what


def test_the_parent_of_a_deleted_chat_hears_that_nothing_will_come() -> None:
    chat = calling()
    child = opened(chat)
    chat.command(deleted(child.chat_id))
    (kept,) = chat.state.private.relations.children
    assert (kept.outcome, kept.text) == ("aborted", "The chat was deleted.")


@pytest.mark.parametrize("command", ["begin_subchat", "stop_subchat", "subchat_finished"])
def test_a_client_cannot_say_what_chats_say_to_each_other(command: str) -> None:
    chat = calling()
    opened(chat)
    (begin,) = letters(chat)
    bodies = {
        "begin_subchat": encode_command(begin),
        "stop_subchat": encode_command(StopSubchat(client_request_id="x")),
        "subchat_finished": encode_command(SubchatFinished(client_request_id="x", subchat_id="y", outcome="complete")),
    }
    assert f'"type":"{command}"'.encode() in bodies[command]
    with pytest.raises(BadRequest):
        decode_command(bodies[command])


def test_a_letter_reads_back_as_it_was_written() -> None:
    chat = calling()
    opened(chat)
    (letter,) = letters(chat)
    assert decode_inbox_body(encode_command(letter)) == letter
