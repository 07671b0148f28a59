"""Tools that ask people while they run, and an agent that asks people, for the tests of questions."""

import anyio

from threadcast import AgentContext, JsonObject, NotAnswered, Rejected, ToolContext, agent, tool
from threadcast.tools.agents import delegate

__all__ = [
    "ask",
    "ask_form",
    "ask_list",
    "ask_once",
    "ask_twice",
    "asker",
    "briefly",
    "caller",
    "delegate",
    "forget",
    "pay",
]

FORM: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0},
        "size": {"type": "string", "enum": ["small", "large"]},
        "news": {"type": "boolean", "description": "Whether we may write to you"},
    },
    "required": ["name", "size"],
}


@tool(retry="safe", timeout_seconds=0.5)
async def ask(text: str, ctx: ToolContext, options: list[str] = []) -> str:  # noqa: B006 (a schema's default)
    """Ask a person, for longer than the tool may run."""
    try:
        return f"the answer is {await ctx.ask(text, options)}"
    except NotAnswered as unanswered:
        return f"no answer: {unanswered.reason}"


@tool()
async def ask_form(ctx: ToolContext) -> str:
    """Ask for an object."""
    return str(await ctx.ask("Who are you?", schema=FORM))


@tool()
async def ask_list(ctx: ToolContext) -> str:
    """Ask a question whose answer would be a list, which no form can express."""
    return str(await ctx.ask("Which numbers?", schema={"type": "array", "items": {"type": "integer"}}))


@tool()
async def ask_once(text: str, ctx: ToolContext) -> str:
    """Ask a person, in a call that may not run twice."""
    return f"the answer is {await ctx.ask(text)}"


@tool()
async def ask_twice(ctx: ToolContext) -> str:
    """Ask two questions at once."""
    answers: dict[str, str] = {}

    async def one(text: str) -> None:
        answers[text] = await ctx.ask(text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, "first?")
        tasks.start_soon(one, "second?")
    return f"{answers['first?']} and {answers['second?']}"


@tool()
async def forget(ctx: ToolContext) -> str:
    """Ask, and end without waiting for the answer."""
    with anyio.move_on_after(0.2):
        await ctx.ask("Does anybody answer?")
    return "went on"


@tool(timeout_seconds=0.5)
async def briefly(ctx: ToolContext) -> str:
    """Ask, and then run past the time limit."""
    await ctx.ask("Ready?")
    await anyio.sleep(60)
    return "never"


@agent("asker")
async def asker(ctx: AgentContext) -> None:
    """Asks a person, and repeats the answer."""
    try:
        await ctx.answer(f"the answer is {await ctx.ask('Which **one**?', ['short', 'long'])}")
    except Rejected:
        await ctx.answer("no answer")


@agent("caller", tools=[ask])
async def caller(ctx: AgentContext) -> None:
    """Calls a tool that asks, in two branches; one of the branches also asks a question of its own."""
    called, own = await ctx.gather(ctx.call("ask", {"text": "For the tool?"}), ctx.ask("For the agent?"))
    await ctx.answer(f"{called}; {own}")


@tool(policy="ask")
def pay(amount: int) -> str:
    """Pay money."""
    return f"paid {amount}"
