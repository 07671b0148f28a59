"""Graphs of LangGraph and agents of LangChain, for tests. Their effects are lines of the file `effects`."""

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
killed = create_agent(model(("slow", {"seconds": 0.5}), ("pay", {"dollars": 7}), word_seconds=0.03), tools=[slow, pay])


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
    time.sleep(0.5)
    effect("end charge")
    return {"messages": [AIMessage("Charged.")]}


def fail(state: MessagesState) -> dict[str, Any]:
    raise KeyError("secret")


def alone(node: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("only", node)
    graph.add_edge(START, "only")
    return graph.compile()


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
