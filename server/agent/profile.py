"""A profile: a named bundle of identity, tools, model and limits, chosen per chat by the thread's `mode`.

Profiles are the operator's configuration; `Profiles` finds the one that holds for a chat and joins it with the tool
registry into the table that the plan looks things up in. An unknown mode falls back to the default profile.
"""

from collections.abc import Container, Mapping
from typing import Protocol

import msgspec

from protocol.messages import JsonObject
from protocol.params import effective
from protocol.state import ChatState
from protocol.tool_names import covers, mcp_server_of
from server.agent.payload_types import Action, PayloadType
from server.providers.base import ToolSpec
from server.tools.base import Tool
from server.tools.bound import BoundTool
from server.tools.traits import Binding

__all__ = ["DEFAULT_PROFILE", "ChatTools", "Profile", "Profiles", "ToolSource"]

DEFAULT_PROFILE = "agent"

DEFAULT_IDENTITY = (
    "You are a helpful assistant. Use the tools you are offered when they help; say plainly when you do not know."
)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """`tools`: names of the tools offered, `mcp__NAME__*` for all of an MCP server, None for all. `model`: '' for the
    server's default. `params`: defaults of optional thread parameters, below what a thread sets itself (SET-1)."""

    name: str
    title: str = "Agent"
    description: str = ""
    system_prompt: str = DEFAULT_IDENTITY
    tools: list[str] | None = None
    model: str = ""
    params: JsonObject = {}
    payload_types: dict[str, PayloadType] = {}
    actions: dict[str, Action] = {}
    bindings: dict[str, tuple[Binding, ...]] = {}
    """By tool: arguments that the context fills in (LOOP-11)."""


class ToolSource(Protocol):
    """Where tools come and go while the server runs."""

    def tools(self) -> Mapping[str, Tool]:
        """Those that can be called now, by name; asked at each step."""


class ChatTools:
    """The tools that one chat is offered, in stable order, and what its profile says. A `calls.ToolTable`. `windows`
    are the sizes of the models' windows, in tokens by full name. `mcp_servers`: whose tools are among them, None for
    all."""

    def __init__(
        self,
        profile: Profile,
        tools: Mapping[str, Tool],
        disabled: frozenset[str],
        default_model: str,
        windows: Mapping[str, int] | None = None,
        mcp_servers: Container[str] | None = None,
    ) -> None:
        self.profile = profile
        self._offered = {
            name: BoundTool(tool, profile.bindings[name]) if name in profile.bindings else tool
            for name, tool in tools.items()
            if not covers(disabled, name)
            and (profile.tools is None or covers(profile.tools, name))
            and (mcp_servers is None or (server := mcp_server_of(name)) is None or server in mcp_servers)
        }
        self._windows = windows
        self.default_model = profile.model or default_model

    def get(self, name: str) -> Tool | None:
        return self._offered.get(name)

    def window_tokens(self, model: str) -> int | None:
        """Of a model by its full name, with or without options; None when nobody knows it."""
        return (self._windows or {}).get(model.partition("?")[0])

    @property
    def params(self) -> JsonObject:
        return self.profile.params

    @property
    def payload_types(self) -> dict[str, PayloadType]:
        """Those of this place, by name."""
        return self.profile.payload_types

    @property
    def actions(self) -> dict[str, Action]:
        """Those that may be suggested in this place, by their word."""
        return self.profile.actions

    @property
    def names(self) -> list[str]:
        return list(self._offered)

    def specs(self) -> list[ToolSpec]:
        """As the model sees them; a denied tool is not offered at all."""
        return [
            ToolSpec(tool.name, tool.description, tool.input_schema)
            for tool in self._offered.values()
            if tool.policy != "deny"
        ]


class Profiles:
    """All profiles of the server and all its tools."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        tools: Mapping[str, Tool],
        default_model: str,
        windows: Mapping[str, int] | None = None,
        source: ToolSource | None = None,
    ) -> None:
        self._source = source
        self._profiles = {DEFAULT_PROFILE: Profile(name=DEFAULT_PROFILE), **profiles}
        self._tools = tools
        self._windows = windows or {}
        self.default_model = default_model

    @property
    def all(self) -> list[Profile]:
        return list(self._profiles.values())

    def of(self, state: ChatState) -> Profile:
        """The profile that holds for a chat."""
        return self._profiles.get(state.thread.mode) or self._profiles[DEFAULT_PROFILE]

    def params_of(self, state: ChatState) -> JsonObject:
        """The profile's defaults of thread parameters, the model among them."""
        profile = self.of(state)
        return {**profile.params, "model": profile.model} if profile.model else profile.params

    def tools_of(self, state: ChatState) -> ChatTools:
        """The table of this chat, from its mode and its thread's `tools_disabled` and `mcp_servers`."""
        profile = self.of(state)
        tools = self._tools
        if self._source is not None and (coming := self._source.tools()):
            tools = dict(sorted({**coming, **tools}.items()))
        servers = effective(state, "mcp_servers", profile.params).value
        disabled = frozenset(effective(state, "tools_disabled", profile.params).value or ())
        return ChatTools(profile, tools, disabled, self.default_model, self._windows, servers)
