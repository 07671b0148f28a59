"""The rules of `calls.py` accept correct evidence of client tools and sub-chats, and find violations in doctored
evidence."""

import msgspec
import pytest

from tests.torture.calls import wrong_children, wrong_client_calls
from tests.torture.evidence import Asked
from tests.torture.history import Reading, read_history
from tests.torture.sound import chat_of, log_of
from threadcast.chat.facts import Fact, Progressed
from threadcast.chat.relations import ChildEnded
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.events import Ack, Event, IdeToolRequired, MessageAdded, SubchatUpdate, ToolStatus
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall


def required(call_id: str = "c") -> Event:
    return IdeToolRequired(tool_call_id=call_id, tool_name="open_file", args={})


def claimed(by: str, until_ms: int) -> Event:
    return ToolStatus(
        tool_call_id="c", name="open_file", message_id="m2", index=0, status="running", claimed_by=by,
        claim_expires_at=until_ms,
    )  # fmt: skip


def answered(text: str, *, failed: bool = False, message_id: str = "m3") -> Event:
    message = Message(role="tool", content=text, message_id=message_id, tool_call_id="c", tool_failed=failed)
    return MessageAdded(message, 2)


def result_of(request_id: str, text: str) -> Asked:
    body = encode({"tool_call_id": "c", "content": text})
    return Asked(chat_id="c1", request_id=request_id, type="ide_tool_result", body=body)


def calling(message_id: str) -> Event:
    calls = [ToolCall("c", 0, FunctionCall("open_file", "{}"))]
    return MessageAdded(Message(role="assistant", content="", message_id=message_id, tool_calls=calls), 1)


CALLING, CALLING_AGAIN = calling("m2"), calling("m5")
DONE: list[Event] = [CALLING, required(), answered("done"), Ack("i1", True, {})]
AGAIN: list[Event] = [required(), answered("done", message_id="m6"), Ack("i1", True, {})]


@pytest.mark.parametrize(
    ("events", "is_good"),
    [
        (DONE, True),
        ([*DONE, Ack("i2", False, {"code": "no_pending_decision"})], True),
        ([CALLING, required(), answered("nobody came", failed=True)], True),
        ([*DONE, Ack("i2", True, {})], False),
        ([*DONE, answered("done", message_id="m4")], False),
        ([CALLING, required(), Ack("i1", True, {})], False),
        ([CALLING, required(), answered("never said"), Ack("i1", True, {})], False),
        ([CALLING, required()], False),
        ([CALLING, answered("interrupted", failed=True), CALLING_AGAIN, *AGAIN], True),
        ([*DONE, CALLING_AGAIN, answered("interrupted", failed=True, message_id="m4")], True),
        ([*DONE, CALLING_AGAIN, required(), answered("interrupted", failed=True, message_id="m4")], True),
        ([*DONE, CALLING_AGAIN, answered("done", message_id="m4")], False),
        ([*DONE[:2], claimed("left", 70_000), claimed("left", 80_000), *DONE[2:]], True),
        ([*DONE[:2], claimed("left", 70_000), claimed("right", 80_000), *DONE[2:]], False),
        ([*DONE[:2], claimed("left", 70_000), claimed("right", 130_000), *DONE[2:]], True),
    ],
)
def test_a_client_tool_has_the_one_result_that_was_accepted_and_a_claim_holds(
    events: list[Event], is_good: bool
) -> None:
    reading = read_history(chat_of(log_of((events, []))))
    commands = [result_of("i1", "done"), result_of("i2", "done too")]
    assert (list(wrong_client_calls(reading, commands)) == []) is is_good


PROMPT = Message(role="user", content="find it", message_id="p1", client_request_id="prompt-sub_1")


