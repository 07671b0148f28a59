"""The endpoints' dependencies on models, MCP servers and workers, as small protocols and values that `wiring`
implements."""

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.server_info import McpFailure, McpPrompt, McpResource

__all__ = ["McpContents", "ModelFacts", "Models", "WorkerLimits"]


class ModelFacts(Protocol):
    """The facts about a model in `/v1/caps`. `context_tokens` is the size of its context window."""

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int: ...

    @property
    def supports_tools(self) -> bool: ...

    @property
    def supports_images(self) -> bool: ...


class Models(Protocol):
    """The models that this server can call and that their providers have listed."""

    @property
    def names(self) -> list[str]:
        """Names of the configured providers."""

    @property
    def scripted(self) -> list[str]:
        """Names of the providers that return scripted answers, without a model."""

    async def listed(self) -> None:
        """Wait for a short time for model lists that were not received yet."""

    def model_infos(self) -> Mapping[str, ModelFacts]:
        """Return every known model by its full name."""

    def samplers(self, model: str | None = None) -> Collection[str]:
        """Return the sampling parameters that `model` takes; if `model` is None, return the parameters that at least
        one model takes."""


class McpContents(Protocol):
    """The resources and prompts of MCP servers. `roles` are the roles of the caller; the caller gets only content that
    the operator allows for these roles."""

    async def settled(self) -> None:
        """Wait for a short time until each server was tried once."""

    async def resources(self, roles: Collection[str]) -> tuple[list[McpResource], list[McpFailure]]: ...

    async def prompts(self, roles: Collection[str]) -> tuple[list[McpPrompt], list[McpFailure]]: ...

    async def read_resource(self, server: str, uri: str, roles: Collection[str]) -> list[JsonObject]:
        """Return the content as parts of a message. Raises ToolFailed, with a message for the caller."""

    async def get_prompt(
        self, server: str, name: str, arguments: dict[str, str], roles: Collection[str]
    ) -> list[JsonObject]:
        """Return the content as parts of a message. Raises ToolFailed, with a message for the caller."""


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of `GET /v1/caps` that workers enforce."""

    tool_timeout_max_seconds: float
    tool_result_max_bytes: int
    worker_processes_max_count: int
