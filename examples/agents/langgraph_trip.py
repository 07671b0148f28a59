"""A graph of LangGraph that plans a trip and asks the traveller. A local function stands in for a model."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from threadcast.agents.langgraph import serve


class Trip(TypedDict):
    """The state of the graph: the conversation, and where the trip goes."""

    messages: Annotated[list[BaseMessage], operator.add]
    place: str


def plan(state: Trip) -> dict[str, Any]:
    """Find a place: a step that does not run again after a crash."""
    return {"place": "Graz", "messages": [AIMessage("I have found a place. ")]}


def ask(state: Trip) -> dict[str, Any]:
    """Ask the traveller. The answer may take any time."""
    said = interrupt({"question": f"Shall I book {state['place']}?", "options": ["yes", "no"]})
    return {"messages": [AIMessage("It is booked." if said == "yes" else "Another time, then.")]}


trip = StateGraph(Trip)
trip.add_node("plan", plan)
trip.add_node("ask", ask)
trip.add_edge(START, "plan")
trip.add_edge("plan", "ask")
trip.add_edge("ask", END)

serve(trip.compile(), name="traveller")
