"""Tools for tests that run sub-chats and processes, and functions that read their outcome.

`delegate` waits for its children, one per prompt; `start_agent` does not wait. Both tools use only the tool context, as
an author's tools would.
"""

import asyncio

from threadcast.chat.entry_codec import decode_facts
from threadcast.chat.owner_state import OwnerState
from threadcast.store.ports import Store
from threadcast.tools.context import ToolContext
from threadcast.tools.python import PythonTool, tool
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["children_of", "delegate", "delegate_once", "facts_in", "start_agent", "stop_agent"]


async def _delegate(prompts: list[str], params: JsonObject, ctx: ToolContext) -> str:
    results = await asyncio.gather(
        *(
            ctx.chats.run(prompt, name=str(number), params=params, title=f"child {number}")
            for number, prompt in enumerate(prompts)
        )
    )
    return "\n".join(f"{result.outcome}: {result.text}" for result in results)


@tool(retry="idempotent", timeout_seconds=30.5)
async def delegate(prompts: list[str], ctx: ToolContext, params: JsonObject = {}) -> str:  # noqa: B006 - copied per call
    """Let sub-chats answer the prompts."""
    return await _delegate(prompts, params, ctx)


@tool(retry="once", timeout_seconds=30.5)
async def delegate_once(prompts: list[str], ctx: ToolContext) -> str:
    """Let sub-chats answer the prompts, in a call that must not run twice."""
    return await _delegate(prompts, {}, ctx)


@tool(retry="idempotent")
async def start_agent(prompt: str, ctx: ToolContext, wake: bool = False) -> str:
    """Let a sub-chat work in the background."""
    return await ctx.chats.start(prompt, title="an agent", wake=wake)


@tool()
async def stop_agent(agent_id: str, ctx: ToolContext) -> str:
    """End such work."""
    await ctx.chats.stop(agent_id)
    return "asked"


def children_of(state: OwnerState) -> list[str]:
    return [child.chat_id for child in state.private.relations.children]


async def facts_in(store: Store, chat_id: str) -> list[str]:
    """Return the names of the private facts of a log, in order."""
    found: list[str] = []
    for entry in await store.read_log(chat_id):
        found += [str(type(fact).__struct_config__.tag) for fact in decode_facts(entry.facts or b"[]")]
    return found


ALL: list[PythonTool] = [delegate, delegate_once, start_agent, stop_agent]
