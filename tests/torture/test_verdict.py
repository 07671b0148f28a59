"""The judge can say guilty: evidence of a sound run is good, and each way of doctoring it is found and named."""

from collections.abc import Callable
from itertools import accumulate, repeat

import msgspec
import pytest

from protocol.codec import encode
from protocol.deltas import AppendContent
from protocol.entries import Fence, RawEntry
from protocol.events import (
    Ack,
    Event,
    MessageAdded,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
    ThreadUpdated,
)
from protocol.facts import Fact, RunStarted
from protocol.ids import EntryId
from protocol.messages import Message
from protocol.principal import Principal
from server.store.port import Loaded
from tests.torture.evidence import Asked, ChatEvidence, Evidence, Mishap, ReaderEnd, ToolRun
from tests.torture.history import read_history
from tests.torture.order import out_of_order
from tests.torture.verdict import Violation, judge

QUESTION = Message(role="user", content="hello", message_id="m1", client_request_id="r1")
ANSWER = Message(role="assistant", content="You said: hello", message_id="m2", finish_reason="stop", model="demo/echo")
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
