"""Toolsets whose calls are calls of the chat, under the chat's policies, approvals and deadlines."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai import AbstractToolset, CombinedToolset, ExternalToolset, FunctionToolset, RunContext, WrapperToolset
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry
from pydantic_ai.exceptions import ToolFailed as Failed
from pydantic_ai.messages import ToolReturn, ToolReturnPart
from pydantic_ai.tools import ToolDefinition, ToolDenied
from pydantic_ai.toolsets import ToolsetTool

from threadcast.agents.pydantic_ai.models import Messages
from threadcast.agents.pydantic_ai.responses import arguments_of
from threadcast.base.boundary import name_of
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown, Rejected
from threadcast.custom_agents.seam import CallReturn, DeclaredAgentTool, NeedsApproval, Seam
from threadcast.tools.agent_tool import AgentTool
from threadcast.tools.base import Policy, Retry, ToolResult
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.mending import mend, mend_text
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["RecordedToolset", "Settings", "ToolRaised", "agent_tools"]

SHOWN_MAX_CHARACTERS = 2_000
"""Maximum characters of a tool's error."""

_RETURNS: TypeAdapter[list[ToolReturn[Any]]] = TypeAdapter(
    list[ToolReturn[Any]], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)

_shared: dict[tuple[int, str, str, str], tuple[object, AgentTool]] = {}
"""The tools of the server, by the id of the framework's tool and its settings, so that agents may share a tool. The
framework's tool is kept alive, so that its id is not reused."""


class ToolRaised(Exception):
    """A tool raised an exception that is not an answer for the model, so it ends the run."""


class Settings:
    """The settings with which the tools of an agent run in the chat. `policies` and `retry` have the framework's names
    of the tools as keys. In the chat, the names of the tools begin with `prefix`."""

    def __init__(self, policies: Mapping[str, Policy], retry: Mapping[str, Retry], prefix: str) -> None:
        self.policies = policies
        self.retry = retry
        self.prefix = prefix

    def values(self, definition: ToolDefinition) -> dict[str, Any]:
        """Return the values of a tool for the chat."""
        name = definition.name
        default: Policy = {"unapproved": "ask", "external": "client"}.get(definition.kind, "auto")  # type: ignore[assignment]  # the values are policies
        return {
            "name": self.prefix + name,
            "description": definition.description or "",
            "input_schema": mend(definition.parameters_json_schema),
            "policy": self.policies.get(name, default),
            "retry": self.retry.get(name, "once"),
            "timeout_seconds": definition.timeout,
        }

    def is_approved(self, definition: ToolDefinition) -> bool:
        """Return whether a running call of the tool counts as approved, because the chat has applied the tool's policy
        before."""
        return definition.name in self.policies or definition.kind == "unapproved"


def agent_tools(toolsets: Iterable[AbstractToolset[Any]], settings: Settings) -> list[AgentTool]:
    """Return the tools that are known when the server starts: functions and external tools. Other toolsets, such as MCP
    servers, report their tools only when a run begins.

    Raises:
        TypeError: every toolset is known, but `policies` or `retry` contains an unknown tool.
    """
    found: dict[str, AgentTool] = {}
    names: set[str] = set()
    are_all_known = True
    waiting = list(toolsets)
    while waiting:
        toolset = waiting.pop(0)
        if isinstance(toolset, CombinedToolset):
            waiting.extend(toolset.toolsets)
        elif type(toolset) is ExternalToolset or isinstance(toolset, FunctionToolset):
            for source, definition in _definitions(toolset):
                names.add(definition.name)
                values = settings.values(definition)
                key = (id(source), values["name"], values["policy"], values["retry"])
                if key not in _shared:
                    _shared[key] = (source, AgentTool(**values))
                found.setdefault(values["name"], _shared[key][1])
        else:
            are_all_known = False
    unknown = {*settings.policies, *settings.retry} - names
    if unknown and are_all_known:
        raise TypeError(f"the agent has no tools {sorted(unknown)}; known: {sorted(names)}")
    return list(found.values())


def _definitions(toolset: AbstractToolset[Any]) -> Iterable[tuple[object, ToolDefinition]]:
    if isinstance(toolset, FunctionToolset):
        return [(tool, replace(tool.tool_def, name=name)) for name, tool in toolset.tools.items()]
    if isinstance(toolset, ExternalToolset):
        return [(each, replace(each, kind="external")) for each in toolset.tool_defs]
    return []


