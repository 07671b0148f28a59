"""Text that a continued answer repeats is removed; text that only looks like a repetition is kept (PROTOCOL §6)."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadcast.agent_loop.answer.continuation import (
    LEAST_REPEAT_CHARACTERS,
    WINDOW_CHARACTERS,
    Continuation,
    Repeats,
    WhiteSpace,
)
from threadcast.providers.base import Delta, Finished, ReasoningDelta, TextDelta, ToolCallDelta

SHOWN = "The harbour wakes early. Boats leave at dawn, and the town counts them."

LETTERS = st.text(alphabet="ab\n", max_size=60)
"""Texts of few letters, so that they repeat each other and themselves in many ways."""


def cut(text: str, at: list[int]) -> list[str]:
    """Return `text` in pieces, cut at these places."""
    edges = sorted({0, len(text), *(edge for edge in at if edge <= len(text))})
    return [text[begin:end] for begin, end in pairwise(edges)]


def said(texts: Repeats | WhiteSpace, pieces: list[str]) -> str:
    return "".join([*(texts.feed(piece) for piece in pieces), texts.end()])


def by_definition(shown: str, text: str) -> str:
    """Apply the rule in one line: remove from the beginning of `text` the longest end of `shown`."""
    for count in range(min(len(shown), len(text)), LEAST_REPEAT_CHARACTERS - 1, -1):
        if text.startswith(shown[len(shown) - count :]):
            return text[count:]
    return text


@pytest.mark.row("OLD-11", "CMD-6")
@given(shown=LETTERS, text=LETTERS, at=st.lists(st.integers(0, 60)), more=LETTERS, end=st.integers(0, 60))
@example(shown="a" * 40, text="a" * 30, at=[25], more="b", end=0)
@example(shown="ab" * 15 + "a", text="ab" * 15, at=[], more="", end=0)
def test_the_longest_repeated_end_is_left_out_however_the_stream_is_cut(
    shown: str, text: str, at: list[int], more: str, end: int
) -> None:
    for told in (text, shown[-end:] + more, shown[:end] + more):
        assert said(Repeats(shown), cut(told, at)) == by_definition(shown, told)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (SHOWN + " Nobody sleeps.", " Nobody sleeps."),
        ("and the town counts them. Nobody sleeps.", " Nobody sleeps."),
        (SHOWN, ""),
        ("counts them. Nobody sleeps.", "counts them. Nobody sleeps."),  # 12 characters
        ("Boats leave at dawn, and gulls follow.", "Boats leave at dawn, and gulls follow."),
        ("The harbour wakes early. Boats stay.", "The harbour wakes early. Boats stay."),
        (f"Well: {SHOWN}", f"Well: {SHOWN}"),
        (SHOWN + SHOWN, SHOWN),
        ("", ""),
    ],
)
def test_only_a_repetition_at_the_very_start_is_left_out_and_one_that_diverges_is_said_whole(
    text: str, left: str
) -> None:
    for size in (1, 7, 1_000):
        assert said(Repeats(SHOWN), cut(text, list(range(0, len(text), size)))) == left


def test_a_short_repetition_is_meant() -> None:
    assert said(Repeats("He laughed: ha ha"), [" ha ha", "!"]) == " ha ha!"
    assert said(Repeats("one two"), list("one two three four")) == "one two three four"


def test_text_that_is_surely_new_is_not_held_back() -> None:
    repeats = Repeats(SHOWN)
    assert repeats.feed("Boats") == ""
    assert repeats.feed(" come") == "Boats come"
    assert repeats.feed(" back") == " back"


@pytest.mark.parametrize("text", ["a" * 200_000, "a" * 30_000 + "b", ("a" * 999 + "b") * 60])
def test_what_is_held_back_and_what_it_costs_are_bounded(text: str) -> None:
    shown = ("a" * 999 + "b") * 20 + "a" * 100_000
    repeats, held, most = Repeats(shown), 0, 0
    for piece in cut(text, list(range(0, len(text), 50))):
        held += len(piece) - len(repeats.feed(piece))
        most = max(most, held)
    assert most <= WINDOW_CHARACTERS


@given(before=LETTERS, after=LETTERS, at=st.lists(st.integers(0, 60)))
def test_of_a_prefilled_answer_only_the_white_space_that_was_not_sent_may_come_again(
    before: str, after: str, at: list[int]
) -> None:
    space = before[len(before.rstrip()) :]
    common = next(n for n in range(len(space), -1, -1) if after.startswith(space[:n]))
    assert said(WhiteSpace(before), cut(after, at)) == after[common:]
    assert said(WhiteSpace(SHOWN + space), [SHOWN]) == SHOWN


def test_what_is_held_back_comes_before_a_call_and_before_the_end() -> None:
    deltas: list[Delta] = [ReasoningDelta("hm"), TextDelta("Boats leave"), ToolCallDelta(0, "c", "clock")]
    unsaid = Continuation(SHOWN, is_prefilled=False)
    assert [each for delta in deltas for each in unsaid.feed(delta)] == deltas
    unsaid = Continuation(SHOWN, is_prefilled=False)
    assert [each for delta in (TextDelta(SHOWN[:20]), Finished("stop")) for each in unsaid.feed(delta)] == [
        TextDelta(SHOWN[:20]),
        Finished("stop"),
    ]
