"""A durable agent without a model: it plans, asks a person, reads in sub-chats, sleeps, and writes. After a crash, a
pause or a restart of the server it continues at the same place.

./scripts/run --config examples/agents/durable.toml
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from threadcast import AgentContext, Rejected, Round, agent, tool

LIBRARY = {
    "tea": ["Tea grows on hills.", "It is picked by hand."],
    "cake": ["Cake is baked at 180 °C.", "It wants patience."],
}


@dataclass
class Plan:
    subject: str
    books: int


def make_plan(question: str) -> Plan:
    """Decide what to look for. Replace this function with a call of your model."""
    subject = next((each for each in LIBRARY if each in question.lower()), "tea")
    return Plan(subject, len(LIBRARY[subject]))


@tool(policy="ask")  # a person approves the search
def search(subject: str) -> list[str]:
    """Search the library.

    Args:
        subject: What the books are about.
    """
    return [f"{subject} {number}" for number in range(len(LIBRARY[subject]))]


@agent("reader", title="Reader", tools=[])
async def reader(round: Round) -> str:
    """Reads one book. Each book is a chat of its own."""
    subject, number = str(round.messages[-1].content).split()
    return LIBRARY[subject][int(number)]


async def write(pages: list[str], style: str) -> AsyncIterator[str]:
    """Write the answer word by word."""
    for page in pages if style == "long" else pages[:1]:
        for word in page.split():
            yield f"{word} "
            await asyncio.sleep(0.05)


@agent("researcher", title="Researcher", tools=[search])
async def researcher(ctx: AgentContext) -> None:
    """Reads about tea and cake."""
    plan = await ctx.step("plan", make_plan, str(ctx.messages[-1].content))
    books = await ctx.call("search", {"subject": plan.subject})
    pages = await ctx.gather(*(ctx.chats.run(book, mode="reader", title=book) for book in books))
    try:
        style = await ctx.ask("How long may the answer be?", ["short", "long"])
    except Rejected:
        style = "short"
    await ctx.sleep(seconds=2)  # a sleep of eight hours works the same way
    await ctx.answer(write, [page.text for page in pages], style)
