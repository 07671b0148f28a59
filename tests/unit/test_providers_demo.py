"""The provider that needs no key: its scripts, its pace on a virtual clock, its exact continuation."""

import asyncio
import selectors
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.base import (
    Delta,
    Finished,
    ModelNamed,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolSpec,
    UsageReported,
)
from threadcast.providers.demo.calls import WantedCall, wanted_calls
from threadcast.providers.demo.models import Demo
from threadcast.providers.demo.text import essay, words_of
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall, Usage

pytestmark = pytest.mark.anyio
_T = TypeVar("_T")

TOOLS = [ToolSpec(name, "", {"type": "object"}) for name in ("calculator", "clock", "countdown", "write_note")]


def ask(model: str, text: str = "hello", *, tools: list[ToolSpec] | None = None, prefix: str = "") -> Request:
    user = Message(role="user", content=text, message_id="u")
    return Request(model=model, messages=[user], tools=tools or [], prefix=prefix)


async def collect(request: Request) -> list[Delta]:
    async with asyncio.timeout(5):
        return [delta async for delta in Demo().stream(request)]


def text_in(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def failure_of(request: Request, before: list[Delta] | None = None) -> ModelFailed:
    seen = before if before is not None else []
    async with asyncio.timeout(5):
        with pytest.raises(ModelFailed) as failed:
            async for delta in Demo().stream(request):
                seen.append(delta)
    return failed.value


async def test_echo_says_what_was_said_word_by_word_and_reports_model_and_usage() -> None:
    assert await collect(ask("echo?rate=0", "good  day")) == [
        ModelNamed("demo/echo"),
        TextDelta("You "),
        TextDelta("said: "),
        TextDelta("good  "),
        TextDelta("day"),
        UsageReported(Usage(2, 4, 6)),
        Finished("stop"),
    ]


async def test_essay_has_the_words_asked_for_and_is_the_same_every_time() -> None:
    first = text_in(await collect(ask("essay?words=400&rate=0")))
    assert len(first.split()) == 400
    assert text_in(await collect(ask("essay?words=400&rate=0"))) == first
    assert text_in(await collect(ask("essay?words=400&rate=0&seed=1"))) != first
    assert text_in(await collect(ask("essay?words=400&rate=0", "other"))) != first


@given(st.integers(0, 300), st.text(max_size=5))
def test_essays_have_any_length_and_survive_being_cut_into_words(count: int, seed: str) -> None:
    text = essay(count, seed)
    assert len(text.split()) == count
    assert "".join(words_of(text)) == text


@given(st.text())
def test_any_text_survives_being_cut_into_words(text: str) -> None:
    assert "".join(words_of(text)) == text


@pytest.mark.parametrize("model", ["echo?rate=0", "essay?words=40&rate=0", "tools?rate=0", "reasoning?rate=0"])
async def test_answer_continues_exactly_after_any_prefix_of_itself(model: str) -> None:
    tools = TOOLS if model.startswith("tools") else []
    whole = text_in(await collect(ask(model, "what is 6 * 7", tools=tools)))
    assert len(whole) > 10
    for end in range(len(whole) + 1):
        rest = await collect(ask(model, "what is 6 * 7", tools=tools, prefix=whole[:end]))
        assert whole[:end] + text_in(rest) == whole
        assert not end or not any(isinstance(delta, ReasoningDelta) for delta in rest)


async def test_prefix_of_another_answer_is_refused() -> None:
    assert (await failure_of(ask("echo", prefix="Something else"))).code == "llm_error"


async def test_reasoning_comes_before_the_text() -> None:
    kinds = [type(delta) for delta in await collect(ask("reasoning?rate=0&words=3"))]
    thoughts = kinds.count(ReasoningDelta)
    assert thoughts > 3
    assert kinds == [ModelNamed, *[ReasoningDelta] * thoughts, *[TextDelta] * 3, UsageReported, Finished]


class _Clock(selectors.DefaultSelector):
    """Waiting takes no time: the clock is moved on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_seconds += timeout or 0
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_seconds


def in_virtual_time(main: Callable[[], Coroutine[None, None, _T]]) -> _T:
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main())


async def times_of_words(model: str, *, work_seconds: float = 0) -> list[float]:
    times = []
    async for delta in Demo().stream(ask(model)):
        if isinstance(delta, TextDelta):
            times.append(round(asyncio.get_running_loop().time(), 6))
            await asyncio.sleep(work_seconds)
    return times


def test_pace_does_not_drift_when_the_reader_takes_its_time() -> None:
    paced = [pytest.approx(number / 50, abs=0.001) for number in range(100)]
    assert in_virtual_time(lambda: times_of_words("essay?words=100&rate=50")) == paced
    assert in_virtual_time(lambda: times_of_words("essay?words=100&rate=50", work_seconds=0.015)) == paced


def test_rate_zero_takes_no_time() -> None:
    assert in_virtual_time(lambda: times_of_words("essay?words=100&rate=0")) == [0.0] * 100


def test_slow_waits_for_its_first_word_only() -> None:
    times = in_virtual_time(lambda: times_of_words("slow?delay=7&words=3"))
    assert times == [pytest.approx(expected, abs=0.001) for expected in (7, 7.5, 8)]


async def test_rate_zero_still_lets_others_run() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await collect(ask("essay?words=100&rate=0"))
    task.cancel()
    assert turns >= 100


async def test_hang_says_its_words_and_then_waits_until_it_is_cancelled() -> None:
    seen: list[Delta] = []
    said_all = asyncio.Event()

    async def listen() -> None:
        async with aclosing(_generator(ask("hang?after=3&rate=0"))) as deltas:
            async for delta in deltas:
                seen.append(delta)
                if len(seen) == 4:
                    said_all.set()

    task = asyncio.create_task(listen())
    await asyncio.wait_for(said_all.wait(), 5)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
    assert len(text_in(seen).split()) == 3


async def _generator(request: Request) -> AsyncGenerator[Delta, None]:
    async for delta in Demo().stream(request):
        yield delta


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("error", "llm_error"),
        ("error?at=start", "llm_error"),
        ("error?code=rate_limited", "rate_limited"),
        ("error?code=context_overflow&at=start", "context_overflow"),
    ],
)
async def test_error_fails_at_the_start_with_the_code_asked_for(model: str, code: str) -> None:
    seen: list[Delta] = []
    assert (await failure_of(ask(model), seen)).code == code
    assert seen == []


async def test_error_after_some_words_is_a_broken_stream() -> None:
    seen: list[Delta] = []
    assert (await failure_of(ask("error?after=5&rate=0"), seen)).code == "stream_error"
    assert len(text_in(seen).split()) == 5
    again: list[Delta] = []
    prefix = " ".join(text_in(seen).split()[:3])
    await failure_of(ask("error?after=5&rate=0", prefix=prefix), again)
    assert prefix + text_in(again) == text_in(seen)


@pytest.mark.row("LOOP-8")
@pytest.mark.parametrize(
    "model",
    [
        "nonexistent",
        "nonexistent-model",
        "essay?seed=nonexistent",
        "gpt-5",
        "",
        "essay?words=-1",
        "essay?words=nan",
        "essay?words=1e9",
        "essay?colour=red",
        "error?code=teapot",
        "echo?words=5",
        "slow?delay=soon",
    ],
)
async def test_what_does_not_exist_ends_in_a_clear_sentence(model: str) -> None:
    seen: list[Delta] = []
    failure = await failure_of(ask(model), seen)
    assert (failure.code, seen) == ("llm_error", [])
    assert "demo/" in failure.message


def calls_in(deltas: list[Delta]) -> list[tuple[str, str]]:
    assembler = Assembler(set(), lambda: "made")
    for delta in deltas:
        assembler.feed(delta)
    return [(call.function.name, call.function.arguments) for call in assembler.tool_calls()]


async def test_directives_call_any_tool_with_exactly_these_arguments_in_fragments() -> None:
    text = 'please\ncall calculator {"expression": "1+1"}\n  call mcp__x__y\ncall clock {broken \nthank you'
    deltas = await collect(ask("tools?rate=0", text, tools=TOOLS))
    assert calls_in(deltas) == [
        ("calculator", '{"expression": "1+1"}'),
        ("mcp__x__y", ""),
        ("clock", "{broken"),
    ]
    assert deltas[-1] == Finished("tool_calls")
    fragments = [delta for delta in deltas if getattr(delta, "index", None) == 0]
    assert len(fragments) > 3


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What time is it?", [("clock", "{}")]),
        ("how much is (2 + 3) * 4?", [("calculator", '{"expression":"(2 + 3) * 4"}')]),
        ("6*7, and look at the clock", [("calculator", '{"expression":"6*7"}'), ("clock", "{}")]),
        ("Write it down", [("write_note", '{"name":"note.md","text":"Write it down"}')]),
        ("Count down from 3", [("countdown", '{"start":3}')]),
        ("I bought 3 apples on a well-known market", []),
        ("call me sometime", []),
    ],
)
def test_plain_words_ask_for_tools_too(text: str, calls: list[tuple[str, str]]) -> None:
    assert wanted_calls(text, {tool.name for tool in TOOLS}) == [WantedCall(*call) for call in calls]


def test_plain_words_ask_only_for_tools_that_are_offered() -> None:
    assert wanted_calls("What time is it? 1+1", {"clock"}) == [WantedCall("clock", "{}")]


async def test_without_any_tool_offered_it_explains_itself() -> None:
    deltas = await collect(ask("tools?rate=0", "call clock {}"))
    assert calls_in(deltas) == []
    assert "I call tools" in text_in(deltas)


def after_rounds(model: str, rounds: int) -> Request:
    """Return the request that follows `rounds` rounds of one clock call each."""
    messages = [Message(role="user", content="What time is it?", message_id="u")]
    for number in range(rounds):
        call = ToolCall(f"c{number}", 0, FunctionCall("clock", "{}"))
        messages.append(Message(role="assistant", content="", message_id=f"a{number}", tool_calls=[call]))
        messages.append(
            Message(role="tool", content=f"noon {number}", message_id=f"t{number}", tool_call_id=f"c{number}")
        )
    return Request(model=model, messages=messages, tools=TOOLS)


async def test_after_the_results_it_sums_them_up() -> None:
    deltas = await collect(after_rounds("tools?rate=0", 1))
    assert text_in(deltas) == "The tools have answered.\n\n- clock: noon 0"
    assert deltas[-1] == Finished("stop")


async def test_it_asks_for_as_many_rounds_as_it_is_told() -> None:
    last = [(await collect(after_rounds("tools?rounds=3&rate=0", rounds)))[-1] for rounds in (0, 2, 3)]
    assert last == [Finished("tool_calls"), Finished("tool_calls"), Finished("stop")]


async def test_call_ids_differ_between_rounds_and_not_between_equal_requests() -> None:
    def ids(deltas: list[Delta]) -> list[str]:
        return [call_id for delta in deltas if (call_id := getattr(delta, "id", None))]

    first, again = (
        await collect(after_rounds("tools?rounds=3&rate=0", 0)),
        await collect(after_rounds("tools?rounds=3&rate=0", 0)),
    )
    later = await collect(after_rounds("tools?rounds=3&rate=0", 1))
    assert ids(first) == ids(again) != ids(later)


@pytest.mark.row("LOOP-9")
@pytest.mark.parametrize(("whole_calls", "complete"), [(1, ["clock"]), (2, ["clock", "calculator"])])
async def test_stream_can_break_after_whole_calls(whole_calls: int, complete: list[str]) -> None:
    seen: list[Delta] = []
    request = ask(
        f"tools?rate=0&break_after_calls={whole_calls}", 'call clock {}\ncall calculator {"a": 1}', tools=TOOLS
    )
    assert (await failure_of(request, seen)).code == "stream_error"
    assembler = Assembler(set(), lambda: "made")
    for delta in seen:
        assembler.feed(delta)
    assert [call.function.name for call in assembler.answer(is_broken=True).calls] == complete
