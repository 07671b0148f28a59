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

    command: list[str] = []
    """acp: the program and its arguments, such as ["my-coder", "--acp"]. It starts in the folder of a chat, so a part
    that begins with ./ or ../ is made absolute; in threadcast.toml it starts from that file."""

    env: list[str] = []
    """acp: names of the server's variables that the program gets. It gets PATH, HOME, LANG and TMPDIR besides, and no
    other."""

    workspace: str = ""
    """acp: the folder in which each chat has a folder of its own. A relative path in threadcast.toml starts from that
    file. Unset: `workspaces/NAME` in `store.data_dir`."""

    files: Literal["workspace", "client", "none"] = "workspace"
    """acp: how the agent reaches files. workspace: through the server, below the chat's folder. client: through the
    client that watches the chat, such as an editor, which runs the agent's commands, too. none: by itself, with the
    rights of its user; the Gemini CLI needs it, because it cannot write new files through a server."""

    mode: str = ""
    model: str = ""
    """acp: the mode and the model of new sessions, by the names that the agent gives them. Unset: the agent's own."""

    idle_seconds: Seconds = 600.0
    """acp: the program of a chat is ended after this time without a prompt."""

    silence_seconds: Seconds = 300.0
    """The longest time without a byte of the agent while it works. Set it higher if the agent runs long commands."""

    policies: dict[Name, Literal["auto", "ask", "deny"]] = {}
    """The policies of tools that the agent carries out itself, by name, for the approvals that it asks for: `auto`
    answers them without asking a person, `deny` rejects them. The default is `ask`. acp: by ACP's kinds of calls, such
    as `edit` and `execute`."""

    enabled: bool = True

    def __post_init__(self) -> None:
        if self.kind == "ag_ui":
            if not self.url:
                raise ValueError('an agent of the kind "ag_ui" needs a url')
            check_http_url("url", self.url)
        elif not self.command or not self.command[0]:
            raise ValueError('an agent of the kind "acp" needs a command, such as ["my-coder", "--acp"]')
