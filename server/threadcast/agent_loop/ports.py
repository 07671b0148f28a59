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
        """The cached view of the chat's earlier messages, in the form in which the model reads them."""

    async def commit(self, write: Callable[[EntryBuilder], _T]) -> _T:
        """Append one entry after all deltas and events that were offered before. Return the result of `write` when the
        entry is durable."""

    async def changed(self) -> None:
        """Wait for the next change of the private state. Read `state` immediately before, without an await in between,
        so that no change is missed."""

    def now_ms(self) -> int:
        """Return the approximate time of the store's clock in Unix milliseconds."""

    def checked_mode(self, mode: str) -> str:
        """Return the name of the profile that `mode` names for a sub-chat. Raises ToolFailed: a sub-chat must not have
        this profile."""

    async def stream(self, op: DeltaOp | AgentData) -> None:
        """Offer a delta of the open answer, or data of an agent. Wait while too many offered bytes are not yet
        durable."""

    def offer(self, event: ToolStatus | Emitted) -> None:
        """Offer a progress report or a tool's event without waiting. Only the latest report of a call is kept."""

    async def fetch_blob(self, hash: str) -> Blob | None:
        """Return a blob of this chat; None if the blob no longer exists."""

    async def put_blob(self, blob: Blob) -> bool:
        """Store a blob of this chat before an entry refers to the blob. Returns False if the blob cannot be stored."""

    def trace(self, record: Trace) -> None:
        """Offer a record of the run's trace without waiting. The record may be dropped."""

    def tools(self) -> ChatTools:
        """Return the tools that this chat may use now."""

    def chats_of(self, tool_call_id: str) -> ChatsPort:
        """Return the interface through which this call opens and uses its own sub-chats."""

    def questions_of(self, tool_name: str) -> AskPort:
        """Return the interface through which one call of this tool asks people."""

    def processes_of(self, tool_call_id: str) -> ProcessesPort:
        """Return the interface through which this call uses processes."""


class ModelTable(Protocol):
    def resolve(self, name: str) -> tuple[Provider, str]:
        """Return the provider of `provider/model` and the model's name at that provider. Raises ModelFailed."""


class Authorizations(Protocol):
    async def authorization(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        """Return the `Authorization` value of the latest of these requests, or None if the value is no longer
        stored."""