@dataclass
class RecordedToolset(WrapperToolset[Any]):
    """The toolset of one run. The chat asks for approvals and runs external calls, so the framework does neither."""

    settings: Settings
    seam: Seam
    messages: Messages
    originals: dict[str, ToolsetTool[Any]] = field(default_factory=dict)
    known: frozenset[str] = frozenset()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await self.wrapped.get_tools(ctx)
        self.originals.update(tools)
        new = [each.tool_def for name, each in tools.items() if self.settings.prefix + name not in self.known]
        if new:
            await self.seam.declare([DeclaredAgentTool(**self.settings.values(each)) for each in new])
        return {
            name: replace(each, tool_def=replace(each.tool_def, kind="function")) if each.tool_def.defer else each
            for name, each in tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:  # Any: what the tool returns
        original = self.originals.get(name, tool)
        call = None if original.tool_def.tool_kind else self.messages.began(ctx.tool_call_id or "")
        if call is None:  # a tool of the framework itself, or a call made by another tool
            if original.tool_def.tool_kind is None and self.settings.values(original.tool_def)["policy"] != "auto":
                raise Failed(f"{name} needs an approval, so only the model may call it.")
            return await self.wrapped.call_tool(name, tool_args, ctx, original)
        shown = call

        async def carry_out(arguments: JsonObject, chat: ToolContext) -> CallReturn:
            given = tool_args
            if arguments != arguments_of(shown.arguments):
                given = _validated(original, arguments, ctx)
            if original.tool_def.kind == "external":
                raise ToolFailed(f"Only a client can carry out {name}: its policy must be `client`.")
            approved = self.settings.is_approved(original.tool_def) or self.seam.is_approved(shown.id)
            try:
                value = await self.wrapped.call_tool(name, given, replace(ctx, tool_call_approved=approved), original)
            except ApprovalRequired:
                if approved:
                    raise ToolFailed(f"{name} asks for an approval that it has.") from None
                raise NeedsApproval from None
            except CallDeferred as deferred:
                return CallReturn(ToolResult(content="The result follows."), {"deferred": mend(deferred.metadata)})
            except ModelRetry as wrong:
                return _failed("retry", wrong.message)
            except Failed as wrong:
                return _failed("failed", wrong.message)
            except Exception as wrong:  # boundary: the operator's tool
                return _failed("raised", f"{name_of(wrong)}: {wrong}")
            kept = _encoded(value)
            return CallReturn(ToolResult(content=_shown(name, kept)), {"returned": kept})

        try:
            found = await self.seam.call(shown.id, carry_out)
        except CallDenied as denied:
            return ToolDenied(f"The tool call was denied.{f' Note: {denied.note}' if denied.note else ''}")
        except OutcomeUnknown as unknown:
            raise Failed(f"{unknown}. Do not repeat it without asking.") from None
        except CallFailed as failed:
            raise Failed(str(failed)) from None
        return await self._value_of(name, shown.id, found)

    async def _value_of(self, name: str, call_id: str, found: Any) -> Any:  # Any: the recorded value of the call
        """Return the tool's value.

        Raises: ModelRetry, pydantic_ai.exceptions.ToolFailed: the tool raised this exception.
            ToolRaised: the tool raised another exception, which ends the run.
        """
        match found:
            case {"returned": kept}:
                return _decoded(kept)
            case {"retry": str(text)}:
                raise ModelRetry(text)
            case {"failed": str(text)}:
                raise Failed(text)
            case {"raised": str(text)}:
                raise ToolRaised(text)
            case {"deferred": metadata}:
                told = f": {json.dumps(metadata, ensure_ascii=False)[:SHOWN_MAX_CHARACTERS]}" if metadata else ""
                try:
                    return await self.seam.ask(f"deferred-{call_id}", f"{name} waits for an answer{told}")
                except Rejected as rejected:
                    return ToolDenied(f"No answer.{f' Note: {rejected.note}' if rejected.note else ''}")
        return found


def _validated(tool: ToolsetTool[Any], arguments: JsonObject, ctx: RunContext[Any]) -> dict[str, Any]:
    """Return the arguments that a person has edited. Raises ToolFailed: the arguments do not fit the tool."""
    try:
        return dict(tool.args_validator.validate_python(arguments, context=ctx.validation_context))
    except ValidationError as wrong:
        raise ToolFailed(f"The edited arguments do not fit: {wrong}"[:SHOWN_MAX_CHARACTERS]) from None


def _failed(kind: str, text: str) -> CallReturn:
    text = mend_text(text[:SHOWN_MAX_CHARACTERS])
    return CallReturn(ToolResult(content=text, failed=True), {kind: text})


def _encoded(value: Any) -> JsonObject:  # Any: what a tool returns
    """Return a tool's value as JSON. An object that is not JSON is converted to text."""
    is_whole = isinstance(value, ToolReturn)
    try:
        [kept] = _RETURNS.dump_python([value if is_whole else ToolReturn(value)], mode="json")
    except Exception:  # boundary: the operator's object
        [kept] = _RETURNS.dump_python([ToolReturn(str(value))], mode="json")
    return {"is_whole": is_whole, "value": mend(kept)}


def _decoded(kept: JsonObject) -> Any:  # Any: what a tool returns
    [found] = _RETURNS.validate_json(json.dumps([kept["value"]]))
    return found if kept["is_whole"] else found.return_value


def _shown(name: str, kept: JsonObject) -> str:
    """Return the text of a tool's value for clients."""
    value = _decoded(kept)
    content = value.return_value if isinstance(value, ToolReturn) else value
    part = ToolReturnPart(name, content)
    files = [f"[{each.media_type}]" for each in part.files]
    return mend_text("\n".join(filter(None, [part.model_response_str(), *files])))
