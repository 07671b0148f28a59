"""Carries out the operations of agents of other frameworks, and records them in the journal of the run.

The key of an operation consists of "@", the operation's kind, and the key that the integration has chosen. Therefore
the key depends neither on the order of the operations nor on the task that runs them.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from msgspec.structs import asdict, replace

from threadcast.agent_loop.calls.gates import ask_meanwhile, question_about, run_or_answer, waits_for_client, withdraw
from threadcast.agent_loop.durable.answers import write_message
from threadcast.agent_loop.durable.asking import ask_question, question_of
from threadcast.agent_loop.durable.calls import CallRunner, FrameworkCall, must_ask, run_framework_call
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.results import ended_with, value_of
from threadcast.agent_loop.history.attachments import resolved_messages
from threadcast.chat.agent_steps import record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import CallAsked, ProviderDataKept
from threadcast.chat.journal import Operation, Wait, need_key
from threadcast.chat.owner_state import ProviderEcho
from threadcast.chat.runs import answer_call, asking_message_id, open_calls
from threadcast.chat.runtime import say_runtime
from threadcast.chat.tool_results import LOGGED_RESULT_MAX_BYTES, is_whole
from threadcast.custom_agents.errors import CallFailed, StepFailed
from threadcast.custom_agents.pieces import Data, Keep, delta_of
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.custom_agents.seam import Approval, AttemptCut, Payload, ShownCall, ShownMessage
from threadcast.custom_agents.values import encoded
from threadcast.profiles.payload_types import summary_of
from threadcast.providers.base import AGENTS, AgentDataDelta, ProviderData
from threadcast.tools.agent_tool import CallFunction, DeclaredAgentTool
from threadcast.tools.base import ToolResult
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.events import AgentData, MessageRemoved, PayloadAdded, PayloadUpdated, ToolStatus
from threadcast_protocol.wire.mending import mend_text, mended_json
from threadcast_protocol.wire.messages import JsonObject, Message, ToolCall, text_of

__all__ = ["TOOLS_MAX", "DurableSeam"]

KEY_MAX_CHARACTERS = 200

TOOLS_MAX = 500
"""The maximum number of tools that an agent may declare in a run, because the tools are part of the chat's state."""

TOOL_NAME_MAX_CHARACTERS = 128
"""The maximum length of a declared tool's name, the same as for the tools of MCP servers and for the calls of
models."""

PAYLOAD_MAX_BYTES = 256_000
"""The maximum bytes of a payload, the same as for a payload of a tool, because every snapshot contains the payload."""

PAGE_TYPES = ("diff", "plan")
"""The payload types that the web page shows without a declaration."""

STATUS_MAX_CHARACTERS = 200
NOT_WHOLE = f"The result has more than {LOGGED_RESULT_MAX_BYTES:,} bytes, or images; ask for fewer lines."
PROGRESS_MAX_CHARACTERS = 2_000
"""The maximum length of a progress report, the same as for tools."""


