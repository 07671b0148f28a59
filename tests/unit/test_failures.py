"""A failure is recorded at its message: at the broken answer, or else at the question or the result.

A provider's error message is untrusted text: it is cleaned, cut, and freed of secrets and of the system prompt.
"""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.answer.thinking import Thinking
from threadcast.agent_loop.reasons import REASON_MAX_CHARACTERS, Reasons
from threadcast.base.redaction import Redactor
from threadcast.chat.runs import fail_run
from threadcast.providers.base import ReasoningDelta, TextDelta, ToolCallDelta
from threadcast.providers.failures import model_failed, retry_after
from threadcast_protocol.wire.commands import Abort, ContinueMessage, Regenerate, UpdateMessage
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, MergeExtra
from threadcast_protocol.wire.errors import CODES, ModelFailed
from threadcast_protocol.wire.events import ErrorHappened
from threadcast_protocol.wire.failures import (
    CRASH_LOOP,
    ROUND_LIMIT,
    STOPPED,
    Failure,
    failure_of,
    with_failure,
    without_failure,
)
from threadcast_protocol.wire.messages import Message

BROKEN = Failure(code="stream_error", message="The model failed.")


def leaf(chat: PureChat) -> Message:
    return chat.state.nodes[chat.state.path[-1]]


@pytest.mark.row("ERR-3", "LOOP-8")
def test_a_question_without_an_answer_says_why_also_after_the_next_one() -> None:
    chat = PureChat(table(), say("a", "first"))
    chat.break_off("auth_failed")
    question = leaf(chat)
    assert (question.role, failure_of(question)) == ("user", Failure(code="auth_failed", message="The model failed."))
    chat.command(say("b", "second"))
    chat.finish("fine")
    assert chat.state.runtime.error is None
    assert failure_of(chat.state.nodes[question.message_id]) == failure_of(question)
    assert failure_of(leaf(chat)) is None


@pytest.mark.parametrize("op", [AppendContent("half"), AppendReasoning("hm")], ids=["text", "reasoning"])
def test_a_broken_answer_says_why_and_its_continuation_no_more(op: AppendContent | AppendReasoning) -> None:
    chat = PureChat(table(), say("a"))
    chat.stream(op)
    chat.break_off()
    broken = leaf(chat)
    assert (broken.role, failure_of(broken)) == ("assistant", BROKEN)
    assert failure_of(chat.state.nodes[chat.state.path[0]]) is None, "it stands once"
    chat.command(ContinueMessage(client_request_id="c", message_id=broken.message_id))
    chat.finish(" and whole")
    assert leaf(chat).message_id == broken.message_id and failure_of(leaf(chat)) is None


def test_a_result_that_the_model_never_answered_says_why() -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}), say("a"))
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    chat.break_off()
    assert (leaf(chat).role, failure_of(leaf(chat))) == ("tool", BROKEN)


def test_a_reached_limit_of_rounds_stands_with_the_last_result() -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}, max_rounds=1), say("a"))
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    found = failure_of(leaf(chat))
    assert chat.state.runtime.outcome == "limit" and found is not None and found.code == "max_tool_rounds"


def test_stop_before_the_first_word_stays_with_the_question_and_a_retry_takes_its_place() -> None:
    chat = PureChat(table(), say("a"), Abort(client_request_id="x"))
    question = leaf(chat)
    assert (question.role, failure_of(question)) == ("user", STOPPED)
    chat.command(Regenerate(client_request_id="r"))
    chat.break_off()
    assert leaf(chat).message_id == question.message_id and failure_of(leaf(chat)) == BROKEN
    chat.command(Regenerate(client_request_id="s"))
    chat.finish("fine")
    assert [chat.state.nodes[key].role for key in chat.state.path] == ["user", "assistant"]
    assert failure_of(leaf(chat)) is None


def test_a_stopped_answer_that_has_text_needs_no_failure() -> None:
    chat = PureChat(table(), say("a"))
    chat.stream(AppendContent("half"))
    chat.command(Abort(client_request_id="x"))
    assert (leaf(chat).finish_reason, failure_of(leaf(chat))) == ("abort", None)


def test_an_edited_question_does_not_inherit_the_failure() -> None:
    chat = PureChat(table(), say("a"))
    chat.break_off()
    old = leaf(chat)
    chat.command(UpdateMessage(client_request_id="u", message_id=old.message_id, content="better", mode="branch"))
    assert leaf(chat).message_id != old.message_id and failure_of(leaf(chat)) is None
    assert failure_of(chat.state.nodes[old.message_id]) == BROKEN


def test_a_failure_stands_in_a_form_that_older_versions_carry_and_forged_ones_are_none() -> None:
    message = Message(role="user", content="q", message_id="m", extra={"mine": 1})
    failed = with_failure(
        message, Failure(code="timeout", message="Late.", status=504, retry_at=5, reason="r", model="m")
    )
    assert msgspec.convert(msgspec.to_builtins(failed), Message) == failed
    assert without_failure(failed) == message and without_failure(message) is message
    forgeries: list[object] = ["x", 7, [], {"code": 7, "message": "m"}, {"code": "timeout"}]
    for forged in forgeries:
        assert failure_of(msgspec.structs.replace(message, extra={"failure": forged})) is None


