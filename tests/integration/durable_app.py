"""Durable agents of an operator's file, for tests. The agents' effects are lines of the file `effects` in the data
directory, which outlives the process."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from threadcast import (
    AgentContext,
    CallDenied,
    CallFailed,
    OutcomeUnknown,
    Reasoning,
    Rejected,
    Round,
    StepFailed,
    Text,
    agent,
    tool,
)

EFFECTS = Path(os.environ.get("EFFECTS", "effects"))

WORDS = [f"word{number} " for number in range(40)]


def effect(text: str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    return text


@dataclass
class Plan:
    query: str
    steps: list[int]


@tool(policy="ask")
def charge(cents: int) -> dict[str, int]:
    """Charge the account.

    Args:
        cents: The amount.
    """
    effect(f"charge {cents}")
    return {"charged": cents}


@tool()
def balance() -> str:
    """The balance of the account."""
    return "7 dollars"


@tool(retry="safe")
def search(q: str) -> list[str]:
    """Search."""
    return [f"{q}-1", f"{q}-2"]


@tool()
def broken() -> str:
    """Always fails."""
    raise ValueError("no")


@tool(retry="safe")
async def ponder() -> str:
    """Runs longer than an agent may stay in memory in these tests."""
    await asyncio.sleep(2.5)
    return "pondered"


@tool(policy="client", timeout_seconds=30)
def look(what: str) -> str:
    """A client looks."""
    raise NotImplementedError


TOOLS = [charge, balance, search, broken, ponder, look]


def make_plan(question: str) -> Plan:
    effect("plan")
    return Plan(question, [1, 2])


async def write(*parts: object) -> AsyncIterator[object]:
    yield Reasoning("I know. ")
    for part in parts:
        await asyncio.sleep(0)
        yield f"{part} "


@agent("steps", tools=TOOLS)
async def steps(ctx: AgentContext) -> None:
    """Uses steps of all kinds."""
    question = str(ctx.messages[-1].content)
    plan = await ctx.step("plan", make_plan, question)
    assert isinstance(plan, Plan)
    number = await ctx.step("number", lambda: 7, retry="safe")
    try:
        await ctx.step("fails", fails, retry="idempotent")
    except StepFailed as wrong:
        failed = f"{wrong.kind}/{wrong.message}"
    await ctx.answer(write, plan.query, plan.steps, number, failed)


async def fails() -> None:
    raise KeyError("gone")


@agent("calls", tools=TOOLS)
async def calls(ctx: AgentContext) -> None:
    """Calls tools."""
    found = await ctx.call("search", {"q": "tea"})
    said = await ctx.call("balance")
    try:
        await ctx.call("broken")
    except CallFailed as wrong:
        failed = str(wrong)
    try:
        await ctx.call("nothing")
    except CallFailed as wrong:
        unknown = str(wrong)[:30]
    await ctx.answer(write, found, said, failed, unknown)


@agent("approvals", tools=TOOLS)
async def approvals(ctx: AgentContext) -> None:
    """Charges twice at the same time, and asks for approval."""

    async def pay(cents: int) -> str:
        try:
            return str(await ctx.call("charge", {"cents": cents}))
        except CallDenied as denied:
            return f"denied({denied.note})"

    paid = await ctx.gather(pay(1), pay(2), ctx.step("other", effect, "other"))
    await ctx.answer(write, *paid)


@agent("asks", tools=TOOLS)
async def asks(ctx: AgentContext) -> None:
    """Asks a person."""
    style = await ctx.ask("Which one?", ["short", "long"])
    try:
        free = await ctx.ask("Why?")
    except Rejected as rejected:
        free = f"rejected({rejected.note})"
    await ctx.answer(write, style, free)


@agent("sleeps", tools=TOOLS)
async def sleeps(ctx: AgentContext) -> None:
    """Sleeps, and records the values of time and randomness."""
    before = (ctx.now(), ctx.random(), ctx.new_id())
    kept = await ctx.step("keep", lambda: [before[0].isoformat(), *before[1:]], retry="safe")
    await ctx.sleep(seconds=1.5)
    assert [before[0].isoformat(), *before[1:]] == kept
    effect("awake")
    await ctx.answer("slept")


@agent("clients", tools=TOOLS)
async def clients(ctx: AgentContext) -> None:
    """Calls a client tool."""
    seen, number = await ctx.gather(ctx.call("look", {"what": "sky"}), ctx.step("number", lambda: 3, retry="safe"))
    await ctx.answer(write, seen, number)


@agent("reader", tools=[])
async def reader(round: Round) -> AsyncIterator[object]:
    """Reads, for agents that run sub-chats."""
    yield f"read {round.messages[-1].content}"


@agent("parents", tools=TOOLS)
async def parents(ctx: AgentContext) -> None:
    """Runs sub-chats."""
    pages = await ctx.gather(*(ctx.chats.run(f"page{number}", mode="reader") for number in range(20)))
    try:
        await ctx.chats.run("x", mode="nowhere")
    except CallFailed as wrong:
        failed = str(wrong)[:24]
    await ctx.answer(write, *(page.text for page in pages), failed)


@agent("races", tools=TOOLS)
async def races(ctx: AgentContext) -> None:
    """Takes the first result of several."""
    index, value = await ctx.first(
        ctx.call("charge", {"cents": 5}), ctx.step("quick", lambda: "quick", retry="safe"), ctx.sleep(days=1)
    )
    await ctx.answer(write, index, value)


@agent("patient", tools=TOOLS)
async def patient(ctx: AgentContext) -> None:
    """Writes an answer that must wait until a tool has ended."""
    await ctx.gather(ctx.call("ponder"), ctx.answer(write, "after it"))


@agent("restarts", tools=TOOLS)
async def restarts(ctx: AgentContext) -> None:
    """Restarts again and again."""
    count = ctx.state or 0
    await ctx.step("count", effect, f"round {count}")
    if count < 3:
        await ctx.restart(count + 1)
    await ctx.answer(write, count)


@agent("steered", tools=TOOLS)
async def steered(ctx: AgentContext) -> None:
    """Uses the messages that arrive while it works."""
    await ctx.ask("Go on?")
    taken = await ctx.steered()
    await ctx.answer(write, *(each.content for each in taken))


@agent("echo", tools=TOOLS)
async def echo(ctx: AgentContext) -> None:
    """Repeats the message."""
    await ctx.answer(str(ctx.messages[-1].content))


@agent("unruly", tools=TOOLS)
async def unruly(ctx: AgentContext) -> None:
    """Misbehaves in the way that the message names."""
    match str(ctx.messages[-1].content):
        case "swallow":
            while True:
                try:
                    await ctx.step("sleep", asyncio.sleep, 60)
                except BaseException:
                    effect("swallowed")
        case "elsewhere":
            await asyncio.create_task(ctx.step("lost", effect, "lost"))
        case "inside":

            async def inner() -> None:
                await ctx.step("inner", effect, "inner")

            await ctx.step("outer", inner)
        case "many":
            for _ in range(10_001):
                ctx.random()
                await asyncio.sleep(0)
        case "raises":
            raise RuntimeError("secret words")
        case "large":
            size = await ctx.step("large", lambda: "x" * 3_000_000, retry="safe")
            await ctx.sleep(seconds=1.2)
            await ctx.answer(write, len(size))
        case "finally":
            try:
                await ctx.step("sleep", asyncio.sleep, 60)
            finally:
                effect("cleaned")
                try:
                    await ctx.answer("too late")
                except asyncio.CancelledError:
                    effect("refused")
                    raise
        case "busy":
            while True:
                await asyncio.sleep(0.01)


@agent("unknown", tools=TOOLS)
async def unknown(ctx: AgentContext) -> None:
    """Waits in a step that may not run twice."""
    try:
        await ctx.step("slow", slowly)
    except OutcomeUnknown:
        await ctx.answer("nobody knows")
        return
    await ctx.answer("done")


async def slowly() -> str:
    effect("slow")
    await asyncio.sleep(60)
    return Text("").text


@agent("careless", tools=TOOLS)
async def careless(ctx: AgentContext) -> None:
    """Passes invalid arguments to the operations, and texts that JSON cannot hold."""
    refused = []
    for make in (
        lambda: ctx.sleep(days=1e9),
        lambda: ctx.sleep(-1),
        lambda: ctx.step("", effect, "x"),
        lambda: ctx.step("x" * 201, effect, "x"),
        lambda: ctx.step("x", effect, "x", retry="twice"),  # type: ignore[arg-type]
        lambda: ctx.call("search", {"q": object()}),
        lambda: ctx.call("search", {"q": "x" * 300_000}),
        lambda: ctx.ask("", ["a"]),
        lambda: ctx.gather(1),  # type: ignore[arg-type]
        lambda: ctx.first(),
        lambda: ctx.restart("x" * 2_000_000),
    ):
        try:
            await make()
        except (TypeError, ValueError) as wrong:
            refused.append(type(wrong).__name__)
    half = "half \ud83d"
    found = await ctx.call("search", {"q": half})
    try:
        await ctx.step(half, failing, half)
    except StepFailed as wrong:
        failed = wrong.message
    await ctx.answer(write, len(refused), found, failed, half)


def failing(text: str) -> None:
    raise ValueError(text)