def _family(ends: int = 1, said: str = "found", told: str = "found", prompts: int = 1) -> dict[str, Reading]:
    delegating = [ToolCall("c", 0, FunctionCall("delegate", "{}"))]
    asks = MessageAdded(Message(role="assistant", content="", message_id="m1", tool_calls=delegating), 0)
    events: list[Event] = [asks, SubchatUpdate(tool_call_id="c", subchat_id="sub_1"), answered("found")]
    facts: list[Fact] = [ChildEnded(chat_id="sub_1", outcome="complete", text=told)] * ends
    begun: list[Event] = [MessageAdded(msgspec.structs.replace(PROMPT, message_id=f"p{n}"), n) for n in range(prompts)]
    last = MessageAdded(Message(role="assistant", content=said, message_id="a1"), prompts)
    child = chat_of(log_of(([*begun, last], [])))
    child.chat_id = "sub_1"
    return {"c1": read_history(chat_of(log_of((events, facts)))), "sub_1": read_history(child)}


def test_a_sub_chat_begins_once_and_ends_once_and_its_answer_is_the_result_of_its_call() -> None:
    def is_good(family: dict[str, Reading]) -> bool:
        return not list(wrong_children(family["c1"], family))

    assert is_good(_family())
    for broken in (
        _family(ends=0), _family(ends=2), _family(said="other"), _family(told="other"), _family(prompts=0),
        _family(prompts=2), {"c1": _family()["c1"]},
    ):  # fmt: skip
        assert not is_good(broken)
    given_up = _family(ends=0)
    given_up["c1"].answers["sub_1"] = given_up["c1"].answers["sub_1"]._replace(has_failed=True)
    assert not is_good(given_up)
    given_up["sub_1"].accepted = {"stop:sub_1": (1, 0)}
    assert is_good(given_up)
    still_running = _family()
    still_running["sub_1"].state = "generating"
    assert not is_good(still_running)


def _given_up(told: str = "error", code: str = "poison", prompts: int = 0, takeovers: int = 3) -> dict[str, Reading]:
    """Three workers died before the sub-chat could begin."""
    family = _family(prompts=prompts, said="", told="")
    events: list[Event] = [
        Ack("begin:sub_1", False, {"code": code}),
        *(MessageAdded(PROMPT, n) for n in range(prompts)),
    ]
    family["sub_1"] = read_history(chat_of(log_of((events, [Progressed()]), takeovers=takeovers)))
    family["c1"].ended["sub_1"] = [(told, "")] if told else []
    family["c1"].answers["sub_1"] = family["c1"].answers["sub_1"]._replace(has_failed=True)
    return family


def test_a_sub_chat_that_was_given_up_as_poison_never_begins_and_its_parent_is_told_of_an_error() -> None:
    def wrongs(family: dict[str, Reading]) -> list[str]:
        return [wrong.words for wrong in wrong_children(family["c1"], family)]

    assert wrongs(_given_up()) == []
    assert wrongs(_given_up(code="internal")) == ["it was begun 0 times"]
    assert wrongs(_given_up(prompts=1)) == ["it was begun 1 times"]
    assert wrongs(_given_up(told="complete")) == ["it was given up before it began, and its parent was told 'complete'"]
    assert wrongs(_given_up(told="")) == ["its call was given up, and nobody told it to stop"]


@pytest.mark.parametrize(("takeovers", "is_good"), [(1, False), (2, False), (3, True), (4, True)])
def test_only_three_takeovers_without_progress_are_a_reason_to_give_a_command_up(
    takeovers: int, *, is_good: bool
) -> None:
    reading = _given_up(takeovers=takeovers)["sub_1"]
    assert [kind for kind, _ in reading.wrong] == ([] if is_good else ["poison"])
    twice: list[Event] = [Ack("next", False, {"code": "poison"})]
    log = log_of(([Ack("first", False, {"code": "poison"})], [Progressed()]), (twice, []), takeovers=3)
    assert [words for _, words in read_history(chat_of(log)).wrong] == ["next was given up after 0 takeovers"]
