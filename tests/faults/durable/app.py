"""A durable agent that uses every operation, in three parts joined by `ctx.restart`, and writes the result of each.

Effects are lines of JSON in the file `effects` of the data directory: the chat, the operation, its key, whether the
effect begins or ends, and the time. An operation whose outcome is unknown writes UNKNOWN in place of its result.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from threadcast import AgentContext, OutcomeUnknown, Reasoning, StepFailed, agent, tool

EFFECTS = Path(os.environ.get("THREADCAST_STORE__DATA_DIR", ".")) / "effects"
UNKNOWN = "UNKNOWN"
ONCE = ("plan", "charge", "thread", "write-down")
"""The operations of the agent that may not run twice; each returns its own name."""

WORDS = [f"word{number} " for number in range(25)]
WORD_SECONDS = 0.03
LARGE_CHARACTERS = 1_200_000


def note(chat: str, name: str, what: str, key: str = "") -> str:
    """Append one line to the file of effects."""
    EFFECTS.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"chat": chat, "name": name, "what": what, "key": key, "at": time.time()}) + "\n"
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    return name


async def work(chat: str, name: str, seconds: float, key: str = "") -> str:
    note(chat, name, "begin", key)
    await asyncio.sleep(seconds)
    return note(chat, name, "end", key)


def work_in_thread(chat: str, name: str, seconds: float, key: str = "") -> str:
    note(chat, name, "begin", key)
    time.sleep(seconds)
    return note(chat, name, "end", key)


@tool(policy="ask")
async def charge(chat: str) -> str:
    """Charge."""
    return await work(chat, "charge", 0.3)


@tool(retry="safe")
async def search(q: str) -> list[str]:
    """Search."""
    await asyncio.sleep(0.2)
    return [f"{q}-1", f"{q}-2"]


@tool(policy="client", timeout_seconds=60)
def look(what: str) -> str:
    """A client looks."""
    raise NotImplementedError


TOOLS = [charge, search, look]


async def write(*parts: object) -> AsyncIterator[object]:
    """Write slowly, and always the same text."""
    yield Reasoning("I think. ")
    for word in (*WORDS, *(f"{part}; " for part in parts)):
        await asyncio.sleep(WORD_SECONDS)
        yield word


async def or_unknown(operation: Any) -> str:
    try:
        return str(await operation)
    except OutcomeUnknown:
        return UNKNOWN


@agent("scribe", tools=[])
async def scribe(ctx: AgentContext) -> None:
    """Write a note, in a sub-chat."""
    chat = str(ctx.messages[-1].content)
    said = await or_unknown(ctx.step("write-down", work, chat, "write-down", 0.2))
    await ctx.answer(write, said)


@agent("journey", tools=TOOLS)
async def journey(ctx: AgentContext) -> None:
    """Uses everything."""
    match ctx.state:
        case None:
            await ctx.restart([await _plan(ctx), await _together(ctx)])
        case [plan, together]:
            await ctx.restart([plan, together, await _people(ctx)])
        case [plan, together, people]:
            await ctx.answer(write, plan, together, people)


async def _plan(ctx: AgentContext) -> str:
    chance = [ctx.now().isoformat(), ctx.random(), ctx.new_id()]
    kept = await ctx.step("chance", lambda: chance, retry="safe")
    plan = await or_unknown(ctx.step("plan", work, ctx.chat_id, "plan", 0.3))

    def again() -> str:
        return work_in_thread(ctx.chat_id, "again", 0.2, ctx.step_key)

    often = await ctx.step("again", again, retry="idempotent")
    try:
        await ctx.step("fails", fail, retry="idempotent")
    except StepFailed as wrong:
        failed = wrong.kind
    size = len(await ctx.step("large", lambda: "x" * LARGE_CHARACTERS, retry="safe"))
    said = await ctx.answer(write, plan)
    return f"{plan}, {often}, {failed}, {size}, {len(said)}, {kept == chance}"


def fail() -> None:
    raise KeyError("no")


async def _together(ctx: AgentContext) -> str:
    async def found() -> str:
        return " ".join(await ctx.call("search", {"q": "tea"}))

    async def read() -> str:
        return (await ctx.chats.run(ctx.chat_id, mode="scribe")).text.rpartition("word24 ")[2]

    async def race() -> str:
        index, won = await ctx.first(
            ctx.sleep(hours=1), ctx.step("quick", work, ctx.chat_id, "quick", 0.2, retry="safe")
        )
        return f"{index} {won}"

    async def nested() -> str:
        return " ".join(await ctx.gather(race(), found()))

    said = await ctx.gather(
        or_unknown(ctx.call("charge", {"chat": ctx.chat_id})),
        or_unknown(ctx.step("thread", work_in_thread, ctx.chat_id, "thread", 0.4)),
        read(),
        nested(),
        ctx.call("look", {"what": "sky"}),
    )
    return ", ".join(said)


async def _people(ctx: AgentContext) -> str:
    style = await ctx.ask("Which one?", ["short", "long"])
    await ctx.sleep(seconds=1.5)
    return str(style)