class DurableSeam:
    """The `Seam` of one execution. `calls` runs the calls of tools."""

    def __init__(self, execution: Execution, calls: CallRunner) -> None:
        self._execution = execution
        self._calls = calls

    async def message(
        self, key: str, pieces: Callable[[], AsyncIterable[object]], *, speaker: str = ""
    ) -> ShownMessage:
        execution, key = self._execution, _key("answer", key)
        extra = {"speaker": mend_text(speaker)[:TOOL_NAME_MAX_CHARACTERS]} if speaker else {}
        found = await write_message(execution, key, "message", pieces, extra, partial(self._kept, None))
        if found.error is not None:
            raise StepFailed(found.error.kind, found.error.message, found.name)
        value = await value_of(execution, found, Any) if found.value or found.blob else None
        message = execution.chat.state.nodes.get(found.ref)
        if message is None:
            return ShownMessage("", "", [], value)
        return ShownMessage(found.ref, text_of(message.content), self._calls_in(message), value)

    def shown_calls(self) -> list[ShownCall]:
        state = self._execution.chat.state
        of_run = state.path[self._execution.run_open.first_index :]
        return [call for key in of_run for call in self._calls_in(state.nodes[key])]

    def _calls_in(self, message: Message) -> list[ShownCall]:
        private = self._execution.chat.state.private
        return [
            ShownCall(
                call.id,
                private.provider_call_ids.get(call.id, call.id),
                call.function.name,
                private.hidden_arguments.get(call.id, call.function.arguments),
            )
            for call in message.tool_calls
        ]

    async def _kept(self, wanted: Any, begun: Operation, value: Any) -> Operation:
        """Return the record `begun`, with `value` added as the private value of the operation."""
        if value is None:
            return begun
        return replace(await ended_with(self._execution, begun, value, Any), status=begun.status)

    async def call(self, call_id: str, run: CallFunction, *, whole: bool = False) -> Any:
        call = self._call(call_id)
        found = await run_framework_call(
            self._execution, self._calls, FrameworkCall(call, run, partial(self._kept, None))
        )
        answered = self._execution.result_of(call_id)
        if whole and answered is not None and not is_whole(text_of(answered.content), answered.attachments):
            raise CallFailed(NOT_WHOLE)
        if isinstance(found, Operation):
            return await value_of(self._execution, found, Any)
        return found

    def is_approved(self, call_id: str) -> bool:
        gate = self._execution.run_open.gates.get(call_id)
        by_person = gate is not None and gate.status in ("accepted", "started")
        return by_person and need_key(call_id) in self._execution.durable.journal

    async def approve(self, call_id: str, *, must_ask: bool = True) -> Approval:
        execution, call = self._execution, self._call(call_id)
        await self._known(call)
        wait = Wait(key=_key("approve", call_id), on="decision", ref=call_id)
        async with execution.operation(wait.key) as (branch, _):
            if must_ask and need_key(call_id) not in execution.durable.journal:
                await execution.commit(branch, lambda builder: _note_need(builder, call_id))
            try:
                while (
                    found := await execution.commit(branch, lambda builder: _judged(execution, builder, call))
                ) is None:
                    await execution.wait_once(branch, wait)
            except asyncio.CancelledError:
                if execution.stays and not execution.is_over:
                    with anyio.CancelScope(shield=True):  # the framework no longer needs the decision
                        await execution.commit(branch, lambda builder: withdraw(builder, call_id))
                raise
            return found

    async def begin_call(self, call_id: str) -> None:
        execution, call = self._execution, self._call(call_id)
        await self._known(call)

        def write(builder: EntryBuilder) -> None:
            run = builder.state.private.run
            if run is not None and call in open_calls(builder.state):
                run_or_answer(builder, run, call, execution.chat.tools(), has_run=True)

        async with execution.operation(_key("begin", call_id)) as (branch, _):
            await execution.commit(branch, write)

    async def progress(self, call_id: str, text: str) -> None:
        call, state = self._call(call_id), self._execution.chat.state
        self._execution.chat.offer(
            ToolStatus(
                tool_call_id=call.id,
                name=call.function.name,
                message_id=asking_message_id(state, call.id),
                index=self._execution.run_open.calls_count,
                status="progress",
                message=mend_text(text[:PROGRESS_MAX_CHARACTERS]),
            )
        )

    async def report(self, call_id: str, result: ToolResult) -> None:
        call = self._call(call_id)
        await self._known(call)

        def answer_client_call(builder: EntryBuilder) -> None:
            if waits_for_client(builder.state, call):
                answer_call(builder, call, result.content, status="error" if result.failed else "done")

        async with self._execution.operation(_key("report", call_id)) as (branch, _):
            await self._execution.commit(branch, answer_client_call)

        async def carried_out(arguments: JsonObject, context: ToolContext) -> ToolResult:
            return result

        if self._execution.result_of(call_id) is None:
            of_framework = FrameworkCall(call, carried_out, partial(self._kept, None), has_run=True)
            try:
                await run_framework_call(self._execution, self._calls, of_framework)
            except Exception:
                if self._execution.result_of(call_id) is None:
                    raise

    async def ask(self, key: str, text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None) -> Any:
        question, key = question_of(text, options, schema), _key("ask", key)
        async with self._execution.operation(key) as (branch, found):
            return await ask_question(self._execution, branch, key, found, question)

    async def show(self, key: str, payload: Payload) -> bool:
        execution, key = self._execution, _key("payload", key)
        data = mended_json(payload.data)
        if len(data) > PAYLOAD_MAX_BYTES:
            raise ValueError(f"a payload has at most {PAYLOAD_MAX_BYTES:,} bytes as JSON, not {len(data):,}")

        def write(builder: EntryBuilder) -> bool:
            message_id = _newest_message(builder)
            if not message_id:
                return False
            known = execution.durable.journal.get(key)
            kind = execution.chat.tools().profile.payload_types.get(payload.type)
            before = next((each for each in builder.state.payloads if known and each.payload_id == known.ref), None)
            shown = PayloadAdded(
                payload_id=before.payload_id if before is not None else builder.new_id("pl"),
                payload_type=payload.type,
                data=decode_any(data),
                summary=payload.summary.strip() or summary_of(kind, payload.type, payload.data),
                source="llm",
                message_id=before.message_id if before is not None else message_id,
                unregistered=kind is None and payload.type not in PAGE_TYPES,
            )
            if before is None:
                record(builder, key, Operation(kind="payload", ref=shown.payload_id))
            builder.say(shown if before is None else PayloadUpdated(**asdict(shown)))
            return True

        async with execution.operation(key) as (branch, _):
            return await execution.commit(branch, write)

    async def with_attachments(self, messages: Sequence[RoundMessage]) -> list[RoundMessage]:
        return (await resolved_messages(messages, None, self._execution.chat.fetch_blob))[0]

    async def put(self, key: str, value: Any) -> None:
        key = _key("value", key)
        async with self._execution.operation(key) as (branch, _):
            operation = await ended_with(self._execution, Operation(kind="value"), value, Any)
            await self._execution.record(branch, key, operation)

    async def get(self, key: str) -> Any:
        found = self._execution.durable.journal.get(_key("value", key))
        return None if found is None else await value_of(self._execution, found, Any)

    async def attempt(self, key: str) -> None:
        name, key = key, _key("attempt", key)
        async with self._execution.operation(key) as (branch, found):
            if found is not None and found.status == "begun":
                raise AttemptCut("The server that ran the agent has stopped. What the agent said until then stays.")
            if found is None:
                begun = Operation(kind="attempt", name=name, status="begun", at_ms=self._execution.chat.now_ms())
                await self._execution.record(branch, key, begun)

    async def attempt_ended(self, key: str) -> None:
        name, key = key, _key("attempt", key)
        async with self._execution.operation(key) as (branch, _):
            await self._execution.record(branch, key, Operation(kind="attempt", name=name))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self._execution.operation(_key("working", "now")):
            yield

    async def keep(self, data: bytes) -> None:
        delta = delta_of(Keep(data), self._execution.durable.name, 0)

        def write(builder: EntryBuilder) -> None:
            run = builder.state.private.run
            of_run = builder.state.path[run.first_index :] if run is not None else ()
            answers = [key for key in of_run if builder.state.nodes[key].role == "assistant"]
            if answers and isinstance(delta, ProviderData):
                echo = ProviderEcho(AGENTS.rstrip("/"), [delta.data])
                builder.note(ProviderDataKept(message_id=answers[-1], echo=echo))

        async with self._execution.operation(_key("keep", "now")) as (branch, _):
            await self._execution.commit(branch, write)

    def stay(self) -> None:
        self._execution.stays = True

    async def declare(self, tools: Sequence[DeclaredAgentTool]) -> None:
        execution = self._execution
        known = execution.durable.tools
        new = {each.name: each for each in tools if known.get(each.name) != encoded(each)}
        for name in new:
            if not 0 < len(name) <= TOOL_NAME_MAX_CHARACTERS:
                raise ValueError(f"the name of a tool has 1 to {TOOL_NAME_MAX_CHARACTERS} characters, not {name!r:.50}")
        if len({*known, *new}) > TOOLS_MAX:
            raise ValueError(f"an agent may declare {TOOLS_MAX} tools in a run, not {len({*known, *new})}")
        if not new:
            return

        def write(builder: EntryBuilder) -> None:
            for name, each in new.items():
                record(builder, _key("tool", name), Operation(kind="tool", name=name, value=encoded(each)))

        async with execution.operation(_key("tool", next(iter(new)))) as (branch, _):
            await execution.commit(branch, write)

    async def status(self, text: str) -> None:
        shown = mend_text(text)[:STATUS_MAX_CHARACTERS] or None

        def write(builder: EntryBuilder) -> None:
            say_runtime(builder, builder.state.runtime.state, status_text=shown)

        async with self._execution.operation(_key("status", "now")) as (branch, _):
            await self._execution.commit(branch, write)

    async def emit(self, data: Data) -> None:
        delta = delta_of(data, self._execution.durable.name, 0)
        state = self._execution.chat.state
        message_id = state.draft.message.message_id if state.draft is not None else ""
        if isinstance(delta, AgentDataDelta):
            async with self._execution.operation(_key("data", "now")) as (branch, _):
                await self._execution.stream(branch, AgentData(message_id, delta.type, delta.data))

    async def remove(self, message_id: str) -> None:
        state = self._execution.chat.state
        if message_id not in state.path[self._execution.run_open.first_index :]:
            return
        if state.path[-1] != message_id or state.draft is not None:
            raise ValueError("only the last message of the run can be removed")
        async with self._execution.operation(_key("remove", message_id)) as (branch, _):
            await self._execution.commit(branch, lambda builder: builder.say(MessageRemoved(message_id)))

    def _call(self, call_id: str) -> ToolCall:
        """Return a call of this run. Raises ValueError: there is no such call."""
        state = self._execution.chat.state
        for key in reversed(state.path[self._execution.run_open.first_index :]):
            for call in state.nodes[key].tool_calls:
                if call.id == call_id:
                    return call
        raise ValueError(f"no message of this run has the call {call_id!r:.100}")

    async def _known(self, call: ToolCall) -> None:
        """Declare the tool of a call that the framework carries out itself, unless the tool is already declared."""
        name = call.function.name
        if self._execution.chat.tools().get(name) is None:
            await self.declare([DeclaredAgentTool(name=name[:TOOL_NAME_MAX_CHARACTERS] or "tool")])


