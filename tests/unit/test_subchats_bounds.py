"""The rights and the number of sub-chats are bounded: a sub-chat gets no permission that a person has taken away from
its parent."""

import pytest

from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.pure_family import TOOLS, begun, calling, deliver, opened, outbound_of
from tests.unit.test_tree import check_law
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.internal_commands import StopSubchat, SubchatFinished
from threadcast.chat.outbound import OPENING_MAX_OUTBOUND, OUTBOX_MAX, owe
from threadcast.chat.relations import Child, Parent
from threadcast.chat.subchats import CHILDREN_KEPT_MAX, DEPTH_MAX, RUNNING_MAX
from threadcast_protocol.fold.state import AGENTS_KEPT
from threadcast_protocol.wire.commands import Abort, SetParams
from threadcast_protocol.wire.errors import Conflict, Forbidden, Refused
from threadcast_protocol.wire.events import BackgroundAgentUpdated
from threadcast_protocol.wire.principal import Principal

# fields that a sub-chat inherits, and fields that it does not


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
    assert outbound_of(chat) == []


def test_a_thread_that_claims_a_parent_has_none() -> None:
    chat = PureChat(
        table(TOOLS),
        SetParams(client_request_id="set", patch={"parent_id": "victim", "link_type": "subchat"}),
        say("hello"),
    )
    chat.says("hi")
    assert outbound_of(chat) == []


# bounds


def test_chats_are_nested_four_deep_and_no_deeper() -> None:
    chat = calling()
    for depth in range(1, DEPTH_MAX + 1):
        opened(chat)
        above, chat = chat, begun(chat)
        parent = Parent(chat_id=above.chat_id, depth=depth, epoch=above.state.epoch)
        assert chat.state.private.relations.parent == parent
        assert chat.state.thread.root_chat_id == "c1"
        chat.asks(call("c0", "delegate"))
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


def test_while_outbound_messages_pile_up_no_child_is_opened_and_the_outbox_stays_within_its_bound() -> None:
    chat = calling()
    for number in range(OPENING_MAX_OUTBOUND // 2):
        opened(chat, name=str(number))

    def pile(builder: EntryBuilder) -> None:
        for number in range(OPENING_MAX_OUTBOUND // 2):
            owe(builder, f"x{number}", StopSubchat(client_request_id=f"stop:x{number}"))

    chat.write(pile)
    with pytest.raises(Conflict):
        opened(chat, name="one more")
    chat.command(Abort(client_request_id="stop"))
    assert len(chat.state.private.relations.outbox) == OPENING_MAX_OUTBOUND + RUNNING_MAX <= OUTBOX_MAX


def test_a_snapshot_shows_the_agents_told_of_last() -> None:
    chat = PureChat(table(TOOLS))

    def tell(builder: EntryBuilder) -> None:
        for number in range(AGENTS_KEPT + 2):
            builder.say(BackgroundAgentUpdated({"id": str(number)}))

    chat.write(tell)
    assert chat.state.background_agents[0]["id"] == "2"
    check_law(chat)
