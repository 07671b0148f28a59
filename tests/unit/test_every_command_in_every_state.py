"""The outcome of every command of PROTOCOL §2 in every state of a chat: sent once, sent twice, and with unknown ids.

The table gives the outcome of a command in a state: `acts` (takes effect at once), `waits` (in the queue), or a code of
refusal. The test then brings the chat to rest: every command has its final ack, and every reader folds the same state.
"""

from collections.abc import Callable

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from tests.unit.test_tree import check_law
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.owner_state import OwnerState
from threadcast.tools.base import Tool
from threadcast.tools.client import ClientTool
from threadcast_protocol.wire.commands import (
    Abort,
    BranchFromChat,
    BrowserContextDecision,
    Command,
    ContinueMessage,
    Decision,
    EditQueued,
    IdeToolClaim,
    IdeToolResult,
    Regenerate,
    RemoveMessage,
    RestoreMessages,
    RetryFromIndex,
    SelectBranch,
    SetParams,
    ToolDecision,
    ToolDecisions,
    UpdateMessage,
    UserMessage,
)
from threadcast_protocol.wire.deltas import AppendContent

TOOLS: dict[str, Tool] = {
    "clock": FakeTool(name="clock"),
    "mail": FakeTool(name="mail", policy="ask"),
    "open_file": ClientTool("open_file", "Opens a file."),
}


def rested() -> PureChat:
    chat = PureChat(
        table(TOOLS), SetParams(client_request_id="unmerged", patch={"merge_queued": False}), say("first", "first")
    )
    chat.says("answer")
    return chat


def streaming() -> PureChat:
    chat = rested()
    chat.command(say("second", "second"))
    chat.stream(AppendContent("half"))
    return chat


def calling(tool: str) -> PureChat:
    chat = streaming()
    chat.asks(call("c0", tool))
    return chat


def failed() -> PureChat:
    chat = streaming()
    chat.break_off()
    return chat


STATES: dict[str, Callable[[], PureChat]] = {
    "idle": rested,
    "generating": streaming,
    "executing_tools": lambda: calling("clock"),
    "paused": lambda: calling("mail"),
    "waiting_ide": lambda: calling("open_file"),
    "error": failed,
}

COMMANDS: dict[str, Callable[[str, OwnerState], Command]] = {
    "user_message": lambda name, state: say(name, name),
    "interrupt": lambda name, state: UserMessage(client_request_id=name, content=name, interrupt=True),
    "regenerate": lambda name, state: Regenerate(client_request_id=name),
    "retry_from_index": lambda name, state: RetryFromIndex(client_request_id=name, index=0, content=name),
    "update_message": lambda name, state: UpdateMessage(
        client_request_id=name, message_id=state.path[0], content=name, mode="branch", regenerate=True
    ),
    "update_in_place": lambda name, state: UpdateMessage(
        client_request_id=name, message_id=state.path[0], content=name
    ),
    "remove_message": lambda name, state: RemoveMessage(client_request_id=name, message_id=state.path[1]),
    "continue_message": lambda name, state: ContinueMessage(client_request_id=name, message_id=state.path[-1]),
    "select_branch": lambda name, state: SelectBranch(client_request_id=name, message_id=state.path[0]),
    "set_params": lambda name, state: SetParams(client_request_id=name, patch={"temperature": 1}),
    "abort": lambda name, state: Abort(client_request_id=name),
    "tool_decision": lambda name, state: ToolDecision(client_request_id=name, tool_call_id="c0", accepted=True),
    "tool_decisions": lambda name, state: ToolDecisions(
        client_request_id=name, decisions=[Decision(tool_call_id="c0", accepted=False)]
    ),
    "ide_tool_result": lambda name, state: IdeToolResult(client_request_id=name, tool_call_id="c0", content="x"),
    "ide_tool_claim": lambda name, state: IdeToolClaim(client_request_id=name, tool_call_id="c0"),
    "browser_context_decision": lambda name, state: BrowserContextDecision(
        client_request_id=name, pending_message_id="c0"
    ),
    "branch_from_chat": lambda name, state: BranchFromChat(
        client_request_id=name, source_chat_id="other", up_to_message_id="m"
    ),
    "restore_messages": lambda name, state: RestoreMessages(
        client_request_id=name, messages=[{"role": "user", "content": "x"}]
    ),
    "edit_queued": lambda name, state: EditQueued(client_request_id=name, target_request_id="nobody", position=0),
}

