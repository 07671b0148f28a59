"""An integration of an invented framework, which uses every operation of the seam from the framework's own tasks. It
records its effects as lines of the file `effects`, which remains after the process has ended."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from threadcast import AgentContext, Call, Data, Reasoning, ToolContext, ToolFailed, ToolResult
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown
from threadcast.custom_agents.pieces import Keep
from threadcast.custom_agents.seam import (
    CallReturn,
    DeclaredAgentTool,
    NeedsApproval,
    Payload,
    Recorded,
    ShownCall,
    ShownMessage,
)
from threadcast.custom_agents.serving import AgentTool, serve_agent
from threadcast_protocol.wire.messages import JsonObject

EFFECTS = Path(os.environ.get("EFFECTS", "effects"))
WORDS = [f"word{number} " for number in range(20)]


def effect(text: str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    return text


async def run_tool(arguments: JsonObject, context: ToolContext) -> CallReturn:
    """A tool of the framework, which takes a moment."""
    effect(f"begin {context.tool_call_id}")
    await asyncio.sleep(float(arguments.get("seconds", 0.05)))
    effect(f"end {context.tool_call_id}")
    return CallReturn(ToolResult(content=f"did {arguments.get('what')}"), {"private": arguments.get("what")})


async def once(ctx: AgentContext, call: ShownCall) -> str:
    try:
        value = await ctx.seam.call(call.id, run_tool)
        return f"{value['private']}"
    except CallDenied as denied:
        return f"denied({denied.note})"
    except OutcomeUnknown:
        return "unknown"
    except CallFailed as failed:
        return f"failed({failed})"


async def say(ctx: AgentContext, key: str, *pieces: object, seconds: float = 0.0) -> ShownMessage:
    async def slowly() -> AsyncIterator[object]:
        for piece in pieces:
            await asyncio.sleep(seconds)
            yield piece

    return await ctx.seam.message(key, slowly, speaker="Ada")


async def parallel(ctx: AgentContext) -> None:
    """Make two calls at once from tasks of the framework; one of the calls needs an approval."""
    first = await say(
        ctx,
        "model-1",
        Reasoning("I think. "),
        *WORDS,
        Call("work", {"what": "a"}, id="call_a"),
        Call("pay", {"what": "b"}, id="call_b"),
        Recorded({"response": 1}),
        seconds=0.005,
    )
    said = await asyncio.gather(*(asyncio.create_task(once(ctx, call)) for call in first.calls))
    last = await say(ctx, "model-2", *WORDS, " ".join(said), Keep(b"kept"), seconds=0.005)
    assert last.text.endswith(said[-1])
    assert first.value == {"response": 1}


async def failing(ctx: AgentContext) -> None:
    async def fails(arguments: JsonObject, context: ToolContext) -> str:
        raise ToolFailed("Try another.")

    first = await say(ctx, "model-1", Call("work", {"what": "a"}, id="call_f"), Call("ask_first", {}, id="call_g"))
    assert first.text == ""
    try:
        await ctx.seam.call(first.calls[0].id, fails)
    except CallFailed as failed:
        said = str(failed)

    async def careful(arguments: JsonObject, context: ToolContext) -> str:
        if not ctx.seam.is_approved(context.tool_call_id):
            raise NeedsApproval
        return effect("careful")

    careful_said = await ctx.seam.call(first.calls[1].id, careful)
    nothing = await say(ctx, "model-2", Recorded("silent"))
    assert (nothing.message_id, nothing.value) == ("", "silent")
    await say(ctx, "model-3", f"{said} {careful_said}", Payload("report", {"total": 3}))


async def own_calls(ctx: AgentContext) -> None:
    """Calls that the framework carries out itself, and a question."""
    await ctx.seam.declare([DeclaredAgentTool(name="edit", policy="ask"), DeclaredAgentTool(name="look")])
    first = await say(ctx, "m", Call("edit", {"path": "a"}), Call("look", {"path": "b"}), Call("new", {}))
    edit, look, new = first.calls
    approval = await ctx.seam.approve(edit.id)
    if approval.accepted:
        await ctx.seam.begin_call(edit.id)
        await ctx.seam.progress(edit.id, "half")
        await ctx.seam.report(edit.id, ToolResult(content=f"edited {approval.arguments}"))
    unasked = await ctx.seam.approve(look.id, must_ask=False)
    await ctx.seam.report(look.id, ToolResult(content="seen", failed=True))
    await ctx.seam.report(new.id, ToolResult(content="news"))
    await ctx.seam.put("seen", {"n": 1})
    await ctx.seam.put("seen", {"n": 2})
    colour = await ctx.seam.ask("colour", "Which colour?", ["red", "blue"])
    await ctx.seam.emit(Data("done", {"colour": colour}))
    seen = await ctx.seam.get("seen")
    await say(ctx, "end", f"{approval.accepted} {approval.note} {unasked.accepted} {colour} {seen['n']}")


async def staying(ctx: AgentContext) -> None:
    """Hold a live connection: the run is not suspended, and is not repeated after a crash."""
    await ctx.seam.attempt("connection")
    ctx.seam.stay()
    effect("connected")
    first = await say(ctx, "m", "one ", Call("edit", {"path": "a"}, id=f"call_{ctx.chat_id}"))
    approval = await ctx.seam.approve(first.calls[0].id)
    await ctx.seam.report(first.calls[0].id, ToolResult(content="edited"))
    name = await ctx.seam.ask("name", "Your name?")
    await say(ctx, "end", f"{approval.accepted} {name} ", *WORDS, seconds=0.02)
    await ctx.seam.attempt_ended("connection")


async def cancelling(ctx: AgentContext) -> None:
    """Cancel a model call in its middle, and ask another model."""
    task = asyncio.create_task(say(ctx, "one", *WORDS, *WORDS, seconds=0.05))
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.wait([task])
    await say(ctx, "two", "the other")


work, pay, ask_first = AgentTool("work"), AgentTool("pay", policy="ask"), AgentTool("ask_first")
serve_agent(parallel, name="parallel", tools=[work, pay])
serve_agent(failing, name="failing", tools=[work, ask_first])
for function in (own_calls, staying, cancelling):
    serve_agent(function, name=function.__name__)
