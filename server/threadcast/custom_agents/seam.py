"""The operations through which the integrations of agent frameworks use a chat (`threadcast.agents`).

An integration is a durable agent, and `ctx.seam` is its `Seam`. A `Seam` differs from the operations of an
`AgentContext` in two ways. The integration names its operations with its own keys, because a framework may reach them
in any order and resume in the middle. Also, every task that the framework starts may use the operations while the
agent's function is running.

A key is a text of 1 to 200 characters. It must be the same in a replay, and unique in the run for each method.
"""

from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from threadcast.custom_agents.pieces import Data
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.tools.agent_tool import CallFunction, DeclaredAgentTool
from threadcast.tools.base import Payload, ToolResult
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "Approval",
    "AttemptCut",
    "CallFunction",
    "CallReturn",
    "DeclaredAgentTool",
    "NeedsApproval",
    "NotFinished",
    "Payload",
    "Recorded",
    "Seam",
    "ShownCall",
    "ShownMessage",
]


class Recorded(msgspec.Struct, frozen=True):
    """A piece of `Seam.message`: the private value of the message, which a replay returns. Only the last `Recorded` of
    a message counts."""

    value: Any  # Any: JSON


class ShownCall(msgspec.Struct, frozen=True):
    """A call in a message. `id` is its id in the chat, and `own_id` the id that the framework gave it. `arguments` is
    the JSON text that the model wrote."""

    id: str
    own_id: str
    name: str
    arguments: str


class ShownMessage(msgspec.Struct, frozen=True):
    """A finished message of the assistant. `message_id` is '' if the message had no visible content and was removed.
    `value` is the recorded value of `Recorded`, or None."""

    message_id: str
    text: str
    calls: list[ShownCall]
    value: Any = None  # Any: JSON


class CallReturn(msgspec.Struct, frozen=True):
    """A possible result of a `CallFunction`. `result` is what clients and models read; `value` is private, and `call`
    returns it, also in a replay."""

    result: ToolResult
    value: Any = None  # Any: JSON


class Approval(msgspec.Struct, frozen=True):
    """A person's decision about a call. `arguments` are the arguments as edited by the person; None if the person did
    not edit them."""

    accepted: bool
    note: str = ""
    arguments: JsonObject | None = None


class AttemptCut(Exception):
    """The worker died during an attempt that may not be repeated. If the agent does not catch the error, its run ends
    as `interrupted`; everything that was shown remains in the chat."""


class NeedsApproval(Exception):
    """Raised by a function of `Seam.call` before it has any effect, if a person must approve this call although its
    policy does not ask. The function is called again once a person has accepted."""


class NotFinished(Exception):
    """Raised by a function of `Seam.call`, with the framework's own exception, if the call will continue later: the
    framework is about to ask something. `Seam.call` raises the framework's exception; the next `Seam.call` for the same
    call runs the function again."""

    def __init__(self, wrong: BaseException) -> None:
        super().__init__(type(wrong).__name__)
        self.wrong = wrong


