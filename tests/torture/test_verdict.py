"""The judge can say guilty: evidence of a sound run is good, and each way of doctoring it is found and named."""

from collections.abc import Callable
from hashlib import sha256
from itertools import accumulate, repeat

import msgspec
import pytest

from protocol.codec import encode
from protocol.deltas import AppendContent
from protocol.entries import Fence, RawEntry
from protocol.events import (
    Ack,
    Event,
    IdeToolRequired,
    MessageAdded,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
    SubchatUpdate,
    ThreadUpdated,
    ToolStatus,
)
from protocol.facts import Fact, RunStarted
from protocol.ids import EntryId
from protocol.messages import FilePart, FunctionCall, Message, ToolCall
from protocol.principal import Principal
from protocol.relations import ChildEnded
from server.store.port import Loaded
from tests.torture.answers import FILE_NAME
from tests.torture.calls import wrong_children, wrong_client_calls
from tests.torture.evidence import Asked, ChatEvidence, Evidence, Mishap, ReaderEnd, ToolRun
from tests.torture.history import Reading, read_history
from tests.torture.order import out_of_order
from tests.torture.plan import file_of
from tests.torture.verdict import Violation, judge

QUESTION = Message(role="user", content="hello", message_id="m1", client_request_id="r1")
CALL = ToolCall("call_1", 0, FunctionCall("count_once", "{}"))
ANSWER = Message(
    role="assistant",
    content="You said: hello",
    message_id="m2",
    finish_reason="stop",
    model="demo/echo",
    tool_calls=[CALL],
)
CALLED = Message(role="tool", content="once: hello", message_id="m3", tool_call_id="call_1", tool_failed=False)

TURN: list[Event] = [
    Ack("r1", True, {"queued": True}),
    MessageAdded(QUESTION, 0),
    StreamStarted(message_id="m2", run_id="run1", round=0, model="demo/echo", append=False),
    StreamDelta("m2", [AppendContent("You said: hello")]),
    StreamFinished(message_id="m2", finish_reason="stop"),
    MessageAdded(ANSWER, 1),
    MessageAdded(CALLED, 2),
    RuntimeUpdated(state="idle", run_id="run1", outcome="complete"),
]
PARAMS: list[Event] = [ThreadUpdated(metadata={"note": "p1"}), Ack("p1", True, {"applied": True})]
RUN = RunStarted(run_id="run1", principal=Principal("ann"), request_ids=["r1"], at_ms=1, first_index=1)


def log_of(*entries: tuple[list[Event], list[Fact]]) -> list[RawEntry]:
    """A chat's log: a fence, then an entry each."""
    positions = accumulate((len(events) for events, _ in entries), initial=0)
    heads = [f"1-{number} {'0' * 16} {position}" for number, position in enumerate(positions, 1)]
    return [
        RawEntry(
            entry_id=EntryId(1, number),
            head=heads[number - 1],
            before=heads[number - 2] if number > 1 else "",
            position=int(heads[number - 1].split()[2]),
            time_ms=number,
            version=1,
            events=encode(events),
            facts=encode(facts) if facts else b"",
            fence=fence,
        )
        for number, ((events, facts), fence) in enumerate(
            zip([([], []), *entries], [Fence("w1", "wake"), *repeat(None, len(entries))], strict=True), 1
        )
    ]


def chat_of(entries: list[RawEntry]) -> ChatEvidence:
    """As everybody agrees on it."""
    chat = ChatEvidence(chat_id="c1", entries=entries, loaded=Loaded(None, entries, entries[-1].head))
    chat.http_snapshot = read_history(chat).snapshot
    return chat


def sound(*more: tuple[list[Event], list[Fact]]) -> Evidence:
    """A chat with one question and one change of parameters, and whatever comes `more`."""
    chat = chat_of(log_of((TURN, [RUN]), (PARAMS, []), *more))
    chat.accepted = {"r1": (5, 0), "p1": (5, 1)}
    asked = Asked(chat_id="c1", request_id="r1", type="user_message", body=b"{}", posts=1, is_seen=True)
    asked.answers = ["accepted", "duplicate", "idempotency_mismatch"]
    params = Asked(chat_id="c1", request_id="p1", type="set_params", body=b"{}", posts=1, is_seen=True)
    params.answers = ["applied"]
    reader = ReaderEnd(name="reader-1", chat_id="c1", position=10 + len(more), snapshot=chat.http_snapshot)
    run = ToolRun("once", "c1", "run1", "call_1")
    return Evidence(chats=[chat], commands=[asked, params], readers=[reader], tool_runs=[run])


def kinds(evidence: Evidence) -> list[str]:
    return sorted({violation.kind for violation in judge(evidence).violations})