def test_the_event_says_what_the_message_says() -> None:
    chat = PureChat(table(), say("a"))
    told = Failure(code="rate_limited", message="Too many.", reason="slow down", status=429, retry_at=9, model="a/b")
    chat.write(lambda builder: fail_run(builder, told))
    error = next(event for event in chat.events if isinstance(event, ErrorHappened))
    assert error.details == {"reason": "slow down", "status": 429, "retry_at": 9, "model": "a/b"}
    assert failure_of(leaf(chat)) == told


def test_codes_of_ready_failures_are_known() -> None:
    assert {each.code for each in (STOPPED, ROUND_LIMIT, CRASH_LOOP)} <= CODES


SYSTEM = "You are the harbour master's assistant. The word of the day is heliotrope, tell nobody."

SAID = [
    ("Incorrect API key provided: sk-abc123def456.", "Incorrect API key provided: ***."),
    ("key sk-proj-ab***xyz is wrong", "key *** is wrong"),
    (
        "Rate limit reached in organization org-AbCdEfGh1234 on tokens",
        "Rate limit reached in organization *** on tokens",
    ),
    ("see http://ann:hunter22@10.0.0.1/x", "see http://***@10.0.0.1/x"),
    ("password=hunter22, user=ann", "password=***, user=ann"),
    ("Bearer abcdefgh12345 refused", "*** refused"),
    ("the configured word planted-secret-1 was sent", "the configured word *** was sent"),
    ("id 0123456789abcdef0123456789abcdef is gone", "id *** is gone"),
    ("two\r\nlines\tand \x1b[31mred\x00", "two lines and [31mred"),
    ("turned \u202ednuora\u202c and \ufeffmarked", "turned dnuora and marked"),
    ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
    (
        "maximum context length is 8192 tokens, max_tokens: 4096",
        "maximum context length is 8192 tokens, max_tokens: 4096",
    ),
    ("claude-3-7-sonnet-20250219 is not found", "claude-3-7-sonnet-20250219 is not found"),
    (f"bad input: 'x' in {SYSTEM}", ""),
    ("   \n ", ""),
]


@pytest.mark.row("ERR-2")
@pytest.mark.parametrize(("said", "shown"), SAID)
def test_a_providers_words_are_one_clean_line_without_secrets(said: str, shown: str) -> None:
    assert Reasons(Redactor(["planted-secret-1"])).cleaned(said, SYSTEM) == shown


KEY = "correct-horse-battery"
UNSEEN = "\u200b\u00ad\u200c\u200d\u2060\u202e\ufeff\u034f\ufe0f\u3164\0\x7f\U000e0001"


@pytest.mark.row("ERR-2")
@pytest.mark.parametrize("mark", UNSEEN)
def test_a_secret_with_marks_inside_that_nobody_sees_is_masked(mark: str) -> None:
    reasons = Reasons(Redactor([KEY]))
    for hidden in (KEY[:5] + mark + KEY[5:], mark.join(KEY), KEY[:3] + mark * 9 + KEY[3:]):
        assert reasons.cleaned(f"bad key {hidden}.", "") == "bad key ***."
        assert Redactor([KEY]).text(model_failed("refused", f"bad key {hidden}.").detail) == "bad key ***."
    assert reasons.cleaned("bad key " + mark.join("sk-abcdef1234567890"), "") == "bad key ***"


@pytest.mark.row("ERR-2")
def test_a_secret_is_masked_in_either_case_and_not_shown_by_half_where_the_text_is_cut() -> None:
    reasons = Reasons(Redactor([KEY]))
    assert reasons.cleaned(f"bad {KEY.upper()}", "") == "bad ***"
    for size in range(3_970, 4_020):
        assert "correct" not in reasons.cleaned("a" + " \u200b" * size + KEY, "")
    for size in range(15_970, 16_010):
        assert "correct" not in reasons.cleaned("a" + " " * size + KEY, "")


def test_scripts_with_joiners_and_without_blanks_are_shown() -> None:
    assert Reasons().cleaned("字" * 30_000, "") == "字" * 299 + "…"
    assert Reasons().cleaned("می\u200cخواهم 👩\u200d💻", "") == "می\u200cخواهم 👩\u200d💻"


@pytest.mark.row("ERR-2")
@given(st.integers(0, 300), st.integers(0, 60), st.integers(30, 34))
def test_a_quotation_of_the_system_prompt_is_found_wherever_it_stands(before: int, at: int, size: int) -> None:
    prompt = "".join(chr(0x4E00 + (7 * place) % 5_000) for place in range(400))
    said = "x" * at + prompt[before : before + size] + "y"
    assert (Reasons().cleaned(said, prompt) == "") is (len(prompt[before : before + size]) >= 32)


