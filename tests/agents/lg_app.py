"""Graphs of LangGraph and agents of LangChain, for tests. They record their effects as lines of the file `effects`."""

import asyncio
import operator
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Send, interrupt

from tests.agents.lg_model import Item, LocalModel, results
from threadcast.agents.langgraph import serve

EFFECTS = Path(os.environ.get("EFFECTS", "effects"))
WORDS = " ".join(f"word{number}" for number in range(20))


def effect(text: str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    return text


@tool
def pay(dollars: int) -> str:
    """Pay."""
    return effect(f"paid {dollars}")


@tool
async def slow(seconds: float) -> str:
    """Work slowly."""
    effect("begin slow")
    await asyncio.sleep(seconds)
    return effect("end slow")


@tool
def confirm(what: str) -> str:
    """Ask inside a tool."""
    said = interrupt({"question": f"Really {what}?", "options": ["yes", "no"]})
    return effect(f"confirmed {what}: {said}")


def _writes(*first: Item) -> Any:
    def write(messages: Sequence[BaseMessage]) -> list[Item]:
        found = results(messages)
        return [f"{WORDS} {', '.join(found)}"] if found else [f"{WORDS}", *first]

    return write


def model(*first: Item, word_seconds: float = 0.0) -> LocalModel:
    return LocalModel(write=_writes(*first), word_seconds=word_seconds)


bank = create_agent(model(("pay", {"dollars": 7}), word_seconds=0.005), tools=[pay])
guarded = create_agent(
    model(("pay", {"dollars": 7}), ("slow", {"seconds": 0.1})),
    tools=[pay, slow],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})],
    checkpointer=InMemorySaver(),
)
asker = create_agent(model(("confirm", {"what": "go"})), tools=[confirm])
unending = create_agent(LocalModel(write=lambda _: [f"{WORDS} " * 5_000], word_seconds=0.005))
killed = create_agent(model(("slow", {"seconds": 3600}), ("pay", {"dollars": 7}), word_seconds=0.03), tools=[slow, pay])


class Trip(TypedDict):
    messages: Annotated[list[BaseMessage], operator.add]
    seen: Annotated[list[str], operator.add]
    count: int


def plan(state: Trip) -> dict[str, Any]:
    effect("plan")
    get_stream_writer()({"planned": True})
    return {"seen": ["plan"], "count": state.get("count", 0) + 1}


def spread(state: Trip) -> list[Send]:
    return [Send("visit", {"place": place}) for place in ("Graz", "Linz")]


class Place(TypedDict):
    place: str


async def visit(state: Place) -> dict[str, Any]:
    effect(f"visit {state['place']}")
    said = await model().ainvoke([HumanMessage(state["place"])])
    return {"seen": [state["place"]], "messages": [said]}


def choose(state: Trip) -> dict[str, Any]:
    name = interrupt("Which name?")
    age = interrupt({"message": "Which age?"})
    return {"seen": [f"{name} {age}"]}


def end(state: Trip) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{sorted(state['seen'])} {state['count']}")]}


trip = StateGraph(Trip)
trip.add_node("plan", plan)
trip.add_node("visit", visit)
trip.add_node("choose", choose)
trip.add_node("end", end)
trip.add_edge(START, "plan")
trip.add_conditional_edges("plan", spread, ["visit"])
trip.add_edge("visit", "choose")
trip.add_edge("choose", "end")
trip.add_edge("end", END)


def charge(state: MessagesState) -> dict[str, Any]:
    effect("begin charge")
    time.sleep(float(os.environ.get("CHARGE_SECONDS", "0")))
    effect("end charge")
    return {"messages": [AIMessage("Charged.")]}


def fail(state: MessagesState) -> dict[str, Any]:
    raise KeyError("secret")


