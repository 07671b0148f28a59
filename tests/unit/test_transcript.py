"""The transcript turns events into text for a person; it shows no text twice, and no harmful characters."""

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from threadcast.console.standing import Standing
from threadcast.console.transcript import Transcript

Json = dict[str, Any]  # Any: events as JSON objects


def snapshot(*messages: Json, state: str = "idle", **runtime: object) -> Json:
    return {
        "type": "snapshot",
        "seq": "0",
        "thread": {"id": "c1", "title": "New Chat", "model": "demo/echo"},
        "runtime": {"state": state, "queue_size": 0, "pause_reasons": [], **runtime},
        "messages": list(messages),
    }


def message(message_id: str, role: str, content: object, **fields: object) -> Json:
    return {"message_id": message_id, "role": role, "content": content, **fields}


def added(message_id: str, role: str, content: object, **fields: object) -> Json:
    return {"type": "message_added", "index": 0, "message": message(message_id, role, content, **fields)}


def delta(message_id: str, *ops: tuple[str, str]) -> Json:
    return {"type": "stream_delta", "message_id": message_id, "ops": [{"op": op, "text": text} for op, text in ops]}


def started(message_id: str, **fields: object) -> Json:
    return {"type": "stream_started", "message_id": message_id, **fields}


def finished(message_id: str, reason: str = "stop") -> Json:
    return {"type": "stream_finished", "message_id": message_id, "finish_reason": reason}


def runtime(state: str, **fields: object) -> Json:
    return {"type": "runtime_updated", "state": state, **fields}


def queue(size: int) -> Json:
    return {"type": "queue_updated", "queue_size": size, "queued_items": []}


def ack(request_id: str, accepted: bool = True) -> Json:
    return {
        "type": "ack",
        "client_request_id": request_id,
        "accepted": accepted,
        "result": {"error": "no", "code": "x"},
    }


def tool_status(status: str, **fields: object) -> Json:
    return {"type": "tool_status", "tool_call_id": "k1", "name": "clock", "message_id": "a", "status": status, **fields}


def agent_step(step_id: str, status: str, name: str = "plan", **fields: object) -> Json:
    step = {"run_id": "r1", "step_id": step_id, "kind": "step", "name": name, "status": status, "started_at": 1}
    return {"type": "agent_step", **step, **fields}


