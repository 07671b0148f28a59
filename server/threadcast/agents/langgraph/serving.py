"""Serves a compiled graph of LangGraph, and runs it inside a durable function."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.errors import GraphRecursionError
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot

from threadcast.agents.langgraph.history import messages_of
from threadcast.agents.langgraph.interrupts import People
from threadcast.agents.langgraph.nodes import RunNodes, check_nodes, tools_of
from threadcast.agents.langgraph.saver import JournalSaver
from threadcast.agents.langgraph.stream import GraphStream
from threadcast.base.boundary import name_of
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.errors import Rejected, StepFailed
from threadcast.custom_agents.pieces import KEEP_MAX_BYTES
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.custom_agents.seam import AttemptCut, ShownCall
from threadcast.custom_agents.serving import serve_agent
from threadcast.tools.base import Policy, Retry
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["PASSES_MAX", "RECURSION_LIMIT", "serve"]

RECURSION_LIMIT = 100
"""The maximum steps of the graph between two pauses; LangGraph's own limit for graphs of agents is the same."""

PASSES_MAX = 200
"""The maximum number of times that a graph is resumed in one run."""

MakeInput = Callable[[AgentContext, list[Any]], Any]
"""Makes the input of a graph from the context and the new messages of LangChain."""


def serve(
    graph: Pregel[Any, Any, Any, Any],
    *,
    name: str,
    title: str = "",
    description: str = "",
    policies: Mapping[str, Policy] | None = None,
    retry: Mapping[str, Retry] | None = None,
    tool_prefix: str = "",
    input: MakeInput | None = None,
    context: Callable[[AgentContext], Any] | None = None,
    configurable: Mapping[str, Any] | None = None,
    recursion_limit: int = RECURSION_LIMIT,
) -> Agent:
    """Serve a compiled graph under the profile `name`. The chat replaces the graph's checkpointer.

    `policies` maps names of tools to policies; `retry` maps names of tools (default `once`) and of nodes (default
    `safe`) to retry classes. If the server crashed while a node with `once` ran, a person is asked before the node runs
    a second time. `input` makes the graph's input from the context and the new messages; by default it is {"messages":
    […]}. `context` makes the graph's runtime context. `configurable` is passed to the nodes together with the chat's
    own values (`thread_id`, `principal`, `params`, `context`). The names of the tools in the chat begin with
    `tool_prefix`.

    Raises:
        TypeError: the name is invalid, the argument is not a compiled graph, or a name belongs to no tool or node.
    """
    if not isinstance(graph, Pregel):
        raise TypeError(f"serve takes a compiled graph, not a {type(graph).__name__}; call .compile() on a StateGraph")
    policies, retry = policies or {}, retry or {}
    check_nodes(graph, retry)
    tools = tools_of(graph, policies, retry, tool_prefix)

    async def run(ctx: AgentContext) -> None:
        await _Run(ctx, graph, retry, tool_prefix, input, context, configurable or {}, recursion_limit).go()

    return serve_agent(run, name=name, title=title, description=description, tools=tools)


class _Run:
    """One run of the chat."""

    def __init__(
        self,
        ctx: AgentContext,
        graph: Pregel[Any, Any, Any, Any],
        retry: Mapping[str, Retry],
        prefix: str,
        make_input: MakeInput | None,
        make_context: Callable[[AgentContext], Any] | None,
        configurable: Mapping[str, Any],
        recursion_limit: int,
    ) -> None:
        self._ctx = ctx
        self._seam = ctx.seam
        self._prefix = prefix
        self._make_input = make_input
        self._context = make_context(ctx) if make_context is not None else None
        self._kept_at, kept = _newest_kept(ctx.messages)
        self._saver = JournalSaver(ctx.seam, kept)
        self._nodes = RunNodes(ctx.seam, self._saver, retry, prefix)
        self._graph = self._nodes.graph(graph)
        self._config: Any = {
            "recursion_limit": recursion_limit,
            "configurable": {
                **configurable,
                "thread_id": ctx.chat_id,
                "principal": ctx.principal.id,
                "params": ctx.params,
                "context": ctx.context,
            },
        }

    async def go(self) -> None:
        """Run the graph until it no longer waits for anything. Raises ModelFailed: the run has failed."""
        try:
            await self._go()
        except (ModelFailed, AttemptCut):
            raise
        except Rejected as rejected:
            raise ModelFailed("llm_error", f"The question was not answered. {rejected.note}".strip()) from None
        except GraphRecursionError:
            limit = self._config["recursion_limit"]
            raise ModelFailed("limit", f"The graph made more than {limit} steps, its limit.") from None
        except StepFailed as failed:
            raise ModelFailed("llm_error", f"The model call failed ({failed.kind}).") from failed
        except Exception as wrong:
            raise ModelFailed("llm_error", f"The graph failed ({name_of(wrong)}).", detail=str(wrong)) from wrong

    async def _go(self) -> None:
        has_begun = await self._saver.load()
        self._nodes.calls.update((call.own_id, call) for call in self._seam.shown_calls())
        given: Any = None if has_begun else await self._input()
        for _ in range(PASSES_MAX):
            state = await self._graph.aget_state(self._config) if has_begun else None
            if state is not None:
                waiting = [each for each in state.interrupts if not self._saver.is_answered(each.id)]
                if not state.interrupts and not state.next:
                    break
                given = Command(resume=await self._answers(state, waiting)) if waiting else None
            await self._pass(given)
            has_begun = True
        else:
            raise ModelFailed("limit", f"The graph was resumed {PASSES_MAX} times, its limit for one run.")
        packed = self._saver.packed()
        if len(packed) <= KEEP_MAX_BYTES:
            await self._seam.keep(packed)

    async def _input(self) -> Any:  # Any: the graph's input
        messages = await self._seam.with_attachments(self._ctx.messages[self._kept_at :])
        new = messages_of(messages)
        return {"messages": new} if self._make_input is None else self._make_input(self._ctx, new)

    async def _pass(self, given: Any) -> None:
        """Run the graph until it ends or waits."""
        events: Any = self._graph.astream(
            given,
            self._config,
            context=self._context,
            stream_mode=["messages", "custom"],
            subgraphs=True,
            durability="sync",
        )
        counts: Counter[str] = Counter()
        await GraphStream(self._seam, events, self._nodes.calls, counts, self._prefix).show()

    async def _answers(self, state: StateSnapshot, waiting: Sequence[Interrupt]) -> JsonObject:
        """Ask all questions that the graph waits for at the same time. Returns the answers by the ids of the
        interrupts."""
        people = People(self._seam, self._prefix, self._nodes.calls, _open_calls(state, self._nodes.calls))
        by_id = {each.id: each for each in waiting}
        return dict(zip(by_id, await asyncio.gather(*map(people.answer, by_id.values())), strict=True))


def _newest_kept(messages: Sequence[RoundMessage]) -> tuple[int, bytes]:
    """Return the number of messages that the kept state of the graph covers, and the state itself."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].keep:
            return index + 1, messages[index].keep
    return 0, b""


def _open_calls(state: StateSnapshot, calls: Mapping[str, ShownCall]) -> list[ShownCall]:
    """Return the shown calls that wait for a result."""
    messages = state.values.get("messages") if isinstance(state.values, dict) else None
    answered = {getattr(each, "tool_call_id", None) for each in messages or ()}
    return [
        calls[call["id"]]
        for message in messages or ()
        for call in getattr(message, "tool_calls", ())
        if call["id"] in calls and call["id"] not in answered
    ]