def alone(node: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("only", node)
    graph.add_edge(START, "only")
    return graph.compile()


# a team: one node is an agent with tools, which asks twice


@tool
def locate(city: str) -> str:
    """Locate."""
    return effect(f"located {city}")


def doubt(state: MessagesState) -> dict[str, Any]:
    first = interrupt("First?")
    effect(f"heard {first}")
    second = interrupt("Other?")
    return {"messages": [AIMessage(f"{first} and {second}.")]}


member = create_agent(model(("locate", {"city": "Graz"})), tools=[locate])
team = StateGraph(MessagesState)
team.add_node("member", member)
team.add_node("doubt", alone(doubt))
team.add_edge(START, "member")
team.add_edge("member", "doubt")


# calls that no model has shown, calls that a node changes, and calls whose ids a model uses again


def unseen(state: MessagesState) -> dict[str, Any]:
    call = {"id": "call_unseen", "name": "locate", "args": {"city": "Linz"}}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def change(state: MessagesState) -> dict[str, Any]:
    asked = state["messages"][-1]
    assert isinstance(asked, AIMessage)
    calls = [{**call, "args": {"city": "Wels"}} for call in asked.tool_calls]
    return {"messages": [AIMessage(asked.content, id=asked.id, tool_calls=calls)]}


def chain(*nodes: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_sequence([(f"node{number}", node) for number, node in enumerate(nodes)])
    graph.add_edge(START, "node0")
    return graph.compile()


quiet = LocalModel(write=lambda _: [("locate", {"city": "Steyr"})]).with_config(tags=["nostream"])


async def call_quietly(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await quiet.ainvoke(state["messages"])]}


async def call_again(state: MessagesState) -> dict[str, Any]:
    call: Any = {"id": "call_1", "name": "locate", "args": {"city": f"city{len(state['messages'])}"}}
    return {"messages": [AIMessage("", tool_calls=[call])]}


# which decisions people may make


@tool
def ask_person(question: str) -> str:
    """Ask a person."""
    raise AssertionError("a person answers in place of the tool")


wondering = create_agent(
    model(("ask_person", {"question": "Why?"}), ("pay", {"dollars": 7})),
    tools=[ask_person, pay],
    middleware=[
        HumanInTheLoopMiddleware(
            interrupt_on={
                "ask_person": {"allowed_decisions": ["respond"], "description": "Why?"},
                "pay": {"allowed_decisions": ["approve", "reject"]},
            }
        )
    ],
)
each_alone = create_agent(
    model(("pay", {"dollars": 7})),
    tools=[pay],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True}, interrupt_mode="per_call")],
)


# a node that may run once, and asks


def asks_once(state: MessagesState) -> dict[str, Any]:
    said = interrupt("May I?")
    return {"messages": [AIMessage(effect(f"once {said}"))]}


# the memory of a graph


async def remember(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
    assert runtime.store is not None
    known = await runtime.store.aget(("names",), "all")
    names = [*(known.value["names"] if known is not None else ()), str(state["messages"][-1].content)]
    await runtime.store.aput(("names",), "all", {"names": names})
    return {"messages": [AIMessage(", ".join(names))]}


storing = StateGraph(MessagesState)
storing.add_node("remember", remember)
storing.add_edge(START, "remember")


def flood(state: MessagesState) -> dict[str, Any]:
    write = get_stream_writer()
    for odd in (float("nan"), b"bytes", {1, 2}, "\ud800", "x" * 300_000, {"fine": 1}):
        write(odd)
    return {"messages": [AIMessage("Flooded.")]}


class Large(TypedDict):
    messages: Annotated[list[BaseMessage], operator.add]
    ballast: str


def grow(state: Large) -> dict[str, Any]:
    return {"ballast": os.urandom(6_500_000).hex()}


growing = StateGraph(Large)
growing.add_node("grow", grow)
growing.add_edge(START, "grow")

inner = alone(lambda state: {"messages": [AIMessage("From within.")]})

serve(bank, name="bank", policies={"pay": "ask"})
serve(guarded, name="guarded", tool_prefix="guarded_")
serve(asker, name="asker")
serve(unending, name="unending")
serve(killed, name="killed", tool_prefix="killed_", policies={"pay": "ask"})
serve(trip.compile(), name="trip")
serve(alone(charge), name="charging", retry={"only": "once"})
serve(alone(fail), name="failing")
serve(alone(inner), name="nested")
serve(team.compile(), name="team", tool_prefix="team_", policies={"locate": "ask"})
serve(chain(unseen, ToolNode([locate])), name="unseen", tool_prefix="unseen_", policies={"locate": "ask"})
serve(chain(call_quietly, ToolNode([locate])), name="unheard", tool_prefix="unheard_", policies={"locate": "deny"})
serve(chain(unseen, change, ToolNode([locate])), name="changed", tool_prefix="changed_", policies={"locate": "ask"})
serve(chain(call_again, ToolNode([locate]), call_again, ToolNode([locate])), name="reused", tool_prefix="reused_")
serve(wondering, name="wondering", tool_prefix="w_")
serve(each_alone, name="each_alone", tool_prefix="each_")
serve(chain(asks_once), name="asks_once", retry={"node0": "once"})
serve(storing.compile(store=InMemoryStore()), name="storing")
serve(chain(flood), name="flood")
serve(growing.compile(), name="growing")
serve(
    create_agent(model(("locate", {"city": "here"})), tools=[locate]),
    name="at_client",
    tool_prefix="c_",
    policies={"locate": "client"},
)
