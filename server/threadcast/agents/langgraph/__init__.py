"""Graphs of LangGraph, and agents of LangChain, which are such graphs, answer chats unchanged.

from langchain.agents import create_agent
from threadcast.agents.langgraph import serve

bank = create_agent("openai:gpt-5", tools=[charge])
serve(bank, name="bank", policies={"charge": "ask"})
"""

from importlib.util import find_spec

if find_spec("langgraph") is None:
    raise ImportError(
        "graphs of LangGraph need the extra `langgraph`; install it with `pip install 'threadcast[langgraph]'`"
    )

from threadcast.agents.langgraph.serving import serve

__all__ = ["serve"]