def test_a_sound_run_is_good_and_counted() -> None:
    verdict = judge(sound())
    assert verdict.violations == []
    counted = {name: verdict.counts[name] for name in ("accepted", "applied", "duplicates", "mismatches", "answers")}
    assert counted == {"accepted": 2, "applied": 2, "duplicates": 1, "mismatches": 1, "answers": 1}
    assert verdict.counts["wake"] == 1


def test_an_accepted_command_that_the_log_does_not_know_is_lost() -> None:
    evidence = sound()
    gone = Asked(chat_id="c1", request_id="r2", type="user_message", body=b"{}", answers=["accepted"], is_seen=True)
    evidence.commands.append(gone)
    (violation,) = judge(evidence).violations
    assert violation == Violation("lost", "c1", "r2", "user_message: no effect and no report; it was told ['accepted']")


def test_a_command_of_a_chat_without_a_log_is_lost() -> None:
    evidence = sound()
    evidence.commands.append(
        Asked(chat_id="c2", request_id="r2", type="abort", body=b"{}", answers=["duplicate"], is_seen=True)
    )
    assert kinds(evidence) == ["lost"]


def test_a_reported_command_is_not_lost() -> None:
    evidence = sound(([Ack("r2", True, {}), Ack("r2", False, {"code": "cancelled"})], []))
    evidence.readers.clear()
    evidence.commands.append(
        Asked(chat_id="c1", request_id="r2", type="user_message", body=b"{}", answers=["accepted"], is_seen=True)
    )
    verdict = judge(evidence)
    assert (verdict.violations, verdict.counts["reported"], verdict.codes) == ([], 1, {"cancelled": 1})


AGAIN = msgspec.structs.replace(QUESTION, message_id="m9")
DOUBLED: dict[str, tuple[list[Event], list[Fact]]] = {
    "message": ([MessageAdded(AGAIN, 3)], []),
    "ack": ([TURN[0]], []),
    "run": ([TURN[-1]], [RUN]),
    "parameters": ([PARAMS[0]], []),
}


@pytest.mark.parametrize("what", DOUBLED)
def test_a_command_that_took_effect_twice_is_found(what: str) -> None:
    evidence = sound(DOUBLED[what])
    evidence.readers.clear()
    assert kinds(evidence) == ["twice"]


def test_a_command_that_was_kept_twice_is_found() -> None:
    evidence = sound()
    evidence.commands[0].answers.append("accepted")
    assert kinds(evidence) == ["twice"]


def _diverged(evidence: Evidence) -> None:
    (reader,) = evidence.readers
    snapshot = (reader.snapshot or b"").replace(b"You said: hello", b"You said: hell")
    evidence.readers = [msgspec.structs.replace(reader, snapshot=snapshot)]


def _behind(evidence: Evidence) -> None:
    evidence.readers = [ReaderEnd(name="reader-1", chat_id="c1", position=-1, snapshot=None)]


def _http_differs(evidence: Evidence) -> None:
    evidence.chats[0].http_snapshot = b"{}"


def _trimmed_in_the_middle(evidence: Evidence) -> None:
    del evidence.chats[0].entries[1]


def _owner_cannot_read(evidence: Evidence) -> None:
    chat = evidence.chats[0]
    chat.loaded = Loaded(None, chat.entries[1:], chat.entries[-1].head)


def _owner_holds_another_state(evidence: Evidence) -> None:
    chat = evidence.chats[0]
    other = log_of((TURN[:-1], []), ([RuntimeUpdated(state="error"), *PARAMS], []))
    chat.loaded = Loaded(None, other, other[-1].head)


def _tool_ran_twice(evidence: Evidence) -> None:
    evidence.tool_runs.append(evidence.tool_runs[0])


def _tool_never_ran(evidence: Evidence) -> None:
    evidence.tool_runs.clear()


def _left_in_the_inbox(evidence: Evidence) -> None:
    evidence.chats[0].inbox_count = 1


def _refused_and_done(evidence: Evidence) -> None:
    evidence.commands[0].answers = ["queue_full"]


def _never_answered(evidence: Evidence) -> None:
    evidence.commands.append(Asked(chat_id="c1", request_id="r3", type="abort", body=b"{}", posts=9))


def _cancelled_and_done(evidence: Evidence) -> None:
    evidence.commands[0].was_cancelled = True


def _never_shown(evidence: Evidence) -> None:
    evidence.commands[0].is_seen = False


def _taken_up_before_its_turn(evidence: Evidence) -> None:
    evidence.chats[0].accepted = {"r1": (5, 1), "p1": (5, 0)}


def _forged(evidence: Evidence) -> None:
    evidence.mishaps.append(Mishap("forged", "c1", "a forged position was resumed"))