def test_a_hostile_prompt_is_searched_in_a_moment() -> None:
    begun = time.process_time()
    assert Reasons().cleaned(("ab" * 15 + "c") * 130, "ab" * 500_000)
    assert time.process_time() - begun < 2.0, "it took nine seconds to look for each piece in all of it"


@given(st.text(max_size=6_000))
def test_whatever_a_provider_says_is_bounded_and_holds_no_control_characters(said: str) -> None:
    shown = Reasons().cleaned(said, SYSTEM)
    assert len(shown) <= REASON_MAX_CHARACTERS and shown == shown.strip()
    assert all(sign.isprintable() or sign in "\u200c\u200d" or sign == "\u3000" for sign in shown.replace(" ", ""))


@given(st.text(max_size=5_000), st.text(max_size=5_000))
def test_a_known_secret_is_never_shown_wherever_it_is_cut(before: str, after: str) -> None:
    secret = "planted-secret-of-some-length"
    assert secret not in Reasons(Redactor([secret])).cleaned(before + secret + after, "")


def test_an_operator_may_keep_the_providers_words_inside() -> None:
    failed = model_failed("rate_limited", "d", body={"message": "pay first"}, status=429, retry_after_seconds=2)
    hidden, shown = Reasons(is_shown=False), Reasons()
    assert hidden.cleaned(failed.reason, "") == ""
    assert hidden.failure(failed, "a/b", 1_000) == Failure(
        code="rate_limited", message=failed.message, retry_at=3_000, model="a/b"
    )
    told = shown.failure(failed, "a/b", 1_000)
    assert (told.reason, told.status, told.retry_at) == ("pay first", 429, 3_000)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"message": "m", "type": "t"}, "m"),
        ({"error": {"message": "m"}}, "m"),
        ({"error": "m"}, "m"),
        ({"detail": "m"}, "m"),
        ({"detail": [{"loc": ["body"], "msg": "m"}]}, ""),
        ("plain", "plain"),
        ("<html>bad gateway</html>", ""),
        (None, ""),
        ({}, ""),
        ([1], ""),
        ({"error": {"error": {"error": {"message": "deep"}}}}, ""),
        ({"message": "m" * 100_000}, "m" * 20_000),
    ],
)
def test_the_sentence_of_an_errors_body_is_found(body: object, said: str) -> None:
    assert model_failed("refused", body=body).reason == said


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "20"}, 1.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "9999999"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1e400"}, None),
        ({"retry-after": "86400"}, 86_400.0),
        ({"retry-after": "86401"}, None),
        ({"retry-after": "Mon, 01 Jan 2026 00:00:00 +99999999999999"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999999 00:00:00 GMT"}, None),
        ({}, None),
    ],
)
def test_when_to_try_again_is_what_the_provider_says(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def thought(thinking: Thinking, *deltas: object) -> list[object]:
    told = [thinking.feed(delta) for delta in deltas]  # type: ignore[arg-type]  # deltas, as the tests write them
    return [each.extra["reasoning_ms"] if isinstance(each, MergeExtra) else each for each in told]


def test_the_time_of_thinking_ends_with_the_first_word_and_is_told_each_second() -> None:
    now = [100.0]
    thinking = Thinking({}, clock=lambda: now[0])
    assert thought(thinking, ReasoningDelta("a")) == [None]
    now[0] += 0.7
    assert thought(thinking, ReasoningDelta("b")) == [None]
    now[0] += 0.4
    assert thought(thinking, ReasoningDelta("c")) == [1_100]
    now[0] += 0.2
    assert thought(thinking, TextDelta("so")) == [1_300]
    now[0] += 9
    assert thought(thinking, TextDelta(" it"), ToolCallDelta(0, "c", "clock")) == [None, None]
    assert thought(thinking, ReasoningDelta("again")) == [None]
    now[0] += 0.5
    end = thinking.end()
    assert end is not None and end.extra == {"reasoning_ms": 1_800} and thinking.end() is None


def test_an_answer_that_is_written_on_adds_to_its_time_and_no_time_is_still_some() -> None:
    thinking = Thinking({"reasoning_ms": 40}, clock=lambda: 1.0)
    assert thought(thinking, ReasoningDelta("a"), TextDelta("b")) == [None, 40]
    assert thought(Thinking({"reasoning_ms": "x"}, clock=lambda: 1.0), ReasoningDelta("a"), TextDelta("b")) == [None, 1]
    assert thought(Thinking({}, clock=lambda: 1.0), ReasoningDelta(""), TextDelta("b")) == [None, None]


@pytest.mark.parametrize("before", [10**400, 1e308, float("inf"), float("nan"), True, -5, 10**12 + 1, None, [1]])
def test_a_time_of_thinking_that_cannot_be_counts_as_none(before: object) -> None:
    thinking = Thinking({"reasoning_ms": before}, clock=lambda: 1.0)
    assert thought(thinking, ReasoningDelta("a"), TextDelta("b")) == [None, 1]


def test_an_error_of_ours_has_no_reason() -> None:
    assert Reasons().failure(ModelFailed("llm_error", "No such model."), "x/y", 5) == Failure(
        code="llm_error", message="No such model.", model="x/y"
    )
