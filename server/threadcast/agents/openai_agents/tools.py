"""Function tools of the SDK that run as calls of the chat, under the chat's policies, approvals and deadlines."""

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from agents import FunctionTool
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext as SdkContext
from pydantic import BaseModel

from threadcast.agents.openai_agents.models import Messages, is_nested
from threadcast.agents.openai_agents.responses import arguments_of
from threadcast.base.boundary import name_of
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown
from threadcast.custom_agents.seam import CallReturn, DeclaredAgentTool, NeedsApproval, Seam
from threadcast.tools.agent_tool import AgentTool
from threadcast.tools.base import Policy, Retry, ToolResult
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.mending import mend
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Settings", "ToolRaised", "recorded_tool", "value_of"]

_FAILED = "_function_tool_default_failure_handled"
"""The SDK sets this attribute on the context of a call when it has turned the call's error into a text for the
model."""


_shared: dict[tuple[int, str, str, str], tuple[FunctionTool, AgentTool]] = {}
"""The tools of the server, by the id of the SDK's tool and its settings. The SDK's tool is kept alive, so that its id
is not reused."""


class ToolRaised(Exception):
    """A tool without a `failure_error_function` raised an exception, which ends the run."""


class Settings:
    """The settings with which the tools of an agent run in the chat. `policies` and `retry` have the names of the tools
    in the SDK as keys."""

    def __init__(self, policies: Mapping[str, Policy], retry: Mapping[str, Retry], prefix: str) -> None:
        self.policies = policies
        self.retry = retry
        self.prefix = prefix

    def agent_tool(self, tool: FunctionTool) -> AgentTool:
        """Return the tool for the server's list of tools. All agents that share a tool get the same object."""
        values = self._values(tool)
        key = (id(tool), values["name"], values["policy"], values["retry"])
        if key not in _shared:
            _shared[key] = (tool, AgentTool(**values, timeout_seconds=tool.timeout_seconds))
        return _shared[key][1]

    def declared(self, tool: FunctionTool) -> DeclaredAgentTool:
        """Return a tool that was not known when the server started."""
        return DeclaredAgentTool(**self._values(tool))

    def _values(self, tool: FunctionTool) -> dict[str, Any]:
        name = tool.qualified_name
        return {
            "name": self.prefix + name,
            "description": tool.description or "",
            "input_schema": mend(tool.params_json_schema),
            "policy": self.policy_of(tool),
            "retry": self.retry.get(name, "once"),
        }

    def policy_of(self, tool: FunctionTool) -> Policy:
        return self.policies.get(tool.qualified_name, "ask" if tool.needs_approval is True else "auto")

    def asks_itself(self, tool: FunctionTool) -> bool:
        """Return whether the tool's own function decides which calls need an approval."""
        return callable(tool.needs_approval) and tool.qualified_name not in self.policies


def recorded_tool(tool: FunctionTool, settings: Settings, seam: Seam, messages: Messages) -> FunctionTool:
    """Return a tool that runs as a call of the chat. The SDK itself no longer asks for approvals or applies its
    deadline, because that deadline would also count the time that people need. The SDK still runs the tool's
    guardrails."""

    async def invoke(context: SdkContext[Any], written: str) -> Any:
        async def carry_out(arguments: JsonObject, chat: ToolContext) -> CallReturn:
            is_edited = arguments != arguments_of(written)
            inner = _edited(context, json.dumps(arguments)) if is_edited else context
            asks = tool.needs_approval
            may_ask = settings.asks_itself(tool) and not seam.is_approved(chat.tool_call_id)
            if may_ask and callable(asks) and await asks(inner, arguments, inner.tool_call_id):
                raise NeedsApproval
            token = is_nested.set(True)
            try:
                output = await tool.on_invoke_tool(inner, inner.tool_arguments if is_edited else written)
            except Exception as wrong:  # boundary: the operator's tool
                text = f"{name_of(wrong)}: {wrong}"[:2_000]
                return CallReturn(ToolResult(content=f"The tool failed: {text}", failed=True), {"raised": text})
            finally:
                is_nested.reset(token)
            failed = bool(getattr(inner, _FAILED, False))
            interrupted = getattr(output, "interruptions", None)
            if interrupted:
                raise ToolFailed("A tool of the agent behind this tool needs an approval, which it cannot ask for.")
            value = value_of(tool, output)
            return CallReturn(ToolResult(content=_shown(value), failed=failed), value)

        call_id = messages.calls.get(context.tool_call_id)
        if call_id is None:  # the SDK made the call, not the model
            if settings.policy_of(tool) != "auto" or settings.asks_itself(tool):
                return f"Error: {tool.name} needs an approval, so only the model may call it."
            return await tool.on_invoke_tool(context, written)
        try:
            found = await seam.call(call_id, carry_out)
        except CallDenied as denied:
            return f"Tool execution was not approved.{f' Note: {denied.note}' if denied.note else ''}"
        except OutcomeUnknown as unknown:
            return f"Error: {unknown}. Do not repeat it without asking."
        except CallFailed as failed:
            return f"Error: {failed}"
        return _output_of(found)

    recorded = copy.copy(tool)
    recorded.on_invoke_tool = invoke
    recorded.needs_approval = False
    recorded.timeout_seconds = None
    return recorded


def value_of(tool: FunctionTool, output: Any) -> JsonObject:  # Any: what a tool of the SDK returns
    """Return the output of a tool as JSON: its text, its images and files, or its own JSON. Other objects are converted
    to text, as the SDK does for the model."""
    if isinstance(output, str):
        return {"text": mend(output)}
    parts = output if isinstance(output, list | tuple) else [output]
    if parts and all(isinstance(each, ToolOutputText | ToolOutputImage | ToolOutputFileContent) for each in parts):
        return {"parts": mend([each.model_dump(mode="json", exclude_none=True) for each in parts])}
    if isinstance(output, BaseModel) and tool.output_json_schema is not None:
        return {"json": mend(output.model_dump(mode="json", by_alias=True))}
    try:
        if json.loads(json.dumps(output)) == output:
            return {"json": mend(output)}
    except (TypeError, ValueError, RecursionError):
        pass
    return {"text": mend(str(output))}


def _output_of(value: Any) -> Any:  # Any: what `value_of` returned, or the result of a client's tool
    """Return the output of a tool in the form that the SDK reads.

    Raises:
        ToolRaised: the tool raised an exception that ends the run.
    """
    match value:
        case {"raised": str(text)}:
            raise ToolRaised(text)
        case {"text": str(text)}:
            return text
        case {"parts": list(parts)}:
            return parts
        case {"json": output}:
            return output
    return value if isinstance(value, str) else json.dumps(value)


def _shown(value: JsonObject) -> str:
    """Return the text of a tool's output for clients."""
    match value:
        case {"text": text}:
            return str(text)
        case {"parts": parts}:
            return "\n".join(_shown_parts(parts))
    return json.dumps(value.get("json"), ensure_ascii=False)


def _shown_parts(parts: Iterable[JsonObject]) -> Iterable[str]:
    for part in parts:
        yield (
            str(part["text"]) if part["type"] == "text" else f"[{part['type']} {part.get('filename', '')}".strip() + "]"
        )


def _edited(context: SdkContext[Any], arguments: str) -> SdkContext[Any]:
    """Return the context of a call whose arguments a person has edited."""
    edited = copy.copy(context)
    edited.tool_arguments = arguments
    if context.tool_call is not None:
        edited.tool_call = context.tool_call.model_copy(update={"arguments": arguments})
    return edited
