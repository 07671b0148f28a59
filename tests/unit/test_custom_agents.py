"""Agents of operators: the decorator, the forms of functions, and the pieces that become deltas."""

import base64
import re
from collections.abc import AsyncIterator, Generator, Iterator
from types import SimpleNamespace

import pytest

from threadcast import Call, Citation, Data, Keep, Reasoning, Round, Text, Usage, agent, tool
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.pieces import DATA_MAX_BYTES, KEEP_MAX_BYTES, delta_of, kept_in
from threadcast.custom_agents.provider import CustomAgents
from threadcast.providers.base import (
    AgentDataDelta,
    Delta,
    Finished,
    ProviderData,
    ReasoningDelta,
    Request,
    RunInfo,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from threadcast.wiring.app_file import app_file_of
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.principal import Principal

pytestmark = pytest.mark.anyio

USAGE = Usage(1, 2, 3)


@pytest.mark.parametrize(
    ("piece", "delta"),
    [
        ("a", TextDelta("a")),
        (Text("a"), TextDelta("a")),
        (Reasoning("a"), ReasoningDelta("a")),
        (Call("look", {"at": 1}), ToolCallDelta(4, None, "look", '{"at":1}')),
        (Call("look", id="x"), ToolCallDelta(4, "x", "look", "{}")),
        (USAGE, UsageReported(USAGE)),
        (Citation({"url": "u"}), Citation({"url": "u"})),
        (Data("chart", {"n": 1}), AgentDataDelta("chart", {"n": 1})),
        (Keep(b"k"), ProviderData({"agent": "mine", "keep": base64.b64encode(b"k").decode()})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_piece_has_its_delta(piece: object, delta: Delta) -> None:
    assert delta_of(piece, "mine", 4) == delta


@pytest.mark.parametrize(
    ("piece", "error", "sentence"),
    [
        (12, TypeError, "not int"),
        (b"bytes", TypeError, "not bytes"),
        (Keep(b"x" * (KEEP_MAX_BYTES + 1)), ValueError, f"at most {KEEP_MAX_BYTES} bytes"),
        (Data("big", {"x": "y" * DATA_MAX_BYTES}), ValueError, f"at most {DATA_MAX_BYTES} bytes"),
        (Data(""), ValueError, "1 to 128 characters"),
        (Data("x" * 129), ValueError, "1 to 128 characters"),
        (Call("look", {"at": object()}), TypeError, "object"),
    ],
)
def test_what_is_no_piece_or_too_large_is_refused(piece: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        delta_of(piece, "mine", 0)


def test_an_agent_reads_its_own_last_keep_alone() -> None:
    first, second = ({"agent": "mine", "keep": base64.b64encode(word).decode()} for word in (b"one", b"two"))
    other = {"agent": "other", "keep": base64.b64encode(b"theirs").decode()}
    assert kept_in([first, second, other], "mine") == b"two"
    assert kept_in([other], "mine") == b""


def no_argument() -> str:
    return ""


def two_arguments(round: Round, other: int) -> str:
    return ""


def another_argument(number: int) -> str:
    return ""


def by_name(*, round: Round) -> str:
    return ""


@pytest.mark.parametrize("function", [no_argument, two_arguments, another_argument, by_name], ids=lambda f: f.__name__)
def test_a_function_that_takes_no_round_alone_is_refused_when_it_is_decorated(function: object) -> None:
    with pytest.raises(TypeError, match="agent mine: the function"):
        agent("mine")(function)  # type: ignore[arg-type] # what the test is about


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "é"])
def test_a_name_that_no_mode_can_be_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="a name is 1 to 64 characters"):
        agent(name)(lambda round: "")


def test_a_function_without_the_decorator_is_no_tool() -> None:
    with pytest.raises(TypeError, match=r"agent mine: tools: write @tool\(\) above no_argument"):
        agent("mine", tools=[no_argument])(generating)  # type: ignore[list-item] # what the test is about


def test_the_decorator_wants_a_name() -> None:
    with pytest.raises(TypeError, match=r'write @agent\("name"\)'):
        agent(no_argument)  # type: ignore[arg-type] # what the test is about


async def generating(round: Round) -> AsyncIterator[object]:
    yield "a"
    yield Call("look")


def generating_in_a_thread(round: Round) -> Iterator[object]:
    yield "a"
    yield Call("look")


def ending_with_a_value(round: Round) -> Generator[object, None, object]:
    yield "a"
    return Call("look")


async def returning(round: Round) -> list[object]:
    return ["a", Call("look")]


def returning_in_a_thread(round: Round) -> tuple[object, ...]:
    return "a", Call("look")


FORMS = [generating, generating_in_a_thread, ending_with_a_value, returning, returning_in_a_thread]


def request(model: str = "mine", *, run: bool = True) -> Request:
    info = RunInfo(
        chat_id="c", run_id="r", round=2, principal=Principal("ann"), params={"seed": 1}, context={}, metadata={}
    )
    asked = Message(role="user", content="hello", message_id="m1")
    return Request(model=model, messages=[asked], run=info if run else None)


async def deltas(provider: CustomAgents, asked: Request) -> list[Delta]:
    return [delta async for delta in provider.stream(asked)]


@pytest.mark.parametrize("function", FORMS, ids=lambda f: f.__name__)
async def test_each_form_of_function_gives_its_pieces_in_order(function: object) -> None:
    mine = Agent(function, name="mine")  # type: ignore[arg-type] # one of several forms
    assert await deltas(CustomAgents([mine]), request()) == [
        TextDelta("a"),
        ToolCallDelta(0, None, "look", "{}"),
        Finished("tool_calls"),
    ]


async def test_a_round_that_says_nothing_ends_well() -> None:
    assert await deltas(CustomAgents([Agent(lambda round: None, name="mine")]), request()) == [Finished("stop")]


async def test_a_round_has_what_its_run_has() -> None:
    seen: list[Round] = []
    await deltas(CustomAgents([Agent(seen.append, name="mine")]), request())
    (round,) = seen
    assert (round.chat_id, round.run_id, round.number, round.principal.id) == ("c", "r", 2, "ann")
    assert [(message.role, message.content, message.keep) for message in round.messages] == [("user", "hello", b"")]
    assert round.params == {"seed": 1}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (request("other"), "This server has no agent 'other'; known: mine."),
        (request(run=False), "The agent 'mine' answers only in chats of its own profile."),
    ],
)
async def test_an_agent_that_cannot_answer_says_why(asked: Request, sentence: str) -> None:
    with pytest.raises(ModelFailed, match=re.escape(sentence)):
        await deltas(CustomAgents([Agent(lambda round: "", name="mine")]), asked)


