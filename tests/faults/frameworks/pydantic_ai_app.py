"""An agent of pydantic-ai that streams slowly, calls a tool that may run once, asks a question, calls two tools at
once, one of which a person must approve, and writes each tool's result. The tools record effects as in
`tests/faults/durable/app.py`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from tests.agents.pyd_model import Item, local_model, results, thought
from tests.faults.durable.app import UNKNOWN, WORD_SECONDS, work
from threadcast import AgentContext
from threadcast.agents.pydantic_ai import serve

ONCE = ("plan", "charge", "file")
"""The tools that may not run twice; each returns its own name."""

WORDS = " ".join(f"word{number}" for number in range(25))


def _found(messages: list[ModelMessage]) -> list[str]:
    """Return the results of the tools in this run, in order; the result is UNKNOWN if the outcome is unknown."""
    return [UNKNOWN if "outcome" in each else each for each in results(messages)]


def _write(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    found = _found(messages)
    match len(found):
        case 0:
            return [thought("I plan first."), WORDS, ("plan", {})]
        case 1:
            return [f"{WORDS} {found[0]}", ("style", {})]
        case 2:
            return [WORDS, ("charge", {}), ("file", {})]
    return [thought("I end."), f"{WORDS} {', '.join([found[0], *found[2:]])}."]


def text(said: Mapping[str, str]) -> str:
    """Return the text of the last answer of an undisturbed run; `said` maps each tool of ONCE to its name or to
    UNKNOWN."""
    return f"{WORDS} {', '.join(said[name] for name in ONCE)}. "


@contextmanager
def extras(directory: Path) -> Iterator[list[str]]:
    yield []


EXTRAS = extras

journey: Agent[str, str] = Agent(local_model(_write, word_seconds=WORD_SECONDS), deps_type=str)


@journey.tool
async def plan(ctx: RunContext[str]) -> str:
    """Plan."""
    return await work(ctx.deps, "plan", 0.3)


@journey.tool_plain
async def style() -> str:
    """Ask for a style."""
    raise CallDeferred(kind="question")


@journey.tool(requires_approval=True)
async def charge(ctx: RunContext[str]) -> str:
    """Charge."""
    return await work(ctx.deps, "charge", 0.3)


@journey.tool
async def file(ctx: RunContext[str]) -> str:
    """File the receipt."""
    return await work(ctx.deps, "file", 0.2)


def _chat(ctx: AgentContext) -> str:
    return ctx.chat_id


serve(journey, name="journey", deps=_chat)