CALL = {"id": "k1", "index": 0, "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
HEAD = "chat c1 · New Chat · demo/echo\n"


def shown(*events: Json, own: tuple[str, ...] = (), is_live: bool = False, has_colors: bool = False) -> str:
    transcript = Transcript(own, is_live=is_live, has_colors=has_colors, width=40)
    return "".join(transcript.feed(event) for event in events)


def test_an_answer_is_shown_as_it_grows_and_its_final_word_is_not_repeated() -> None:
    assert (
        shown(
            snapshot(),
            added("u", "user", "hello", client_request_id="r1"),
            started("a"),
            delta("a", ("append_content", "You said"), ("append_content", ": ")),
            delta("a", ("append_content", "hello")),
            finished("a"),
            added("a", "assistant", "You said: hello", finish_reason="stop"),
            runtime("idle", outcome="complete"),
            own=("r1",),
        )
        == HEAD + "You said: hello\n"
    )


def test_what_others_say_is_shown_with_their_name() -> None:
    events = [snapshot(), added("u", "user", "hi", by="bob"), added("v", "user", [{"type": "text", "text": "ho"}])]
    assert shown(*events) == HEAD + "bob> hi\n> ho\n"


def test_history_is_its_last_messages_and_says_how_many_came_before() -> None:
    told = shown(snapshot(*[message(f"m{n}", "user", f"line {n}") for n in range(14)]))
    assert told.splitlines()[:3] == [HEAD.strip(), "… 4 earlier messages", "> line 4"]
    assert told.endswith("> line 13\n")


def test_a_late_joiner_sees_the_unfinished_answer_go_on() -> None:
    draft = message("a", "assistant", "Once upon")
    assert shown(snapshot(draft, state="generating"), delta("a", ("append_content", " a time"))) == (
        HEAD + "Once upon a time"
    )


def test_a_snapshot_in_the_middle_adds_what_is_missing_and_repeats_nothing() -> None:
    transcript = Transcript()
    for event in (snapshot(message("u", "user", "go")), started("a"), delta("a", ("append_content", "Once "))):
        transcript.feed(event)
    again = snapshot(message("u", "user", "go"), message("a", "assistant", "Once upon a"), state="generating")
    assert transcript.feed(again) == "upon a"
    whole = message("a", "assistant", "Once upon a time", finish_reason="stop")
    assert transcript.feed(snapshot(message("u", "user", "go"), whole)) == " time\n"
    assert transcript.feed(snapshot(message("u", "user", "go"), whole)) == ""


def test_an_answer_that_was_taken_back_or_changed_is_called_so() -> None:
    begun = [snapshot(), started("a"), delta("a", ("append_content", "Once "))]
    removed = {"type": "message_removed", "message_id": "a"}
    assert shown(*begun, removed, started("b"), delta("b", ("append_content", "Twice"))) == (
        HEAD + "Once \n(that answer was taken back)\nTwice"
    )
    assert shown(*begun, snapshot()) == HEAD + "Once \n(that answer was taken back)\n"
    assert shown(*begun, finished("a"), added("a", "assistant", "Cleaned")) == (
        HEAD + "Once \n(the answer now reads:)\nCleaned\n"
    )


def test_an_answer_without_text_goes_unsaid_and_so_does_a_change_that_is_no_edit() -> None:
    question = message("u", "user", "go")
    removed = {"type": "message_removed", "message_id": "a"}
    assert shown(snapshot(question), started("a"), removed) == shown(snapshot(question))
    for content, note in (("go", ""), ("stay", "(an earlier message was edited)\n")):
        updated = {"type": "message_updated", "message_id": "u", "message": message("u", "user", content)}
        assert shown(snapshot(question), updated) == shown(snapshot(question)) + note


def test_a_continued_answer_shows_its_new_part_only() -> None:
    events = [
        snapshot(message("a", "assistant", "Once", finish_reason="length")),
        started("a", append=True),
        delta("a", ("append_content", " upon")),
        added("a", "assistant", "Once upon"),
    ]
    assert shown(*events).startswith(HEAD + "Once\n upon")
    assert "now reads" not in shown(*events)


def test_reasoning_stands_dimmed_on_lines_of_its_own() -> None:
    events = [
        snapshot(),
        started("a"),
        delta("a", ("append_reasoning", "Let me "), ("append_reasoning", "see"), ("append_content", "Yes")),
    ]
    assert shown(*events) == HEAD + "Let me see\nYes"
    assert shown(*events, has_colors=True).endswith("\x1b[2mLet me \x1b[0m\x1b[2msee\x1b[0m\nYes")


def test_a_tool_call_is_one_line_with_arguments_result_and_time() -> None:
    events = [
        snapshot(),
        added("a", "assistant", "", tool_calls=[CALL], finish_reason="tool_calls"),
        tool_status("running"),
        tool_status("progress", progress=0.5, stage="asking"),
        added("t", "tool", "It is\n  noon.", tool_call_id="k1"),
        tool_status("done", elapsed_ms=3),
    ]
    assert shown(*events) == HEAD + '* clock(zone="UTC") → It is noon. (3 ms)\n'
    live = shown(*events, is_live=True)
    assert '* clock(zone="UTC") · asking · 50%\r\x1b[K' in live
    assert live.endswith('* clock(zone="UTC") → It is noon. (3 ms)\n')


def test_a_tool_call_ends_in_a_line_whichever_half_of_its_end_is_missing() -> None:
    failed = added("t", "tool", "no such zone", tool_call_id="k1", tool_failed=True)
    assert shown(snapshot(), failed, runtime("generating")) == HEAD + "! tool() → no such zone\n"
    assert shown(snapshot(), tool_status("denied"), runtime("generating")) == HEAD + "! clock() → denied\n"


def test_questions_name_the_call_and_its_arguments() -> None:
    reason = {"type": "confirmation", "tool_name": "write", "tool_call_id": "k1", "input": {"name": "a.md"}}
    limit = {"type": "round_limit", "tool_name": "", "tool_call_id": "limit-r"}
    asked = {"type": "pause_required", "reasons": [reason, limit]}
    expected = '? allow write(name="a.md")?\n? the limit of model calls is reached; continue?\n'
    assert shown(snapshot(), asked) == HEAD + expected
    assert shown(snapshot(state="paused", pause_reasons=[reason, limit])) == HEAD + expected


def test_how_a_run_ended_is_said_unless_all_went_well() -> None:
    error = {"type": "error", "code": "llm_error", "message": "The model failed.", "fatal": True}
    assert shown(snapshot(), error, runtime("error", outcome="error", error="The model failed.")) == (
        HEAD + "error: The model failed. (llm_error)\n"
    )
    assert shown(snapshot(), runtime("idle", outcome="aborted")) == HEAD + "(stopped)\n"
    assert shown(snapshot(), runtime("idle", outcome="limit")).endswith("limit of model calls in one run is reached)\n")
    assert shown(snapshot(), started("a"), finished("a", "length")) == HEAD + "(cut off: length)\n"


def test_a_refusal_is_shown_to_the_one_who_asked() -> None:
    assert shown(snapshot(), ack("r1", accepted=False), own=("r1",)) == HEAD + "error: no (x)\n"
    assert shown(snapshot(), ack("r2", accepted=False), own=("r1",)) == HEAD


def test_events_of_a_newer_server_are_skipped() -> None:
    assert shown(snapshot(), {"type": "hologram_updated", "data": {}}) == HEAD


@given(st.text(), st.text(), st.text())
def test_no_text_reaches_the_terminal_as_a_control_sequence(said: str, name: str, result: str) -> None:
    reason = {"type": "confirmation", "tool_name": name, "tool_call_id": "k", "input": {said: result}}
    call = {"id": "k1", "function": {"name": name, "arguments": said}}
    written = shown(
        snapshot(message("u", "user", said, by=name), message("x", name, result)),
        started("a"),
        delta("a", ("append_reasoning", said), ("append_content", result)),
        added("a", "assistant", "\x1b[2J", tool_calls=[call]),
        added("t", "tool", "\x1b]0;" + result, tool_call_id="k1"),
        {"type": "pause_required", "reasons": [reason]},
        {"type": "error", "code": "x", "message": said},
    )
    assert not set(written) & {chr(code) for code in (*range(9), *range(11, 32), 127, *range(128, 160))}


# Tests of `Standing`, the position in the chat.


def standing(*events: Json, awaited: str = "") -> Standing:
    chat = Standing()
    if awaited:
        chat.awaited.add(awaited)
    for event in events:
        chat.feed(event)
    return chat


TURN = [queue(1), ack("r1"), runtime("generating"), queue(0), runtime("idle", outcome="complete")]


def test_a_message_is_answered_when_its_run_rests_and_not_before() -> None:
    for count in range(len(TURN)):
        assert standing(snapshot(), *TURN[:count], awaited="r1").is_busy
    chat = standing(snapshot(), *TURN, awaited="r1")
    assert (chat.is_busy, chat.wants_line, chat.has_failed) == (False, True, False)


def test_a_message_that_waits_behind_another_run_is_not_answered_by_its_end() -> None:
    before = [snapshot(state="generating"), queue(1), ack("r1"), runtime("idle", outcome="complete")]
    assert standing(*before, awaited="r1").is_busy
    assert not standing(*before, runtime("generating"), queue(0), runtime("idle"), awaited="r1").is_busy


def test_a_snapshot_after_a_lost_connection_settles_what_was_answered_meanwhile() -> None:
    chat = standing(snapshot(), snapshot(message("u", "user", "hi", client_request_id="r1")), awaited="r1")
    assert not chat.is_busy
    assert standing(snapshot(), snapshot(), awaited="r1").is_busy


def test_a_refused_message_is_not_waited_for() -> None:
    chat = standing(snapshot(), ack("r1", accepted=False), awaited="r1")
    assert (chat.is_busy, chat.has_failed) == (False, True)


def test_a_question_is_asked_until_it_is_answered_here_or_elsewhere() -> None:
    reasons = [{"type": "confirmation", "tool_name": "w", "tool_call_id": key} for key in ("k1", "k2")]
    chat = standing(snapshot(), runtime("paused"), {"type": "pause_required", "reasons": reasons})
    assert (chat.wants_line, chat.questions) == (True, reasons)
    chat.answered.add("k1")
    assert chat.questions == reasons[1:]
    chat.feed({"type": "pause_cleared"})
    assert (chat.wants_line, chat.questions) == (False, [])
    chat.feed({"type": "pause_required", "reasons": reasons[:1]})
    assert chat.questions == reasons[:1]


def test_a_step_of_an_agent_gets_a_line_when_it_waits_and_when_it_has_ended() -> None:
    until = datetime(2031, 3, 9, 8, 0)
    assert (
        shown(
            snapshot(state="generating"),
            agent_step("1", "running"),
            agent_step("1", "done", elapsed_ms=1240),
            agent_step("1", "done", elapsed_ms=1240),
            agent_step("2", "failed", "fetch", error="ValueError", elapsed_ms=30),
            agent_step("3", "waiting", "Which one?", kind="ask"),
            agent_step("4", "waiting", "", kind="sleep", until=int(until.timestamp() * 1_000)),
            agent_step("5", "waiting", "", kind="sleep", until=10**18),
            agent_step("6", "waiting", "reader", kind="chat"),
            agent_step("7", "unknown", "pay"),
            agent_step("7", "cancelled", "pay\x1b[2J"),
        )
        == HEAD
        + """\
* plan → done (1240 ms)
! fetch → ValueError (30 ms)
* Which one? (waits for an answer)
* sleep (until 2031-03-09 08:00)
* sleep (until a distant day)
* reader (waits)
! pay → outcome unknown
! pay[2J → cancelled
"""
    )


def test_a_step_that_works_is_shown_until_the_next_output() -> None:
    live = shown(snapshot(), agent_step("1", "running"), agent_step("1", "done"), is_live=True)
    assert live == HEAD + "* plan\r\x1b[K* plan → done\n"


def test_a_snapshot_adds_the_steps_that_are_not_on_the_screen() -> None:
    done, failed = agent_step("1", "done"), agent_step("2", "failed", "fetch")
    again = snapshot(state="idle", run_id="r1", agent_steps=[done, failed])
    assert shown(again) == HEAD, "the steps of a run that is over"
    assert shown(snapshot(state="generating", run_id="r2", agent_steps=[done])) == HEAD
    begun = snapshot(state="generating", run_id="r1", agent_steps=[done])
    assert shown(begun, again) == HEAD + "* plan → done\n! fetch → failed\n"
    assert shown(again, agent_step("1", "done", run_id="r3")) == HEAD + "* plan → done\n"


def test_steps_stand_before_the_answer_that_a_snapshot_shows_unfinished() -> None:
    open_answer = message("a", "assistant", "So fa")
    begun = snapshot(open_answer, state="generating", run_id="r1", agent_steps=[agent_step("1", "done")])
    assert shown(begun, delta("a", ("append_content", "r."))) == HEAD + "* plan → done\nSo far."
