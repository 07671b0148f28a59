"""The dependencies of the agent loop, as protocols: its chat, the configured models, and the credentials of callers."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from threadcast.agent_loop.calls.client_events import Emitted
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.tracing import Trace
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.profile import ChatTools
from threadcast.providers.base import Provider
from threadcast.tools.chats import ChatsPort
from threadcast.tools.processes import ProcessesPort
from threadcast.tools.questions import AskPort
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.deltas import DeltaOp
from threadcast_protocol.wire.events import AgentData, ToolStatus

__all__ = ["Authorizations", "ChatPort", "ModelTable"]

_T = TypeVar("_T")


class ChatPort(Protocol):
    """The chat as the loop uses it; the actor implements it."""

    @property
    def state(self) -> OwnerState: ...

    @property
    def kept_view(self) -> KeptView:
        """What was made of the chat's earlier messages for the model."""

    async def commit(self, write: Callable[[EntryBuilder], _T]) -> _T:
        """Write one entry, behind everything that was offered before. Returns when the entry is durable."""

    async def changed(self) -> None:
        """Wait for the next change of the private state. Read `state` first, without an await in between."""

    def now_ms(self) -> int:
        """Return the approximate time of the store's clock in Unix milliseconds."""

    def checked_mode(self, mode: str) -> str:
        """Return the name of the profile that a sub-chat may have by `mode`. Raises ToolFailed."""

    async def stream(self, op: DeltaOp | AgentData) -> None:
        """Offer a delta of the open answer, or an agent's data beside it; waits while too much is not yet durable."""

    def offer(self, event: ToolStatus | Emitted) -> None:
        """Offer a progress report or a tool's event; never waits. Only the latest report of a call is kept."""

    async def fetch_blob(self, hash: str) -> Blob | None:
        """Return a blob of this chat; None if the blob no longer exists."""

    async def put_blob(self, blob: Blob) -> bool:
        """Store a blob of this chat, for an entry that refers to it. Returns False if the blob cannot be stored."""

    def trace(self, record: Trace) -> None:
        """Offer a piece of the run's trace; never waits. The piece may be dropped."""

    def tools(self) -> ChatTools:
        """Return the tools that this chat is offered now."""

    def chats_of(self, tool_call_id: str) -> ChatsPort:
        """Return the interface through which this call uses chats of its own."""

    def questions_of(self, tool_name: str) -> AskPort:
        """Return the function with which one call of this tool asks people."""

    def processes_of(self, tool_call_id: str) -> ProcessesPort:
        """Return the interface through which this call uses processes."""


class ModelTable(Protocol):
    def resolve(self, name: str) -> tuple[Provider, str]:
        """Return the provider of `provider/model` and the model's name at that provider. Raises ModelFailed."""


class Authorizations(Protocol):
    async def authorization(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        """Return the `Authorization` value of the latest of these requests; None when it is not kept any more."""
