"""A graph of LangGraph that streams slowly, calls a tool that may run once, asks a question, calls two tools at once,
one of which a person must approve, and writes each tool's result. The tools record effects as in
`tests/faults/durable/app.py`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.types import interrupt

from tests.agents.lg_model import Item, LocalModel, results
from tests.faults.durable.app import UNKNOWN, WORD_SECONDS, work
from threadcast.agents.langgraph import serve

ONCE = ("plan", "charge", "file")
"""The tools that may not run twice; each returns its own name."""

WORDS = " ".join(f"word{number}" for number in range(25))


@tool
async def plan(config: RunnableConfig) -> str:
    """Plan."""
    return await work(config["configurable"]["thread_id"], "plan", 0.3)


@tool
def style() -> str:
    """Ask for a style."""
    return str(interrupt({"question": "Which style?", "options": ["short", "long"]}))


@tool
async def charge(config: RunnableConfig) -> str:
    """Charge."""
    return await work(config["configurable"]["thread_id"], "charge", 0.3)


@tool
async def file(config: RunnableConfig) -> str:
    """File the receipt."""
    return await work(config["configurable"]["thread_id"], "file", 0.2)


def _write(messages: Sequence[BaseMessage]) -> list[Item]:
    found = [UNKNOWN if "unknown" in each else each for each in results(messages)]
    match len(found):
        case 0:
            return [WORDS, ("plan", {})]
        case 1:
            return [f"{WORDS} {found[0]}", ("style", {})]
        case 2:
            return [WORDS, ("charge", {}), ("file", {})]
    return [f"{WORDS} {', '.join([found[0], *found[2:]])}."]


def text(said: Mapping[str, str]) -> str:
    """Return the text of the last answer of an undisturbed run; `said` maps each tool of ONCE to its name or to
    UNKNOWN."""
    return f"{WORDS} {', '.join(said[name] for name in ONCE)}. "


@contextmanager
def extras(directory: Path) -> Iterator[list[str]]:
    yield []


EXTRAS = extras

serve(
    create_agent(LocalModel(write=_write, word_seconds=WORD_SECONDS), tools=[plan, style, charge, file]),
    name="journey",
    policies={"charge": "ask"},
    retry={"style": "safe"},
)
