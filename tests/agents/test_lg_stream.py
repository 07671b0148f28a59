"""Checks the order in which the calls and messages of a graph are shown, although a subgraph does not wait for the
reader of its events. The tests use graphs of LangGraph and a seam that shows messages slowly."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from tests.agents.lg_model import LocalModel
from threadcast.agents.langgraph.nodes import RunNodes
from threadcast.agents.langgraph.saver import JournalSaver
from threadcast.agents.langgraph.stream import GraphStream
from threadcast.custom_agents.pieces import Call
from threadcast.custom_agents.seam import Seam, ShownCall, ShownMessage
from threadcast.tools.base import ToolResult

pytestmark = pytest.mark.anyio

TURNS = 500
"""The number of turns of the event loop that the seam takes to show a message, which is more than a subgraph needs to
begin its next node."""


class SlowSeam:
    """The part of a `Seam` that shows messages, in memory. `done` has the messages and the calls in the order of their
    arrival."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._values: dict[str, Any] = {}

    async def message(self, key: str, pieces: Callable[[], AsyncIterable[object]]) -> ShownMessage:
        found = [piece async for piece in pieces()]
        for _ in range(TURNS):
            await asyncio.sleep(0)
        text = "".join(piece for piece in found if isinstance(piece, str))
        asked = [piece for piece in found if isinstance(piece, Call)]
        calls = [ShownCall(f"{key}-{each.id}", str(each.id), each.name, "{}") for each in asked]
        if text or calls:
            self.done.append(f"message {text.strip()}{''.join(call.name for call in calls)}")
        return ShownMessage(f"m{len(self.done)}", text, calls=calls)

    async def call(self, call_id: str, run: Callable[[Any, Any], Any]) -> str:
        self.done.append("call")
        return cast(ToolResult, (await run({}, None)).result).content

    def is_approved(self, call_id: str) -> bool:
        return False

    async def report(self, call_id: str, result: ToolResult) -> None:
        return

    async def status(self, text: str) -> None:
        return

    async def put(self, key: str, value: Any) -> None:
        self._values[key] = value

    async def get(self, key: str) -> Any:
        return self._values.get(key)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        yield


@tool
def locate() -> str:
    """Locate."""
    return "located"


class OpenModel(LocalModel):
    """A model whose last chunk is not marked as the last."""

    async def _astream(self, messages: list[BaseMessage], *given: Any, **more: Any) -> AsyncIterator[Any]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="open", id="open"))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", id="open"))


def calling(word: str) -> Any:
    def write(messages: Any) -> Any:
        return ["located"] if messages[-1].type == "tool" else [word, ("locate", {})]

    return create_agent(LocalModel(write=write), tools=[locate])


async def shown(graph: Any) -> list[str]:
    seam = SlowSeam()
    slow = cast(Seam, seam)  # cast: the graph uses only these methods
    nodes = RunNodes(slow, JournalSaver(slow, b""), {}, "")
    config: Any = {"configurable": {"thread_id": "t"}}
    events: Any = nodes.graph(graph).astream(
        {"messages": ["hello"]}, config, stream_mode=["messages", "custom"], subgraphs=True
    )
    async with asyncio.timeout(30):
        await GraphStream(slow, events, nodes.calls, Counter(), "").show()
    return seam.done


async def test_a_call_in_a_subgraph_waits_until_its_message_is_shown() -> None:
    team = StateGraph(MessagesState)
    team.add_node("member", calling("asks"))
    team.add_edge(START, "member")
    assert await shown(team.compile()) == ["message askslocate", "call", "message located"]


async def test_calls_of_parallel_subgraphs_wait_for_their_own_messages() -> None:
    team = StateGraph(MessagesState)
    for name in ("left", "right"):
        team.add_node(name, calling(name))
        team.add_edge(START, name)
    done = await shown(team.compile())
    expected = ["call"] * 2 + ["message leftlocate"] + ["message located"] * 2 + ["message rightlocate"]
    assert sorted(done) == expected
    assert done[0].startswith("message"), "no call before its message"


async def test_a_call_does_not_wait_for_a_message_whose_node_has_ended() -> None:
    async def speak(state: MessagesState) -> dict[str, Any]:
        async for _ in OpenModel(write=lambda _: []).astream(state["messages"]):
            pass
        return {}

    team = StateGraph(MessagesState)
    team.add_node("speaker", speak)
    team.add_node("member", calling("asks"))
    team.add_edge(START, "speaker")
    team.add_edge(START, "member")
    assert sorted(await shown(team.compile())) == ["call", "message askslocate", "message located", "message open"]
