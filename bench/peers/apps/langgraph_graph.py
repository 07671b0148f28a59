"""The smallest LangGraph chat: one node that asks a model, streamed by token. A second graph stops for a person's
decision.

It is served by `langgraph dev` in the peer's own environment; our code does not import it.
"""

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

model = ChatOpenAI(model="scripted")


async def call_model(state: MessagesState):
    return {"messages": [await model.ainvoke(state["messages"])]}


async def ask_person(state: MessagesState):
    answer = interrupt({"question": "may I?"})
    return {"messages": [{"role": "assistant", "content": f"decided {answer}"}]}


graph = StateGraph(MessagesState).add_node("model", call_model).add_edge(START, "model").compile()
approval = StateGraph(MessagesState).add_node("ask", ask_person).add_edge(START, "ask").compile()