WAITS = {
    "user_message",
    "regenerate",
    "retry_from_index",
    "update_message",
    "update_in_place",
    "remove_message",
    "continue_message",
}
ONLY_IN = {
    "tool_decision": "paused",
    "tool_decisions": "paused",
    "ide_tool_result": "waiting_ide",
    "ide_tool_claim": "waiting_ide",
    "browser_context_decision": "nowhere here",
}
REFUSED_ALWAYS = {"branch_from_chat": "conflict", "restore_messages": "conflict", "edit_queued": "not_found"}


def fate(state: str, kind: str) -> str:
    """Return the outcome of the command `kind` in `state`."""
    at_rest = state in ("idle", "error")
    if kind in WAITS:
        return "acts" if at_rest else "waits"
    if kind in ONLY_IN:
        return "acts" if ONLY_IN[kind] == state else "no_pending_decision"
    if kind == "select_branch":
        return "acts" if at_rest else "conflict"
    return REFUSED_ALWAYS.get(kind, "acts")


def rest(chat: PureChat) -> None:
    """Answer everything until nothing is open."""
    for step in range(40):
        if isinstance(chat.step, CallModel):
            chat.says(f"a{step}")
        elif isinstance(chat.step, RunTool):
            chat.tool_answers()
        elif chat.state.runtime.paused:
            reason = chat.state.runtime.pause_reasons[0]
            chat.command(
                ToolDecision(client_request_id=f"rest{step}", tool_call_id=reason.tool_call_id, accepted=False)
            )
        elif chat.state.runtime.ide_calls:
            waiting = chat.state.runtime.ide_calls[0]
            chat.command(IdeToolResult(client_request_id=f"rest{step}", tool_call_id=waiting.tool_call_id, content="y"))
        else:
            break
    assert chat.state.is_at_rest
    assert chat.state.private.run is None
    assert chat.state.private.queue == ()
    assert chat.state.draft is None


def final_words(chat: PureChat) -> dict[str, list[bool]]:
    """Return the final ack of each request id in the entries."""
    words: dict[str, list[bool]] = {}
    for request_id, accepted in chat.final_acks:
        words.setdefault(request_id, []).append(accepted)
    return words


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_a_command_acts_waits_or_is_refused_as_the_table_says_and_has_one_last_word(state: str, kind: str) -> None:
    chat = STATES[state]()
    assert chat.state.runtime.state == state
    expected = fate(state, kind)
    events = chat.command(COMMANDS[kind]("x", chat.state))
    mine = [(accepted, result) for name, accepted, result in acks(events) if name == "x"]
    if expected in ("acts", "waits"):
        assert mine[0][0], mine
        assert (chat.state.runtime.queue_size == 1) is (expected == "waits")
    else:
        assert [(accepted, result["code"]) for accepted, result in mine] == [(False, expected)]
    rest(chat)
    assert len(final_words(chat)["x"]) == 1
    check_law(chat)


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_the_same_wish_twice_under_two_ids_ends_well_and_so_does_an_abort_between(state: str, kind: str) -> None:
    for between in (False, True):
        chat = STATES[state]()
        before = chat.state
        chat.command(COMMANDS[kind]("x", before))
        if between:
            chat.command(Abort(client_request_id="stop"))
        chat.command(COMMANDS[kind]("y", before))
        rest(chat)
        words = final_words(chat)
        assert (len(words["x"]), len(words["y"])) == (1, 1)
        check_law(chat)


@pytest.mark.parametrize("state", STATES)
def test_ids_that_nobody_knows_are_refused_in_every_state_and_change_no_message(state: str) -> None:
    chat = STATES[state]()
    rest(chat)
    before = chat.state.nodes
    commands: list[Command] = [
        Regenerate(client_request_id="n1", message_id="nobody"),
        UpdateMessage(client_request_id="n2", message_id="nobody", content="x"),
        RemoveMessage(client_request_id="n3", message_id="nobody"),
        ContinueMessage(client_request_id="n4", message_id="nobody"),
        SelectBranch(client_request_id="n5", message_id="nobody"),
        RetryFromIndex(client_request_id="n6", index=99, content="x"),
        ToolDecision(client_request_id="n7", tool_call_id="nobody", accepted=True),
        IdeToolResult(client_request_id="n8", tool_call_id="nobody", content="x"),
    ]
    for command in commands:
        chat.command(command)
    assert chat.state.nodes == before
    assert [final_words(chat)[f"n{number}"] for number in range(1, 9)] == [[False]] * 8