class Seam(Protocol):
    """The operations of an integration. All raise asyncio.CancelledError once the run has ended."""

    async def message(
        self, key: str, pieces: Callable[[], AsyncIterable[object]], *, speaker: str = ""
    ) -> ShownMessage:
        """Write one message of the assistant and return it. A finished message is not written again.

        `pieces()` yields the pieces of a round, such as `Call`, `Payload` and `Keep`, and may also yield `Recorded`.
        After a crash `pieces()` is called again for an unfinished message: while it yields the text that people have
        already seen, nothing is sent; at the first difference the message is removed and begins anew. Messages are
        written one after the other: while a message is being written, other messages and calls wait. `speaker` is the
        name that clients show as the author. A message without text, reasoning, calls and payloads is removed.

        Raises:
            StepFailed: `pieces` raised an exception; the text that it had written remains. A replay raises it again.
        """

    async def call(
        self, call_id: str, run: CallFunction, *, whole: bool = False
    ) -> Any:  # Any: what `run` returned, or the private value
        """Carry out the call `call_id` of a message under its tool's policy, deadline and approval. `run` carries out
        the call, or a client if the policy is `client`. The tool is one of the agent's own tools (`AgentTool`), a
        declared tool, or any offered tool; an offered tool runs in place of `run`. While all open calls wait, no worker
        is held. With `whole`, a client's result counts as failed if the chat shortened it or stored its images apart
        (PROTOCOL §10).

        Raises:
            CallFailed: `run` failed, the call was ended, or there is no such tool.
            CallDenied: a person or a policy denied the call.
            OutcomeUnknown: the worker died during the call, and the tool may not run twice.
        """

    def shown_calls(self) -> list[ShownCall]:
        """Return the calls in the finished messages of this run, including messages from before a crash or a pause."""

    def is_approved(self, call_id: str) -> bool:
        """Return whether a person has accepted the call `call_id`."""

    async def approve(self, call_id: str, *, must_ask: bool = True) -> Approval:
        """Ask a person about the call `call_id` before the framework carries it out itself. No person is asked if the
        tool was allowed permanently, or if its policy is `auto` and `must_ask` is false. A denied call is answered at
        once. While the question waits, no worker is held, unless `stay` was called."""

    async def begin_call(self, call_id: str) -> None:
        """Show that the framework carries out the call `call_id` itself."""

    async def progress(self, call_id: str, text: str) -> None:
        """Show the progress of a call that `begin_call` has begun. Only the newest report is kept."""

    async def report(self, call_id: str, result: ToolResult) -> None:
        """Show the result of a call that the framework has carried out itself. Does nothing if the call already has a
        result."""

    async def ask(
        self, key: str, text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None
    ) -> Any:  # Any: JSON that fits the question
        """Ask the people in the chat, like `AgentContext.ask`. While the question waits, no worker is held, unless
        `stay` was called.

        Raises:
            Rejected: the person declined to answer.
        """

    async def show(self, key: str, payload: Payload) -> bool:
        """Show structured data beside the run's newest message, or replace the data shown under this key. The page has
        views of its own for the types `plan` ({"entries": [{"content", "status", "priority"}]}) and `diff` ({"path",
        "before", "after"}, whose `before` is null for a new file). Data has at most 256,000 bytes as JSON. Returns
        False, and shows nothing, while the run has no message.

        Raises:
            ValueError: the data is too large.
        """

    async def with_attachments(self, messages: Sequence[RoundMessage]) -> list[RoundMessage]:
        """Return messages of `AgentContext.messages` with the bytes of their images, sounds and files in place of
        references: images as data URLs, files as base64 or as their text. The newest parts are fetched first, up to 32
        MB in all. A part beyond that limit, or a part that no longer exists, becomes a note in brackets."""

    async def put(self, key: str, value: Any) -> None:  # Any: JSON
        """Record a private value of this run. Only the last value of a key counts. A value has at most 16 MB as
        JSON."""

    async def get(self, key: str) -> Any:  # Any: JSON
        """Return the private value that `put` has recorded in this run, or None."""

    async def attempt(self, key: str) -> None:
        """Record the beginning of an operation that must not be repeated.

        Raises:
            AttemptCut: the operation has begun before, and its worker has died.
        """

    async def attempt_ended(self, key: str) -> None:
        """Record that the attempt `key` has ended: from now on, `attempt` does nothing in a replay."""

    def working(self) -> AbstractAsyncContextManager[None]:
        """Count the block as work: the function is not suspended during the block, unless operations inside the block
        wait."""

    async def keep(self, data: bytes) -> None:
        """Keep at most 256,000 private bytes with the newest answer of this run, in place of its `Keep`.

        Raises:
            ValueError: there are more bytes.
        """

    def stay(self) -> None:
        """Keep the function in memory from now on, even while it waits for people, because it holds a connection or a
        process."""

    async def declare(self, tools: Sequence[DeclaredAgentTool]) -> None:
        """Make tools known to this run. A server's tool with the same name takes precedence."""

    async def status(self, text: str) -> None:
        """Show what the agent is doing now; '' clears the text. The next message or call replaces the text."""

    async def emit(self, data: Data) -> None:
        """Send data to clients, as the event `agent_data`. The chat does not keep the data."""

    async def remove(self, message_id: str) -> None:
        """Remove the last message of the run, also from the clients. Its calls must be answered or removed first."""