def _key(kind: str, key: str) -> str:
    """Return the journal's key of an operation. Raises ValueError: the given key is not a text of 1 to 200
    characters."""
    if not isinstance(key, str) or not 0 < len(key) <= KEY_MAX_CHARACTERS:
        raise ValueError(f"a key is a text of 1 to {KEY_MAX_CHARACTERS} characters, not {key!r:.50}")
    return f"@{kind}:{mend_text(key)}"


def _newest_message(builder: EntryBuilder) -> str:
    """Return the id of the newest message of the run to which a payload can belong, or '' if there is no such
    message."""
    state, run = builder.state, builder.state.private.run
    if state.draft is not None:
        return state.draft.message.message_id
    of_run = state.path[run.first_index :] if run is not None else ()
    return next((key for key in reversed(of_run) if state.nodes[key].role in ("assistant", "tool")), "")


def _note_need(builder: EntryBuilder, call_id: str) -> None:
    run = builder.state.private.run
    gate = run.gates.get(call_id) if run is not None else None
    if gate is None or gate.status == "started":
        must_ask(builder, call_id)
    else:
        record(builder, need_key(call_id), Operation(kind="need", ref=call_id))


def _judged(execution: Execution, builder: EntryBuilder, call: ToolCall) -> Approval | None:
    """Return the decision about a call that the framework carries out itself, or None if people must be asked first."""
    tools = execution.chat.tools()
    run, tool = builder.state.private.run, tools.get(call.function.name)
    gate = run.gates.get(call.id) if run is not None else None
    if run is None or tool is None:  # the table of tools has changed meanwhile
        return Approval(False, f"There is no tool {call.function.name!r:.100} any more.")
    if (answered := execution.result_of(call.id)) is not None:
        is_accepted = answered.extra.get("outcome") != "denied"
        note, edited = (gate.note or "", gate.edited_input) if gate is not None else ("", None)
        return Approval(is_accepted, note, edited if is_accepted else None)
    if gate is not None and gate.status == "rejected":
        note = gate.note or ""
        answer_call(builder, call, f"The call was denied by user.{f' Note: {note}' if note else ''}", status="denied")
        return Approval(False, note)
    if tool.policy == "deny":
        answer_call(builder, call, f"The tool {tool.name} is denied by policy.", status="denied")
        return Approval(False, f"The tool {tool.name} is denied by policy.")
    reason = question_about(builder.state, run, call, tools)
    if reason is None:
        return Approval(True, arguments=gate.edited_input if gate is not None else None)
    if all(each.tool_call_id != call.id for each in builder.state.runtime.pause_reasons):
        if execution.stays:
            ask_meanwhile(builder, reason, tools)
        elif gate is None or gate.status != "asked" or not gate.input_hash:
            builder.note(CallAsked(tool_call_id=call.id, input_hash=reason.input_hash))
    return None
