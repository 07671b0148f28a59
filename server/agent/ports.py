"""The dependencies of the agent loop, as protocols: its chat, the configured models, and the credentials of callers."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from protocol.blobs import Blob
from protocol.deltas import DeltaOp
from protocol.events import ToolStatus
from protocol.ledger import Ledger
from protocol.state import ChatState
from server.agent.calls.client_events import Emitted
from server.agent.place.profile import ChatTools
from server.agent.tracing import Trace
from server.providers.base import Provider
from server.tools.chats import ChatsPort
from server.tools.processes import ProcessesPort

__all__ = ["Authorizations", "ChatPort", "ModelTable"]

_T = TypeVar("_T")


class ChatPort(Protocol):
    """The chat as the loop uses it; the actor implements it."""

    @property
    def state(self) -> ChatState: ...

    async def commit(self, write: Callable[[Ledger], _T]) -> _T:
        """Write one entry, behind everything that was offered before; returns once it is durable."""

    async def stream(self, op: DeltaOp) -> None:
        """Offer a delta of the open answer; waits while too much is not yet durable."""

    def offer(self, event: ToolStatus | Emitted) -> None:
        """Offer a progress report or a tool's event; never waits, the latest progress of a call wins."""

    async def fetch_blob(self, hash: str) -> Blob | None:
        """Return a blob of this chat; None when it is gone."""

    async def put_blob(self, blob: Blob) -> bool:
        """Store a blob of this chat, for an entry that refers to it. Returns False when it cannot be stored."""

    def trace(self, record: Trace) -> None:
        """Offer a piece of the run's trace; never waits. The piece may be dropped."""

    def tools(self) -> ChatTools:
        """Return the tools that this chat is offered now."""

    def chats_of(self, tool_call_id: str) -> ChatsPort:
        """Return the interface through which this call uses chats of its own."""

    def processes_of(self, tool_call_id: str) -> ProcessesPort:
        """Return the interface through which this call uses processes."""


class ModelTable(Protocol):
    def resolve(self, name: str) -> tuple[Provider, str]:
        """Return the provider of `provider/model` and the model's name at that provider. Raises ModelFailed."""


class Authorizations(Protocol):
    async def authorization(self, principal_id: str, chat_id: str, request_ids: Sequence[str]) -> str | None:
        """Return the `Authorization` value of the latest of these requests; None when it is not kept any more."""
