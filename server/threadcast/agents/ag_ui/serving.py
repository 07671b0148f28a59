"""Serves a remote agent that speaks AG-UI 1.0 (ag-ui.com/spec/1.0).

A run of the chat is one or more runs of the agent. An interrupt ends the agent's run, and people's answer begins the
agent's next run with `resume`. The result of a client's tool begins a next run, too. While the run waits for people or
clients, it holds no resources. A run of the agent that was requested is never repeated after a crash: the chat's run
ends `interrupted`, and the shown text remains.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from threadcast.agents.ag_ui.client import RemoteAgent
from threadcast.agents.ag_ui.events import Interrupt
from threadcast.agents.ag_ui.history import Conversation, conversation_of, tool_message
from threadcast.agents.ag_ui.stream import RunDone, RunStream, tool_name
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown, Rejected
from threadcast.custom_agents.pieces import Call
from threadcast.custom_agents.seam import Approval, AttemptCut
from threadcast.custom_agents.serving import serve_agent
from threadcast.tools.base import Policy, ToolResult
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.errors import ModelFailed, ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["PROTOCOL_VERSION", "RUNS_MAX", "agent_function", "serve"]

PROTOCOL_VERSION = "1.0"

RUNS_MAX = 50
"""The maximum runs of the agent in one run of the chat."""

SILENCE_SECONDS = 300.0

CUT = "The connection to the agent was lost when the server stopped. What the agent said until then stays."

NO_RESULT = "The agent has not told the result of this call."

EDITED = ("editedArgs", "arguments", "edited_args", "args")
"""The names that agents give to edited arguments in their schema; the specification's example comes first."""

NOTES = ("reason", "note", "comment", "feedback")


def serve(
    url: str,
    *,
    name: str,
    title: str = "",
    description: str = "",
    headers: Mapping[str, str] | None = None,
    policies: Mapping[str, Policy] | None = None,
    silence_seconds: float = SILENCE_SECONDS,
) -> Agent:
    """Serve the agent at `url` under the profile `name`.

    `headers` are sent with each request. `policies` maps names of the agent's own tools to the policies for approvals
    that the agent requests: `auto` accepts without asking, `deny` rejects. `silence_seconds` is the maximum time
    without a byte from the agent.

    Raises:
        TypeError: the name is invalid.
    """
    remote = RemoteAgent(url, headers or {}, silence_seconds)
    return serve_agent(agent_function(remote, policies or {}), name=name, title=title, description=description)


def agent_function(remote: RemoteAgent, policies: Mapping[str, Policy]) -> Any:  # Any: an async function of a context
    """Return the durable function that lets the remote agent answer."""

    async def run(ctx: AgentContext) -> None:
        await _Run(ctx, remote, policies).go()

    return run


