"""The verdict passes the evidence of a correct run, and finds and names each violation in doctored evidence."""

from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest

from tests.torture.answers import FILE_NAME
from tests.torture.evidence import Asked, Evidence, Mishap, ReaderEnd, ToolRun
from tests.torture.history import NOTE_KEY, read_history
from tests.torture.order import out_of_order
from tests.torture.plan import file_of
from tests.torture.sound import ANSWER, PARAMS, QUESTION, RUN, TURN, chat_of, kinds, log_of, sound
from tests.torture.verdict import Violation, judge
from threadcast.chat.facts import Fact
from threadcast.store.ports import Loaded
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.events import (
    Ack,
    Event,
    MessageAdded,
    MessageUpdated,
    RuntimeUpdated,
    StreamStarted,
    ThreadUpdated,
)
from threadcast_protocol.wire.messages import FilePart, Message


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


@pytest.mark.parametrize(
    ("text", "is_good"), [("You said: hello", True), ("You said: hello instead", True), ("You said: hell", False)]
)
@pytest.mark.parametrize("is_imported", [False, True], ids=["our own answer", "an imported answer"])
def test_an_answer_that_is_continued_after_its_question_was_edited_is_that_to_either_question(
    text: str, *, is_good: bool, is_imported: bool
) -> None:
    """The demo model continues an answer to the edited question only if that answer begins in the same way."""
    edited = msgspec.structs.replace(QUESTION, content="hello instead")
    answer = msgspec.structs.replace(ANSWER, content=text, tool_calls=[])
    first = [MessageAdded(ANSWER, 1)] if is_imported else TURN[2:6]
    again = [StreamStarted(message_id="m2", run_id="run2", round=0, model="demo/echo", append=True)]
    chat = chat_of(log_of(([*TURN[:2], *first, MessageUpdated("m1", edited), *again, MessageAdded(answer, 1)], [])))
    assert [kind for kind, _ in read_history(chat).wrong] == ([] if is_good else ["text"])


def test_a_safe_tool_may_run_again_and_a_call_of_another_run_may_have_its_id() -> None:
    evidence = sound()
    evidence.tool_runs += [ToolRun("safe", "c1", "run1", "call_2"), ToolRun("safe", "c1", "run1", "call_2")]
    evidence.tool_runs.append(ToolRun("once", "c1", "run2", "call_1"))
    assert judge(evidence).is_good


def test_words_are_said_in_the_order_of_the_queue_and_those_of_priority_before_others() -> None:
    def said(*names: str) -> list[Event]:
        return [MessageAdded(Message(role="user", content=n, message_id=n, client_request_id=n), 0) for n in names]

    def asked(name: str, **flags: bool) -> Asked:
        return Asked(chat_id="c1", request_id=name, type="user_message", body=encode(flags))

    names = ["a", "b", "c"]
    acks: list[Event] = [Ack(name, True, {"queued": True}) for name in names]
    accepted = {name: (1, number) for number, name in enumerate(names)}

    def late(*order: str, priority: str = "", interrupt: str = "") -> list[str]:
        reading = read_history(chat_of(log_of((acks + said(*order), []))))
        commands = [asked(name, priority=name == priority, interrupt=name == interrupt) for name in names]
        return [name for name, _ in out_of_order(accepted, reading.taken_up, reading.spoken, commands)]

    assert late("a", "b", "c") == []
    assert late("a", "c", "b") == ["b"]
    assert late("c", "a", "b", priority="c") == []
    assert late("c", "a", "b", interrupt="c") == []


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


def test_an_edited_message_has_the_file_of_the_message_it_edits() -> None:
    def judged(data: bytes) -> list[str]:
        name = sha256(data).hexdigest()
        file = FilePart(FILE_NAME, "application/octet-stream", blob=name, bytes=len(data))
        message = Message(role="user", content=[file], message_id="m8", client_request_id="f1")
        edited = msgspec.structs.replace(message, message_id="m9", client_request_id="e1")
        brought = MessageAdded(message, 3), Ack("f1", True, {})
        evidence = sound(([*brought, MessageAdded(edited, 4), Ack("e1", True, {})], []))
        evidence.readers.clear()
        answers = {"answers": ["accepted"], "is_seen": True}
        evidence.commands.append(
            Asked(chat_id="c1", request_id="e1", type="update_message", body=b"{}", **answers)  # type: ignore[arg-type]  # as above
        )
        evidence.blobs = {f"c1/{name}": data}
        return kinds(evidence)

    assert judged(file_of("f1")) == []
    assert judged(file_of("e1")) == ["blob"]


def buried_of(request_id: str, kind: str = "user_message") -> Asked:
    return Asked(chat_id="c1", request_id=request_id, type=kind, body=b"{}", answers=["accepted"], is_seen=True)


OLD_WORDS = msgspec.structs.replace(QUESTION, message_id="m7", client_request_id="r0")
OLD_RUN = msgspec.structs.replace(RUN, run_id="run0", request_ids=["r0"])
OLD: dict[str, tuple[list[Event], list[Fact]]] = {
    "message": ([MessageAdded(OLD_WORDS, 3)], []),
    "ack": ([Ack("r0", True, {})], []),
    "refusal": ([Ack("r0", False, {"code": "cancelled"})], []),
    "run": ([TURN[-1]], [OLD_RUN]),
    "parameters": ([ThreadUpdated(metadata={NOTE_KEY: "r0"})], []),
}


@pytest.mark.parametrize("what", OLD)
@pytest.mark.parametrize("is_brought", [False, True], ids=["of another chat", "by its own export"])
def test_of_an_earlier_life_there_is_only_what_an_import_brought(what: str, *, is_brought: bool) -> None:
    evidence = sound(OLD[what])
    evidence.readers.clear()
    evidence.buried = [buried_of("r0"), buried_of("r00")]
    evidence.brought = {"c1": {"r0", "r00"}} if is_brought else {}
    is_good = is_brought and what in ("message", "parameters")
    assert kinds(evidence) == ([] if is_good else ["old life"])


def test_a_life_that_knows_nothing_of_an_earlier_one_is_good_and_so_is_one_that_ended() -> None:
    evidence = sound()
    evidence.buried = [buried_of("r0"), Asked(chat_id="c2", request_id="r1", type="abort", body=b"{}")]
    verdict = judge(evidence)
    assert (verdict.violations, verdict.counts["commands of earlier lives"]) == ([], 2)
