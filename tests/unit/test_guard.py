"""The reply guard: answers in a forbidden script are requested again, a bounded number of times (LOOP-10)."""

from typing import get_args

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.steps import CallModel
from threadcast.profiles.profile import ChatTools, Profile
from threadcast.profiles.reply_guard import INSTRUCTION, SCRIPTS, ReplyGuard, refuses, script_of
from threadcast.settings.agent import Script
from threadcast_protocol.wire.commands import Abort
from threadcast_protocol.wire.deltas import AppendContent, SetToolCalls
from threadcast_protocol.wire.events import RuntimeUpdated

HAN = ReplyGuard(forbid_scripts=["Han"])
CHINESE = "这个问题很有意思"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (CHINESE, True),
        (f"Of course. {CHINESE}", True),
        ("Plain English, café included.", False),
        ("The capital is Beijing (北京).", False),
        ("中文答案", True),
        ("中文答", False),
        (f"{'He wrote a long letter to everybody. ' * 6}{CHINESE}", False),
        (f"Write:\n```python\nprint('{CHINESE}')\n```\nand run it.", False),
        (f"The constant `{CHINESE}` is unused.", False),
        (f"```\n{CHINESE}", False),
        ("Очень интересно", False),
        ("", False),
    ],
)
def test_what_is_written_in_the_script_is_refused_and_what_only_shows_it_is_not(text: str, is_refused: bool) -> None:
    assert refuses(HAN, text) is is_refused


@pytest.mark.parametrize(
    ("letter", "script"),
    [("中", "Han"), ("ア", "Japanese"), ("한", "Hangul"), ("Ж", "Cyrillic"), ("a", "Latin"), ("Ա", "")],
)
def test_a_letter_has_the_script_that_unicode_names(letter: str, script: str) -> None:
    assert script_of(letter) == script


def test_latin_can_be_forbidden_too() -> None:
    assert refuses(ReplyGuard(forbid_scripts=["Latin"]), "plain ascii")


def test_every_script_that_can_be_configured_is_known() -> None:
    assert set(get_args(Script)) == set(SCRIPTS)


def guarded(max_rounds: int = 20, max_retries: int = 1) -> PureChat:
    guard = ReplyGuard(forbid_scripts=["Han"], max_retries=max_retries)
    profile = Profile(name="agent", params={"max_rounds": max_rounds}, reply_guard=guard)
    return PureChat(ChatTools(profile, {"clock": FakeTool(name="clock")}, frozenset(), "demo/echo"), say("a", "why?"))


def answer(chat: PureChat, text: str) -> None:
    chat.says(text)


def shown(chat: PureChat) -> list[tuple[str, str]]:
    return [(m.role, str(m.content)) for m in (chat.state.nodes[key] for key in chat.state.path)]


def ended(chat: PureChat) -> RuntimeUpdated:
    return [event for event in chat.events if isinstance(event, RuntimeUpdated)][-1]


def read(chat: PureChat) -> list[tuple[str, str]]:
    return [(m.role, str(m.content)) for m in model_view(chat.state, {})]


@pytest.mark.row("LOOP-10")
def test_a_refused_answer_stays_and_the_model_is_told_in_secret_to_answer_again() -> None:
    chat = guarded()
    answer(chat, CHINESE)
    assert isinstance(chat.step, CallModel)
    assert chat.state.runtime.status_text == "answering again: wrong language"
    assert read(chat) == [("user", "why?"), ("assistant", CHINESE), ("user", INSTRUCTION)]
    answer(chat, "Because.")
    assert shown(chat) == [("user", "why?"), ("assistant", CHINESE), ("assistant", "Because.")]
    assert [chat.state.nodes[key].kind for key in chat.state.path] == [None, "refused", None]
    assert chat.state.runtime.outcome == "complete"
    assert not ended(chat).status_text
    (aside,) = chat.state.private.asides
    assert (aside.message.kind, aside.message.hidden) == ("guard", True)


@pytest.mark.row("LOOP-10")
@pytest.mark.parametrize("retries", [1, 2])
def test_after_its_retries_the_answer_is_taken_as_it_is(retries: int) -> None:
    chat = guarded(max_retries=retries)
    for _ in range(retries):
        answer(chat, CHINESE)
        assert isinstance(chat.step, CallModel)
    answer(chat, CHINESE)
    assert chat.is_waiting
    assert chat.state.runtime.outcome == "complete"
    assert len(chat.state.private.asides) == retries


def test_every_run_has_its_own_retries() -> None:
    chat = guarded()
    answer(chat, CHINESE)
    answer(chat, "Because.")
    chat.command(say("b", "and?"))
    answer(chat, CHINESE)
    assert isinstance(chat.step, CallModel)


def test_the_round_counts_and_without_one_left_the_answer_is_taken() -> None:
    chat = guarded(max_rounds=1)
    answer(chat, CHINESE)
    assert chat.state.runtime.outcome == "complete"
    assert chat.state.private.asides == ()


def test_a_crash_in_the_second_answer_neither_loses_the_round_nor_notes_it_twice() -> None:
    chat = guarded()
    answer(chat, CHINESE)
    chat.stream(AppendContent("Bec"))
    chat.crash()
    assert isinstance(chat.step, CallModel)
    assert len(chat.state.private.asides) == 1
    assert read(chat)[-1] == ("user", INSTRUCTION)
    answer(chat, CHINESE)
    assert chat.state.runtime.outcome == "complete"


def test_a_text_beside_calls_is_no_final_answer() -> None:
    chat = guarded()
    chat.stream(AppendContent(CHINESE), SetToolCalls([call("c0", "clock")]))
    chat.finish()
    chat.tool_answers("noon")
    assert chat.state.private.asides == ()


def test_a_message_that_steers_and_an_abort_go_before_the_guard() -> None:
    chat = guarded()
    chat.command(say("b", "never mind", priority=True))
    answer(chat, CHINESE)
    assert chat.state.private.asides == ()
    chat = guarded()
    answer(chat, CHINESE)
    chat.command(Abort(client_request_id="stop"))
    assert chat.state.runtime.outcome == "aborted"
