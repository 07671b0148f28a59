"""Hand-made evidence of a run without violations. Tests change the evidence and check the verdict.

The evidence has the form of real logs and of the data of posters and readers. The evidence is made without the rules of
`verdict.py`. Each call makes new evidence.
"""

from itertools import accumulate, repeat

from tests.torture.evidence import Asked, ChatEvidence, Evidence, ReaderEnd, ToolRun
from tests.torture.history import read_history
from tests.torture.verdict import judge
from threadcast.chat.entries import Fence, RawEntry
from threadcast.chat.facts import Fact, RunStarted
from threadcast.store.ports import Loaded
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import (
    Ack,
    Event,
    MessageAdded,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
    ThreadUpdated,
)
from threadcast_protocol.wire.ids import EntryId
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall
from threadcast_protocol.wire.principal import Principal

__all__ = ["ANSWER", "PARAMS", "QUESTION", "RUN", "TURN", "chat_of", "kinds", "log_of", "sound"]

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


def log_of(*entries: tuple[list[Event], list[Fact]], takeovers: int = 0) -> list[RawEntry]:
    """Return a chat's log: a fence, or the fences of this many takeovers, then one entry per argument."""
    fences = [Fence("w1", "takeover")] * takeovers or [Fence("w1", "wake")]
    nothing: tuple[list[Event], list[Fact]] = ([], [])
    told = [*repeat(nothing, len(fences)), *entries]
    positions = accumulate(len(events) for events, _ in told)
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
            zip(told, [*fences, *repeat(None, len(entries))], strict=True), 1
        )
    ]


def chat_of(entries: list[RawEntry]) -> ChatEvidence:
    """The evidence of a chat whose readers all agree."""
    chat = ChatEvidence(chat_id="c1", entries=entries, loaded=Loaded(None, entries, entries[-1].head))
    chat.http_snapshot = read_history(chat).snapshot
    return chat


def sound(*more: tuple[list[Event], list[Fact]]) -> Evidence:
    """A chat with one question, one change of parameters, and the events `more`."""
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
