"""Agents of an operator's file, for tests: they use every operation, every form of function, and fail on demand."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from threadcast import Call, Citation, Data, Keep, Reasoning, Round, Text, ToolContext, Usage, agent, tool

WORDS = [f"word{number} " for number in range(60)]


@tool(policy="ask")
def charge(cents: int, ctx: ToolContext) -> str:
    """Charge the account.

    Args:
        cents: The amount.
    """
    directory = Path(ctx.data_dir)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "charges").open("a") as file:
        file.write(f"{cents}\n")
    return f"charged {cents}"


@tool()
def balance() -> str:
    """Return the balance of the account."""
    return "7 dollars"


@agent("bank", title="Bank", tools=[charge, balance])
async def bank(round: Round) -> AsyncIterator[object]:
    """Charges the amount in the user's message.

    The second paragraph is for programmers.
    """
    last = round.messages[-1]
    if last.role == "user" and "charge" in str(last.content):
        yield Keep(b"planned by round %d" % round.number)
        yield "I shall charge you. "
        yield Call("charge", {"cents": 300})
        yield Call("balance", id="my-own-id")
        return
    kept = [message.keep.decode() for message in round.messages if message.keep]
    for word in WORDS:
        yield word
        await asyncio.sleep(0.01)
    yield f"kept: {kept}"


@agent("pieces", description="Yields each kind of piece.")
async def pieces(round: Round) -> AsyncIterator[object]:
    yield Reasoning("I think. ")
    yield Text("One. ")
    yield Data("chart", {"bars": [1, 2]})
    yield "Two."
    yield Citation({"url": "http://localhost/source"})
    yield Usage(3, 4, 7)


@agent("mirror", tools=["balance"])
def mirror(round: Round) -> str:
    """Repeats its input."""
    told = {
        "roles": [message.role for message in round.messages],
        "tools": [offered.name for offered in round.tools],
        "params": round.params,
        "context": round.context,
        "principal": round.principal.id,
        "system": round.system,
        "number": round.number,
        "shown": round.shown,
    }
    return json.dumps(told)


@agent("slow", tools=[])
def slow(round: Round) -> Iterator[str]:
    """A synchronous generator, which must not block the server."""
    for word in WORDS:
        time.sleep(0.005)
        yield word


@agent("listing", tools=[])
async def listing(round: Round) -> list[object]:
    return ["a", Text("b"), "c"]


@agent("broken", tools=[])
async def broken(round: Round) -> AsyncIterator[str]:
    yield "Half an ans"
    raise LookupError("the secret is 42")


@agent("wrong", tools=[])
async def wrong(round: Round) -> AsyncIterator[object]:
    yield 12


@agent("greedy", tools=[])
async def greedy(round: Round) -> AsyncIterator[object]:
    yield Keep(b"x" * 256_001)


@agent("goes_on", tools=[])
async def goes_on(round: Round) -> AsyncIterator[str]:
    """Continues the text that readers have seen."""
    for word in WORDS[len(round.shown.split()) :]:
        yield word
        await asyncio.sleep(0.02)
