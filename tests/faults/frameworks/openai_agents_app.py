"""An agent of the OpenAI Agents SDK that streams slowly, calls a tool that may run once and a tool that a person must
approve, hands over, and writes each tool's result. The tools record effects as in `tests/faults/durable/app.py`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents import Agent, RunContextWrapper, function_tool

from tests.agents.oai_model import LocalModel, call, outputs, said, thought
from tests.faults.durable.app import UNKNOWN, WORD_SECONDS, work
from threadcast import AgentContext
from threadcast.agents.openai_agents import serve

ONCE = ("plan", "charge", "file")
"""The tools that may not run twice; each returns its own name."""

WORDS = " ".join(f"word{number}" for number in range(25))


@function_tool
async def plan(context: RunContextWrapper[str]) -> str:
    """Plan."""
    return await work(context.context, "plan", 0.3)


@function_tool(needs_approval=True)
async def charge(context: RunContextWrapper[str]) -> str:
    """Charge."""
    return await work(context.context, "charge", 0.3)


@function_tool
async def file(context: RunContextWrapper[str]) -> str:
    """File the receipt."""
    return await work(context.context, "file", 0.2)


def _found(given: Any) -> list[str]:
    """Return the results of the tools in this run, in order; the result is UNKNOWN if the outcome is unknown."""
    return [UNKNOWN if "outcome" in each else each for each in outputs(given) if not each.startswith("{")]


def _write_first(given: Any, instructions: str) -> Any:
    at = len(given)
    if not _found(given):
        return [thought("I plan first.", at), said(f"{WORDS}. ", at), call("plan", f"call_{at}")]
    return [said(f"{WORDS} {_found(given)[0]}. ", at), call("transfer_to_cashier", f"call_{at}")]


def _write_cashier(given: Any, instructions: str) -> Any:
    at, found = len(given), _found(given)
    if len(found) == 1:
        return [said(f"{WORDS}. ", at), call("charge", f"call_{at}a"), call("file", f"call_{at}b")]
    return [thought("I end.", at), said(f"{WORDS} {', '.join(found)}.", at)]


def text(said: Mapping[str, str]) -> str:
    """Return the text of the last answer of an undisturbed run; `said` maps each tool of ONCE to its name or to
    UNKNOWN."""
    return f"{WORDS} {', '.join(said[name] for name in ONCE)}."


@contextmanager
def extras(directory: Path) -> Iterator[list[str]]:
    yield []


EXTRAS = extras

_cashier = Agent("cashier", model=LocalModel(_write_cashier, word_seconds=WORD_SECONDS), tools=[charge, file])
journey = Agent("journey", model=LocalModel(_write_first, word_seconds=WORD_SECONDS), tools=[plan], handoffs=[_cashier])


def _chat(ctx: AgentContext) -> str:
    return ctx.chat_id


serve(journey, name="journey", context=_chat)
