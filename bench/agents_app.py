"""The durable agents that `bench.agents` measures, for `--app`. The user's message in a chat tells the agent what to
do."""

from threadcast import AgentContext, agent

__all__ = ["ANSWER", "asks", "questions", "rests", "sleeps", "steps"]

ANSWER = "A lease is a promise that ends by itself. " * 4


async def _seven() -> int:
    return 7


def _seven_in_a_thread() -> int:
    return 7


def _question(ctx: AgentContext) -> list[str]:
    return str(ctx.messages[-1].content).split()


@agent("steps", tools=[])
async def steps(ctx: AgentContext) -> None:
    """Makes so many steps of a kind: "500 safe", "500 once" or "500 thread"."""
    count, kind = _question(ctx)
    for _ in range(int(count)):
        if kind == "thread":
            await ctx.step("seven", _seven_in_a_thread, retry="safe")
        else:
            await ctx.step("seven", _seven, retry="safe" if kind == "safe" else "once")
    await ctx.answer("done")


@agent("questions", tools=[])
async def questions(ctx: AgentContext) -> None:
    """Makes so many steps, and then asks again and again."""
    for _ in range(int(_question(ctx)[0])):
        await ctx.step("seven", _seven, retry="safe")
    while True:
        await ctx.ask("Shall I go on?", ["yes", "no"])


@agent("rests", tools=[])
async def rests(ctx: AgentContext) -> None:
    """Answers, and ends."""
    await ctx.answer(ANSWER)


@agent("asks", tools=[])
async def asks(ctx: AgentContext) -> None:
    """Answers, and is parked until a person has replied."""
    await ctx.answer(ANSWER)
    await ctx.ask("Shall I go on?", ["yes", "no"])


@agent("sleeps", tools=[])
async def sleeps(ctx: AgentContext) -> None:
    """Answers, and is parked for days."""
    await ctx.answer(ANSWER)
    await ctx.sleep(days=3)
