"""Agents of the OpenAI Agents SDK with a model without a network. The agents record their effects as lines of the file
`effects`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    ModelRetrySettings,
    ModelSettings,
    OpenAIProvider,
    RetryPolicyContext,
    RunConfig,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    WebSearchTool,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.mcp import MCPServerStdio
from agents.tool import ToolOutputImage, ToolOutputText
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_function_web_search import ActionSearch
from pydantic import BaseModel

from tests.agents.oai_model import LocalModel, call, outputs, said, thought
from threadcast import AgentContext
from threadcast.agents.openai_agents import serve

EFFECTS = Path(os.environ.get("EFFECTS", "effects"))
WORDS = " ".join(f"word{number}" for number in range(20)) + " "


def effect(text: str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")
    return text


def asked(given: Any) -> str:
    """Return the last text of the user."""
    content = next(item for item in reversed(given) if item.get("role") == "user")["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "[image]") for part in content)


# a bank: two calls at once, one of which needs an approval


@function_tool
async def balance(owner: str) -> str:
    """Return the balance."""
    return effect(f"balance of {owner}")


@function_tool(needs_approval=True)
async def charge(context: RunContextWrapper[dict[str, str]], dollars: int) -> str:
    """Charge the account."""
    effect(f"charge {dollars}")
    await asyncio.sleep(float(os.environ.get("CHARGE_SECONDS", "0")))
    return effect(f"charged {dollars} in {context.context['chat'][:4]}")


def write_bank(given: Any, instructions: str) -> Any:
    found = outputs(given)
    if found:
        return [said(f"{WORDS}{' | '.join(found)} of {len(given)} items", len(given))]
    at = len(given)
    return [
        thought("I think.", at),
        said(WORDS, at),
        call("balance", f"call_b{at}", owner="Ada"),
        call("charge", f"call_c{at}", dollars=7),
    ]


async def context_of(ctx: AgentContext) -> dict[str, str]:
    return {"chat": ctx.chat_id}


bank = Agent("bank", model=LocalModel(write_bank, word_seconds=0.005), tools=[balance, charge])
serve(bank, context=context_of)
serve(Agent("unending", model=LocalModel(lambda *_: [said(WORDS * 5_000)], word_seconds=0.005)))


# approvals that a function decides on, and the results of tools


async def is_large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
    return bool(arguments["dollars"] > 10)


@function_tool(needs_approval=is_large)
def transfer(dollars: int) -> ToolOutputText | list[ToolOutputText | ToolOutputImage]:
    """Transfer money."""
    effect(f"transfer {dollars}")
    if dollars > 10:
        return [ToolOutputText(text="large"), ToolOutputImage(image_url="data:image/png;base64,AAAA")]
    return ToolOutputText(text="small")


@function_tool
def broken() -> str:
    """Fail."""
    raise KeyError("no such account")


@function_tool(failure_error_function=None)
def fatal() -> str:
    """Fail for good."""
    raise KeyError("the end")


@tool_input_guardrail
def no_cats(data: Any) -> ToolGuardrailFunctionOutput:
    if "cat" in data.context.tool_arguments:
        return ToolGuardrailFunctionOutput.reject_content("No cats.")
    return ToolGuardrailFunctionOutput.allow()


@function_tool(tool_input_guardrails=[no_cats])
def feed(animal: str) -> str:
    """Feed an animal."""
    return effect(f"fed {animal}")


def write_clerk(given: Any, instructions: str) -> Any:
    found = outputs(given)
    if found:
        return [said(" | ".join(found))]
    name, *arguments = asked(given).split()
    if name == "remember":
        kept = json.dumps([item for item in given if item.get("type") == "function_call_output"])
        return [said(f"{kept.count('data:image')} images")]
    made: dict[str, Any] = {"feed": {"animal": "".join(arguments)}}
    if name == "transfer":
        made[name] = {"dollars": int(arguments[0])}
    return [call(name, f"call_{len(given)}", **made.get(name, {}))]


look = FunctionTool(
    "look",
    "A client looks.",
    {"type": "object", "properties": {}, "additionalProperties": False},
    on_invoke_tool=lambda context, arguments: asyncio.sleep(0, "never"),
)
clerk = Agent("clerk", model=LocalModel(write_clerk), tools=[transfer, broken, fatal, feed, look])
serve(clerk, policies={"look": "client"})


# handoffs, and an agent as a tool


@input_guardrail
async def no_dogs(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    effect(f"guardrail of {agent.name}")
    return GuardrailFunctionOutput("Dogs stay outside.", "dog" in asked(given))


def write_translator(given: Any, instructions: str) -> Any:
    effect("nested model call")
    return [said(f"hallo {asked(given)}")]


def write_support(given: Any, instructions: str) -> Any:
    found = [each for each in outputs(given) if not each.startswith("{")]  # without the handoff's
    match found:
        case []:
            return [call("translate", f"call_t{len(given)}", input="Welt")]
        case [_]:
            return [call("sign", f"call_s{len(given)}")]
    handoffs = sum(item.get("name") == "transfer_to_support" for item in given)
    return [said(f"{instructions} {' '.join(found)} {handoffs}", len(given))]


@function_tool(needs_approval=True)
def sign() -> str:
    """Sign."""
    return "signed"


def write_triage(given: Any, instructions: str) -> Any:
    return [call("transfer_to_support", f"call_h{len(given)}")]


async def on_handoff(context: RunContextWrapper[Any]) -> None:
    effect("handed over")


translator = Agent("translator", model=LocalModel(write_translator))
support = Agent(
    "support",
    instructions="I support.",
    model=LocalModel(write_support),
    tools=[translator.as_tool("translate", "Translate."), sign],
)
triage = Agent(
    "triage",
    model=LocalModel(write_triage),
    handoffs=[handoff(support, on_handoff=on_handoff)],
    input_guardrails=[no_dogs],
)
serve(triage)


# guardrails, structured output, and turns that never end


@output_guardrail(name="short answers")
async def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, len(str(output)) > 50)


class Weather(BaseModel):
    city: str
    degrees: int


serve(
    Agent(
        "guarded",
        model=LocalModel(lambda given, _: [said(f"You said: {asked(given)}")]),
        input_guardrails=[no_dogs],
        output_guardrails=[short],
    )
)
serve(Agent("weather", model=LocalModel(lambda *_: [said('{"city": "Ulm", "degrees": 7}')]), output_type=Weather))
serve(
    Agent(
        "endless",
        model=LocalModel(lambda given, _: [call("balance", f"call_{len(given)}", owner="E")]),
        tools=[balance],
    ),
    max_turns=3,
)


def write_lost(given: Any, instructions: str) -> Any:
    raise ConnectionError("secret-key-in-here")


serve(Agent("lost", model=LocalModel(write_lost)))


# attachments


def write_eyes(given: Any, instructions: str) -> Any:
    parts = given[-1]["content"]
    if isinstance(parts, str):
        return [said("nothing")]
    return [said(", ".join(part.get("text") or part["image_url"][:22] + str(len(part["image_url"])) for part in parts))]


serve(Agent("eyes", model=LocalModel(write_eyes)))


# hosted tools, a tool whose output is the answer, and a model that fails at first


def write_search(given: Any, instructions: str) -> Any:
    action = ActionSearch(type="search", query="tea")
    searched = ResponseFunctionWebSearch(
        id=f"ws_{len(given)}", type="web_search_call", status="completed", action=action
    )
    return [searched, said(f"Found among {len(given)} items.", len(given))]


serve(Agent("searcher", model=LocalModel(write_search), tools=[WebSearchTool()]))
serve(
    Agent(
        "teller",
        model=LocalModel(lambda given, _: [call("balance", f"call_{len(given)}", owner="Teller")]),
        tools=[balance],
        tool_use_behavior="stop_on_first_tool",
    )
)


def is_connection(failed: RetryPolicyContext) -> bool:
    return isinstance(failed.error, ConnectionError)


def write_flaky(given: Any, instructions: str) -> Any:
    if outputs(given):
        return [said("It works.")]
    effect("flaky")
    if EFFECTS.read_text().count("flaky") == 1:
        raise ConnectionError("not yet")
    return [call("sign", f"call_{len(given)}")]


serve(
    Agent(
        "flaky",
        model=LocalModel(write_flaky),
        tools=[sign],
        model_settings=ModelSettings(retry=ModelRetrySettings(max_retries=2, policy=is_connection)),
    )
)


# a model of the SDK itself, over HTTP

provider = OpenAIProvider(api_key="key", base_url=os.environ.get("FAKE_OPENAI", "http://none"), use_responses=False)
serve(
    Agent("wired", model="fake-1", instructions="Be brief.", tools=[balance]),
    run_config=RunConfig(model_provider=provider),
)


# an MCP server of the agent


def write_reader(given: Any, instructions: str) -> Any:
    found = outputs(given)
    return [said(found[-1])] if found else [call("add", f"call_{len(given)}", a=2, b=3)]


SERVER = Path(__file__).with_name("oai_mcp_server.py")
serve(
    Agent(
        "reader",
        model=LocalModel(write_reader),
        mcp_servers=[MCPServerStdio({"command": sys.executable, "args": [str(SERVER)]}, name="sums")],
    ),
    policies={"add": "ask"},
)

serve(Agent("unreachable", mcp_servers=[MCPServerStdio({"command": sys.executable, "args": ["-c", ""]}, name="gone")]))


# a guardrail that trips while the model speaks


@input_guardrail
async def slow_check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    await asyncio.sleep(0.3)
    return GuardrailFunctionOutput("Not so fast.", True)


serve(
    Agent(
        "watched",
        model=LocalModel(lambda *_: [said(WORDS * 5)], word_seconds=0.05),
        input_guardrails=[slow_check],
    )
)
