"""The nodes of a graph as the server runs them: each counts as work, a node that may run once asks before it runs
again, and the calls of a `ToolNode` are calls of the chat."""

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command

from threadcast.agents.langgraph.saver import JournalSaver, dumps, loads
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown
from threadcast.custom_agents.seam import CallReturn, NotFinished, Seam
from threadcast.tools.agent_tool import AgentTool
from threadcast.tools.base import Policy, Retry, ToolResult
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["RunNodes", "check_nodes", "tools_of"]

AGAIN, STOP = "Run it again", "Stop"

RESULT_MAX_CHARACTERS = 2_000


def tools_of(
    graph: Pregel[Any, Any, Any, Any], policies: Mapping[str, Policy], retry: Mapping[str, Retry], prefix: str
) -> list[AgentTool]:
    """Return the tools of the graph's tool nodes, as they stand in the server's list.

    Raises:
        TypeError: a policy or a retry class names neither a tool nor a node.
    """
    found: dict[str, BaseTool] = {}
    for node in graph.nodes.values():
        if isinstance(node.bound, ToolNode):
            found.update(node.bound.tools_by_name)
    unknown = sorted((set(policies) - set(found)) | (set(retry) - set(found) - set(graph.nodes)))
    if unknown:
        known = ", ".join([*sorted(found), *(name for name in graph.nodes if not name.startswith("__"))])
        raise TypeError(f"the graph has neither tools nor nodes {unknown}; known: {known}")
    return [
        AgentTool(
            prefix + name,
            description=tool.description or "",
            input_schema=tool.get_input_jsonschema() if not isinstance(tool.args_schema, dict) else tool.args_schema,
            policy=policies.get(name, "auto"),
            retry=retry.get(name, "once"),
        )
        for name, tool in found.items()
    ]


def check_nodes(graph: Pregel[Any, Any, Any, Any], retry: Mapping[str, Retry]) -> None:
    """Raise TypeError if a node's retry class is neither `once` nor `safe`."""
    wrong = [name for name in retry if name in graph.nodes and retry[name] not in ("once", "safe")]
    if wrong:
        raise TypeError(f"a node is once or safe, not {retry[wrong[0]]!r}: {wrong[0]}")


class RunNodes:
    """The nodes of one run. `calls` has the chat's id of each shown call, by the model's."""

    def __init__(self, seam: Seam, saver: JournalSaver, retry: Mapping[str, Retry], prefix: str) -> None:
        self._seam = seam
        self._saver = saver
        self._retry = retry
        self._prefix = prefix
        self.calls: dict[str, str] = {}

    def graph(self, graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
        """Return a copy of the graph with these nodes and with the run's checkpointer."""
        served = copy.copy(graph)
        served.checkpointer = self._saver
        served.nodes = {name: self._node(name, node) for name, node in graph.nodes.items()}
        return served

    def _node(self, name: str, node: Any) -> Any:  # Any: a PregelNode
        if name.startswith("__"):
            return node
        bound = node.bound
        if isinstance(bound, ToolNode):
            bound = copy.copy(bound)
            bound.func, bound.afunc = bound._func, bound._afunc  # those of the original call the original
            bound._awrap_tool_call = self._wrapped(bound._awrap_tool_call)
        is_once = self._retry.get(name) == "once"
        return node.copy({"bound": _Node(name, bound, self._seam, is_once)})

    def _wrapped(
        self, own: Callable[[Any, Any], Awaitable[ToolMessage | Command[Any]]] | None
    ) -> Callable[[Any, Any], Awaitable[ToolMessage | Command[Any]]]:
        """Return what runs a call of a tool node: through the chat, around the graph's own wrapper `own`."""

        async def run(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> ToolMessage | Command[Any]:
            call = request.tool_call
            call_id = self.calls.get(call["id"] or "")
            if call_id is None:  # the graph has made the call, and no model
                return await (own(request, execute) if own is not None else execute(request))

            async def carry_out(arguments: JsonObject, context: ToolContext) -> CallReturn:
                asked = request
                if arguments != call["args"]:
                    asked = request.override(tool_call={**call, "args": arguments})
                try:
                    found = await (own(asked, execute) if own is not None else execute(asked))
                except GraphBubbleUp as asks:
                    raise NotFinished(asks) from None
                return CallReturn(_result(found), dumps(self._saver, found))

            try:
                return loads(self._saver, await self._seam.call(call_id, carry_out))  # type: ignore[no-any-return]
            except CallDenied as denied:
                text = f"The user denied this call. {denied.note}".strip()
            except OutcomeUnknown as unknown:
                text = f"Error: {unknown}. Do not repeat it without asking."
            except CallFailed as failed:
                text = f"Error: {failed}"
            return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"], status="error")

        return run


class _Node(Runnable[Any, Any]):
    """A node that counts as work while it runs. With `is_once`, a person is asked before it runs a second time."""

    def __init__(self, name: str, bound: Runnable[Any, Any], seam: Seam, is_once: bool) -> None:
        self.name = name
        self._bound = bound
        self._seam = seam
        self._is_once = is_once

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        raise NotImplementedError("a served graph runs asynchronously")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        async with self._seam.working():
            if self._is_once:
                await self._begin(str(((config or {}).get("metadata") or {}).get("langgraph_checkpoint_ns", self.name)))
            return await self._bound.ainvoke(input, config, **kwargs)

    async def _begin(self, task: str) -> None:
        """Record that the node begins, or ask whether it may run again. Raises ModelFailed: it may not."""
        key = f"node {task}"[-190:]
        begun = await self._seam.get(key)
        if begun is not None:
            said = await self._seam.ask(
                f"{key} {begun}",
                f"The server stopped while the step {self.name!r} ran. It may or may not have had its effect. "
                "Shall it run again?",
                [AGAIN, STOP],
            )
            if said != AGAIN:
                raise ModelFailed(
                    "llm_error", f"The outcome of the step {self.name!r} is unknown, so the run was ended."
                )
        await self._seam.put(key, (begun or 0) + 1)


def _result(found: object) -> ToolResult:
    """Return what clients see of a tool's message or command."""
    if isinstance(found, ToolMessage):
        text = found.content if isinstance(found.content, str) else str(found.text)
        return ToolResult(content=text, failed=found.status == "error")
    if isinstance(found, Command):
        return ToolResult(content=f"Goes on with {found.goto}" if found.goto else "Changed the state.")
    return ToolResult(content=str(found)[:RESULT_MAX_CHARACTERS])