async def test_the_reader_may_leave_in_the_middle_and_the_function_ends() -> None:
    ended = SimpleNamespace(count=0)

    async def endless(round: Round) -> AsyncIterator[str]:
        try:
            while True:
                yield "more "
        finally:
            ended.count += 1

    stream = CustomAgents([Agent(endless, name="mine")]).stream(request())
    assert await anext(stream) == TextDelta("more ")
    await stream.aclose()
    assert ended.count == 1


def test_an_agent_brings_its_tools_and_its_first_sentences() -> None:
    @tool()
    def look() -> str:
        """Look."""
        return ""

    @agent("mine", tools=[look, "mcp__files__*"])
    def mine(round: Round) -> str:
        """Does what
        it can.

        More for programmers.
        """
        return ""

    assert (mine.title, mine.description) == ("mine", "Does what it can.")
    assert (mine.own_tools, mine.tool_names) == ([look], ["look", "mcp__files__*"])
    assert agent("other")(lambda round: "").tool_names is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "from threadcast import agent\n@agent('a')\ndef one(round): ...\n@agent('A')\ndef two(round): ...\n",
            "two agents are called 'A'",
        ),
        ("from threadcast import agent\n@agent('a b')\ndef one(round): ...\n", "a name is 1 to 64 characters"),
    ],
)
def test_a_file_whose_agents_cannot_be_is_refused_in_a_sentence(
    text: str, sentence: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("app") / f"agents_app_{abs(hash(text))}.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        app_file_of(str(file))