class _Run:
    """One run of the chat."""

    def __init__(self, ctx: AgentContext, remote: RemoteAgent, policies: Mapping[str, Policy]) -> None:
        self._ctx = ctx
        self._seam = ctx.seam
        self._remote = remote
        self._policies = policies
        self._client_tools = {tool.name for tool in ctx.tools}
        self._conversation = Conversation()
        self._calls: dict[str, str] = {}

    async def go(self) -> None:
        """Run the agent until it no longer waits for anything. Raises ModelFailed, AttemptCut."""
        self._conversation = conversation_of(await self._seam.with_attachments(self._ctx.messages))
        resume: list[JsonObject] = []
        for number in range(1, RUNS_MAX + 1):
            done = await self._run(f"run-{number}", resume)
            self._calls |= done.calls
            self._conversation.add(done.messages)
            self._conversation.state = done.state
            if done.interrupts:
                resume = await self._answers(f"run-{number}", done.interrupts)
            elif not await self._carry_out(f"run-{number}", done.open_calls):
                return
            else:
                resume = []
        raise ModelFailed("limit", f"The agent was asked {RUNS_MAX} times in this run, its limit.")

    async def _run(self, key: str, resume: list[JsonObject]) -> RunDone:
        """Run the agent once, or return the recorded result of that run."""
        recorded = await self._seam.get(key)
        if recorded is not None:
            return msgspec.convert(recorded, RunDone)
        if await self._seam.get(f"{key}-begun"):
            raise AttemptCut(CUT)
        await self._seam.put(f"{key}-begun", True)  # recorded first: the request may have effects before any event
        async with self._remote.run(self._body(key, resume)) as events:
            stream = RunStream(
                self._seam, key, events, self._conversation, self._calls, self._client_tools, self._policies
            )
            done = await stream.show()
        await self._seam.put(key, msgspec.to_builtins(done))
        return done

    def _body(self, key: str, resume: list[JsonObject]) -> JsonObject:
        """Return the RunAgentInput."""
        ctx = self._ctx
        body = {
            "threadId": ctx.chat_id,
            "runId": f"{ctx.run_id}-{key}",
            "protocolVersion": PROTOCOL_VERSION,
            "state": {} if self._conversation.state is None else self._conversation.state,
            "messages": self._conversation.messages,
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
                for tool in ctx.tools
            ],
            "context": [
                {"description": name, "value": value if isinstance(value, str) else msgspec.json.encode(value).decode()}
                for name, value in ctx.context.items()
            ],
            "forwardedProps": {name: value for name, value in ctx.params.items() if name != "mode"},
        }
        return {**body, "resume": resume} if resume else body

    async def _carry_out(self, key: str, open_calls: list[str]) -> bool:
        """Let clients carry out the calls of their tools. Returns False if there are no such calls."""
        waiting = [own_id for own_id in open_calls if self._name_of(own_id) in self._client_tools]
        for own_id in open_calls:
            if own_id not in waiting:
                await self._seam.report(self._calls[own_id], ToolResult(content=NO_RESULT, failed=True))
        texts = await asyncio.gather(*(self._by_client(own_id) for own_id in waiting))
        results = [
            tool_message(f"{key}-client-{own_id}", own_id, text) for own_id, text in zip(waiting, texts, strict=True)
        ]
        self._conversation.add(results)
        return bool(waiting)

    async def _by_client(self, own_id: str) -> str:
        """Return the result of a client's tool as text."""

        async def nobody(arguments: JsonObject, context: ToolContext) -> str:
            raise ToolFailed("No client offers this tool any more.")

        try:
            value = await self._seam.call(self._calls[own_id], nobody)
        except CallDenied as denied:
            return f"The person denied the call. {denied.note}".strip()
        except (CallFailed, OutcomeUnknown) as failed:
            return f"Error: {failed}"
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    def _name_of(self, own_id: str) -> str:
        for message in self._conversation.messages:
            for call in message.get("toolCalls", ()):
                if call["id"] == own_id:
                    return tool_name(call["function"]["name"])
        return ""

    async def _answers(self, key: str, interrupts: list[Interrupt]) -> list[JsonObject]:
        """Ask people all questions that the agent waits for at the same time, and return the entries of `resume`."""
        asked: list[tuple[Interrupt, str]] = []
        for number, interrupt in enumerate(interrupts):
            call_id = self._calls.get(interrupt.tool_call_id or "", "")
            if not call_id and "approved" in _properties(interrupt):
                call_id = await self._shown(f"{key}-ask-{number}", interrupt)
            asked.append((interrupt, call_id))
        return await asyncio.gather(*(self._answer(f"{key}-ask-{number}", *each) for number, each in enumerate(asked)))

    async def _shown(self, key: str, interrupt: Interrupt) -> str:
        """Show the action that an interrupt asks about as a call, if the agent has shown no call for it, and return the
        id of the call."""

        async def pieces() -> AsyncIterator[object]:
            yield Call(tool_name(interrupt.reason or "approval"), {"message": interrupt.message or interrupt.reason})

        shown = await self._seam.message(key, pieces)
        return shown.calls[0].id

    async def _answer(self, key: str, interrupt: Interrupt, call_id: str) -> JsonObject:
        """Ask people for one decision or answer. Returns an entry of `resume`."""
        entry: JsonObject = {"interruptId": interrupt.id}
        if call_id:
            is_auto = self._policies.get(self._name_of(interrupt.tool_call_id or "")) == "auto"
            approval = await self._seam.approve(call_id, must_ask=not is_auto)
            if interrupt.tool_call_id not in self._calls:  # no result will come
                await self._seam.report(call_id, ToolResult(content="The person has agreed."))
            return {**entry, "status": "resolved", "payload": _payload(approval, _properties(interrupt))}
        text = interrupt.message or interrupt.reason or "The agent waits for an answer."
        schema = interrupt.response_schema
        try:
            answer = await self._asked(key, text[:4_000], schema)
        except Rejected:
            return {**entry, "status": "cancelled"}
        return {**entry, "status": "resolved", "payload": answer}

    async def _asked(self, key: str, text: str, schema: JsonObject | None) -> Any:  # Any: JSON that fits the schema
        """Ask a question, whose answer is a free text if the schema cannot be used. Raises Rejected."""
        try:
            return await self._seam.ask(key, text, schema=schema)
        except ValueError:
            return await self._seam.ask(f"{key}-text", text)


def _properties(interrupt: Interrupt) -> JsonObject:
    """Return the properties of the answer that an interrupt expects."""
    found = (interrupt.response_schema or {}).get("properties")
    return found if isinstance(found, dict) else {}


def _payload(approval: Approval, properties: JsonObject) -> JsonObject:
    """Return a decision in the form that the agent expects. If the agent cannot take edited arguments, the call is
    denied, since the agent would otherwise carry out a call that no person has accepted."""
    payload: JsonObject = {"approved": approval.accepted}
    note = approval.note
    if approval.accepted and approval.arguments is not None:
        edited = next((name for name in EDITED if name in properties), None)
        if edited is None:
            payload["approved"] = False
            wanted = msgspec.json.encode(approval.arguments).decode()
            note = f"The person wants other arguments: {wanted} {note}".strip()
        else:
            payload[edited] = approval.arguments
    if note:
        payload[next((name for name in NOTES if name in properties), "reason")] = note
    return payload
