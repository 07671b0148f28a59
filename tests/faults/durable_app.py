"""Durable agents for tests of faults. In the data directory, the file `code` chooses the version of the agents' code,
the file `effects` gets a line for each effect, and other files open gates at which steps and answers wait."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from threadcast import AgentContext, CallDenied, CallFailed, Citation, OutcomeUnknown, Reasoning, agent, tool

DATA = Path(os.environ.get("THREADCAST_STORE__DATA_DIR", "."))
CODE = (DATA / "code").read_text() if (DATA / "code").exists() else ""
FIRST_PART = "a long beginning, "
SECOND_PART = "and the end"


def effect(text: str) -> str:
    DATA.mkdir(parents=True, exist_ok=True)
    with (DATA / "effects").open("a") as file:
        file.write(f"{text}\n")
    return text


async def gate(name: str) -> str:
    """Record that the gate was reached, and wait until a test opens it."""
    effect(f"at {name}")
    while not (DATA / name).exists():
        await asyncio.sleep(0.01)
    return name


async def short(name: str) -> str:
    """Cause one effect at the beginning, and a second effect at the end, 0.4 s later."""
    effect(f"{name} begins")
    await asyncio.sleep(0.4)
    return effect(f"{name} ends")


@tool(retry="safe")
def search(q: str) -> str:
    """Search."""
    return f"found {q}"


@tool(policy="ask")
def charge(cents: int) -> str:
    """Charge."""
    return effect(f"charged {cents}")


@tool()
async def slow_tool() -> str:
    """Take long."""
    return await gate("tool")


@tool(policy="client", timeout_seconds=30)
def look(what: str) -> str:
    """A client looks."""
    raise NotImplementedError


@tool(policy="client", timeout_seconds=1)
def glance() -> str:
    """Call a client tool that answers at once."""
    raise NotImplementedError


TOOLS = [search, charge, slow_tool, look, glance]


async def write() -> AsyncIterator[object]:
    """Write two parts with a gate between them; newer code writes other texts."""
    yield Reasoning("thinking ")
    yield Citation({"url": "https://example.org/a", "title": "A"})
    if CODE == "shorter":
        yield FIRST_PART[:6]
        return
    yield "another beginning, " if CODE == "different" else FIRST_PART
    await gate("written")
    yield SECOND_PART


async def write_on(shown: str = "") -> AsyncIterator[str]:
    effect(f"shown={shown}")
    if not shown:
        yield FIRST_PART
    await gate("written")
    yield SECOND_PART


if CODE != "missing":

    @agent("steps", tools=TOOLS)
    async def steps(ctx: AgentContext) -> None:
        """Wait in the middle of the steps; newer code has other operations."""
        name = "renamed" if CODE == "renamed" else "one"
        if CODE == "reordered":
            await ctx.call("search", {"q": "tea"})
            await ctx.step(name, effect, name)
        else:
            if CODE != "removed":
                await ctx.step(name, effect, name)
            await ctx.call("search", {"q": "coffee" if CODE == "arguments" else "tea"})
        if CODE == "ended":
            return
        await ctx.ask("Go on?")
        await ctx.answer("done")


@agent("versions", tools=TOOLS)
async def versions(ctx: AgentContext) -> None:
    """Take another path if the code is newer, in a loop and in branches."""

    async def branch(number: int) -> str:
        if CODE == "new" and ctx.version("branch-2"):
            return str(await ctx.step("new branch", str, f"new{number}", retry="safe"))
        said = str(await ctx.step("old branch", str, f"old{number}", retry="safe"))
        if number:
            await ctx.ask("In a branch?")
        return said

    said = []
    for number in range(3):
        if CODE == "new" and ctx.version("loop-2"):
            said.append(await ctx.step("new", str, f"new{number}", retry="safe"))
        else:
            said.append(await ctx.step("old", str, f"old{number}", retry="safe"))
            if number == 0:
                await ctx.ask("In a loop?")
    said += await ctx.gather(branch(0), branch(1))
    await ctx.answer(" ".join(said))


@agent("answers", tools=TOOLS)
async def answers(ctx: AgentContext) -> None:
    """Write an answer as the message requests."""
    await ctx.answer(write_on if str(ctx.messages[-1].content) == "shown" else write)


@agent("short", tools=TOOLS)
async def short_steps(ctx: AgentContext) -> None:
    """Run steps that end soon, alone or beside others."""
    try:
        if str(ctx.messages[-1].content) == "gather":
            ended = await ctx.gather(*(ctx.step(f"s{number}", short, f"s{number}") for number in range(3)))
        else:
            ended = [await ctx.step("s", short, "s")]
    except OutcomeUnknown:
        ended = ["cut"]
    await ctx.answer(", ".join(ended))


@agent("waits", tools=TOOLS)
async def waits(ctx: AgentContext) -> None:
    """Wait in a step that may not run twice."""
    try:
        said = await ctx.step("slow", gate, "slow")
    except OutcomeUnknown:
        said = "unknown"
    await ctx.answer(said)


@agent("two", tools=TOOLS)
async def two(ctx: AgentContext) -> None:
    """Ask twice in one branch, and work in another."""

    async def works() -> str:
        await ctx.ask("Begin?")
        return str(await ctx.step("work", gate, "work", retry="idempotent"))

    async def pays() -> str:
        try:
            return str(await ctx.call("charge", {"cents": 7}))
        except CallDenied:
            return "denied"

    said = await ctx.gather(works(), ctx.ask("Well?"), pays())
    await ctx.answer(" ".join(said))


@agent("race", tools=TOOLS)
async def race(ctx: AgentContext) -> None:
    """Let the first branch win while others are in the middle of the operation that the message names."""

    async def loses() -> object:
        match str(ctx.messages[-1].content):
            case "answer":
                return await ctx.answer(write)
            case "tool":
                return await ctx.call("slow_tool")
            case "client":
                return await ctx.call("look", {"what": "sky"})
            case "step":
                return await ctx.step("slow", gate, "written")
            case _:
                return await ctx.ask("Lose?")

    is_asked = str(ctx.messages[-1].content) == "ask"
    wins = ctx.ask("Win?") if is_asked else ctx.step("wins", gate, "wins", retry="idempotent")
    index, won = await ctx.first(loses(), wins)
    await ctx.step("after", gate, "after", retry="idempotent")
    await ctx.answer(f"{index} {won}")


@agent("order", tools=TOOLS)
async def order(ctx: AgentContext) -> None:
    """Answer in one branch, while another has a step and then also answers, or calls a tool."""

    async def other() -> str:
        try:
            await ctx.step("once", gate, "never")
        except OutcomeUnknown:
            if str(ctx.messages[-1].content) == "call":
                return str(await ctx.call("search", {"q": "tea"}))
        return await ctx.answer("the other")

    await ctx.gather(other(), ctx.answer(write))
    await ctx.answer("end")


@agent("looks", tools=TOOLS)
async def looks(ctx: AgentContext) -> None:
    """Answer in one branch, while another calls a client tool after a server tool has run."""

    async def looking() -> str:
        await ctx.call("slow_tool")
        return str(await ctx.call("look", {"what": "sky"}))

    async def answering() -> str:
        await ctx.step("until", gate, "until", retry="idempotent")
        return await ctx.answer("an answer")

    said = await ctx.gather(looking(), answering())
    await ctx.answer(" and ".join(said))


@agent("reader", tools=[])
async def reader(ctx: AgentContext) -> None:
    """Read, in a sub-chat."""
    await ctx.step("read", gate, "read", retry="idempotent")
    await ctx.answer(f"read {ctx.messages[-1].content}")


@agent("parent", tools=TOOLS)
async def parent(ctx: AgentContext) -> None:
    """Run two sub-chats, or the number of sub-chats in the message."""
    count = int(str(ctx.messages[-1].content))
    pages = await ctx.gather(*(ctx.chats.run(f"page{number}", mode="reader") for number in range(count)))
    await ctx.answer(f"{len(pages)} pages, the last one said: {pages[-1].text}")


@agent("large", tools=TOOLS)
async def large(ctx: AgentContext) -> None:
    """Return a large result from a step, and use it after a question."""
    text = await ctx.step("large", lambda: "x" * 2_000_000, retry="safe")
    await ctx.ask("Go on?")
    await ctx.answer(f"{len(text)} characters")


@agent("many", tools=TOOLS)
async def many(ctx: AgentContext) -> None:
    """Fail in one branch while another waits."""

    async def inner() -> list[str]:
        return await ctx.gather(ctx.ask("Inner?"), ctx.call("nothing"))

    try:
        await ctx.gather(ctx.ask("Outer?"), inner())
    except CallFailed as failed:
        await ctx.answer(f"failed: {str(failed)[:24]}")


@agent("overdue", tools=TOOLS)
async def overdue(ctx: AgentContext) -> None:
    """Call a client tool that is never answered, while a step runs."""

    async def looking() -> str:
        try:
            return str(await ctx.call("glance"))
        except CallFailed as failed:
            return effect(str(failed))

    said = await ctx.gather(looking(), ctx.step("busy", gate, "busy", retry="idempotent"))
    await ctx.answer(" ".join(said))