@pytest.mark.parametrize(
    ("doctor", "kind"),
    [
        (_diverged, "diverged"),
        (_behind, "behind"),
        (_http_differs, "diverged"),
        (_trimmed_in_the_middle, "hole"),
        (_owner_cannot_read, "hole"),
        (_owner_holds_another_state, "diverged"),
        (_tool_ran_twice, "tool"),
        (_tool_never_ran, "tool"),
        (_left_in_the_inbox, "leftover"),
        (_refused_and_done, "refused"),
        (_never_answered, "unanswered"),
        (_cancelled_and_done, "contradiction"),
        (_never_shown, "unseen"),
        (_forged, "forged"),
        (_taken_up_before_its_turn, "order"),
    ],
)
def test_doctored_evidence_is_found(doctor: Callable[[Evidence], None], kind: str) -> None:
    evidence = sound()
    doctor(evidence)
    assert kind in kinds(evidence)


@pytest.mark.parametrize(
    ("text", "finish_reason", "is_good"),
    [
        ("You said: hello", "stop", True),
        ("You said: hello there", "stop", False),
        ("You said: hell", "stop", False),
        ("You said: You said: hello", "stop", False),
        ("You said", "abort", True),
        ("You sad", "abort", False),
    ],
)
def test_an_answer_is_what_the_model_says_to_the_letter_or_when_broken_its_beginning(
    text: str, finish_reason: str, is_good: bool
) -> None:
    answer = msgspec.structs.replace(ANSWER, content=text, finish_reason=finish_reason)
    chat = chat_of(log_of(([*TURN[:3], MessageAdded(answer, 1), TURN[-1]], [])))
    assert [kind for kind, _ in read_history(chat).wrong] == ([] if is_good else ["text"])


def test_a_safe_tool_may_run_again_and_a_call_of_another_run_may_have_its_id() -> None:
    evidence = sound()
    evidence.tool_runs += [ToolRun("safe", "c1", "run1", "call_2"), ToolRun("safe", "c1", "run1", "call_2")]
    evidence.tool_runs.append(ToolRun("once", "c1", "run2", "call_1"))
    assert judge(evidence).is_good


def test_words_are_said_in_the_order_of_the_queue_and_those_of_priority_before_others() -> None:
    def said(*names: str) -> list[Event]:
        return [MessageAdded(Message(role="user", content=n, message_id=n, client_request_id=n), 0) for n in names]

    def asked(name: str, *, priority: bool = False) -> Asked:
        return Asked(chat_id="c1", request_id=name, type="user_message", body=encode({"priority": priority}))

    names = ["a", "b", "c"]
    acks: list[Event] = [Ack(name, True, {"queued": True}) for name in names]
    accepted = {name: (1, number) for number, name in enumerate(names)}

    def late(*order: str, priority: str = "") -> list[str]:
        reading = read_history(chat_of(log_of((acks + said(*order), []))))
        commands = [asked(name, priority=name == priority) for name in names]
        return [name for name, _ in out_of_order(accepted, reading.taken_up, reading.spoken, commands)]

    assert late("a", "b", "c") == []
    assert late("a", "c", "b") == ["b"]
    assert late("c", "a", "b", priority="c") == []


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


CALLING = MessageAdded(
    Message(
        role="assistant", content="", message_id="m2", tool_calls=[ToolCall("c", 0, FunctionCall("open_file", "{}"))]
    ),
    1,
)  # fmt: skip
DONE: list[Event] = [CALLING, required(), answered("done"), Ack("i1", True, {})]


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


def _family(ends: int = 1, said: str = "found", told: str = "found", prompts: int = 1) -> dict[str, Reading]:
    delegating = [ToolCall("c", 0, FunctionCall("delegate", "{}"))]
    asks = MessageAdded(Message(role="assistant", content="", message_id="m1", tool_calls=delegating), 0)
    events: list[Event] = [asks, SubchatUpdate(tool_call_id="c", subchat_id="sub_1"), answered("found")]
    facts: list[Fact] = [ChildEnded(chat_id="sub_1", outcome="complete", text=told)] * ends
    prompt = Message(role="user", content="find it", message_id="p1", client_request_id="prompt-sub_1")
    begun: list[Event] = [MessageAdded(msgspec.structs.replace(prompt, message_id=f"p{n}"), n) for n in range(prompts)]
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


def test_what_was_attached_must_be_there_byte_for_byte() -> None:
    data = file_of("f1")
    name = sha256(data).hexdigest()
    file = FilePart(FILE_NAME, "application/octet-stream", blob=name, bytes=len(data))
    message = Message(role="user", content=[file], message_id="m8", client_request_id="f1")
    evidence = sound(([MessageAdded(message, 3), Ack("f1", True, {})], []))
    evidence.readers.clear()
    assert kinds(evidence) == ["blob"]
    evidence.blobs = {f"c1/{name}": data[:-1]}
    assert kinds(evidence) == ["blob"]
    evidence.blobs = {f"c1/{name}": data}
    assert kinds(evidence) == []
