"""The nodes of a graph as the server runs them. Each running node counts as work, a node with `once` asks a person
before it runs again, and the calls of a `ToolNode` are calls of the chat."""

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec
from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command

from threadcast.agents.langgraph.saver import JournalSaver, dumps, loads
from threadcast.agents.langgraph.shown import arguments_of, digest, show_call
from threadcast.agents.langgraph.stream import all_shown, tell_end
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown
from threadcast.custom_agents.seam import CallReturn, NotFinished, Seam, ShownCall
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
    """Return the tools of the graph's tool nodes, as the server lists them.

    Raises:
        TypeError: a policy or a retry class names neither a tool nor a node.
    """
    found: dict[str, BaseTool] = {}
    for each in _graphs(graph):
        for node in each.nodes.values():
            if isinstance(node.bound, ToolNode):
                for name, tool in node.bound.tools_by_name.items():
                    if found.setdefault(name, tool) is not tool and _schema(found[name]) != _schema(tool):
                        raise TypeError(f"two tools of the graph are called {name!r}; rename one")
    unknown = sorted((set(policies) - set(found)) | (set(retry) - set(found) - set(graph.nodes)))
    if unknown:
        known = ", ".join([*sorted(found), *(name for name in graph.nodes if not name.startswith("__"))])
        raise TypeError(f"the graph has neither tools nor nodes {unknown}; known: {known}")
    return [
        AgentTool(
            prefix + name,
            description=tool.description or "",
            input_schema=_schema(tool),
            policy=policies.get(name, "auto"),
            retry=retry.get(name, "once"),
        )
        for name, tool in found.items()
    ]


def check_nodes(graph: Pregel[Any, Any, Any, Any], retry: Mapping[str, Retry]) -> None:
    """Raise TypeError if a node's retry class is neither `once` nor `safe`, or if a node with `once` consists of parts
    that have their own retry classes."""
    wrong = [name for name in retry if name in graph.nodes and retry[name] not in ("once", "safe")]
    if wrong:
        raise TypeError(f"a node is once or safe, not {retry[wrong[0]]!r}: {wrong[0]}")
    for name in retry:
        bound = graph.nodes[name].bound if name in graph.nodes and retry[name] == "once" else None
        if isinstance(bound, ToolNode | Pregel):
            parts = "tools, which are once already" if isinstance(bound, ToolNode) else "the nodes of that graph"
            raise TypeError(f"the node {name!r} cannot be once itself; give the class to its {parts}")


def _graphs(graph: Pregel[Any, Any, Any, Any]) -> Iterator[Pregel[Any, Any, Any, Any]]:
    """Yield the graph and the graphs that are its nodes."""
    yield graph
    for node in graph.nodes.values():
        if isinstance(node.bound, Pregel):
            yield from _graphs(node.bound)


def _schema(tool: BaseTool) -> JsonObject:
    return tool.args_schema if isinstance(tool.args_schema, dict) else tool.get_input_jsonschema()


class RunNodes:
    """The nodes of one run. `calls` maps the ids that the model gave to the shown calls."""

    def __init__(self, seam: Seam, saver: JournalSaver, retry: Mapping[str, Retry], prefix: str) -> None:
        self._seam = seam
        self._saver = saver
        self._retry = retry
        self._prefix = prefix
        self.calls: dict[str, ShownCall] = {}

    def graph(self, graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
        """Return a copy of the graph with these nodes and with the run's checkpointer."""
        served = self._copy(graph)
        served.checkpointer = self._saver
        return served

    def _copy(self, graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
        served = copy.copy(graph)
        served.nodes = {name: self._node(name, node) for name, node in graph.nodes.items()}
        return served

    def _node(self, name: str, node: Any) -> Any:  # Any: a PregelNode
        if name.startswith("__"):
            return node
        bound = node.bound
        if isinstance(bound, Pregel):
            inner = self._copy(bound)
            return node.copy({"bound": _Node(name, inner, self._seam, False), "subgraphs": [inner]})
        if isinstance(bound, ToolNode):
            bound = copy.copy(bound)
            bound.func, bound.afunc = bound._func, bound._afunc  # the copied functions belong to the original node
            bound._awrap_tool_call = self._wrapped(bound._awrap_tool_call)
        is_once = self._retry.get(name) == "once"
        return node.copy({"bound": _Node(name, bound, self._seam, is_once)})

    def _wrapped(
        self, own: Callable[[Any, Any], Awaitable[ToolMessage | Command[Any]]] | None
    ) -> Callable[[Any, Any], Awaitable[ToolMessage | Command[Any]]]:
        """Return the function that runs a call of a tool node. The function runs the call through the chat, and runs
        the graph's own wrapper `own` inside it."""

        async def run(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> ToolMessage | Command[Any]:
            call = request.tool_call
            await all_shown()
            shown = self.calls.get(call["id"] or "")
            if shown is None or not self._is_same(shown, call):
                shown = await show_call(
                    self._seam, f"call {call['id']} {digest(call)}", self._prefix + call["name"], call["args"]
                )

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
                found = await self._seam.call(shown.id, carry_out)
                if isinstance(found, dict) and found.keys() == {"type", "data"}:
                    return loads(self._saver, found)  # type: ignore[no-any-return]
                text = found if isinstance(found, str) else msgspec.json.encode(found).decode()  # of a client
                return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"])
            except CallDenied as denied:
                text = f"The user denied this call. {denied.note}".strip()
            except OutcomeUnknown as unknown:
                text = f"Error: {unknown}. Do not repeat it without asking."
            except CallFailed as failed:
                text = f"Error: {failed}"
            return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"], status="error")

        return run

    def _is_same(self, shown: ShownCall, call: Mapping[str, Any]) -> bool:
        """Return whether the graph makes the same call that people have seen. After an approval the arguments may
        differ, because a person may have edited them in the chat."""
        if shown.name != self._prefix + call["name"]:
            return False
        return self._seam.is_approved(shown.id) or arguments_of(shown) == call["args"]


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
        task = str(((config or {}).get("metadata") or {}).get("langgraph_checkpoint_ns", self.name))
        async with self._seam.working():
            key = f"node {task}"[-190:]
            begun = await self._begin(key) if self._is_once else 0
            try:
                return await self._bound.ainvoke(input, config, **kwargs)
            except Exception:  # the node asks a question or has failed, so its outcome is known
                if begun:
                    await self._seam.put(key, -begun)
                raise
            finally:
                tell_end(task)

    async def _begin(self, key: str) -> int:
        """Record that the node begins, or ask whether it may run again. Returns the number of times that the node has
        begun.

        Raises:
            ModelFailed: the node must not run again.
        """
        begun = int(await self._seam.get(key) or 0)
        if begun > 0:
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
        await self._seam.put(key, abs(begun) + 1)
        return abs(begun) + 1


def _result(found: object) -> ToolResult:
    """Return the result that clients see for a tool's message or command."""
    if isinstance(found, ToolMessage):
        text = found.content if isinstance(found.content, str) else str(found.text)
        return ToolResult(content=text, failed=found.status == "error")
    if isinstance(found, Command):
        return ToolResult(content=f"Goes on with {found.goto}" if found.goto else "Changed the state.")
    return ToolResult(content=str(found)[:RESULT_MAX_CHARACTERS])
