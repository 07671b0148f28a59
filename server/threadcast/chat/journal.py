"""Defines the journal of an open run whose agent is a durable function. The journal has the results of the function's
operations.

The journal is part of the chat's private state. After a crash or a pause the function runs again from the top, and each
operation in the journal returns its recorded result. The module has structs, private facts and the fold of these facts,
and imports no other module of the chat.

Each operation has a **key**. The key of a function's operation consists of the key of its scope and its number in this
scope. For example, "3" is operation 3 of the function, and "3.1.0" is operation 0 of branch 1 of the gather "3". The
key of a framework's operation consists of "@", the kind, and the key that the integration has given, such as
"@answer:model-2".
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "AgentFact",
    "AgentMissing",
    "AgentParked",
    "AgentRestarted",
    "AgentStarted",
    "DurableRun",
    "Operation",
    "OperationError",
    "OperationRecorded",
    "Status",
    "Wait",
    "fold_agent",
    "need_key",
]

Status: TypeAlias = Literal["begun", "done", "failed", "unknown", "cancelled"]
"""`begun`: the operation has a start but no end. `unknown`: its worker died, so the operation may or may not have had
its effect. `cancelled`: another branch of the same `first` ended earlier."""

RECORD_BYTES = 100
"""The approximate bytes of a record without its value. The number is used for the size limit of the journal."""


class OperationError(msgspec.Struct, frozen=True):
    """The error that an operation raised: the bare name of its class, and its message."""

    kind: str
    message: str


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one operation. `kind` is step, call, chat, ask, sleep, answer, now, random, new_id, version,
    gather, first, steered or restart. Operations of frameworks also have the kinds attempt, need (a person must approve
    the call `ref`), payload, tool (the declaration of a tool) and value.

    `digest` identifies the arguments of operations whose arguments a replay compares. `value` is the result as JSON
    text. A value above 1 MB is in the private blob `blob`. `ref` is the id of the tool call, message or question that
    the operation has shown, or the name of its sub-chat. `until_ms` is the end of a sleep, and `at_ms` the start of the
    operation, both in Unix milliseconds. `retry` is the retry class of a step.
    """

    kind: str
    name: str = ""
    status: Status = "done"
    digest: str = ""
    value: str | None = None
    blob: str | None = None
    ref: str = ""
    error: OperationError | None = None
    until_ms: int | None = None
    at_ms: int = 0
    retry: str = ""


class Wait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that an operation waits for without a worker. `on` is decision (a person decides about the call or
    question `ref`), client (a client sends the result of the call `ref`), child (the sub-chat of `ref` ends),
    child_room (another sub-chat may start), time (the time is `until_ms`) or path (no client carries out a call)."""

    key: str
    on: str
    ref: str = ""
    until_ms: int | None = None


class DurableRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The durable function of an open run and its journal.

    `path_length` is the number of messages on the path when the run began. These messages are the function's input.
    `waits` is empty while a worker works on the run. `tools` are the tools that the agent has declared, as JSON text,
    by name. `restarts` counts the calls of `restart`; `state` is the JSON text that the last call passed.
    `journal_bytes` is the approximate size of the journal. `missing_since_ms` is the time (Unix milliseconds) since
    which no worker with this agent was found.
    """

    name: str
    path_length: int
    journal: dict[str, Operation] = {}
    journal_bytes: int = 0
    waits: tuple[Wait, ...] = ()
    tools: dict[str, str] = {}
    restarts: int = 0
    state: str | None = None
    missing_since_ms: int | None = None


class _Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True, kw_only=True):
    """The base of the facts of this module. `fact` is the tag of the JSON."""


class AgentStarted(_Fact, frozen=True, tag="agent_started"):
    """The open run is carried out by the durable agent `name`. `params` are all parameters that were set when the agent
    started. They apply to the whole run."""

    name: str
    path_length: int
    params: JsonObject = {}


class OperationRecorded(_Fact, frozen=True, tag="operation_recorded"):
    """The operation `key` has begun or ended."""

    key: str
    operation: Operation


class AgentParked(_Fact, frozen=True, tag="agent_parked"):
    """All branches of the function wait, and the function was suspended. If `waits` is empty, the function runs
    again."""

    waits: tuple[Wait, ...] = ()


class AgentRestarted(_Fact, frozen=True, tag="agent_restarted"):
    """The function begins again from the top with an empty journal and with `state`, which is JSON text."""

    state: str


class AgentMissing(_Fact, frozen=True, tag="agent_missing"):
    """No worker with the agent was found since `since_ms` (Unix milliseconds). None means that a worker has the
    agent."""

    since_ms: int | None = None


AgentFact: TypeAlias = AgentStarted | OperationRecorded | AgentParked | AgentRestarted | AgentMissing


def need_key(call_id: str) -> str:
    """Return the key of the operation that records that a person must approve the call, even if the policy of its tool
    needs no approval."""
    return f"@need:{call_id}"


def fold_agent(agent: DurableRun, fact: AgentFact) -> DurableRun:
    """Return the durable run after `fact`."""
    match fact:
        case OperationRecorded(key=key, operation=operation):
            before = agent.journal.get(key)
            added_bytes = _bytes_of(operation) - (_bytes_of(before) if before is not None else 0)
            is_tool = operation.kind == "tool"
            return replace(
                agent,
                journal={**agent.journal, key: operation},
                journal_bytes=agent.journal_bytes + added_bytes,
                tools={**agent.tools, operation.name: operation.value or "{}"} if is_tool else agent.tools,
            )
        case AgentParked(waits=waits):
            return replace(agent, waits=waits)
        case AgentRestarted(state=state):
            return replace(
                agent,
                journal={},
                journal_bytes=len(state),
                waits=(),
                tools={},
                restarts=agent.restarts + 1,
                state=state,
            )
        case AgentMissing(since_ms=since_ms):
            return replace(agent, missing_since_ms=since_ms)
    return agent


def _bytes_of(operation: Operation) -> int:
    return RECORD_BYTES + len(operation.value or "") + len(operation.name)
