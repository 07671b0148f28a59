"""The settings of agents that other programs and servers are: `[agents.NAME]`."""

from typing import Literal

from threadcast.settings.shown import check_http_url
from threadcast.settings.values import Name, Seconds, Secret, Section

__all__ = ["ConfiguredAgent"]


class ConfiguredAgent(Section, frozen=True):
    """An agent that is another program or server. It answers chats with the mode NAME."""

    kind: Literal["acp", "ag_ui"]
    """acp: a coding agent that speaks the Agent Client Protocol, as a child process. ag_ui: a remote agent that speaks
    AG-UI."""

    title: str = ""
    description: str = ""

    url: str = ""
    """ag_ui: the address that receives the runs by POST. Redirects are not followed."""

    headers: dict[str, Secret] = {}
    """ag_ui: headers of every request, such as Authorization."""

    silence_seconds: Seconds = 300.0
    """The longest time without a byte of the agent. A working agent sends events or comments more often."""

    policies: dict[Name, Literal["auto", "ask", "deny"]] = {}
    """The policies of tools that the agent carries out itself, by name, for the approvals that it asks for: `auto`
    answers them without asking a person, `deny` rejects them. The default is `ask`."""

    enabled: bool = True

    def __post_init__(self) -> None:
        if self.kind == "ag_ui":
            if not self.url:
                raise ValueError('an agent of the kind "ag_ui" needs a url')
            check_http_url("url", self.url)
