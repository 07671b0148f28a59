"""Agents of pydantic-ai with a model without a network. The agents record their effects as lines of the file
`effects`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic import BaseModel
from pydantic_ai import Agent, ExternalToolset, ModelRetry, RunContext, ToolDefinition, ToolReturn, UsageLimits
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import BinaryContent, ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from tests.agents.pyd_model import Item, asked, local_model, results, thought
from threadcast import AgentContext
from threadcast.agents.pydantic_ai import serve

EFFECTS = Path(os.environ.get("EFFECTS", "effects"))
WORDS = " ".join(f"word{number}" for number in range(20))


def effect(text: str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    return text


# a bank: two calls at once, one of which needs an approval


def write_bank(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    found = results(messages)
    if found:
        return [f"{WORDS} {' | '.join(found)} of {len(messages)} messages, {info.instructions}"]
    return [thought("I think."), WORDS, ("balance", {"owner": "Ada"}), ("charge", {"dollars": 7})]


bank: Agent[dict[str, str], str] = Agent(
    local_model(write_bank, word_seconds=0.005), instructions="I bank.", deps_type=dict
)


@bank.tool_plain
async def balance(owner: str) -> str:
    """Return the balance."""
    return effect(f"balance of {owner}")


@bank.tool(requires_approval=True)
async def charge(ctx: RunContext[dict[str, str]], dollars: int) -> str:
    """Charge the account."""
    effect(f"charge {dollars}")
    await asyncio.sleep(float(os.environ.get("CHARGE_SECONDS", "0")))
    return effect(f"charged {dollars} in {ctx.deps['chat'][:4]}")


async def deps_of(ctx: AgentContext) -> dict[str, str]:
    return {"chat": ctx.chat_id}


serve(bank, name="bank", deps=deps_of)
serve(Agent(local_model(lambda *_: [f"{WORDS} " * 5_000], word_seconds=0.005)), name="unending")


# the operations that tools may use


def write_clerk(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    found = results(messages)
    name, *arguments = asked(messages).split()
    if found and not (name == "guess" and len(found) < 2):
        last = messages[-1]
        extra = [part.content for part in last.parts if isinstance(part, UserPromptPart)]
        return [" | ".join([*found, *(f"and {each}" for each in extra)])]
    made: dict[str, Any] = {"transfer": {"dollars": int(arguments[0])} if arguments else {}}
    made["guess"] = {"number": len(found)}
    return [(name, made.get(name, {}))]


clerk: Agent[None, str] = Agent(
    local_model(write_clerk),
    toolsets=[ExternalToolset([ToolDefinition(name="look", description="A client looks.")])],
    retries=2,
)


@clerk.tool
def transfer(ctx: RunContext[None], dollars: int) -> str:
    """Transfer money."""
    if dollars > 10 and not ctx.tool_call_approved:
        raise ApprovalRequired
    return effect(f"transfer {dollars}")


@clerk.tool_plain
def guess(number: int) -> str:
    """Guess a number."""
    effect(f"guess {number}")
    if number == 0:
        raise ModelRetry("Guess higher.")
    return "right"


@clerk.tool_plain
def fatal() -> str:
    """Fail for good."""
    raise KeyError("the end")


@clerk.tool_plain
def wait() -> str:
    """Wait for somebody."""
    raise CallDeferred({"why": "the post"}, kind="question")


@clerk.tool_plain
def whole() -> ToolReturn:
    """Return everything."""
    return ToolReturn([1, {"a": "b"}], content="More.", metadata={"private": True})


@clerk.tool_plain
def drawing() -> BinaryContent:
    """Return an image."""
    return BinaryContent(b"\x89PNG", media_type="image/png")


serve(clerk, name="clerk")


# structured output, limits, and a model that fails


class Weather(BaseModel):
    city: str
    degrees: int


def write_weather(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    is_retry = len(results(messages)) > 0
    return [(info.output_tools[0].name, {"city": "Ulm", "degrees": 7 if is_retry else "warm"})]


def write_lost(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    raise ConnectionError("secret-key-in-here")


def write_endless(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    return [("balance", {"owner": "E"})]


serve(Agent(local_model(write_weather), output_type=Weather), name="weather")
serve(Agent(local_model(write_lost)), name="lost")
serve(
    Agent(local_model(write_endless), tools=[balance]),
    name="endless",
    tool_prefix="endless_",
    usage_limits=UsageLimits(request_limit=3),
)


# attachments, and an MCP server


def write_eyes(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    prompt = messages[-1].parts[-1]
    assert isinstance(prompt, UserPromptPart)
    parts = [
        f"{each.media_type} {len(each.data)}" if isinstance(each, BinaryContent) else each for each in prompt.content
    ]
    return [", ".join(str(each) for each in parts)]


def write_reader(messages: list[ModelMessage], info: AgentInfo) -> list[Item]:
    found = results(messages)
    return [found[-1]] if found else [("add", {"a": 2, "b": 3})]


serve(Agent(local_model(write_eyes)), name="eyes")
serve(
    Agent(
        local_model(write_reader),
        toolsets=[MCPToolset(StdioTransport(sys.executable, [str(Path(__file__).with_name("oai_mcp_server.py"))]))],
    ),
    name="reader",
    policies={"add": "ask"},
)
